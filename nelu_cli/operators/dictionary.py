"""The square-root lasso for any dictionary, built on NeLU (which is the case D = I)."""

import math

import torch
from torch import Tensor

from nelu_cli.errors import NeluError
from nelu_cli.operators.exact import nelu

CHECK_EVERY = 10
"""Steps from one look at the optimality to the next."""


def sqrt_lasso(
    dictionary: Tensor,
    signal: Tensor,
    lam: float,
    *,
    tolerance: float = 1e-9,
    max_steps: int = 20_000,
) -> Tensor:
    """Solve min_z ‖y − Dz‖₂ + λ‖z‖₁ for a dictionary D (n, d) and a signal y (n,), in float64.

    Parameters
    ----------
    dictionary, signal:
        D and y; the code has y's type.
    lam:
        λ > 0. In the scaling ‖y − Dz‖₂/√n + λ'‖z‖₁ of other solvers, λ = √n·λ'.
    tolerance:
        The duality gap to reach, as a share of ‖y‖₂. Without it after ``max_steps`` a
        :class:`NeluError` is raised.

    Notes
    -----
    Each step minimises a majoriser that touches the objective at v. With L ≥ ‖D‖² and r = y − Dv,

        ‖y − Dz‖₂² ≤ L·‖z − u‖₂² + c,   u = v + Dᵀr/L,   c = ‖r‖₂² − ‖Dᵀr‖₂²/L ≥ 0.

    The root of the right side plus λ‖z‖₁ is √L times ‖(z, 0) − (u, √(c/L))‖₂ + λ/√L·‖z‖₁: NeLU of
    u with one more entry, which is always shrunk to 0. For D = I, c is 0 and the first step ends.
    v runs ahead of z by Nesterov's momentum, which starts anew whenever the objective rises.

    Once the support S and its signs s are right, the rest is closed: Dᵀ_S(y − D_S z) = λr·s gives

        z_S = G⁻¹(D_Sᵀy − λr·s),   r² = ‖y − D_S G⁻¹D_Sᵀy‖₂² / (1 − λ²·sᵀG⁻¹s),   G = D_SᵀD_S,

    the quotient of NeLU again. It is tried every few steps and kept where it lowers the objective.

    References
    ----------
    Equation (sqrt_lasso) of the paper, with λ√n for its λ, and its appendix on the synthesis model.
    """
    if dictionary.ndim != 2 or signal.shape != dictionary.shape[:1]:
        raise ValueError("sqrt_lasso needs a dictionary (n, d) and a signal (n,)")
    if not 0 < lam < math.inf:
        raise ValueError("lam must be a number above 0")
    D, y = dictionary.detach().double(), signal.detach().double()
    d = D.shape[1]
    z = D.new_zeros(d)
    goal = tolerance * float(y.norm())
    if d == 0 or goal == 0:
        return z.to(signal.dtype)
    lipschitz = float(torch.linalg.matrix_norm(D, 2)) ** 2 * (1 + 1e-12) or 1.0
    lams = D.new_full((d + 1,), lam / math.sqrt(lipschitz))
    lams[-1] = 2.0  # above 1: never above its share of the residual, so always shrunk to 0
    ahead, momentum, cost = z, 1.0, _objective(D, y, z, lam)
    for step in range(max_steps):
        residual = y - D @ ahead
        pull = D.mT @ residual
        room = (residual.square().sum() - pull.square().sum() / lipschitz).clamp(min=0)
        u = torch.cat([ahead + pull / lipschitz, (room / lipschitz).sqrt().view(1)])
        new = nelu(u[None], lams)[0, :-1]
        new_cost = _objective(D, y, new, lam)
        if new_cost > cost:  # too far ahead: from z once more, without momentum
            if momentum == 1:
                new, new_cost = z, cost
            ahead, momentum = z, 1.0
        else:
            next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / next_momentum * (new - z)
            z, cost, momentum = new, new_cost, next_momentum
        if step % CHECK_EVERY == 0:
            closed = _on_support(D, y, z, lam)
            if closed is not None and (closed_cost := _objective(D, y, closed, lam)) < cost:
                z, cost, ahead, momentum = closed, closed_cost, closed, 1.0
            if duality_gap(D, y, z, lam) <= goal:
                return z.to(signal.dtype)
    gap = duality_gap(D, y, z, lam) / float(y.norm())
    raise NeluError(
        f"sqrt_lasso: the duality gap is {gap:.1e} of ‖y‖ after {max_steps} steps, not yet "
        f"{tolerance:.1e}; give more steps or a larger lam"
    )


def _objective(dictionary: Tensor, signal: Tensor, code: Tensor, lam: float) -> float:
    return float((signal - dictionary @ code).norm() + lam * code.abs().sum())


def _on_support(dictionary: Tensor, signal: Tensor, code: Tensor, lam: float) -> Tensor | None:
    """The minimiser among codes of this support and these signs, if there is one."""
    support = code != 0
    atoms, signs = dictionary[:, support], code[support].sign()
    if not 0 < atoms.shape[1] <= atoms.shape[0]:
        return None
    factor, failed = torch.linalg.cholesky_ex(atoms.mT @ atoms)
    if failed:
        return None
    both = torch.stack([atoms.mT @ signal, signs], 1)
    plain, turned = torch.cholesky_solve(both, factor).unbind(1)
    room = 1 - lam**2 * float(signs @ turned)
    if room <= 0:
        return None
    radius = float((signal - atoms @ plain).norm()) / math.sqrt(room)
    entries = plain - lam * radius * turned
    if (entries * signs <= 0).any():
        return None
    result = torch.zeros_like(code)
    result[support] = entries
    return result


def duality_gap(dictionary: Tensor, signal: Tensor, code: Tensor, lam: float) -> float:
    """How far the objective of a code can be above the least one.

    The dual is max yᵀθ subject to ‖θ‖₂ ≤ 1 and ‖Dᵀθ‖∞ ≤ λ; the residual, scaled until both hold,
    is such a θ.
    """
    residual = signal - dictionary @ code
    largest = float((dictionary.mT @ residual).abs().max()) / lam
    scale = max(float(residual.norm()), largest)
    dual = float(signal @ residual) / scale if scale > 0 else 0.0
    return _objective(dictionary, signal, code, lam) - dual
