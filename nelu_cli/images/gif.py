"""GIF through Pillow: still pictures are read, as RGB or RGBA; nothing is written."""

from PIL import GifImagePlugin

from nelu_cli.images import pillow
from nelu_cli.images.format import Format, starts_with

FORMAT = Format(
    name="GIF",
    extensions=(".gif",),
    identify=starts_with(b"GIF8"),
    probe=pillow.prober(GifImagePlugin.GifImageFile, "GIF"),
    read=pillow.reader(GifImagePlugin.GifImageFile, "GIF"),
)
