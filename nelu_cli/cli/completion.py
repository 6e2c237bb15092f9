"""What the shell offers while a command is typed; nothing slow is imported for it."""

from collections.abc import Iterable
from pathlib import Path

BASELINES = ("bm3d", "nlm", "nlm-told", "tv", "tv-told", "wavelet", "wavelet-told")
"""As :data:`nelu_cli.evaluation.methods.BASELINES`, which is slow to import."""


def complete_sets(incomplete: str) -> list[str]:
    """Names of public sets, and folders."""
    from nelu_cli.data.downloads import CATALOGUE

    typed = Path(incomplete)
    where = typed if incomplete.endswith("/") else typed.parent
    folders = [f"{path}/" for path in _entries(where) if path.is_dir()] if incomplete else []
    return _beginning(incomplete, [*CATALOGUE, "samples", *folders])


def complete_experiments(incomplete: str) -> list[str]:
    """Names of experiments, and what stands for all of them."""
    from nelu_cli.experiments import CATALOGUE

    return _beginning(incomplete, [*CATALOGUE, "all", "list"])


def complete_baselines(incomplete: str) -> list[str]:
    """Names of baselines."""
    return _beginning(incomplete, BASELINES)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def complete_models(incomplete: str) -> list[str]:
    """Names of bundled models, and weights files in the folder that is being typed."""
    package = Path(__file__).parents[1]
    folders = [package / "weights", package.parent / "weights"]  # installed, in a checkout
    folder = next((each for each in folders if each.is_dir()), folders[0])
    names = sorted(path.stem for path in folder.glob("*.safetensors"))
    typed = Path(incomplete)
    where = typed if incomplete.endswith("/") else typed.parent
    files = sorted(str(path) for path in where.glob("*.safetensors"))
    return _beginning(incomplete, [*names, *files])
