"""Options that several commands have, alike in all of them."""

from pathlib import Path
from typing import Annotated

import typer

from nelu_cli import words
from nelu_cli.cli.completion import complete_models

ModelName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH",
        autocompletion=complete_models,
        help="Weights: a name from 'nelu models' or a file. Default: chosen for each picture.",
    ),
]
Device = Annotated[
    words.Device,
    typer.Option(help="Where to compute. auto takes a graphics card if there is one."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Processor cores to use. Default: all.")]
MaxPixels = Annotated[
    str, typer.Option(metavar="COUNT", help="Refuse larger pictures before reading them, as 500M.")
]
DataDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder that holds sets by name.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what went wrong.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Report each file as a line of JSON on standard output.")
]
