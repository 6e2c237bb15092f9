"""A few crops of a picture, by which its noise is judged."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nelu_cli.runtime.holes import Holes, fill_holes, find_holes
from nelu_cli.runtime.pixels import Levels, find_levels, to_tensor

MOST = 3
"""Crops along each side of a picture, at most; they cover at most half of it."""


class Sample(NamedTuple):
    """Crops (N, C, side, side), less at the sides of a small picture."""

    crops: Tensor
    holes: Holes | None
    """Pixels without a value, (N, h, w, C)."""
    levels: Levels


def take_sample(pixels: NDArray[Any], side: int) -> Sample | None:
    """A grid of crops from (H, W, C), or the middle page of (N, H, W, C); none without values."""
    page = pixels if pixels.ndim == 3 else pixels[len(pixels) // 2]
    cuts = np.stack(
        [
            page[top : top + side, left : left + side]
            for top in _spread(page.shape[0], side)
            for left in _spread(page.shape[1], side)
        ]
    )
    if cuts.dtype.kind == "f" and not np.isfinite(cuts).any():
        return None
    holes, _ = find_holes(cuts)
    levels = find_levels(cuts, holes)
    filled = cuts
    if holes is not None:
        filled = np.stack([fill_holes(*pair) for pair in zip(cuts, holes, strict=True)])
    return Sample(torch.stack([to_tensor(cut, levels) for cut in filled]), holes, levels)


def _spread(length: int, side: int) -> list[int]:
    """Where the crops begin along one side of a picture."""
    crops = min(MOST, max(1, length // (2 * side)))
    last = max(0, length - side)
    return [k * last // (crops - 1) for k in range(crops)] if crops > 1 else [last // 2]
