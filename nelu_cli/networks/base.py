"""What every denoising network promises, and the checks that their configs share.

Every network maps (B, C, H, W) of any size to the same shape and has

- ``config``: the frozen dataclass that rebuilds it,
- ``stride``: tiles that start at multiples of it give the result of the whole picture,
- ``halo``: no output pixel depends on input pixels farther away than this; a multiple of stride.

What is banned inside, so that f(c·y) = c·f(y) holds exactly: biases, normalisation layers,
saturating activations, products of features, clamps.
"""

from typing import Any, Self

from torch import Tensor, nn

__all__ = ["Network", "check", "check_counts"]

LARGEST = 10_000
"""Of any count in a config: far above every use, so that a damaged file cannot ask for more."""


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_counts(name: str, least: int, *counts: object) -> None:
    good = all(isinstance(count, int) and least <= count <= LARGEST for count in counts)
    check(good, f"{name} must be whole numbers from {least} to {LARGEST}")


class Network(nn.Module):
    """What the rest of the program knows of a network."""

    config: Any
    stride: int
    halo: int

    def in_bfloat16(self) -> Self | None:
        """A copy for inference that computes in bfloat16, the pixels and its result but for that.

        None if the network has no place where that would round the noise and not the picture.
        """
        return None

    def forward(self, image: Tensor) -> Tensor:
        raise NotImplementedError  # pragma: no cover

    def upgrade(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of an older file under today's names; those of today's files as they are."""
        return tensors
