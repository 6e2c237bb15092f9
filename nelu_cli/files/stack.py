"""Files of many pictures, one by one: only one of them is in memory at a time."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nelu_cli import images
from nelu_cli.errors import ImageError, NeluError
from nelu_cli.files.noise_map import draw_noise_map
from nelu_cli.files.output import as_asked, write_bytes
from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.images import FORMATS, Header, Picture
from nelu_cli.runtime.models import Model
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.runtime.pipeline import denoise_pixels
from nelu_cli.runtime.tiling import TileProgress, progress_of_page

if TYPE_CHECKING:
    from nelu_cli.files.job import Loaded


def can_stream(header: Header, format: str) -> bool:
    """Whether a file's pictures can be read one by one and written so in a format."""
    several = header.pages > 1 and not header.animated
    can_read, can_write = FORMATS[header.format].pages, FORMATS[format].writer
    return several and can_read is not None and can_write is not None


def denoise_stack(
    loaded: "Loaded",
    record: Record,
    settings: Settings,
    choose: Callable[[Picture], Model],
    progress: TileProgress | None = None,
) -> Record:
    """Clean one picture of a stack after the other into a file, which appears when all are done.

    Their model is that of the first of them with as many channels; the noise is that of the one in
    the middle. A noise map is the root of the mean square of the maps of all.
    """
    start = time.perf_counter()
    job, options = loaded.job, settings.options
    target = sys.stdout.buffer if job.target is None else job.target
    header = record.header
    assert header is not None
    if job.target is not None:
        job.target.parent.mkdir(parents=True, exist_ok=True)
    noise_map = None if job.noise_map is None else _MeanMap()
    models: dict[int, Model] = {}
    notes: dict[str, None] = {}  # each once, in order
    with (
        images.open_pages(
            loaded.source, max_pixels=settings.max_pixels, salvage=settings.salvage
        ) as pages,
        images.write_pages(
            target,
            format=loaded.format,
            strip=settings.strip,
            allow_depth_loss=settings.allow_depth_loss,
            overwrite=settings.force,
            nbytes=_bytes(header, options.dtype),
        ) as add,
    ):
        count = len(pages)
        for index, picture in enumerate(pages):
            channels = picture.pixels.shape[-1]
            model = models.setdefault(channels, models.get(channels) or choose(picture))
            try:
                done = denoise_pixels(
                    picture.pixels,
                    model,
                    options,
                    noise_map=noise_map is not None,
                    progress=progress_of_page(progress, index, count),
                )
                if noise_map is not None and done.noise_map is not None:
                    noise_map.add(done.noise_map)
                if index == count // 2:
                    record = replace(record, model=model.name, precision=model.precision)
                    if settings.noise_level:
                        noise = (
                            estimate_noise(picture.pixels, model)
                            if done.noise_map is None
                            else float(np.nanmedian(done.noise_map))
                        )
                        record = record.with_noise(noise, picture.white)
            except NeluError as error:
                raise ImageError(f"{job.source_name}, picture {index + 1}: {error}") from error
            result = as_asked(replace(picture, pixels=done.pixels), settings)
            notes |= dict.fromkeys((*done.notes, *add(result)))
    if job.noise_map is not None and noise_map is not None:
        write_bytes(draw_noise_map(noise_map.deviation(), picture), job.noise_map, settings)
    seconds = round(time.perf_counter() - start, 3)
    return replace(record, status="done", seconds=seconds, notes=tuple(notes))


class _MeanMap:
    """The root of the mean square of noise maps, where they have values."""

    def __init__(self) -> None:
        self.squares: NDArray[np.float64] | None = None
        self.counts: NDArray[np.float64] | None = None

    def add(self, deviation: NDArray[np.float64]) -> None:
        known = np.isfinite(deviation)
        squares, counts = np.where(known, deviation, 0.0) ** 2, known.astype(float)
        if self.squares is None or self.counts is None:
            self.squares, self.counts = squares, counts
            return
        if self.squares.shape != squares.shape:
            raise ImageError(
                "differs in size from the first; a noise map is for pictures of one size"
            )
        self.squares += squares
        self.counts += counts

    def deviation(self) -> NDArray[np.float64]:
        assert self.squares is not None
        assert self.counts is not None
        with np.errstate(invalid="ignore"):
            return np.sqrt(self.squares / self.counts)


def _bytes(header: Header, dtype: str | None) -> int:
    """About how much all the pictures take."""
    itemsize = header.dtype.itemsize if dtype is None else 4
    samples = header.width * header.height * header.pages * (header.channels + header.alpha)
    return samples * itemsize
