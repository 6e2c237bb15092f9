"""JPEG through Pillow; compressed again with the tables that it had.

Four channels are inks and stay independent. Of a file of several pictures, those after the first
are left out with a word if they are previews or a gain map; others are not left out unasked.
"""

import contextlib
import io
import struct
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
from PIL import JpegImagePlugin

from nelu_cli.images import jpeg_scans, pillow
from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import JpegLayout, Metadata, Picture, Refusal

_MP_ENTRIES = 0xB002
_PHOTOSHOP = b"Photoshop 3.0\0"
_MARKER_BYTES = 65533 - 29  # what one marker holds after its longest prefix


def _read(source: Source) -> Picture:
    """Decode the first picture.

    Raises:
        ValueError: a part of it is missing, which the decoder fills with grey.
        Refusal: there are several pictures.
    """
    content = source.whole()
    image = pillow.opened(JpegImagePlugin.JpegImageFile, source)
    notes = _other_pictures(image, salvage=source.salvage)
    end, problem = jpeg_scans.scans(content)
    if problem and source.salvage:
        content = content[:end] + jpeg_scans.END
    elif problem:
        raise ValueError(problem)
    picture = _decode(content)
    if not problem and jpeg_scans.is_cut(
        content, end, picture.pixels, lambda other: _decode(other).pixels
    ):
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
    probe=pillow.prober(JpegImagePlugin.JpegImageFile, "JPEG"),
    read=_read,
    write=_write,
    metadata=("icc", "exif", "xmp", "dpi", "photoshop"),
    highest_dpi=65535,
    alpha=False,
    inks=True,
    longest_side=65500,
)
