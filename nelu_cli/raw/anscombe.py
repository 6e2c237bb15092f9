"""Make the noise of a sensor white: the generalised Anscombe transform and its unbiased inverse.

A sensor's value is y = a·p + n: p photons counted (Poisson), a the gain, n Gaussian of variance b.
So the variance of y is a·E y + b. In units of photons, x = y/a and s² = b/a²,

    z = 2·√(x + 3/8 + s²)

has a deviation of nearly 1 whatever the light. After z has been cleaned, squaring it would be
biased, since the mean of a root is less than the root of the mean. The exact unbiased inverse is
the x for which E z is the clean z; E z is computed here, and turned round by interpolation.

References
----------
M. Mäkitalo and A. Foi, "Optimal inversion of the generalized Anscombe transformation for
Poisson-Gaussian noise", IEEE Transactions on Image Processing 22 (2013).
"""

from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

_TABLE_END = 120.0  # photons; beyond, the series is exact to 1e-6
_MUCH_SPREAD = 50.0  # squared photons: here z is large even in the dark, and the series will do
_TABLE_POINTS = 600
_NODES = 41  # of the quadrature over the Gaussian part


@dataclass(frozen=True)
class SensorNoise:
    """Variance = gain · signal + variance, in the values of a file, black being 0."""

    gain: float
    variance: float

    def __post_init__(self) -> None:
        if not (self.gain > 0 and self.variance >= 0):
            raise ValueError(f"no sensor noise: gain {self.gain}, variance {self.variance}")

    def deviation(self, signal: float) -> float:
        """The standard deviation at a signal."""
        return sqrt(self.gain * max(signal, 0.0) + self.variance)

    @property
    def spread(self) -> float:
        """s²: the Gaussian part in squared photons."""
        return self.variance / self.gain**2


def stabilise(signal: NDArray[np.float32], noise: SensorNoise) -> NDArray[np.float32]:
    """z, of deviation 1, from values whose black is 0."""
    offset = 0.375 + noise.spread
    z: NDArray[np.float32] = 2 * np.sqrt(
        np.maximum(signal / np.float32(noise.gain) + np.float32(offset), 0)
    )
    return z


def destabilise(z: NDArray[np.float32], noise: SensorNoise) -> NDArray[np.float32]:
    """The signal whose mean z is the given one."""
    values = _series(z, noise.spread)
    if noise.spread < _MUCH_SPREAD:
        photons, means = _table(noise.spread)
        values = np.where(z > means[-1], values, np.interp(z, means, photons).astype(np.float32))
    signal: NDArray[np.float32] = (values * np.float32(noise.gain)).astype(np.float32)
    return signal


def _series(z: NDArray[np.float32], spread: float) -> NDArray[np.float32]:
    """The inverse for much light: z²/4 less the bias, in powers of 1/z."""
    root, d = sqrt(1.5), np.maximum(z, 1).astype(np.float64)
    value = d**2 / 4 + root / 4 / d - 11 / 8 / d**2 + 5 / 8 * root / d**3 - 1 / 8 - spread
    return value.astype(np.float32)


@cache
def _table(spread: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Photons x and the mean of z for them, from darkness on; z rises with x."""
    end = _TABLE_END + 20 * spread
    photons = end * np.linspace(0, 1, _TABLE_POINTS) ** 2
    counts = np.arange(int(end + 12 * sqrt(end) + 30))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    # E over the Gaussian part, for each count of photons
    values = counts[:, None] + sqrt(spread) * nodes + 0.375 + spread
    roots = (2 * np.sqrt(np.maximum(values, 0))) @ weights  # (counts,)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, len(counts))))])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_rate = np.where(photons > 0, np.log(np.maximum(photons, 1e-300)), -np.inf)
        exponent = counts * log_rate[:, None] - photons[:, None] - logs
    exponent[0] = np.where(counts == 0, 0.0, -np.inf)  # no light: no photon
    probability = np.exp(exponent)
    means = (probability @ roots) / probability.sum(1)
    return photons, means
