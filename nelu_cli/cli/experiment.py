"""``nelu experiment``: the paper's experiments and theorems."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nelu_cli.cli.completion import complete_experiments, complete_sets
from nelu_cli.cli.options import DataDir
from nelu_cli.errors import NeluError, UsageError

if TYPE_CHECKING:
    from nelu_cli.experiments.results import Experiment, Result

TABLE_IMAGES_IN_ALL = 16
"""``all`` has forty minutes on two cores; the whole of bsd68 alone would take most of it."""

OPTION_OF = {"sigma255": "sigma"}  # where a field of a config and its option differ in name


def experiment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|all|list",
            autocompletion=complete_experiments,
            help="An experiment, all of them, or a list.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where figure.png and numbers.csv go (for `all`: a folder for each experiment). "
            "Default: experiments/NAME.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed, other draws.")] = None,
    trials: Annotated[
        int | None, typer.Option(min=2, help="Realisations at each noise level.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller and coarser: all of them in three minutes.")
    ] = False,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER",
            autocompletion=complete_sets,
            help="Pictures for shift-averaging and table: a set (`nelu data list`) or a folder. "
            "Default: bsd68 if it is there, else samples.",
        ),
    ] = None,
    data_dir: DataDir = None,
    images: Annotated[
        int | None, typer.Option(min=1, help="Use so many pictures, spread over the set.")
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="One picture for qualitative, in place of the three that it takes."),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise level of shift-averaging and of --image, on the 0–255 scale."),
    ] = None,
) -> None:
    """Test a claim of the paper, with figure and numbers.

    The same seed gives the same numbers. The status is 0 whether a claim holds or not.
    """
    from nelu_cli.experiments import CATALOGUE, load

    settings = {
        "seed": seed,
        "trials": trials,
        "dataset": dataset,
        "data_dir": data_dir,
        "images": images,
        "image": image,
        "sigma255": sigma,
    }
    given = {field: value for field, value in settings.items() if value is not None}
    if name == "list":
        _print_catalogue()
        return
    if name != "all":
        _run(name, load(name), _config(name, load(name), given, quick), out)
        return
    configs = {}
    for each in CATALOGUE:  # everything is checked before anything runs
        fields = _fields(load(each))
        wanted = {field: value for field, value in given.items() if field in fields}
        if each == "qualitative" and image is None:
            wanted.pop("sigma255", None)
        if each == "table" and not quick:
            wanted.setdefault("images", TABLE_IMAGES_IN_ALL)
        configs[each] = _config(each, load(each), wanted, quick)
    for each, config in configs.items():
        _run(each, load(each), config, None if out is None else out / each)


def _fields(chosen: "Experiment[Any]") -> set[str]:
    return {field.name for field in dataclasses.fields(chosen.config)}


def _config(name: str, chosen: "Experiment[Any]", given: Mapping[str, Any], quick: bool) -> Any:
    """The experiment's config with what was asked for."""
    for field in given:
        if field not in _fields(chosen):
            option = OPTION_OF.get(field, field).replace("_", "-")
            raise UsageError(f"{name} has no --{option}; see `nelu experiment --help`")
    base = chosen.config.quick() if quick else chosen.config()
    return dataclasses.replace(base, **given)


def _run(name: str, chosen: "Experiment[Any]", config: Any, out: Path | None) -> None:
    from nelu_cli.cli import reporting
    from nelu_cli.runtime.allocator import keep_freed_memory

    keep_freed_memory()
    folder = out or Path("experiments") / name
    with reporting.progress(name, 1.0) as advance:
        result = chosen.run(config, advance)
    _write(result, folder)
    _print(name, result, folder)


def _write(result: "Result", folder: Path) -> None:
    """figure.png and numbers.csv, in place of those of an earlier run."""
    from nelu_cli.atomic import write_whole
    from nelu_cli.evaluation.figures import save
    from nelu_cli.experiments.drawing import draw
    from nelu_cli.experiments.results import to_csv

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "numbers.csv", to_csv(result.rows).encode())
        save(draw(result), folder / "figure.png")
    except OSError as error:
        raise NeluError(f"{folder}: cannot be written ({error.strerror})") from error


def _print(name: str, result: "Result", folder: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from nelu_cli.cli import reporting

    console = reporting.stdout_console()
    table = Table(
        title=name, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold"
    )
    for column in result.summary[0]:
        table.add_column(column, justify="right", overflow="fold")  # not cut: names differ late
    for row in result.summary:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)
    for claim in result.claims:
        line = Text()
        line.append(claim.verdict, "bold green" if claim.holds else "bold red")
        line.append(f": {claim.text}\n  {claim.margin}")
        if claim.paper:
            line.append(f"\n  the paper: {claim.paper}", "dim")
        console.print(line)
    console.print(f"{folder / 'figure.png'}, {folder / 'numbers.csv'}", style="dim")


def _print_catalogue() -> None:
    from rich.table import Table

    from nelu_cli.cli import reporting
    from nelu_cli.experiments import CATALOGUE

    table = Table("name", "takes", "what", box=None, pad_edge=False, header_style="bold")
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.duration, entry.about)
    reporting.stdout_console().print(table)
