"""Continuing a picture beyond its border."""

from torch import Tensor
from torch.nn import functional as F

__all__ = ["pad_image"]


def pad_image(image: Tensor, left: int, right: int, top: int, bottom: int) -> Tensor:
    """Mirror (B, C, H, W) at its borders; repeat the border where the picture is too small."""
    height, width = image.shape[-2:]
    sideways = "reflect" if max(left, right) < width else "replicate"
    upright = "reflect" if max(top, bottom) < height else "replicate"
    if sideways == upright:
        return F.pad(image, (left, right, top, bottom), mode=sideways)
    image = F.pad(image, (left, right, 0, 0), mode=sideways)
    return F.pad(image, (0, 0, top, bottom), mode=upright)
