"""Picture files at URLs: fetched, cleaned here, and put where they belong."""

import tempfile
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from nelu_cli.cluster.places import Place, is_url, place
from nelu_cli.errors import NeluError, UsageError
from nelu_cli.files.job import do_job
from nelu_cli.files.plan import Job, Plan, kind_of, nothing_to_do, plan_jobs
from nelu_cli.files.queue import FileProgress
from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models


@dataclass(frozen=True)
class Transfer:
    """One picture to read and the place for the result; each on this machine or at a URL."""

    source: Place
    target: Place

    @property
    def source_name(self) -> str:
        return str(self.source)

    @property
    def target_name(self) -> str:
        return str(self.target)


def plan_transfers(
    inputs: Sequence[str],
    output: str,
    extensions: Collection[str],
    rename: Callable[[Path], Path] = lambda path: path,
) -> tuple[list[Transfer], Plan]:
    """Pair one input, a picture or a folder, with its output; at least one of them is at a URL.

    The second value has what is left out and what leads nowhere.
    """
    if len(inputs) > 1:
        raise UsageError("with URLs, give one input: a picture or a folder")
    text = inputs[0]
    if not is_url(text):
        with tempfile.TemporaryDirectory() as nowhere:  # only the names below it count
            plan = plan_jobs(inputs, f"{nowhere}/", extensions, rename)
            pairs = [
                (place(job.source), job.target.relative_to(nowhere).as_posix())
                for job in plan.jobs
                if job.source is not None and job.target is not None
            ]
        plan = replace(plan, jobs=[])
        folder = Path(text).is_dir()
    else:
        source, plan = place(text), Plan([], [])
        folder = source.is_folder()
        if folder:
            pairs, plan = _pictures_in(source, extensions, rename)
        elif source.exists():
            pairs = [(source, rename(Path(source.name)).as_posix())]
        else:
            problem = Record(str(source), None, "failed", error=f"{source}: no such file or folder")
            return [], Plan([], [problem])
    target = place(output)
    if not folder and not output.endswith("/") and PurePosixPath(target.name).suffix:
        return [Transfer(found, target) for found, _ in pairs], plan
    return [Transfer(found, target / name) for found, name in pairs], plan


def _pictures_in(
    folder: Place, extensions: Collection[str], rename: Callable[[Path], Path]
) -> tuple[list[tuple[Place, str]], Plan]:
    pairs, others = [], []
    for name in folder.files():
        path = PurePosixPath(name)
        if any(part.startswith(".") for part in path.parts):
            continue
        if path.suffix.lower() in extensions:
            pairs.append((folder / name, rename(Path(name)).as_posix()))
        else:
            kind = kind_of(path.suffix)
            others.append(Record(str(folder / name), None, "left out", kind=kind))
    problem = f"{folder}: {nothing_to_do(others)}"
    problems = [] if pairs else [Record(str(folder), None, "failed", error=problem)]
    return pairs, Plan([], problems, others)


def transfer_all(
    transfers: Sequence[Transfer],
    settings: Settings,
    models: Models,
    progress: FileProgress | None = None,
) -> Generator[Record]:
    """One after the other; yield a record of each as it is finished."""
    for transfer in transfers:
        if progress is not None:
            progress(transfer, 0, 1)
        yield decided(transfer, settings) or carry_out(transfer, settings, models)
        if progress is not None:
            progress(transfer, 1, 1)


def decided(transfer: Transfer, settings: Settings) -> Record | None:
    """The record of a file that is not to be done, because its result exists."""
    target = transfer.target
    if settings.force or not target.exists():
        return None
    if settings.skip_existing and not target.is_folder():
        return Record(transfer.source_name, transfer.target_name, "skipped")
    message = f"{target}: exists already; --force replaces it, --skip-existing leaves it"
    return Record(transfer.source_name, transfer.target_name, "failed", error=message)


def carry_out(transfer: Transfer, settings: Settings, models: Models) -> Record:
    """Fetch, clean and put one picture; what fails is in the record."""
    source, target = transfer.source, transfer.target
    with tempfile.TemporaryDirectory(prefix="nelu-") as folder:
        here = Path(folder, "in", source.name) if source.remote else Path(source.address)
        there = Path(folder, "out", target.name) if target.remote else Path(target.address)
        try:
            if source.remote:
                here.parent.mkdir()
                source.fetch(here)
            record = do_job(Job(here, there), settings, models)
            if target.remote and record.status == "done":
                target.put(there)
        except NeluError as error:
            message = str(error).replace(str(here), str(source)).replace(str(there), str(target))
            return Record(str(source), str(target), "failed", error=message)
    return replace(record, input=str(source), output=str(target))
