"""GIF through Pillow: still pictures are read, as RGB or RGBA; nothing is written."""

from PIL import GifImagePlugin, Image

from nelu_cli.images import pillow
from nelu_cli.images.format import Format, Source, starts_with


def _open(source: Source) -> Image.Image:
    source.stream.seek(0)
    return GifImagePlugin.GifImageFile(source.stream)


FORMAT = Format(
    name="GIF",
    extensions=(".gif",),
    identify=starts_with(b"GIF8"),
    probe=pillow.prober(_open, "GIF"),
    read=pillow.reader(_open, "GIF"),
)
