"""AVIF through Pillow, 10 and 12 bits through imagecodecs."""

from typing import Any, BinaryIO

import imagecodecs
import numpy as np
from PIL import Image

from nelu_cli.images import exif, pillow
from nelu_cli.images.format import Format, Source
from nelu_cli.images.picture import Array, Header, Picture, Refusal, rescale, split_alpha, strips

__all__ = ["BRANDS", "FORMAT", "brands"]

BRANDS = {b"avif", b"avis"}
_START = 1 << 16  # bytes that hold the description of the picture


def brands(source: Source) -> set[bytes]:
    """What a file of the ISO base media format says it is compatible with."""
    start = source.start
    if start[4:8] != b"ftyp":
        return set()
    return {start[8:12], *(start[i : i + 4] for i in range(16, len(start), 4))}


def _probe(source: Source) -> Header:
    return pillow.header(_open(source), "AVIF", np.uint16 if _bits(source) > 8 else np.uint8)


def _read(source: Source) -> Picture:
    image = _open(source)
    metadata = pillow.metadata(image, lossy=True)
    if (bits := _bits(source)) == 8:
        return pillow.picture(image, "AVIF", metadata)
    return Picture(*split_alpha(_deep_samples(source, bits)), "AVIF", metadata)


def _write(picture: Picture, stream: BinaryIO) -> None:
    _plugin()
    image = pillow.image(picture, widen=True)
    options = pillow.options(picture.metadata, image.mode)
    if picture.metadata.exif:  # Pillow looks into it, so it must be sound
        options["exif"] = exif.pack(*exif.unpack(picture.metadata.exif)) or b""
    image.save(stream, "AVIF", quality=pillow.QUALITY, subsampling="4:4:4", **options)


def _plugin() -> Any:
    """Pillow has AVIF since 11.3, if it was built with it."""
    try:
        from PIL import AvifImagePlugin
    except ImportError:
        raise Refusal("AVIF needs a newer Pillow: pip install --upgrade pillow") from None
    if not AvifImagePlugin.SUPPORTED:
        raise Refusal("this build of Pillow has no AVIF; choose another format")
    return AvifImagePlugin


def _open(source: Source) -> Image.Image:
    source.stream.seek(0)
    image: Image.Image = _plugin().AvifImageFile(source.stream)
    return image


def _bits(source: Source) -> int:
    """Bits per sample, from the AV1 configuration box."""
    source.stream.seek(0)
    _, found, rest = source.stream.read(_START).partition(b"av1C")
    if not found or len(rest) < 3 or not rest[2] & 0x40:
        return 8
    return 12 if rest[2] & 0x20 else 10


def _deep_samples(source: Source, bits: int) -> Array:
    """10 and 12 bits, which Pillow would reduce to 8, spread to 16."""
    samples = imagecodecs.avif_decode(source.whole())
    if samples.ndim == 2:
        samples = samples[..., None]
    top = (1 << bits) - 1
    table = rescale(np.arange(top + 1) / top, np.uint16)
    for rows in strips(samples.shape):
        samples[rows] = table[np.minimum(samples[rows], top)]
    return np.asarray(samples)


FORMAT = Format(
    name="AVIF",
    extensions=(".avif",),
    identify=lambda source: bool(brands(source) & BRANDS),
    probe=_probe,
    read=_read,
    write=_write,
)
