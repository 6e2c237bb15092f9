"""AVIF through Pillow, 10 and 12 bits through imagecodecs."""

from dataclasses import replace
from typing import Any, BinaryIO

import imagecodecs
import numpy as np
from PIL import Image

from nelu_cli.images import av1, exif, pillow
from nelu_cli.images.avif_boxes import with_metadata
from nelu_cli.images.format import Format, Source
from nelu_cli.images.iso_boxes import coded_pictures, grid_sizes, most_pixels
from nelu_cli.images.picture import Header, Picture, Refusal, join_alpha, split_alpha

BRANDS = {b"avif", b"avis"}
_START = 1 << 16  # bytes that hold the description of the picture


def brands(source: Source) -> set[bytes]:
    """What a file of the ISO base media format says it is compatible with."""
    start = source.start
    if start[4:8] != b"ftyp":
        return set()
    return {start[8:12], *(start[i : i + 4] for i in range(16, len(start), 4))}


def _probe(source: Source) -> Header:
    bits, grey = _configuration(source)
    header = pillow.header(_open(source), "AVIF", np.uint16 if bits > 8 else np.uint8)
    return replace(header, channels=1 if grey else 3, coded=_coded_pixels(source.whole()))


def _coded_pixels(content: bytes) -> int:
    """The most pixels that the decoder makes of one picture within the file.

    Raises:
        ValueError: one is not as large as the file claims; the decoder would scale it in silence.
    """
    most = most_pixels(content)
    for kind, sizes_of in ((b"av01", av1.frame_sizes), (b"grid", grid_sizes)):
        for picture in coded_pictures(content, kind):
            sizes = sizes_of(picture.data)  # several if there are layers
            if picture.size not in sizes:
                said, found = (
                    f"{size[0]} x {size[1]}" if size else "no"
                    for size in (picture.size, max(sizes, default=None))
                )
                raise ValueError(f"it claims {said} pixels and holds {found}")
            most = max(most, *(width * height for width, height in sizes))
    return most


def _read(source: Source) -> Picture:
    image = _open(source)
    metadata = pillow.metadata(image, lossy=True)
    bits, grey = _configuration(source)
    if bits > 8:
        samples = imagecodecs.avif_decode(source.whole())
        samples = samples[..., None] if samples.ndim == 2 else samples
        metadata = replace(metadata, white=(1 << bits) - 1)
        picture = Picture(*split_alpha(samples), "AVIF", metadata)
    else:
        picture = pillow.picture(image, "AVIF", metadata)
    if b"clap" in source.whole()[:_START]:
        picture = picture.noted("the crop that viewers show is not applied: the whole is kept")
    return replace(picture, pixels=picture.pixels[..., :1]) if grey else picture


def _write(picture: Picture, stream: BinaryIO) -> None:
    _plugin()
    if picture.metadata.white:
        stream.write(_deep(picture, picture.metadata.white.bit_length()))
        return
    image = pillow.image(picture)
    subsampling = "4:0:0" if image.mode == "L" else "4:4:4"
    options = pillow.options(picture.metadata, image.mode)
    if picture.metadata.exif:  # Pillow looks into it, so it must be sound
        options["exif"] = exif.pack(*exif.unpack(picture.metadata.exif)) or b""
    image.save(stream, "AVIF", quality=pillow.QUALITY, subsampling=subsampling, **options)


def _deep(picture: Picture, bits: int) -> bytes:
    """10 or 12 bits, which Pillow does not write."""
    samples = join_alpha(picture)
    plane = samples[..., 0] if samples.shape[-1] == 1 else samples
    encoded = imagecodecs.avif_encode(
        np.ascontiguousarray(plane), level=pillow.QUALITY, bitspersample=bits
    )
    return with_metadata(bytes(encoded), picture.metadata)


def _plugin() -> Any:
    """Pillow has AVIF since 11.3, if it was built with it."""
    try:
        from PIL import AvifImagePlugin
    except ImportError:
        raise Refusal("AVIF needs a newer Pillow: pip install --upgrade pillow") from None
    if not AvifImagePlugin.SUPPORTED:
        raise Refusal("this build of Pillow has no AVIF; choose another format")
    return AvifImagePlugin


def _open(source: Source) -> Image.Image:
    source.stream.seek(0)
    image: Image.Image = _plugin().AvifImageFile(source.stream)
    return image


def _configuration(source: Source) -> tuple[int, bool]:
    """Bits per sample, and whether it is grey, from the AV1 configuration box."""
    source.stream.seek(0)
    _, found, rest = source.stream.read(_START).partition(b"av1C")
    flags = rest[2] if found and len(rest) > 2 else 0
    bits = 8 if not flags & 0x40 else 12 if flags & 0x20 else 10
    return bits, bool(flags & 0x10)


FORMAT = Format(
    name="AVIF",
    extensions=(".avif",),
    identify=lambda source: bool(brands(source) & BRANDS),
    probe=_probe,
    read=_read,
    write=_write,
    whites=lambda white: white in (1023, 4095),
)
