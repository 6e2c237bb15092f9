"""RAW files in the table of formats: DNG, read and written, and what cameras write, read only."""

from typing import BinaryIO

from nelu_cli.images import Format, Picture, Source, register
from nelu_cli.images.picture import Refusal
from nelu_cli.raw import libraw
from nelu_cli.raw.dng import is_dng

EXTENSIONS = (
    *(".cr2", ".cr3", ".nef", ".nrw", ".arw", ".raf", ".orf", ".rw2", ".pef", ".srw", ".3fr"),
    *(".iiq", ".erf", ".mrw", ".rwl"),
)
_SIGNATURES = (b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\0", b"\0MRM")
_TIFF = (b"II*\0", b"MM\0*")


def register_raw() -> None:
    """Add both kinds to the table."""
    register(CAMERA)
    register(DNG)


def _is_camera(source: Source) -> bool:
    """By the first bytes; those whose files start as any TIFF does are known by their names.

    Some cameras wrote nothing but values, under a name that others use for other things: of these
    LibRaw knows the size. In folders they are left out.
    """
    start = source.start
    if start.startswith(_SIGNATURES) or start[8:10] == b"CR" or start[4:12] == b"ftypcrx ":
        return True
    name = source.path.suffix.lower() if source.path is not None else ""
    if name == ".raw":
        return libraw.knows(source)
    return start.startswith(_TIFF) and name in EXTENSIONS


def _write_dng(picture: Picture, stream: BinaryIO) -> None:
    undeveloped = picture.metadata.undeveloped
    if undeveloped is None:
        raise Refusal("only the picture of a camera's sensor can become a DNG; choose TIFF")
    undeveloped.write(picture, stream)


CAMERA = Format(
    name="RAW",
    extensions=EXTENSIONS,
    identify=_is_camera,
    probe=libraw.probe,
    read=libraw.read,
    becomes="TIFF",
)
DNG = Format(
    name="DNG",
    extensions=(".dng",),
    identify=lambda source: is_dng(source.start, source.stream),
    probe=libraw.probe,
    read=libraw.read,
    write=_write_dng,
    depths=(),
    channels=(),
    metadata=("icc", "exif", "xmp", "dpi", "photoshop", "png", "tiff", "undeveloped"),
)
