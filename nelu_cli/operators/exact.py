"""NeLU solved exactly, with its gradient in closed form."""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nelu_cli.operators.energy import (
    lam_of_entries,
    newton_energy,
    pieces,
    sorted_energy,
    squared_ratio,
)
from nelu_cli.operators.window import WINDOW_FLOOR, Window, window_energy

Solver = Literal["newton", "sort"]


def nelu(
    u: Tensor,
    lam: float | Tensor,
    *,
    nonnegative: bool = False,
    dim: int | None = 1,
    window: int | None = None,
    solver: Solver = "newton",
    removed: bool = False,
) -> Tensor:
    """Solve min_z ‖z − u‖₂ + λ‖z‖₁ exactly (with ``nonnegative``: subject to z ≥ 0).

    Parameters
    ----------
    u:
        Coefficients, bfloat16, float32 or float64, of any shape; the result has its type, shape and
        memory format. Squares of u and of u/λ must neither overflow nor vanish: between 1e-18 and
        1e18, but for float64. Sums and thresholds of bfloat16 are float32, also in the gradient.
    lam:
        λ ≥ 0, one number or one for each entry of ``dim`` (of dimension 1 for ``dim=None``).
        It is raised to the rounding error of ``u``'s type at least, so that u/λ exists.
    dim:
        The dimension whose entries make one vector; ``None`` for the whole sample, that is, all
        dimensions but the first.
    window:
        Odd. With one, ``u`` is (B, C, H, W), ``dim`` is 1 and the noise is measured over
        window × window positions (see Notes).
    solver:
        ``"newton"``, or ``"sort"`` (without a window).
    removed:
        Return what is taken away, u − z = clip(u, ±λr), instead of z.

    Notes
    -----
    Optimality says u − z = clip(u, ±λr) with r = ‖u − z‖₂. So z is one soft threshold, S_{λr}(u),
    and only r is unknown. With ρ = r² and "active" meaning |uᵢ| > λᵢr,

        ρ = Σᵢ min(uᵢ², λᵢ²ρ) =: f(ρ)   ⇔   ρ = Σ_inactive uᵢ² / (1 − Σ_active λᵢ²).

    f is concave, f = min over sets A of Σ_{i∉A} uᵢ² + ρ·Σ_{i∈A} λᵢ², so its largest fixed point is

        ρ = min over A with Σ_A λᵢ² < 1 of Σ_{i∉A} uᵢ² / (1 − Σ_A λᵢ²),

    and only the sets of the k largest |uᵢ|/λᵢ matter: sort and scan. Newton needs no sort: from
    ρ = ‖u‖², take the active set of ρ, compute its quotient, repeat. It falls monotonically to the
    solution and ends after finitely many steps. If Σλᵢ² over the non-zero entries is below 1, then
    ρ = 0 and z = u; at 1 there are many minimisers, one of which is returned; if ‖u‖∞ ≤ λ‖u‖₂,
    then z = 0.

    Every step is homogeneous: nelu(c·u) = c·nelu(u) for every c > 0.

    With a window, ρ is one such step: ‖u‖² is averaged over the window, and so are both sums of the
    quotient before the division. This is no longer the minimiser of one vector's objective, but a
    steadier measure of the noise (not 0 at once where Σλᵢ² falls below 1, so that training cannot
    switch a layer off), still exactly homogeneous, and local: it depends on nothing farther away
    than 2·(window // 2) positions.

    There is a first derivative, in closed form, but no second one. ``torch.compile`` leaves the
    function as it is (a break in the graph: Newton looks at the data to know when it is done), with
    the same result; torch refuses ``fullgraph=True``.

    References
    ----------
    Equation (our) and Algorithm 1 of the paper, whose fixed point this is.
    """
    if u.dtype not in (torch.bfloat16, torch.float32, torch.float64):
        raise TypeError(f"nelu needs bfloat16, float32 or float64 coefficients, not {u.dtype}")
    if window is not None and (window % 2 != 1 or u.ndim != 4 or dim != 1 or solver == "sort"):
        raise ValueError("a window must be odd and needs (B, C, H, W), dim=1 and the Newton solver")
    exact = torch.float64 if u.dtype == torch.float64 else torch.float32  # of everything inside
    lam = torch.as_tensor(lam, dtype=exact, device=u.device)
    if lam.ndim > 1:
        raise ValueError("lam must be one number or one for each entry of the dimension")
    if dim is None:
        if lam.ndim == 1:
            lam = lam.reshape(-1, *[1] * (u.ndim - 2)).expand(u.shape[1:]).flatten()
        entries = u.reshape(u.shape[0], math.prod(u.shape[1:]), 1)
    else:
        dim = range(u.ndim)[dim]
        entries = u.reshape(math.prod(u.shape[:dim]), u.shape[dim], math.prod(u.shape[dim + 1 :]))
    grid = None if window is None else Window(window, *u.shape[2:])
    vectors = entries.mT
    if vectors.is_contiguous():  # then they may as well be one batch
        vectors = vectors.flatten(0, 1).unsqueeze(0)
    result: Tensor = _ExactNeLU.apply(vectors, lam, nonnegative, grid, solver, removed)  # type: ignore[no-untyped-call]
    result = result.reshape(entries.mT.shape).mT.reshape(u.shape)
    if u.ndim == 4 and u.is_contiguous(memory_format=torch.channels_last):
        result = result.contiguous(memory_format=torch.channels_last)
    return result


class _ExactNeLU(torch.autograd.Function):
    """NeLU of the vectors u[a, p, :], for u (A, P, d) in any memory order; λ (d,) or ().

    The gradient has a closed form. Let g be the gradient of the code, P = Σ_active λᵢ·sign(uᵢ)·gᵢ
    and D = 1 − Σ_active λᵢ². From z = S_{λr}(u) and ρ = r² = (Σ_inactive uᵢ²)/D:

        ∂ρ = −P/(2r)         (the chain rule through the threshold λr)
        ∂uᵢ = gᵢ             for active i
        ∂uᵢ = 2uᵢ·∂ρ/D       for inactive i
        ∂λᵢ = −r·sign(uᵢ)gᵢ + 2λᵢ·ρ·∂ρ/D   for active i, else 0.

    The active set is piecewise constant, so Newton's steps themselves need no gradient. With a
    window, the adjoint of the averaging acts on ∂ρ/D and ρ·∂ρ/D, and the set that gave ρ is not
    quite the set of the entries above λr.

    The gradient of what is removed, u − z, is that of u less that of z.

    Most of the time goes into passes over memory, so they are few and in place, sums are matrix
    products, and pieces that fit into the cache go through all the passes of a step together. A
    piece of bfloat16 coefficients becomes float32, λ's type, for as long as it is in work.
    """

    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        lam: Tensor,
        nonnegative: bool,
        window: Window | None,
        solver: Solver,
        removed: bool,
    ) -> Tensor:
        ctx.removed = removed
        ctx.lam_shape = lam.shape
        lam = lam_of_entries(lam, u.shape[-1])
        weight = lam.square()
        # An empty tensor, or no vector that could be shrunk.
        ctx.identity = u.numel() == 0 or not (nonnegative or window or weight.sum() > 1)
        result = torch.empty_like(u)
        if ctx.identity:
            return result.zero_() if removed else result.copy_(u)
        with _in_full(u):
            if window:
                energy, energy_before, denominator = window_energy(u, lam, nonnegative, window)
            else:
                solve = sorted_energy if solver == "sort" else newton_energy
                energy, energy_before, denominator = lam.new_empty(3, *u.shape[:2])
                for piece in pieces(u):
                    q, rest = squared_ratio(u[piece], lam, nonnegative)
                    energy[piece], energy_before[piece], denominator[piece] = solve(q, weight, rest)
            for piece in pieces(u):
                shrink(u[piece], lam, energy[piece], result[piece], nonnegative, removed)
        ctx.save_for_backward(u, lam, energy, energy_before, denominator)
        ctx.nonnegative, ctx.window = nonnegative, window
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.identity:
            grad_u = torch.zeros_like(g) if ctx.removed else g
            return grad_u, g.new_zeros(ctx.lam_shape), None, None, None, None
        u, lam, energy, energy_before, denominator = ctx.saved_tensors
        window: Window | None = ctx.window
        grad_u = torch.empty_like(u)
        grad_lam = torch.zeros_like(lam)
        r = energy.sqrt()
        with _in_full(u):
            pulled = torch.empty_like(r)  # P
            for piece in pieces(u):
                v, gv = u[piece].to(lam.dtype), g[piece].to(lam.dtype)
                pull = _passed(v, lam, r[piece], ctx.nonnegative).mul_(v.sign()).mul_(gv)
                pulled[piece] = pull @ lam
                grad_lam -= _combine(r[piece], pull)
            d_energy = -pulled / torch.where(r > 0, 2 * r, torch.inf)
            d_inactive = d_energy / denominator
            d_active = d_inactive * energy
            if window is not None:
                d_active = d_active * (denominator > WINDOW_FLOOR)
                d_inactive, d_active = window.adjoint(d_inactive), window.adjoint(d_active)
            for piece in pieces(u):
                v, gv = u[piece].to(lam.dtype), g[piece].to(lam.dtype)
                passed = _passed(v, lam, r[piece], ctx.nonnegative)
                active = passed
                if window is not None:
                    active, _ = squared_ratio(v, lam, ctx.nonnegative)
                    torch.gt(active, energy_before[piece].unsqueeze(-1), out=active)
                grad = v * (2 * d_inactive[piece]).unsqueeze(-1)
                grad_lam += 2 * lam * _combine(d_active[piece], active)
                grad.addcmul_(grad, active, value=-1)
                if ctx.removed:  # g less that of the code
                    grad.neg_().add_(gv)
                    passed.neg_()
                grad_u[piece] = grad.addcmul_(passed, gv)
        if ctx.removed:
            grad_lam.neg_()
        return grad_u, grad_lam.sum_to_size(ctx.lam_shape), None, None, None, None


def _in_full(u: Tensor) -> torch.autocast:
    """No autocast: it would turn the sums, which are matrix products, into bfloat16."""
    return torch.autocast(u.device.type, enabled=False)


def _passed(u: Tensor, lam: Tensor, r: Tensor, nonnegative: bool) -> Tensor:
    """1 where the code is not 0, of vectors u (…, d); λ (d,), r (…)."""
    threshold = r.unsqueeze(-1) * lam
    return torch.gt(u if nonnegative else u.abs(), threshold, out=threshold)


def shrink(
    u: Tensor,
    lam: Tensor,
    energy: Tensor,
    result: Tensor,
    nonnegative: bool = False,
    removed: bool = False,
) -> None:
    """Write S_{λr}(u), or what it takes away, into ``result``: u (…, d), λ (d,), ρ = r² (…)."""
    threshold = energy.sqrt().unsqueeze(-1) * lam
    if removed:  # rounding min(u, t) is min(u, rounded t), as u is a bfloat16 already
        threshold = threshold.to(u.dtype)
    if removed and not nonnegative and u.dtype == torch.bfloat16:
        # ±min(|u|, t): from 0 up, bfloat16 have the order of their bits. In 0.6 of clamp's time.
        size = u.view(torch.int16) & 0x7FFF
        torch.minimum(size, threshold.view(torch.int16), out=size)
        torch.copysign(size.view(torch.bfloat16), u, out=result)
        return
    u = u.to(threshold.dtype)
    taken = result if removed else torch.empty_like(threshold)
    if nonnegative:
        torch.minimum(u, threshold, out=taken)
    else:
        torch.clamp(u, -threshold, threshold, out=taken)
    if not removed:
        torch.sub(u, taken, out=result)


def _combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """Σ factor·vector over the vectors of a piece: (n) and (n, d), or (m, P) and (m, P, d)."""
    summed = factors.unsqueeze(-2) @ vectors
    return summed.reshape(-1, vectors.shape[-1]).sum(0)
