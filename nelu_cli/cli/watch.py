"""``nelu watch``: new pictures are cleaned as they appear."""

from pathlib import Path
from typing import Annotated

import typer

from nelu_cli.cli.options import Device, JsonLines, ModelName, Quiet


def watch(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The folder to watch.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The folder for the results.")],
    model: ModelName = None,
    strength: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How much of the noise to take out.")
    ] = 1.0,
    format: Annotated[
        str | None,
        typer.Option(metavar="png|jpeg|tiff|...", help="File format of the results."),
    ] = None,
    settle: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="A file is complete when it has not changed for so long.",
        ),
    ] = 2.0,
    device: Device = "auto",
    quiet: Quiet = False,
    json_lines: JsonLines = False,
) -> int:
    """Clean new pictures in a folder as they appear, until Ctrl-C.

    nelu watch scans/ clean/

    A picture is cleaned once it is complete. What already has a result is left alone, so the
    command may be stopped and started at any time. Needs: pip install 'nelu-cli[watch]'
    """
    from nelu_cli.cli.reporting import Report
    from nelu_cli.files.settings import Settings, format_named
    from nelu_cli.files.watch import watch_folder
    from nelu_cli.runtime.models import Models
    from nelu_cli.runtime.options import Options

    settings = Settings(
        options=Options(strength=strength),
        format=None if format is None else format_named(format),
        noise_level=json_lines or not quiet,
        skip_existing=True,
    )
    models = Models(model, device)
    models.check()
    report = Report(quiet=quiet, json_lines=json_lines, total=0)
    if not quiet:
        report.console.print(f"watching {source}; Ctrl-C ends it")
    try:
        for record in watch_folder(source, target, settings, models, settle=settle):
            report.add(record)
            report.noted.clear()  # as there is no end, each file is told of at once
    except KeyboardInterrupt:
        pass
    return 1 if report.outcome.failed else 0
