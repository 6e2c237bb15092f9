"""The signals of the synthetic experiments, and NeLU with one λ for each of them.

Signals follow the transform model: W is square with unit rows, z* = Wx has few non-zero entries,
and y = x + ξ with Gaussian ξ, so Wy = z* + e with e = Wξ. Everything is float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from nelu_cli.errors import UsageError
from nelu_cli.experiments.results import Config
from nelu_cli.operators import nelu, soft_threshold

SIGMAS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
"""From a fifth to five times the level 0.1 that the paper trains at; non-zero entries of z* have a
root mean square of 1."""

SIGMA_LABEL = "noise level σ"

SOFT, EXACT = "soft threshold", "NeLU"
Shrink = Callable[[Tensor, float], Tensor]
SHRINKS: dict[str, Shrink] = {
    SOFT: soft_threshold,
    EXACT: lambda coeffs, lam: nelu(coeffs, lam, dim=-1),
}


@dataclass(frozen=True)
class TrialsConfig(Config):
    """An experiment that is repeated with other draws."""

    trials: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trials < 2:
            raise UsageError("--trials must be at least 2: standard errors need it")


@dataclass(frozen=True)
class SignalsConfig(TrialsConfig):
    """``trials`` realisations of signals of the transform model at each noise level."""

    d: int = 100
    nonzeros: int = 5
    sigmas: tuple[float, ...] = SIGMAS


def gaussian_transform(d: int, generator: Generator) -> Tensor:
    """A square Gaussian matrix (d, d) whose rows are scaled to unit ℓ₂ norm."""
    transform = torch.randn(d, d, generator=generator, dtype=torch.float64)
    scaled: Tensor = transform / transform.norm(dim=1, keepdim=True)
    return scaled


def conditioned_transform(d: int, kappa: float, generator: Generator) -> Tensor:
    """A square matrix with log-spaced singular values, the largest κ times the smallest, then unit
    rows (which moves κ a little; see :func:`condition`)."""
    left, right = (
        torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
        for _ in range(2)
    )
    values = torch.logspace(0, -math.log10(kappa), d, dtype=torch.float64)
    transform = (left * values) @ right.T
    scaled: Tensor = transform / transform.norm(dim=1, keepdim=True)
    return scaled


def condition(transform: Tensor) -> float:
    """The largest singular value over the smallest."""
    values = torch.linalg.svdvals(transform)
    return float(values[0] / values[-1])


def sparse_codes(shape: tuple[int, ...], nonzeros: int, generator: Generator) -> Tensor:
    """Vectors over the last dimension with standard normal entries at ``nonzeros`` places."""
    places = torch.rand(shape, generator=generator, dtype=torch.float64).topk(nonzeros).indices
    entries = torch.randn(places.shape, generator=generator, dtype=torch.float64)
    return torch.zeros(shape, dtype=torch.float64).scatter_(-1, places, entries)


def cosparse_signals(
    inverse: Tensor, count: int, nonzeros: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """x and z* = Wx, (count, d) each: x in the null space of its co-support, ‖x‖₂ = √nonzeros.

    The co-support is all rows of W but ``nonzeros`` random ones. What it maps to 0 is spanned by
    the columns of W⁻¹ at the others; x has a random direction in that space.

    References
    ----------
    Section "Synthetic data", which follows the work on multi-layer pursuit that it cites.
    """
    d = len(inverse)
    places = torch.rand(count, d, generator=generator, dtype=torch.float64).topk(nonzeros).indices
    basis, factor = torch.linalg.qr(inverse.T[places].mT)  # W⁻¹[:, S] = basis @ factor
    direction = torch.randn(count, nonzeros, 1, generator=generator, dtype=torch.float64)
    direction *= math.sqrt(nonzeros) / direction.norm(dim=1, keepdim=True)
    signal = (basis @ direction).squeeze(-1)
    entries = torch.linalg.solve_triangular(factor, direction, upper=True).squeeze(-1)
    code = torch.zeros(count, d, dtype=torch.float64).scatter_(-1, places, entries)
    return signal, code


def nelu_each(coeffs: Tensor, lam: Tensor) -> Tensor:
    """Solve min_z ‖z − u‖₂ + λ‖z‖₁ over the last dimension, with one λ for each vector.

    The active set is that of the k largest entries for the k with the least residual
    Σ_inactive uᵢ² / (1 − kλ²); see :func:`nelu_cli.operators.nelu`, which has one λ for all.
    """
    energy = coeffs.square().sort(dim=-1, descending=True).values
    tail = energy.flip(-1).cumsum(-1).flip(-1)
    tail = torch.cat([tail, torch.zeros_like(tail[..., :1])], -1)  # inactive energy, k = 0 … d
    k = torch.arange(tail.shape[-1], dtype=coeffs.dtype)
    room = 1 - k * lam.square().unsqueeze(-1)
    residual = torch.where(room > 0, tail / room, torch.inf).amin(-1)
    return soft_threshold(coeffs, (lam * residual.sqrt()).unsqueeze(-1))


def pivotal_lam(noise: Tensor) -> Tensor:
    """‖e‖∞/‖e‖₂ over the last dimension: the λ of Theorem 1."""
    ratio: Tensor = noise.abs().amax(-1) / noise.norm(dim=-1)
    return ratio


def hadamard(n: int) -> Tensor:
    """The orthogonal matrix with entries ±1/√n, for n a power of two (Sylvester)."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    step = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    while matrix.shape[0] < n:
        matrix = torch.kron(matrix, step)
    return matrix / math.sqrt(n)


def log_grid(low: float, high: float, count: int) -> list[float]:
    return torch.logspace(math.log10(low), math.log10(high), count, dtype=torch.float64).tolist()


def slope(sigma: Tensor, lam: Tensor) -> float:
    """The exponent p of the best fit λ ∝ σ^p."""
    x = sigma.log() - sigma.log().mean()
    return float((x @ lam.log()) / (x @ x))


def sweep(
    coeffs: Tensor, truth: Tensor, shrink: Shrink, lams: list[float], tried: Callable[[], None]
) -> Tensor:
    """‖ẑ − z*‖₂² for every λ, (λ, levels, trials), of coefficients (levels, trials, d).

    One λ at a time, every realisation at once; ``tried`` is called after each.
    """
    errors = []
    for lam in lams:
        errors.append((shrink(coeffs, lam) - truth).square().sum(-1))
        tried()
    return torch.stack(errors)
