"""What can go wrong, as the user should hear it.

Every message is one line that says what happened, where, and what to do next:
``cat.gif: animated images are not supported; extract a frame first``.
The library raises these; only :mod:`nelu_cli.cli` turns them into an exit status.
"""

__all__ = [
    "CheckpointError",
    "ClusterError",
    "DatasetError",
    "ImageError",
    "NeluError",
    "TrainingError",
    "UsageError",
]


class NeluError(Exception):
    """Base of everything that is reported to the user in one line; exit status 1."""


class UsageError(NeluError):
    """The command or call itself makes no sense; exit status 2."""


class ImageError(NeluError):
    """A picture cannot be read, written or represented."""


class CheckpointError(NeluError):
    """A weights file is missing, damaged, foreign or of another schema."""


class ClusterError(NeluError):
    """A Dask cluster cannot be reached, or is gone."""


class DatasetError(NeluError):
    """A set of images cannot be found, fetched or verified."""


class TrainingError(NeluError):
    """A training run cannot start, go on or be resumed."""
