"""JPEG through Pillow; compressed again with the tables that it had.

Four channels are inks and stay independent. Of a file of several pictures, those after the first
are left out with a word if they are previews or a gain map; others are not left out unasked.
"""

import contextlib
import io
import re
import struct
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
from PIL import JpegImagePlugin

from nelu_cli.images import pillow
from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import JpegLayout, Metadata, Picture, Refusal

__all__ = ["FORMAT"]

_END = b"\xff\xd9"
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a segment
_SCAN, _RESTARTS = 0xDA, 0xDD
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # in the data of a scan
_ARITHMETIC = re.compile(rb"\xff[\xc9-\xcb\xcd-\xcf]")  # frames
_MP_ENTRIES = 0xB002
_FURTHER = bytes((37 * index + 181) % 251 for index in range(256))
"""Without markers; begins with a 1, as the decoder goes on with 0 where data are missing."""
_PHOTOSHOP = b"Photoshop 3.0\0"
_MARKER_BYTES = 65533 - 29  # what one marker holds after its longest prefix


def _open(source: Source) -> JpegImagePlugin.JpegImageFile:
    source.stream.seek(0)
    return JpegImagePlugin.JpegImageFile(source.stream)


def _read(source: Source) -> Picture:
    """Decode the first picture.

    Raises:
        ValueError: a part of it is missing, which the decoder fills with grey.
        Refusal: there are several pictures.
    """
    content = source.whole()
    notes = _other_pictures(_open(source), salvage=source.salvage)
    end, problem = _scans(content)
    if problem and source.salvage:
        content = content[:end] + _END
    elif problem:
        raise ValueError(problem)
    picture = _decode(content)
    if not problem and _is_cut(picture, content, end):
        problem = "truncated: its last rows are missing"
        if not source.salvage:
            raise ValueError(problem)
    if problem:
        grey = np.all((picture.pixels == 127) | (picture.pixels == 128), axis=(1, 2))
        rows = int(np.argmin(grey[::-1])) if not grey.all() else len(grey)
        notes.append(f"{problem}; about {rows} of {len(grey)} rows are grey")
    return replace(picture, notes=tuple(notes))


def _decode(content: bytes) -> Picture:
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(content))
    captions = b"".join(
        data.removeprefix(_PHOTOSHOP)
        for name, data in image.applist
        if name == "APP13" and data.startswith(_PHOTOSHOP)
    )
    metadata = pillow.metadata(image, lossy=True, photoshop=captions or None, layout=_layout(image))
    return pillow.picture(image, "JPEG", metadata)


def _write(picture: Picture, stream: BinaryIO) -> None:
    image = pillow.image(picture)
    options = pillow.options(picture.metadata, image.mode)
    if "exif" in options:
        options["exif"] = b"Exif\0\0" + options["exif"]
    image.save(stream, "JPEG", **options, **_compression(picture.metadata))


def _other_pictures(image: JpegImagePlugin.JpegImageFile, *, salvage: bool) -> list[str]:
    """Say what pictures there are beside the first; refuse if they are pictures of their own."""
    kinds: list[str] = []
    with contextlib.suppress(Exception):  # a damaged list of pictures is none
        listed = image._getmp() or {}
        kinds = [str(entry["Attribute"]["MPType"]) for entry in listed.get(_MP_ENTRIES, ())[1:]]
    thumbnails = sum("Thumbnail" in kind for kind in kinds)
    xmp = image.info.get("xmp") or b""
    gain_map = len(kinds) > thumbnails and any(word in xmp for word in (b"hdrgm", b"GainMap"))
    others = len(kinds) - thumbnails - gain_map
    notes = []
    if thumbnails:
        notes.append("a preview beside the picture is left out")
    if gain_map:
        notes.append("its gain map for bright displays is left out")
    if others and not salvage:
        raise Refusal(f"it holds {1 + others} pictures; extract them, or salvage the first one")
    if others:
        notes.append(f"{others} of {1 + others} pictures are left out")
    return notes


def _scans(content: bytes) -> tuple[int, str | None]:
    """Where the picture's data end, and what is wrong with them, seen from the markers alone.

    Of each component, scans must bring every coefficient, to its last bit; and between restart
    markers, of which there must be enough, lie as many blocks as were announced.
    """
    missing: dict[int, list[int]] = {}  # bits of each coefficient of each component
    frame, interval = b"", 0
    position, end = 2, len(content)
    while position + 4 <= end and content[position : position + 2] != _END:
        marker, length = content[position + 1], int.from_bytes(content[position + 2 : position + 4])
        body = content[position + 4 : position + 2 + length]
        if content[position] != 0xFF:  # something between segments
            position = _next_marker(content, position)
        elif marker == 0xFF or marker in _ALONE:
            position += 1 if marker == 0xFF else 2
        elif position + 2 + length > end:
            break
        else:
            position += 2 + length
            if marker in _FRAMES:
                frame, missing = body, {body[at]: [16] * 64 for at in range(6, len(body), 3)}
            elif marker == _RESTARTS:
                interval = int.from_bytes(body)
            elif marker == _SCAN and len(body) > 5:
                first, last, bits = body[-3:]
                for at in range(1, 2 * body[0], 2):
                    row = missing.setdefault(body[at], [16] * 64)
                    row[first : last + 1] = [bits & 15] * (last + 1 - first)
                after = _next_marker(content, position)
                if interval and len(missing) == body[0]:
                    markers = len(_RESTART.findall(content, position, after))
                    if (markers + 1) * interval < _blocks(frame):
                        return after, "truncated: parts of its data are missing"
                position = after
    if content[position : position + 2] != _END:
        return position, "truncated"
    if any(any(bits) for bits in missing.values()):
        return position, "truncated: parts of its data are missing"
    return position, None


def _next_marker(content: bytes, position: int) -> int:
    found = _MARKER.search(content, position)
    return found.start() if found else len(content)


def _blocks(frame: bytes) -> int:
    """How many groups of blocks a scan of all components holds."""
    height, width = int.from_bytes(frame[1:3]), int.from_bytes(frame[3:5])
    sampling = [frame[at] for at in range(7, len(frame), 3)] if frame[5] > 1 else [0x11]
    across = 8 * max(1, *(factors >> 4 for factors in sampling))
    down = 8 * max(1, *(factors & 15 for factors in sampling))
    return -(-width // across) * -(-height // down)


def _is_cut(picture: Picture, content: bytes, end: int) -> bool:
    """Whether the decoder takes bytes put in before the end as data: then data are missing.

    Even if only the last block is cut, which no marker shows. Arithmetic coding may end early.
    """
    if _ARITHMETIC.search(content, 0, end):
        return False
    longer = _decode(content[:end] + _FURTHER + content[end:])
    return not np.array_equal(longer.pixels, picture.pixels)


def _layout(image: JpegImagePlugin.JpegImageFile) -> JpegLayout:
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


def _compression(metadata: Metadata) -> dict[str, Any]:
    """How to compress, and the segments that Pillow does not write by itself."""
    for name, data in (("EXIF", metadata.exif), ("XMP", metadata.xmp)):
        if data and len(data) > _MARKER_BYTES:
            raise Refusal(
                f"JPEG cannot hold {len(data)} bytes of {name}; "
                "strip the metadata or choose PNG or TIFF"
            )
    resources = metadata.photoshop or b""
    captions = b"".join(
        _marker(13, _PHOTOSHOP + resources[start : start + _MARKER_BYTES])
        for start in range(0, len(resources), _MARKER_BYTES)
    )
    layout = metadata.jpeg
    if layout is None or not layout.tables:
        return {"quality": pillow.QUALITY, "subsampling": 0, "extra": captions}
    return {
        "qtables": [list(table) for table in layout.tables],
        "subsampling": layout.subsampling,
        "progressive": layout.progressive,
        "comment": layout.comment,
        "extra": captions + layout.segments,
    }


def _marker(number: int, data: bytes) -> bytes:
    """An application's segment."""
    return struct.pack(">HH", 0xFFE0 + number, len(data) + 2) + data


FORMAT = Format(
    name="JPEG",
    extensions=(".jpg", ".jpeg", ".jpe", ".jfif"),
    identify=starts_with(b"\xff\xd8\xff"),
    probe=pillow.prober(_open, "JPEG"),
    read=_read,
    write=_write,
    metadata=("icc", "exif", "xmp", "dpi", "photoshop"),
    highest_dpi=65535,
    alpha=False,
    inks=True,
    longest_side=65500,
)
