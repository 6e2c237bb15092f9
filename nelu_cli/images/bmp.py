"""BMP through Pillow: 1 and 8 bits, no alpha. A palette becomes RGB."""

from typing import BinaryIO

from PIL import BmpImagePlugin, Image

from nelu_cli.images import pillow
from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import Picture, is_bilevel

__all__ = ["FORMAT"]


def _open(source: Source) -> Image.Image:
    source.stream.seek(0)
    return BmpImagePlugin.BmpImageFile(source.stream)


def _write(picture: Picture, stream: BinaryIO) -> None:
    image = pillow.image(picture)
    if is_bilevel(picture):
        image = image.convert("1", dither=Image.Dither.NONE)
    image.save(stream, "BMP", **pillow.options(picture.metadata, image.mode))


FORMAT = Format(
    name="BMP",
    extensions=(".bmp", ".dib"),
    identify=starts_with(b"BM"),
    probe=pillow.prober(_open, "BMP"),
    read=pillow.reader(_open, "BMP"),
    write=_write,
    alpha=False,
    metadata=("dpi",),
)
