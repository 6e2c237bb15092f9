"""The pipeline from noisy to clean pixels, and the Python interface.

Pixels stay in their own dtype; only the tile in work is float. What the network takes out is
subtracted from the original pixels, so depth and range are kept: ``output = y + s·(x̂ − y)`` for
input y, estimate x̂ and strength s.
"""

from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nelu_cli.errors import UsageError
from nelu_cli.images import strips, to_dtype
from nelu_cli.runtime.memory import working_memory
from nelu_cli.runtime.models import Model, choose_model, default_models, load_model
from nelu_cli.runtime.noise_level import NoiseMeter, clean_and_probe
from nelu_cli.runtime.passes import Quality, passes
from nelu_cli.runtime.pixels import as_stack, check_pixels, scale_of, to_tensor, wide_type
from nelu_cli.runtime.tiling import Region, TileProgress, choose_tile, plan_tiles, stream_tiles

__all__ = ["DEFAULT_MEMORY", "denoise", "denoise_pixels"]

DEFAULT_MEMORY: Final = 2 << 30  # bytes: 34 Mpx of colour in one tile


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
        quality: "fast", "normal" (one pass) or "best" (the mean over eight flips and rotations;
            symmetric weights give it in one pass).
        memory: ceiling in bytes for the working memory, on top of input and output.
        progress: called as ``progress(tiles_done, tiles_in_all)``.

    Returns:
        A new array of the same shape and dtype.

    Raises:
        NeluError: the array is no picture, or the weights cannot be had.
    """
    pixels = as_stack(np.asarray(array))
    if model is None:
        model = choose_model(pixels, default_models())
    elif not isinstance(model, Model):
        model = load_model(model)
    cleaned, _ = denoise_pixels(
        pixels, model, strength=strength, quality=quality, memory=memory, progress=progress
    )
    return cleaned.reshape(np.shape(array))


def denoise_pixels(
    pixels: NDArray[Any],
    model: Model,
    *,
    strength: float = 1.0,
    quality: Quality = "normal",
    memory: int = DEFAULT_MEMORY,
    noise_map: bool = False,
    progress: TileProgress | None = None,
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Denoise (H, W, C) or (N, H, W, C) pixels tile by tile.

    Returns:
        The cleaned pixels; and, if asked for (it takes twice the time), the standard deviation of
        the noise over the picture, in pixel values, subsampled for large pictures.
    """
    if not 0 <= strength <= 1:
        raise UsageError(f"strength {strength} is outside 0 to 1")
    check_pixels(pixels, model)
    stack = pixels if pixels.ndim == 4 else pixels[np.newaxis]
    count, height, width, channels = stack.shape
    scale = scale_of(pixels)
    wide = wide_type(pixels.dtype)
    clean = passes(model, quality)
    stride, halo = model.network.stride, model.network.halo
    needs = working_memory(model.network, channels, width)
    room = max(0, *((memory - fixed) // per_pixel for fixed, per_pixel in needs))
    tile = choose_tile(height, width, stride=stride, halo=halo, max_pixels=room)
    tiles = plan_tiles(height, width, tile, stride=stride, halo=halo)
    meter = NoiseMeter(height, width) if noise_map else None
    fn = clean if meter is None else partial(clean_and_probe, clean)
    output = np.empty_like(stack, subok=False)

    def clean_page(page: NDArray[Any], cleaned: NDArray[Any], step: TileProgress | None) -> None:
        def read(region: Region) -> Tensor:
            return to_tensor(page[region], scale)

        def write(core: Region, before: Tensor, after: Tensor) -> None:
            removed: NDArray[np.float32] = (before - after[:channels]).numpy()  # (C, h, w)
            if meter is not None:
                meter.add(core, removed, after[channels:].numpy())
            if strength:
                source, target = page[core], cleaned[core]
                for rows in strips(source.shape):
                    less = removed[:, rows].transpose(1, 2, 0).astype(wide) * (strength * scale)
                    target[rows] = to_dtype(source[rows].astype(wide) - less, pixels.dtype)
            else:
                cleaned[core] = page[core]

        stream_tiles(lambda tile: fn(tile[None])[0], tiles, read, write, step)

    for index in range(count):
        clean_page(stack[index], output[index], _step_of_page(progress, index, count))
    found = None if meter is None else meter.deviation() * scale
    return output.reshape(pixels.shape), found


def _step_of_page(progress: TileProgress | None, index: int, count: int) -> TileProgress | None:
    """Progress over the tiles of all pages, from that over the tiles of one."""
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, count * total)
