"""Many files: one picture is cleaned while the last is being written and the next one read."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from nelu_cli.atomic import sweep
from nelu_cli.errors import NeluError
from nelu_cli.files.job import Loaded, clean_file, load_file, write_file
from nelu_cli.files.plan import Job
from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models


class Named(Protocol):
    """A picture that is worked on."""

    @property
    def source_name(self) -> str: ...


FileProgress = Callable[[Named, int, int], None]  # file, its tiles done, its tiles in all


def denoise_files(
    jobs: Sequence[Job],
    settings: Settings = Settings(),
    models: Models | None = None,
    progress: FileProgress | None = None,
) -> Generator[Record]:
    """Denoise files one after the other; yield a record of each as it is finished, in order.

    A file that cannot be done gives a record that says why, and the others go on. When a
    ``KeyboardInterrupt`` is raised here (or thrown into the generator), the records of all files
    that are already decided are still yielded; then it is raised again.
    """
    models = Models() if models is None else models
    for folder in {job.target.parent for job in jobs if job.target is not None}:
        sweep(folder)
    undecided: deque[tuple[Job, Future[Record]]] = deque()
    with ThreadPoolExecutor(1) as files:
        try:
            upcoming = deque(files.submit(load_file, job, settings) for job in jobs[:1])
            for number, job in enumerate(jobs, 1):
                reading = upcoming.popleft()
                upcoming += [
                    files.submit(load_file, j, settings) for j in jobs[number : number + 1]
                ]
                step = None if progress is None else _step_of(progress, job)
                undecided.append((job, _clean_and_write(reading, settings, models, files, step)))
                while len(undecided) > (number < len(jobs)):
                    record = _record(*undecided[0])
                    undecided.popleft()
                    yield record
        except KeyboardInterrupt:
            files.shutdown(cancel_futures=True)  # waits for what is being written
            for job, result in undecided:
                if not result.cancelled() and not isinstance(result.exception(), KeyboardInterrupt):
                    yield _record(job, result)
            raise


def _clean_and_write(
    reading: Future[Loaded | Record],
    settings: Settings,
    models: Models,
    files: ThreadPoolExecutor,
    step: Callable[[int, int], None] | None,
) -> Future[Record]:
    """Clean here and now, let ``files`` write; all errors wait in the future."""
    result: Future[Record] = Future()
    try:
        loaded = reading.result()
        if isinstance(loaded, Loaded):
            cleaned = clean_file(loaded, settings, models, step)
            if not isinstance(cleaned, Record):
                result = files.submit(write_file, cleaned, settings)
                if cleaned.large:
                    wait([result])
                return result
            loaded = cleaned
        result.set_result(loaded)
    except Exception as error:
        result.set_exception(error)
    return result


def _record(job: Job, result: Future[Record]) -> Record:
    """Wait for a file; what went wrong with it becomes its record."""
    try:
        return result.result()
    except NeluError as error:
        return Record(job.source_name, job.target_name, "failed", error=str(error))


def _step_of(progress: FileProgress, job: Job) -> Callable[[int, int], None]:
    progress(job, 0, 1)
    return lambda done, total: progress(job, done, total)
