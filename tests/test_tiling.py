"""Laws of tiling: tiles cover the picture once, and the tiled result is the whole result."""

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nelu_cli.errors import UsageError
from nelu_cli.networks import Config, DeepConfig, Network, PaperConfig, build
from nelu_cli.runtime.passes import flip_average
from nelu_cli.runtime.shifts import shift_average
from nelu_cli.runtime.tiling import choose_tile, plan_tiles, run_tiled, stream_tiles

sides = st.integers(1, 90)


CONFIGS: dict[str, Config] = {
    "deep": DeepConfig(widths=(4, 6, 8), blocks=(1, 0, 0), window=1),
    "deep colour": DeepConfig(channels=3, widths=(4, 6), blocks=(1, 0), window=3),
    "paper": PaperConfig(filters=12, kernel=5, stride=3),
}


@cache
def random_network(name: str) -> Network:
    torch.manual_seed(0)
    return build(CONFIGS[name]).eval().requires_grad_(False)


def noisy(channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    ramp = torch.linspace(0, 1, width).expand(1, channels, height, width)
    return ramp + 0.2 * torch.randn(1, channels, height, width, generator=generator)


@given(height=sides, width=sides, tile=st.tuples(st.integers(1, 12), st.integers(1, 12)))
@settings(max_examples=50, deadline=None)
def test_cores_cover_every_pixel_once(height: int, width: int, tile: tuple[int, int]) -> None:
    cover = np.zeros((height, width), int)
    shapes = set()
    size = (16 + 4 * tile[0], 16 + 4 * tile[1])
    for piece in plan_tiles(height, width, size, stride=4, halo=8):
        cover[piece.core] += 1
        assert all(part.start % 4 == 0 for part in piece.read)
        for core, read, length in zip(piece.core, piece.read, cover.shape, strict=True):
            assert core.start - read.start >= 8 or read.start == core.start == 0
            assert read.stop - core.stop >= 8 or read.stop == core.stop == length
        assert cover[piece.read][piece.core_in_read].shape == cover[piece.core].shape
        shapes.add(tuple(-(-length // 4) for length in cover[piece.read].shape))
    assert (cover == 1).all()
    assert len(shapes) == 1


@pytest.mark.parametrize("name", CONFIGS)
@given(height=sides, width=sides, rows=st.integers(1, 8), cols=st.integers(1, 8))
@settings(max_examples=12, deadline=None)
def test_tiled_matches_whole(name: str, height: int, width: int, rows: int, cols: int) -> None:
    network = random_network(name)
    assert_tiling_changes_nothing(network, network, height, width, rows, cols)


@given(height=sides, width=sides, rows=st.integers(1, 8), cols=st.integers(1, 8))
@settings(max_examples=8, deadline=None)
def test_tiled_matches_whole_with_flips_and_shifts(
    height: int, width: int, rows: int, cols: int
) -> None:
    network = random_network("deep")
    stride = network.stride

    def best(image: Tensor) -> Tensor:
        return flip_average(
            lambda turned: shift_average(network, turned, [(0, 0), (2, 5)], margin=stride),
            image,
            stride,
        )

    assert_tiling_changes_nothing(best, network, height, width, rows, cols)


def test_tiled_matches_whole_on_a_picture_larger_than_the_halo() -> None:
    network = build(DeepConfig(widths=(4, 4, 4), blocks=(1, 1, 1))).eval().requires_grad_(False)
    assert network.halo < 150
    for rows, cols in itertools.product((5, 11), (13, 40)):
        assert_tiling_changes_nothing(network, network, 301, 267, rows, cols)


def assert_tiling_changes_nothing(
    fn: Callable[[Tensor], Tensor], network: Network, height: int, width: int, rows: int, cols: int
) -> None:
    image = noisy(network.config.channels, height, width)
    tile = (2 * network.halo + rows * network.stride, 2 * network.halo + cols * network.stride)
    tiles = plan_tiles(height, width, tile, stride=network.stride, halo=network.halo)
    torch.testing.assert_close(run_tiled(fn, image, tiles), fn(image), rtol=0, atol=1e-5)


@given(
    height=st.integers(1, 3000),
    width=st.integers(1, 3000),
    halo=st.integers(0, 5),
    room=st.integers(104**2, 10**6),
)
@settings(max_examples=500, deadline=None)
def test_chosen_tiles_fit_the_memory(height: int, width: int, halo: int, room: int) -> None:
    tile = choose_tile(height, width, stride=8, halo=8 * halo, max_pixels=room)
    for piece in plan_tiles(height, width, tile, stride=8, halo=8 * halo):
        rows, cols = piece.read
        assert (rows.stop - rows.start) * (cols.stop - cols.start) <= room


def test_a_picture_that_fits_is_one_tile() -> None:
    assert choose_tile(100, 203, stride=8, halo=16, max_pixels=104 * 208) == (104, 208)


def test_what_a_network_adds_to_fill_its_stride_counts() -> None:
    """A row of pixels is computed as a whole stride of them."""
    assert choose_tile(1, 208, stride=8, halo=16, max_pixels=8 * 208) == (8, 208)
    assert choose_tile(1, 208, stride=8, halo=16, max_pixels=8 * 208 - 1)[1] < 208


@pytest.mark.parametrize("width", [10_000, 200_000, 3_000_000])
def test_a_flat_picture_is_cut_for_a_hundredth_of_the_work(width: int) -> None:
    tile = choose_tile(1, width, stride=16, halo=96, max_pixels=10**9)
    tiles = plan_tiles(1, width, tile, stride=16, halo=96)
    work = sum(cols.stop - cols.start for _, cols in (piece.read for piece in tiles))
    assert tile[1] <= 20_000
    assert work <= 1.011 * width


def test_large_tiles_are_preferred_to_thin_strips() -> None:
    height, width = choose_tile(10_000, 10_000, stride=8, halo=176, max_pixels=4_000_000)
    assert height > 1000
    assert width > 1000


def test_too_little_memory_is_an_error() -> None:
    with pytest.raises(UsageError, match="allow more memory"):
        choose_tile(500, 500, stride=8, halo=16, max_pixels=100)


def test_a_picture_narrower_than_two_halos_is_one_tile() -> None:
    tile = choose_tile(1, 41, stride=8, halo=24, max_pixels=104**2)
    assert len(plan_tiles(1, 41, tile, stride=8, halo=24)) == 1


def test_tiles_that_are_all_halo_are_refused() -> None:
    with pytest.raises(ValueError, match="no room between two halos"):
        plan_tiles(100, 100, (48, 48), stride=8, halo=24)


def test_misaligned_tiles_are_refused() -> None:
    with pytest.raises(ValueError, match="multiples of the stride 8"):
        plan_tiles(100, 100, (12, 16), stride=8, halo=16)


def test_progress_counts_tiles() -> None:
    image = torch.zeros(1, 20, 20)
    steps: list[tuple[int, int]] = []
    tiles = plan_tiles(20, 20, (8, 16), stride=8, halo=0)
    stream_tiles(
        lambda x: x,
        tiles,
        lambda region: image[(..., *region)],
        lambda core, result: None,
        lambda done, total: steps.append((done, total)),
    )
    assert steps == [(k, 6) for k in range(1, 7)]
