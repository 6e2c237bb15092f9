"""What a person sees: consoles, progress bars, lines about files.

Results go to stdout, everything else to stderr. Colour follows Rich's rules: none when the
stream is no terminal or ``NO_COLOR`` is set.
"""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from nelu_cli.cli.plain import plain
from nelu_cli.files.records import Outcome, Record
from nelu_cli.stopping import stopped_by

if TYPE_CHECKING:
    from nelu_cli.cli.page import PageReport
    from nelu_cli.files.queue import FileProgress, Named
    from nelu_cli.images import Header


class SafeConsole(Console):
    """Prints texts as they are: no markup, no ``:name:`` as a picture, no control character."""

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, emoji=False, markup=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """As of Rich; a text is one line."""
        safe = (plain(item) if isinstance(item, str) else item for item in objects)
        super().print(*safe, **options)


def stdout_console() -> Console:
    """For results: tables and listings."""
    return SafeConsole(stderr=False)


def stderr_console() -> Console:
    """For everything that is not a result: reports, warnings, progress."""
    return SafeConsole(stderr=True)


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


@contextmanager
def file_progress(total: int, *, console: Console, quiet: bool) -> Iterator["FileProgress"]:
    """A bar that counts files, and moves by the fraction of a file that is done."""
    with progress("", total, console=console, quiet=quiet) as advance:
        begun = 0
        shown = 0.0

        def step(job: "Named", done: int, parts: int) -> None:
            nonlocal begun, shown
            begun += done == 0
            reached = begun - 1 + done / parts
            name = plain(job.source_name)
            advance(reached - shown, name)
            shown = reached

        yield step


_NAMED = 10  # further files of a note that are named


class Report:
    """Tells of every file as it is finished, and counts."""

    def __init__(
        self, *, quiet: bool, json_lines: bool, total: int, page: "PageReport | None" = None
    ) -> None:
        self.console = stderr_console()
        self.quiet = quiet
        self.json_lines = json_lines
        self.page = page
        self.outcome = Outcome(total=total)
        self.noted: dict[str, list[str]] = {}  # the files that a note is of

    def add(self, record: Record) -> None:
        """Tell of one file."""
        self.outcome.count(record)
        if self.json_lines:
            print(json.dumps(record.to_json()), flush=True)
        if record.error is not None:
            self.console.print(f"nelu: {record.error}", style="red")
        elif not self.json_lines and not self.quiet and record.status != "left out":
            self.console.print(record_text(record))
        self.note(record)
        if self.page is not None:
            self.page.add(record)

    def note(self, record: Record) -> None:
        """What a person should know, at once for the first file, for all others at the end."""
        for note in record.notes:
            files = self.noted.setdefault(note, [])
            if not files:
                self._print_note(record.input, note)
            files.append(record.input)

    def _print_note(self, files: str, note: str) -> None:
        if not self.quiet:
            self.console.print(f"nelu: note: {files}: {note}")

    def add_all(self, records: Generator[Record]) -> None:
        """Tell of one file after the other; after Ctrl-C, still of those that were decided."""
        try:
            for record in records:
                self.add(record)
        except KeyboardInterrupt as stop:
            self.outcome.stopped_by = stopped_by(stop)
            with suppress(KeyboardInterrupt):
                self.add(records.throw(stop))
                for record in records:
                    self.add(record)

    def summarize(self) -> None:
        """The counts, if there was more than one file; and the page."""
        outcome = self.outcome
        for note, (_, *others) in self.noted.items():
            more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            if others:
                self._print_note(f"also {', '.join(others[:_NAMED])}{more}", note)
        worth = outcome.total > 1 or bool(outcome.left_out)
        if outcome.stopped_by is not None or (worth and not self.quiet):
            self.console.print(str(outcome))
        if self.page is not None:
            said = self.page.write()
            if not self.quiet:
                self.console.print(said)


def picture_text(header: "Header") -> str:
    """``512×512 RGB uint8``"""
    size = f"{header.width}×{header.height}"
    if header.pages > 1:
        size += f", {header.pages} pages,"
    kind = {1: "grey", 3: "RGB"}.get(header.channels, f"{header.channels} channels")
    return f"{size} {kind}{' with alpha' if header.alpha else ''} {header.dtype}"


def noise_text(noise: float, in_pixel_values: float, dtype: str) -> str:
    """The noise in pixel values, and on the 0–255 scale, which floats do not have."""
    if dtype.startswith("float"):
        return f"noise {in_pixel_values:.3g}"
    if dtype == "uint8":
        return f"noise {noise:.1f}/255"
    return f"noise {in_pixel_values:.3g} ({noise:.1f}/255)"


def record_text(record: Record) -> str:
    """One line about a file that was done, skipped or planned."""
    start = f"{record.input} → {record.output}"
    if record.header is None:
        return f"{start}: skipped, exists already"
    picture = picture_text(record.header)
    if record.status == "planned":
        how = f"clean {picture} with {record.model}" if record.model else f"copy {picture}"
        return f"{start}: would {how}"
    said = [picture, record.model or "copied"]
    if record.noise is not None and record.noise_in_pixel_values is not None:
        dtype = str(record.header.dtype)
        kind = f"{record.character.kind} " if record.character else ""
        said.append(kind + noise_text(record.noise, record.noise_in_pixel_values, dtype))
    return f"{start}: {', '.join(said)}, {record.seconds:.1f} s"
