"""OME-Zarr images of any size: block by block, with a halo, and resumable.

A block covers whole chunks, so that no two blocks write to the same. It is read with a halo from
across its borders, so that there are no seams. What is finished is noted beside the data; the image
gets its name when all of it is there. Where files cannot be renamed, at a URL, it gets the metadata
that make it an image then.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nelu_cli.cluster.ome import (
    Multiscale,
    array_in,
    copy_layout,
    is_zarr,
    name_it,
    read_multiscale,
)
from nelu_cli.cluster.places import Place, place
from nelu_cli.errors import ImageError, UsageError
from nelu_cli.files.records import Record
from nelu_cli.images import Header, to_dtype
from nelu_cli.runtime.models import Models
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.runtime.options import Options
from nelu_cli.runtime.parts import settle, without_values
from nelu_cli.runtime.pipeline import Part, denoise_pixels
from nelu_cli.runtime.precision import Precision

__all__ = ["Block", "Volume", "denoise_volume", "do_block", "one_after_the_other"]

SIDE = 2048
"""About how many pixels a block has along each side of a plane: the halo is read several times."""
_NOTES = ".nelu"  # the folder in which finished blocks are noted
_SAMPLE = 1024  # pixels of the plane whose noise is measured


@dataclass(frozen=True)
class Block:
    """A part of a level: from ``start`` to ``stop`` in every dimension."""

    level: int
    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def name(self) -> str:
        return "-".join(map(str, (self.level, *self.start)))

    @property
    def region(self) -> tuple[slice, ...]:
        return tuple(itertools.starmap(slice, zip(self.start, self.stop, strict=True)))


@dataclass(frozen=True)
class Volume:
    """What is to be done with an image; small, so that it can travel with every block."""

    source: Place
    target: Place
    axes: str
    levels: tuple[str, ...]
    plane: str
    options: Options
    model: str
    device: str
    precision: Precision
    part: Part | None = None
    """What is the same for all blocks."""

    @property
    def plane_axes(self) -> tuple[int, int]:
        """The dimensions that make a picture."""
        return self.axes.index(self.plane[0]), self.axes.index(self.plane[1])

    def note(self, block: Block) -> Place:
        return self.target / _NOTES / block.name


Run = Callable[[Volume, Sequence[Block]], Iterator[Block]]  # yields blocks as they are finished


def one_after_the_other(volume: Volume, blocks: Sequence[Block]) -> Iterator[Block]:
    """Do the blocks here and now."""
    for block in blocks:
        do_block(volume, block)
        yield block


def denoise_volume(
    source: Path | str,
    target: Path | str,
    *,
    plane: str = "yx",
    options: Options = Options(),
    model: str | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    force: bool = False,
    skip_existing: bool = False,
    run: Run = one_after_the_other,
    progress: Callable[[int, int], None] | None = None,
) -> Record:
    """Denoise an OME-Zarr image into another, plane by plane and channel by channel.

    Both are paths or URLs. Unfinished work stays in ``target`` with ``.part`` added to its name, or
    at a URL in ``target`` itself; the same call goes on from there.

    Args:
        plane: the two axes that make a picture.
        precision: "auto" is float32 here, so that blocks fit together.
        run: does the blocks: one after the other, or on a cluster.
        progress: called as ``progress(blocks_done, blocks_in_all)``.
    """
    begun = time.perf_counter()
    here, there = place(source), place(target)
    existing = is_zarr(there) if there.remote else there.exists()
    if existing:
        if skip_existing:
            return Record(str(source), str(target), "skipped")
        if not force:
            raise ImageError(
                f"{target}: exists already; --force replaces it, --skip-existing leaves it"
            )
        if there.remote:
            there.remove()
    image = read_multiscale(here)
    if len(plane) != 2 or plane[0] == plane[1] or not set(plane) <= set(image.axes):
        raise UsageError(f"{source}: --plane takes two of its axes {image.axes!r}, not {plane!r}")
    part = there if there.remote else Place(f"{there}.part")
    exactness: Precision = "float32" if precision == "auto" else precision
    volume = Volume(
        here,
        part,
        image.axes,
        image.levels,
        plane,
        options,
        model or "",
        device,
        exactness,
    )
    settled = settle(_sample(volume), None, Models(model, device, exactness), options)
    volume = replace(volume, model=model or settled.model.name, part=settled.part)
    _begin(volume, image, part)
    levels = [_blocks(volume, level) for level in range(len(image.levels))]
    total, done = sum(map(len, levels)), 0
    noted = set((part / _NOTES).files())
    for blocks in levels:  # a coarser level is made of the one before
        waiting = [block for block in blocks if block.name not in noted]
        done += len(blocks) - len(waiting)
        if progress is not None:
            progress(done, total)
        for _ in run(volume, waiting):
            done += 1
            if progress is not None:
                progress(done, total)
    name_it(here, part)
    (part / _NOTES).remove()
    if not there.remote:
        there.remove()  # asked for with --force
        Path(part.address).rename(there.address)
    return _record(volume, str(source), str(target), time.perf_counter() - begun)


def do_block(volume: Volume, block: Block) -> Block:
    """Clean a block of the finest level, or make one of a coarser level; note that it is done."""
    (_coarsen if block.level else _clean)(volume, block)
    volume.note(block).write(b"")
    return block


def _begin(volume: Volume, image: Multiscale, part: Place) -> None:
    """Make the new image, or see that what is there belongs to this work."""
    facts = {**asdict(volume), "source": str(volume.source)}
    work = json.dumps(
        {key: value for key, value in facts.items() if key not in ("target", "device")},
        default=str,
        sort_keys=True,
    ).encode()
    described = part / _NOTES / "work.json"
    if described.exists():
        if described.read() != work:
            raise ImageError(
                f"{part}: is of a run with other settings; remove it or repeat that run"
            )
        return
    part.remove()  # it never began
    copy_layout(volume.source, part, image)
    described.write(work)


def _blocks(volume: Volume, level: int) -> list[Block]:
    """All of a level, in blocks of whole chunks."""
    array = array_in(volume.target, volume.levels[level])
    unit = array.shards or array.chunks
    sides = [
        -(-SIDE // size) * size if dimension in volume.plane_axes else size
        for dimension, size in enumerate(unit)
    ]
    starts = itertools.product(
        *(range(0, n, side) for n, side in zip(array.shape, sides, strict=True))
    )
    return [
        Block(
            level,
            start,
            tuple(min(n, a + s) for n, a, s in zip(array.shape, start, sides, strict=True)),
        )
        for start in starts
    ]


def _clean(volume: Volume, block: Block) -> None:
    source, target = (array_in(path, volume.levels[0], mode) for path, mode in _both(volume))
    models = _models(volume.model, volume.device, volume.precision)
    model = models.load(volume.model)
    stride, halo = model.network.stride, model.network.halo
    region, core = list(block.region), [slice(None)] * len(block.start)
    for axis in volume.plane_axes:
        start = max(0, block.start[axis] - halo) // stride * stride
        stop = min(source.shape[axis], block.stop[axis] + halo)
        region[axis] = slice(start, stop)
        core[axis] = slice(block.start[axis] - start, block.stop[axis] - start)
    values = np.asarray(source[tuple(region)])
    ends = (values.ndim - 2, values.ndim - 1)
    planes = np.moveaxis(values, volume.plane_axes, ends)
    stack = planes.reshape(-1, *planes.shape[-2:], 1)
    if without_values(stack) and volume.options.nan == "keep":
        target[block.region] = values[tuple(core)]
        return
    row, column = (region[axis].start for axis in volume.plane_axes)
    part = None if volume.part is None else replace(volume.part, place=(row, column))
    try:
        cleaned = denoise_pixels(stack, model, volume.options, part=part).pixels
    except ImageError as error:
        raise ImageError(f"{volume.source}: {error}") from error
    result = np.moveaxis(cleaned.reshape(planes.shape), ends, volume.plane_axes)
    target[block.region] = result[tuple(core)]


def _coarsen(volume: Volume, block: Block) -> None:
    """Means over as many pixels of the finer level as one pixel stands for."""
    finer = array_in(volume.target, volume.levels[block.level - 1])
    target = array_in(volume.target, volume.levels[block.level], "r+")
    factors = [max(1, round(n / m)) for n, m in zip(finer.shape, target.shape, strict=True)]
    region = tuple(
        slice(min(a * f, n - 1), min(b * f, n))
        for a, b, f, n in zip(block.start, block.stop, factors, finer.shape, strict=True)
    )
    values = np.asarray(finer[region])
    wanted = [(b - a) * f for a, b, f in zip(block.start, block.stop, factors, strict=True)]
    missing = [(0, max(0, n - m)) for n, m in zip(wanted, values.shape, strict=True)]
    values = np.pad(values, missing, "edge")
    split = [part for n, f in zip(wanted, factors, strict=True) for part in (n // f, f)]
    means = values.reshape(split).mean(tuple(range(1, 2 * len(factors), 2)), dtype=np.float64)
    target[block.region] = to_dtype(means, target.dtype)


def _both(volume: Volume) -> tuple[tuple[Place, str], tuple[Place, str]]:
    return (volume.source, "r"), (volume.target, "r+")


@cache
def _models(model: str, device: str, precision: Precision) -> Models:
    """Loaded once in a process."""
    return Models(model, device, precision)


def _record(volume: Volume, source: str, target: str, seconds: float) -> Record:
    """What was done, with the noise in the middle of the middle plane."""
    array = array_in(volume.source, volume.levels[0])
    height, width = (array.shape[axis] for axis in volume.plane_axes)
    header = Header("OME-Zarr", width, height, 1, array.dtype, pages=array.size // (height * width))
    sample = _sample(volume)
    model = _models(volume.model, volume.device, volume.precision).load(volume.model)
    noise = estimate_noise(sample, model)
    white = 1.0 if array.dtype.kind == "f" else float(np.iinfo(array.dtype).max)
    return Record(
        source,
        target,
        "done",
        header,
        model=model.name,
        precision=model.precision,
        quality=volume.options.quality,
        strength=volume.options.strength,
        noise=round(noise * 255 / white, 3),
        noise_in_pixel_values=noise,
        seconds=round(seconds, 3),
    )


def _sample(volume: Volume) -> NDArray[Any]:
    """The middle of the middle plane, (H, W, 1)."""
    array = array_in(volume.source, volume.levels[0])
    middle: list[int | slice] = [n // 2 for n in array.shape]
    for axis in volume.plane_axes:
        start = max(0, (array.shape[axis] - _SAMPLE) // 2)
        middle[axis] = slice(start, start + _SAMPLE)
    values = np.asarray(array[tuple(middle)])
    down, across = volume.plane_axes
    return (values if down < across else values.T)[..., np.newaxis]
