"""The windowed form: NeLU's sums averaged over size × size positions before they are divided."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nelu_cli.operators.energy import pieces, squared_norms

WINDOW_FLOOR = 0.1
"""Least value of 1 − Σλ² with a window, where nothing else keeps it from 0."""


class Window(NamedTuple):
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


def window_energy(
    u: Tensor, lam: Tensor, nonnegative: bool, window: Window
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`newton_energy`, from u (A, P, d): one step, all sums averaged over the window."""
    squares, active, inactive = lam.new_empty(3, *u.shape[:2])
    for piece in pieces(u):
        squares[piece] = squared_norms(u[piece], lam.dtype)
    before = window.mean(squares)
    for piece in pieces(u):
        active[piece], inactive[piece] = window_sums(u[piece], lam, before[piece], nonnegative)
    energy, denominator = window_quotient(window.mean(active), window.mean(inactive))
    return energy, before, denominator


def window_sums(
    u: Tensor, lam: Tensor, energy: Tensor, nonnegative: bool = False
) -> tuple[Tensor, Tensor]:
    """Σ_active λᵢ² and Σ_inactive uᵢ² of vectors u (…, d) for ρ (…), to be averaged.

    Not as products with a vector: torch computes these on one thread, which has to fetch what the
    others have just written, and that takes long where the cores share no cache.
    """
    weight = lam.square()
    inactive = u.to(lam.dtype, copy=True).square_()
    active = energy.unsqueeze(-1) * weight
    torch.gt(inactive, active, out=active)  # 1 or 0, many times faster than booleans
    if nonnegative:
        active.mul_(u > 0)
    inactive.addcmul_(inactive, active, value=-1)
    return active.mul_(weight).sum(-1), inactive.sum(-1)


def window_quotient(active: Tensor, inactive: Tensor) -> tuple[Tensor, Tensor]:
    """ρ and 1 − Σ_active λᵢ² from the averaged sums."""
    denominator = (1 - active).clamp(min=WINDOW_FLOOR)
    return inactive / denominator, denominator
