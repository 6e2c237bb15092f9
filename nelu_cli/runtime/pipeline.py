"""The pipeline from noisy to clean pixels, and the Python interface.

Pixels stay in their own dtype; only the tile in work is float. What the network takes out is
subtracted from the original pixels, so depth and range are kept: ``output = y + s·(x̂ − y)`` for
input y, estimate x̂ and strength s.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nelu_cli.images import strips, to_dtype
from nelu_cli.runtime.memory import working_memory
from nelu_cli.runtime.models import Model, Models, choose_model, default_models
from nelu_cli.runtime.noise_level import NoiseMeter, find_and_probe
from nelu_cli.runtime.options import DEFAULT_MEMORY, Options, Quality
from nelu_cli.runtime.passes import passes
from nelu_cli.runtime.pixels import as_stack, check_pixels, scale_of, to_tensor, wide_type
from nelu_cli.runtime.tiling import (
    Region,
    Tile,
    TileProgress,
    choose_tile,
    plan_tiles,
    stream_tiles,
)

__all__ = ["check_work", "denoise", "denoise_pixels"]


def denoise(
    array: NDArray[Any],
    model: Model | str | Path | None = None,
    *,
    strength: float = 1.0,
    quality: Quality = "normal",
    memory: int = DEFAULT_MEMORY,
    progress: TileProgress | None = None,
) -> NDArray[Any]:
    """Remove noise of any unknown level from a picture or a stack of pictures.

    Args:
        array: (H, W); (H, W, C) with C ≤ 4; a stack (N, H, W) or (N, H, W, C). Any integer or
            float dtype, any range. Three channels are colour; others are done one by one.
        model: from :func:`load_model`, or what that takes (then loaded at every call); by default
            the best bundled one.
        strength: how much of the estimated noise is taken out, 0 to 1.
        quality: "normal" (one pass) or "best" (the mean over eight flips and rotations;
            symmetric weights give it in one pass).
        memory: ceiling in bytes for the working memory, on top of input and output.
        progress: called as ``progress(tiles_done, tiles_in_all)``.

    Returns:
        A new array of the same shape and dtype.

    Raises:
        NeluError: the array is no picture, or the weights cannot be had.
    """
    pixels = as_stack(np.asarray(array))
    options = Options(strength=strength, quality=quality, memory=memory)
    models = default_models() if model is None else Models(model)
    cleaned, _ = denoise_pixels(pixels, choose_model(pixels, models), options, progress=progress)
    return cleaned.reshape(np.shape(array))


def denoise_pixels(
    pixels: NDArray[Any],
    model: Model,
    options: Options = Options(),
    *,
    noise_map: bool = False,
    progress: TileProgress | None = None,
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Denoise (H, W, C) or (N, H, W, C) pixels tile by tile.

    Returns:
        The cleaned pixels; and, if asked for (it takes twice the time), the standard deviation of
        the noise over the picture, in pixel values, subsampled for large pictures.
    """
    if options.strength == 0 and not noise_map:
        return np.array(pixels), None
    scale, tiles = check_work(pixels, model, options)
    stack = pixels if pixels.ndim == 4 else pixels[np.newaxis]
    count, height, width, channels = stack.shape
    wide = wide_type(pixels.dtype)
    strength = options.strength * scale
    find = passes(model, options.quality)
    meter = NoiseMeter(height, width) if noise_map else None
    fn = find if meter is None else partial(find_and_probe, find)
    output = np.empty_like(stack, subok=False)

    def clean_page(page: NDArray[Any], cleaned: NDArray[Any], step: TileProgress | None) -> None:
        def read(region: Region) -> Tensor:
            return to_tensor(page[region], scale)

        def write(core: Region, found: Tensor) -> None:
            removed: NDArray[np.float32] = found[:channels].numpy()  # (C, h, w)
            if meter is not None:
                meter.add(core, removed, found[channels:].numpy())
            source, target = page[core], cleaned[core]
            for rows in strips(source.shape):
                less = removed[:, rows].transpose(1, 2, 0).astype(wide) * strength
                target[rows] = to_dtype(source[rows].astype(wide) - less, pixels.dtype)

        stream_tiles(lambda tile: fn(tile[None])[0], tiles, read, write, step)

    for index in range(count):
        clean_page(stack[index], output[index], _step_of_page(progress, index, count))
    found = None if meter is None else meter.deviation() * scale
    return output.reshape(pixels.shape), found


def check_work(pixels: NDArray[Any], model: Model, options: Options) -> tuple[float, list[Tile]]:
    """What to divide the pixels by, and the tiles; raise now what would be raised later."""
    check_pixels(pixels, model)
    height, width, channels = pixels.shape[-3:]
    scale = scale_of(pixels)
    stride, halo = model.network.stride, model.network.halo
    needs = working_memory(model.network, channels, width)
    room = max(0, *((options.memory - fixed) // per_pixel for fixed, per_pixel in needs))
    tile = choose_tile(height, width, stride=stride, halo=halo, max_pixels=room)
    return scale, plan_tiles(height, width, tile, stride=stride, halo=halo)


def _step_of_page(progress: TileProgress | None, index: int, count: int) -> TileProgress | None:
    """Progress over the tiles of all pages, from that over the tiles of one."""
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, count * total)
