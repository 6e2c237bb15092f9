"""The kinds of noise by name: one level and one seed for a test, random settings for training."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, get_args

import numpy as np

from nelu_cli.errors import DatasetError
from nelu_cli.noise.camera import camera, draw_camera
from nelu_cli.noise.filters import (
    FloatImage,
    blur,
    from_ycc,
    jpeg_round_trip,
    mean_over_noise,
    quantise,
)
from nelu_cli.words import NoiseKind

WHITE_LIKE: Final = ("white", "coupled")
"""Kinds that are white from pixel to pixel, for which training asks the level."""


class NoisyPair(NamedTuple):
    """A noisy picture and what a denoiser should make of it, (H, W, C)."""

    clean: FloatImage
    noisy: FloatImage


def noise_seed(file_name: str, sigma255: float, seed: int) -> int:
    """One seed for each picture and level, independent of the order of a run."""
    text = f"{file_name}|{sigma255:g}|{seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def add_noise(clean: FloatImage, kind: NoiseKind, sigma255: float, seed: int) -> NoisyPair:
    """Noise of a kind and level on a clean (H, W, C) picture in 0–1.

    With s = sigma255 / 255, x the clean picture and n standard normal, neither clipped nor rounded:

    - ``white``: y = x + s·n
    - ``coupled``: white from pixel to pixel, but not from channel to channel, see :func:`coupled`
    - ``uniform``: y = x + s·√3·u, u uniform in [−1, 1]
    - ``poisson``: y = Poisson(p·x)/p with p = mean(x)/s², so that the mean variance is s²
    - ``speckle``: y = x + s·x·n/√mean(x²), so that the mean variance is s²
    - ``spatial``: y = x + t·n, t rising linearly from s/10 at the left border to s at the right

    ``camera``, ``correlated``, ``grain``, ``scan`` and ``jpeg`` have random settings that the seed
    decides (see :data:`DRAWN`). Their noise is scaled to the deviation s, then rounded to 8 bits
    and compressed; ``jpeg`` is compression alone, of the quality whose error is closest to s.
    """
    if kind not in get_args(NoiseKind):
        raise DatasetError(f"{kind}: no such noise; choose from {', '.join(get_args(NoiseKind))}")
    rng = np.random.default_rng(seed)
    s = np.float32(sigma255 / 255)
    if kind in DRAWN:
        return _drawn_at(clean, kind, float(s), rng)
    if kind == "uniform":
        noise = s * np.float32(3**0.5) * rng.uniform(-1, 1, clean.shape).astype(np.float32)
        return NoisyPair(clean, clean + noise)
    if kind == "poisson":
        if s == 0 or not clean.any():
            return NoisyPair(clean, clean.copy())
        peak = float(clean.mean()) / float(s) ** 2
        counts = rng.poisson(peak * clean.astype(np.float64))
        return NoisyPair(clean, (counts / peak).astype(np.float32))
    noise = s * white_like(kind, clean.shape, rng)
    if kind == "speckle":
        noise = noise * clean / np.float32(np.sqrt(np.mean(clean**2)) + 1e-12)
    if kind == "spatial":
        noise = noise * np.linspace(0.1, 1, clean.shape[1], dtype=np.float32)[None, :, None]
    return NoisyPair(clean, clean + noise)


def white_like(kind: NoiseKind, shape: tuple[int, ...], rng: np.random.Generator) -> FloatImage:
    """Noise of :data:`WHITE_LIKE`, of deviation 1."""
    if kind == "coupled":
        return coupled(shape, rng)
    return rng.standard_normal(shape, dtype=np.float32)


def coupled(shape: tuple[int, ...], rng: np.random.Generator) -> FloatImage:
    """√ρ·t·m + √(1 − ρ)·d·n: a random share ρ of the noise has one colour t, (H, W, C).

    With m standard normal, the same in all channels, and n in each. The tint t is grey, as in a
    grey picture that is stored as colour, sepia or the like, or, as after a camera's colour
    matrix, anything; ρ is 1 in a third; channels are unequally noisy by d. On average over the
    channels the variance is 1.
    """
    channels = shape[-1]
    tints = (
        np.ones(channels),
        np.exp(rng.uniform(-0.7, 0.7, channels)),
        rng.standard_normal(channels),
    )
    tint = tints[int(rng.integers(3))]
    gains = np.exp(rng.uniform(-0.7, 0.7, channels))
    share = 1.0 if rng.uniform() < 1 / 3 else rng.uniform()
    one = rng.standard_normal((*shape[:-1], 1), dtype=np.float32)
    each = rng.standard_normal(shape, dtype=np.float32)
    tint, gains = (part / np.sqrt(np.mean(part**2)) for part in (tint, gains))
    return one * np.float32(share**0.5 * tint) + each * np.float32((1 - share) ** 0.5 * gains)


def draw_noise(
    clean: FloatImage, kind: NoiseKind, rng: np.random.Generator, level: float | None = None
) -> NoisyPair:
    """Noise of a kind with random settings and, unless given, a random level (deviation)."""
    pair = DRAWN[kind](clean, rng)
    if level is not None and kind != "jpeg":
        noise = pair.noisy - pair.clean
        factor = np.float32(level / (float(noise.std()) + 1e-8))
        pair = NoisyPair(pair.clean, pair.clean + noise * factor)
    clean = mean_over_noise(lambda shot: np.clip(shot, 0, 1), pair.clean, pair.noisy - pair.clean)
    compressed = {"jpeg": 1.0, "scan": 1.0, "camera": 0.7}.get(kind, 0.4)
    noisy = quantise(pair.noisy)
    if rng.uniform() < compressed:
        lowest = 20 if kind == "jpeg" else 60
        quality = 99 - int((99 - lowest) * rng.uniform() ** (1 if kind == "jpeg" else 2))
        subsampling = ("4:4:4", "4:2:2", "4:2:0")[int(rng.integers(3))]
        return NoisyPair(clean, jpeg_round_trip(noisy, quality, subsampling))
    return NoisyPair(clean, noisy.astype(np.float32) / np.float32(255))


def _drawn_at(
    clean: FloatImage, kind: NoiseKind, level: float, rng: np.random.Generator
) -> NoisyPair:
    grey = clean.shape[-1] == 1
    colour = clean.repeat(3, -1) if grey else clean
    if kind == "jpeg":
        pairs = [
            NoisyPair(colour, jpeg_round_trip(quantise(colour), quality, "4:2:0"))
            for quality in range(5, 100, 5)
        ]
        pair = min(pairs, key=lambda p: abs(float((p.noisy - p.clean).std()) - level))
    else:
        pair = draw_noise(colour, kind, rng, level)
    return NoisyPair(pair.clean[..., 1:2], pair.noisy[..., 1:2]) if grey else pair


# Random settings, for pictures (H, W, 3). Rounding and JPEG come afterwards, in draw_noise.


def _camera(clean: FloatImage, rng: np.random.Generator) -> NoisyPair:
    """A random camera: see :func:`nelu_cli.noise.camera.camera`."""
    return NoisyPair(*camera(clean, draw_camera(rng), rng))


def _correlated(clean: FloatImage, rng: np.random.Generator) -> NoisyPair:
    """Gaussian noise, luma blurred by 0–1.2 pixels and chroma by 0–3.5.

    Its deviation changes with brightness x as a + b·x. A fifth is equal in all three channels, as
    in a grey picture that is stored as colour.
    """
    bright = clean.mean(-1, keepdims=True)
    noise = rng.standard_normal(clean.shape, dtype=np.float32)
    luma = _unit(blur(noise[..., :1], rng.uniform(0, 1.2)))
    chroma = _unit(blur(noise[..., 1:], rng.uniform(0, 3.5))) * np.float32(rng.uniform(0.1, 1.3))
    if rng.uniform() < 0.2:
        chroma = np.zeros_like(chroma)
    a, b = rng.uniform(0.2, 1), rng.uniform(-0.2, 1)
    level = np.float32(_level(rng)) * (np.float32(a) + np.float32(b) * bright)
    return NoisyPair(clean, clean + from_ycc(np.concatenate([luma, chroma], -1)) * level)


def _grain(clean: FloatImage, rng: np.random.Generator) -> NoisyPair:
    """Film: equal in all channels, blurred by 0.4–1.6 pixels, strongest in mid-tones.

    Its deviation is s·(0.3 + 2.8·x·(1 − x)) for brightness x.
    """
    bright = clean.mean(-1, keepdims=True)
    noise = rng.standard_normal((*clean.shape[:2], 1), dtype=np.float32)
    noise = _unit(blur(noise, rng.uniform(0.4, 1.6)))
    return NoisyPair(
        clean, clean + noise * np.float32(_level(rng)) * (0.3 + 2.8 * bright * (1 - bright))
    )


def _scan(clean: FloatImage, rng: np.random.Generator) -> NoisyPair:
    """Paper: texture of 0.6–2.5 pixels that multiplies the brightness, and some sensor noise."""
    texture = rng.standard_normal((*clean.shape[:2], 1), dtype=np.float32)
    texture = _unit(blur(texture, rng.uniform(0.6, 2.5)))
    sensor = rng.standard_normal(clean.shape, dtype=np.float32) * np.float32(rng.uniform(0, 0.4))
    level = np.float32(_level(rng))
    return NoisyPair(clean, clean + level * (texture * (0.2 + clean) + sensor))


def _clean(clean: FloatImage, rng: np.random.Generator) -> NoisyPair:
    """Nothing: for ``jpeg``, whose noise is compression alone."""
    return NoisyPair(clean, clean)


def _level(rng: np.random.Generator) -> float:
    """A deviation of 1 to 35 of 255, small ones more often."""
    return float(1 + 34 * rng.uniform() ** 2) / 255


def _unit(noise: FloatImage) -> FloatImage:
    return noise / np.float32(float(noise.std()) + 1e-8)


DRAWN: Mapping[str, Callable[[FloatImage, np.random.Generator], NoisyPair]] = {
    "camera": _camera,
    "correlated": _correlated,
    "grain": _grain,
    "scan": _scan,
    "jpeg": _clean,
}
"""Kinds with random settings, before rounding and compression."""
