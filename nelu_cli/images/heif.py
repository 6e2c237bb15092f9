"""HEIC and HEIF through the optional pillow-heif."""

from functools import partial
from typing import Any, BinaryIO

import numpy as np

from nelu_cli.images import avif
from nelu_cli.images.format import Format, Source, optional_package
from nelu_cli.images.iso_boxes import most_pixels
from nelu_cli.images.picture import (
    Array,
    Header,
    Metadata,
    Picture,
    Refusal,
    join_alpha,
    split_alpha,
)

_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}
_module = partial(optional_package, "pillow_heif", "HEIC needs", "heic")


def _probe(source: Source) -> Header:
    image = _open(source)
    colours, deep = image.mode.partition(";")[::2]
    return Header(
        "HEIF",
        image.size[0],
        image.size[1],
        1 if colours[0] in "LI" else 3,
        np.dtype(np.uint16 if deep else np.uint8),
        alpha=colours[-1] in "Aa",
        coded=most_pixels(source.whole()),
    )


def _read(source: Source) -> Picture:
    """Decode the primary picture; 10 and 12 bits keep their values, and their white.

    The decoder applies the orientation, so the tag is set back to upright.
    """
    image = _open(source)
    if len(image) > 1 and not source.salvage:
        raise Refusal(f"it holds {len(image)} pictures; extract them, or salvage the main one")
    samples: Array = np.asarray(image)
    if samples.ndim == 2:
        samples = samples[..., None]
    bits = int(image.info.get("bit_depth", 8))
    if samples.dtype == np.uint16:
        samples = samples >> (16 - bits)
    info = dict(image.info)
    _module().set_orientation(info)
    metadata = Metadata(
        icc=info.get("icc_profile") or None,
        exif=(info.get("exif") or b"").removeprefix(b"Exif\0\0") or None,
        xmp=info.get("xmp") or None,
        lossy=True,
        white=(1 << bits) - 1 if 8 < bits < 16 else None,
    )
    picture = Picture(*split_alpha(samples), "HEIF", metadata)
    if len(image) > 1:
        picture = picture.noted(f"{len(image) - 1} of {len(image)} pictures are left out")
    if info.get("depth_images") or info.get("aux"):
        picture = picture.noted("depth and other auxiliary pictures are left out")
    return picture


def _write(picture: Picture, stream: BinaryIO) -> None:
    """Encode 8, 10 or 12 bits at quality 95 without subsampling."""
    module = _module()
    metadata = picture.metadata
    samples = join_alpha(picture)
    if samples.shape[-1] == 2:  # grey and alpha
        samples = samples[..., [0, 0, 0, 1]]
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[samples.shape[-1]]
    options: dict[str, Any] = {"quality": 95, "chroma": 444}
    if metadata.white:
        bits = metadata.white.bit_length()
        samples = samples << (16 - bits)
        mode += ";16"
        options["bit_depth"] = bits
    if metadata.exif:
        options["exif"] = b"Exif\0\0" + metadata.exif
    if metadata.xmp:
        options["xmp"] = metadata.xmp
    if metadata.icc:
        options["icc_profile"] = metadata.icc
    size = (samples.shape[1], samples.shape[0])
    module.encode(mode, size, np.ascontiguousarray(samples).tobytes(), stream, **options)


def _open(source: Source) -> Any:
    module = _module()
    source.stream.seek(0)
    return module.open_heif(source.stream, convert_hdr_to_8bit=False)


FORMAT = Format(
    name="HEIF",
    extensions=(".heic", ".heif"),
    identify=lambda source: (
        bool(avif.brands(source) & _BRANDS - avif.BRANDS) and not avif.brands(source) & avif.BRANDS
    ),
    probe=_probe,
    read=_read,
    write=_write,
    whites=lambda white: white in (1023, 4095),
)
