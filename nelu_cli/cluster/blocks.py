"""How an image is cut into blocks: of whole chunks, so that no two of them write to the same.

A block is read with a halo, whose pixels are computed for it anew. For a halo of h pixels and
blocks of a side S that is (1 + 2h/S)² times the work of the whole: for h = 128, 1.27 at S = 2048
and 1.13 at 4096. So blocks are as large as memory allows, but no larger than is good for going on
after a stop and for many workers.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

SIDE = 4096
"""A block has at most the pixels of a square of that side, unless a single chunk has more."""
_SMALLEST = 4  # times shorter is the side where blocks would be too few for all tasks
_ROUNDS = 4  # blocks for each that works at the same time, so that all end at about the same time


@dataclass(frozen=True)
class Block:
    """A part of a level: from ``start`` to ``stop`` in every dimension."""

    level: int
    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def name(self) -> str:
        return "-".join(map(str, (self.level, *self.start)))

    @property
    def region(self) -> tuple[slice, ...]:
        return tuple(itertools.starmap(slice, zip(self.start, self.stop, strict=True)))


def most_pixels(pixels: int, itemsize: int, *, memory: int, at_once: int) -> int:
    """How many pixels a block may have, of an image of so many.

    Args:
        memory: bytes that a block may take, before and after.
        at_once: how many blocks are in work at the same time.
    """
    most = min(SIDE**2, memory // (2 * itemsize))
    if at_once > 1:
        most = min(most, max((SIDE // _SMALLEST) ** 2, pixels // (_ROUNDS * at_once)))
    return max(1, most)


def cut(
    level: int,
    shape: Sequence[int],
    chunk: Sequence[int],
    plane: tuple[int, int],
    most: int,
) -> list[Block]:
    """All of a level in blocks of whole chunks, of at most so many pixels if a chunk has no more.

    A block is as square as can be in the two dimensions of the plane; where a plane is smaller, it
    has several.
    """
    sides = [min(n, c) for n, c in zip(shape, chunk, strict=True)]  # one chunk, to begin with
    shorter, longer = sorted(plane, key=lambda axis: shape[axis])
    others = [axis for axis in reversed(range(len(shape))) if axis not in plane]
    depth = math.prod(sides[axis] for axis in others)
    for axis in (shorter, longer, *others):
        room = most * sides[axis] // math.prod(sides)
        if axis == shorter:
            room = min(room, math.isqrt(most // depth))
        sides[axis] = _side(shape[axis], chunk[axis], room)
    starts = itertools.product(*(range(0, n, side) for n, side in zip(shape, sides, strict=True)))
    return [
        Block(
            level,
            start,
            tuple(min(n, a + side) for n, a, side in zip(shape, start, sides, strict=True)),
        )
        for start in starts
    ]


def _side(length: int, chunk: int, most: int) -> int:
    """The side of blocks of at most so many pixels, or of a chunk, all of about the same length."""
    chunks = -(-length // chunk)
    parts = -(-chunks // max(1, most // chunk))
    return -(-chunks // parts) * chunk
