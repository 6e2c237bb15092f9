"""JPEG through Pillow; compressed again with the tables that it had.

Four channels are inks and stay independent. Pictures after the first (previews, gain maps) are
left out.
"""

import struct
from typing import Any, BinaryIO

from PIL import JpegImagePlugin

from nelu_cli.images import pillow
from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import JpegLayout, Metadata, Picture, Refusal

__all__ = ["FORMAT"]

_PHOTOSHOP = b"Photoshop 3.0\0"
_MARKER_BYTES = 65533 - 29  # what one marker holds after its longest prefix


def _open(source: Source) -> JpegImagePlugin.JpegImageFile:
    source.stream.seek(0)
    return JpegImagePlugin.JpegImageFile(source.stream)


def _read(source: Source) -> Picture:
    image = _open(source)
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
