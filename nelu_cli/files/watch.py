"""New pictures in a folder, cleaned as they appear, once they are complete."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nelu_cli.errors import UsageError
from nelu_cli.files.formats import PICTURES
from nelu_cli.files.plan import Job, collect
from nelu_cli.files.queue import denoise_files
from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models

_LOOK_AGAIN = 30.0  # seconds between walks through the whole folder

_Stamp = tuple[int, int]  # bytes, and time of the last change in nanoseconds


@dataclass
class Folder:
    """The pictures in a folder that have no result yet, and how long each has stayed as it is.

    A scanner or a microscope writes a file for some time. It counts as complete when neither its
    size nor its time has changed for ``settle`` seconds.
    """

    source: Path
    target: Path
    rename: Callable[[Path], Path]
    settle: float
    clock: Callable[[], float] = time.monotonic
    seen: dict[Path, tuple[_Stamp, float]] = field(default_factory=dict)  # since when
    given_up: dict[Path, _Stamp] = field(default_factory=dict)  # failed, until they change

    def look(self) -> None:
        """See all that is there."""
        found, _ = collect([str(self.source)], PICTURES, avoid=self.target)
        for item in found:
            self.notice(item.path)

    def notice(self, path: Path) -> None:
        """A file may be new, or has changed."""
        if not self._counts(path) or self._result(path).exists():
            self.seen.pop(path, None)
            return
        stamp = _stamp(path)
        if stamp is None or self.given_up.get(path) == stamp:
            self.seen.pop(path, None)
        elif path not in self.seen or self.seen[path][0] != stamp:
            self.seen[path] = stamp, self.clock()

    def complete(self) -> list[Job]:
        """Jobs for the files that have not changed for long enough."""
        for path in list(self.seen):
            self.notice(path)
        now = self.clock()
        ready = [path for path, (_, since) in self.seen.items() if now - since >= self.settle]
        return [Job(path, self._result(path)) for path in sorted(ready)]

    def finish(self, record: Record) -> None:
        """Forget a file; one that failed, until it changes."""
        path = Path(record.input)
        stamp, _ = self.seen.pop(path, ((0, 0), 0.0))
        if record.status == "failed":
            self.given_up[path] = stamp

    def _result(self, path: Path) -> Path:
        return self.target / self.rename(path.relative_to(self.source))

    def _counts(self, path: Path) -> bool:
        name = path.relative_to(self.source)
        hidden = any(part.startswith(".") for part in name.parts)
        ours = path.is_relative_to(self.target) and self.target != self.source
        return path.suffix.lower() in PICTURES and not hidden and not ours


def watch_folder(
    source: Path,
    target: Path,
    settings: Settings,
    models: Models,
    *,
    settle: float = 2.0,
    stop: threading.Event | None = None,
) -> Iterator[Record]:
    """Denoise the pictures of a folder that have no result, and every new one; yield their records.

    Goes on until ``stop`` is set. What was done before a restart has its result and is not done
    again.

    Raises:
        UsageError: a package is missing, or there is no such folder.
    """
    try:
        import watchfiles
    except ImportError:
        raise UsageError("watching needs one more package: pip install 'nelu-cli[watch]'") from None
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder")
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target}: a folder is needed, this is a file")
    source, target = source.resolve(), target.resolve()
    if source == target:
        raise UsageError(f"{source}: the results need a folder of their own")
    stop = threading.Event() if stop is None else stop
    folder = Folder(source, target, settings.rename, settle)
    pause = max(50, round(settle * 500))  # milliseconds
    changes = watchfiles.watch(
        source,
        watch_filter=None,
        stop_event=stop,
        rust_timeout=pause,
        yield_on_timeout=True,
        raise_interrupt=True,
    )
    looked = float("-inf")
    for changed in changes:
        paths = [Path(name) for _, name in changed]
        # Files that came with a new folder may have been there before it was watched.
        if folder.clock() - looked > _LOOK_AGAIN or any(path.is_dir() for path in paths):
            looked = folder.clock()
            folder.look()
        for path in paths:
            folder.notice(path)
        for record in denoise_files(folder.complete(), settings, models):
            folder.finish(record)
            yield record
        if stop.is_set():
            return


def _stamp(path: Path) -> _Stamp | None:
    """Size and time of a regular file; None if it has gone or is empty."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if status.st_size else None
