"""``nelu models``: which weights there are and what they can do."""

import json
from dataclasses import asdict
from typing import Annotated

import typer


def models(
    name: Annotated[
        str | None, typer.Argument(help="A bundled model's name or a weights file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List the bundled models, or tell everything about one."""
    from rich.table import Table

    from nelu_cli import checkpoints
    from nelu_cli.networks import DeepAutoencoder
    from nelu_cli.reporting import stdout_console

    names = [name] if name else checkpoints.bundled()
    headers = [checkpoints.read_header(name) for name in names]
    if as_json:
        described = []
        for header in headers:
            entry = {
                "name": header.name,
                "file": str(header.path),
                "bytes": header.path.stat().st_size,
                "parameters": header.parameters,
                "network": header.config.family,
                "config": asdict(header.config),
                "record": asdict(header.record),
            }
            network = checkpoints.load(header.path).network
            if isinstance(network, DeepAutoencoder):
                entry["tau"] = network.thresholds()
            described.append(entry)
        typer.echo(json.dumps(described[0] if name else described, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("model", "MB", "parameters", "channels", "trained on", "noise σ", "PSNR in dB"):
        table.add_column(title, justify="right" if title in ("MB", "parameters") else "left")
    for header in headers:
        record = header.record
        measured = " ".join(f"{sigma}: {psnr:.2f}" for sigma, psnr in record.validation.items())
        table.add_row(
            header.name,
            f"{header.path.stat().st_size / 1e6:.1f}",
            f"{header.parameters:,}",
            str(header.config.channels),
            ", ".join(record.data),
            record.sigma,
            f"{measured} ({record.validated_on})" if measured else "",
        )
    stdout_console().print(table if headers else "No models are bundled.")
