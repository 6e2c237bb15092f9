"""What a person sees in a terminal: consoles and progress bars.

Results go to stdout, everything else to stderr. Colour follows Rich's rules: none when the
stream is no terminal or ``NO_COLOR`` is set.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

__all__ = ["Advance", "progress", "stderr_console", "stdout_console"]


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
