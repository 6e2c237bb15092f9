"""What the formats that go through Pillow share.

Their plugins are called directly: no other format is ever tried, and Pillow's global limit on
pixels, which is not ours to change, does not apply.
"""

import warnings
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from PIL import Image

from nelu_cli.images.format import Source
from nelu_cli.images.picture import Header, JpegLayout, Metadata, Picture, row_slices, split_alpha

# Pillow warns of odd EXIF, which nobody can do anything about. This is said once and for all: to
# change the filters for a while is not safe in threads.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")

Opened = TypeVar("Opened", bound=Image.Image)

QUALITY = 95
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def opened(plugin: Callable[[BinaryIO], Opened], source: Source) -> Opened:
    """The file, opened by a plugin."""
    source.stream.seek(0)
    return plugin(source.stream)


def prober(plugin: Callable[[BinaryIO], Opened], format: str) -> Callable[[Source], Header]:
    """The function that probes files of a format."""
    return lambda source: header(opened(plugin, source), format)


def reader(plugin: Callable[[BinaryIO], Opened], format: str) -> Callable[[Source], Picture]:
    """The function that reads files of a format without peculiarities."""

    def read(source: Source) -> Picture:
        image = opened(plugin, source)
        return picture(image, format, metadata(image))

    return read


def header(image: Image.Image, format: str, dtype: DTypeLike = np.uint8) -> Header:
    """What an opened file says about its picture."""
    mode = _mode(image)
    return Header(
        format,
        image.width,
        image.height,
        {"L": 1, "LA": 1, "CMYK": 4}.get(mode, 3),
        np.dtype(dtype),
        alpha=mode.endswith("A"),
        animated=bool(getattr(image, "is_animated", False)),
    )


def picture(image: Image.Image, format: str, metadata: Metadata) -> Picture:
    """Decode an opened file, a few rows at a time: Pillow would make two whole copies."""
    image.load()
    mode = _mode(image)
    samples = np.empty((image.height, image.width, len(mode)), np.uint8)
    for rows in row_slices(samples.shape):
        part = image.crop((0, rows.start, image.width, rows.stop)).convert(mode)
        samples[rows] = np.asarray(part).reshape(samples[rows].shape)
    pixels, alpha = (samples, None) if mode == "CMYK" else split_alpha(samples)
    return Picture(pixels, alpha, format, metadata)


def image(picture: Picture, *, widen: bool = False) -> Image.Image:
    """Copy 8-bit pixels into Pillow, a few rows at a time.

    Args:
        picture: of a kind that Pillow knows.
        widen: make grey RGB, for formats that have no grey; done with alpha in any case.
    """
    pixels, alpha = picture.pixels, picture.alpha
    height, width, channels = pixels.shape
    if channels == 1 and (widen or alpha is not None):
        channels = 3
    bands = channels + (alpha is not None)
    mode = "CMYK" if picture.metadata.cmyk else _MODES[bands]
    result = Image.new(mode, (width, height))
    for rows in row_slices(pixels.shape):
        part = np.empty((rows.stop - rows.start, width, bands), np.uint8)
        part[..., :channels] = pixels[rows]
        if alpha is not None:
            part[..., -1] = alpha[rows]
        data = Image.frombytes(mode, (width, len(part)), part.tobytes())
        result.paste(data, (0, rows.start))
    return result


def metadata(
    image: Image.Image,
    *,
    lossy: bool = False,
    photoshop: bytes | None = None,
    layout: JpegLayout | None = None,
) -> Metadata:
    """Collect the metadata of an opened file."""
    info = image.info
    xmp = info.get("xmp")
    return Metadata(
        icc=info.get("icc_profile") or None,
        exif=(info.get("exif") or b"").removeprefix(b"Exif\0\0") or None,
        xmp=xmp if isinstance(xmp, bytes) else None,
        photoshop=photoshop,
        dpi=_dpi(info.get("dpi")),
        bilevel=image.mode == "1",
        cmyk=image.mode == "CMYK",
        lossy=lossy,
        jpeg=layout,
    )


def options(metadata: Metadata, mode: str) -> dict[str, Any]:
    """What Pillow's writers take of the metadata; a profile for grey does not fit RGB."""
    icc = metadata.icc
    if icc and mode.startswith("RGB") and icc[16:20] == b"GRAY":
        icc = None
    given = {"icc_profile": icc, "exif": metadata.exif, "xmp": metadata.xmp, "dpi": metadata.dpi}
    return {name: value for name, value in given.items() if value}


def _mode(image: Image.Image) -> str:
    """The mode to decode to: L, LA, RGB, RGBA or CMYK."""
    if image.mode == "CMYK":
        return "CMYK"
    colours = "L" if image.mode in ("1", "L", "LA") else "RGB"
    return colours + "A" * image.has_transparency_data


def _dpi(value: Any) -> tuple[float, float] | None:
    """What the file says, unless it is nonsense."""
    try:
        across, down = (float(each) for each in value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return (across, down) if 0 < across < 1e6 and 0 < down < 1e6 else None
