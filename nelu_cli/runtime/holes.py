"""Pixels that say nothing about the picture: masked, not finite, or far outside all others.

A network would spread them over its whole reach. So they are filled for it with the mean of what
is around them, and come out as they went in.
"""

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nelu_cli.errors import ImageError
from nelu_cli.images import to_dtype
from nelu_cli.words import Nan

Holes = NDArray[np.bool_]

FAR: Final = 100
"""Ranges of nearly all values, from there to a value that is no part of the picture."""
_SAMPLE: Final = 1 << 17  # values, about, by which the range is judged


def find_holes(
    pixels: NDArray[Any], nan: Nan = "keep", masked: Holes | None = None
) -> tuple[Holes | None, tuple[str, ...]]:
    """Where (..., H, W, C) pixels are masked, not finite or far off the others; a word on each.

    Far is ``FAR`` times the range from the first to the last percentile. Values of 8 and 16 bits
    cannot be so far off that it would matter.
    """
    holes = masked
    notes: list[str] = []
    if pixels.dtype.kind == "f":
        unknown = ~np.isfinite(pixels)
        if count := np.count_nonzero(unknown if masked is None else unknown & ~masked):
            said = f"{count} of {pixels.size} pixel values are not finite (NaN or infinity)"
            if nan == "refuse":
                raise ImageError(f"{said}; replace them first, or leave them with --nan keep")
            notes.append(f"{said} and stay as they are")
            holes = unknown if holes is None else holes | unknown
    if holes is not None and holes.all():
        raise ImageError("no pixel holds a value")
    if pixels.dtype.itemsize >= 4:
        low, high = value_range(pixels, holes)
        reach = FAR * (high - low)
        least, most = extremes(pixels, holes)
        if 0 < reach < np.inf and (least < low - reach or most > high + reach):
            with np.errstate(invalid="ignore"):
                far = (pixels < low - reach) | (pixels > high + reach)
            far = far if holes is None else far & ~holes
            notes.append(
                f"{np.count_nonzero(far)} of {pixels.size} pixel values are far outside all others "
                "and stay as they are"
            )
            holes = far if holes is None else holes | far
    return holes, tuple(notes)


def value_range(pixels: NDArray[Any], holes: Holes | None) -> tuple[float, float]:
    """First and last percentile of the pixels that are no holes, from a sample."""
    step = max(1, int((pixels.size / _SAMPLE) ** 0.5))
    sample = pixels[..., ::step, ::step, :]
    sample = sample.reshape(-1) if holes is None else sample[~holes[..., ::step, ::step, :]]
    if sample.size == 0:  # all of the sample is holes
        assert holes is not None
        sample = pixels[~holes]
    sample = np.sort(sample)
    cut = (sample.size - 1) // 100
    return float(sample[cut]), float(sample[-1 - cut])


def extremes(pixels: NDArray[Any], holes: Holes | None) -> tuple[float, float]:
    """Least and largest value of the pixels that are no holes."""
    if holes is None:
        return float(pixels.min()), float(pixels.max())
    known = pixels[~holes]
    return float(known.min()), float(known.max())


def fill_holes(page: NDArray[Any], holes: Holes) -> NDArray[Any]:
    """A copy of (H, W, C) pixels in which holes hold the mean of what is around them."""
    filled = page.copy()
    for channel in np.flatnonzero(holes.any(axis=(0, 1))):
        hole = holes[..., channel]
        values = np.where(hole, 0, page[..., channel]).astype(np.float64)
        known = (~hole).astype(np.float64)
        means = _known_means(*(torch.from_numpy(plane)[None, None] for plane in (values, known)))
        filled[..., channel][hole] = to_dtype(means[0, 0].numpy()[hole], page.dtype)
    return filled


def _known_means(sums: Tensor, counts: Tensor) -> Tensor:
    """``sums / counts``; where nothing was counted, the mean of the smallest block around.

    Blocks are of 2, 4, 8 … pixels a side.
    """
    means = sums / counts.clamp(min=torch.finfo(counts.dtype).tiny)
    if bool((counts > 0).all()) or counts.numel() == 1:
        return means
    halves = (F.avg_pool2d(plane, 2, ceil_mode=True) for plane in (sums, counts))
    around = F.interpolate(_known_means(*halves), scale_factor=2)
    return torch.where(counts > 0, means, around[..., : sums.shape[-2], : sums.shape[-1]])
