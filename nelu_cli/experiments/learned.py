"""Learned transforms: the signals, the networks, their training and their test."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from nelu_cli.experiments.model import (
    SignalsConfig,
    condition,
    conditioned_transform,
    cosparse_signals,
    gaussian_transform,
    sparse_codes,
)
from nelu_cli.experiments.results import Progress
from nelu_cli.operators import AcceleratedNeLU, NeLU, soft_threshold

GAUSSIAN = math.inf  # in place of a condition number
FREE, TIED = "free decoder", "decoder W⁺"
SIGNAL, CODE = 1, 2  # places in a sample (y, x, z*)
NOISY = "noisy signal"
SOFT, UNROLLED, EXACT = "soft threshold", "NeLU, Algorithm 2", "NeLU, exact"


@dataclass(frozen=True)
class TrainableConfig(SignalsConfig):
    """``trials`` test realisations at each level; the paper has 2048."""

    trials: int = 2048
    trained_sigma: float = 0.1
    conditions: tuple[float, ...] = (GAUSSIAN, 1.0)
    """Condition numbers κ of W; infinity stands for the paper's Gaussian W."""
    steps: int = 1500
    batch: int = 128
    learning_rate: float = 1e-2
    iterations: int = 10  # N of Algorithm 2


class SoftThreshold(nn.Module):
    """The classic sparse encoder's shrinkage, with a learnable λ."""

    def __init__(self, lam: float = 0.1) -> None:
        super().__init__()
        self.lam = nn.Parameter(torch.tensor(lam))

    def forward(self, coeffs: Tensor) -> Tensor:
        return soft_threshold(coeffs, self.lam.clamp(min=0))


@dataclass(frozen=True)
class _Source:
    """Draws signals of the transform model, z* = Wx, with noise; float32.

    To find codes, z* is what is drawn, with entries of variance 1. To denoise, x is drawn in the
    null space of its co-support, all x of one length.
    """

    inverse: Tensor
    nonzeros: int
    by_signal: bool
    kappa: float  # as it came out

    @classmethod
    def make(
        cls, kappa: float, config: TrainableConfig, generator: Generator, *, by_signal: bool
    ) -> Self:
        transform = (
            gaussian_transform(config.d, generator)
            if kappa == GAUSSIAN
            else conditioned_transform(config.d, kappa, generator)
        )
        inverse = torch.linalg.inv(transform)
        return cls(inverse, config.nonzeros, by_signal, condition(transform))

    @property
    def target(self) -> int:
        """The place in a sample of what is to be found."""
        return SIGNAL if self.by_signal else CODE

    def draw(self, count: int, sigma: float, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """y, x and z*, each (count, d)."""
        if self.by_signal:
            signal, code = cosparse_signals(self.inverse, count, self.nonzeros, generator)
        else:
            code = sparse_codes((count, len(self.inverse)), self.nonzeros, generator)
            signal = code @ self.inverse.T
        noise = torch.randn(signal.shape, generator=generator, dtype=torch.float64)
        return (signal + sigma * noise).float(), signal.float(), code.float()


class _Fixed(nn.Module):
    """A linear map that is not trained."""

    matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix.float())

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors @ self.matrix.T


def _unrolled(config: TrainableConfig) -> AcceleratedNeLU:
    """Algorithm 2 with soft thresholds: λ = 0.36, β = 0.3 and α = 0.5 at the start for d = 100.

    Ten such steps are long enough to reach z* (‖z*‖₂ ≈ √5).
    """
    return AcceleratedNeLU(config.d, 1.8, steps=config.iterations, proximal="soft")


def _coordinates(source: _Source, config: TrainableConfig) -> Tensor:
    """The symmetric matrix M of a change of basis, y ↦ My, that the linear layers could absorb.

    Without it AdamW would not learn a Gaussian W in any reasonable time. To find codes, it makes
    the training inputs white, with the variance of z*. To denoise, it only scales them to that
    variance, since the error is measured in the original coordinates.
    """
    generator = torch.Generator().manual_seed(config.seed)
    noisy = source.draw(100 * config.d, config.trained_sigma, generator)[0].double()
    covariance = noisy.T @ noisy / len(noisy)
    if source.by_signal:
        covariance = torch.eye(config.d, dtype=torch.float64) * covariance.diagonal().mean()
    values, vectors = torch.linalg.eigh(covariance / (config.nonzeros / config.d))
    coordinates: Tensor = (vectors * values.rsqrt()) @ vectors.T
    return coordinates


class _Pseudoinverse(nn.Module):
    """The decoder x̂ = W⁺z of the paper, tied to the encoder W."""

    def __init__(self, encoder: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, code: Tensor) -> Tensor:
        decoded: Tensor = code @ torch.linalg.pinv(self.encoder.weight).T
        return decoded


def _networks(
    coordinates: Tensor, config: TrainableConfig, decoder: str | None
) -> tuple[dict[str, nn.Module], SoftThreshold]:
    """y → ẑ, or with a decoder y → x̂, for each shrinkage; and the soft threshold among them.

    The linear layers start as a random orthogonal matrix and its inverse, the soft threshold at the
    noise level, NeLU at τ = 1.5.
    """
    noise_level = config.trained_sigma * float(coordinates.norm()) / math.sqrt(config.d)
    soft = SoftThreshold(noise_level)
    shrinkages = {
        SOFT: soft,
        UNROLLED: _unrolled(config),
        EXACT: NeLU(config.d, 1.5, per_channel=False),
    }
    generator = torch.Generator().manual_seed(config.seed)
    start = torch.linalg.qr(torch.randn(config.d, config.d, generator=generator)).Q
    networks: dict[str, nn.Module] = {}
    for name, shrinkage in shrinkages.items():
        encoder, free = (nn.Linear(config.d, config.d, bias=False) for _ in range(2))
        encoder.weight = nn.Parameter(start.clone())
        free.weight = nn.Parameter(start.T.clone())
        layers = [_Fixed(coordinates), encoder, shrinkage]
        if decoder is not None:
            layers.append(free if decoder == FREE else _Pseudoinverse(encoder))
            layers.append(_Fixed(torch.linalg.inv(coordinates)))
        networks[name] = nn.Sequential(*layers)
    return networks, soft


def _train(
    networks: dict[str, nn.Module],
    source: _Source,
    config: TrainableConfig,
    generator: Generator,
    stepped: Callable[[], None],
) -> None:
    """Minimise the mean squared error at the trained level: AdamW, warm-up, cosine to 0."""
    optimisers = [torch.optim.AdamW(network.parameters()) for network in networks.values()]
    warm_up = max(1, config.steps // 20)
    for step in range(config.steps):
        rate = 0.5 * (1 + math.cos(math.pi * step / config.steps)) * min(1, (step + 1) / warm_up)
        sample = source.draw(config.batch, config.trained_sigma, generator)
        for network, optimiser in zip(networks.values(), optimisers, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * config.learning_rate
            optimiser.zero_grad()
            loss = F.mse_loss(network(sample[0]), sample[source.target])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        stepped()


@torch.no_grad()
def _test(
    networks: dict[str, nn.Module],
    source: _Source,
    config: TrainableConfig,
    generator: Generator,
) -> dict[str, Tensor]:
    """Squared error of every realisation at every level, (levels, trials)."""
    samples = [source.draw(config.trials, sigma, generator) for sigma in config.sigmas]
    if source.by_signal:
        networks = {**networks, NOISY: nn.Identity()}
    return {
        name: torch.stack(
            [
                (network(sample[0]) - sample[source.target]).double().square().sum(1)
                for sample in samples
            ]
        )
        for name, network in networks.items()
    }


@dataclass(frozen=True)
class Outcome:
    """Squared errors (levels, trials) of every method, for one W and one decoder."""

    errors: dict[str, Tensor]
    kappa: float
    learned: float  # λ of the soft threshold

    def gains(self, name: str, config: TrainableConfig) -> dict[float, float]:
        """The error of the soft threshold over that of ``name``, at every unseen level."""
        ratio = (self.errors[SOFT].mean(1) / self.errors[name].mean(1)).tolist()
        pairs = zip(config.sigmas, ratio, strict=True)
        return {sigma: gain for sigma, gain in pairs if sigma != config.trained_sigma}


def run(
    config: TrainableConfig, kappa: float, decoder: str | None, advance: Progress, share: float
) -> Outcome:
    generator = torch.Generator().manual_seed(config.seed)
    source = _Source.make(kappa, config, generator, by_signal=decoder is not None)
    networks, soft = _networks(_coordinates(source, config), config, decoder)
    _train(networks, source, config, generator, lambda: advance(share / config.steps))
    errors = _test(networks, source, config, generator)
    return Outcome(errors, source.kappa, max(0.0, float(soft.lam.detach())))
