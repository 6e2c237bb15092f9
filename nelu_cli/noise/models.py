"""Noise that is the same on every run: seeded functions, used by training and evaluation alike."""

import hashlib
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nelu_cli.errors import DatasetError

__all__ = ["NoiseKind", "add_noise", "noise_seed"]

NoiseKind = Literal["gaussian", "poisson", "speckle", "uniform", "spatial"]


def noise_seed(file_name: str, sigma255: float, seed: int) -> int:
    """One seed for each picture and level, independent of the order of a run."""
    text = f"{file_name}|{sigma255:g}|{seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def add_noise(
    clean: NDArray[np.float32], kind: NoiseKind, sigma255: float, seed: int
) -> NDArray[np.float32]:
    """Noisy copy of a clean (H, W, C) picture in 0–1; neither clipped nor rounded.

    With s = sigma255 / 255, x the clean picture and n standard normal:

    - ``gaussian``: y = x + s·n
    - ``uniform``: y = x + s·√3·u, u uniform in [−1, 1]
    - ``poisson``: y = Poisson(p·x)/p with p = mean(x)/s², so that the mean variance is s²
    - ``speckle``: y = x + s·x·n/√mean(x²), so that the mean variance is s²
    - ``spatial``: y = x + t·n, t rising linearly from s/10 at the left border to s at the right
    """
    if kind not in get_args(NoiseKind):
        raise DatasetError(f"{kind}: no such noise; choose from {', '.join(get_args(NoiseKind))}")
    rng = np.random.default_rng(seed)
    s = np.float32(sigma255 / 255)
    if kind == "uniform":
        return clean + s * np.float32(3**0.5) * rng.uniform(-1, 1, clean.shape).astype(np.float32)
    if kind == "poisson":
        if s == 0 or not clean.any():
            return clean.copy()
        peak = float(clean.mean()) / float(s) ** 2
        return (rng.poisson(peak * clean.astype(np.float64)) / peak).astype(np.float32)
    noise = s * rng.standard_normal(clean.shape, dtype=np.float32)
    if kind == "speckle":
        rms = np.float32(np.sqrt(np.mean(clean**2)) + 1e-12)
        return clean + noise * clean / rms
    if kind == "spatial":
        ramp = np.linspace(0.1, 1, clean.shape[1], dtype=np.float32)
        return clean + noise * ramp[None, :, None]
    return clean + noise
