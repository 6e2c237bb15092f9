"""The pipeline from noisy to clean pixels.

Pixels stay in their own type; only the tile in work is float. What the network takes out is
subtracted from the original pixels, so depth and range are kept: ``output = y + s·(x̂ − y)`` for
input y, estimate x̂ and strength s.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nelu_cli.errors import ImageError
from nelu_cli.images import row_slices, to_dtype
from nelu_cli.networks.watching import watched
from nelu_cli.runtime.holes import Holes, fill_holes, find_holes
from nelu_cli.runtime.models import Model
from nelu_cli.runtime.noise_level import NoiseMeter, find_and_probe
from nelu_cli.runtime.options import Options
from nelu_cli.runtime.passes import passes, working_memory
from nelu_cli.runtime.pixels import (
    Levels,
    check_pixels,
    equal_channels,
    find_levels,
    subtract,
    to_tensor,
)
from nelu_cli.runtime.rounding import dither, needs_dither
from nelu_cli.runtime.tiling import (
    Region,
    Tile,
    TileProgress,
    choose_tile,
    moved,
    plan_tiles,
    progress_of_page,
    stream_tiles,
)

LUMA: Final = np.array([0.299, 0.587, 0.114], np.float32)[:, None, None]  # Rec. 601, of R, G and B


@dataclass(frozen=True)
class Denoised:
    """Clean pixels, and what was found on the way."""

    pixels: NDArray[Any]
    noise_map: NDArray[np.float64] | None = None
    """Deviation of the noise over the picture in pixel values, subsampled for large pictures."""
    notes: tuple[str, ...] = ()
    """What a person should know."""


@dataclass(frozen=True)
class Part:
    """Says that pixels are a part of a larger picture, and what was settled for all of it."""

    levels: Levels
    dithered: bool
    place: tuple[int, int] = (0, 0)
    """Row and column of the first pixel in the larger picture."""


@dataclass(frozen=True)
class Work:
    """All that is known before the network is run."""

    holes: Holes | None  # of the shape of the pixels
    levels: Levels
    tiles: list[Tile]
    dtype: np.dtype[Any]  # of the result
    dithered: bool
    notes: tuple[str, ...]
    place: tuple[int, int] = (0, 0)  # in a larger picture


def denoise_pixels(
    pixels: NDArray[Any],
    model: Model,
    options: Options = Options(),
    *,
    masked: Holes | None = None,
    part: Part | None = None,
    noise_map: bool = False,
    progress: TileProgress | None = None,
) -> Denoised:
    """Denoise (H, W, C) or (N, H, W, C) pixels tile by tile.

    Args:
        masked: pixels that do not count, and stay as they are.
        part: of which picture these are a part, if they are.
        noise_map: measure the noise over the picture; it takes twice the time.
        progress: called as ``progress(done, in_all)``: tiles, or hundredths of them.

    Raises:
        ImageError: these are no pixels for this model, or it makes them worse.
    """
    work = prepare(pixels, model, options, masked, part=part, noise_map=noise_map)
    if options.idle and not noise_map:
        return Denoised(np.array(to_dtype(pixels, work.dtype)), notes=work.notes)
    if model.channels == 1 and equal_channels(pixels):
        one = denoise_pixels(
            pixels[..., :1],
            model,
            replace(options, chroma=None),
            masked=None if masked is None else masked[..., :1],
            part=part,
            noise_map=noise_map,
            progress=progress,
        )
        return replace(one, pixels=np.repeat(one.pixels, 3, axis=-1))
    stack = _as_pages(pixels)
    holes = None if work.holes is None else _as_pages(work.holes)
    count, height, width, _ = stack.shape
    run = _Run(model, options, work, NoiseMeter(height, width) if noise_map else None, _Watch())
    output = np.empty(stack.shape, work.dtype)
    for index in range(count):
        known = None if holes is None or not holes[index].any() else ~holes[index]
        run.clean_page(stack[index], output[index], known, progress_of_page(progress, index, count))
    run.watch.judge(model)
    found = None if run.meter is None else run.meter.deviation() * work.levels.scale
    return Denoised(output.reshape(pixels.shape), found, work.notes)


def prepare(
    pixels: NDArray[Any],
    model: Model,
    options: Options,
    masked: Holes | None = None,
    *,
    part: Part | None = None,
    noise_map: bool = False,
) -> Work:
    """Find out all that is needed before the work, and raise what would be raised in it."""
    check_pixels(pixels, model)
    height, width, channels = pixels.shape[-3:]
    if options.chroma is not None and channels != 3:
        kind = "grey" if channels == 1 else f"of {channels} channels"
        raise ImageError(f"chroma is for colour pictures, this one is {kind}; use luma or strength")
    holes, notes = find_holes(pixels, options.nan, masked)
    levels = find_levels(pixels, holes) if part is None else part.levels
    dtype = pixels.dtype if options.dtype is None else np.dtype(options.dtype)
    dithered = (
        dtype == pixels.dtype
        and not options.idle
        and not model.for_photos  # whose noise looks weaker from pixel to pixel than it is
        and (needs_dither(pixels) if part is None else part.dithered)
    )
    if dithered:
        notes += (
            f"the noise is below two levels of {dtype}: dithered, so that means stay; "
            "--dtype float32 keeps fractions",
        )
    stride, halo = model.network.stride, model.network.halo
    best = options.quality == "best"
    needs = working_memory(model.network, channels, width, best=best, noise_map=noise_map)
    room = max(0, *((options.memory - fixed) // per_pixel for fixed, per_pixel in needs))
    tile = choose_tile(height, width, stride=stride, halo=halo, max_pixels=room)
    tiles = plan_tiles(height, width, tile, stride=stride, halo=halo)
    return Work(
        holes, levels, tiles, dtype, dithered, notes, (0, 0) if part is None else part.place
    )


class _Watch:
    """Sees whether a network makes a picture worse.

    Noise makes neighbours differ, so taking it out makes Σ (yᵢ − yⱼ)² over neighbours smaller.
    Where that sum grows, a network adds what was never there: weights for another kind of noise,
    or weights that blow up.
    """

    MOST = 1.25  # times the sum before; random weights and fine textures may reach 1.1
    ROUNDING = 1e-10  # a pixel, of numbers about 1
    FEW = 1000  # pixels, too few to judge by

    def __init__(self) -> None:
        self.before = 0.0
        self.after = 0.0
        self.pixels = 0

    ROWS = 64  # at a time, so that no more copies of a tile are made

    def see(self, tile: Tensor, noise: Tensor) -> None:
        """A tile of the picture, (C, h, w), and the noise that the network found in it."""
        for top in range(0, tile.shape[-2], self.ROWS):
            before = tile[:, top : top + self.ROWS + 1]  # with a row of the next ones
            self.before += _roughness(before, self.ROWS)
            self.after += _roughness(before - noise[:, top : top + self.ROWS + 1], self.ROWS)
        self.before += self.ROUNDING * tile.numel()
        self.pixels += tile.numel()

    def judge(self, model: Model) -> None:
        """Raise if more came out than went in."""
        worse = self.after > self.MOST * self.before and self.pixels >= self.FEW
        if worse or not math.isfinite(self.after):
            raise ImageError(
                f"model {model.name} makes this picture worse (it adds more than it takes out); "
                "nothing was changed; choose another model or leave the choice to nelu"
            )


def _roughness(image: Tensor, rows: int) -> float:
    """Σ (yᵢ − yⱼ)² over neighbours: below one another, and beside one another in so many rows."""
    differences = image.diff(dim=-2), image[:, :rows].diff(dim=-1)
    return sum(float(each.square().sum(dtype=torch.float64)) for each in differences)


@dataclass(frozen=True)
class _Run:
    """One picture or stack on its way through the network."""

    model: Model
    options: Options
    work: Work
    meter: NoiseMeter | None
    watch: _Watch

    def _runs(self, channels: int) -> int:
        """How many times the network is run for a tile."""
        turned = self.options.quality == "best" and not self.model.network.symmetric
        groups = max(1, channels // self.model.channels)
        return groups * (8 if turned else 1) * (1 if self.meter is None else 2)

    def clean_page(
        self,
        page: NDArray[Any],
        cleaned: NDArray[Any],
        known: NDArray[np.bool_] | None,
        step: TileProgress | None,
    ) -> None:
        """Clean (H, W, C) pixels into ``cleaned``; ``known`` is where they are no holes."""
        channels = page.shape[-1]
        levels = self.work.levels
        find = passes(self.model, self.options.quality)
        probe = find if self.meter is None else partial(find_and_probe, find, model=self.model)
        filled = page if known is None else fill_holes(page, ~known)

        def read(region: Region) -> Tensor:
            return to_tensor(filled[region], levels)

        within = _WithinTiles(step, len(self.work.tiles), self._runs(channels))

        def fn(tile: Tensor) -> Tensor:
            with within.next_tile():
                found = probe(tile[None])[0]
            self.watch.see(tile, found[:channels])
            return found

        def write(core: Region, found: Tensor) -> None:
            removed: NDArray[np.float32] = found[:channels].numpy()  # (C, h, w)
            here = None if known is None else known[core]
            if self.meter is not None:
                self.meter.add(core, removed, found[channels:].numpy(), here)
            source, target = page[core], cleaned[core]
            threshold = dither(moved(core, *self.work.place)) if self.work.dithered else None
            for rows in row_slices(source.shape):
                less = _share(removed[:, rows], self.options).transpose(1, 2, 0) * levels.scale
                part = None if threshold is None else threshold[rows]
                target[rows] = subtract(source[rows], less, self.work.dtype, part)
                if here is not None:
                    stay = ~here[rows]
                    target[rows][stay] = to_dtype(source[rows][stay], self.work.dtype)

        stream_tiles(fn, self.work.tiles, read, write, step)


class _WithinTiles:
    """Progress between the ends of tiles, in hundredths of a tile."""

    def __init__(self, step: TileProgress | None, tiles: int, runs: int) -> None:
        self.step, self.tiles, self.runs = step, tiles, runs
        self.tile = -1
        self.run = 0

    @contextmanager
    def next_tile(self) -> Iterator[None]:
        """Hear from the network, which is run so many times, how far it is."""
        self.tile, self.run = self.tile + 1, 0
        with watched(self.see):
            yield

    def see(self, done: int, total: int) -> None:
        part = 100 * (self.run * total + done) // (self.runs * total)
        self.run += done == total
        if self.step is not None and 0 < part < 100:  # its end is told by others
            self.step(100 * self.tile + part, 100 * self.tiles)


def _share(removed: NDArray[np.float32], options: Options) -> NDArray[np.float32]:
    """What is really taken out of (C, h, w): so much of it in brightness, so much in colour."""
    luma = np.float32(options.strength * options.luma)
    chroma = np.float32(options.strength * (1.0 if options.chroma is None else options.chroma))
    if len(removed) != 3 or luma == chroma:
        return removed * luma
    grey = (LUMA * removed).sum(axis=0, keepdims=True)
    shared: NDArray[np.float32] = chroma * removed + (luma - chroma) * grey
    return shared


def _as_pages(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.ndim == 4 else array[np.newaxis]
