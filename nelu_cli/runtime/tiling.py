"""Run a network over a picture of any size in bounded memory, without seams.

A network whose output pixel depends on inputs at most ``halo`` pixels away, and whose
down-sampling grid has period ``stride``, gives the same output for a crop as for the whole
picture, wherever the crop starts on the grid and reaches ``halo`` pixels further than what is
kept. So a picture is cut into *cores* that cover it once; each core is read with its halo,
run, and cropped. Equality is by construction: there is nothing to blend.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nelu_cli.errors import UsageError

Region = tuple[slice, slice]  # rows, columns
FLAT = 64  # times as wide as high
TileProgress = Callable[[int, int], None]  # done, in all: tiles, or hundredths of them


@dataclass(frozen=True)
class Tile:
    """A core, to be written, and the region around it that must be read for it."""

    core: Region
    read: Region

    @property
    def core_in_read(self) -> Region:
        """Where the core lies inside what was read."""
        rows, cols = self.read
        return moved(self.core, -rows.start, -cols.start)


def moved(region: Region, down: int, across: int) -> Region:
    """The same region as seen from another first pixel."""
    rows, cols = region
    return (
        slice(rows.start + down, rows.stop + down),
        slice(cols.start + across, cols.stop + across),
    )


def plan_tiles(
    height: int, width: int, tile: tuple[int, int], *, stride: int, halo: int
) -> list[Tile]:
    """Cut a picture into cores, each read with its halo as ``tile`` (height, width) pixels.

    All tiles are read in the same shape (the last ones, up to ``stride - 1`` pixels less), so that
    the memory of one serves the next: at the borders, where no halo is needed, the core is larger.
    Tile sides and ``halo`` must be multiples of ``stride``, so every region starts on the grid.
    """
    if any(length < 1 or length % stride for length in tile) or halo % stride:
        raise ValueError(f"tile {tile} and halo {halo} must be multiples of the stride {stride}")
    return [
        Tile(core=(rows, cols), read=(read_rows, read_cols))
        for rows, read_rows in _cut(height, tile[0], stride, halo)
        for cols, read_cols in _cut(width, tile[1], stride, halo)
    ]


def choose_tile(
    height: int, width: int, *, stride: int, halo: int, max_pixels: int
) -> tuple[int, int]:
    """The tile, halo included, that needs the least work among those of at most ``max_pixels``.

    Every cut across the picture makes ``2·halo`` lines be computed twice, so the work for a grid
    of m × n tiles is ``(height + 2·halo·(m−1)) · (width + 2·halo·(n−1))`` pixels. Few choices are
    left once n is fixed: m then is as small as ``max_pixels`` allows. A network computes whole
    strides, so a picture of one row counts as one of ``stride`` rows. Of very flat ones all would
    be in work at once; they are cut into columns as long as that adds at most a hundredth.
    """
    height, width = (-(-length // stride) * stride for length in (height, width))
    fewest = 1 + width // (200 * halo) if halo and width > FLAT * height else 1
    best: tuple[int, tuple[int, int]] | None = None
    for columns in range(fewest, width // stride + 1):
        tile_width = _share(width, columns, stride, halo)
        most_rows = max_pixels // tile_width
        most_new = most_rows // stride * stride - 2 * halo  # lines that each further tile adds
        if most_rows >= height:
            rows = 1
        elif most_new > 0:
            rows = -(-(height - 2 * halo) // most_new)
        else:
            continue
        work = (height + 2 * halo * (rows - 1)) * (width + 2 * halo * (columns - 1))
        if best is None or work < best[0]:
            best = work, (_share(height, rows, stride, halo), tile_width)
        if rows == 1:  # more columns can only add work
            break
    if best is None:
        least = min(height, stride + 2 * halo) * min(width, stride + 2 * halo)
        raise UsageError(
            f"too little working memory: room for {max_pixels} pixels at a time, "
            f"the smallest tile has {least}; allow more memory"
        )
    return best[1]


def stream_tiles(
    fn: Callable[[Tensor], Tensor],
    tiles: Sequence[Tile],
    read: Callable[[Region], Tensor],
    write: Callable[[Region, Tensor], None],
    progress: TileProgress | None = None,
) -> None:
    """Run ``fn`` over tiles one at a time: ``write(core, result)`` for every core.

    ``read(region)`` gives that part of the picture as (..., h, w); ``result`` is the core of ``fn``
    of it. Only one tile is in memory at any time.
    """
    for count, tile in enumerate(tiles, 1):
        rows, cols = tile.core_in_read
        write(tile.core, fn(read(tile.read))[..., rows, cols])
        if progress is not None:
            progress(count, len(tiles))


def progress_of_page(progress: TileProgress | None, index: int, count: int) -> TileProgress | None:
    """What to call for the tiles of one of ``count`` pages, so that all of them are counted."""
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, count * total)


def run_tiled(fn: Callable[[Tensor], Tensor], image: Tensor, tiles: Sequence[Tile]) -> Tensor:
    """``fn(image)`` computed tile by tile; ``image`` is (..., H, W)."""
    output = torch.empty_like(image)

    def write(core: Region, result: Tensor) -> None:
        output[(..., *core)] = result

    stream_tiles(fn, tiles, lambda region: image[(..., *region)], write)
    return output


def _cut(length: int, tile: int, stride: int, halo: int) -> list[tuple[slice, slice]]:
    """Cores and what is read for them along one side: tiles that overlap by two halos.

    The last one begins further back than the others would have it, to end with the picture.
    """
    if tile >= length:
        return [(slice(0, length), slice(0, length))]
    if tile <= 2 * halo:
        raise ValueError(f"a tile of {tile} has no room between two halos of {halo}")
    last = -(-(length - tile) // stride) * stride
    starts = [*range(0, last, tile - 2 * halo), last]
    cuts = [0, *(start + halo for start in starts[1:]), length]
    reads = [slice(start, min(start + tile, length)) for start in starts]
    return [(slice(*core), read) for core, read in zip(pairwise(cuts), reads, strict=True)]


def _share(length: int, parts: int, stride: int, halo: int) -> int:
    """Length of each of ``parts`` equal pieces that overlap by two halos, up to the stride."""
    return -(-(length + 2 * halo * (parts - 1)) // (parts * stride)) * stride
