"""What a run is measured on as it goes: white noise at some levels, or real pairs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nelu_cli.data.sets import ImageSet, load_clean, pairs_of
from nelu_cli.errors import DatasetError
from nelu_cli.evaluation import psnr
from nelu_cli.networks import Network
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.noise.filters import FloatImage

REAL = "real"
"""Stands for the level where the noise is a camera's own."""
SIDE, MOST = 512, 24


@dataclass(frozen=True)
class Validation:
    """The central 512 × 512 pixels of at most 24 pictures, or pairs of a noisy and a clean one."""

    name: str
    pictures: Sequence[tuple[str, FloatImage]]
    noisy: Sequence[FloatImage] = ()
    """Of a set of pairs, the noisy half."""
    unreadable: int = 0

    @classmethod
    def load(cls, images: ImageSet, channels: int, *, skip: bool = False) -> "Validation":
        """Read the pictures; leave out (and count) what cannot be read, or raise DatasetError."""
        pairs = pairs_of(images)
        if pairs:
            chosen = pairs[:: max(1, math.ceil(len(pairs) / MOST))]
            clean = [(p.clean.name, _centre(load_clean(p.clean, channels))) for p in chosen]
            return cls(images.name, clean, [_centre(load_clean(p.noisy, channels)) for p in chosen])
        paths = images.paths[:: max(1, math.ceil(len(images.paths) / MOST))]
        pictures = []
        for path in paths:
            try:
                pictures.append((path.name, _centre(load_clean(path, channels))))
            except DatasetError:
                if not skip:
                    raise
        return cls(images.name, pictures, unreadable=len(paths) - len(pictures))


@torch.inference_mode()
def validation_psnr(
    network: Network, validation: Validation, sigmas: Sequence[int]
) -> dict[str, float]:
    """Mean PSNR for each level, or that of the real pairs."""
    device = next(network.parameters()).device

    def measured(clean: FloatImage, noisy: FloatImage) -> float:
        image = torch.from_numpy(noisy).permute(2, 0, 1)[None].to(device)
        estimate = network.denoise(image)[0].clamp(0, 1)
        return psnr(clean, estimate.permute(1, 2, 0).cpu().numpy())

    cleans = [clean for _, clean in validation.pictures]
    if validation.noisy:
        return {REAL: _mean([*map(measured, cleans, validation.noisy)])}
    result = {}
    for sigma in sigmas:
        result[str(sigma)] = _mean(
            [
                measured(*add_noise(picture, "white", sigma, noise_seed(name, sigma, 0)))
                for name, picture in validation.pictures
            ]
        )
    return result


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


def _centre(picture: FloatImage) -> FloatImage:
    top, left = (max(0, length - SIDE) // 2 for length in picture.shape[:2])
    return picture[top : top + SIDE, left : left + SIDE]
