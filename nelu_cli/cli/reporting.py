"""What a person sees: consoles, progress bars, the picture of a noise map.

Results go to stdout, everything else to stderr. Colour follows Rich's rules: none when the
stream is no terminal or ``NO_COLOR`` is set.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Advance", "noise_map_png", "progress", "stderr_console", "stdout_console"]


def stdout_console() -> Console:
    """For results: tables and listings."""
    return Console(highlight=False, soft_wrap=True)


def stderr_console() -> Console:
    """For everything that is not a result: reports, warnings, progress."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


class Advance(Protocol):
    """Move a progress bar on by ``amount``; optionally rename it."""

    def __call__(self, amount: float = 1.0, description: str | None = None) -> None: ...


@contextmanager
def progress(
    description: str, total: float, *, console: Console | None = None, quiet: bool = False
) -> Iterator[Advance]:
    """Show a bar with the time left on stderr while the block runs; yield its ``advance``.

    Silent when stderr is no terminal or ``quiet`` is set. Lines printed meanwhile through the
    same ``console`` appear above the bar. stdout is left alone, whether a file or a terminal.
    """
    console = console or stderr_console()
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=quiet or not console.is_terminal,
    )
    with bar:
        task = bar.add_task(description, total=total)

        def advance(amount: float = 1.0, description: str | None = None) -> None:
            bar.update(task, advance=amount, description=description)

        yield advance


def noise_map_png(deviation: "NDArray[np.float64]", label: str) -> bytes:
    """Draw the noise level over a picture, (H, W), with a labelled scale bar; a PNG file."""
    import numpy as np
    from matplotlib.figure import Figure

    height, width = deviation.shape
    scale = 9 / max(height, width)  # inches: the longer side of the map
    figure = Figure(
        figsize=(scale * width + 1.6, max(scale * height, 2) + 0.4), layout="constrained"
    )
    axes = figure.add_subplot()
    top = max(float(np.percentile(deviation, 99.5)), 1e-12)
    drawn = axes.imshow(deviation, cmap="viridis", vmin=0, vmax=top, interpolation="nearest")
    axes.set_axis_off()
    figure.colorbar(drawn, ax=axes, label=label, extend="max", shrink=0.9)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
