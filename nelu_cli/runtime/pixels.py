"""From pixels of any kind to float32 tensors: shape, range and type."""

import math
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nelu_cli.errors import ImageError
from nelu_cli.images import strips
from nelu_cli.runtime.models import Model

__all__ = ["as_stack", "check_pixels", "scale_of", "to_tensor", "wide_type"]

LARGEST_PIXEL: Final = 1e38  # so that the next power of two is a float32


def as_stack(array: NDArray[Any]) -> NDArray[Any]:
    """View any picture or stack as (N, H, W, C)."""
    match array.ndim:
        case 2:
            return array[np.newaxis, :, :, np.newaxis]
        case 3 if array.shape[-1] <= 4:
            return array[np.newaxis]
        case 3:
            return array[..., np.newaxis]
        case 4:
            return array
    raise ImageError(
        f"an array of shape {array.shape} is no picture; "
        "give (H, W), (H, W, C), or a stack (N, H, W) or (N, H, W, C)"
    )


def check_pixels(pixels: NDArray[Any], model: Model) -> None:
    if pixels.dtype.kind not in "uif":
        raise ImageError(
            f"pixels of type {pixels.dtype} cannot be denoised; use integers or floats"
        )
    if pixels.size == 0:
        raise ImageError(f"an array of shape {pixels.shape} holds no pixels")
    if model.channels not in (1, pixels.shape[-1]):
        raise ImageError(
            f"model {model.name} needs {model.channels} channels, the picture has "
            f"{pixels.shape[-1]}; choose another model or leave the choice to nelu"
        )


def scale_of(pixels: NDArray[Any]) -> float:
    """What to divide pixels by: the dtype's white, unless the values are far from it.

    The default networks do not care (they are scale-equivariant); this keeps their arithmetic
    away from the ends of float32. Those with a learned bias want 8-bit or 0–1 pictures at full
    contrast, as they were trained on.
    """
    white = 1.0 if pixels.dtype.kind == "f" else float(np.iinfo(pixels.dtype).max)
    with np.errstate(invalid="ignore"):
        peak = max(abs(float(pixels.min())), abs(float(pixels.max())))
    if not math.isfinite(peak):
        bad = sum(int(np.count_nonzero(~np.isfinite(row))) for row in pixels)
        raise ImageError(
            f"{bad} of {pixels.size} pixel values are not finite (NaN or infinity); "
            "replace them first"
        )
    if peak > LARGEST_PIXEL:
        raise ImageError(
            f"pixel values reach {peak:.3g}, perhaps a mark of missing pixels; replace them first"
        )
    if peak == 0 or white / 256 <= peak <= white * 256:
        return white
    return 2.0 ** math.ceil(math.log2(peak))


def wide_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type that holds every value of ``dtype``, or nearly."""
    narrow = dtype.itemsize <= 2 or dtype == np.float32
    return np.dtype(np.float32 if narrow else np.float64)


def to_tensor(pixels: NDArray[Any], scale: float) -> Tensor:
    """(h, w, C) pixels as a float32 tensor (C, h, w)."""
    height, width, channels = pixels.shape
    planes = np.empty((channels, height, width), np.float32)
    for rows in strips(pixels.shape):
        scaled = pixels[rows].astype(wide_type(pixels.dtype)) / scale
        planes[:, rows] = scaled.transpose(2, 0, 1)
    return torch.from_numpy(planes)
