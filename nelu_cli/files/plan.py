"""Which files a command reads and writes.

Files are named as for ``cp``: one picture to a file, or pictures, folders and patterns to a
folder. Everything is planned, and clashes are refused, before anything is written.
"""

import glob
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nelu_cli.errors import ImageError, UsageError
from nelu_cli.files.records import Record

STDIO = "-"  # standard input or output


@dataclass(frozen=True)
class Job:
    """One picture to read and the place for the result; ``None`` is standard input or output."""

    source: Path | None
    target: Path | None
    noise_map: Path | None = None  # where to draw how noisy it was

    @property
    def source_name(self) -> str:
        return STDIO if self.source is None else str(self.source)

    @property
    def target_name(self) -> str:
        return STDIO if self.target is None else str(self.target)


@dataclass(frozen=True)
class Plan:
    """What is to be done, and records of the inputs that lead nowhere."""

    jobs: list[Job]
    problems: list[Record]
    left_out: list[Record] = field(default_factory=list)
    """Files in folders that are no pictures, or of kinds that cannot be done."""

    @property
    def total(self) -> int:
        return len(self.jobs) + len(self.problems)

    def with_noise_map(self, path: Path, *, force: bool) -> "Plan":
        """The same plan, and a noise map of its only picture."""
        if self.total != 1:
            raise UsageError("--noise-map takes exactly one picture")
        taken = [name for job in self.jobs for name in (job.source, job.target) if name is not None]
        if os.path.realpath(path) in map(os.path.realpath, taken):
            raise UsageError(f"{path}: the noise map needs a name of its own")
        if path.suffix.lower() != ".png":
            raise UsageError(f"{path}: a noise map is a PNG file; let its name end in .png")
        if path.exists() and not force:
            raise ImageError(f"{path}: exists already; --force replaces it")
        return replace(self, jobs=[replace(job, noise_map=path) for job in self.jobs])


@dataclass(frozen=True)
class _Found:
    """A picture among the inputs, and its name under an output folder."""

    path: Path
    name: Path


def collect(
    inputs: Sequence[str], extensions: Collection[str], *, avoid: Path | None = None
) -> tuple[list[_Found], list[Record]]:
    """All pictures that ``inputs`` (files, folders, patterns) stand for, in the order given.

    The other records are of what cannot be found or opened, and of what is left out. Folders are
    walked for files with one of ``extensions`` (".png"); hidden files and the folder ``avoid`` are
    ignored. The tree of a folder is kept; among several inputs so is its name.
    """
    found: list[_Found] = []
    problems: list[Record] = []
    for text in inputs:
        path = Path(text)
        if os.path.isdir(path):
            files, others = _walk(path, extensions, avoid)
            top = Path(path.resolve().name) if len(inputs) > 1 else Path()
            found += [_Found(file, top / file.relative_to(path)) for file in files]
            problems += others
            if not files and all(record.status == "left out" for record in others):
                problems.append(_problem(text, nothing_to_do(others)))
        elif os.path.exists(path):
            found.append(_Found(path, Path(path.name)))
        elif glob.has_magic(text):
            matches = [Path(match) for match in sorted(glob.glob(text, recursive=True))]
            files = [match for match in matches if not os.path.isdir(match)]
            found += [_Found(file, Path(file.name)) for file in files]
            if not files:
                problems.append(_problem(text, "no file matches this pattern"))
        else:
            problems.append(_missing(text))
    unique: dict[str, _Found] = {}
    for item in found:
        unique.setdefault(os.path.abspath(item.path), item)
    return list(unique.values()), problems


def plan_jobs(
    inputs: Sequence[str],
    output: str,
    extensions: Collection[str],
    rename: Callable[[Path], Path] = lambda path: path,
) -> Plan:
    """Pair every input with its output; raise ``UsageError`` if that cannot be done sensibly.

    ``rename`` gives a picture's name in the output folder (to change its extension).
    """
    if STDIO in inputs or output == STDIO:
        return _plan_pipe(inputs, output)
    target = Path(output)
    ends_as_folder = output.endswith(tuple(filter(None, (os.sep, os.altsep))))
    to_folder = (
        len(inputs) > 1
        or os.path.isdir(target)
        or ends_as_folder
        or os.path.isdir(inputs[0])
        or (glob.has_magic(inputs[0]) and not os.path.exists(inputs[0]))
    )
    if to_folder and os.path.exists(target) and not os.path.isdir(target):
        raise UsageError(f"{output}: several pictures need a folder to go to, this is a file")
    if (
        to_folder
        and target.suffix.lower() in extensions
        and not (ends_as_folder or os.path.isdir(target))
    ):
        raise UsageError(
            f"{output}: several pictures need a folder to go to, this is a picture's name; "
            "end it with / if it is a folder"
        )
    found, problems = collect(inputs, extensions, avoid=target if to_folder else None)
    if to_folder:
        jobs = [Job(item.path, target / rename(item.name)) for item in found]
    else:
        jobs = [Job(item.path, target) for item in found]
    _refuse_clashes(jobs)
    return Plan(
        jobs,
        [record for record in problems if record.status == "failed"],
        [record for record in problems if record.status == "left out"],
    )


def default_output(name: str, rename: Callable[[Path], Path] = lambda path: path) -> str:
    """Where the result of a single input goes if nobody says it: ``photo-denoised.jpg``."""
    if name == STDIO:
        return STDIO
    if glob.has_magic(name) and not os.path.exists(name):
        raise UsageError(f"{name}: say where the results of a pattern go; name a folder last")
    path = Path(os.path.abspath(name)) if Path(name).name in ("", "..") else Path(name)
    if os.path.isdir(name):
        return str(path.with_name(f"{path.name}-denoised")) + os.sep
    return str(rename(path.with_stem(f"{path.stem}-denoised")))


def _plan_pipe(inputs: Sequence[str], output: str) -> Plan:
    if len(inputs) > 1:
        raise UsageError("standard input or output (-) takes exactly one picture")
    source = None if inputs[0] == STDIO else Path(inputs[0])
    target = None if output == STDIO else Path(output)
    if source is not None and not os.path.exists(source):
        return Plan([], [_missing(inputs[0])])
    if source is not None and os.path.isdir(source):
        raise UsageError(f"{source}: a folder cannot go to standard output")
    if target is not None and os.path.isdir(target):
        raise UsageError(f"{target}: a picture from standard input needs a file name, not a folder")
    return Plan([Job(source, target)], [])


def read_once(source: Path | None) -> Path | bytes:
    """A file, to be opened whenever needed; the content of standard input or of a pipe."""
    if source is None:
        return sys.stdin.buffer.read()
    return source.read_bytes() if source.is_fifo() else source


def _refuse_clashes(jobs: Sequence[Job]) -> None:
    """Two inputs must not share an output; the second would replace the first."""
    owner: dict[str, Job] = {}
    for job in jobs:
        other = owner.setdefault(os.path.normcase(os.path.abspath(job.target_name)), job)
        if other is not job:
            together = Path(other.source_name).parent == Path(job.source_name).parent
            advice = (
                "rename one" if together else "give the folder that holds them to keep its tree"
            )
            raise UsageError(
                f"{other.source_name} and {job.source_name} would both become {job.target_name}; "
                f"nothing was written; {advice}"
            )


def _problem(name: str, reason: str) -> Record:
    return Record(name, None, "failed", error=f"{name}: {reason}")


def _missing(text: str) -> Record:
    """Why there is nothing to read at a path."""
    try:
        os.stat(text)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        return _problem(text, str(error.strerror))
    return _problem(text, "no such file or folder")


def _walk(
    folder: Path, extensions: Collection[str], avoid: Path | None
) -> tuple[list[Path], list[Record]]:
    """The pictures in a folder; folders in it that cannot be opened, and what is left out."""
    avoided = None if avoid is None or _same(avoid, folder) else avoid
    files: list[Path] = []
    others: list[Record] = []

    def refuse(error: OSError) -> None:
        others.append(_problem(str(error.filename), str(error.strerror)))

    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and not (avoided is not None and _same(avoided, Path(where, name)))
        )
        linked = [path for path in (Path(where, name) for name in folders) if path.is_symlink()]
        others += [Record(str(path), None, "left out", kind="linked folder") for path in linked]
        for path in (Path(where, name) for name in sorted(names) if not name.startswith(".")):
            kind = _kind_left_out(path, extensions)
            if kind is None:
                files.append(path)
            else:
                others.append(Record(str(path), None, "left out", kind=kind))
    return files, others


def _kind_left_out(path: Path, extensions: Collection[str]) -> str | None:
    """What a file in a folder is, if it cannot be done."""
    if not path.is_file():
        return "no regular file" if path.exists() else "broken link"
    return None if path.suffix.lower() in extensions else kind_of(path.suffix)


def kind_of(extension: str) -> str:
    """What people call files with this extension."""
    return _KINDS.get(extension.lower(), extension.lower() or "unknown")


def nothing_to_do(others: Sequence[Record]) -> str:
    """What to say of a folder that holds only files of other kinds, or nothing."""
    kinds = Counter(record.kind for record in others)
    there = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    if not there:
        return "no pictures in this folder"
    return f"no pictures that can be done in this folder, only {there}"


_KINDS = {
    ".gif": "GIF",
    ".pdf": "PDF",
    ".psd": "PSD",
    ".psb": "PSD",
    ".svg": "SVG",
    ".jp2": "JPEG 2000",
    ".j2k": "JPEG 2000",
    ".jxl": "JPEG XL",
}


def _same(first: Path, second: Path) -> bool:
    return first.exists() and second.exists() and first.samefile(second)
