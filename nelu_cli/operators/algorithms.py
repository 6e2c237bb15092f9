"""The soft threshold and the paper's two iterative algorithms for min_z ‖z − u‖₂ + λ‖z‖₁."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Proximal = Literal["relu", "soft"]


def soft_threshold(u: Tensor, threshold: float | Tensor) -> Tensor:
    """Solve min_z ½‖z − u‖₂² + threshold·‖z‖₁: move every entry towards 0, stopping there."""
    return F.relu(u - threshold) - F.relu(-u - threshold)


def _shrink(u: Tensor, threshold: float | Tensor, proximal: Proximal) -> Tensor:
    return F.relu(u - threshold) if proximal == "relu" else soft_threshold(u, threshold)


def _norm(residual: Tensor, dim: int | None) -> Tensor:
    """‖residual‖₂, and 1 for a zero residual: 0/1 = 0 is a subgradient of the norm there."""
    over = dim if dim is not None else tuple(range(1, residual.ndim))
    norm = torch.linalg.vector_norm(residual, dim=over, keepdim=True)
    return torch.where(norm > 0, norm, 1.0)


def algorithm_1(
    u: Tensor,
    lam: float | Tensor,
    *,
    step_size: float | Tensor = 0.1,
    tolerance: float = 1e-6,
    max_steps: int = 10_000,
    proximal: Proximal = "soft",
    dim: int | None = 1,
) -> Tensor:
    """Minimise ‖z − u‖₂ + λ‖z‖₁ by proximal gradient descent, over ``dim`` of ``u``.

    z ← S_{βλ}(z − β(z − u)/‖z − u‖₂), until no entry moves by more than ``tolerance`` times the
    largest coefficient, or for ``max_steps``.

    References
    ----------
    Algorithm 1 of the paper, "Self Normalizing ReLU (NeLU)".
    """
    z = torch.zeros_like(u)
    if u.numel() == 0:
        return z
    smallest_move = tolerance * u.abs().max()
    for _ in range(max_steps):
        previous = z
        residual = z - u
        z = _shrink(z - residual * (step_size / _norm(residual, dim)), step_size * lam, proximal)
        if (z - previous).abs().max() <= smallest_move:
            break
    return z


def algorithm_2(
    u: Tensor,
    lam: float | Tensor,
    step_size: float | Tensor,
    momentum: float | Tensor,
    *,
    steps: int,
    proximal: Proximal = "relu",
    dim: int | None = 1,
) -> Tensor:
    """Take N accelerated proximal steps towards the minimum of ‖z − u‖₂ + λ‖z‖₁.

    v ← αv − β(z + αv − u)/‖z + αv − u‖₂, then z ← ReLU(z + v − βλ); with ``proximal="soft"``
    the last step is a soft threshold, as in the paper's synthetic experiments.

    N steps of a fixed length β reach any code only up to a distance of about Nβ/(1 − α), so this
    map is *not* scale-equivariant: that holds at convergence alone. See :func:`nelu`.

    At rest, v = −β(z − u)/‖z − u‖₂/(1 − α) must balance βλ, so what N small steps tend to is the
    minimiser for (1 − α)λ, not for λ. Signed codes of d entries are shrunk at rest only where
    τ = (1 − α)λ√d > 1; below, all shrinking is that of a transient. See :class:`AcceleratedNeLU`.

    References
    ----------
    Algorithm 2 of the paper, "Accelerated NeLU".
    """
    if not torch.is_grad_enabled():
        return _algorithm_2_in_place(u, lam, step_size, momentum, steps, proximal, dim)
    z = v = torch.zeros_like(u)
    for _ in range(steps):
        drift = momentum * v
        residual = z + drift - u
        v = drift - residual * (step_size / _norm(residual, dim))
        z = _shrink(z + v, step_size * lam, proximal)
    return z


def _algorithm_2_in_place(
    u: Tensor,
    lam: float | Tensor,
    step_size: float | Tensor,
    momentum: float | Tensor,
    steps: int,
    proximal: Proximal,
    dim: int | None,
) -> Tensor:
    """The same steps where nobody asks for gradients: no new memory, fewer passes over it."""
    threshold = step_size * lam
    like = (u - threshold) * momentum  # in shape and type
    z, v, residual = (torch.zeros_like(like) for _ in range(3))
    for _ in range(steps):
        v *= momentum
        torch.add(z, v, out=residual)
        residual -= u
        v.addcmul_(residual, -step_size / _norm(residual, dim))
        z += v
        if proximal == "soft":  # min(z + βλ, 0) + ReLU(z − βλ)
            torch.add(z, threshold, out=residual).clamp_(max=0)
        z.sub_(threshold).relu_()
        if proximal == "soft":
            z += residual
    return z
