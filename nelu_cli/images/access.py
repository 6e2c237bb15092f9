"""Opened files: found out about, limited, and with errors in one line that names them."""

import contextlib
import errno
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from nelu_cli.atomic import atomic_file
from nelu_cli.errors import ImageError, NeluError
from nelu_cli.images.format import Format, Source
from nelu_cli.images.formats import FORMATS, identify
from nelu_cli.images.picture import Header, Refusal

MAX_PIXELS = 10**9
_SAMPLES_PER_PIXEL = 4  # in the limit: more channels count as more pixels
_SIGNATURE_BYTES = 64
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")  # how numpy says that a disk is full


def name_of(target: Path | BinaryIO) -> str:
    """What messages call a target."""
    return str(target) if isinstance(target, Path) else "standard output"


@contextlib.contextmanager
def opened(source: Path | bytes, *, salvage: bool = False) -> Iterator[tuple[str, Source]]:
    """The name for messages, and the opened file; a folder counts as an empty one."""
    if isinstance(source, bytes):
        start = source[:_SIGNATURE_BYTES]
        yield "standard input", Source(None, io.BytesIO(source), start, salvage)
        return
    name = str(source)
    with contextlib.ExitStack() as stack:
        with reported(name, "cannot be read"):
            stream: BinaryIO = io.BytesIO()
            if not source.is_dir():
                stream = stack.enter_context(source.open("rb"))
                if not stream.seekable():
                    stream = io.BytesIO(stream.read())
            file = Source(source, stream, stream.read(_SIGNATURE_BYTES), salvage)
        yield name, file


def probed(
    name: str, source: Source, max_pixels: int, *, one_page: bool = False
) -> tuple[Format, Header]:
    """Find the format and read the header; refuse what is damaged or too large."""
    format = identify(source)
    if format is None:
        if source.path is not None and source.path.is_dir():
            raise ImageError(f"{name}: Is a directory")
        if not source.start:
            raise ImageError(f"{name}: the file is empty")
        known = ", ".join(FORMATS)
        raise ImageError(f"{name}: not a picture in a format that can be read ({known})")
    with reported(name, f"damaged {format.name} file"):
        header = format.probe(source)
    check_pixels(name, header, max_pixels, pages=1 if one_page else header.pages)
    return format, header


def check_pixels(name: str, header: Header, max_pixels: int, *, pages: int) -> None:
    """Refuse a picture without pixels, or with more than allowed."""
    if header.width < 1 or header.height < 1 or header.channels < 1:
        raise ImageError(f"{name}: damaged {header.format} file (no pixels)")
    pixels = header.width * header.height * pages
    samples = pixels * (header.channels + header.alpha)
    if pixels > max_pixels or samples > max_pixels * _SAMPLES_PER_PIXEL:
        times = f" x {pages} pages" if pages > 1 else ""
        raise ImageError(
            f"{name}: {header.width} x {header.height}{times} pixels exceed the limit of "
            f"{max_pixels:,}; raise the limit if the file is trusted"
        )
    if header.coded > max_pixels:
        raise ImageError(
            f"{name}: {header.coded:,} pixels, of which {header.width} x {header.height} are shown,"
            f" exceed the limit of {max_pixels:,}; raise the limit if the file is trusted"
        )


@contextlib.contextmanager
def sink(target: Path | BinaryIO, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A seekable file whose content reaches the target when the block ends, or not at all."""
    if isinstance(target, Path):
        with atomic_file(target, replace=overwrite) as handle:
            yield handle
    else:
        with tempfile.NamedTemporaryFile() as content:  # tifffile asks for its name
            yield cast(BinaryIO, content)
            content.seek(0)
            shutil.copyfileobj(content, target)
            target.flush()


@contextlib.contextmanager
def reported(name: str, problem: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into one ImageError that names the file.

    Decoders raise nearly anything on damaged input (struct.error, KeyError, RuntimeError,
    SyntaxError, classes of their own), so this catches every Exception; the original stays
    attached as the cause.
    """
    try:
        yield
    except NeluError:
        raise
    except Refusal as error:
        raise ImageError(f"{name}: {error}") from error
    except MemoryError as error:
        raise ImageError(f"{name}: not enough memory for it") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise ImageError(f"{name}: {error.strerror}") from error
        if isinstance(error, OSError) and _SHORT_WRITE.fullmatch(str(error)):
            raise ImageError(f"{name}: {os.strerror(errno.ENOSPC)}") from error
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ImageError(f"{name}: {problem} ({reason})") from error
