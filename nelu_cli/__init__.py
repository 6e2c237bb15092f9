"""nelu: blind image denoising with self-normalizing sparse auto-encoders.

``from nelu_cli import denoise, load_model`` cleans pictures; ``from nelu_cli import nelu, NeLU`` is
the operator and the layer for anybody's own network. Importing the package is cheap: torch is
imported when one of them is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["NeLU", "__version__", "denoise", "load_model", "nelu"]

_HOMES = {
    "denoise": "nelu_cli.runtime.pipeline",
    "load_model": "nelu_cli.runtime.models",
    "nelu": "nelu_cli.operators",
    "NeLU": "nelu_cli.operators",
}

if TYPE_CHECKING:
    from nelu_cli.operators import NeLU, nelu
    from nelu_cli.runtime.models import load_model
    from nelu_cli.runtime.pipeline import denoise


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
