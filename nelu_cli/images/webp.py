"""WebP through Pillow: always 8 bits and RGB."""

from typing import BinaryIO

from PIL import Image, WebPImagePlugin

from nelu_cli.images import pillow
from nelu_cli.images.format import Format, Source
from nelu_cli.images.picture import Picture, Refusal


def _plugin(stream: BinaryIO) -> Image.Image:
    try:
        return WebPImagePlugin.WebPImageFile(stream)
    except Image.DecompressionBombError:
        raise Refusal("Pillow opens no WebP file as large as this; convert it to TIFF") from None


def _read(source: Source) -> Picture:
    image = pillow.opened(_plugin, source)
    return pillow.picture(image, "WEBP", pillow.metadata(image, lossy=not _is_lossless(source)))


def _write(picture: Picture, stream: BinaryIO) -> None:
    """Encode; without loss unless the picture had been compressed with losses before."""
    image = pillow.image(picture, widen=True)
    image.save(
        stream,
        "WEBP",
        lossless=not picture.metadata.lossy,
        quality=pillow.QUALITY,
        alpha_quality=100,
        exact=True,
        **pillow.options(picture.metadata, image.mode),
    )


def _is_lossless(source: Source) -> bool:
    """Whether the picture's chunk is of the lossless kind."""
    content = source.whole()
    position = 12
    while position + 8 <= len(content):
        if content[position : position + 4] in (b"VP8L", b"VP8 "):
            break
        length = int.from_bytes(content[position + 4 : position + 8], "little")
        position += 8 + length + length % 2
    return content[position : position + 4] == b"VP8L"


FORMAT = Format(
    name="WEBP",
    extensions=(".webp",),
    identify=lambda source: source.start[:4] == b"RIFF" and source.start[8:12] == b"WEBP",
    probe=pillow.prober(_plugin, "WEBP"),
    read=_read,
    write=_write,
    longest_side=16383,
)
