"""RAW files from ordinary pictures, with noise that is known: for measurements and tests.

The way of a camera backwards: sRGB values to light, white balance undone, one colour a pixel,
photons counted, read noise, rounded. As LibRaw develops it again, the clean file is the truth.
"""

import io
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nelu_cli.images import exif
from nelu_cli.raw.dng import Sensor, colour_tags, write_dng

_XYZ_TO_SRGB = np.array(
    [
        [3.2404542, -1.5371385, -0.4985314],
        [-0.9692660, 1.8760108, 0.0415560],
        [0.0556434, -0.2040259, 1.0572252],
    ]
)


@dataclass(frozen=True)
class Camera:
    """A sensor: its levels, its colours, and how its noise grows with the ISO number."""

    black: int = 512
    white: int = 16383
    cell: tuple[int, int, int, int] = (0, 1, 1, 2)
    balance: tuple[float, float, float] = (2.0, 1.0, 1.5)
    """What red, green and blue are multiplied by to make grey grey."""
    full_well: float = 60_000.0
    """Electrons at white at ISO 100; at other ISO numbers in inverse proportion."""
    read_noise: float = 3.0  # electrons

    def gain(self, iso: float) -> float:
        """Values per electron."""
        return (self.white - self.black) / (self.full_well * 100 / iso)


def make_dng(
    pixels: NDArray[np.uint8],
    camera: Camera = Camera(),
    *,
    iso: float | None = None,
    seed: int = 0,
    orientation: int = 1,
) -> bytes:
    """A DNG of an 8-bit sRGB picture (H, W, 3); without ``iso`` free of noise."""
    srgb = pixels.astype(np.float64) / 255
    light = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    colours = light / camera.balance
    mosaic = np.empty(colours.shape[:2])
    for place, colour in enumerate(camera.cell):
        row, col = divmod(place, 2)
        mosaic[row::2, col::2] = colours[row::2, col::2, colour]
    signal = mosaic * (camera.white - camera.black)
    if iso is not None:
        rng, gain = np.random.default_rng(seed), camera.gain(iso)
        electrons = rng.poisson(signal / gain) + rng.normal(0, camera.read_noise, signal.shape)
        signal = gain * electrons
    values = np.rint(signal + camera.black).clip(0, camera.white).astype(np.uint16)
    matrix = _XYZ_TO_SRGB / np.array(camera.balance)[:, None]
    colours_of = colour_tags(matrix, camera.balance, "Synthetic camera", "<")
    texts = [(271, b"Synthetic\0"), (272, b"Camera\0")]
    named = [exif.Entry(code, 2, len(text), text) for code, text in texts]
    sensitivity = exif.Entry(34855, 3, 1, struct.pack("<H", min(round(iso or 100), 65535)))
    children = ((exif.EXIF, exif.Directory((sensitivity,))),)
    tags = exif.Directory((*colours_of.entries, *named), children)
    black = (float(camera.black),) * 4
    content = io.BytesIO()
    write_dng(content, values, Sensor(camera.cell, black, camera.white, orientation, tags, "<"))
    return content.getvalue()
