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

__all__ = ["Batch", "PatchSource", "load_pictures"]

Pixels = NDArray[np.uint8]
LARGE = 500_000
"""Pictures with more pixels than this may be scaled down before a patch is cut."""


@dataclass(frozen=True)
class Batch:
    """Clean and noisy patches (B, C, P, P), float32; σ (0–255 scale) and contrast of each."""

    clean: Tensor
    noisy: Tensor
    sigma255: Tensor
    contrast: Tensor


@dataclass(frozen=True)
class PatchSource:
    """Random patches of sets of pictures, each set drawn equally often."""

    sets: Sequence[Sequence[Pixels]]
    sigma255: tuple[float, float]
    sigma_power: float
    contrast: tuple[float, float]
    smallest_scale: float
    seed: int
    turn: bool = True  # flipped and turned at random

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
        pictures = self.sets[int(rng.integers(len(self.sets)))]
        pixels = self._cut(rng, pictures[int(rng.integers(len(pictures)))], patch)
        if self.turn:
            if rng.integers(2):
                pixels = pixels[:, ::-1]
            pixels = np.rot90(pixels, int(rng.integers(4)))
        contrast = float(rng.uniform(*self.contrast))
        clean = np.multiply(pixels, np.float32(contrast / 255), dtype=np.float32)
        low, high = self.sigma255
        sigma255 = low + (high - low) * float(rng.uniform()) ** self.sigma_power
        noise = rng.standard_normal(clean.shape, dtype=np.float32)
        return clean, clean + noise * np.float32(sigma255 / 255), sigma255, contrast

    def _cut(self, rng: np.random.Generator, pixels: Pixels, patch: int) -> Pixels:
        """A square patch, now and then of a picture scaled down, for detail of all sizes.

        A picture smaller than the patch is scaled up: smooth, but better than leaving it out.
        """
        height, width = pixels.shape[:2]
        side = patch
        if height * width > LARGE and rng.integers(2):
            side = int(patch / rng.uniform(self.smallest_scale, 1))
        side = min(side, height, width)
        top, left = rng.integers(height - side + 1), rng.integers(width - side + 1)
        cut = pixels[top : top + side, left : left + side]
        if side == patch:
            return cut
        image = Image.fromarray(cut.squeeze(-1) if cut.shape[-1] == 1 else cut)
        resized = image.resize((patch, patch), Image.Resampling.BICUBIC)
        return np.asarray(resized).reshape(patch, patch, -1)


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
