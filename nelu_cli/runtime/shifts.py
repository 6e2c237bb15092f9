"""Stride-shift averaging: a strided network sees the picture at several offsets of its grid."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nelu_cli.errors import UsageError
from nelu_cli.networks import Network
from nelu_cli.networks.base import Memory
from nelu_cli.networks.padding import pad_far

Shift = tuple[int, int]


def every_shift(stride: int) -> list[Shift]:
    """All stride² offsets (down, right) of a grid of that stride."""
    return [(down, right) for down in range(stride) for right in range(stride)]


def shift_average(
    fn: Callable[[Tensor], Tensor], image: Tensor, shifts: Sequence[Shift], margin: int
) -> Tensor:
    """Average fn over shifted copies of the picture, each shifted back.

    Parameters
    ----------
    fn:
        Any map of (B, C, H, W) to the same shape.
    image:
        (B, C, H, W), any floating dtype and range.
    shifts:
        Offsets (down, right) ≥ 0, as of :func:`every_shift`; at least one.
    margin:
        Width of the mirrored border around the picture, at least the largest offset. From the
        radius of fn's receptive field plus that offset up, what fn does at its own border has no
        influence.

    References
    ----------
    Section "Natural images" of the paper and the figure of its appendix.
    """
    offsets = [offset for shift in shifts for offset in shift]
    if not offsets or min(offsets) < 0:
        raise ValueError("there must be at least one shift, and none negative")
    largest = max(offsets)
    if margin < largest:
        raise ValueError(f"the margin ({margin}) must be at least the largest shift ({largest})")
    height, width = image.shape[-2:]
    padded = pad_far(image, margin, margin + largest)
    total = torch.zeros_like(image)
    for down, right in shifts:
        copy = padded[..., down : down + height + 2 * margin, right : right + width + 2 * margin]
        top, left = margin - down, margin - right
        total += fn(copy)[..., top : top + height, left : left + width]
    return total / len(shifts)


def spread_shifts(stride: int, count: int) -> list[Shift]:
    """``count`` of the stride² offsets: no shift, then the others in one fixed, mixed order."""
    total = stride**2
    if not 1 <= count <= total:
        raise UsageError(
            f"--shifts {count}: the model's grid has {total} shifts; give 1 to {total}"
        )
    order = torch.randperm(total - 1, generator=torch.Generator().manual_seed(0)).tolist()
    shifts = every_shift(stride)
    return [shifts[0], *(shifts[index + 1] for index in order)][:count]


class ShiftAveraged(Network):
    """A network whose noise is averaged over ``count`` shifts of its grid.

    All stride² shifts of the paper's network are what it computes by itself, in one dense pass.
    """

    def __init__(self, network: Network, count: int) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        self.grid, self.stride = network.one_grid()
        self.shifts = spread_shifts(self.stride, count)
        self.halo = -(-network.halo // self.stride) * self.stride

    def forward(self, image: Tensor) -> Tensor:
        return shift_average(self.grid, image, self.shifts, self.halo + self.stride)

    def working_memory(self, width: int) -> list[Memory]:
        """That of one shift at a time, and a copy of the picture with its margins."""
        margin = 2 * (self.halo + self.stride)
        extra = 16 * self.config.channels
        return [
            Memory(memory.fixed + margin * width * memory.per_pixel, memory.per_pixel + extra)
            for memory in self.network.working_memory(width + margin)
        ]
