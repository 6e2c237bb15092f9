"""The paper's experiments with a learned transform: section "Trainable transforms".

One linear layer and a shrinkage (soft threshold, Algorithm 2, exact NeLU), with a second linear
layer where the task is to denoise. All are trained on the same pairs at one noise level and then
tested at many. Two kinds of W are tried:

- Gaussian with unit rows, as in the paper. A square Gaussian matrix is badly conditioned
  (condition number of the order of d and often far more), so x = W⁻¹z* lies mostly along a few
  directions.
- Orthogonal, where nothing depends on the conditioning.
"""

import math
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from nelu_cli.errors import UsageError
from nelu_cli.experiments.results import (
    Advance,
    Claim,
    Config,
    Curves,
    Experiment,
    Panel,
    mean_series,
    silent,
)
from nelu_cli.experiments.synthetic import (
    SIGMA_LABEL,
    SIGMAS,
    gaussian_transform,
    sparse_codes,
)
from nelu_cli.operators import AcceleratedNeLU, NeLU, soft_threshold

__all__ = [
    "EXPERIMENTS",
    "SignalDenoisingConfig",
    "SparseCodingConfig",
    "signal_denoising",
    "sparse_coding",
]

Transform = Literal["gaussian", "orthogonal"]

SIGNAL, CODE = 1, 2  # places in a sample (y, x, z*)
NOISY = "noisy signal"
SOFT, UNROLLED, EXACT = "soft threshold", "NeLU, Algorithm 2", "NeLU, exact"


@dataclass(frozen=True)
class TrainableConfig(Config):
    """``trials`` test realisations at each level; the paper has 2048."""

    trials: int = 2048
    d: int = 100
    nonzeros: int = 5
    trained_sigma: float = 0.1
    sigmas: tuple[float, ...] = SIGMAS
    transforms: tuple[Transform, ...] = ("gaussian", "orthogonal")
    steps: int = 1500
    batch: int = 128
    learning_rate: float = 1e-2
    iterations: int = 10  # N of Algorithm 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trials < 2:
            raise UsageError("--trials must be at least 2: standard errors need it")


@dataclass(frozen=True)
class SparseCodingConfig(TrainableConfig):
    @classmethod
    def quick(cls) -> Self:
        return cls(steps=300)


@dataclass(frozen=True)
class SignalDenoisingConfig(TrainableConfig):
    steps: int = 4000  # finding W without being shown z* takes longer

    @classmethod
    def quick(cls) -> Self:
        return cls(d=40, nonzeros=2, steps=600)


class SoftThreshold(nn.Module):
    """The classic sparse encoder's shrinkage, with a learnable λ."""

    def __init__(self, lam: float = 0.1) -> None:
        super().__init__()
        self.lam = nn.Parameter(torch.tensor(lam))

    def forward(self, coeffs: Tensor) -> Tensor:
        return soft_threshold(coeffs, self.lam.clamp(min=0))


@dataclass(frozen=True)
class _Source:
    """Draws signals of the transform model, x = W⁻¹z*, with noise; float32."""

    inverse: Tensor
    nonzeros: int

    @classmethod
    def make(cls, kind: Transform, config: TrainableConfig, generator: Generator) -> Self:
        transform = gaussian_transform(config.d, generator)
        if kind == "orthogonal":
            transform = torch.linalg.qr(transform).Q
        return cls(torch.linalg.inv(transform), config.nonzeros)

    def draw(self, count: int, sigma: float, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """y, x and z*, each (count, d)."""
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


def _coordinates(source: _Source, config: TrainableConfig, *, decode: bool) -> Tensor:
    """The symmetric matrix M of a change of basis, y ↦ My, that the linear layers could absorb.

    Without it AdamW would not learn a Gaussian W in any reasonable time. To find codes, it makes
    the training inputs white, with the variance of z*. To denoise, it only scales them to that
    variance, since the error is measured in the original coordinates.
    """
    generator = torch.Generator().manual_seed(config.seed)
    noisy = source.draw(100 * config.d, config.trained_sigma, generator)[0].double()
    covariance = noisy.T @ noisy / len(noisy)
    if decode:
        covariance = torch.eye(config.d, dtype=torch.float64) * covariance.diagonal().mean()
    values, vectors = torch.linalg.eigh(covariance / (config.nonzeros / config.d))
    coordinates: Tensor = (vectors * values.rsqrt()) @ vectors.T
    return coordinates


def _networks(
    coordinates: Tensor, config: TrainableConfig, *, decode: bool
) -> tuple[dict[str, nn.Module], SoftThreshold]:
    """y → ẑ, or with ``decode`` y → x̂, for each shrinkage; and the soft threshold among them.

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
        encoder, decoder = (nn.Linear(config.d, config.d, bias=False) for _ in range(2))
        encoder.weight = nn.Parameter(start.clone())
        decoder.weight = nn.Parameter(start.T.clone())
        layers = [_Fixed(coordinates), encoder, shrinkage]
        if decode:
            layers += [decoder, _Fixed(torch.linalg.inv(coordinates))]
        networks[name] = nn.Sequential(*layers)
    return networks, soft


def _train(
    networks: dict[str, nn.Module],
    source: _Source,
    target: int,
    config: TrainableConfig,
    learning_rate: float,
    generator: Generator,
    advance: Advance,
) -> None:
    """Minimise the mean squared error at the trained level: AdamW, warm-up, cosine to 0."""
    optimisers = [
        torch.optim.AdamW(network.parameters(), lr=learning_rate) for network in networks.values()
    ]
    warm_up = max(1, config.steps // 20)
    for step in range(config.steps):
        rate = 0.5 * (1 + math.cos(math.pi * step / config.steps)) * min(1, (step + 1) / warm_up)
        sample = source.draw(config.batch, config.trained_sigma, generator)
        for network, optimiser in zip(networks.values(), optimisers, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * learning_rate
            optimiser.zero_grad()
            F.mse_loss(network(sample[0]), sample[target]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        advance(1 / config.steps / len(config.transforms))


@torch.no_grad()
def _test(
    networks: dict[str, nn.Module],
    source: _Source,
    target: int,
    config: TrainableConfig,
    generator: Generator,
) -> dict[str, Tensor]:
    """Squared error of every realisation at every level, (levels, trials)."""
    samples = [source.draw(config.trials, sigma, generator) for sigma in config.sigmas]
    if target == SIGNAL:
        networks = {**networks, NOISY: nn.Identity()}
    return {
        name: torch.stack(
            [(network(sample[0]) - sample[target]).double().square().sum(1) for sample in samples]
        )
        for name, network in networks.items()
    }


def _experiment(
    config: TrainableConfig,
    advance: Advance,
    target: int,
    quantity: str,
    y_label: str,
) -> Curves:
    panels, claims = [], []
    for kind in config.transforms:
        generator = torch.Generator().manual_seed(config.seed)
        source = _Source.make(kind, config, generator)
        coordinates = _coordinates(source, config, decode=target == SIGNAL)
        networks, soft = _networks(coordinates, config, decode=target == SIGNAL)
        rate = config.learning_rate
        if target == SIGNAL and kind == "gaussian":
            rate /= 10  # a signal that is large against the error that matters
        _train(networks, source, target, config, rate, generator, advance)
        errors = _test(networks, source, target, config, generator)
        panels.append(
            Panel(
                f"{quantity}_{kind}",
                SIGMA_LABEL,
                y_label,
                tuple(mean_series(name, config.sigmas, error) for name, error in errors.items()),
                f"W {kind}".replace("gaussian", "Gaussian, as in the paper"),
                log_y=True,
                mark_x=(config.trained_sigma, "trained here"),
            )
        )
        learned = max(0.0, float(soft.lam.detach()))
        claims += [_claim(name, kind, errors, config, learned) for name in (UNROLLED, EXACT)]
    return Curves("sigma", tuple(panels), tuple(claims))


def _claim(
    name: str, kind: Transform, errors: dict[str, Tensor], config: TrainableConfig, learned: float
) -> Claim:
    """NeLU has the lower error at every level that was not trained on."""
    gain = (errors[SOFT].mean(1) / errors[name].mean(1)).tolist()
    by_sigma = dict(zip(config.sigmas, gain, strict=True))
    trained = by_sigma.pop(config.trained_sigma, math.nan)
    least, most = (pick(by_sigma, key=lambda sigma: by_sigma[sigma]) for pick in (min, max))
    return Claim(
        f"{name} beats the soft threshold at every unseen noise level ({kind} W)",
        by_sigma[least] > 1,
        f"the error of the soft threshold is {by_sigma[least]:.2f} (σ = {least:g}) to "
        f"{by_sigma[most]:.2f} (σ = {most:g}) times as large, {trained:.2f} at the trained σ; it "
        f"learned λ = {learned:.3g}",
    )


def sparse_coding(config: SparseCodingConfig, advance: Advance = silent) -> Curves:
    """Learn to estimate z* from y = W⁻¹z* + ξ at σ = 0.1; test at other levels.

    References
    ----------
    Section "Trainable transforms", supervised sparse coding.
    """
    return _experiment(
        config, advance, CODE, "squared_error_of_code", r"mean of $\|\hat z - z^*\|_2^2$"
    )


def signal_denoising(config: SignalDenoisingConfig, advance: Advance = silent) -> Curves:
    """Learn to estimate x = W⁻¹z* from y = x + ξ at σ = 0.1; test at other levels.

    With a Gaussian W, W⁻¹ amplifies whatever shrinkage takes from a code beyond the noise itself.
    There the best that such a network can do is hardly to shrink at all; the soft threshold learns
    just that, the others stay above the noisy signal. That verdict rests on the optimiser: with ten
    times the learning rate and a higher start of the soft threshold, all three end above the noisy
    signal at the trained level, and exact NeLU level with the soft threshold or a little better.
    The paper does not state its settings.

    References
    ----------
    Section "Trainable transforms", signal denoising.
    """
    return _experiment(
        config, advance, SIGNAL, "squared_error_of_signal", r"mean of $\|\hat x - x\|_2^2$"
    )


EXPERIMENTS: dict[str, Experiment[SparseCodingConfig] | Experiment[SignalDenoisingConfig]] = {
    "sparse-coding": Experiment(SparseCodingConfig, sparse_coding),
    "signal-denoising": Experiment(SignalDenoisingConfig, signal_denoising),
}
