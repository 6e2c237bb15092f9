"""Drawing results of experiments. matplotlib is imported when a figure is drawn, without pyplot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nelu_cli.evaluation.figures import blank, draw_comparison
from nelu_cli.experiments.results import Curves, Panel, Result, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from nelu_cli.experiments.natural import Qualitative
    from nelu_cli.experiments.shifts import ShiftAveraging

WIDTH = 6.5  # inches: the text of a page
HEIGHT = 2.9  # of a row of panels
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Told apart by everybody (Okabe and Ito)."""
MARKERS = "osD^vP*"
FEW_PLACES = 7  # on a logarithmic axis, so many are named one by one


def draw(result: Result) -> "Figure":
    """The figure of a result."""
    from nelu_cli.experiments.natural import Qualitative
    from nelu_cli.experiments.shifts import ShiftAveraging

    match result:
        case ShiftAveraging():
            return draw_shift_averaging(result)
        case Qualitative():
            return draw_qualitative(result)
        case Curves():
            return draw_curves(result)
        case _:
            raise TypeError(f"no figure for {type(result).__name__}")


def draw_curves(result: Curves) -> "Figure":
    """Two panels in a row, with one legend where all have the same curves."""
    panels = result.panels
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    shared = len({tuple(series.label for series in panel.curves) for panel in panels}) == 1
    legend_in_corner = shared and len(panels) < rows * columns
    figure = blank(WIDTH if columns > 1 else 0.8 * WIDTH, HEIGHT * rows)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    labels = dict.fromkeys(series.label for panel in panels for series in panel.series)
    for axes, panel in zip(grid, panels, strict=False):
        draw_panel(axes, panel, list(labels))
    for axes in grid[len(panels) :]:
        axes.axis("off")
    if legend_in_corner:
        grid[-1].legend(
            *grid[0].get_legend_handles_labels(), loc="center", fontsize=8, frameon=False
        )
    elif shared and len(panels) > 1:
        handles = grid[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    else:
        for axes in grid[: len(panels)]:
            axes.legend(fontsize=7, frameon=False)
    return figure


def draw_panel(axes: "Axes", panel: Panel, labels: Sequence[str]) -> None:
    """Curves with bands of one standard error; a label's place in ``labels`` is its colour."""
    if panel.shaded is not None:
        axes.fill_between(
            panel.shaded.x,
            panel.shaded.mean,
            color="0.85",
            linewidth=0,
            label=panel.shaded.label,
        )
    for series in panel.series:
        _draw_series(axes, series, labels.index(series.label))
    if panel.mark_x is not None:
        x, text = panel.mark_x
        axes.axvline(x, color="0.6", linewidth=0.8, zorder=0)
        axes.annotate(
            text,
            (x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            fontsize=7,
            color="0.35",
            va="top",
        )
    if panel.log_x:
        axes.set_xscale("log")
        places = panel.series[0].x
        if len(places) <= FEW_PLACES:
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.minorticks_off()
    if panel.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(panel.x_label, fontsize=8)
    axes.set_ylabel(panel.y_label, fontsize=8)
    axes.set_title(panel.title, fontsize=8)
    axes.tick_params(which="both", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_series(axes: "Axes", series: Series, number: int) -> None:
    colour = COLOURS[number % len(COLOURS)]
    axes.plot(
        series.x,
        series.mean,
        color=colour,
        marker=MARKERS[number % len(MARKERS)],
        markersize=3,
        linewidth=1.2,
        label=series.label,
    )
    if series.error is not None:
        low = [mean - error for mean, error in zip(series.mean, series.error, strict=True)]
        high = [mean + error for mean, error in zip(series.mean, series.error, strict=True)]
        axes.fill_between(series.x, low, high, color=colour, alpha=0.25, linewidth=0)


def draw_shift_averaging(result: "ShiftAveraging") -> "Figure":
    """Left: the 1-D illustration, step by step. Right: PSNR over the number of shifts."""
    illustration = result.illustration
    figure = blank(WIDTH, 4.2)
    halves: Any = figure.subfigures(1, 2, width_ratios=(1.15, 1))
    left, right = halves
    stages: Sequence[tuple[str, tuple[float, ...]]] = (
        ("noisy", illustration.noisy),
        *((f"denoised, shift {n}", shift) for n, shift in enumerate(illustration.shifts)),
        ("average of the shifts", illustration.average),
    )
    for number, (axes, (title, signal)) in enumerate(
        zip(left.subplots(len(stages), 1, sharex=True, sharey=True), stages, strict=True)
    ):
        axes.plot(illustration.clean, color="0.6", linewidth=1, drawstyle="steps-mid")
        axes.plot(signal, color=COLOURS[number and 1], marker="o", markersize=2, linewidth=0.8)
        error = illustration.error(signal)
        axes.set_title(f"{title}: mean squared error {error:.4f}", fontsize=8, loc="left")
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("sample (grey: the clean signal)", fontsize=8)
    curve = right.subplots()
    draw_panel(curve, result.panels[0], [series.label for series in result.panels[0].series])
    curve.legend(fontsize=7, frameon=False)
    return figure


def draw_qualitative(result: "Qualitative") -> "Figure":
    """One row for each picture, as ``nelu eval --save-images`` draws it."""
    columns = len(result.comparisons[0].estimates) + 3  # whole, detail and noisy beside them
    figure = blank(1.8 * columns, 4.2 * len(result.comparisons))
    rows: Any = figure.subfigures(len(result.comparisons), 1, squeeze=False)
    for row, comparison in zip(rows[:, 0], result.comparisons, strict=True):
        draw_comparison(row, comparison)
    return figure
