"""Gain and read noise of a sensor, estimated from one picture."""

import numpy as np
from numpy.typing import NDArray

from nelu_cli.raw.anscombe import SensorNoise

_BLOCK = 16  # pixels of one colour, the side of the blocks that are judged
_BINS = 24  # of brightness, with equally many blocks
_CALMEST = 0.2  # the share of the blocks of a bin below its measure: texture only adds
_CALMEST_NORMAL = -0.8416  # the same of the normal distribution
_CLIPPED = 0.9  # of white: brighter blocks may be cut off
_PASSES = 5
_ROUNDS = 20  # of the fit, in which bins far off lose weight


def estimate_sensor_noise(
    planes: NDArray[np.float32], white: float, *, least_variance: float = 1 / 12
) -> SensorNoise:
    """Fit variance = gain · signal + variance to planes (H, W, 4) of single colours, black being 0.

    The diagonal detail of 2×2 pixels, (p − q − r + s)/2, has the variance of the noise and hardly
    any picture in it. Its mean square over a block of 64 such is noise plus texture; among blocks
    of like brightness the calmest fifth show the noise alone. That quantile of a χ² of 64 is known,
    so it gives the variance without bias, bin by bin. A line is fitted to the bins.

    ``least_variance`` is what rounding to whole numbers makes.
    """
    height, width = (side // _BLOCK * _BLOCK for side in planes.shape[:2])
    if min(height, width) == 0:
        return SensorNoise(1.0, max(least_variance, 1e-6))
    cells = planes[:height, :width].reshape(height // 2, 2, width // 2, 2, -1).astype(np.float64)
    detail = (cells[:, 0, :, 0] - cells[:, 0, :, 1] - cells[:, 1, :, 0] + cells[:, 1, :, 1]) / 2
    energy, mean = _block_mean(detail**2), _block_mean(cells.mean((1, 3)))
    brightest = (
        planes[:height, :width]
        .reshape(height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK, -1)
        .max(axis=(1, 3))
    )
    energy, mean, brightest = energy.ravel(), mean.ravel(), brightest.ravel()
    usable = brightest < _CLIPPED * white
    if usable.sum() < 2 * _BINS:
        usable[:] = True
    energy, mean = energy[usable], np.maximum(mean[usable], 0)
    bins = np.array_split(np.argsort(mean), min(_BINS, len(mean)))
    levels = np.array([mean[part].mean() for part in bins])
    count = (_BLOCK // 2) ** 2
    share = 2 / (9 * count)  # Wilson and Hilferty: the cube root of χ²/n is nearly normal
    quantile = (1 - share + _CALMEST_NORMAL * share**0.5) ** 3
    noise = SensorNoise(1.0, 1.0 + float(levels.max()))  # the same everywhere, to begin with
    for _ in range(_PASSES):  # blocks of a bin are not quite alike: compare with what is expected
        ratio = energy / (noise.gain * mean + noise.variance)
        found = np.array([np.quantile(ratio[part], _CALMEST) for part in bins]) / quantile
        noise = _fit(levels, found * (noise.gain * levels + noise.variance), least_variance)
    return noise


def _block_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over blocks of what there is of 2×2 cells: (H/2, W/2, C) to (H/16, W/16, C)."""
    side = _BLOCK // 2
    height, width, channels = values.shape
    blocks = values.reshape(height // side, side, width // side, side, channels)
    means: NDArray[np.float64] = blocks.mean(axis=(1, 3))
    return means


def _fit(levels: NDArray[np.float64], variances: NDArray[np.float64], least: float) -> SensorNoise:
    """The line through the bins; each counts by the inverse of its variance.

    Those far above it count by less: texture only adds.
    """
    trust = np.ones_like(levels)
    gain, variance = 0.0, 0.0
    for _ in range(_ROUNDS):
        weight = trust / np.maximum(variances, least) ** 2
        total = weight.sum()
        middle, height = (weight @ levels) / total, (weight @ variances) / total
        spread = weight @ (levels - middle) ** 2
        slope = (weight @ ((levels - middle) * (variances - height))) / max(spread, 1e-30)
        gain = max(slope, 0.0)
        variance = height - gain * middle
        if variance < least:  # then the line goes through the least
            variance = least
            gain = (weight @ (levels * (variances - least))) / max(weight @ levels**2, 1e-30)
        expected = np.maximum(gain * levels + variance, least)
        trust = 1 / (1 + (np.maximum(variances - expected, 0) / (0.1 * expected)) ** 2)
    smallest = max(float(levels.max()), 1.0) * 1e-9
    return SensorNoise(max(float(gain), smallest), max(float(variance), least))
