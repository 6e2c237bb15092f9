"""Reading and writing picture files: the format by content, errors in one line, whole files."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from nelu_cli.atomic import atomic_file
from nelu_cli.errors import ImageError
from nelu_cli.images.convert import fit
from nelu_cli.images.format import Format, Source
from nelu_cli.images.formats import FORMATS, format_for, identify
from nelu_cli.images.picture import Header, Picture, Refusal, upright

__all__ = ["MAX_PIXELS", "probe", "read", "write"]

MAX_PIXELS = 10**9
_SAMPLES_PER_PIXEL = 4  # in the limit: more channels count as more pixels
_SIGNATURE_BYTES = 64


def probe(source: Path | bytes, *, max_pixels: int = MAX_PIXELS) -> Header:
    """Read what a file says about its picture, decoding no pixel.

    Raises:
        ImageError: there is no such file, it is damaged or of a foreign format, or too large.
    """
    with _opened(source) as (name, opened):
        return _probe(name, opened, max_pixels)[1]


def read(source: Path | bytes, *, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read a picture from a file, or from the bytes of one.

    The content decides on the format, not the name. Pixels keep the file's depth, and are as
    stored: an EXIF orientation stays in the metadata. Only a palette, and samples of fewer than
    8 bits, are expanded; CMYK inks are four independent channels.

    Raises:
        ImageError: there is no such file, it is damaged, animated or of a foreign format, or it
            has more than ``max_pixels`` pixels in all its pages together.
    """
    with _opened(source) as (name, opened):
        format, header = _probe(name, opened, max_pixels)
        if header.animated:
            raise ImageError(f"{name}: animated images are not supported; extract a frame first")
        with _reported(name, f"damaged {format.name} file"):
            return format.read(opened)


def write(
    picture: Picture,
    target: Path | BinaryIO,
    *,
    format: str | None = None,
    strip: bool = False,
    allow_depth_loss: bool = False,
) -> tuple[str, ...]:
    """Write a picture, whole or not at all if the target is a path.

    Depth, channels, alpha and metadata are kept. What the format cannot hold is an error, unless
    ``allow_depth_loss``: then depth, CMYK and transparency are converted as
    :func:`nelu_cli.images.convert.fit` says. Metadata that the format has no place for are left
    out. A JPEG is compressed with the tables of the JPEG it came from, else at quality 95.

    An orientation is honoured exactly once: the tag is kept and the pixels stay as they are, or,
    with ``strip`` and in formats without EXIF, the tag goes and the pixels are turned.

    Args:
        picture: pixels and metadata.
        target: a path, or a stream that need not be seekable.
        format: of the file; by default what the target's extension asks for, or the picture's.
        strip: leave out EXIF, resolution, XMP and text. The colour profile stays, or colours
            would change.
        allow_depth_loss: convert what the format cannot hold.

    Returns:
        Notes: what was left out or changed from the file that was read to this one, in words.

    Raises:
        ImageError: the format cannot hold the picture, or the file cannot be written.
    """
    name = str(target) if isinstance(target, Path) else "standard output"
    if format is None:
        format = format_for(target) if isinstance(target, Path) else picture.format
    entry = FORMATS.get(format)
    if entry is None or entry.write is None:
        raise ImageError(f"{name}: {format} cannot be written; choose PNG")
    with _reported(name, f"cannot be written as {format}"):
        if strip:
            picture = _strip(picture)
        picture = fit(picture, format, allow_loss=allow_depth_loss)
        if isinstance(target, Path):
            with atomic_file(target) as handle:
                entry.write(picture, handle)
        else:
            content = io.BytesIO()  # a pipe cannot be sought
            entry.write(picture, content)
            target.write(content.getbuffer())
            target.flush()
    return picture.notes


def _strip(picture: Picture) -> Picture:
    """Turn the pixels upright and leave out the metadata, but for those that colours need."""
    picture = replace(upright(picture), metadata=picture.metadata.encoding())
    return picture.noted("the colour profile is kept") if picture.metadata.icc else picture


@contextlib.contextmanager
def _opened(source: Path | bytes) -> Iterator[tuple[str, Source]]:
    """The name for messages, and the opened file; a folder counts as an empty one."""
    if isinstance(source, bytes):
        yield "standard input", Source(None, io.BytesIO(source), source[:_SIGNATURE_BYTES])
        return
    name = str(source)
    with contextlib.ExitStack() as stack:
        with _reported(name, "cannot be read"):
            stream: BinaryIO = io.BytesIO()
            if not source.is_dir():
                stream = stack.enter_context(source.open("rb"))
                if not stream.seekable():
                    stream = io.BytesIO(stream.read())
            opened = Source(source, stream, stream.read(_SIGNATURE_BYTES))
        yield name, opened


def _probe(name: str, source: Source, max_pixels: int) -> tuple[Format, Header]:
    """Find the format and read the header; refuse what is damaged or too large."""
    format = identify(source)
    if format is None:
        if source.path is not None and source.path.is_dir():
            raise ImageError(f"{name}: Is a directory")
        if not source.start:
            raise ImageError(f"{name}: the file is empty")
        known = ", ".join(FORMATS)
        raise ImageError(f"{name}: not a picture in a format that can be read ({known})")
    with _reported(name, f"damaged {format.name} file"):
        header = format.probe(source)
    if header.width < 1 or header.height < 1 or header.channels < 1:
        raise ImageError(f"{name}: damaged {format.name} file (no pixels)")
    pixels = header.width * header.height * header.pages
    samples = pixels * (header.channels + header.alpha)
    if pixels > max_pixels or samples > max_pixels * _SAMPLES_PER_PIXEL:
        pages = f" x {header.pages} pages" if header.pages > 1 else ""
        raise ImageError(
            f"{name}: {header.width} x {header.height}{pages} pixels exceed the limit of "
            f"{max_pixels:,}; raise the limit if the file is trusted"
        )
    return format, header


@contextlib.contextmanager
def _reported(name: str, problem: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into one ImageError that names the file.

    Decoders raise nearly anything on damaged input (struct.error, KeyError, RuntimeError,
    SyntaxError, classes of their own), so this catches every Exception; the original stays
    attached as the cause.
    """
    try:
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
