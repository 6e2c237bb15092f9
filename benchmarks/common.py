"""What the benchmarks share: pictures to work on, and tables."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table


def picture(megapixels: float, channels: int, noise: float = 25.0) -> NDArray[np.uint8]:
    """A synthetic picture, 4:3, 8 bits: waves and a step, with Gaussian noise."""
    width = round((megapixels * 1e6 * 4 / 3) ** 0.5)
    height = round(megapixels * 1e6 / width)
    rng = np.random.default_rng(0)
    across = 128 + 60 * np.sin(np.arange(width, dtype=np.float32) / 40)
    pixels = np.empty((height, width, channels), np.uint8)
    for top in range(0, height, 64):  # a large picture never exists in float
        rows = pixels[top : top + 64]
        clean = across[None, :, None] + 40 * (np.arange(top, top + len(rows)) // 97 % 2)[
            :, None, None
        ].astype(np.float32)
        rows[:] = np.clip(clean + noise * rng.standard_normal(rows.shape, np.float32), 0, 255)
    return pixels


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with ``--json``, described by the first line of a docstring."""
    result = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    result.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return result


def show(
    title: str, rows: Sequence[dict[str, Any]], as_json: bool, formats: dict[str, str]
) -> None:
    """Print rows, numbers formatted by ``formats`` (all other values as they are)."""
    if as_json:
        print(json.dumps({"title": title, "rows": rows}))
        return
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in formats:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*(_text(row.get(name), how) for name, how in formats.items()))
    Console(width=160).print(table)


def _text(value: Any, how: str) -> str:
    if value is None:
        return "–"
    return format(value, how)
