"""PNG, every depth and colour type, through libpng; its metadata chunk by chunk."""

import contextlib
import logging
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import imagecodecs
import numpy as np

from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import (
    PNG_COLOURS,
    Array,
    Header,
    Metadata,
    Picture,
    is_bilevel,
    join_alpha,
    split_alpha,
)

logging.getLogger("imagecodecs").addHandler(logging.NullHandler())  # or it would write to stderr

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 1, 6: 3}  # by colour type
_SAMPLES = {2: 3, 4: 2, 6: 4}  # and 1 of the others
_PIECE = 256  # bytes that are inflated at once, so as to lose little before an error
_KEPT = (*PNG_COLOURS, b"tEXt", b"zTXt", b"iTXt")
_XMP = b"XML:com.adobe.xmp\0"
_INCH = 0.0254
_MAX_PROFILE = 64 << 20
_DEFLATE_RATIO = 1032  # the most that deflate can compress


def _probe(source: Source) -> Header:
    """Read the header; also refuses a file too short for its size, before memory is reserved."""
    stream = source.stream
    width = height = bits = 0
    colour = -1
    alpha = animated = False
    compressed = 0
    for name, _, length in _chunks(stream):
        if name == b"IHDR":
            if colour >= 0:
                raise ValueError("two headers")
            width, height, bits, colour = struct.unpack(">IIBB", stream.read(13)[:10])
        elif name == b"tRNS":
            alpha = True
        elif name == b"acTL":
            animated = struct.unpack(">I", stream.read(4))[0] > 1
        elif name == b"IDAT":
            compressed += length
    if colour not in _CHANNELS:
        raise ValueError("no valid header")
    samples = _SAMPLES.get(colour, 1)
    if height * ((width * bits * samples + 7) // 8) > compressed * _DEFLATE_RATIO:
        if source.salvage and compressed:
            raise ValueError("too little of it is left")
        raise ValueError("truncated")
    return Header(
        "PNG",
        width,
        height,
        _CHANNELS[colour],
        np.dtype(np.uint16 if bits == 16 else np.uint8),
        alpha=alpha or colour in (4, 6),
        animated=animated,
    )


def _read(source: Source) -> Picture:
    """Decode to 8 or 16 bits; lower depths are spread to 0–255, a palette becomes RGB or RGBA."""
    note = None
    try:
        samples = imagecodecs.png_decode(source.whole())
    except Exception:  # its own, or any of libpng
        if not source.salvage:
            raise
        mended, note = _mended(source.stream)
        samples = imagecodecs.png_decode(mended)
    if samples.ndim == 2:
        samples = samples[..., None]
    picture = Picture(*split_alpha(samples), "PNG", _read_metadata(source.stream))
    return picture.noted(note) if note else picture


def _mended(stream: BinaryIO) -> tuple[bytes, str]:
    """A PNG of the rows that can be had of a damaged one, and what is missing."""
    header, kept, inflater, rows = b"", b"", zlib.decompressobj(), bytearray()
    for name, _, length in _chunks(stream):
        data = stream.read(length)
        if name == b"IHDR":
            header = data
        elif name in (b"PLTE", b"tRNS"):
            kept += _chunk(name, data)
        elif name == b"IDAT":
            with contextlib.suppress(zlib.error):
                for start in range(0, len(data), _PIECE):
                    rows += inflater.decompress(data[start : start + _PIECE])
    width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if interlaced:
        raise ValueError("interlaced, which cannot be salvaged")
    row = 1 + (width * bits * _SAMPLES.get(colour, 1) + 7) // 8
    whole = len(rows) // row
    if not whole:
        raise ValueError("no row is left")
    del rows[whole * row :]
    rows += bytes((height - whole) * row)  # unfiltered and black
    content = _chunk(b"IHDR", header) + kept + _chunk(b"IDAT", zlib.compress(rows, 1))
    return (
        _SIGNATURE + content + _chunk(b"IEND", b""),
        f"{height - whole} of {height} rows are missing and black",
    )


def _write(picture: Picture, stream: BinaryIO) -> None:
    """Encode; a picture that was bilevel and still is takes one bit per pixel."""
    if is_bilevel(picture):
        encoded = _encode_bilevel(picture.pixels[..., 0] > 0)
    else:
        samples = join_alpha(picture)
        plane = samples[..., 0] if samples.shape[-1] == 1 else samples
        raw = samples.nbytes + len(samples)  # each row begins with a byte of its own
        room = raw + raw // 128 + 4096  # and noise takes a little more than it is
        encoded = bytes(imagecodecs.png_encode(np.ascontiguousarray(plane), out=room))
    header = len(_SIGNATURE) + 25  # the IHDR chunk
    stream.write(encoded[:header])
    for name, data in _metadata_chunks(picture.metadata):
        stream.write(_chunk(name, data))
    stream.write(memoryview(encoded)[header:])


def _chunks(stream: BinaryIO) -> Iterator[tuple[bytes, int, int]]:
    """Name, position and length of each chunk, the stream standing at its data."""
    end = stream.seek(0, 2)
    position = len(_SIGNATURE)
    while position + 8 <= end:
        stream.seek(position)
        length, name = struct.unpack(">I4s", stream.read(8))
        if position + 8 + length > end and name != b"IDAT":
            return
        yield name, position + 8, length
        if name == b"IEND":
            return
        position += 12 + length


def _read_metadata(stream: BinaryIO) -> Metadata:
    icc = exif = xmp = dpi = None
    bilevel = False
    kept: list[tuple[bytes, bytes]] = []
    for name, _, length in _chunks(stream):
        if name in (b"IDAT", b"PLTE"):
            continue
        data = stream.read(length)
        if name == b"IHDR":
            bilevel = data[8:10] == b"\x01\x00"  # one bit, grey
        elif name == b"iCCP":
            icc = _inflate(data.partition(b"\0")[2][1:])
        elif name == b"eXIf":
            exif = data.removeprefix(b"Exif\0\0") or None
        elif name == b"iTXt" and data.startswith(_XMP):
            xmp = _international_text(data)
        elif name == b"pHYs" and len(data) == 9 and data[8] == 1:
            across, down = struct.unpack(">II", data[:8])
            dpi = (across * _INCH, down * _INCH)
        elif name in _KEPT or name == b"pHYs":
            kept.append((name, data))
    return Metadata(icc=icc, exif=exif, xmp=xmp, dpi=dpi, bilevel=bilevel, png=tuple(kept))


def _metadata_chunks(metadata: Metadata) -> Iterator[tuple[bytes, bytes]]:
    if metadata.icc:
        yield b"iCCP", b"ICC Profile\0\0" + zlib.compress(metadata.icc)
    for name, data in metadata.png:
        if not (metadata.icc and name == b"sRGB"):  # the two exclude each other
            yield name, data
    if metadata.dpi:
        across, down = (min(round(value / _INCH), 2**31 - 1) for value in metadata.dpi)
        yield b"pHYs", struct.pack(">IIB", across, down, 1)
    if metadata.exif:
        yield b"eXIf", metadata.exif
    if metadata.xmp:
        yield b"iTXt", _XMP + b"\0\0\0\0" + metadata.xmp


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _inflate(data: bytes) -> bytes | None:
    """Decompress, or None if the data are damaged or unreasonably large."""
    inflater = zlib.decompressobj()
    try:
        result = inflater.decompress(data, _MAX_PROFILE)
    except zlib.error:
        return None
    return result if inflater.eof else None


def _international_text(data: bytes) -> bytes | None:
    """The text of an iTXt chunk: keyword, flag, method, language, translated keyword, text."""
    _, _, rest = data.partition(b"\0")
    compressed, rest = rest[:1], rest[2:]
    text = rest.split(b"\0", 2)[-1]
    return _inflate(text) if compressed == b"\x01" else text


def _encode_bilevel(pixels: Array) -> bytes:
    """A grey PNG of one bit per pixel, its rows unfiltered."""
    height, width = pixels.shape
    rows = np.packbits(pixels, axis=1)
    filtered = np.pad(rows, ((0, 0), (1, 0)))  # filter 0 before each row
    return (
        _SIGNATURE
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(filtered.tobytes()))
        + _chunk(b"IEND", b"")
    )


FORMAT = Format(
    name="PNG",
    extensions=(".png",),
    identify=starts_with(_SIGNATURE),
    probe=_probe,
    read=_read,
    write=_write,
    metadata=("icc", "exif", "xmp", "dpi", "png"),
    depths=("uint8", "uint16"),
    bilevel=True,
)
