"""Stride-shift averaging: in 1-D for the eye, on pictures for the PSNR."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from nelu_cli import evaluation
from nelu_cli.checkpoints import load
from nelu_cli.data import sets as datasets
from nelu_cli.experiments.claims import claim
from nelu_cli.experiments.pictures import EXACT, PicturesConfig, check_sigma, find_images
from nelu_cli.experiments.results import (
    Claim,
    Curves,
    Experiment,
    Panel,
    Progress,
    mean_series,
    silent,
)
from nelu_cli.networks import PaperAutoencoder
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.operators import nelu
from nelu_cli.runtime.shifts import every_shift, shift_average


@dataclass(frozen=True)
class ShiftAveragingConfig(PicturesConfig):
    """PSNR over the number of shifts for a block DCT and for networks of the paper's kind."""

    images: int | None = 12
    sigma255: float = 25.0
    models: tuple[str, ...] = (EXACT,)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sigma(self.sigma255)

    @classmethod
    def quick(cls) -> Self:
        return cls(images=2)


@dataclass(frozen=True)
class Illustration:
    """Stride-shift averaging of a 1-D signal with stride 2, each (samples,)."""

    clean: tuple[float, ...]
    noisy: tuple[float, ...]
    shifts: tuple[tuple[float, ...], ...]  # denoised on each of the two grids, shifted back
    average: tuple[float, ...]

    def error(self, signal: tuple[float, ...]) -> float:
        """Mean squared error."""
        return float(np.mean(np.square(np.subtract(signal, self.clean))))


@dataclass(frozen=True)
class ShiftAveraging(Curves):
    """The curves, with the illustration drawn beside them."""

    illustration: Illustration


SHIFT_COUNTS = (1, 2, 4, 8, 16, 32, 64)
BLOCK = 8
BLOCK_TAU = 2.0


def shift_averaging(config: ShiftAveragingConfig, advance: Progress = silent) -> ShiftAveraging:
    """Average a denoiser over shifts of its grid: in 1-D for the eye, on pictures for the PSNR.

    The shifts that are averaged are the first of one random order of all stride² shifts.

    References
    ----------
    Section "Natural images" and appendix "Illustration of experiment".
    """
    denoisers: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
        "8×8 block DCT with NeLU": (block_dct_nelu, BLOCK)
    }
    for name in config.models:
        checkpoint = load(name)
        network = checkpoint.network
        if isinstance(network, PaperAutoencoder):
            denoisers[checkpoint.name] = (network.denoise_strided, network.config.stride)
        else:
            denoisers[checkpoint.name] = (network.denoise, network.stride)
    images = find_images(config.dataset, config.data_dir, config.images)
    share = 1 / len(images.paths) / len(denoisers)
    scores: dict[str, list[list[float]]] = {name: [] for name in denoisers}
    for path in images.paths:
        clean = datasets.load_clean(path, 1)
        seed = noise_seed(path.name, config.sigma255, config.seed)
        _, noisy = add_noise(clean, "white", config.sigma255, seed)
        tensor = torch.from_numpy(noisy[..., 0])[None, None]
        for name, (denoise, stride) in denoisers.items():
            estimates = _estimates(denoise, tensor, stride, config.seed)
            scores[name].append(
                [evaluation.psnr(clean[..., 0], np.clip(estimate, 0, 1)) for estimate in estimates]
            )
            advance(share)
    counts = {name: _counts(stride) for name, (_, stride) in denoisers.items()}
    series = tuple(
        mean_series(name, counts[name], torch.tensor(scores[name], dtype=torch.float64).T)
        for name in denoisers
    )
    panel = Panel(
        "psnr",
        "number of shifts averaged",
        "PSNR (dB)",
        series,
        f"{len(images.paths)} pictures of {images.name}, σ = {config.sigma255:g}",
        log_x=True,
    )
    illustration = _illustrate(config.seed)
    claims = [_illustration_claim(illustration)]
    for curve in series:
        steps = np.diff(curve.mean)
        claims.append(
            claim(
                "shifts",
                bool((steps > 0).all()),
                f"by {steps[0]:.2f} dB at first, {steps[-1]:.2f} dB at last, "
                f"{curve.mean[-1] - curve.mean[0]:.2f} dB in all",
                curve.label,
            )
        )
    return ShiftAveraging("shifts", (panel,), tuple(claims), illustration)


def _counts(stride: int) -> tuple[int, ...]:
    return tuple(count for count in SHIFT_COUNTS if count <= stride**2)


@torch.no_grad()
def _estimates(
    denoise: Callable[[Tensor], Tensor], noisy: Tensor, stride: int, seed: int
) -> list[np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    """The average over the first 1, 2, 4 … shifts, each (H, W)."""
    order = torch.randperm(stride**2, generator=torch.Generator().manual_seed(seed)).tolist()
    shifts = [every_shift(stride)[index] for index in order]
    total = torch.zeros_like(noisy)
    averages = []
    for count, shift in enumerate(shifts, start=1):
        total += shift_average(denoise, noisy, [shift], margin=4 * stride)
        if count in _counts(stride):
            averages.append((total / count)[0, 0].numpy().copy())
    return averages


def dct_matrix(size: int) -> Tensor:
    """The orthonormal DCT-II as a matrix (frequency, position)."""
    k = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi / size * k[:, None] * (k + 0.5)) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.float()


def block_dct_nelu(image: Tensor) -> Tensor:
    """A sparse auto-encoder that nobody trained: DCT of 8×8 blocks, NeLU, inverse DCT.

    The mean of a block passes; NeLU runs over its 63 other coefficients. (1, 1, H, W) to the same;
    what does not fill a block stays as it is.
    """
    down, right = (size // BLOCK for size in image.shape[-2:])
    whole = image[0, 0, : down * BLOCK, : right * BLOCK]
    blocks = whole.reshape(down, BLOCK, right, BLOCK).transpose(1, 2)  # (down, right, 8, 8)
    transform = dct_matrix(BLOCK)
    coeffs = (transform @ blocks @ transform.T).flatten(2)
    rest = nelu(coeffs[..., 1:], BLOCK_TAU / math.sqrt(BLOCK**2 - 1), dim=-1)
    code = torch.cat([coeffs[..., :1], rest], -1).view(blocks.shape)
    result = image.clone()
    result[0, 0, : down * BLOCK, : right * BLOCK] = (
        (transform.T @ code @ transform).transpose(1, 2).reshape(whole.shape)
    )
    return result


ILLUSTRATION_LENGTH = 64
ILLUSTRATION_SIGMA = 0.15


def _illustrate(seed: int) -> Illustration:
    """Stride 2: a Haar auto-encoder whose differences within pairs pass through NeLU."""
    generator = torch.Generator().manual_seed(seed)
    position = torch.linspace(0, 1, ILLUSTRATION_LENGTH, dtype=torch.float64)
    steps = 0.2 + 0.6 * (position > 0.25) - 0.3 * (position > 0.6) + 0.4 * (position > 0.85)
    clean = steps + 0.1 * torch.sin(6 * position)
    noise = torch.randn(ILLUSTRATION_LENGTH, generator=generator, dtype=torch.float64)
    noisy = clean + ILLUSTRATION_SIGMA * noise

    def denoise(signal: Tensor) -> Tensor:
        pairs = signal.view(-1, 2)
        detail = (pairs[:, 0] - pairs[:, 1]) / math.sqrt(2)
        lam = 2 / math.sqrt(len(detail))
        kept = nelu(detail[None], lam)[0]
        half = torch.stack([kept, -kept], 1) / math.sqrt(2)
        return (pairs.mean(1, keepdim=True) + half).flatten()

    ends = torch.cat([noisy[:1], noisy, noisy[-1:]])  # the second grid is one longer on each side
    shifts = [denoise(noisy), denoise(ends)[1:-1]]
    average = (shifts[0] + shifts[1]) / 2
    return Illustration(
        tuple(clean.tolist()),
        tuple(noisy.tolist()),
        tuple(tuple(shift.tolist()) for shift in shifts),
        tuple(average.tolist()),
    )


def _illustration_claim(illustration: Illustration) -> Claim:
    single = [illustration.error(shift) for shift in illustration.shifts]
    average = illustration.error(illustration.average)
    return claim(
        "shifts 1-D",
        average < min(single),
        f"its mean squared error is {average:.4f}; {single[0]:.4f} and {single[1]:.4f} before, "
        f"{illustration.error(illustration.noisy):.4f} of the noisy signal",
    )


EXPERIMENTS = {"shift-averaging": Experiment(ShiftAveragingConfig, shift_averaging)}
