"""How noisy a picture is, from what a denoiser removes and from how it reacts."""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nelu_cli.runtime.colours import mixed
from nelu_cli.runtime.models import Model
from nelu_cli.runtime.passes import passes
from nelu_cli.runtime.pixels import check_pixels
from nelu_cli.runtime.samples import take_sample
from nelu_cli.runtime.tiling import Region

_MAP_PIXELS: Final = 2_000_000  # most pixels of a noise map
_MAP_WINDOW: Final = 15  # picture pixels, the side of the box for local means
_SAMPLE_SIDE: Final = 48  # with 64 the level is hardly closer, and takes a third longer to find
_LEAST_SHARE: Final = 0.05  # of the noise that must have been removed to judge by it


def estimate_noise(pixels: NDArray[Any], model: Model) -> float:
    """The noise level of (H, W, C) or (N, H, W, C) pixels, in pixel values.

    The median of the noise map, of a sample: a grid of crops from the middle page. No number if
    these hold no finite value.
    """
    check_pixels(pixels, model)
    sample = take_sample(pixels, _SAMPLE_SIDE)
    if sample is None:
        return math.nan
    crops, holes, levels = sample
    probed = find_and_probe(passes(model, "normal"), crops, model)
    noise, sensitivity = probed.tensor_split(2, dim=1)
    found = []
    everywhere = (slice(0, crops.shape[2]), slice(0, crops.shape[3]))
    removed, reaction = noise.numpy(), sensitivity.numpy()
    for k in range(len(crops)):
        meter = NoiseMeter(*crops.shape[2:])
        meter.add(everywhere, removed[k], reaction[k], None if holes is None else ~holes[k])
        found.append(meter.deviation())
    return float(np.nanmedian(found)) * levels.scale


def find_and_probe(
    find: Callable[[Tensor], Tensor], tiles: Tensor, model: Model | None = None
) -> Tensor:
    """The noise in tiles (N, C, h, w), followed by the sensitivity at each pixel: (N, 2C, h, w).

    The sensitivity is ε·(f(y + hε) − f(y))/h for random signs ε and f(y) = y − noise(y); its local
    mean estimates the mean of ∂fᵢ/∂yᵢ, the share of the noise that a denoiser cannot tell from the
    picture. Stein's identity holds for the covariance that the noise has: for the noise of
    photographs ε is normal and blurred by about one pixel, for that of certain colours it has them.
    """
    noise = find(tiles)
    generator = torch.Generator().manual_seed(0)
    colours = None if model is None else model.network.noise_colours()
    shape = list(tiles.shape)
    if colours is not None:
        shape[1] = colours.shape[1]
    signs = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
    if colours is not None:
        signs = mixed(signs, colours.cpu())
    if model is not None and model.for_photos:
        signs = _blurred(torch.randn(tiles.shape, generator=generator))
    step = 0.1 * float(noise.square().mean().sqrt()) + 1e-6
    return torch.cat([noise, 1 - (find(tiles + step * signs) - noise) * signs / step], dim=1)


def _blurred(noise: Tensor) -> Tensor:
    """White noise (N, C, h, w) of deviation 1, blurred by a pixel and scaled to 1 again."""
    taps = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0])
    kernel = torch.outer(taps, taps)
    kernel = (kernel / kernel.square().sum().sqrt())[None, None]
    planes = F.conv2d(noise.flatten(0, 1)[:, None], kernel, padding=2)
    return planes.view(noise.shape)


class NoiseMeter:
    """Measures the noise level from what a denoiser removes and from how it reacts.

    For noise of deviation σ and a denoiser f that leaves as small an error as can be,
    E(y − f(y))² = σ²·(1 − E ∂f/∂y), by Stein's identity: what is missing from the energy of the
    residual is the noise that stays in the picture, hidden in its texture. Both sides are collected
    in blocks of ``block`` × ``block`` pixels and averaged over a window.
    """

    def __init__(self, height: int, width: int) -> None:
        self.block = max(1, math.ceil(math.sqrt(height * width / _MAP_PIXELS)))
        shape = (-(-height // self.block), -(-width // self.block))
        self.energy = np.zeros(shape)
        self.sensitivity = np.zeros(shape)
        self.count = np.zeros(shape)

    def add(
        self,
        core: Region,
        removed: NDArray[np.float32],
        sensitivity: NDArray[np.float32],
        known: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add what was removed from the region ``core`` and the sensitivity there, (C, h, w).

        Only pixels that are ``known``, (h, w, C), count.
        """
        counted = np.ones_like(removed) if known is None else known.transpose(2, 0, 1)
        rows, cols = (self._blocks(part) for part in core)
        where = np.ix_(
            *(np.arange(part.start // self.block, -(-part.stop // self.block)) for part in core)
        )
        for total, values in (
            (self.energy, np.einsum("chw,chw,chw->hw", removed, removed, counted)),
            (self.sensitivity, np.einsum("chw,chw->hw", sensitivity, counted)),
            (self.count, counted.sum(axis=0, dtype=np.float32)),
        ):
            total[where] += np.add.reduceat(np.add.reduceat(values, rows, axis=0), cols, axis=1)

    def _blocks(self, part: slice) -> NDArray[np.intp]:
        """Where blocks start inside ``part``."""
        first = part.start // self.block * self.block
        starts: NDArray[np.intp] = np.arange(first, part.stop, self.block) - part.start
        starts[0] = 0
        return starts

    def deviation(self) -> NDArray[np.float64]:
        """The noise level of each block; no number where nothing was counted."""
        side = max(1, round((_MAP_WINDOW / self.block - 1) / 2) * 2 + 1)
        energy, sensitivity, count = (
            F.avg_pool2d(torch.from_numpy(field)[None], side, 1, side // 2)[0].numpy()
            for field in (self.energy, self.sensitivity, self.count)
        )
        with np.errstate(invalid="ignore"):
            share = np.clip(1 - sensitivity / count, _LEAST_SHARE, 1)
            deviation: NDArray[np.float64] = np.sqrt(energy / count / share)
        return deviation
