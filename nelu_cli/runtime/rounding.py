"""Rounding that keeps means where the noise is hardly above the steps of an integer type.

Noise of several levels survives rounding as a mean does: some pixels fall to one side, some to the
other. Once it is taken out, all pixels of a flat area fall to the same side, and its mean moves by
up to half a level: bands in a sky, a third more photons in a count. Dithering rounds the share of
the pixels up that the fraction says.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nelu_cli.runtime.tiling import Region

LEVELS: Final = 2.0  # of noise: above, rounding needs no help
LEAST: Final = 0.25  # of noise: below, the picture was flat before
_BLOCK: Final = 16
_BLOCKS: Final = 256  # at most, spread over the picture


def needs_dither(pixels: NDArray[Any]) -> bool:
    """Whether integer pixels (..., H, W, C) have noise, in places of less than two levels.

    Measured in blocks by differences of four neighbours, (y₀₀ − y₀₁ − y₁₀ + y₁₁)/2, which have the
    deviation of the noise.
    """
    if pixels.dtype.kind not in "ui":
        return False
    page = pixels if pixels.ndim == 3 else pixels[len(pixels) // 2]
    height, width = (max(1, length // _BLOCK) for length in page.shape[:2])
    step = max(1, round((height * width / _BLOCKS) ** 0.5))
    found = []
    for top in range(0, height, step):
        for left in range(0, width, step):
            block = page[_BLOCK * top :, _BLOCK * left :][:_BLOCK, :_BLOCK].astype(np.float64)
            difference = np.diff(np.diff(block, axis=0), axis=1) / 2
            if difference.size:
                found.append(float(np.sqrt(np.mean(difference**2))))
    if not found:
        return False
    quiet, middle = np.percentile(found, [20, 50])
    return bool(quiet < LEVELS and middle >= LEAST)


def dither(region: Region) -> NDArray[np.float32]:
    """For each pixel of a region, (h, w, 1), the fraction from which on it is rounded up.

    Multiples of two irrational numbers, modulo 1, are evenly spread over any part of the plane,
    and the same whichever way the picture is cut into tiles.
    """
    rows, cols = (np.arange(part.start, part.stop) for part in region)
    places = rows[:, None] * 0.7548776662466927 + cols * 0.5698402909980532
    return (places % 1).astype(np.float32)[..., None]
