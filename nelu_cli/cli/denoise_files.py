"""The work behind ``nelu denoise``: file by file, with a line about each."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nelu_cli import images
from nelu_cli.atomic import atomic_file
from nelu_cli.cli.reporting import Advance, noise_map_png, progress, stderr_console
from nelu_cli.errors import ImageError, NeluError, UsageError
from nelu_cli.files.plan import STDIO, Job, Outcome, Plan, plan_jobs, read_once
from nelu_cli.images import EXTENSIONS, Header, Picture
from nelu_cli.images.convert import check_size, fit
from nelu_cli.images.picture import Refusal, upright
from nelu_cli.runtime.allocator import keep_freed_memory
from nelu_cli.runtime.models import Models, choose_model, preferred_model
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.runtime.passes import Quality
from nelu_cli.runtime.pipeline import denoise_pixels
from nelu_cli.runtime.tiling import TileProgress

__all__ = [
    "Settings",
    "denoise_files",
    "format_named",
    "header_record",
    "noise_record",
    "noise_text",
    "picture_text",
]

SMALL = 20_000_000
"""Samples of a picture that may be read or written while another one is cleaned."""

Record = dict[str, Any]  # what there is to say about one file, ready for JSON


@dataclass(frozen=True)
class Settings:
    """What is the same for all files of one command."""

    strength: float
    quality: Quality
    memory: int  # bytes
    max_pixels: int
    format: str | None
    strip: bool
    allow_depth_loss: bool
    force: bool
    skip_existing: bool
    dry_run: bool
    noise_map: Path | None
    noise_level: bool
    """Whether anybody will read how noisy a picture was."""

    def rename(self, name: Path) -> Path:
        """The name of a result in a folder: another extension if another format is asked for."""
        if self.format is None or EXTENSIONS.get(name.suffix.lower()) == self.format:
            return name
        return name.with_suffix(
            next(key for key, value in EXTENSIONS.items() if value == self.format)
        )

    def target_format(self, target: Path | None, source_format: str) -> str:
        """The format to write; refuse what cannot be written, and a name that says another one."""
        if target is None:
            format = self.format or source_format
            if format not in EXTENSIONS.values():
                raise ImageError(f"{format} cannot be written; choose another with --format")
            return format
        if not target.suffix:
            if self.format is not None:
                return self.format
            raise ImageError(
                f"{target}: neither a folder nor a name with an extension; "
                "make the folder first, end its name with /, or give --format"
            )
        named = images.format_for(target)
        if self.format not in (None, named):
            raise ImageError(f"{target}: the name says {named}, --format says {self.format}")
        return named


def format_named(name: str) -> str:
    """The format that a person calls ``name``: png, jpg, TIFF, .webp."""
    bare = name.strip().lstrip(".")
    format = EXTENSIONS.get(f".{bare.lower()}", bare.upper())
    if format not in EXTENSIONS.values():
        known = ", ".join(sorted(set(EXTENSIONS.values())))
        raise UsageError(f"--format {name}: cannot be written; choose one of {known}")
    return format


class Report:
    """Tells of every file as it is finished, and counts."""

    def __init__(self, *, quiet: bool, json_lines: bool, total: int) -> None:
        self.console = stderr_console()
        self.quiet = quiet
        self.json_lines = json_lines
        self.outcome = Outcome(total=total)

    def add(self, record: Record) -> None:
        """Tell of a file that was done, skipped or planned."""
        self.outcome.count(record["status"])
        if self.json_lines:
            print(json.dumps(record), flush=True)
        elif not self.quiet:
            self.console.print(describe(record), markup=False)

    def fail(self, message: str, job: Job | None = None) -> None:
        """Tell of a file that was not done, and why."""
        self.outcome.count("failed")
        if self.json_lines:
            names = {} if job is None else {"input": job.source_name, "output": job.target_name}
            print(json.dumps({**names, "status": "failed", "error": message}), flush=True)
        self.console.print(f"nelu: {message}", markup=False, style="red")

    def settle(self, job: Job, result: Future[Record]) -> None:
        """Wait for a file and tell how it went."""
        try:
            self.add(result.result())
        except NeluError as error:
            self.fail(str(error), job)
        except OSError as error:
            self.fail(f"{error.filename or job.target_name}: {error.strerror}", job)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            self.fail(f"{job.source_name}: not enough memory; lower --memory", job)

    def summarize(self) -> None:
        """The counts, if there was more than one file."""
        if self.outcome.interrupted or (self.outcome.total > 1 and not self.quiet):
            self.console.print(str(self.outcome), markup=False)


def denoise_files(
    inputs: list[str],
    output: str,
    settings: Settings,
    models: Models,
    *,
    quiet: bool,
    json_lines: bool,
) -> int:
    """Denoise all that ``inputs`` stand for into ``output``; return the exit status."""
    if output == STDIO and not settings.dry_run:
        if json_lines:
            raise UsageError("--json and the picture cannot both go to standard output")
        if sys.stdout.isatty():
            raise UsageError("a picture is not written to a terminal; name a file or use a pipe")
    if STDIO in inputs and sys.stdin.isatty():
        raise UsageError("standard input is a terminal; pipe a picture in or name a file")
    plan = plan_jobs(inputs, output, EXTENSIONS, settings.rename)
    total = len(plan.jobs) + len(plan.problems)
    _check_noise_map(settings, plan)
    models.check()
    keep_freed_memory()
    report = Report(quiet=quiet, json_lines=json_lines, total=total)
    for problem in plan.problems:
        report.fail(str(problem))
    hidden = quiet or settings.dry_run or (json_lines and sys.stdout.isatty())
    with progress("", len(plan.jobs), console=report.console, quiet=hidden) as advance:
        _denoise_jobs(plan.jobs, settings, models, report, advance)
    report.summarize()
    return report.outcome.exit_code


def _denoise_jobs(
    jobs: Sequence[Job], settings: Settings, models: Models, report: Report, advance: Advance
) -> None:
    """Clean one picture after the other; meanwhile a thread writes the last and reads the next."""
    unsettled: deque[tuple[Job, Future[Record]]] = deque()

    def settle(most: int) -> None:
        while len(unsettled) > most:
            report.settle(*unsettled[0])
            unsettled.popleft()

    with ThreadPoolExecutor(1) as files:
        try:
            upcoming = deque(files.submit(_read, job, settings, models) for job in jobs[:1])
            for number, job in enumerate(jobs, 1):
                step = _step_of_one_file(advance, job.source_name)
                reading = upcoming.popleft()
                upcoming += [
                    files.submit(_read, j, settings, models) for j in jobs[number : number + 1]
                ]
                unsettled.append((job, _clean_and_write(reading, settings, models, files, step)))
                step(1, 1)
                settle(1)
            settle(0)
        except KeyboardInterrupt:
            report.outcome.interrupted = True
            files.shutdown(cancel_futures=True)
            for job, result in unsettled:
                if not result.cancelled() and result.exception() is None:
                    report.settle(job, result)


@dataclass(frozen=True)
class _Loaded:
    """A picture on its way, with what there is to say about it so far."""

    job: Job
    source: bytes | Path
    format: str  # to be written
    record: Record
    picture: Picture | None
    """Not read yet if it is large: only one such picture is in memory at a time."""


def _read(job: Job, settings: Settings, models: Models) -> _Loaded | Record:
    """Read a picture, or say why not."""
    start = time.perf_counter()
    names = {"input": job.source_name, "output": job.target_name}
    if _exists(job.target, settings):
        return {**names, "status": "skipped"}
    source = read_once(job.source)
    header = images.probe(source, max_pixels=settings.max_pixels)
    format = settings.target_format(job.target, header.format)
    record = {**names, "status": "planned", **header_record(header)}
    if settings.dry_run:
        return {**record, "model": str(models.name or preferred_model(header.channels))}
    samples = header.width * header.height * header.pages * header.channels
    small = samples <= SMALL
    picture = images.read(source, max_pixels=settings.max_pixels) if small else None
    record["seconds"] = time.perf_counter() - start
    return _Loaded(job, source, format, record, picture)


def _clean_and_write(
    reading: Future[_Loaded | Record],
    settings: Settings,
    models: Models,
    files: Executor,
    step: TileProgress,
) -> Future[Record]:
    """Clean here and now, let ``files`` write; all errors wait in the future."""
    result: Future[Record] = Future()
    try:
        loaded = reading.result()
        if isinstance(loaded, _Loaded):
            write = _clean(loaded, settings, models, step)
            result = files.submit(write)
            if loaded.picture is None:
                wait([result])
        else:
            result.set_result(loaded)
    except Exception as error:
        result.set_exception(error)
    return result


def _clean(
    loaded: _Loaded, settings: Settings, models: Models, step: TileProgress
) -> Callable[[], Record]:
    """Clean a picture; return what remains to be done: to write it and say so."""
    start = time.perf_counter()
    job, source, format = loaded.job, loaded.source, loaded.format
    picture = loaded.picture or images.read(source, max_pixels=settings.max_pixels)
    _check_fits(picture, format, job.target_name, settings)
    model = choose_model(picture.pixels, models)
    try:
        cleaned, noise_map = denoise_pixels(
            picture.pixels,
            model,
            strength=settings.strength,
            quality=settings.quality,
            memory=settings.memory,
            noise_map=settings.noise_map is not None,
            progress=step,
        )
        if noise_map is not None:
            noise = noise_record(float(np.median(noise_map)), picture)
        elif settings.noise_level:
            noise = noise_record(estimate_noise(picture.pixels, model), picture)
        else:
            noise = {}
    except NeluError as error:
        raise ImageError(f"{job.source_name}: {error}") from error
    result = replace(picture, pixels=cleaned)
    del picture, cleaned  # lets go of the input's pixels
    seconds = loaded.record["seconds"] + time.perf_counter() - start

    def write() -> Record:
        start = time.perf_counter()
        if settings.strength == 0 and format == result.format and not settings.strip:
            _write_bytes(source if isinstance(source, bytes) else source.read_bytes(), job.target)
        else:
            _write_picture(result, job.target, format, settings)
        if settings.noise_map is not None and noise_map is not None:
            _write_bytes(_draw_noise_map(noise_map, result), settings.noise_map)
        return {
            **loaded.record,
            "status": "done",
            "model": model.name,
            "quality": settings.quality,
            "strength": settings.strength,
            **noise,
            "seconds": round(seconds + time.perf_counter() - start, 3),
        }

    return write


def _draw_noise_map(noise_map: NDArray[np.float64], picture: Picture) -> bytes:
    noise_map = upright(replace(picture, pixels=noise_map[..., None], alpha=None)).pixels[..., 0]
    if picture.pixels.dtype.kind == "f":
        return noise_map_png(noise_map, "noise σ in pixel values")
    return noise_map_png(noise_map * 255 / picture.white, "noise σ on the 0–255 scale")


def _exists(target: Path | None, settings: Settings) -> bool:
    """Whether to skip a picture because its result exists; refuse to replace it unasked."""
    if target is None or not target.exists():
        return False
    if target.is_dir():
        raise ImageError(f"{target}: is a folder, where a picture should be written")
    if settings.skip_existing:
        return True
    if not settings.force and target.is_file():
        raise ImageError(
            f"{target}: exists already; --force replaces it, --skip-existing leaves it"
        )
    return False


def _check_fits(picture: Picture, format: str, name: str, settings: Settings) -> None:
    """Find out from one pixel, before the work, whether the format can hold such a picture."""
    alpha = picture.alpha
    corner = replace(
        picture,
        pixels=picture.pixels[..., :1, :1, :],
        alpha=None if alpha is None else np.full_like(alpha[..., :1, :1], alpha.min()),
    )
    try:
        check_size(picture, format)
        fit(corner, format, allow_loss=settings.allow_depth_loss)
    except Refusal as error:
        raise ImageError(f"{name}: {error}") from error


def _check_noise_map(settings: Settings, plan: Plan) -> None:
    path = settings.noise_map
    if path is None:
        return
    if len(plan.jobs) + len(plan.problems) != 1:
        raise UsageError("--noise-map takes exactly one picture")
    taken = [name for job in plan.jobs for name in (job.source, job.target) if name is not None]
    if os.path.realpath(path) in map(os.path.realpath, taken):
        raise UsageError(f"{path}: the noise map needs a name of its own")
    if path.suffix.lower() != ".png":
        raise UsageError(f"{path}: a noise map is a PNG file; let its name end in .png")
    if path.exists() and not settings.force:
        raise ImageError(f"{path}: exists already; --force replaces it")


def _write_picture(picture: Picture, target: Path | None, format: str, settings: Settings) -> None:
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
    images.write(
        picture,
        sys.stdout.buffer if target is None else target,
        format=format,
        strip=settings.strip,
        allow_depth_loss=settings.allow_depth_loss,
    )


def _write_bytes(content: bytes, target: Path | None) -> None:
    if target is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as handle:
        handle.write(content)


def _step_of_one_file(advance: Advance, name: str) -> TileProgress:
    """Move the bar, which counts files, by the fraction of one file that is done."""
    reached = 0.0
    advance(0, name)

    def step(done: int, total: int) -> None:
        nonlocal reached
        advance(done / total - reached, f"{name} {done}/{total}" if total > 1 else None)
        reached = done / total

    return step


# What is said


def header_record(header: Header) -> Record:
    """What a file's header says, ready for JSON."""
    return {
        "format": header.format,
        "width": header.width,
        "height": header.height,
        "pages": header.pages,
        "channels": header.channels,
        "alpha": header.alpha,
        "dtype": str(header.dtype),
    }


def noise_record(noise: float, picture: Picture) -> Record:
    """The noise level on the 0–255 scale, 255 standing for white, and in the file's own values."""
    return {"noise": round(noise * 255 / picture.white, 3), "noise_in_pixel_values": noise}


def picture_text(record: Record) -> str:
    """``512×512 RGB uint8``"""
    size = f"{record['width']}×{record['height']}"
    if record["pages"] > 1:
        size += f", {record['pages']} pages,"
    kind = {1: "grey", 3: "RGB"}.get(record["channels"], f"{record['channels']} channels")
    return f"{size} {kind}{' with alpha' if record['alpha'] else ''} {record['dtype']}"


def noise_text(record: Record) -> str:
    """The noise on the 0–255 scale; of float pictures, which have no such scale, as it is."""
    if record["dtype"].startswith("float"):
        return f"noise {record['noise_in_pixel_values']:.3g}"
    return f"noise {record['noise']:.1f}/255"


def describe(record: Record) -> str:
    """One line for a person."""
    start = f"{record['input']} → {record['output']}"
    match record["status"]:
        case "skipped":
            return f"{start}: skipped, exists already"
        case "planned":
            return f"{start}: would clean {picture_text(record)} with {record['model']}"
    return (
        f"{start}: {picture_text(record)}, {record['model']}, {noise_text(record)}, "
        f"{record['seconds']:.1f} s"
    )
