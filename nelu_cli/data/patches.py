"""Training patches: which ones a step sees depends on the seed and the step, on nothing else.

So a run that is interrupted and resumed, or split over several processes, sees the same patches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nelu_cli.data.sets import load_pixels
from nelu_cli.errors import DatasetError
from nelu_cli.noise import WHITE, WHITE_LIKE, NoiseMix, draw_noise, white_like
from nelu_cli.noise.filters import FloatImage, to_ycc

Pixels = NDArray[np.uint8]
LARGE = 500_000
"""Pictures with more pixels than this may be scaled down before a patch is cut."""
MARGIN = 16
"""Pixels that patches with other than white noise are larger by, at first."""
SOFT = (1.5, 4.0)
"""How much softer than our training pictures a camera's full-size pictures are."""
SOFT_WHITE = (1.0, 2.5)
"""The same for the soft patches with white noise."""
CANDIDATES = 4
"""Patches of which a vivid one has the most detail."""


@dataclass(frozen=True)
class Batch:
    """Clean and noisy patches (B, C, P, P), float32; σ (0–255 scale) and contrast of each."""

    clean: Tensor
    noisy: Tensor
    sigma255: Tensor
    contrast: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        parts = (self.clean, self.noisy, self.sigma255, self.contrast)
        return Batch(*(part.to(device) for part in parts))


@dataclass(frozen=True)
class PatchSource:
    """Random patches of sets of pictures, each set drawn equally often."""

    sets: Sequence[Sequence[Pixels]]
    sigma255: tuple[float, float]
    sigma_power: float
    contrast: tuple[float, float]
    smallest_scale: float
    seed: int
    noise: NoiseMix = WHITE
    turn: bool = True
    """Flip and turn the patches at random."""
    grey: bool = False
    """Make grey patches of colour pictures."""
    recolour: float = 0.0
    """Share of the patches whose colours are changed, for pictures unlike the training sets."""
    soft: float = 0.0
    """Share of the patches with white noise that are of pictures scaled up."""
    vivid: float = 0.0
    """Share of those with white noise that have the most detail among several."""

    def batch(self, step: int, items: range, patch: int) -> Batch:
        """The given items of a step's batch: (step, item) alone decides each of them."""
        pairs = [self._pair(np.random.default_rng((self.seed, step, i)), patch) for i in items]
        clean, noisy, sigma, contrast = zip(*pairs, strict=True)
        return Batch(
            torch.from_numpy(np.stack(clean)).permute(0, 3, 1, 2),
            torch.from_numpy(np.stack(noisy)).permute(0, 3, 1, 2),
            torch.tensor(sigma, dtype=torch.float32),
            torch.tensor(contrast, dtype=torch.float32),
        )

    def _pair(
        self, rng: np.random.Generator, patch: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], float, float]:
        kind = self.noise.draw(rng)
        picture = self._picture(rng)
        if kind in WHITE_LIKE:
            if self.vivid > 0 and rng.uniform() < self.vivid:
                cut = self._vivid(rng, patch)
            else:
                soft = self.soft > 0 and rng.uniform() < self.soft
                cut = self._cut(rng, picture, patch, SOFT_WHITE if soft else None)
            pixels = self._turned(rng, cut)
            contrast = float(rng.uniform(*self.contrast))
            clean = np.multiply(pixels, np.float32(contrast / 255), dtype=np.float32)
            clean = self._recoloured(rng, clean)
            if self.grey and clean.shape[-1] == 3:
                clean = to_ycc(clean)[..., :1]
            low, high = self.sigma255
            sigma255 = low + (high - low) * float(rng.uniform()) ** self.sigma_power
            noise = white_like(kind, clean.shape, rng)
            return clean, clean + noise * np.float32(sigma255 / 255), sigma255, contrast
        # Other kinds begin with a larger patch, of which JPEG's grid and the borders are cut off.
        soft = rng.uniform() < (0.95 if kind == "camera" else 0.5)
        cut = self._cut(rng, picture, patch + MARGIN, SOFT if soft else None)
        pixels = self._turned(rng, cut)
        clean = np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)
        pair = draw_noise(self._recoloured(rng, clean), kind, rng)
        top, left = rng.integers(MARGIN + 1, size=2)
        clean, noisy = (part[top : top + patch, left : left + patch] for part in pair)
        if self.grey:
            clean, noisy = to_ycc(clean)[..., :1], to_ycc(noisy)[..., :1]
        return clean, noisy, float((noisy - clean).std()) * 255, 1.0

    def _picture(self, rng: np.random.Generator) -> Pixels:
        pictures = self.sets[int(rng.integers(len(self.sets)))]
        return pictures[int(rng.integers(len(pictures)))]

    def _vivid(self, rng: np.random.Generator, patch: int) -> Pixels:
        """Of several patches, that with the most detail.

        Most patches have hardly any, and a network that sees few others takes it for noise. Colour
        pictures are scaled down, for JPEGs have colour at half the resolution.
        """
        pictures = [self._picture(rng) for _ in range(CANDIDATES)]
        zooms = [(self.smallest_scale, 1.0) if p.shape[-1] == 3 else None for p in pictures]
        cuts = [self._cut(rng, p, patch, z) for p, z in zip(pictures, zooms, strict=True)]
        return max(cuts, key=detail)

    def _turned(self, rng: np.random.Generator, pixels: Pixels) -> Pixels:
        """In one of the eight orientations."""
        if not self.turn:
            return pixels
        if rng.integers(2):
            pixels = pixels[:, ::-1]
        return np.rot90(pixels, int(rng.integers(4)))

    def _recoloured(self, rng: np.random.Generator, clean: FloatImage) -> FloatImage:
        """Other colours: channels in another order, gammas, gains; then stronger, or mixed.

        Half of them have 0.5 to 3 times the saturation. In the other half the colours are turned
        about their mean, up to any direction in red, green and blue, so that fine detail of
        brightness becomes detail of colour, of which JPEGs of half the resolution in colour have
        none.
        """
        if not self.recolour or clean.shape[-1] != 3 or rng.uniform() >= self.recolour:
            return clean
        white = max(float(clean.max()), 1e-6)
        colours = clean[..., rng.permutation(3)] / np.float32(white)
        colours = colours ** np.exp(rng.uniform(-0.4, 0.4, rng.choice((1, 3)))).astype(np.float32)
        colours = colours * rng.uniform(0.6, 1, 3).astype(np.float32)
        if rng.integers(2):
            centre = to_ycc(colours)[..., :1]
            change = np.eye(3) * np.exp(rng.uniform(-0.7, 1.1))
        else:
            centre = colours.mean((0, 1))
            turned = np.linalg.qr(rng.standard_normal((3, 3))).Q * rng.choice((-1, 1), 3)
            change = np.eye(3) + rng.uniform() * (turned - np.eye(3))
        colours = centre + (colours - centre) @ change.astype(np.float32)
        return np.asarray(np.clip(colours, 0, 1) * np.float32(white), np.float32)

    def _cut(
        self,
        rng: np.random.Generator,
        pixels: Pixels,
        patch: int,
        zoom: tuple[float, float] | None = None,
    ) -> Pixels:
        """A square patch, now and then of a picture scaled down, for detail of all sizes.

        With ``zoom``, of a picture scaled by a factor of that range: above 1, as soft as a camera's
        full-size picture. A picture smaller than the patch is scaled up, too.
        """
        height, width = pixels.shape[:2]
        side = patch
        if zoom is not None:
            side = max(1, int(patch / rng.uniform(*zoom)))
        elif height * width > LARGE and rng.integers(2):
            side = int(patch / rng.uniform(self.smallest_scale, 1))
        side = min(side, height, width)
        top, left = rng.integers(height - side + 1), rng.integers(width - side + 1)
        cut = pixels[top : top + side, left : left + side]
        if side == patch:
            return cut
        image = Image.fromarray(cut.squeeze(-1) if cut.shape[-1] == 1 else cut)
        resized = image.resize((patch, patch), Image.Resampling.BICUBIC)
        return np.asarray(resized).reshape(patch, patch, -1)


def detail(pixels: Pixels | FloatImage) -> float:
    """How much neighbours differ: in red and blue, less green; in grey, where that is all."""
    values = pixels.astype(np.float32)
    if values.shape[-1] == 3:
        values = values[..., ::2] - values[..., 1:2]
    return float(sum(np.abs(np.diff(values, axis=axis)).mean() for axis in (0, 1)))


def load_pictures(paths: Sequence[Path], channels: int) -> tuple[list[Pixels], int]:
    """Decode pictures into memory; return them and how many could not be read."""
    if not paths:
        raise DatasetError("there are no pictures to train on")
    pictures, unreadable = [], 0
    for path in paths:
        try:
            pictures.append(load_pixels(path, channels))
        except DatasetError:
            unreadable += 1
    if not pictures:
        raise DatasetError(f"{paths[0].parent}: none of the {len(paths)} pictures can be read")
    return pictures, unreadable
