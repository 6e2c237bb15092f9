"""The energy ρ = r² of NeLU's residual, the one unknown of the problem: by Newton or by sorting.

ρ = Σ_inactive uᵢ²/(1 − Σ_active λᵢ²), where entry i is active if qᵢ = (uᵢ/λᵢ)² > ρ. The derivation
is in :func:`nelu_cli.operators.nelu` and, step by step, in docs/maths.md.
"""

import torch
from torch import Tensor

PIECE = 2**19
"""Entries that are taken through the passes of NeLU together, so that they stay in the cache."""


def lam_of_entries(lam: Tensor, d: int) -> Tensor:
    """λ for each of d entries, large enough to divide by."""
    return lam.clamp(min=torch.finfo(lam.dtype).eps).expand(d).contiguous()


def pieces(vectors: Tensor) -> list[tuple[int | slice, slice]]:
    """Indices that cut (A, P, d) into pieces of about PIECE entries: (n, d), or (m, P, d)."""
    batch, positions, d = vectors.shape
    most = max(1, PIECE // d)
    if positions > most // 2:
        places = [slice(p, p + most) for p in range(0, positions, most)]
        return [(a, place) for a in range(batch) for place in places]
    across = most // max(1, positions)
    return [(slice(a, a + across), slice(None)) for a in range(0, batch, across)]


def squared_norms(u: Tensor, dtype: torch.dtype) -> Tensor:
    """‖u‖² of vectors (…, d), summed in ``dtype``."""
    norms: Tensor = torch.linalg.vector_norm(u, dim=-1, dtype=dtype)
    return norms.square_()


def squared_ratio(u: Tensor, lam: Tensor, nonnegative: bool) -> tuple[Tensor, Tensor | None]:
    """(uᵢ/λᵢ)²: entry i is active where this exceeds ρ. Entries that can never be active are 0
    in it; their energy is the second result."""
    u = u.to(lam.dtype)
    q = u / lam
    if not nonnegative:
        return q.square_(), None
    return q.relu_().square_(), u.clamp(max=0).square_().sum(-1)


def split_energy(
    q: Tensor, weight: Tensor, rest: Tensor | None, energy: Tensor, scratch: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ_active λᵢ² and Σ_inactive uᵢ² of vectors q (…, d), active meaning qᵢ > ρ.

    The inactive energy is summed as it is: as a difference of energies it would drown in the
    rounding of entries a thousand times larger.
    """
    active = torch.gt(q, energy.unsqueeze(-1), out=scratch) @ weight
    inactive = torch.addcmul(q, q, scratch, value=-1, out=scratch) @ weight
    return active, inactive if rest is None else inactive + rest


def newton_energy(
    q: Tensor, weight: Tensor, rest: Tensor | None, energy: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ρ (…), the ρ whose active set gave it, and 1 − Σ_active λᵢ², from q (…, d).

    ``rest`` is the energy of entries outside q; ``energy`` is where to start, ‖u‖² by default.
    Once most vectors are done, the others go on by themselves.

    ρ never rises, so an entry that is active stays active: a step that changes anything adds at
    least one entry to the active set, and d + 1 steps always end the loop. Noise takes 1 to 9 of
    them (d = 175), heavy tails up to 17, and entries that fall geometrically more, the smaller λ:
    29 for powers of 1/2 at λ = 0.12, 130 seen for powers of 1/3, d = 400, λ = 0.055.
    """
    epsilon = torch.finfo(q.dtype).eps
    if energy is None:
        energy = q @ weight if rest is None else q @ weight + rest
    scratch = torch.empty_like(q)
    for _ in range(q.shape[-1] + 1):
        before = energy
        active, inactive = split_energy(q, weight, rest, energy, scratch)
        denominator = (1 - active).clamp(min=epsilon)
        energy = torch.minimum(energy, inactive / denominator)
        moving = before - energy > 4 * epsilon * before
        left = int(moving.count_nonzero())
        if 2 * left < moving.numel():
            break
    if 0 < left < moving.numel():
        others = None if rest is None else rest[moving]
        found = newton_energy(q[moving], weight, others, energy[moving])
        energy[moving], before[moving], denominator[moving] = found
    return energy, before, denominator


def sorted_energy(q: Tensor, weight: Tensor, rest: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`newton_energy`, by trying the k largest entries as the active set for every k."""
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
