"""HEIC and HEIF through the optional pillow-heif."""

from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from nelu_cli.images.picture import Array, Header, Metadata, Picture, Refusal, join_alpha, rescale

__all__ = ["probe", "read", "write"]


def probe(stream: BinaryIO) -> Header:
    """Read the header of the primary picture."""
    image = _open(stream)
    alpha = image.mode.startswith(("RGBA", "RGBa", "LA", "La"))
    return Header(
        "HEIF",
        image.size[0],
        image.size[1],
        1 if image.mode.startswith("L") else 3,
        np.dtype(np.uint16 if ";16" in image.mode else np.uint8),
        alpha=alpha,
    )


def read(stream: BinaryIO) -> Picture:
    """Decode the primary picture; 10 and 12 bits fill 16.

    The decoder applies the orientation, so the tag is set back to upright.
    """
    image = _open(stream)
    samples: Array = np.asarray(image)
    if samples.ndim == 2:
        samples = samples[..., None]
    alpha = samples.shape[-1] in (2, 4)
    info = dict(image.info)
    _module().set_orientation(info)
    metadata = Metadata(
        icc=info.get("icc_profile") or None,
        exif=(info.get("exif") or b"").removeprefix(b"Exif\0\0") or None,
        xmp=info.get("xmp") or None,
        lossy=True,
    )
    pixels = samples[..., :-1] if alpha else samples
    return Picture(pixels, samples[..., -1] if alpha else None, "HEIF", metadata)


def write(picture: Picture, stream: BinaryIO) -> None:
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


def _open(stream: BinaryIO) -> Any:
    module = _module()
    stream.seek(0)
    return module.open_heif(stream, convert_hdr_to_8bit=False)


def _module() -> ModuleType:
    try:
        import pillow_heif
    except ImportError:
        raise Refusal("HEIC needs one more package: pip install 'nelu-cli[heic]'") from None
    module: ModuleType = pillow_heif
    return module
