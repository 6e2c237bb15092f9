"""``nelu export``: a network for other people's programs."""

from pathlib import Path
from typing import Annotated

import typer

from nelu_cli.cli.completion import complete_models
from nelu_cli.cli.options import Quiet
from nelu_cli.errors import CheckpointError, UsageError


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=complete_models,
            help="A name from 'nelu models', or a weights file.",
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an existing file.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a network as an ONNX file for other programs.

    nelu export deep-color deep-color.onnx

    Batch, height and width of the picture are free. The file is checked against torch before it
    is written. Needs: pip install 'nelu-cli[onnx]'
    """
    if file.suffix.lower() != ".onnx":
        raise UsageError(f"{file}: an ONNX file; let its name end in .onnx")
    if file.exists() and not force:
        raise CheckpointError(f"{file}: exists already; --force replaces it")

    from nelu_cli import checkpoints
    from nelu_cli.cli.reporting import stderr_console
    from nelu_cli.export import export_onnx

    done = export_onnx(checkpoints.load(model), file)
    if not quiet:
        stderr_console().print(
            f"{model} → {file}: {done.bytes / 1e6:.1f} MB, differs from torch by at most "
            f"{done.difference:.0e} of white",
        )
