"""Pictures from and to files, with nothing lost on the way.

``read`` gives a :class:`Picture` in the file's own depth, ``write`` puts one into a file; the
only rounding and clamping of denoised values is ``to_dtype``.
``open_pages`` and ``write_pages`` take a stack page by page. ``register`` adds a format.
"""

from nelu_cli.images.access import MAX_PIXELS
from nelu_cli.images.files import open_pages, probe, read, write, write_pages
from nelu_cli.images.format import Format, Source
from nelu_cli.images.formats import EXTENSIONS, FORMATS, READABLE, format_for, register
from nelu_cli.images.picture import Header, Metadata, Picture, row_slices, to_dtype, white_of

__all__ = [
    "EXTENSIONS",
    "FORMATS",
    "MAX_PIXELS",
    "READABLE",
    "Format",
    "Header",
    "Metadata",
    "Picture",
    "Source",
    "format_for",
    "open_pages",
    "probe",
    "read",
    "register",
    "row_slices",
    "to_dtype",
    "white_of",
    "write",
    "write_pages",
]
