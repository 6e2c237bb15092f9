"""``nelu models``: which weights there are and what they can do."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nelu_cli.cli.completion import complete_models
from nelu_cli.cli.plain import plain

if TYPE_CHECKING:
    from rich.table import Table

    from nelu_cli.checkpoints import Description


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|PATH",
            autocompletion=complete_models,
            help="A bundled model's name or a weights file.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List the bundled models, or tell about one."""
    from rich.table import Table

    from nelu_cli import checkpoints
    from nelu_cli.cli.reporting import stdout_console

    all_weights = [
        checkpoints.read_description(each) for each in ([name] if name else checkpoints.bundled())
    ]
    if as_json:
        described = [_everything(weights) for weights in all_weights]
        typer.echo(json.dumps(described[0] if name else described, indent=2))
        return
    console = stdout_console()
    if name:
        table = Table(box=None, pad_edge=False, show_header=False)
        for title, value in (_summary(all_weights[0]) | _origin(all_weights[0])).items():
            table.add_row(title, plain(value))
        console.print(table)
        return
    one_level = [weights for weights in all_weights if _knows_one_level(weights)]
    for title, group in (
        ("For any picture:", [weights for weights in all_weights if weights not in one_level]),
        ("Trained at one noise level, for comparisons with the paper only:", one_level),
    ):
        if group:
            for part in (title, "", _table([_summary(weights) for weights in group]), ""):
                console.print(part)
    if not all_weights:
        console.print("No models are bundled.")


def _knows_one_level(weights: "Description") -> bool:
    return weights.record.noise == "white" and weights.record.sigma.replace(".", "").isdigit()


def _table(rows: list[dict[str, str]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in rows[0]:
        justify: Literal["left", "right"] = "right" if title in ("MB", "weights") else "left"
        table.add_column(title, justify=justify, no_wrap=title == "model", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row.values()))
    return table


def _summary(weights: "Description") -> dict[str, str]:
    record = weights.record
    measured = " ".join(f"{sigma}: {psnr:.2f}" for sigma, psnr in record.validation.items())
    return {
        "model": weights.name,
        "MB": f"{weights.path.stat().st_size / 1e6:.1f}",
        "weights": f"{weights.parameters:,}",
        "channels": str(weights.config.channels),
        "trained on": ", ".join(dict.fromkeys(record.data)),
        "noise": f"σ {record.sigma}" if record.noise == "white" else record.noise,
        "PSNR in dB": f"{measured} ({record.validated_on})" if measured else "",
    }


def _origin(weights: "Description") -> dict[str, str]:
    record = weights.record
    rows = {
        "file": str(weights.path),
        "network": weights.config.family,
        "training": f"{record.steps:,} steps, {record.hours:g} hours, seed {record.seed}",
        "chosen by": ", ".join(f"σ = {sigma}" for sigma in record.chosen_by),
        "note": record.note,
        "command": record.command,
        "made": f"{record.date} by nelu {record.version}",
    }
    return {title: text for title, text in rows.items() if text}


def _everything(weights: "Description") -> dict[str, Any]:
    from nelu_cli import checkpoints

    network = checkpoints.load(weights.path).network
    return {
        "name": weights.name,
        "file": str(weights.path),
        "bytes": weights.path.stat().st_size,
        "parameters": weights.parameters,
        "network": weights.config.family,
        "config": asdict(weights.config),
        "record": asdict(weights.record),
        **network.facts(),
    }
