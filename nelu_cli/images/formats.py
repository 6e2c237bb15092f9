"""The table of picture formats. A further one is added with :func:`register`."""

from pathlib import Path

from nelu_cli.errors import ImageError
from nelu_cli.images import avif, bmp, exr, gif, heif, jpeg, netpbm, png, tiff, webp
from nelu_cli.images.format import Format, Source

FORMATS: dict[str, Format] = {}
"""Every format by its name."""
EXTENSIONS: dict[str, str] = {}
"""The names of the formats that can be written, by extension."""
READABLE: dict[str, str] = {}
"""The names of all formats, by extension."""


def register(format: Format) -> None:
    """Add a format, or replace the one of the same name.

    The last one added is asked first whether a file is its own, so that a special kind of TIFF
    can be told from TIFF.
    """
    FORMATS.pop(format.name, None)
    FORMATS[format.name] = format
    for extension in format.extensions:
        READABLE[extension] = format.name
        if format.write is not None:
            EXTENSIONS[extension] = format.name


def identify(source: Source) -> Format | None:
    """The format of a file by its content."""
    return next((each for each in reversed(FORMATS.values()) if each.identify(source)), None)


def format_for(path: Path) -> str:
    """The format that a file name's extension asks for.

    Raises:
        ImageError: there is no extension, or it stands for nothing that can be written.
    """
    extension = path.suffix.lower()
    if extension in EXTENSIONS:
        return EXTENSIONS[extension]
    if extension in READABLE:
        raise ImageError(f"{path}: {READABLE[extension]} cannot be written; choose PNG")
    known = ", ".join(each.extensions[0] for each in FORMATS.values() if each.write)
    raise ImageError(f"{path}: no known picture extension; use one of {known}")


for module in (png, jpeg, tiff, webp, bmp, netpbm, avif, heif, exr, gif):
    register(module.FORMAT)
