"""One picture file: read it, clean it, write it, and tell what was done.

The three steps are separate, so that a queue can read the next picture and write the last one
while this one is being cleaned. :func:`denoise_file` is all three.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nelu_cli import images
from nelu_cli.atomic import sweep
from nelu_cli.errors import ImageError, NeluError
from nelu_cli.files.noise_map import draw_noise_map
from nelu_cli.files.output import (
    as_asked,
    check_fits,
    is_to_be_skipped,
    write_bytes,
    write_picture,
)
from nelu_cli.files.plan import Job, read_once
from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.files.stack import can_stream, denoise_stack
from nelu_cli.images import Header, Picture
from nelu_cli.images.access import check_pixels
from nelu_cli.images.convert import developed
from nelu_cli.runtime.choice import choose_model
from nelu_cli.runtime.models import Model, Models, default_models
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.runtime.pipeline import Denoised, denoise_pixels, prepare
from nelu_cli.runtime.tiling import TileProgress

SMALL = 20_000_000
"""Samples of a picture that may be read or written while another one is cleaned."""


def denoise_file(
    source: Path | str,
    target: Path | str,
    model: Model | str | Path | None = None,
    *,
    settings: Settings = Settings(),
    noise_map: Path | str | None = None,
    progress: TileProgress | None = None,
) -> Record:
    """Denoise a picture file into another one, keeping depth, transparency and metadata.

    Args:
        model: from :func:`load_model`, or what that takes; by default the best bundled one.
        settings: strength, format, whether existing files may be replaced, and so on.
        noise_map: where to draw how noisy the picture was, place by place: a PNG file.
        progress: called as ``progress(done, in_all)``: tiles, or hundredths of them.

    Raises:
        NeluError: the file cannot be read, denoised or written. Then nothing has been written.
    """
    models = default_models() if model is None else Models(model)
    job = Job(Path(source), Path(target), None if noise_map is None else Path(noise_map))
    sweep(Path(target).parent)
    return do_job(job, settings, models, progress)


def do_job(
    job: Job, settings: Settings, models: Models, progress: TileProgress | None = None
) -> Record:
    """Read, clean and write one file."""
    loaded = load_file(job, settings)
    if isinstance(loaded, Record):
        return loaded
    cleaned = clean_file(loaded, settings, models, progress)
    return cleaned if isinstance(cleaned, Record) else write_file(cleaned, settings)


@dataclass(frozen=True)
class Loaded:
    """A picture on its way, with what there is to say about it so far."""

    job: Job
    source: bytes | Path
    format: str  # to be written
    record: Record
    seconds: float
    picture: Picture | None
    """Not read yet if it is large: only one such picture is in memory at a time."""


@dataclass(frozen=True)
class Cleaned:
    """A clean picture, to be written."""

    job: Job
    original: bytes | Path
    format: str
    record: Record
    seconds: float
    picture: Picture
    noise_map: NDArray[np.float64] | None
    large: bool
    """Too large for another picture to be in memory at the same time."""


def load_file(job: Job, settings: Settings) -> Loaded | Record:
    """Read a small picture, or only the header of a large one; a record if it is to be skipped."""
    start = time.perf_counter()
    with _named(job):
        if is_to_be_skipped(job.target, settings):
            return Record(job.source_name, job.target_name, "skipped")
        source = read_once(job.source)
        header = images.probe(source, max_pixels=sys.maxsize, salvage=settings.salvage)
        format = settings.target_format(job.target, header.format)
        samples = header.width * header.height * header.pages * header.channels
        small = samples <= SMALL and header.equal
        streamed = not small and _is_streamed(header, format, settings)
        name = "standard input" if isinstance(source, bytes) else str(source)
        check_pixels(name, header, settings.max_pixels, pages=1 if streamed else header.pages)
        picture = _read(source, settings) if not streamed and samples <= SMALL else None
    record = Record(job.source_name, job.target_name, "planned", header)
    return Loaded(job, source, format, record, time.perf_counter() - start, picture)


def clean_file(
    loaded: Loaded, settings: Settings, models: Models, progress: TileProgress | None = None
) -> Cleaned | Record:
    """Take the noise out; a record if this is a dry run."""
    start = time.perf_counter()
    job, options, header = loaded.job, settings.options, loaded.record.header
    mapped = job.noise_map is not None
    record = replace(loaded.record, quality=options.quality, strength=options.strength)
    if loaded.picture is None and header and _is_streamed(header, loaded.format, settings):

        def choose(picture: Picture) -> Model:
            check_fits(picture, loaded.format, job.target_name, settings)
            return choose_model(picture.pixels, models).model

        if settings.dry_run:
            return _plan_stack(loaded, record, settings, choose)
        with _named(job):
            return denoise_stack(loaded, record, settings, choose, progress)
    with _named(job):
        picture = loaded.picture or _read(loaded.source, settings)
        check_fits(picture, loaded.format, job.target_name, settings)
        busy = mapped or not options.idle
        if busy and _develops_first(picture, models):
            picture = developed(picture, loaded.format, settings.colour)
        done = Denoised(picture.pixels)
        if busy:
            choice = choose_model(picture.pixels, models)
            model = choice.model
            record = replace(
                record, model=model.name, precision=model.precision, character=choice.character
            )
            try:
                if settings.dry_run:
                    notes = prepare(picture.pixels, model, options, noise_map=mapped).notes
                    return replace(record, notes=(*picture.notes, *notes))
                done = denoise_pixels(
                    picture.pixels, model, options, noise_map=mapped, progress=progress
                )
                if done.noise_map is not None:
                    level = float(np.nanmedian(done.noise_map))
                    record = record.with_noise(level, picture.white)
                elif settings.noise_level:
                    level = estimate_noise(picture.pixels, model)
                    record = record.with_noise(level, picture.white)
            except NeluError as error:
                raise ImageError(f"{job.source_name}: {error}") from error
        elif settings.dry_run:
            return record
        result = as_asked(replace(picture, pixels=done.pixels), settings)
    return Cleaned(
        job,
        loaded.source,
        loaded.format,
        record,
        loaded.seconds + time.perf_counter() - start,
        replace(result, notes=(*result.notes, *done.notes)),
        done.noise_map,
        large=loaded.picture is None,
    )


def write_file(cleaned: Cleaned, settings: Settings) -> Record:
    """Write a clean picture, and its noise map if asked for."""
    start = time.perf_counter()
    job, picture, source = cleaned.job, cleaned.picture, cleaned.original
    notes: tuple[str, ...] = ()
    with _named(job):
        if (
            settings.options.idle
            and settings.options.dtype is None
            and not settings.bilevel
            and cleaned.format == picture.format
            and not settings.strip
        ):
            content = source if isinstance(source, bytes) else source.read_bytes()
            write_bytes(content, job.target, settings)
        else:
            notes = write_picture(picture, job.target, cleaned.format, settings)
        if job.noise_map is not None and cleaned.noise_map is not None:
            write_bytes(draw_noise_map(cleaned.noise_map, picture), job.noise_map, settings)
    seconds = round(cleaned.seconds + time.perf_counter() - start, 3)
    return replace(cleaned.record, status="done", seconds=seconds, notes=notes)


@contextlib.contextmanager
def _named(job: Job) -> Iterator[None]:
    """Turn failures of the system into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise ImageError(f"{error.filename or job.target_name}: {error.strerror}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise ImageError(f"{job.source_name}: not enough memory; lower --memory") from error


def _plan_stack(
    loaded: Loaded, record: Record, settings: Settings, choose: Callable[[Picture], Model]
) -> Record:
    """What would be done with a stack, by its first picture."""
    with (
        _named(loaded.job),
        images.open_pages(
            loaded.source, max_pixels=settings.max_pixels, salvage=settings.salvage
        ) as pages,
    ):
        first = pages[0]
        model = choose(first)
        mapped = loaded.job.noise_map is not None
        notes = prepare(first.pixels, model, settings.options, noise_map=mapped).notes
    notes = (*first.notes, *notes)
    return replace(record, model=model.name, precision=model.precision, notes=notes)


def _develops_first(picture: Picture, models: Models) -> bool:
    """Whether the picture of a sensor is developed before it is denoised.

    By measurement, see docs/photographers.md. A model that was asked for decides: one of colour
    needs colours, a grey one takes the mosaic.
    """
    undeveloped = picture.metadata.undeveloped
    if undeveloped is None:
        return False
    if models.asked is not None:
        return models.load(models.asked).channels != 1
    return not undeveloped.drowned


def _is_streamed(header: Header, format: str, settings: Settings) -> bool:
    """Whether a file's pictures are done one by one."""
    return not settings.options.idle and can_stream(header, format)


def _read(source: bytes | Path, settings: Settings) -> Picture:
    return images.read(source, max_pixels=settings.max_pixels, salvage=settings.salvage)
