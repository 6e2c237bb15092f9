"""Arrays that are not computed yet, and arrays with names: Dask and xarray.

A Dask array stays lazy: its chunks become blocks that are cleaned when somebody asks for them, each
read with a halo around it, so that the blocks together are the whole. What must be the same for all
blocks (the model, the levels, whether to dither) is settled in one task of its own, from the middle
of the middle picture.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from nelu_cli.images import to_dtype
from nelu_cli.runtime.choice import candidates
from nelu_cli.runtime.layout import Array, Layout, usual_axes
from nelu_cli.runtime.models import Model, Models, default_models
from nelu_cli.runtime.options import Options
from nelu_cli.runtime.parts import Settled, settle, without_values
from nelu_cli.runtime.pipeline import denoise_pixels, prepare

if TYPE_CHECKING:
    from dask.array import Array as DaskArray
    from xarray import DataArray

SAMPLE: Final = 1024  # pixels a side, from the middle of the middle picture
COLOURS: Final = frozenset({"s", "sample", "samples", "rgb", "rgba"})  # dimensions of a colour


def is_labelled(picture: object) -> TypeGuard["DataArray"]:
    """Whether this is an array with named dimensions around another."""
    return all(hasattr(picture, name) for name in ("dims", "coords", "attrs", "data", "copy"))


def is_lazy(picture: object) -> TypeGuard["DaskArray"]:
    """Whether this is a Dask array."""
    return all(hasattr(picture, name) for name in ("__dask_graph__", "map_overlap", "chunks"))


def axes_of(picture: "DataArray") -> str | None:
    """A letter for each dimension, if two of them are called y and x; otherwise none.

    A dimension called ``rgb``, ``rgba``, ``s`` or ``sample`` with up to four values is a colour;
    all others are independent pictures.
    """
    names = [str(name).lower() for name in picture.dims]
    if names.count("y") != 1 or names.count("x") != 1:
        return None
    others = iter("ABCDEFGHIJKLMNOPQRTUVWZ")
    letters = []
    for name, length in zip(names, picture.shape, strict=True):
        colour = name in COLOURS and length <= 4 and "S" not in letters
        plain = name.upper() if name in ("y", "x") else next(others)
        letters.append("S" if colour else plain)
    return "".join(letters)


def middle_of(array: "DaskArray", axes: str) -> "DaskArray":
    """The middle of the middle picture, with all axes, in one chunk."""
    parts = []
    for letter, length in zip(axes, array.shape, strict=True):
        size = {"Y": SAMPLE, "X": SAMPLE, "S": length}.get(letter, 1)
        start = max(0, (length - size) // 2) if size > 1 else length // 2
        parts.append(slice(start, start + size))
    middle: DaskArray = array[tuple(parts)].rechunk(-1)
    return middle


def denoise_lazily(
    array: "DaskArray", model: Model | str | Path | None, options: Options, axes: str | None
) -> Any:
    """A lazy array of clean values; what would be raised for every block is raised now."""
    from dask.delayed import delayed

    axes = axes or usual_axes(array.shape, channels_at=-1)
    asked = model.exact or model if isinstance(model, Model) else model
    tiny = tuple(min(length, 8) for length in array.shape)
    pixels, _ = Layout(axes, tiny).split(np.zeros(tiny, array.dtype))
    possible = candidates(pixels.shape[-1], _models(asked))
    dtype = prepare(pixels, possible[0], options).dtype
    stride = lcm(*(each.network.stride for each in possible))
    halo = -(-max(each.network.halo for each in possible) // stride) * stride

    rows, columns = axes.index("Y"), axes.index("X")
    chunks = list(array.chunks)
    for axis in (rows, columns):
        chunks[axis] = _aligned(array.chunks[axis], stride, halo)
    if "S" in axes:
        chunks[axes.index("S")] = (array.shape[axes.index("S")],)
    sample = middle_of(array, axes).to_delayed().item()
    starts = _starts(chunks[rows], halo), _starts(chunks[columns], halo)
    return array.rechunk(tuple(chunks)).map_overlap(
        _Clean(axes, options, starts),
        settled=delayed(_settle)(sample, axes, asked, options),
        depth={axis: halo if len(chunks[axis]) > 1 else 0 for axis in (rows, columns)},
        boundary="none",
        allow_rechunk=False,
        dtype=dtype,
        meta=np.empty((0,) * len(axes), dtype),
    )


def _settle(
    sample: Array, axes: str, asked: Model | str | Path | None, options: Options
) -> Settled:
    return settle(*_split(sample, Layout(axes, sample.shape)), _models(asked), options)


def _models(asked: Model | str | Path | None) -> Models:
    """In float32, so that blocks fit together whatever is in them."""
    return default_models("float32") if asked is None else Models(asked, precision="float32")


@dataclass(frozen=True)
class _Clean:
    """Cleans a block; a class, since it travels to other machines."""

    axes: str
    options: Options
    starts: tuple[tuple[int, ...], tuple[int, ...]]
    """Where the blocks begin, by rows and by columns."""

    def __call__(self, block: Array, *, settled: Settled, block_info: Any = None) -> Array:
        if threading.current_thread() is not threading.main_thread():
            torch.set_num_threads(1)  # of this thread: the others of its pool do other blocks
        layout = Layout(self.axes, block.shape)
        pixels, masked = _split(block, layout)
        if without_values(pixels, masked) and self.options.nan == "keep":
            dtype = self.options.dtype
            return block.copy() if dtype is None else to_dtype(block, np.dtype(dtype))
        index = block_info[0]["chunk-location"]
        row, column = (
            starts[index[self.axes.index(letter)]]
            for letter, starts in zip("YX", self.starts, strict=True)
        )
        part = replace(settled.part, place=(row, column))
        cleaned = denoise_pixels(
            pixels, settled.model, self.options, masked=masked, part=part
        ).pixels
        result = layout.join(cleaned, layout.split(np.ma.getdata(block))[1])
        return _like(block, result)


def _split(block: Array, layout: Layout) -> tuple[Array, NDArray[np.bool_] | None]:
    """The colours of a block as a stack, and where they are masked."""
    pixels, _ = layout.split(np.ma.getdata(block))
    mask = layout.split(np.ma.getmaskarray(block))[0] if np.ma.is_masked(block) else None
    return pixels, mask


def _like(block: Array, result: Array) -> Array:
    """With the mask of the block, if it has one."""
    if not isinstance(block, np.ma.MaskedArray):
        return result
    return np.ma.MaskedArray(result, block.mask, fill_value=block.fill_value)


def _starts(chunks: Sequence[int], halo: int) -> tuple[int, ...]:
    """Where the chunks of one axis begin, read with their halos."""
    return tuple(max(0, start - halo) for start in accumulate(chunks[:-1], initial=0))


def _aligned(chunks: Sequence[int], stride: int, halo: int) -> tuple[int, ...]:
    """Chunks of one axis that begin at multiples of the stride and are no shorter than the halo.

    About as long as they were; the last one may be longer.
    """
    length = sum(chunks)
    side = -(-max(*chunks, halo, 1) // stride) * stride
    whole, rest = divmod(length, side)
    if whole == 0:
        return (length,)
    if rest < max(halo, 1):
        return (*(side,) * (whole - 1), side + rest)
    return (*(side,) * whole, rest)
