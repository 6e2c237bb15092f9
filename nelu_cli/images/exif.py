"""EXIF as what it is: a tree of TIFF tag directories, copied without interpreting the values."""

import io
import struct
from collections.abc import Container
from dataclasses import dataclass
from typing import BinaryIO, Literal

EXIF, GPS, INTEROPERABILITY = 34665, 34853, 40965  # tags that point to another directory
ICC, XMP, PHOTOSHOP = 34675, 700, 34377
RESOLUTION = (282, 283, 296)  # across, down, unit
MAIN_TAGS = {  # of the main directory: texts, orientation, rating, Windows' own
    *(270, 271, 272, 274, 305, 306, 315, 316, 18246, 18249, 33432),
    *(40091, 40092, 40093, 40094, 40095),
}
ORIENTATION = 274

_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)  # bytes, by type of value
_SLACK_BYTES = 1 << 20  # that values may share
_MAX_DEPTH = 3


@dataclass(frozen=True)
class Entry:
    """One tag, its value in the bytes and the byte order of the file."""

    code: int
    type: int
    count: int
    data: bytes


@dataclass(frozen=True)
class Directory:
    """The tags of one directory, and the directories that some of its tags point to."""

    entries: tuple[Entry, ...]
    children: tuple[tuple[int, "Directory"], ...] = ()

    def get(self, code: int) -> bytes | None:
        """The value of a tag."""
        return next((entry.data for entry in self.entries if entry.code == code), None)

    def without(self, codes: Container[int]) -> "Directory":
        """All but the tags of these codes."""
        kept = tuple(entry for entry in self.entries if entry.code not in codes)
        return Directory(kept, self.children)

    def only(self, codes: Container[int]) -> "Directory":
        """The tags of these codes alone."""
        return Directory(tuple(entry for entry in self.entries if entry.code in codes))


class Budget:
    """What the values of all tags of a file may take.

    Values that do not share their bytes cannot be larger together than the file. Large ones that
    are the same bytes are kept once.

    Attributes:
        problem: why something was left out; None if nothing was.
    """

    def __init__(self, size: int) -> None:
        """Allow for a file of so many bytes."""
        self.problem: str | None = None
        self._room = size + _SLACK_BYTES
        self._known: dict[tuple[int, int], bytes] = {}

    def read(self, stream: BinaryIO, offset: int, size: int) -> bytes:
        """The bytes at an offset; fewer than asked for if there are no more, or no room."""
        if size > self._room:
            self.problem = "its tags take more room than the whole file; some are left out"
            return b""
        self._room -= size
        if (offset, size) in self._known:
            return self._known[offset, size]
        stream.seek(offset)
        data = stream.read(size)
        if len(data) < size:
            self.problem = "values of tags are missing at its end"
        if size > 1024:
            self._known[offset, size] = data
        return data


def parse(
    stream: BinaryIO,
    offset: int,
    order: str,
    *,
    budget: Budget,
    big: bool = False,
    depth: int = 0,
) -> Directory:
    """Read the directory at an offset, leaving out what is damaged."""
    count_format, entry_format, inline = (
        (f"{order}Q", f"{order}HHQ8s", 8) if big else (f"{order}H", f"{order}HHI4s", 4)
    )
    entries: list[Entry] = []
    children: list[tuple[int, Directory]] = []
    stream.seek(offset)
    (count,) = struct.unpack(count_format, stream.read(struct.calcsize(count_format)))
    table = stream.read(min(count, 4096) * struct.calcsize(entry_format))
    usable = len(table) // struct.calcsize(entry_format) * struct.calcsize(entry_format)
    for code, kind, number, value in struct.iter_unpack(entry_format, table[:usable]):
        size = _SIZES[kind] * number if kind < len(_SIZES) else 0
        if code in (EXIF, GPS, INTEROPERABILITY):
            if depth < _MAX_DEPTH and code not in dict(children):
                target = _integer(value[: _SIZES[kind]] if size else b"", order)
                try:
                    child = parse(stream, target, order, budget=budget, big=big, depth=depth + 1)
                except (struct.error, OSError, ValueError, OverflowError):
                    continue
                children.append((code, child))
        elif size:
            small = size <= inline
            data = value[:size] if small else budget.read(stream, _integer(value, order), size)
            if len(data) == size:
                entries.append(Entry(code, kind, number, data))
    return Directory(tuple(entries), tuple(children))


def serialize(directory: Directory, base: int, order: str, *, big: bool = False) -> bytes:
    """The directory as bytes that are to start at ``base`` in the file, its values after it."""
    inline, fixed = (8, 16) if big else (4, 6)  # fixed: number of entries, and the next directory
    entry_format, offset_format = ("HHQ8s", "Q") if big else ("HHI4s", "I")
    items: list[Entry | tuple[int, Directory]] = [*directory.entries, *directory.children]
    items.sort(key=lambda item: item.code if isinstance(item, Entry) else item[0])
    table = struct.pack(f"{order}{'Q' if big else 'H'}", len(items))
    position = base + fixed + len(items) * struct.calcsize(order + entry_format)
    position += position % 2
    values = b""
    for item in items:
        if isinstance(item, Entry):
            code, kind, count, data = item.code, item.type, item.count, item.data
        else:
            code, kind, count = item[0], 16 if big else 4, 1
            data = serialize(item[1], position + len(values), order, big=big)
        if isinstance(item, Entry) and len(data) <= inline:
            value = data
        else:
            value = struct.pack(order + offset_format, position + len(values))
            values += data + b"\0" * (len(data) % 2)
        table += struct.pack(order + entry_format, code, kind, count, value)
    table += struct.pack(order + offset_format, 0)
    return table + b"\0" * (position - base - len(table)) + values


def pack(directory: Directory, order: str) -> bytes | None:
    """An EXIF block as JPEG, PNG and WebP carry it (without a prefix), or None if empty."""
    if not directory.entries and not directory.children:
        return None
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(f"{order}I", 8) + serialize(directory, 8, order)


def unpack(block: bytes) -> tuple[Directory, Literal["<", ">"]]:
    """The main directory of an EXIF block, and its byte order; empty if it is damaged."""
    order: Literal["<", ">"] = ">" if block[:2] == b"MM" else "<"
    try:
        (offset,) = struct.unpack_from(f"{order}I", block, 4)
        return parse(io.BytesIO(block), offset, order, budget=Budget(len(block))), order
    except (struct.error, OSError, ValueError, OverflowError):
        return Directory(()), order


def orientation(block: bytes) -> int:
    """The orientation in an EXIF block: 1 (upright) to 8; 1 if it is missing or damaged."""
    directory, order = unpack(block)
    value = _integer(directory.get(ORIENTATION) or b"", order)
    return value if 1 <= value <= 8 else 1


def _integer(data: bytes, order: str) -> int:
    return int.from_bytes(data, "little" if order == "<" else "big")
