"""Pictures from and to files, with nothing lost on the way.

``read`` gives a :class:`Picture` in the file's own depth, ``write`` puts one into a file; the
only rounding and clamping of denoised values is ``to_dtype``.
"""

from nelu_cli.images.files import EXTENSIONS, MAX_PIXELS, format_for, probe, read, write
from nelu_cli.images.picture import Header, Metadata, Picture, rescale, strips, to_dtype

__all__ = [
    "EXTENSIONS",
    "MAX_PIXELS",
    "Header",
    "Metadata",
    "Picture",
    "format_for",
    "probe",
    "read",
    "rescale",
    "strips",
    "to_dtype",
    "write",
]
