"""Reading and writing picture files, at once or picture by picture."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from nelu_cli.errors import ImageError
from nelu_cli.images.access import (
    MAX_PIXELS,
    check_pixels,
    name_of,
    opened,
    probed,
    reported,
    sink,
)
from nelu_cli.images.convert import developed, fit
from nelu_cli.images.format import Format, Pages, Writer
from nelu_cli.images.formats import FORMATS, format_for
from nelu_cli.images.picture import Header, Picture, Refusal, upright


def probe(source: Path | bytes, *, max_pixels: int = MAX_PIXELS, salvage: bool = False) -> Header:
    """Read what a file says about its picture, decoding no pixel.

    Raises:
        ImageError: there is no such file, it is damaged or of a foreign format, or too large.
    """
    with opened(source, salvage=salvage) as (name, file):
        return probed(name, file, max_pixels)[1]


def read(source: Path | bytes, *, max_pixels: int = MAX_PIXELS, salvage: bool = False) -> Picture:
    """Read a picture from a file, or from the bytes of one.

    The content decides on the format, not the name. Pixels keep the file's depth, and are as
    stored: an EXIF orientation stays in the metadata. Only a palette, and samples of fewer than
    8 bits, are expanded; CMYK inks are four independent channels.

    Args:
        source: a path, or the content of a file.
        max_pixels: the most pixels in all pages together.
        salvage: of a damaged file, or one that holds more than can be kept, take what there is;
            the picture's notes say what is missing.

    Raises:
        ImageError: there is no such file, it is damaged, animated or of a foreign format, or it
            has too many pixels.
    """
    with opened(source, salvage=salvage) as (name, file):
        format, header = probed(name, file, max_pixels)
        if header.animated and not salvage:
            raise ImageError(f"{name}: animated images are not supported; extract a frame first")
        with reported(name, f"damaged {format.name} file"):
            picture = format.read(file)
            size = picture.pixels.shape[-3:-1]
            if size != (header.height, header.width) and not picture.metadata.undeveloped:
                raise ValueError("it is not as large as its header says")
        if header.animated:
            picture = picture.noted("only the first frame of an animation is taken")
        return picture


class PageSequence:
    """The pictures of an opened file. Each is decoded when it is asked for, and not kept."""

    def __init__(self, pages: Pages, name: str, problem: str, max_pixels: int) -> None:
        """Let errors name the file and the problem."""
        self._pages, self._name, self._problem, self._most = pages, name, problem, max_pixels

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[Picture]:
        return (self[index] for index in range(len(self)))

    def header(self, index: int) -> Header:
        """What a picture is like.

        Raises:
            ImageError: it is damaged, or has too many pixels.
        """
        with reported(self._name, self._problem):
            header = self._pages.header(index)
        check_pixels(self._name, header, self._most, pages=1)
        return header

    def __getitem__(self, index: int) -> Picture:
        """Decode a picture.

        Raises:
            ImageError: it is damaged, or has too many pixels.
        """
        index = range(len(self))[index]
        self.header(index)
        with reported(self._name, self._problem):
            return self._pages[index]


@contextlib.contextmanager
def open_pages(
    source: Path | bytes, *, max_pixels: int = MAX_PIXELS, salvage: bool = False
) -> Iterator[PageSequence]:
    """Open a file to read its pictures one by one, however many there are.

    They may differ in size and kind. A file of a format that holds one picture has one.

    Args:
        source: a path, or the content of a file.
        max_pixels: the most pixels of one picture.
        salvage: as for :func:`read`.

    Yields:
        The pictures.

    Raises:
        ImageError: as for :func:`read`, also when a picture is asked for.
    """
    with opened(source, salvage=salvage) as (name, file), contextlib.ExitStack() as stack:
        format, header = probed(name, file, max_pixels, one_page=True)
        problem = f"damaged {format.name} file"
        if format.pages is None:
            pages: Pages = _OnePage(header, lambda: read(source, salvage=salvage))
        else:
            with reported(name, problem):
                pages = stack.enter_context(format.pages(file))
        yield PageSequence(pages, name, problem, max_pixels)


def write(
    picture: Picture,
    target: Path | BinaryIO,
    *,
    format: str | None = None,
    strip: bool = False,
    allow_depth_loss: bool = False,
    colour: str = "srgb",
    overwrite: bool = True,
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
        colour: what RAW files are developed to: srgb, p3, adobe or linear.
        overwrite: whether the target may exist.

    Returns:
        Notes: what was left out or changed from the file that was read to this one, in words.

    Raises:
        ImageError: the format cannot hold the picture, or the file cannot be written.
    """
    entry = _writable(picture, target, format)
    with reported(name_of(target), f"cannot be written as {entry.name}"):
        picture = developed(picture, entry.name, colour)
        picture = fit(
            _strip(picture) if strip else picture, entry.name, allow_loss=allow_depth_loss
        )
        with sink(target, overwrite=overwrite) as handle:
            assert entry.write is not None
            entry.write(picture, handle)
    return picture.notes


@contextlib.contextmanager
def write_pages(
    target: Path | BinaryIO,
    *,
    format: str | None = None,
    strip: bool = False,
    allow_depth_loss: bool = False,
    overwrite: bool = True,
    nbytes: int = 0,
) -> Iterator[Callable[[Picture], tuple[str, ...]]]:
    """Write pictures one by one into one file, which appears when the block ends, or not at all.

    Args:
        target: a path, or a stream that need not be seekable.
        format: as for :func:`write`.
        strip: as for :func:`write`.
        allow_depth_loss: as for :func:`write`.
        overwrite: as for :func:`write`.
        nbytes: about how many bytes all pixels take, for files that may exceed 4 GiB.

    Yields:
        A function that adds a picture and returns its notes, as :func:`write` does.

    Raises:
        ImageError: as for :func:`write`, also when a picture is added.
    """
    name, problem = name_of(target), "cannot be written"
    writer: Writer | None = None

    def add(picture: Picture) -> tuple[str, ...]:
        nonlocal writer
        entry = _writable(picture, target, format)
        with reported(name, f"{problem} as {entry.name}"):
            picture = developed(picture, entry.name)
            if strip:
                picture = _strip(picture)
            picture = fit(picture, entry.name, allow_loss=allow_depth_loss)
            if writer is None:
                begin = entry.writer or partial(_OnePicture, entry)
                writer = begin(handle, picture, nbytes)
            writer.add(picture)
        return picture.notes

    with contextlib.ExitStack() as stack:
        with reported(name, problem):
            handle = stack.enter_context(sink(target, overwrite=overwrite))
        yield add
        with reported(name, problem):
            if writer is None:
                raise Refusal("a file without a picture is not written")
            writer.close()
            stack.close()  # now the file appears


class _OnePage:
    """The pages of a file that holds one picture."""

    def __init__(self, header: Header, read: Callable[[], Picture]) -> None:
        self._header, self._read = header, read

    def __len__(self) -> int:
        return 1

    def header(self, index: int, /) -> Header:
        return self._header

    def __getitem__(self, index: int, /) -> Picture:
        return self._read()


class _OnePicture:
    """The writer of a format that holds one picture."""

    def __init__(self, format: Format, stream: BinaryIO, first: Picture, nbytes: int) -> None:
        self._format, self._stream, self._full = format, stream, False

    def add(self, picture: Picture, /) -> None:
        if self._full:
            raise Refusal(f"{self._format.name} holds one picture, not several; choose TIFF")
        assert self._format.write is not None
        self._format.write(picture, self._stream)
        self._full = True

    def close(self) -> None:
        pass


def _writable(picture: Picture, target: Path | BinaryIO, format: str | None) -> Format:
    """The format to write: the one asked for, that of the target's name, or the picture's."""
    if format is None:
        format = format_for(target) if isinstance(target, Path) else picture.format
    entry = FORMATS.get(format)
    if entry is None or entry.write is None:
        raise ImageError(f"{name_of(target)}: {format} cannot be written; choose PNG")
    return entry


def _strip(picture: Picture) -> Picture:
    """Turn the pixels upright and leave out the metadata, but for those that colours need."""
    picture = replace(upright(picture), metadata=picture.metadata.encoding())
    return picture.noted("the colour profile is kept") if picture.metadata.icc else picture
