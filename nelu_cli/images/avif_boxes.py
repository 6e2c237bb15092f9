"""Metadata put into an AVIF that was encoded without: its boxes, taken apart and joined again.

A file of the ISO base media format is a list of boxes: length, name, content. In an AVIF, ``meta``
lists items (the picture, its alpha, EXIF, XMP) in ``iinf``, says where their bytes are in
``iloc``, which belong together in ``iref``, and gives them properties in ``iprp``.
"""

import struct

from nelu_cli.images import exif as exif_blocks
from nelu_cli.images.iso_boxes import FULL, boxes
from nelu_cli.images.picture import Metadata

_TURNS = {  # EXIF orientation: quarter turns to the left, then mirrored about an axis
    2: (0, 1),
    3: (2, None),
    4: (0, 0),
    5: (1, 0),
    6: (3, None),
    7: (3, 0),
    8: (1, None),
}


def with_metadata(file: bytes, metadata: Metadata) -> bytes:
    """The file with profile, EXIF, XMP and orientation.

    Raises:
        ValueError: the file is not as the encoder is known to write it.
    """
    outer = dict(boxes(file))
    inner = dict(boxes(outer[b"meta"][FULL:]))
    properties = dict(boxes(inner[b"iprp"]))
    (primary,) = struct.unpack_from(">H", inner[b"pitm"], FULL)
    items = [
        (name, data)
        for name, data in ((b"Exif", metadata.exif), (b"mime", metadata.xmp))
        if data is not None
    ]
    added = [_box(b"colr", b"prof" + metadata.icc)] if metadata.icc else []
    angle, mirror = _TURNS.get(metadata.orientation, (0, None))
    if angle:
        added.append(_box(b"irot", bytes([angle])))
    if mirror is not None:
        added.append(_box(b"imir", bytes([mirror])))
    known = len(list(boxes(properties[b"ipco"])))
    numbers = range(known + 1, known + 1 + len(added))
    properties[b"ipco"] += b"".join(added)
    properties[b"ipma"] = _associated(properties[b"ipma"], primary, numbers)
    inner[b"iprp"] = b"".join(_box(name, content) for name, content in properties.items())
    first = 1 + max(item for item, _, _ in _places(inner[b"iloc"]))
    (count,) = struct.unpack_from(">H", inner[b"iinf"], FULL)
    inner[b"iinf"] = (
        inner[b"iinf"][:FULL]
        + struct.pack(">H", count + len(items))
        + (
            inner[b"iinf"][FULL + 2 :]
            + b"".join(_item(first + index, name) for index, (name, _) in enumerate(items))
        )
    )
    references = inner.get(b"iref", bytes(FULL))
    for index in range(len(items)):
        references += _box(b"cdsc", struct.pack(">HHH", first + index, 1, primary))
    inner[b"iref"] = references
    payloads = [_payload(name, data) for name, data in items]
    start = len(file) + 8  # of a second mdat; where it is once meta has grown is known at the end
    places = _places(inner[b"iloc"])
    for index, payload in enumerate(payloads):
        places.append((first + index, start, len(payload)))
        start += len(payload)
    inner[b"iloc"] = _located(places, 0)
    grown = sum(8 + len(content) for content in inner.values()) + FULL - len(outer[b"meta"])
    inner[b"iloc"] = _located(places, grown)
    content = bytes(FULL) + b"".join(_box(name, data) for name, data in inner.items())
    outer[b"meta"] = content
    result = b"".join(_box(name, data) for name, data in outer.items())
    return result + _box(b"mdat", b"".join(payloads))


def _box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), name) + content


def _places(iloc: bytes) -> list[tuple[int, int, int]]:
    """Number, offset and length of each item; all are in one piece."""
    version, sizes, count = iloc[0], *struct.unpack_from(">HH", iloc, FULL)
    if version != 0 or sizes != 0x4400:
        raise ValueError("places of an unknown form")
    found = []
    for index in range(count):
        item, _, pieces, offset, length = struct.unpack_from(">HHHII", iloc, 8 + 14 * index)
        if pieces != 1:
            raise ValueError("items in several pieces")
        found.append((item, offset, length))
    return found


def _located(places: list[tuple[int, int, int]], shift: int) -> bytes:
    """The content of ``iloc``, all offsets being shifted."""
    entries = (struct.pack(">HHHII", item, 0, 1, at + shift, size) for item, at, size in places)
    return bytes(FULL) + struct.pack(">HH", 0x4400, len(places)) + b"".join(entries)


def _associated(ipma: bytes, item: int, added: range) -> bytes:
    """The content of ``ipma`` with further properties for an item, which readers must heed."""
    if ipma[:FULL] != bytes(FULL):
        raise ValueError("properties of an unknown form")
    (entries,) = struct.unpack_from(">I", ipma, FULL)
    result, position = ipma[: FULL + 4], FULL + 4
    for _ in range(entries):
        number, count = struct.unpack_from(">HB", ipma, position)
        own = list(ipma[position + 3 : position + 3 + count])
        position += 3 + count
        if number == item:
            own += [index | 0x80 for index in added]
        result += struct.pack(">HB", number, len(own)) + bytes(own)
    return result


def _item(number: int, kind: bytes) -> bytes:
    text = kind + b"\0" + (b"application/rdf+xml\0" if kind == b"mime" else b"")
    return _box(b"infe", b"\x02\0\0\0" + struct.pack(">HH", number, 0) + text)


def _payload(kind: bytes, data: bytes) -> bytes:
    """EXIF is preceded by the offset of its header; the orientation is a property, not in it."""
    if kind == b"mime":
        return data
    directory, order = exif_blocks.unpack(data)
    block = exif_blocks.pack(directory.without({exif_blocks.ORIENTATION}), order)
    return bytes(4) + (block or data)
