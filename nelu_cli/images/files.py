"""Reading and writing picture files: the format by content, errors in one line, whole files."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from nelu_cli.atomic import atomic_file
from nelu_cli.errors import ImageError
from nelu_cli.images import exr, heif, netpbm, pillow, png, tiff, webp
from nelu_cli.images.convert import FORMATS, fit
from nelu_cli.images.picture import Header, Picture, Refusal, upright

__all__ = ["EXTENSIONS", "MAX_PIXELS", "format_for", "probe", "read", "write"]

MAX_PIXELS = 10**9
_SAMPLES_PER_PIXEL = 4  # in the limit: more channels count as more pixels
_SIGNATURE_BYTES = 64

EXTENSIONS = {
    extension: name for name, format in FORMATS.items() for extension in format.extensions
}


@dataclass(frozen=True)
class _Codec:
    probe: Callable[[BinaryIO], Header]
    read: Callable[[BinaryIO], Picture]
    write: Callable[[Picture, BinaryIO], None] | None


def _pillow_codec(format: str, *, writable: bool = True) -> _Codec:
    return _Codec(
        partial(pillow.probe, format=format),
        partial(pillow.read, format=format),
        partial(pillow.write, format=format) if writable else None,
    )


_CODECS = {
    "PNG": _Codec(png.probe, png.read, png.write),
    "JPEG": _pillow_codec("JPEG"),
    "TIFF": _Codec(tiff.probe, tiff.read, tiff.write),
    "WEBP": _Codec(webp.probe, webp.read, partial(pillow.write, format="WEBP")),
    "BMP": _pillow_codec("BMP"),
    "PPM": _Codec(netpbm.probe, netpbm.read, netpbm.write),
    "AVIF": _pillow_codec("AVIF"),
    "HEIF": _Codec(heif.probe, heif.read, heif.write),
    "EXR": _Codec(exr.probe, exr.read, exr.write),
    "GIF": _pillow_codec("GIF", writable=False),
}


def format_for(path: Path) -> str:
    """The format that a file name's extension asks for.

    Raises:
        ImageError: there is no extension, or it stands for nothing that can be written.
    """
    extension = path.suffix.lower()
    if extension in EXTENSIONS:
        return EXTENSIONS[extension]
    if extension == ".gif":
        raise ImageError(f"{path}: GIF cannot be written; choose PNG")
    known = ", ".join(format.extensions[0] for format in FORMATS.values())
    raise ImageError(f"{path}: no known picture extension; use one of {known}")


def probe(source: Path | bytes, *, max_pixels: int = MAX_PIXELS) -> Header:
    """Read what a file says about its picture, decoding no pixel.

    Raises:
        ImageError: there is no such file, it is damaged or of a foreign format, or too large.
    """
    with _opened(source) as (name, stream):
        return _probe(name, stream, max_pixels)


def read(source: Path | bytes, *, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read a picture from a file, or from the bytes of one.

    The content decides on the format, not the name. Pixels keep the file's depth, and are as
    stored: an EXIF orientation stays in the metadata. Only a palette, and samples of fewer than
    8 bits, are expanded; CMYK inks are four independent channels.

    Raises:
        ImageError: there is no such file, it is damaged, animated or of a foreign format, or it
            has more than ``max_pixels`` pixels in all its pages together.
    """
    with _opened(source) as (name, stream):
        header = _probe(name, stream, max_pixels)
        if header.animated:
            raise ImageError(f"{name}: animated images are not supported; extract a frame first")
        with _reported(name, f"damaged {header.format} file"):
            return _CODECS[header.format].read(stream)


def write(
    picture: Picture,
    target: Path | BinaryIO,
    *,
    format: str | None = None,
    strip: bool = False,
    allow_depth_loss: bool = False,
) -> None:
    """Write a picture, whole or not at all if the target is a path.

    Depth, channels, alpha and metadata are kept. What the format cannot hold is an error, unless
    ``allow_depth_loss``: then depth, CMYK and transparency are converted as
    :func:`nelu_cli.images.convert.fit` says. Metadata that the format has no place for are left
    out. A JPEG is compressed with the tables of the JPEG it came from, else at quality 95.

    An orientation is honoured exactly once: the tag is kept and the pixels stay as they are, or,
    with ``strip`` and in formats without EXIF, the tag goes and the pixels are turned.

    Args:
        format: of the file; by default what the target's extension asks for, or the picture's.
        strip: write the pixels only, without EXIF, profile, resolution, XMP and text.

    Raises:
        ImageError: the format cannot hold the picture, or the file cannot be written.
    """
    name = str(target) if isinstance(target, Path) else "standard output"
    if format is None:
        format = format_for(target) if isinstance(target, Path) else picture.format
    codec = _CODECS.get(format)
    if codec is None or codec.write is None:
        raise ImageError(f"{name}: {format} cannot be written; choose PNG")
    with _reported(name, f"cannot be written as {format}"):
        if strip:
            picture = replace(upright(picture), metadata=picture.metadata.stripped())
        picture = fit(picture, format, allow_loss=allow_depth_loss)
        if isinstance(target, Path):
            with atomic_file(target) as handle:
                codec.write(picture, handle)
        else:
            content = io.BytesIO()  # a pipe cannot be sought
            codec.write(picture, content)
            target.write(content.getbuffer())
            target.flush()


@contextlib.contextmanager
def _opened(source: Path | bytes) -> Iterator[tuple[str, BinaryIO]]:
    """The name for messages, and a seekable stream."""
    if isinstance(source, bytes):
        yield "standard input", io.BytesIO(source)
        return
    name = str(source)
    with contextlib.ExitStack() as stack:
        with _reported(name, "cannot be read"):
            stream: BinaryIO = stack.enter_context(source.open("rb"))
            if not stream.seekable():
                stream = io.BytesIO(stream.read())
        yield name, stream


def _probe(name: str, stream: BinaryIO, max_pixels: int) -> Header:
    with _reported(name, "cannot be read"):
        start = stream.read(_SIGNATURE_BYTES)
    if not start:
        raise ImageError(f"{name}: the file is empty")
    format = _identify(start)
    if format is None:
        known = ", ".join([*FORMATS, "GIF"])
        raise ImageError(f"{name}: not a picture in a format that can be read ({known})")
    with _reported(name, f"damaged {format} file"):
        header = _CODECS[format].probe(stream)
    if header.width < 1 or header.height < 1 or header.channels < 1:
        raise ImageError(f"{name}: damaged {format} file (no pixels)")
    pixels = header.width * header.height * header.pages
    samples = pixels * (header.channels + header.alpha)
    if pixels > max_pixels or samples > max_pixels * _SAMPLES_PER_PIXEL:
        pages = f" x {header.pages} pages" if header.pages > 1 else ""
        raise ImageError(
            f"{name}: {header.width} x {header.height}{pages} pixels exceed the limit of "
            f"{max_pixels:,}; raise the limit if the file is trusted"
        )
    return header


def _identify(start: bytes) -> str | None:
    """The format by its first bytes."""
    if start[4:8] == b"ftyp":
        brands = {start[8:12], *(start[i : i + 4] for i in range(16, len(start), 4))}
        if brands & {b"avif", b"avis"}:
            return "AVIF"
        if brands & {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}:
            return "HEIF"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WEBP"
    signatures = {
        b"\x89PNG\r\n\x1a\n": "PNG",
        b"\xff\xd8\xff": "JPEG",
        b"II*\0": "TIFF",
        b"MM\0*": "TIFF",
        b"II+\0": "TIFF",
        b"MM\0+": "TIFF",
        b"GIF8": "GIF",
        b"BM": "BMP",
        b"v/1\x01": "EXR",
    }
    for signature, format in signatures.items():
        if start.startswith(signature):
            return format
    return "PPM" if start[:1] == b"P" and start[1:2] in b"123456" and start[2:3].isspace() else None


@contextlib.contextmanager
def _reported(name: str, problem: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into one ImageError that names the file.

    Decoders raise nearly anything on damaged input (struct.error, KeyError, RuntimeError,
    SyntaxError, classes of their own), so this catches every Exception; the original stays
    attached as the cause. Their warnings about odd metadata are of no use to anybody.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ImageError:
        raise
    except Refusal as error:
        raise ImageError(f"{name}: {error}") from error
    except MemoryError as error:
        raise ImageError(f"{name}: not enough memory for it") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise ImageError(f"{name}: {error.strerror}") from error
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ImageError(f"{name}: {problem} ({reason})") from error
