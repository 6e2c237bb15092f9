"""Netpbm: PBM, PGM and PPM, as text or binary, with up to 16 bits per sample."""

import io
import re
from typing import Any, BinaryIO

import numpy as np

from nelu_cli.images.format import Format, Source
from nelu_cli.images.picture import (
    Array,
    Header,
    Metadata,
    Picture,
    Refusal,
    is_bilevel,
    row_slices,
)

_HEADER_BYTES = 1 << 16
_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"
_BITMAP = re.compile(rb"P([14])" + _GAP + rb"(\d{1,9})" + _GAP + rb"(\d{1,9})()\s")
_VALUES = re.compile(rb"P([2356])" + (_GAP + rb"(\d{1,9})") * 3 + rb"\s")


def _probe(source: Source) -> Header:
    return _parse(source.stream)[0]


def _read(source: Source) -> Picture:
    """Decode to uint8 or uint16; the largest value is kept as that of white."""
    stream = source.stream
    header, kind, maxval, start = _parse(stream)
    shape = (header.height, header.width, header.channels)
    row = -(-header.width // 8) if kind == "4" else header.width * header.channels
    stream, note = _checked_content(
        source, start, 0 if kind in "123" else row * header.height * header.dtype.itemsize
    )
    if kind in "14":
        pixels, metadata = _read_bitmap(stream, shape, kind), Metadata(bilevel=True)
    else:
        pixels = _read_values(stream, shape, header.dtype, maxval, text=kind in "23")
        stream.seek(-1, 2)
        if kind in "23" and stream.read().isdigit():
            note = "it ends with a number and no line end; the number may be cut off"
        white = maxval if maxval != np.iinfo(header.dtype).max else None
        metadata = Metadata(white=white)
    picture = Picture(pixels, None, "PPM", metadata)
    return picture.noted(note) if note else picture


def _checked_content(source: Source, start: int, size: int) -> tuple[BinaryIO, str | None]:
    """A stream that stands at so many bytes of pixels; what is missing if it was salvaged.

    Raises:
        ValueError: there are fewer; found out before memory is reserved for them.
        Refusal: another picture follows.
    """
    stream, note = source.stream, None
    there = stream.seek(0, 2) - start
    stream.seek(start + size)
    if size and there < size:
        if not source.salvage:
            raise ValueError("truncated")
        stream = io.BytesIO(source.whole() + bytes(size - there))
        note = f"{100 * (1 - there / size):.0f} % of it are missing"
    elif size and re.match(rb"\s*P[1-6]\s", stream.read(64)):
        if not source.salvage:
            raise Refusal("it holds several pictures; split them into files first")
        note = "only the first of several pictures is taken"
    stream.seek(start)
    return stream, note


def _write(picture: Picture, stream: BinaryIO) -> None:
    """Encode as binary PBM, PGM or PPM."""
    pixels = picture.pixels
    height, width, channels = pixels.shape
    if is_bilevel(picture):
        stream.write(b"P4\n%d %d\n" % (width, height))
        stream.write(np.packbits(pixels[..., 0] == 0, axis=1).tobytes())
        return
    kind = 5 if channels == 1 else 6
    stream.write(b"P%d\n%d %d\n%d\n" % (kind, width, height, int(picture.white)))
    stored = np.dtype(np.uint8 if picture.white <= 255 else ">u2")
    for rows in row_slices(pixels.shape):
        stream.write(pixels[rows].astype(stored).tobytes())


def _parse(stream: BinaryIO) -> tuple[Header, str, int, int]:
    """Header, the digit after the P, the largest value, and where the pixels start."""
    stream.seek(0)
    start = stream.read(_HEADER_BYTES)
    match = _BITMAP.match(start) or _VALUES.match(start)
    if match is None:
        raise ValueError("no valid header")
    kind = match[1].decode()
    maxval = int(match[4] or 1)
    if not 1 <= maxval <= 65535:
        raise ValueError(f"largest value {maxval}")
    header = Header(
        "PPM",
        int(match[2]),
        int(match[3]),
        3 if kind in "36" else 1,
        np.dtype(np.uint16 if maxval > 255 else np.uint8),
    )
    return header, kind, maxval, match.end()


def _read_bitmap(stream: BinaryIO, shape: tuple[int, int, int], kind: str) -> Array:
    """Ink is 1 in the file, black is 0 in memory."""
    height, width, _ = shape
    if kind == "4":
        row_bytes = (width + 7) // 8
        packed = np.frombuffer(stream.read(height * row_bytes), np.uint8)
        ink = np.unpackbits(packed.reshape(height, row_bytes), axis=1, count=width)
    else:
        digits = np.frombuffer(b"".join(_without_comments(stream.read()).split()), np.uint8)
        ink = digits[: height * width].reshape(height, width) - ord("0")
        if ink.max(initial=0) > 1:
            raise ValueError("damaged digits")
    return ((1 - ink) * np.uint8(255))[..., None]


def _read_values(
    stream: BinaryIO, shape: tuple[int, int, int], dtype: np.dtype[Any], maxval: int, *, text: bool
) -> Array:
    """The values, none of which may exceed the largest that the header allows."""
    count = int(np.prod(shape))
    if not text:
        stored = np.dtype(np.uint8 if dtype.itemsize == 1 else ">u2")
        values: Array = np.empty(count, stored)
        stream.readinto(values.view(np.uint8))  # type: ignore[attr-defined]
        if not stored.isnative:
            values = values.byteswap(inplace=True).view(dtype)
    else:
        content = _without_comments(stream.read())
        if re.search(rb"[^\s\d]", content):
            raise ValueError("something that is no number")
        numbers = np.fromstring(content, np.int64, sep=" ")[:count]
        if len(numbers) < count:
            raise ValueError("truncated")
        values = np.clip(numbers, 0, 65535).astype(np.uint16)
    if values.max(initial=0) > maxval:
        raise ValueError(f"the value {values.max()} is above the largest one, {maxval}")
    return values.astype(dtype, copy=False).reshape(shape)


def _without_comments(text: bytes) -> bytes:
    return re.sub(rb"#[^\r\n]*", b"", text)


FORMAT = Format(
    name="PPM",
    extensions=(".ppm", ".pgm", ".pbm", ".pnm"),
    identify=lambda source: bool(re.match(rb"P[1-6]\s", source.start)),
    probe=_probe,
    read=_read,
    write=_write,
    depths=("uint8", "uint16"),
    whites=lambda white: white <= 65535,
    alpha=False,
    metadata=(),
    bilevel=True,
)
