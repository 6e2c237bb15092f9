"""The table of picture formats with those of all rooms in it, and which files are pictures."""

from nelu_cli.images import EXTENSIONS, FORMATS, READABLE
from nelu_cli.raw import register_raw

register_raw()


def becomes(format: str) -> str:
    """The format of a result where none is asked for."""
    return FORMATS[format].becomes or format


PICTURES = frozenset(
    extension for extension, name in READABLE.items() if becomes(name) in EXTENSIONS.values()
)
"""The extensions of files in a folder that are taken for pictures."""
