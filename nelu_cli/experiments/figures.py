"""Drawing the results. matplotlib is imported when a figure is drawn, without pyplot's state."""

from pathlib import Path
from typing import TYPE_CHECKING

from nelu_cli.atomic import atomic_file
from nelu_cli.experiments.results import Curves, Panel, Result, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save"]

WIDTH = 6.5  # inches: the text of a page
HEIGHT = 2.9  # of a row of panels
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")  # told apart by everybody
MARKERS = "osD^v"


def save(figure: "Figure", path: Path) -> None:
    """Write a PNG whole or not at all, the same for the same figure."""
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=200)


def draw(result: Result) -> "Figure":
    """The figure of a result."""
    match result:
        case Curves():
            return draw_curves(result)
        case _:
            raise TypeError(f"no figure for {type(result).__name__}")


def blank(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_curves(result: Curves) -> "Figure":
    """Two panels in a row, with one legend where all have the same curves."""
    panels = result.panels
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    shared = len({tuple(series.label for series in panel.curves) for panel in panels}) == 1
    legend_in_corner = shared and len(panels) < rows * columns
    figure = blank(WIDTH if columns > 1 else 0.8 * WIDTH, HEIGHT * rows)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        draw_panel(axes, panel)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    if legend_in_corner:
        handles, labels = grid[0].get_legend_handles_labels()
        grid[-1].legend(handles, labels, loc="center", fontsize=8, frameon=False)
    elif shared and len(panels) > 1:
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=3, fontsize=8, frameon=False
        )
    else:
        for axes in grid[: len(panels)]:
            axes.legend(fontsize=7, frameon=False)
    return figure


def draw_panel(axes: "Axes", panel: Panel) -> None:
    """Curves with bands of one standard error."""
    if panel.shaded is not None:
        axes.fill_between(
            panel.shaded.x,
            panel.shaded.mean,
            color="0.85",
            linewidth=0,
            label=panel.shaded.label,
        )
    for number, series in enumerate(panel.series):
        _draw_series(axes, series, number)
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
    if panel.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(panel.x_label, fontsize=8)
    axes.set_ylabel(panel.y_label, fontsize=8)
    axes.set_title(panel.title, fontsize=8)
    axes.tick_params(labelsize=7)
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
