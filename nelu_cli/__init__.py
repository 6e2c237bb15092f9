"""nelu: blind image denoising with self-normalizing sparse auto-encoders.

What ``__all__`` lists is the whole Python interface. Importing the package is cheap: torch is
imported when something that needs it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nelu_cli.errors import (
    CheckpointError,
    ClusterError,
    DatasetError,
    ImageError,
    NeluError,
    TrainingError,
    UsageError,
)

__version__ = "0.1.0"
__all__ = [
    "CheckpointError",
    "ClusterError",
    "DatasetError",
    "ImageError",
    "Job",
    "Model",
    "NeLU",
    "NeluError",
    "Options",
    "Record",
    "Settings",
    "TrainingError",
    "UsageError",
    "__version__",
    "denoise",
    "denoise_file",
    "denoise_files",
    "estimate_noise",
    "load_model",
    "nelu",
]

_HOMES = {
    "nelu_cli.files.job": ["denoise_file"],
    "nelu_cli.files.plan": ["Job"],
    "nelu_cli.files.queue": ["denoise_files"],
    "nelu_cli.files.records": ["Record"],
    "nelu_cli.files.settings": ["Settings"],
    "nelu_cli.operators": ["NeLU", "nelu"],
    "nelu_cli.runtime.arrays": ["denoise", "estimate_noise"],
    "nelu_cli.runtime.models": ["Model", "load_model"],
    "nelu_cli.runtime.options": ["Options"],
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from nelu_cli.files.job import denoise_file
    from nelu_cli.files.plan import Job
    from nelu_cli.files.queue import denoise_files
    from nelu_cli.files.records import Record
    from nelu_cli.files.settings import Settings
    from nelu_cli.operators import NeLU, nelu
    from nelu_cli.runtime.arrays import denoise, estimate_noise
    from nelu_cli.runtime.models import Model, load_model
    from nelu_cli.runtime.options import Options


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
