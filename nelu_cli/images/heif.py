"""HEIC and HEIF through the optional pillow-heif."""

from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from nelu_cli.images import avif
from nelu_cli.images.format import Format, Source
from nelu_cli.images.picture import (
    Array,
    Header,
    Metadata,
    Picture,
    Refusal,
    join_alpha,
    rescale,
    split_alpha,
)

__all__ = ["FORMAT"]

_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}


def _probe(source: Source) -> Header:
    image = _open(source)
    alpha = image.mode.startswith(("RGBA", "RGBa", "LA", "La"))
    return Header(
        "HEIF",
        image.size[0],
        image.size[1],
        1 if image.mode.startswith("L") else 3,
        np.dtype(np.uint16 if ";16" in image.mode else np.uint8),
        alpha=alpha,
    )


def _read(source: Source) -> Picture:
    """Decode the primary picture; 10 and 12 bits fill 16.

    The decoder applies the orientation, so the tag is set back to upright.
    """
    image = _open(source)
    samples: Array = np.asarray(image)
    if samples.ndim == 2:
        samples = samples[..., None]
    info = dict(image.info)
    _module().set_orientation(info)
    metadata = Metadata(
        icc=info.get("icc_profile") or None,
        exif=(info.get("exif") or b"").removeprefix(b"Exif\0\0") or None,
        xmp=info.get("xmp") or None,
        lossy=True,
    )
    return Picture(*split_alpha(samples), "HEIF", metadata)


def _write(picture: Picture, stream: BinaryIO) -> None:
    """Encode 8-bit samples at quality 95 without subsampling."""
    module = _module()
    samples = rescale(join_alpha(picture), np.uint8)
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[samples.shape[-1]]
    size = (samples.shape[1], samples.shape[0])
    metadata = picture.metadata
    options: dict[str, Any] = {"quality": 95, "chroma": 444}
    if metadata.exif:
        options["exif"] = b"Exif\0\0" + metadata.exif
    if metadata.xmp:
        options["xmp"] = metadata.xmp
    if metadata.icc:
        options["icc_profile"] = metadata.icc
    module.encode(mode, size, np.ascontiguousarray(samples).tobytes(), stream, **options)


def _open(source: Source) -> Any:
    module = _module()
    source.stream.seek(0)
    return module.open_heif(source.stream, convert_hdr_to_8bit=False)


def _module() -> ModuleType:
    try:
        import pillow_heif
    except ImportError:
        raise Refusal("HEIC needs one more package: pip install 'nelu-cli[heic]'") from None
    module: ModuleType = pillow_heif
    return module


FORMAT = Format(
    name="HEIF",
    extensions=(".heic", ".heif"),
    identify=lambda source: (
        bool(avif.brands(source) & _BRANDS - avif.BRANDS) and not avif.brands(source) & avif.BRANDS
    ),
    probe=_probe,
    read=_read,
    write=_write,
)
