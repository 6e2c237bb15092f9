"""Shrinkage operators: the soft threshold, the paper's two algorithms, and NeLU solved exactly.

All of them turn coefficients ``u = W·y`` into a sparse code ``z``. Single letters are the
paper's: u coefficients, z code, λ (``lam``) bias, β (``step_size``), α (``momentum``).
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "AcceleratedNeLU",
    "NeLU",
    "Proximal",
    "Solver",
    "algorithm_1",
    "algorithm_2",
    "nelu",
    "soft_threshold",
]

Proximal = Literal["relu", "soft"]
Solver = Literal["newton", "sort"]

SMALLEST_LAM = 1e-12
"""Stands for λ = 0, so that u/λ stays finite; it moves a code by 1e-12 of its residual."""

NEWTON_LIMIT = 100
"""Far above what Newton needs (4 to 8 steps for d up to 200); only a bound for the loop."""

WINDOW_STEPS = 2
"""Newton steps with window > 1; a small fixed number, so that a result depends on its surroundings
only within (WINDOW_STEPS + 1) · (window // 2) positions."""

WINDOW_FLOOR = 0.1
"""Least value of 1 − Σλ² with window > 1, where Newton is not monotone and needs the guard."""


def soft_threshold(u: Tensor, threshold: float | Tensor) -> Tensor:
    """Solve min_z ½‖z − u‖₂² + threshold·‖z‖₁: move every entry towards 0, stopping there."""
    return u.sign() * (u.abs() - threshold).clamp(min=0)


def _shrink(u: Tensor, threshold: float | Tensor, proximal: Proximal) -> Tensor:
    return F.relu(u - threshold) if proximal == "relu" else soft_threshold(u, threshold)


def _unit(residual: Tensor, dim: int) -> Tensor:
    """residual / ‖residual‖₂, and 0 for a zero residual (a subgradient of the norm there)."""
    norm = residual.norm(dim=dim, keepdim=True)
    return residual / torch.where(norm > 0, norm, 1.0)


def algorithm_1(
    u: Tensor,
    lam: float | Tensor,
    *,
    step_size: float = 0.1,
    tolerance: float = 1e-6,
    max_steps: int = 10_000,
    proximal: Proximal = "soft",
    dim: int = 1,
) -> Tensor:
    """Minimise ‖z − u‖₂ + λ‖z‖₁ by proximal gradient descent, over ``dim`` of ``u``.

    z ← S_{βλ}(z − β(z − u)/‖z − u‖₂), until no entry moves by more than ``tolerance`` times the
    largest coefficient, or for ``max_steps``.

    References
    ----------
    Algorithm 1 of the paper, "Self Normalizing ReLU (NeLU)".
    """
    z = torch.zeros_like(u)
    smallest_move = tolerance * u.abs().max() if u.numel() else u.new_tensor(0.0)
    for _ in range(max_steps):
        previous = z
        z = _shrink(z - step_size * _unit(z - u, dim), step_size * lam, proximal)
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
    dim: int = 1,
) -> Tensor:
    """Take N accelerated proximal steps towards the minimum of ‖z − u‖₂ + λ‖z‖₁.

    v ← αv − β(z + αv − u)/‖z + αv − u‖₂, then z ← ReLU(z + v − βλ); with ``proximal="soft"``
    the last step is a soft threshold, as in the paper's synthetic experiments.

    N steps of a fixed length β reach any code only up to a distance of about Nβ, so this map is
    *not* scale-equivariant: that holds at convergence alone. See :func:`nelu`.

    References
    ----------
    Algorithm 2 of the paper, "Accelerated NeLU".
    """
    z = v = torch.zeros_like(u)
    for _ in range(steps):
        v = momentum * v - step_size * _unit(z + momentum * v - u, dim)
        z = _shrink(z + v, step_size * lam, proximal)
    return z


def nelu(
    u: Tensor,
    lam: float | Tensor,
    *,
    nonnegative: bool = False,
    dim: int | None = 1,
    window: int = 1,
    solver: Solver = "newton",
) -> Tensor:
    """Solve min_z ‖z − u‖₂ + λ‖z‖₁ exactly (with ``nonnegative``: subject to z ≥ 0).

    Parameters
    ----------
    u:
        Coefficients, float32 or float64, of any shape and range; the result has its shape.
    lam:
        λ ≥ 0, one number or one for each entry of ``dim`` (of dimension 1 for ``dim=None``).
    dim:
        The dimension whose entries make one vector; ``None`` for the whole sample, that is, all
        dimensions but the first.
    window:
        Odd; above 1, ``u`` is (B, C, H, W), ``dim`` is 1 and the noise is measured over
        window × window positions (see Notes).
    solver:
        ``"newton"``, or ``"sort"`` (window 1 only).

    Notes
    -----
    Optimality says u − z = clip(u, ±λr) with r = ‖u − z‖₂. So z is one soft threshold, S_{λr}(u),
    and only r is unknown. With ρ = r² and "active" meaning |uᵢ| > λᵢr,

        ρ = Σᵢ min(uᵢ², λᵢ²ρ) =: f(ρ)   ⇔   ρ = Σ_inactive uᵢ² / (1 − Σ_active λᵢ²).

    f is concave, f = min over sets A of Σ_{i∉A} uᵢ² + ρ·Σ_{i∈A} λᵢ², so its largest fixed point is

        ρ = min over A with Σ_A λᵢ² < 1 of Σ_{i∉A} uᵢ² / (1 − Σ_A λᵢ²),

    and only the sets of the k largest |uᵢ|/λᵢ matter: sort and scan. Newton needs no sort: from
    ρ = ‖u‖², take the active set of ρ, compute its quotient, repeat. It falls monotonically to the
    solution and ends after finitely many steps. If Σλᵢ² over the non-zero entries is at most 1,
    then ρ = 0 and z = u; if ‖u‖∞ ≤ λ‖u‖₂, then z = 0.

    Every step is homogeneous: nelu(c·u) = c·nelu(u) for every c > 0.

    With a window, both sums of the quotient are averaged over the window before the division,
    in WINDOW_STEPS Newton steps: no longer the minimiser of one vector's objective, but a steadier
    measure of the noise, still local and still exactly homogeneous.

    References
    ----------
    Equation (our) and Algorithm 1 of the paper, whose fixed point this is.
    """
    if not u.is_floating_point():
        raise TypeError(f"nelu needs floating-point coefficients, not {u.dtype}")
    if window % 2 != 1 or (window > 1 and (u.ndim != 4 or dim != 1 or solver == "sort")):
        raise ValueError("a window must be odd and needs (B, C, H, W), dim=1 and the Newton solver")
    lam = torch.as_tensor(lam, dtype=u.dtype, device=u.device)
    if lam.ndim > 1:
        raise ValueError("lam must be one number or one for each entry of the dimension")
    # Vectors go last: (..., d).
    if dim is None:
        vectors = u.reshape(u.shape[0], -1)
        if lam.ndim == 1:
            lam = lam.view(-1, *[1] * (u.ndim - 2)).expand(u.shape[1:]).reshape(-1)
        return _ExactNeLU.apply(vectors, lam, nonnegative, window, solver).view(u.shape)  # type: ignore[no-untyped-call, no-any-return]
    vectors = u.movedim(dim, -1)
    code: Tensor = _ExactNeLU.apply(vectors, lam, nonnegative, window, solver)  # type: ignore[no-untyped-call]
    return code.movedim(-1, dim)


class _ExactNeLU(torch.autograd.Function):
    """NeLU over the last dimension, with its gradient in closed form.

    Let g be the gradient of the code, P = Σ_active λᵢ·sign(uᵢ)·gᵢ and D = 1 − Σ_active λᵢ².
    From z = S_{λr}(u) and ρ = r² = (Σ_inactive uᵢ²)/D:

        ∂ρ = −P/(2r)         (the chain rule through the threshold λr)
        ∂uᵢ = gᵢ             for active i
        ∂uᵢ = 2uᵢ·∂ρ/D       for inactive i
        ∂λᵢ = −r·sign(uᵢ)gᵢ + 2λᵢ·ρ·∂ρ/D   for active i, else 0.

    The active set is piecewise constant, so Newton's steps themselves need no gradient. With a
    window, the adjoint of the averaging acts on ∂ρ/D and ρ·∂ρ/D.
    """

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, lam: Tensor, nonnegative: bool, window: int, solver: Solver
    ) -> Tensor:
        lam = lam.clamp(min=SMALLEST_LAM)
        q = _squared_ratio(u, lam, nonnegative)
        weight = lam.square().expand(u.shape[-1]).contiguous()
        rest = F.relu(-u).square().sum(-1) if nonnegative else None
        solve = _sorted_energy if solver == "sort" else _newton_energy
        energy, energy_before, denominator = solve(q, weight, rest, window)
        threshold = energy.sqrt().unsqueeze(-1) * lam
        ctx.save_for_backward(u, lam, energy, energy_before, denominator)
        ctx.nonnegative, ctx.window = nonnegative, window
        return F.relu(u - threshold) if nonnegative else u - u.clamp(-threshold, threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        (g,) = gradients
        u, lam, energy, energy_before, denominator = ctx.saved_tensors
        r = energy.sqrt()
        threshold = r.unsqueeze(-1) * lam
        # sign(uᵢ) where i is active, else 0
        signed = (F.relu(u - threshold) if ctx.nonnegative else soft_threshold(u, threshold)).sign()
        pull = g * signed
        d_energy = -(pull * lam).sum(-1) / torch.where(r > 0, 2 * r, torch.inf)
        d_inactive = d_energy / denominator
        d_active = d_inactive * energy
        if ctx.window > 1:
            d_active = d_active * (denominator > WINDOW_FLOOR)
            d_inactive, d_active = _window_adjoint(d_inactive, d_active, ctx.window)
        active = torch.empty_like(u)
        q = _squared_ratio(u, lam, ctx.nonnegative)
        torch.gt(q, energy_before.unsqueeze(-1), out=active)
        grad_u = g * signed.abs() + 2 * u * (1 - active) * d_inactive.unsqueeze(-1)
        grad_lam = None
        if ctx.needs_input_grad[1]:
            grad_lam = -pull * r.unsqueeze(-1) + 2 * lam * active * d_active.unsqueeze(-1)
            grad_lam = grad_lam.sum() if lam.ndim == 0 else grad_lam.flatten(0, -2).sum(0)
        return grad_u, grad_lam, None, None, None


def _squared_ratio(u: Tensor, lam: Tensor, nonnegative: bool) -> Tensor:
    """(uᵢ/λᵢ)², 0 for entries that can never be active; entry i is active where this exceeds ρ."""
    q = torch.empty(u.shape, dtype=u.dtype, device=u.device)
    torch.div(u, lam, out=q)
    return (q.relu_() if nonnegative else q).square_()


def _newton_energy(
    q: Tensor, weight: Tensor, rest: Tensor | None, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ρ (...,), the ρ whose active set gave it, and 1 − Σ_active λᵢ², from q (..., d).

    ``rest`` is the energy of entries outside q. Σ_inactive uᵢ² is computed as f(ρ) − ρ·Σ_active λᵢ²,
    whose terms are all of the size of ρ, however large the active entries are.
    """
    tolerance = 4 * torch.finfo(q.dtype).eps
    energy = q @ weight if rest is None else q @ weight + rest
    if window > 1:
        energy = _window_mean(energy, window)
    scratch = torch.empty_like(q)
    for _ in range(WINDOW_STEPS if window > 1 else NEWTON_LIMIT):
        before = energy
        column = energy.unsqueeze(-1)
        inactive = torch.minimum(q, column, out=scratch) @ weight
        active = torch.gt(q, column, out=scratch) @ weight
        inactive = (inactive - active * energy).clamp(min=0)
        if rest is not None:
            inactive = inactive + rest
        if window > 1:
            inactive, active = _window_mean(inactive, window), _window_mean(active, window)
            denominator = (1 - active).clamp(min=WINDOW_FLOOR)
            energy = inactive / denominator
        else:
            denominator = (1 - active).clamp(min=torch.finfo(q.dtype).eps)
            energy = torch.minimum(energy, inactive / denominator)
            if bool((before - energy <= tolerance * before).all()):
                break
    return energy, before, denominator


def _sorted_energy(
    q: Tensor, weight: Tensor, rest: Tensor | None, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`_newton_energy`, by trying the k largest entries as the active set for every k."""
    ratio, order = q.sort(dim=-1, descending=True)
    sorted_weight = weight[order]
    energies = ratio * sorted_weight
    zero = torch.zeros_like(energies[..., :1])
    active = torch.cat([zero, sorted_weight.cumsum(-1)], -1)  # (..., d + 1): k = 0 … d
    inactive = torch.cat([energies.flip(-1).cumsum(-1).flip(-1), zero], -1)
    if rest is not None:
        inactive = inactive + rest.unsqueeze(-1)
    possible = (active < 1) & torch.cat([zero == 0, ratio > 0], -1)
    quotient = torch.where(possible, inactive / (1 - active), torch.inf)
    energy, k = quotient.min(-1)
    denominator = (1 - active.gather(-1, k.unsqueeze(-1)).squeeze(-1)).clamp(
        min=torch.finfo(q.dtype).eps
    )
    return energy, energy, denominator


def _window_sum(field: Tensor, window: int) -> Tensor:
    """Sum over window × window positions of (B, H, W), nothing beyond the border."""
    return F.avg_pool2d(field, window, stride=1, padding=window // 2) * window**2


def _window_count(field: Tensor, window: int) -> Tensor:
    return _window_sum(torch.ones_like(field[:1]), window)


def _window_mean(field: Tensor, window: int) -> Tensor:
    return _window_sum(field, window) / _window_count(field, window)


def _window_adjoint(first: Tensor, second: Tensor, window: int) -> tuple[Tensor, Tensor]:
    count = _window_count(first, window)
    return _window_sum(first / count, window), _window_sum(second / count, window)


class NeLU(nn.Module):
    """The exact NeLU as a layer, with a learnable τ: λ = τ/√d for vectors of d entries.

    τ is the threshold as a multiple of the residual's root mean square, so it means the same for
    any d. Signed codes with τ ≤ 1 throughout are not shrunk at all.
    """

    def __init__(
        self,
        entries: int,
        tau: float = 1.5,
        *,
        per_channel: bool = True,
        nonnegative: bool = False,
        dim: int | None = 1,
        window: int = 1,
    ) -> None:
        super().__init__()
        self.entries = entries
        self.nonnegative = nonnegative
        self.dim = dim
        self.window = window
        self.tau = nn.Parameter(torch.full((entries,) if per_channel else (), float(tau)))

    def forward(self, coeffs: Tensor) -> Tensor:
        d = self.entries if self.dim is not None else coeffs[0].numel()
        lam = self.tau.clamp(min=0) / d**0.5
        return nelu(
            coeffs, lam, nonnegative=self.nonnegative, dim=self.dim, window=self.window
        )

    def extra_repr(self) -> str:
        return f"{self.entries}, window={self.window}, nonnegative={self.nonnegative}"


class AcceleratedNeLU(nn.Module):
    """The paper's Algorithm 2 as a layer of N steps with learnable λ, β and α."""

    def __init__(
        self,
        *,
        steps: int = 10,
        lam: float = 0.1,
        step_size: float = 0.1,
        momentum: float = 0.9,
        proximal: Proximal = "relu",
        dim: int = 1,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.proximal: Proximal = proximal
        self.dim = dim
        self.lam = nn.Parameter(torch.tensor(float(lam)))
        self.step_size = nn.Parameter(torch.tensor(float(step_size)))
        self.momentum = nn.Parameter(torch.tensor(float(momentum)))

    def forward(self, coeffs: Tensor) -> Tensor:
        return algorithm_2(
            coeffs,
            self.lam,
            self.step_size,
            self.momentum,
            steps=self.steps,
            proximal=self.proximal,
            dim=self.dim,
        )

    def extra_repr(self) -> str:
        return f"steps={self.steps}, proximal={self.proximal}"
