"""The coded pictures in a file of boxes (AVIF, HEIC), and the sizes that it claims for them.

A file of the ISO base media format is a list of boxes: length, name, content. ``meta`` lists items
in ``iinf``, says where their bytes are in ``iloc`` and which of the properties in ``iprp`` are
theirs; ``ispe`` is the size. A sequence has tracks in ``moov``, each with tables of its samples.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

FULL = 4  # bytes of version and flags
_ONCE = {  # of two such boxes, who knows which one counts
    *(b"meta", b"iinf", b"iloc", b"idat", b"iref", b"iprp", b"ipco"),
    *(b"moov", b"tkhd", b"mdia", b"minf", b"stbl", b"stsd", b"stsz", b"stco", b"co64"),
}
_MOST_SHARED = 256  # times that the file's bytes may be part of pictures, such as equal tiles


class Bits:
    """Numbers of so many bits each, one after the other."""

    def __init__(self, content: bytes) -> None:
        """Begin with the highest bit of the first byte."""
        self._content, self._at = content, 0

    def __call__(self, count: int) -> int:
        """The next number.

        Raises:
            ValueError: there are not as many bits.
        """
        start, self._at = self._at, self._at + count
        last = (self._at + 7) // 8
        if last > len(self._content):
            raise ValueError("truncated")
        value = int.from_bytes(self._content[start // 8 : last])
        return value >> (8 * last - self._at) & ((1 << count) - 1)


@dataclass(frozen=True)
class CodedPicture:
    """What a decoder is given.

    Attributes:
        size: width and height as the file claims them; None if it does not.
        data: the coded bytes.
    """

    size: tuple[int, int] | None
    data: bytes


def boxes(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and content of each box."""
    position = 0
    while position + 8 <= len(content):
        length, name = struct.unpack_from(">I4s", content, position)
        head = 8
        if length == 1 and position + 16 <= len(content):
            head, (length,) = 16, struct.unpack_from(">Q", content, position + 8)
        elif length == 0:
            length = len(content) - position
        if length < head:
            raise ValueError("boxes of an unknown form")
        yield name, content[position + head : position + length]
        position += length


def coded_pictures(content: bytes, kind: bytes) -> Iterator[CodedPicture]:
    """The items of a kind, such as ``av01``, and the first samples of tracks of that kind.

    Raises:
        ValueError: the boxes make no sense.
    """
    outer = _unique(content)
    if b"meta" in outer:
        meta = _unique(outer[b"meta"][FULL:])
        sizes = _sizes(meta[b"iprp"])
        places = _places(meta[b"iloc"], content, meta.get(b"idat", b""))
        for item in _items(meta[b"iinf"], kind):
            yield CodedPicture(sizes.get(item), b"".join(places.get(item, ())))
    for name, track in boxes(outer.get(b"moov", b"")):
        if name == b"trak":
            yield from _first_sample(_unique(track), content, kind)


def most_pixels(content: bytes) -> int:
    """The most pixels that are decoded for one item: its own before cropping, or of its parts."""
    outer = _unique(content)
    if b"meta" not in outer:
        return 0
    meta = _unique(outer[b"meta"][FULL:])
    sizes, parts = _sizes(meta[b"iprp"]), _parts(meta.get(b"iref", bytes(FULL)))

    @cache
    def pixels(item: int) -> int:
        return max(math.prod(sizes.get(item, (0,))), sum(map(pixels, parts.get(item, ()))))

    return max(map(pixels, sizes), default=0)


def _parts(iref: bytes) -> dict[int, list[int]]:
    """The items that each item is made of, a tile being counted as often as it is used."""
    wide = 32 if iref[0] else 16
    found = {}
    for name, content in boxes(iref[FULL:]):
        if name == b"dimg":
            bits = Bits(content)
            item, count = bits(wide), bits(16)
            found[item] = [bits(wide) for _ in range(count)]
    return found


def grid_sizes(data: bytes) -> set[tuple[int, int]]:
    """Width and height of a picture that is put together of others, from its item."""
    bits = Bits(data)
    _, wide, _ = bits(15), bits(1), bits(16)  # version, flags; rows and columns
    return {(bits(16 + 16 * wide), bits(16 + 16 * wide))}


def _unique(content: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, inner in boxes(content):
        if name in found and name in _ONCE:
            raise ValueError(f"two boxes {name.decode('latin-1')!r}")
        found[name] = inner
    return found


def _items(iinf: bytes, kind: bytes) -> Iterator[int]:
    """The numbers of the items of a kind."""
    for name, entry in boxes(iinf[FULL + (4 if iinf[0] else 2) :]):
        wide = 4 if entry[0] > 2 else 2  # bytes of a number
        if name == b"infe" and entry[FULL + wide + 2 :][:4] == kind:
            yield int.from_bytes(entry[FULL : FULL + wide])


def _sizes(iprp: bytes) -> dict[int, tuple[int, int]]:
    """The size that is claimed for each item."""
    known = list(boxes(_unique(iprp)[b"ipco"]))
    sizes: dict[int, tuple[int, int]] = {}
    for name, ipma in boxes(iprp):
        if name != b"ipma":
            continue
        bits = Bits(ipma)
        version, flags, count = bits(8), bits(24), bits(32)
        for _ in range(count):
            item = bits(32 if version else 16)
            for _ in range(bits(8)):
                index = bits(16 if flags & 1 else 8) & (0x7FFF if flags & 1 else 0x7F)
                property, data = known[index - 1] if 0 < index <= len(known) else (b"", b"")
                if property == b"ispe":
                    size = struct.unpack_from(">II", data, FULL)
                    if sizes.setdefault(item, size) != size:
                        raise ValueError("two sizes of one picture")
    return sizes


def _places(iloc: bytes, file: bytes, idat: bytes) -> dict[int, list[memoryview]]:
    """The bytes of each item, be it in one piece or in several."""
    bits = Bits(iloc)
    version, _ = bits(8), bits(24)
    at_bits, length_bits, base_bits, index_bits = (8 * bits(4) for _ in range(4))
    found = {}
    room = _MOST_SHARED * len(file)
    for _ in range(bits(32 if version > 1 else 16)):
        item = bits(32 if version > 1 else 16)
        method = bits(16) & 15 if version else 0
        _, base, pieces = bits(16), bits(base_bits), []
        source = memoryview(idat if method else file)
        for _ in range(bits(16)):
            _, at, length = bits(index_bits if version else 0), bits(at_bits), bits(length_bits)
            pieces.append(source[base + at :][: length or None])
            room -= len(pieces[-1])
        found[item] = pieces
    if room < 0:
        raise ValueError("its pictures share their data")
    return found


def _first_sample(track: dict[bytes, bytes], file: bytes, kind: bytes) -> Iterator[CodedPicture]:
    tables = track.get(b"mdia", b"")
    for name in (b"minf", b"stbl"):
        tables = _unique(tables).get(name, b"")
    table = _unique(tables)
    if table.get(b"stsd", b"")[12:16] != kind:
        return
    width, height = struct.unpack(">II", track[b"tkhd"][-8:])  # with 16 bits of fraction
    form, chunks = (">Q", table[b"co64"]) if b"co64" in table else (">I", table[b"stco"])
    (start,) = struct.unpack_from(form, chunks, FULL + 4)
    each, _, *first = struct.unpack_from(">III", table[b"stsz"], FULL)
    size = each or first[0]
    yield CodedPicture((width >> 16, height >> 16), file[start : start + size])
