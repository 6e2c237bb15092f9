"""What the channels of a picture are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def equal_channels(pixels: NDArray[Any]) -> bool:
    """Whether a colour picture is a grey one stored three times."""
    if pixels.shape[-1] != 3:
        return False
    few = pixels[..., ::37, ::41, :]  # most colour pictures show it here already
    return all(np.array_equal(part[..., 0], part[..., k]) for part in (few, pixels) for k in (1, 2))
