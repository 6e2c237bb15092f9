"""nelu: blind image denoising with self-normalizing sparse auto-encoders.

``from nelu_cli import denoise, load_model`` is the whole Python interface. Importing the
package is cheap: torch is imported when one of the two is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "denoise", "load_model"]

_HOMES = {"denoise": "nelu_cli.runtime.pipeline", "load_model": "nelu_cli.runtime.models"}

if TYPE_CHECKING:
    from nelu_cli.runtime.models import load_model
    from nelu_cli.runtime.pipeline import denoise


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
