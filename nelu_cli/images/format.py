"""What a picture format is: one entry of the table in :mod:`nelu_cli.images.formats`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Protocol

from nelu_cli.images.picture import Header, Picture, Refusal


@dataclass(frozen=True)
class Source:
    """An opened file, for formats to recognise, probe and read.

    Attributes:
        path: where it is; None if its bytes were given.
        stream: its content, seekable; empty for a folder.
        start: the first bytes of the content.
        salvage: whether to take what there is of a damaged file, with notes of what is missing.
    """

    path: Path | None
    stream: BinaryIO
    start: bytes
    salvage: bool = False

    def whole(self) -> bytes:
        """The whole content."""
        self.stream.seek(0)
        return self.stream.read()


class Pages(Protocol):
    """The pictures of an opened file, read when asked for."""

    def header(self, index: int, /) -> Header:
        """What a picture is like, and how many there are."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Picture: ...


class Writer(Protocol):
    """A file that pictures are added to; made from a stream, the first one and all their bytes."""

    def add(self, picture: Picture, /) -> None:
        """Append a picture that the format can hold."""

    def close(self) -> None:
        """Finish the file."""


@dataclass(frozen=True)
class Format:
    """A file format: its names, how to recognise, probe, read and write it, and what it holds.

    Attributes:
        name: in messages and for ``--format``.
        extensions: with the dot, in lower case; a new file gets the first.
        identify: tells from a source whether it is of this format.
        probe: reads what a file says about its picture, decoding no pixel.
        read: decodes a file.
        write: encodes a picture that the format can hold; None if files can only be read.
        pages: opens a file of several pictures, to read them one by one.
        writer: begins a file of several pictures.
        depths: dtypes of samples that it holds, deepest last; none means any.
        channels: numbers of channels that it holds; none means any.
        alpha: whether it holds transparency.
        premultiplied: whether colours are stored multiplied by alpha; None if both are possible.
        metadata: kinds of metadata that it holds, by their names in ``Metadata``.
        highest_dpi: the highest resolution that it holds.
        whites: tells whether a value may mean white that is not the largest of the samples' dtype.
        inks: whether it holds CMYK.
        bilevel: whether it holds one bit per pixel.
        longest_side: the most pixels a side.
        becomes: the format of results where none is asked for, if files can only be read.
    """

    name: str
    extensions: tuple[str, ...]
    identify: Callable[[Source], bool]
    probe: Callable[[Source], Header]
    read: Callable[[Source], Picture]
    write: Callable[[Picture, BinaryIO], None] | None = None
    pages: Callable[[Source], AbstractContextManager[Pages]] | None = None
    writer: Callable[[BinaryIO, Picture, int], Writer] | None = None
    depths: tuple[str, ...] = ("uint8",)
    channels: tuple[int, ...] = (1, 3)
    alpha: bool = True
    premultiplied: bool | None = False
    metadata: tuple[str, ...] = ("icc", "exif", "xmp")
    highest_dpi: float = 1e6
    whites: Callable[[int], bool] = lambda white: False
    inks: bool = False
    bilevel: bool = False
    longest_side: int = 2**31 - 1
    becomes: str | None = None


def optional_package(name: str, who: str, extra: str) -> ModuleType:
    """A package that not everybody has.

    Raises:
        Refusal: it is missing; says ``who`` needs it ("HEIC needs") and how to get it.
    """
    try:
        return import_module(name)
    except ImportError:
        raise Refusal(f"{who} one more package: pip install 'nelu-cli[{extra}]'") from None


def starts_with(*signatures: bytes) -> Callable[[Source], bool]:
    """Recognise a format by the first bytes of its files."""
    return lambda source: source.start.startswith(signatures)
