"""BMP through Pillow: 1 and 8 bits, no alpha. A palette becomes RGB."""

import io
import struct
from dataclasses import replace
from typing import BinaryIO

from PIL import BmpImagePlugin, Image

from nelu_cli.images import pillow
from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import Picture, is_bilevel


def _write(picture: Picture, stream: BinaryIO) -> None:
    image = pillow.image(picture)
    if is_bilevel(picture):
        image = image.convert("1", dither=Image.Dither.NONE)
    image.save(stream, "BMP", **pillow.options(picture.metadata, image.mode))


def _read(source: Source) -> Picture:
    if not source.salvage:
        return pillow.reader(BmpImagePlugin.BmpImageFile, "BMP")(source)
    content = source.whole()
    (start,), (width, height), (bits,) = (
        struct.unpack_from(form, content, at) for form, at in (("<I", 10), ("<ii", 18), ("<H", 28))
    )
    size = start + (width * bits + 31) // 32 * 4 * abs(height)
    there = len(content) / max(1, size)
    whole = replace(source, stream=io.BytesIO(content + bytes(max(0, size - len(content)))))
    picture = pillow.reader(BmpImagePlugin.BmpImageFile, "BMP")(whole)
    return picture if there >= 1 else picture.noted(f"{100 * (1 - there):.0f} % of it are missing")


FORMAT = Format(
    name="BMP",
    extensions=(".bmp", ".dib"),
    identify=starts_with(b"BM"),
    probe=pillow.prober(BmpImagePlugin.BmpImageFile, "BMP"),
    read=_read,
    write=_write,
    alpha=False,
    metadata=("dpi",),
    bilevel=True,
)
