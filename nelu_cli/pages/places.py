"""Where to look closely: the busiest and the flattest place of a picture."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 16  # pixels: places start at multiples of this
_DARK, _LIGHT = 12.0, 243.0  # mean levels beyond which noise is likely clipped away

Place = tuple[slice, slice]  # rows and columns


def busiest_and_flattest(pixels: NDArray[np.uint8], side: int) -> tuple[Place, Place]:
    """The squares of ``side`` pixels with the most and with the least detail.

    Detail is the mean absolute difference between neighbours, of a picture (H, W, C) that is
    already clean. The flattest place is sought where the picture is neither black nor white.
    """
    height, width = pixels.shape[:2]
    side = min(side, height, width)
    detail, level = _block_means(pixels)
    window = max(1, side // _BLOCK)
    activity, brightness = _window_means(detail, window), _window_means(level, window)
    inside = (brightness > _DARK) & (brightness < _LIGHT)
    calm = np.where(inside, activity, np.inf) if inside.any() else activity

    def place(index: np.intp) -> Place:
        row, col = np.unravel_index(index, activity.shape)
        top = min(int(row) * _BLOCK, height - side)
        left = min(int(col) * _BLOCK, width - side)
        return slice(top, top + side), slice(left, left + side)

    return place(np.argmax(activity)), place(np.argmin(calm))


def _block_means(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean absolute difference between neighbours, and mean level, of blocks of 16×16 pixels."""
    height, width = pixels.shape[:2]
    rows, cols = np.arange(0, height, _BLOCK), np.arange(0, width, _BLOCK)
    detail, level = np.zeros((len(rows), len(cols))), np.zeros((len(rows), len(cols)))
    for index, top in enumerate(rows):
        band = pixels[top : top + _BLOCK + 1].astype(np.float64).mean(-1)
        down = np.zeros_like(band)
        down[:-1] = np.abs(np.diff(band, axis=0))
        across = np.abs(np.diff(band, axis=1, append=band[:, -1:]))
        count = min(_BLOCK, height - top)
        for total, values in ((detail, down + across), (level, band)):
            sums = np.add.reduceat(values[:count].sum(0), cols)
            total[index] = sums / count / np.diff(np.append(cols, width))
    return detail, level


def _window_means(blocks: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Means over window × window blocks, wherever they fit."""
    for axis in (0, 1):
        size = min(window, blocks.shape[axis])
        blocks = np.lib.stride_tricks.sliding_window_view(blocks, size, axis).mean(-1)
    return blocks
