"""Pixels of any type and range: what they are, as float32 tensors, and back by subtraction."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from nelu_cli.errors import ImageError
from nelu_cli.images import row_slices, to_dtype, white_of
from nelu_cli.runtime.holes import Holes, extremes, value_range
from nelu_cli.runtime.models import Model

LARGEST_PIXEL: Final = 1e38  # so that the next power of two is a float32
HARDLY: Final = 1 / 16  # of a level: too little to be seen, and not worth a change
PEDESTAL: Final = 8  # times the range of a picture, above which its middle value is subtracted


@dataclass(frozen=True)
class Levels:
    """How pixels become the numbers that a network sees: (value − middle)/scale."""

    middle: float  # 0 unless the picture stands on a pedestal; a whole number for integer pixels
    scale: float


def check_pixels(pixels: NDArray[Any], model: Model) -> None:
    """Refuse what is no picture, and a picture that is not for this model."""
    if pixels.dtype.kind not in "uif":
        raise ImageError(
            f"pixels of type {pixels.dtype} cannot be denoised; use integers or floats"
        )
    if pixels.size == 0:
        raise ImageError(f"an array of shape {pixels.shape} holds no pixels")
    channels = pixels.shape[-1]
    if model.channels not in (1, channels):
        raise ImageError(
            f"model {model.name} needs {model.channels} channels, the picture has "
            f"{channels}; choose another model or leave the choice to nelu"
        )


def equal_channels(pixels: NDArray[Any]) -> bool:
    """Whether a colour picture is a grey one stored three times."""
    if pixels.shape[-1] != 3:
        return False
    few = pixels[..., ::37, ::41, :]  # most colour pictures show it here already
    return all(np.array_equal(part[..., 0], part[..., k]) for part in (few, pixels) for k in (1, 2))


def find_levels(pixels: NDArray[Any], holes: Holes | None = None) -> Levels:
    """The pedestal, if any, and the scale: the dtype's white, unless the values are far from it.

    The default networks do not care (they are equivariant to both); this keeps their arithmetic
    away from the ends of float32, and the noise above its last digits. Networks with a learned
    bias want 8-bit or 0–1 pictures at full contrast, as they were trained on.
    """
    white = white_of(pixels.dtype)
    least, most = extremes(pixels, holes)
    peak = max(abs(least), abs(most))
    if peak > LARGEST_PIXEL:
        raise ImageError(
            f"pixel values reach {peak:.3g}, perhaps a mark of missing pixels; replace them first"
        )
    low, high = value_range(pixels, holes)
    middle = low + (high - low) / 2
    if abs(middle) <= PEDESTAL * (high - low):
        middle = 0.0
    elif pixels.dtype.kind in "ui":
        middle = float(round(middle))
    peak = max(abs(value - middle) for value in (least, most))
    if peak == 0 or white / 256 <= peak <= white * 256:
        return Levels(middle, white)
    return Levels(middle, 2.0 ** math.ceil(math.log2(peak)))


def to_tensor(pixels: NDArray[Any], levels: Levels) -> Tensor:
    """(h, w, C) pixels as a float32 tensor (C, h, w)."""
    height, width, channels = pixels.shape
    planes = np.empty((channels, height, width), np.float32)
    for rows in row_slices(pixels.shape):
        planes[:, rows] = (_centred(pixels[rows], levels) / levels.scale).transpose(2, 0, 1)
    return torch.from_numpy(planes)


def _centred(pixels: NDArray[Any], levels: Levels) -> NDArray[np.floating[Any]]:
    """Pixels less their middle, subtracted before anything is rounded."""
    wide = _wide(pixels.dtype)
    if pixels.dtype.kind in "ui" and pixels.dtype.itemsize == 8:  # more digits than a float
        middle = np.array(int(levels.middle)).astype(pixels.dtype)
        centred: NDArray[Any] = (pixels - middle).astype(np.int64)  # wraps around, rightly
        return centred.astype(np.float64)
    values: NDArray[np.floating[Any]] = pixels.astype(wide) - wide.type(levels.middle)
    return values


def subtract(
    pixels: NDArray[Any],
    removed: NDArray[np.floating[Any]],
    dtype: DTypeLike,
    threshold: NDArray[np.float32] | None = None,
) -> NDArray[Any]:
    """(h, w, C) pixels less what is removed from them, in pixel values, as ``dtype``.

    ``threshold`` (h, w, 1) says for each pixel from which fraction on it is rounded up; by default
    values are rounded to the nearest.
    """
    dtype = np.dtype(dtype)
    if pixels.dtype.kind in "ui" and pixels.dtype.itemsize == 8 and dtype == pixels.dtype:
        less = np.rint(removed).astype(np.int64).astype(dtype)
        result: NDArray[Any] = pixels - less  # wraps around
        info = np.iinfo(dtype)
        result[(removed > 0) & (result > pixels)] = info.min
        result[(removed < 0) & (result < pixels)] = info.max
        return result
    wide = _wide(pixels.dtype)
    values = pixels.astype(wide) - removed.astype(wide, copy=False)
    if threshold is not None and dtype.kind in "ui":
        values = np.where(np.abs(removed) < HARDLY, values, np.floor(values + threshold))
    return to_dtype(values, dtype)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type that holds every value of ``dtype``, or nearly."""
    narrow = dtype.itemsize <= 2 or dtype == np.float32
    return np.dtype(np.float32 if narrow else np.float64)
