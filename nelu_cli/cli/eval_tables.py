"""The tables of ``nelu eval``."""

import math
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nelu_cli.evaluation import Level, Mean, Results, level_text

Rows = dict[tuple[str, str], dict[Level, Mean]]  # (name, note): means by noise level


def print_results(results: Results, clipped: bool, available: int, console: Console) -> None:
    """The scores as tables, and what one must know about them."""
    used = len(results.images)
    count = f"{used} images" if used == available else f"the first {used} of {available} images"
    colour = "colour" if results.channels == 3 else "grey"
    seed = "" if results.noise == "real" else f", seed {results.seed}"
    console.print(f"{results.dataset}: {count}, {colour}; {results.noise} noise{seed}")
    psnr = _rows(results, results.psnr)
    for row in results.published:
        psnr[row.name, "published"] = {s: Mean(v, math.nan) for s, v in row.psnr.items()}
    for title, digits, rows in (("PSNR, dB", 2, psnr), ("SSIM", 3, _rows(results, results.ssim))):
        table = _table(title, digits, rows, results.sigmas, console.width)
        console.print(table, soft_wrap=False)
    remarks = ["Bold: best of the column. ±: standard error of the mean over images."]
    if not clipped:
        remarks.append("PSNR of estimates as they are, not clipped to the range of the picture.")
    if results.dataset == "samples":
        remarks.append(
            "samples are a few photographs that come with scikit-image: a first look, no benchmark."
        )
    if results.published:
        remarks.append(
            "The paper's rows are as published: bsd68, trained on the Waterloo Exploration set at "
            "σ = 15."
        )
    for remark in remarks:
        console.print(remark, style="dim", soft_wrap=False)


def _rows(results: Results, mean: Callable[[str, Level], Mean]) -> Rows:
    return {
        (name, note): {sigma: mean(name, sigma) for sigma in results.sigmas}
        for name, note in results.methods.items()
    }


def _table(title: str, digits: int, rows: Rows, sigmas: Sequence[Level], width: int) -> Table:
    """Rows are methods, columns noise levels; the errors go below the means if space is short."""
    names = max(len(f"{name} ({note})") for name, note in rows)
    narrow = names + len(sigmas) * len("  31.05 ±0.41") > width
    best = {
        sigma: max(round(row[sigma].value, digits) for row in rows.values() if sigma in row)
        for sigma in sigmas
    }

    def cell(main: str, extra: str, bold: bool = False) -> Text:
        text = Text(main, style="bold" if bold else "")
        if extra:
            text.append("\n" if narrow else " ").append(extra, style="not bold dim")
        return text

    def score(sigma: Level, mean: Mean | None) -> Text:
        if mean is None:
            return Text("–")
        error = "" if math.isnan(mean.error) else f"±{mean.error:.{digits}f}"
        number = f"{mean.value:5.{digits}f}"
        return cell(number, error, round(mean.value, digits) == best[sigma])

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(title)
    for sigma in sigmas:
        table.add_column(level_text(sigma), justify="right" if narrow else "left", no_wrap=True)
    for (name, note), row in rows.items():
        table.add_row(cell(name, f"({note})"), *(score(s, row.get(s)) for s in sigmas))
    return table
