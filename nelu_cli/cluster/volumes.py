"""OME-Zarr images of any size: block by block, with a halo, and resumable.

A block covers whole chunks, so that no two blocks write to the same. It is read with a halo from
across its borders, so that there are no seams. What is finished is noted beside the data; the image
gets its name when all of it is there. Where files cannot be renamed, at a URL, it gets the metadata
that make it an image then.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nelu_cli.cluster.blocks import Block, cut, most_pixels
from nelu_cli.cluster.ome import (
    Multiscale,
    array_in,
    copy_layout,
    is_zarr,
    name_it,
    read_multiscale,
)
from nelu_cli.cluster.places import Place, place
from nelu_cli.cluster.weights import Weights, weights_of
from nelu_cli.errors import ImageError, UsageError
from nelu_cli.files.records import Record
from nelu_cli.images import Header, to_dtype, white_of
from nelu_cli.runtime.models import Models
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.runtime.options import Options
from nelu_cli.runtime.parts import settle, without_values
from nelu_cli.runtime.pipeline import Part, denoise_pixels
from nelu_cli.runtime.precision import needs_float32

_NOTES = ".nelu"  # the folder in which finished blocks are noted
_SAMPLE = 1024  # pixels of the plane whose noise is measured


@dataclass(frozen=True)
class Volume:
    """What is to be done with an image; small, so that it can travel with every block."""

    source: Place
    target: Place
    axes: str
    levels: tuple[str, ...]
    plane: str
    options: Options
    weights: Weights
    block_pixels: int
    """How many a block has at most, unless a single chunk has more."""
    part: Part
    """What is the same for all blocks."""

    @property
    def plane_axes(self) -> tuple[int, int]:
        """The dimensions that make a picture."""
        return _dimensions(self.axes, self.plane)

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
    models: Models | None = None,
    force: bool = False,
    skip_existing: bool = False,
    run: Run = one_after_the_other,
    at_once: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Record:
    """Denoise an OME-Zarr image into another, plane by plane and channel by channel.

    Both are paths or URLs. Unfinished work stays in ``target`` with ``.part`` added to its name, or
    at a URL in ``target`` itself; the same call goes on from there.

    Args:
        plane: the two axes that make a picture.
        models: with the precision "auto", a sample decides for all blocks.
        run: does the blocks: one after the other, or on a cluster.
        at_once: how many it does at the same time.
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
    array = array_in(here, image.levels[0])
    if options.dtype is not None and np.dtype(options.dtype) != array.dtype:
        raise UsageError(
            f"{source}: an OME-Zarr image keeps its type {array.dtype}; leave --dtype out"
        )
    models = Models() if models is None else models
    weights, same = _settle(array, image.axes, plane, models, options)
    most = most_pixels(array.size, array.dtype.itemsize, memory=options.memory, at_once=at_once)
    volume = Volume(here, part, image.axes, image.levels, plane, options, weights, most, same)
    volume = _begin(volume, image, free=models.precision == "auto")
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


def _settle(
    array: Any, axes: str, plane: str, models: Models, options: Options
) -> tuple[Weights, Part]:
    """What is the same for all blocks, by the middle of the image.

    So is the precision; it is float32 if any of the channels needs that.
    """
    dimensions = _dimensions(axes, plane)
    settled = settle(_sample(array, dimensions), None, models, options)
    model = settled.model
    channel = axes.index("c") if "c" in axes and "c" not in plane else None
    if model.exact is not None and channel is not None:
        samples = (_sample(array, dimensions, {channel: k}) for k in range(array.shape[channel]))
        model = model.exact if any(map(needs_float32, samples)) else model
    weights = weights_of(Models(model, models.device, model.precision, models.shifts))
    return weights, settled.part


def _begin(volume: Volume, image: Multiscale, *, free: bool) -> Volume:
    """Make the new image, or see that what is there belongs to this work, and go on as it began.

    Its blocks have the size that they had, and its precision, if nobody chose one (``free``), is
    what it was; neither may differ from block to block, but both may from machine to machine.
    """
    facts = json.loads(json.dumps({**asdict(volume), "source": str(volume.source)}, default=str))
    for where, key in (
        (facts, "target"),
        (facts["weights"], "device"),
        (facts["options"], "memory"),
    ):
        del where[key]
    described = volume.target / _NOTES / "work.json"
    before = _work_before(described)
    if before is None:
        volume.target.remove()  # it never began
        copy_layout(volume.source, volume.target, image)
        described.write(json.dumps(facts, sort_keys=True).encode())
        return volume
    weights, most = volume.weights, int(before.get("block_pixels", 0))
    facts["block_pixels"] = most
    if free:
        facts["weights"]["precision"] = before.get("weights", {}).get("precision")
        weights = replace(weights, precision=facts["weights"]["precision"])
    if before != facts:
        raise ImageError(
            f"{volume.target}: is of a run with other settings; remove it or repeat that run"
        )
    return replace(volume, weights=weights, block_pixels=most)


def _work_before(described: Place) -> dict[str, Any] | None:
    """What unfinished work says of itself; none if it did not come so far."""
    if not described.exists():
        return None
    try:
        work: dict[str, Any] = json.loads(described.read())
    except ValueError:  # stopped while it wrote this
        return None
    return work


def _blocks(volume: Volume, level: int) -> list[Block]:
    """All of a level, in blocks of whole chunks."""
    array = array_in(volume.target, volume.levels[level])
    chunk = array.shards or array.chunks
    return cut(level, array.shape, chunk, volume.plane_axes, volume.block_pixels)


def _clean(volume: Volume, block: Block) -> None:
    source, target = (array_in(path, volume.levels[0], mode) for path, mode in _both(volume))
    model = volume.weights.model()
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
    part = replace(volume.part, place=(row, column))
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


def _record(volume: Volume, source: str, target: str, seconds: float) -> Record:
    """What was done, with the noise in the middle of the middle plane."""
    array = array_in(volume.source, volume.levels[0])
    height, width = (array.shape[axis] for axis in volume.plane_axes)
    header = Header("OME-Zarr", width, height, 1, array.dtype, pages=array.size // (height * width))
    sample = _sample(array, volume.plane_axes)
    model = volume.weights.model()
    noise = estimate_noise(sample, model)
    record = Record(
        source,
        target,
        "done",
        header,
        model=model.name,
        precision=model.precision,
        quality=volume.options.quality,
        strength=volume.options.strength,
        seconds=round(seconds, 3),
    )
    return record.with_noise(noise, white_of(array.dtype))


def _sample(
    array: Any, plane: tuple[int, int], at: Mapping[int, int] | None = None
) -> NDArray[Any]:
    """The middle of the middle plane, or of that at some index of a dimension, (H, W, 1)."""
    middle: list[int | slice] = [n // 2 for n in array.shape]
    for axis, index in (at or {}).items():
        middle[axis] = index
    for axis in plane:
        start = max(0, (array.shape[axis] - _SAMPLE) // 2)
        middle[axis] = slice(start, start + _SAMPLE)
    values = np.asarray(array[tuple(middle)])
    down, across = plane
    return (values if down < across else values.T)[..., np.newaxis]


def _dimensions(axes: str, plane: str) -> tuple[int, int]:
    return axes.index(plane[0]), axes.index(plane[1])
