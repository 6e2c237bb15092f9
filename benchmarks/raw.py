"""RAW files: denoise the sensor's mosaic, or the developed picture? ``python -m benchmarks.raw``.

Pictures become mosaics with the noise of a sensor at some ISO numbers (see
:mod:`nelu_cli.raw.synthetic`). Both ways end in a developed picture, compared with that of the
clean mosaic: mean PSNR in dB of 16-bit sRGB. Seed 0. ``chosen`` is what ``nelu denoise`` does: the
one or the other, by the noise of the picture. Where the columns cross, ``_STRONG`` in
``nelu_cli/raw/mosaic.py`` belongs; the column ``noise`` is in hundredths of white.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import parser, show
from nelu_cli import images
from nelu_cli.data.sets import find, load_pixels
from nelu_cli.images import Picture
from nelu_cli.images.convert import developed
from nelu_cli.raw import register_raw
from nelu_cli.raw.mosaic import Mosaic
from nelu_cli.raw.synthetic import make_dng
from nelu_cli.runtime.models import Model, load_model
from nelu_cli.runtime.pipeline import denoise_pixels

Pixels = NDArray[Any]


def psnr(found: Picture, truth: Picture) -> float:
    difference = found.pixels.astype(np.float64) - truth.pixels
    return float(20 * np.log10(65535 / np.sqrt(np.mean(difference**2))))


def measure(pixels: Pixels, iso: float, grey: Model, colour: Model) -> dict[str, float]:
    """PSNR of one picture: noisy, and cleaned both ways; how noisy its mosaic is."""
    truth = developed(images.read(make_dng(pixels)))
    mosaic = images.read(make_dng(pixels, iso=iso))
    noisy = developed(mosaic)
    first = developed(replace(mosaic, pixels=denoise_pixels(mosaic.pixels, grey).pixels))
    second = replace(noisy, pixels=denoise_pixels(noisy.pixels, colour).pixels)
    sensor = mosaic.metadata.undeveloped
    assert isinstance(sensor, Mosaic)
    on_mosaic, on_developed = psnr(first, truth), psnr(second, truth)
    return {
        "noise": 100 * sensor.strength,
        "noisy": psnr(noisy, truth),
        "mosaic first": on_mosaic,
        "developed first": on_developed,
        "chosen": on_mosaic if sensor.drowned else on_developed,
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--dataset", default="photos", help="a set of nelu data, or a folder")
    options.add_argument("--count", type=int, default=24, help="pictures, from the first on")
    options.add_argument("--side", type=int, default=512, help="of the crop from the middle")
    options.add_argument(
        "--iso", type=float, nargs="+", default=[800, 1600, 3200, 6400, 12800, 25600]
    )
    options.add_argument("--mosaic-model", default="deep-gray")
    options.add_argument("--developed-model", default="photo-color")
    chosen = options.parse_args()
    register_raw()
    grey, colour = load_model(chosen.mosaic_model), load_model(chosen.developed_model)
    paths = find(chosen.dataset).paths[: chosen.count]
    rows = []
    for iso in chosen.iso:
        found = [measure(_middle(load_pixels(p, 3), chosen.side), iso, grey, colour) for p in paths]
        means = {way: float(np.mean([row[way] for row in found])) for way in found[0]}
        rows.append({"iso": iso, **means})
    ways = ("noise", "noisy", "mosaic first", "developed first", "chosen")
    formats = {"iso": ".0f", **dict.fromkeys(ways, ".2f")}
    title = f"PSNR in dB, {len(paths)} pictures, {grey.name} on the mosaic, {colour.name} developed"
    show(title, rows, chosen.json, formats)


def _middle(pixels: Pixels, side: int) -> Pixels:
    top, left = (max(0, (length - side) // 2) for length in pixels.shape[:2])
    return pixels[top : top + side, left : left + side]


if __name__ == "__main__":
    main()
