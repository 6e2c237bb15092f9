"""Continuing a picture beyond its border."""

import torch
from torch import Tensor
from torch.nn import functional as F


def pad_image(image: Tensor, left: int, right: int, top: int, bottom: int) -> Tensor:
    """Mirror (B, C, H, W) at its borders; repeat the border where the picture is too small."""
    height, width = image.shape[-2:]
    sideways = "reflect" if max(left, right) < width else "replicate"
    upright = "reflect" if max(top, bottom) < height else "replicate"
    if sideways == upright:
        return F.pad(image, (left, right, top, bottom), mode=sideways)
    image = F.pad(image, (left, right, 0, 0), mode=sideways)
    return F.pad(image, (0, 0, top, bottom), mode=upright)


def pad_far(image: Tensor, before: int, after: int) -> Tensor:
    """Mirror (B, C, H, W) on all sides, again and again where the picture is too small."""
    rest = [before, after, before, after]  # left, right, top, bottom
    while any(rest):
        height, width = (max(1, length - 1) for length in image.shape[-2:])
        step = [min(pair) for pair in zip(rest, (width, width, height, height), strict=True)]
        image = pad_image(image, *step)
        rest = [wanted - done for wanted, done in zip(rest, step, strict=True)]
    return image


def pad_rows(image: Tensor, first: int, last: int, top: int, bottom: int) -> Tensor:
    """Rows first … last − 1 of the picture padded by so much at the top and bottom.

    They are counted from the picture's first row; those still farther out repeat the outermost.
    """
    height = image.shape[-2]
    places = torch.arange(first, last, device=image.device).clamp(-top, height - 1 + bottom)
    if max(top, bottom) < height:
        places = (height - 1) - ((height - 1) - places.abs()).abs()
    return image.index_select(-2, places.clamp(0, height - 1))
