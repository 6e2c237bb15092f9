"""Shrinkage operators: the soft threshold, the paper's two algorithms, and NeLU solved exactly.

All of them turn coefficients ``u = W·y`` into a sparse code ``z``. Single letters are the
paper's: u coefficients, z code, λ (``lam``) bias, β (``step_size``), α (``momentum``).
"""

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = [
    "AcceleratedNeLU",
    "NeLU",
    "Proximal",
    "Solver",
    "WindowMeans",
    "algorithm_1",
    "algorithm_2",
    "lam_of_entries",
    "nelu",
    "shrink",
    "soft_threshold",
    "squared_norms",
    "window_quotient",
    "window_sums",
]

Proximal = Literal["relu", "soft"]
Solver = Literal["newton", "sort"]

NEWTON_LIMIT = 100
"""Far above what Newton needs (4 to 8 steps for d up to 200); only a bound for the loop."""

WINDOW_FLOOR = 0.1
"""Least value of 1 − Σλ² with a window, where nothing else keeps it from 0."""

PIECE = 2**19
"""Entries that are taken through the passes of NeLU together, so that they stay in the cache."""


def soft_threshold(u: Tensor, threshold: float | Tensor) -> Tensor:
    """Solve min_z ½‖z − u‖₂² + threshold·‖z‖₁: move every entry towards 0, stopping there."""
    return u.sign() * (u.abs() - threshold).clamp(min=0)


def _shrink(u: Tensor, threshold: float | Tensor, proximal: Proximal) -> Tensor:
    return F.relu(u - threshold) if proximal == "relu" else soft_threshold(u, threshold)


def _unit(residual: Tensor, dim: int | None) -> Tensor:
    """residual / ‖residual‖₂, and 0 for a zero residual (a subgradient of the norm there)."""
    over = dim if dim is not None else tuple(range(1, residual.ndim))
    norm = torch.linalg.vector_norm(residual, dim=over, keepdim=True)
    return residual / torch.where(norm > 0, norm, 1.0)


def algorithm_1(
    u: Tensor,
    lam: float | Tensor,
    *,
    step_size: float = 0.1,
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

    There is a first derivative, in closed form, but no second one.

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
    grid = None if window is None else _Window(window, *u.shape[2:])
    vectors = entries.mT
    if vectors.is_contiguous():  # then they may as well be one batch
        vectors = vectors.flatten(0, 1).unsqueeze(0)
    result: Tensor = _ExactNeLU.apply(vectors, lam, nonnegative, grid, solver, removed)  # type: ignore[no-untyped-call]
    result = result.reshape(entries.mT.shape).mT.reshape(u.shape)
    if u.ndim == 4 and u.is_contiguous(memory_format=torch.channels_last):
        result = result.contiguous(memory_format=torch.channels_last)
    return result


class _Window(NamedTuple):
    """Averages over size × size positions of a field (B, height·width), less at the border."""

    size: int
    height: int
    width: int

    def mean(self, field: Tensor) -> Tensor:
        planes = field.reshape(-1, self.height, self.width)
        return (self._sum(planes) / self._counts(planes)).reshape(field.shape)

    def adjoint(self, field: Tensor) -> Tensor:
        """Apply the transpose of :meth:`mean`; summing is its own."""
        planes = field.reshape(-1, self.height, self.width)
        return self._sum(planes / self._counts(planes)).reshape(field.shape)

    def _sum(self, planes: Tensor) -> Tensor:
        reach = self.size // 2
        return _box_sum(F.pad(planes, (reach, reach, reach, reach)), self.size)

    def _counts(self, like: Tensor) -> Tensor:
        """How many positions each window holds, (height, width)."""
        down = _box_counts(like, self.size, 0, self.height, self.height)
        return torch.outer(down, _box_counts(like, self.size, 0, self.width, self.width))


class WindowMeans:
    """Averages over size × size positions of fields (K, height, width), given a strip at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.done = 0  # rows whose averages are known
        self.held: Tensor | None = None  # the rows from done − reach on; zeros above the first

    def push(self, rows: Tensor, last: bool) -> Tensor:
        """Add the next rows, (K, n, width); return those averages that are known now."""
        reach, width = self.size // 2, rows.shape[2]
        if self.held is None:
            self.held = rows.new_zeros(len(rows), reach, width)
        held = torch.cat([self.held, rows], 1)
        count = max(0, held.shape[1] - (reach if last else 2 * reach))
        self.held = held[:, count:]
        padded = F.pad(held[:, : count + 2 * reach], (reach, reach, 0, reach if last else 0))
        first, self.done = self.done, self.done + count
        down = _box_counts(rows, self.size, first, self.done, self.done if last else None)
        across = _box_counts(rows, self.size, 0, width, width)
        return _box_sum(padded, self.size).div_(torch.outer(down, across))


def _box_sum(padded: Tensor, size: int) -> Tensor:
    """Sums over size × size entries: rows, then columns, in a quarter of avg_pool2d's time."""
    height, width = (max(0, length - size + 1) for length in padded.shape[1:])
    rows = padded[:, :height].clone()
    for shift in range(1, size):
        rows += padded[:, shift : shift + height]
    total = rows[:, :, :width].clone()
    for shift in range(1, size):
        total += rows[:, :, shift : shift + width]
    return total


def _box_counts(like: Tensor, size: int, first: int, last: int, length: int | None) -> Tensor:
    """How many of ``length`` places (None: no end in sight) are in reach of first … last − 1."""
    places, reach = torch.arange(first, last, dtype=like.dtype, device=like.device), size // 2
    below = places + reach if length is None else (places + reach).clamp(max=length - 1)
    return below - (places - reach).clamp(min=0) + 1


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
        window: _Window | None,
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
                energy, energy_before, denominator = _window_energy(u, lam, nonnegative, window)
            else:
                solve = _sorted_energy if solver == "sort" else _newton_energy
                energy, energy_before, denominator = lam.new_empty(3, *u.shape[:2])
                for piece in _pieces(u):
                    q, rest = _squared_ratio(u[piece], lam, nonnegative)
                    energy[piece], energy_before[piece], denominator[piece] = solve(q, weight, rest)
            for piece in _pieces(u):
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
        window: _Window | None = ctx.window
        grad_u = torch.empty_like(u)
        grad_lam = torch.zeros_like(lam)
        r = energy.sqrt()
        with _in_full(u):
            pulled = torch.empty_like(r)  # P
            for piece in _pieces(u):
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
            for piece in _pieces(u):
                v, gv = u[piece].to(lam.dtype), g[piece].to(lam.dtype)
                passed = _passed(v, lam, r[piece], ctx.nonnegative)
                active = passed
                if window is not None:
                    active, _ = _squared_ratio(v, lam, ctx.nonnegative)
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


def lam_of_entries(lam: Tensor, d: int) -> Tensor:
    """λ for each of d entries, large enough to divide by."""
    return lam.clamp(min=torch.finfo(lam.dtype).eps).expand(d).contiguous()


def shrink(
    u: Tensor,
    lam: Tensor,
    energy: Tensor,
    result: Tensor,
    nonnegative: bool = False,
    removed: bool = False,
) -> None:
    """Write S_{λr}(u), or what it takes away, into ``result``: u (…, d), λ (d,), ρ = r² (…)."""
    u = u.to(lam.dtype)
    threshold = energy.sqrt().unsqueeze(-1) * lam
    taken = result if removed else torch.empty_like(threshold)
    if nonnegative:
        torch.minimum(u, threshold, out=taken)
    else:
        torch.clamp(u, -threshold, threshold, out=taken)
    if not removed:
        torch.sub(u, taken, out=result)


def _pieces(vectors: Tensor) -> list[tuple[int | slice, slice]]:
    """Indices that cut (A, P, d) into pieces of about PIECE entries: (n, d), or (m, P, d)."""
    batch, positions, d = vectors.shape
    most = max(1, PIECE // d)
    if positions > most // 2:
        places = [slice(p, p + most) for p in range(0, positions, most)]
        return [(a, place) for a in range(batch) for place in places]
    across = most // max(1, positions)
    return [(slice(a, a + across), slice(None)) for a in range(0, batch, across)]


def _combine(factors: Tensor, vectors: Tensor) -> Tensor:
    """Σ factor·vector over the vectors of a piece: (n) and (n, d), or (m, P) and (m, P, d)."""
    summed = factors.unsqueeze(-2) @ vectors
    return summed.reshape(-1, vectors.shape[-1]).sum(0)


def _squared_ratio(u: Tensor, lam: Tensor, nonnegative: bool) -> tuple[Tensor, Tensor | None]:
    """(uᵢ/λᵢ)²: entry i is active where this exceeds ρ. Entries that can never be active are 0
    in it; their energy is the second result."""
    u = u.to(lam.dtype)
    q = u / lam
    if not nonnegative:
        return q.square_(), None
    return q.relu_().square_(), u.clamp(max=0).square_().sum(-1)


def _split_energy(
    q: Tensor, weight: Tensor, rest: Tensor | None, energy: Tensor, scratch: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ_active λᵢ² and Σ_inactive uᵢ² of vectors q (…, d), active meaning qᵢ > ρ.

    The inactive energy is summed as it is: as a difference of energies it would drown in the
    rounding of entries a thousand times larger.
    """
    active = torch.gt(q, energy.unsqueeze(-1), out=scratch) @ weight
    inactive = torch.addcmul(q, q, scratch, value=-1, out=scratch) @ weight
    return active, inactive if rest is None else inactive + rest


def _newton_energy(
    q: Tensor, weight: Tensor, rest: Tensor | None, energy: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ρ (…), the ρ whose active set gave it, and 1 − Σ_active λᵢ², from q (…, d).

    ``rest`` is the energy of entries outside q; ``energy`` is where to start, ‖u‖² by default.
    Once most vectors are done, the others go on by themselves.
    """
    epsilon = torch.finfo(q.dtype).eps
    if energy is None:
        energy = q @ weight if rest is None else q @ weight + rest
    scratch = torch.empty_like(q)
    for _ in range(NEWTON_LIMIT):
        before = energy
        active, inactive = _split_energy(q, weight, rest, energy, scratch)
        denominator = (1 - active).clamp(min=epsilon)
        energy = torch.minimum(energy, inactive / denominator)
        moving = before - energy > 4 * epsilon * before
        left = int(moving.count_nonzero())
        if 2 * left < moving.numel():
            break
    if 0 < left < moving.numel():
        others = None if rest is None else rest[moving]
        found = _newton_energy(q[moving], weight, others, energy[moving])
        energy[moving], before[moving], denominator[moving] = found
    return energy, before, denominator


def _window_energy(
    u: Tensor, lam: Tensor, nonnegative: bool, window: _Window
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`_newton_energy`, from u (A, P, d): one step, all sums averaged over the window."""
    squares, active, inactive = lam.new_empty(3, *u.shape[:2])
    for piece in _pieces(u):
        squares[piece] = squared_norms(u[piece], lam.dtype)
    before = window.mean(squares)
    for piece in _pieces(u):
        active[piece], inactive[piece] = window_sums(u[piece], lam, before[piece], nonnegative)
    energy, denominator = window_quotient(window.mean(active), window.mean(inactive))
    return energy, before, denominator


def squared_norms(u: Tensor, dtype: torch.dtype) -> Tensor:
    """‖u‖² of vectors (…, d), summed in ``dtype``."""
    norms: Tensor = torch.linalg.vector_norm(u.to(dtype), dim=-1)
    return norms.square_()


def window_sums(
    u: Tensor, lam: Tensor, energy: Tensor, nonnegative: bool = False
) -> tuple[Tensor, Tensor]:
    """Σ_active λᵢ² and Σ_inactive uᵢ² of vectors u (…, d) for ρ (…), to be averaged."""
    q, rest = _squared_ratio(u, lam, nonnegative)
    return _split_energy(q, lam.square(), rest, energy, torch.empty_like(q))


def window_quotient(active: Tensor, inactive: Tensor) -> tuple[Tensor, Tensor]:
    """ρ and 1 − Σ_active λᵢ² from the averaged sums."""
    denominator = (1 - active).clamp(min=WINDOW_FLOOR)
    return inactive / denominator, denominator


def _sorted_energy(q: Tensor, weight: Tensor, rest: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`_newton_energy`, by trying the k largest entries as the active set for every k."""
    ratio, order = q.sort(dim=-1, descending=True)
    sorted_weight = weight[order]
    energies = ratio * sorted_weight
    zero = torch.zeros_like(energies[..., :1])
    active = torch.cat([zero, sorted_weight.cumsum(-1)], -1)  # (A, P, d + 1): k = 0 … d
    inactive = torch.cat([energies.flip(-1).cumsum(-1).flip(-1), zero], -1)
    if rest is not None:
        inactive = inactive + rest.unsqueeze(-1)
    possible = (active < 1) & torch.cat([zero == 0, ratio > 0], -1)
    quotient = torch.where(possible, inactive / (1 - active), torch.inf)
    energy, k = quotient.min(-1)
    denominator = 1 - active.gather(-1, k.unsqueeze(-1)).squeeze(-1)
    return energy, energy, denominator


class NeLU(nn.Module):
    """The exact NeLU as a layer, with a learnable τ: λ = τ/√d for vectors of d entries.

    τ is the threshold as a multiple of the residual's root mean square, so it means the same for
    any d. Signed codes without a window and with τ ≤ 1 throughout are not shrunk at all.
    With ``removed`` the layer gives what it takes away, at most λr anywhere, instead of the code.
    """

    def __init__(
        self,
        entries: int,
        tau: float = 1.5,
        *,
        per_channel: bool = True,
        nonnegative: bool = False,
        dim: int | None = 1,
        window: int | None = None,
        removed: bool = False,
    ) -> None:
        super().__init__()
        self.entries = entries
        self.removed = removed
        self.nonnegative = nonnegative
        self.dim = dim
        self.window = window
        self.tau = nn.Parameter(torch.full((entries,) if per_channel else (), float(tau)))

    def lam(self, d: int) -> Tensor:
        """λ for vectors of d entries."""
        lam: Tensor = self.tau.abs() / d**0.5  # its sign means nothing, so it cannot end below 0
        return lam

    def forward(self, coeffs: Tensor) -> Tensor:
        return nelu(
            coeffs,
            self.lam(self.entries if self.dim is not None else coeffs[0].numel()),
            nonnegative=self.nonnegative,
            dim=self.dim,
            window=self.window,
            removed=self.removed,
        )

    def extra_repr(self) -> str:
        return f"{self.entries}, window={self.window}, nonnegative={self.nonnegative}"


class AcceleratedNeLU(nn.Module):
    """The paper's Algorithm 2 as a layer of N steps with learnable λ, β and α.

    Its fixed point is NeLU for (1 − α)λ, so λ alone says little: what is learned in its place is
    τ = (1 − α)λ√d, which means what it means in :class:`NeLU`, for any d and any momentum. Signed
    codes are shrunk at rest only where τ > 1, so it starts above 1.
    """

    def __init__(
        self,
        entries: int,
        tau: float = 1.5,
        *,
        steps: int = 10,
        step_size: float = 0.3,
        momentum: float = 0.5,
        proximal: Proximal = "relu",
        dim: int | None = 1,
    ) -> None:
        super().__init__()
        self.entries = entries
        self.steps = steps
        self.proximal: Proximal = proximal
        self.dim = dim
        self.tau = nn.Parameter(torch.tensor(float(tau)))
        self.step_size = nn.Parameter(torch.tensor(float(step_size)))
        self.momentum = nn.Parameter(torch.tensor(float(momentum)))

    def lam(self, d: int) -> Tensor:
        """λ = τ/((1 − α)√d) for vectors of d entries."""
        lam: Tensor = self.tau / (_less_than_one(self.momentum) * d**0.5)
        return lam

    @staticmethod
    def tau_of(lam: Tensor, momentum: Tensor, d: int) -> Tensor:
        """τ for the λ of the paper: the inverse of :meth:`lam`."""
        tau: Tensor = lam * _less_than_one(momentum) * d**0.5
        return tau

    def forward(self, coeffs: Tensor) -> Tensor:
        return algorithm_2(
            coeffs,
            self.lam(self.entries if self.dim is not None else coeffs[0].numel()),
            self.step_size,
            self.momentum,
            steps=self.steps,
            proximal=self.proximal,
            dim=self.dim,
        )

    def extra_repr(self) -> str:
        return f"{self.entries}, steps={self.steps}, proximal={self.proximal}"


def _less_than_one(momentum: Tensor) -> Tensor:
    """1 − α, kept above 0: a step without friction has no rest."""
    return (1 - momentum).clamp(min=0.01)
