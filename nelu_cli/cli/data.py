"""``nelu data``: the public sets of images."""

from pathlib import Path
from typing import Annotated

import typer

from nelu_cli.cli.completion import complete_sets
from nelu_cli.cli.help import PlainCommand

app = typer.Typer(
    help="List and fetch public sets of pictures, to train and measure.",
    no_args_is_help=True,
)

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the sets, one folder each. Default: the user cache."),
]


@app.command("fetch", cls=PlainCommand)
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", autocompletion=complete_sets, help="See `nelu data list`."
        ),
    ],
    data_dir: DataDir = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            envvar="NELU_MIRROR",
            help="Address to use in place of https://raw.githubusercontent.com.",
        ),
    ] = None,
) -> None:
    """Download public sets and check every file against its SHA-256.

    What is there already is not fetched again: after an interruption repeat the command.
    """
    from nelu_cli.cli import reporting
    from nelu_cli.data import downloads
    from nelu_cli.data import sets as datasets

    known = [downloads.lookup(name) for name in names]  # refuse an unknown name before any work
    for public in known:
        folder = (data_dir or datasets.cache_dir()) / public.name
        if public.licence:
            typer.echo(f"{public.name}: {public.licence}, see {public.source}", err=True)
        with reporting.progress(public.name, len(public.checksums)) as advance:
            outcome = downloads.fetch(public.name, folder, mirror=mirror, progress=advance)
        typer.echo(f"{public.name}: {len(public.checksums)} files in {folder} ({outcome.new} new)")


@app.command("list", cls=PlainCommand)
def list_sets(data_dir: DataDir = None) -> None:
    """List the public sets, their sources, and which are here."""
    from rich.table import Table

    from nelu_cli.cli import reporting
    from nelu_cli.data import downloads
    from nelu_cli.data import sets as datasets
    from nelu_cli.errors import DatasetError

    table = Table("set", "what", "files", "where", box=None, pad_edge=False, header_style="bold")
    for name, public in downloads.CATALOGUE.items():
        try:
            folder = datasets.find(name, data_dir).paths[0].parent
        except DatasetError:
            table.add_row(name, public.about, "none", f"nelu data fetch {name}")
            continue
        good, total = len(downloads.verified(name, folder)), len(public.checksums)
        table.add_row(
            name, public.about, "all" if good == total else f"{good}/{total}", str(folder)
        )
    table.add_row("samples", "photographs that come with scikit-image", "all", "always there")
    reporting.stdout_console().print(table, soft_wrap=False)
