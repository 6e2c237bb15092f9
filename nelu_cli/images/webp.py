"""WebP: pixels through libwebp, metadata from the RIFF chunks. Always 8 bits and RGB."""

import struct
from collections.abc import Iterator
from typing import BinaryIO

import imagecodecs
import numpy as np

from nelu_cli.images.picture import Header, Metadata, Picture, split_alpha

__all__ = ["probe", "read"]

_METADATA = (b"ICCP", b"EXIF", b"XMP ")


def probe(stream: BinaryIO) -> Header:
    """Read the header, which has three forms: extended, lossless, lossy."""
    width = height = 0
    alpha = animated = False
    for name, length in _chunks(stream):
        start = stream.read(min(length, 10))
        if name == b"VP8X":
            width, height = (1 + int.from_bytes(start[i : i + 3], "little") for i in (4, 7))
            alpha, animated = bool(start[0] & 0x10), bool(start[0] & 0x02)
            break
        if name == b"VP8L":
            (bits,) = struct.unpack("<I", start[1:5])
            width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
            alpha = bool(bits >> 28 & 1)
            break
        if name == b"VP8 ":
            width, height = (size & 0x3FFF for size in struct.unpack("<HH", start[6:10]))
            break
    else:
        raise ValueError("no picture in it")
    return Header("WEBP", width, height, 3, np.dtype(np.uint8), alpha=alpha, animated=animated)


def read(stream: BinaryIO) -> Picture:
    """Decode, and collect profile, EXIF and XMP."""
    header = probe(stream)
    stream.seek(0)
    samples = imagecodecs.webp_decode(stream.read(), hasalpha=header.alpha)
    found: dict[bytes, bytes] = {}
    names = set()
    for name, length in _chunks(stream):
        names.add(name)
        if name in _METADATA:
            found.setdefault(name, stream.read(length))
    pixels, alpha = split_alpha(samples)
    metadata = Metadata(
        icc=found.get(b"ICCP"),
        exif=found.get(b"EXIF", b"").removeprefix(b"Exif\0\0") or None,
        xmp=found.get(b"XMP "),
        lossy=b"VP8L" not in names,
    )
    return Picture(pixels, alpha, "WEBP", metadata)


def _chunks(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Name and length of each chunk, the stream standing at its data."""
    end = stream.seek(0, 2)
    position = 12
    while position + 8 <= end:
        stream.seek(position)
        name, length = struct.unpack("<4sI", stream.read(8))
        yield name, length
        position += 8 + length + length % 2
