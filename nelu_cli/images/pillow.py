"""The formats that Pillow reads and writes well: JPEG, BMP, GIF (reading), AVIF, WebP (writing).

The plugins are called directly: content alone decides on the format, no format but these is
ever tried, and Pillow's global limit on pixels, which is not ours to change, does not apply.

A JPEG with four channels keeps its inks as independent channels. Pictures after the first in a
JPEG (previews, gain maps) are left out. Palettes become RGB or RGBA.
"""

import struct
from typing import Any, BinaryIO

import imagecodecs
import numpy as np
from PIL import BmpImagePlugin, GifImagePlugin, Image, JpegImagePlugin

from nelu_cli.images import exif
from nelu_cli.images.picture import (
    Array,
    Header,
    JpegLayout,
    Metadata,
    Picture,
    Refusal,
    rescale,
    split_alpha,
    strips,
)

__all__ = ["probe", "read", "write"]

_OPENERS: dict[str, Any] = {
    "BMP": BmpImagePlugin.BmpImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "JPEG": JpegImagePlugin.JpegImageFile,
}
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_QUALITY = 95
_PHOTOSHOP = b"Photoshop 3.0\0"
_MARKER_BYTES = 65533 - 29  # what one JPEG marker holds after its longest prefix
_AV1_START = 1 << 16  # bytes that hold the description of an AVIF


def probe(stream: BinaryIO, format: str) -> Header:
    """Read the header."""
    image = _open(stream, format)
    mode = _mode(image)
    return Header(
        format,
        image.width,
        image.height,
        3 if mode in ("RGB", "RGBA") else len(mode) if mode == "CMYK" else 1,
        np.dtype(np.uint16 if format == "AVIF" and _avif_bits(stream) > 8 else np.uint8),
        alpha=mode.endswith("A"),
        animated=bool(getattr(image, "is_animated", False)),
    )


def read(stream: BinaryIO, format: str) -> Picture:
    """Decode, and collect the metadata."""
    image = _open(stream, format)
    mode = _mode(image)
    metadata = _metadata(image, format)
    if format == "AVIF" and (bits := _avif_bits(stream)) > 8:
        samples = _read_deep_avif(stream, bits)
    else:
        samples = _samples(image, mode)
    if mode == "CMYK":
        return Picture(samples, None, format, metadata)
    pixels, alpha = split_alpha(samples)
    return Picture(pixels, alpha, format, metadata)


def write(picture: Picture, stream: BinaryIO, format: str) -> None:
    """Encode 8-bit samples; lossless where the format can and the picture has lost nothing yet."""
    metadata = picture.metadata
    image = _image(picture, widen=format in ("WEBP", "AVIF"))
    options: dict[str, Any] = {}
    if metadata.icc and not (image.mode.startswith("RGB") and metadata.icc[16:20] == b"GRAY"):
        options["icc_profile"] = metadata.icc
    if metadata.exif:
        options["exif"] = (b"Exif\0\0" if format == "JPEG" else b"") + metadata.exif
    if metadata.xmp:
        options["xmp"] = metadata.xmp
    if metadata.dpi:
        options["dpi"] = metadata.dpi
    if format == "JPEG":
        options |= _jpeg_options(picture)
    elif format == "WEBP":
        options |= {"lossless": not metadata.lossy, "quality": _QUALITY, "exact": True}
        options |= {"alpha_quality": 100}
    elif format == "AVIF":
        _avif_opener()
        options |= {"quality": _QUALITY, "subsampling": "4:4:4"}
        if metadata.exif:  # Pillow looks into it, so it must be sound
            options["exif"] = exif.pack(*exif.unpack(metadata.exif)) or b""
    elif format == "BMP" and metadata.bilevel and _is_bilevel(picture):
        image = image.convert("1", dither=Image.Dither.NONE)
    image.save(stream, format, **options)


def _open(stream: BinaryIO, format: str) -> Image.Image:
    stream.seek(0)
    opener = _avif_opener() if format == "AVIF" else _OPENERS[format]
    image: Image.Image = opener(stream)
    return image


def _avif_opener() -> Any:
    """Pillow has AVIF since 11.3, if it was built with it."""
    try:
        from PIL import AvifImagePlugin
    except ImportError:
        raise Refusal("AVIF needs a newer Pillow: pip install --upgrade pillow") from None
    if not AvifImagePlugin.SUPPORTED:
        raise Refusal("this build of Pillow has no AVIF; choose another format")
    return AvifImagePlugin.AvifImageFile


def _mode(image: Image.Image) -> str:
    """The mode to decode to: L, LA, RGB, RGBA or CMYK."""
    transparent = image.has_transparency_data
    if image.mode in ("1", "L", "LA"):
        return "LA" if transparent else "L"
    if image.mode == "CMYK":
        return "CMYK"
    return "RGBA" if transparent else "RGB"


def _samples(image: Image.Image, mode: str) -> Array:
    """Copy out of Pillow strip by strip, for Pillow itself would make two whole copies."""
    image.load()
    bands = len(mode)
    samples = np.empty((image.height, image.width, bands), np.uint8)
    for rows in strips(samples.shape):
        strip = image.crop((0, rows.start, image.width, rows.stop)).convert(mode)
        samples[rows] = np.asarray(strip).reshape(samples[rows].shape)
    return samples


def _image(picture: Picture, *, widen: bool) -> Image.Image:
    """Copy into Pillow strip by strip; widen grey to RGB for formats that have no grey."""
    pixels, alpha = picture.pixels, picture.alpha
    height, width, channels = pixels.shape
    widen = channels == 1 and (widen or alpha is not None)
    bands = (3 if widen else channels) + (alpha is not None)
    mode = "CMYK" if picture.metadata.cmyk else _MODES[bands]
    image = Image.new(mode, (width, height))
    for rows in strips(pixels.shape):
        strip = np.empty((rows.stop - rows.start, width, bands), np.uint8)
        strip[..., : bands - (alpha is not None)] = pixels[rows]
        if alpha is not None:
            strip[..., -1] = alpha[rows]
        data = Image.frombytes(mode, (width, len(strip)), strip.tobytes())
        image.paste(data, (0, rows.start))
    return image


def _is_bilevel(picture: Picture) -> bool:
    return picture.alpha is None and bool(np.all((picture.pixels == 0) | (picture.pixels == 255)))


def _metadata(image: Image.Image, format: str) -> Metadata:
    info = image.info
    block = info.get("exif") or b""
    dpi = info.get("dpi")
    xmp = info.get("xmp")
    return Metadata(
        icc=info.get("icc_profile") or None,
        exif=block.removeprefix(b"Exif\0\0") or None,
        xmp=xmp if isinstance(xmp, bytes) else None,
        photoshop=b"".join(
            data.removeprefix(_PHOTOSHOP)
            for name, data in getattr(image, "applist", ())
            if name == "APP13" and data.startswith(_PHOTOSHOP)
        )
        or None,
        dpi=_dpi(dpi),
        bilevel=image.mode == "1",
        cmyk=image.mode == "CMYK",
        lossy=format in ("JPEG", "AVIF"),
        jpeg=_jpeg_layout(image) if isinstance(image, JpegImagePlugin.JpegImageFile) else None,
    )


def _dpi(value: Any) -> tuple[float, float] | None:
    """What the file says, unless it is nonsense."""
    try:
        across, down = (float(each) for each in value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return (across, down) if 0 < across < 1e6 and 0 < down < 1e6 else None


def _jpeg_layout(image: JpegImagePlugin.JpegImageFile) -> JpegLayout:
    tables = tuple(
        tuple(image.quantization[layer[3]])
        for layer in image.layer
        if layer[3] in image.quantization
    )
    if len(tables) == 3 and tables[1] == tables[2]:
        tables = tables[:2]
    segments = b"".join(
        _marker(1, data)
        for name, data in image.applist
        if name == "APP1" and b"/xmp/extension/\0" in data[:48] and len(data) <= _MARKER_BYTES
    )
    comment = image.info.get("comment", b"")
    return JpegLayout(
        tables=tables if len(tables) <= 4 else (),
        subsampling=max(0, JpegImagePlugin.get_sampling(image)),
        progressive=bool(image.info.get("progressive")),
        comment=comment if isinstance(comment, bytes) else b"",
        segments=segments,
    )


def _jpeg_options(picture: Picture) -> dict[str, Any]:
    metadata = picture.metadata
    for name, data in (("EXIF", metadata.exif), ("XMP", metadata.xmp)):
        if data and len(data) > _MARKER_BYTES:
            raise Refusal(
                f"JPEG cannot hold {len(data)} bytes of {name}; "
                "strip the metadata or choose PNG or TIFF"
            )
    resources = metadata.photoshop or b""
    pieces = [
        resources[start : start + _MARKER_BYTES]
        for start in range(0, len(resources), _MARKER_BYTES)
    ]
    captions = b"".join(_marker(13, _PHOTOSHOP + piece) for piece in pieces)
    layout = metadata.jpeg
    if layout is None or not layout.tables:
        return {"quality": _QUALITY, "subsampling": 0, "extra": captions}
    return {
        "qtables": [list(table) for table in layout.tables],
        "subsampling": layout.subsampling,
        "progressive": layout.progressive,
        "comment": layout.comment,
        "extra": captions + layout.segments,
    }


def _marker(number: int, data: bytes) -> bytes:
    """An application's segment of a JPEG."""
    return struct.pack(">HH", 0xFFE0 + number, len(data) + 2) + data


def _avif_bits(stream: BinaryIO) -> int:
    """Bits per sample, from the AV1 configuration box."""
    stream.seek(0)
    _, found, rest = stream.read(_AV1_START).partition(b"av1C")
    if not found or len(rest) < 3 or not rest[2] & 0x40:
        return 8
    return 12 if rest[2] & 0x20 else 10


def _read_deep_avif(stream: BinaryIO, bits: int) -> Array:
    """10 and 12 bits, which Pillow would reduce to 8, spread to 16."""
    stream.seek(0)
    samples = imagecodecs.avif_decode(stream.read())
    if samples.ndim == 2:
        samples = samples[..., None]
    top = (1 << bits) - 1
    table = rescale(np.arange(top + 1) / top, np.uint16)
    for rows in strips(samples.shape):
        samples[rows] = table[np.minimum(samples[rows], top)]
    return np.asarray(samples)
