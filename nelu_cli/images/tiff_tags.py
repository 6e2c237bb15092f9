"""The tags of TIFF pages: found in a file, and written again."""

import struct
from dataclasses import dataclass
from typing import BinaryIO, Literal

from nelu_cli.images import exif
from nelu_cli.images.picture import PageTags, Picture, TiffLayout

WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6  # photometric
COLOURS = {RGB: 3, YCBCR: 3, CMYK: 4}
NONE, _LZW, ADOBE_DEFLATE, _DEFLATE, _PACKBITS, _ZSTD = 1, 5, 8, 32946, 32773, 50000  # compression
LOSSLESS = (NONE, _LZW, ADOBE_DEFLATE, _DEFLATE, _PACKBITS, _ZSTD)
PREDICTABLE = (_LZW, ADOBE_DEFLATE, _DEFLATE, _ZSTD)
_SUBFILE_TYPE, _WIDTH, _HEIGHT = 254, 256, 257
_KIND = (258, 262, 277, 338, 339)  # bits, colours, samples, extra samples, format of samples
_MOST_TAGS = 4096  # of a directory
_RATIONAL, _SIGNED_RATIONAL = 5, 10  # types of values
_X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT = exif.RESOLUTION
_STRUCTURE = {  # tags that say how pixels are stored: written afresh
    *(254, 255, 256, 257, 258, 259, 262, 263, 264, 265, 266, 273, 277, 278, 279, 280, 281, 284),
    *(288, 289, 290, 291, 292, 293, 301, 317, 320, 322, 323, 324, 325, 330, 332, 334, 336, 338),
    *(339, 340, 341, 342, 347, 400, 512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531),
    *(532, 559, 32995, 32996, 32997, 32998, 50674),
    *(33628, 33629, 33630, 33631),  # MetaMorph: where the planes of a stack in one piece lie
}
Tag = tuple[int | str, int, int, bytes | int | tuple[int, ...], bool]  # as tifffile takes it
_POINTERS = {exif.EXIF: "ExifTag", exif.GPS: "GPSTag"}  # named, or tifffile leaves them out


@dataclass(frozen=True)
class Place:
    """A directory of a file, before its tags are read.

    Attributes:
        offset: where it starts.
        reduced: whether it is a smaller version of another page.
        size: height and width.
        kind: equal for pages of equal size and kind.
    """

    offset: int
    reduced: bool
    size: tuple[int, int]
    kind: tuple[object, ...]


def places(stream: BinaryIO) -> tuple[list[Place], bool]:
    """The directories of a file, and whether further ones are missing at its end.

    Raises:
        ValueError: the chain of pages is circular; tifffile would follow it for ever.
    """
    stream.seek(0)
    start = stream.read(16)
    order: Literal["little", "big"] = "big" if start[:2] == b"MM" else "little"
    big = start[2:4] in (b"+\0", b"\0+")
    head, entry, inline = (8, 20, 8) if big else (2, 12, 4)  # bytes of count, entry, offset
    offset = int.from_bytes(start[8:16] if big else start[4:8], order)
    found: dict[int, Place] = {}
    while offset:
        if offset in found:
            raise ValueError("its chain of pages is circular")
        stream.seek(offset)
        count = int.from_bytes(stream.read(head), order)
        table = stream.read(min(count, _MOST_TAGS) * entry)
        stream.seek(offset + head + count * entry)
        following = stream.read(inline)
        if len(following) < inline:
            return list(found.values()), True
        values = {
            int.from_bytes(table[at : at + 2], order): table[at + 2 : at + entry]
            for at in range(0, len(table), entry)
        }
        found[offset] = _place(offset, values, inline, order)
        offset = int.from_bytes(following, order)
    return list(found.values()), False


def _place(
    offset: int, values: dict[int, bytes], inline: int, order: Literal["little", "big"]
) -> Place:
    """What the entries (type, count, value) of a directory tell at first sight."""

    def content(code: int) -> bytes:
        value = values.get(code, b"")
        count = int.from_bytes(value[2:-inline], order)
        size = count * {1: 1, 3: 2, 4: 4, 16: 8}.get(int.from_bytes(value[:2], order), inline + 1)
        return value[-inline:][:size] if size <= inline else value[:-inline]

    subfile, width, height = (
        int.from_bytes(content(code), order) for code in (_SUBFILE_TYPE, _WIDTH, _HEIGHT)
    )
    kind = (height, width, *(content(code) for code in _KIND))
    return Place(offset, bool(subfile & 1), (height, width), kind)


def directory(
    stream: BinaryIO, offset: int, order: str, big: bool, budget: exif.Budget
) -> exif.Directory:
    """The tags of a page that do not describe how pixels are stored."""
    return exif.parse(stream, offset, order, big=big, budget=budget).without(_STRUCTURE)


def resolution(
    directory: exif.Directory, order: str
) -> tuple[tuple[tuple[int, int], tuple[int, int]], int] | None:
    """Pixels per unit across and down as ratios, and the unit: 1 none, 2 inch, 3 centimetre."""
    across, down = (directory.get(code) for code in (_X_RESOLUTION, _Y_RESOLUTION))
    unit = directory.get(_RESOLUTION_UNIT)
    if across is None or down is None or not len(across) == len(down) == 8:
        return None
    number = struct.unpack(f"{order}H", unit)[0] if unit and len(unit) == 2 else 2
    ratios = struct.unpack(f"{order}II", across), struct.unpack(f"{order}II", down)
    if ratios[0][1] == 0 or ratios[1][1] == 0:
        return None
    return ratios, number if number in (1, 2, 3) else 1


def dpi(directory: exif.Directory, order: str) -> tuple[float, float] | None:
    """Pixels per inch, if the file speaks of inches or centimetres."""
    found = resolution(directory, order)
    if found is None or found[1] == 1:
        return None
    scale = 2.54 if found[1] == 3 else 1.0
    across, down = (scale * top / bottom for top, bottom in found[0])
    return (across, down) if across and down else None


def default_layout(picture: Picture) -> TiffLayout:
    """For a picture that comes from another format: its metadata as tags, deflate."""
    metadata = picture.metadata
    camera, order = exif.unpack(metadata.exif) if metadata.exif else (exif.Directory(()), "<")
    entries = [entry for entry in camera.entries if entry.code in exif.MAIN_TAGS]
    if metadata.dpi:
        for code, value in zip((_X_RESOLUTION, _Y_RESOLUTION), metadata.dpi, strict=True):
            ratio = struct.pack(f"{order}II", min(round(value * 1000), 2**32 - 1), 1000)
            entries.append(exif.Entry(code, 5, 1, ratio))
        entries.append(exif.Entry(_RESOLUTION_UNIT, 3, 1, struct.pack(f"{order}H", 2)))
    if metadata.xmp:
        entries.append(exif.Entry(exif.XMP, 1, len(metadata.xmp), metadata.xmp))
    if metadata.photoshop:
        entries.append(exif.Entry(exif.PHOTOSHOP, 1, len(metadata.photoshop), metadata.photoshop))
    if metadata.icc:
        entries.append(exif.Entry(exif.ICC, 7, len(metadata.icc), metadata.icc))
    channels = picture.pixels.shape[-1]
    photometric = CMYK if metadata.cmyk else RGB if channels == 3 else BLACK_IS_ZERO
    return TiffLayout(
        axes="",
        byteorder=order,
        bigtiff=False,
        photometric=photometric,
        planar=False,
        extrasample=1 if metadata.premultiplied else 2,
        compression=ADOBE_DEFLATE,
        predictor=2,
        tile=None,
        rows_per_strip=None,
        pages=(PageTags(exif.Directory(tuple(entries), camera.children)),),
    )


def extratags(directory: exif.Directory, order: str, *, first: bool, big: bool) -> list[Tag]:
    """Tags for tifffile; those that point to further directories point nowhere yet."""
    tags: list[Tag] = [
        (entry.code, entry.type, entry.count, _value(entry, order), True)
        for entry in directory.entries
        if entry.code not in exif.RESOLUTION
    ]
    if first:
        for code, _ in directory.children:
            if code in _POINTERS:
                tags.append((_POINTERS[code], 16 if big else 4, 1, 0, True))
    return tags


def _value(entry: exif.Entry, order: str) -> bytes | tuple[int, ...]:
    """As tifffile wants it: bytes, but the two numbers of ratios (it miscounts their bytes)."""
    if entry.type not in (_RATIONAL, _SIGNED_RATIONAL):
        return entry.data
    number = "I" if entry.type == _RATIONAL else "i"
    return struct.unpack(f"{order}{2 * entry.count}{number}", entry.data)


def append_children(stream: BinaryIO, directory: exif.Directory, order: str, *, big: bool) -> None:
    """Write the directories that the first page's tags point to at the end, and the pointers."""
    pointers = _value_positions(stream, order, big=big)
    for code, child in directory.children:
        if code in _POINTERS:
            end = stream.seek(0, 2)
            stream.write(b"\0" * (end % 2))
            start = end + end % 2
            stream.write(exif.serialize(child, start, order, big=big))
            stream.seek(pointers[code])
            stream.write(struct.pack(f"{order}{'Q' if big else 'I'}", start))


def _value_positions(stream: BinaryIO, order: str, *, big: bool) -> dict[int, int]:
    """Where the value of each tag of the first page stands in the file."""
    offset = places(stream)[0][0].offset
    head, entry, before_value = (8, 20, 12) if big else (2, 12, 8)
    stream.seek(offset)
    (count,) = struct.unpack(f"{order}{'Q' if big else 'H'}", stream.read(head))
    table = stream.read(count * entry)
    starts = range(0, len(table), entry)
    return {
        struct.unpack_from(f"{order}H", table, start)[0]: offset + head + start + before_value
        for start in starts
    }
