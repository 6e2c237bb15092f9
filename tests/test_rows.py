"""Laws of layers that take strips of rows: the same result, whatever the strips."""

import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from nelu_cli import operators
from nelu_cli.networks import DeepAutoencoder, DeepConfig, ResidualBlock, deep
from nelu_cli.networks.blocks import unit
from nelu_cli.networks.padding import pad_image, pad_rows
from nelu_cli.networks.rows import (
    Convolution,
    Down,
    Queue,
    Residual,
    Rise,
    RowNeLU,
    Strip,
    fork,
    through,
)
from nelu_cli.operators import NeLU

Layer = Callable[[Strip], Strip | None]
HEIGHT = 24
quick = settings(deadline=None, max_examples=40)
cuts = st.sets(st.integers(1, HEIGHT - 1)).map(lambda inner: [0, *sorted(inner), HEIGHT])


def feature_map(channels: int, height: int = HEIGHT, width: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(channels)
    x = torch.randn(2, channels, height, width, dtype=torch.float64, generator=generator)
    return x.contiguous(memory_format=torch.channels_last)


def in_strips(x: Tensor, where: list[int]) -> Iterator[Strip]:
    for top, bottom in pairwise(where):
        yield Strip(x[:, :, top:bottom].clone(), bottom == x.shape[2])


def check(layer: Layer, x: Tensor, where: list[int], expected: Tensor) -> None:
    """The strips add up to the whole result, and the last one alone says that it is the last."""
    with torch.no_grad():
        strips = list(through(layer, in_strips(x, where)))
    torch.testing.assert_close(torch.cat([strip.rows for strip in strips], 2), expected)
    assert [strip.last for strip in strips] == [False] * (len(strips) - 1) + [True]


@quick
@given(cuts)
def test_convolution(where: list[int]) -> None:
    x, kernel = feature_map(3), feature_map(3, 3, 3)
    check(Convolution(kernel), x, where, F.conv2d(x, kernel, padding=1))


@quick
@given(cuts)
def test_convolution_with_a_stride(where: list[int]) -> None:
    x, kernel = feature_map(3), feature_map(3, 4, 4)
    check(Convolution(kernel, stride=2), x, where, F.conv2d(x, kernel, stride=2, padding=1))


@quick
@given(cuts)
def test_residual(where: list[int]) -> None:
    torch.manual_seed(0)
    block, x = ResidualBlock(3, 5).double().requires_grad_(False), feature_map(3)
    check(Residual(block.first.weight, block.second.weight), x, where, block(x))


@quick
@given(cuts)
def test_gated_residual(where: list[int]) -> None:
    torch.manual_seed(0)
    block, x = ResidualBlock(3, 5, gated=True).double().requires_grad_(False), feature_map(3)
    assert block.gate is not None
    torch.nn.init.normal_(block.gate.weight)
    check(Residual(block.first.weight, block.second.weight, block.gate.weight), x, where, block(x))


@quick
@given(cuts, st.integers(1, 20))
def test_down(where: list[int], least: int) -> None:
    x, kernel = feature_map(3), feature_map(3, 2, 2)
    check(Down(kernel, least), x, where, F.conv2d(x, kernel, stride=2))


@quick
@given(cuts, cuts)
def test_rise(where: list[int], where_coarser: list[int]) -> None:
    codes, x = feature_map(2, 2 * HEIGHT, 12), feature_map(3)
    weight = feature_map(3, 2, 2).transpose(0, 1)
    expected = F.conv_transpose2d(x, weight, stride=2) + codes
    doubled = [2 * place - (0 < place < HEIGHT) for place in where]  # odd numbers of rows, too
    check(Rise(in_strips(x, where_coarser), weight), codes, doubled, expected)
    gate = weight.flip(2)
    expected += codes * F.conv_transpose2d(unit(x), gate, stride=2)
    check(Rise(in_strips(x, where_coarser), weight, gate), codes, doubled, expected)


@pytest.mark.parametrize("window", [1, 3, 5, 31])
@pytest.mark.parametrize("removed", [False, True])
@quick
@given(cuts)
def test_nelu(window: int, removed: bool, where: list[int]) -> None:
    layer = NeLU(3, 0.7, window=window, removed=removed).double().requires_grad_(False)
    u = feature_map(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nelu_cli.networks.rows.PIECE", 40)
        check(RowNeLU(layer), u, where, layer(u))


@pytest.mark.parametrize("layer", [NeLU(3), NeLU(3, window=3, nonnegative=True)])
def test_nelu_that_strips_do_not_know_is_refused(layer: NeLU) -> None:
    with pytest.raises(ValueError, match="a window and signed codes"):
        RowNeLU(layer)


@quick
@given(cuts, st.integers(0, 4))
def test_window_means(where: list[int], reach: int) -> None:
    field = feature_map(2)[0].contiguous()
    means = operators.WindowMeans(2 * reach + 1)
    parts = [means.push(field[:, a:b], b == HEIGHT) for a, b in pairwise(where)]
    expected = F.avg_pool2d(field, 2 * reach + 1, 1, reach, count_include_pad=False)
    torch.testing.assert_close(torch.cat(parts, 1), expected)


def test_a_fork_gives_both_sides_all_strips_and_holds_none_that_both_have_seen() -> None:
    first, second = fork(in_strips(feature_map(1), [0, 1, 6, 8, HEIGHT]))
    seen = weakref.ref(next(first).rows)
    assert seen() is not None
    next(second)
    assert seen() is None
    assert [next(second).rows.shape[2] for _ in range(2)] == [5, 2]
    assert [strip.rows.shape[2] for strip in first] == [5, 2, HEIGHT - 8]
    assert [strip.last for strip in second] == [True]


@quick
@given(st.integers(1, 12), st.integers(0, 6), st.integers(0, 6), st.data())
def test_padded_rows_are_rows_of_the_padded_picture(
    height: int, top: int, bottom: int, data: st.DataObject
) -> None:
    image = feature_map(2, height)
    first = data.draw(st.integers(-top, height + bottom - 1))
    last = data.draw(st.integers(first + 1, height + bottom))
    whole = pad_image(image, 0, 0, top, bottom)
    found = pad_rows(image, first, last, top, bottom)
    torch.testing.assert_close(found, whole[:, :, first + top : last + top])


# What must never pass in silence


def test_a_queue_that_runs_dry_raises() -> None:
    queue = Queue(in_strips(feature_map(3), [0, 5, HEIGHT]))
    assert sum(rows.shape[2] for rows in queue.take(7)) == 7
    with pytest.raises(RuntimeError, match="more rows than there are"):
        queue.take(HEIGHT)


def test_rows_that_were_not_written_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("FEW_STRIPS", 1), ("DEEP_STRIP", 1), ("LEAST_ROWS", 4)):
        monkeypatch.setattr(deep, name, size)
    network = DeepAutoencoder(DeepConfig(widths=(4,), blocks=(0,))).eval()
    heads = network._heads

    def without_the_last(image: Tensor, below: int, right: int) -> Iterator[Strip]:
        return (strip for strip in heads(image, below, right) if not strip.last)

    monkeypatch.setattr(network, "_heads", without_the_last)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"the strips end at row \d+ of 60"):
        network(torch.rand(1, 1, 60, 8))
