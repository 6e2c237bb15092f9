"""What the shell offers while a command is typed; nothing slow is imported for it."""

from pathlib import Path

__all__ = ["complete_models"]


def complete_models(incomplete: str) -> list[str]:
    """Names of bundled models, and weights files in the folder that is being typed."""
    package = Path(__file__).parents[1]
    folders = [package / "weights", package.parent / "weights"]  # installed, in a checkout
    folder = next((each for each in folders if each.is_dir()), folders[0])
    names = sorted(path.stem for path in folder.glob("*.safetensors"))
    typed = Path(incomplete)
    where = typed if incomplete.endswith("/") else typed.parent
    files = sorted(str(path) for path in where.glob("*.safetensors"))
    return [name for name in (*names, *files) if name.startswith(incomplete)]
