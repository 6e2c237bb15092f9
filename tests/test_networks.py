"""Laws of the networks: scale, shift, size, reach, cost."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from nelu_cli import checkpoints
from nelu_cli.networks import (
    FLAGSHIP,
    Config,
    DeepConfig,
    Network,
    PaperConfig,
    ResidualBlock,
    build,
    deep,
    hidden_channels,
    is_idle,
    paper,
)
from nelu_cli.networks.blocks import raised, spread, unit
from nelu_cli.networks.padding import pad_far, pad_image
from nelu_cli.operators import NeLU

CONFIGS: dict[str, Config] = {
    "deep": DeepConfig(widths=(4, 6, 8), blocks=(1, 1, 1)),
    "deep colour": DeepConfig(channels=3, widths=(4, 6), blocks=(1, 0), window=1),
    "deep sides": DeepConfig(widths=(4, 6, 8), blocks=(1, 0, 0), decoder_blocks=(2, 1, 0)),
    "deep one scale": DeepConfig(widths=(4,), blocks=(1,)),
    "deep hidden": DeepConfig(widths=(4, 6), blocks=(1, 1), hidden=(3, 8)),
    "deep relu": DeepConfig(widths=(4, 6), blocks=(1, 1), activation="relu"),
    "deep kept": DeepConfig(widths=(4, 6), blocks=(1, 1), activation="nelu-kept"),
    "deep gated": DeepConfig(channels=3, widths=(4, 6, 8), blocks=(1, 0, 1), gated=True),
    "paper": PaperConfig(filters=40, kernel=5, stride=3),
    "paper colour": PaperConfig(channels=3, filters=90, kernel=5, stride=3, signed=True),
    "paper pass": PaperConfig(filters=40, kernel=5, stride=3, signed=True, pass_through=True),
    "paper pass colour": PaperConfig(channels=3, filters=90, kernel=5, stride=2, pass_through=True),
    "algorithm 2": PaperConfig(filters=40, kernel=5, stride=3, activation="nelu-unrolled"),
    "relu": PaperConfig(filters=40, kernel=5, stride=3, activation="relu"),
    "soft": PaperConfig(filters=40, kernel=5, stride=3, activation="relu", signed=True),
}


def is_scale_equivariant(config: Config) -> bool:
    return not isinstance(config, PaperConfig) or config.activation == "nelu"


def is_shift_equivariant(config: Config) -> bool:
    return is_scale_equivariant(config) and getattr(config, "pass_through", True)


@cache
def network(name: str) -> Network:
    """A config's network with random weights, or a bundled one, in float64."""
    if name in CONFIGS:
        torch.manual_seed(1)
        made = build(CONFIGS[name])
        for path, parameter in made.named_parameters():
            if "gate" in path:  # which begin at 0
                torch.nn.init.normal_(parameter, std=0.5)
    else:
        made = checkpoints.load(name).network
    return made.eval().double().requires_grad_(False)


def noisy(channels: int, height: int = 21, width: int = 26) -> Tensor:
    generator = torch.Generator().manual_seed(height * 100 + width)
    ramp = torch.linspace(0, 1, width, dtype=torch.float64).expand(2, channels, height, width)
    return ramp + 0.2 * torch.randn(ramp.shape, generator=generator, dtype=torch.float64)


def scale_error(net: Network, image: Tensor, c: float) -> float:
    """Largest deviation from f(c·y) = c·f(y), as a part of c·(the result's size)."""
    result = net.denoise(image)
    return float((net.denoise(c * image) / c - result).abs().max() / result.abs().max())


def shift_error(net: Network, image: Tensor, b: list[float]) -> float:
    """Largest deviation from f(y + b) = f(y) + b."""
    light = torch.tensor(b[: image.shape[1]], dtype=image.dtype).view(-1, 1, 1)
    return float((net.denoise(image + light) - net.denoise(image) - light).abs().max())


everyone = pytest.mark.parametrize("name", [*CONFIGS, *checkpoints.bundled()])


@everyone
@pytest.mark.parametrize("c", [1e-4, 0.37, 250.0])
def test_scale_equivariance_where_promised_and_only_there(name: str, c: float) -> None:
    net = network(name)
    error = scale_error(net, noisy(net.config.channels), c)
    if is_scale_equivariant(net.config):
        assert error < 1e-9
    else:
        assert error > 1e-2  # Algorithm 2 and learned biases: the check bites


@everyone
@pytest.mark.parametrize("b", [[0.5, 0.5, 0.5], [-3.0, 0.1, 20.0]])
def test_shift_equivariance_where_promised(name: str, b: list[float]) -> None:
    net = network(name)
    error = shift_error(net, noisy(net.config.channels), b)
    if is_shift_equivariant(net.config):
        assert error < 1e-9
    elif name in CONFIGS:
        assert error > 1e-2


@pytest.mark.parametrize("name", ["deep", "paper pass"])
def test_flat_pictures_stay_as_they_are(name: str) -> None:
    flat = torch.full((1, 1, 9, 30), 0.7, dtype=torch.float64)
    torch.testing.assert_close(network(name).denoise(flat), flat)


@pytest.mark.parametrize("c", [1e-12, 1.7, 1e12])
def test_unit_tells_what_is_where_and_not_how_strong_it_is(c: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 3, 5)
    torch.testing.assert_close(unit(c * x), unit(x))
    torch.testing.assert_close(unit(x).square().mean(1), torch.ones(2, 3, 5))
    assert not unit(0 * x).any()


def test_the_gradient_of_unit() -> None:
    x = torch.randn(2, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unit, x)


@pytest.mark.parametrize("quiet", [0, 1e-33, 1e-9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_position_without_anything_leaves_the_gradient_of_the_others(
    quiet: float, dtype: torch.dtype
) -> None:
    """It was infinite, and a run whose gradients are clipped stood still."""
    full = torch.randn(1, 4, 3, 5).to(dtype)
    g = torch.randn(1, 4, 3, 5).to(dtype)
    x = full.clone()
    x[:, :, 1, 2] *= quiet
    found = []
    for start in (full, x):
        start.requires_grad_()
        unit(start).backward(g)  # type: ignore[no-untyped-call]
        assert start.grad is not None
        found.append(start.grad)
    assert not found[1][:, :, 1, 2].any()
    assert found[1].isfinite().all()
    found[0][:, :, 1, 2] = 0
    assert torch.equal(*found)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_factor_that_is_spread_is_the_same_factor(dtype: torch.dtype) -> None:
    x, factor = torch.randn(2, 7, 3, 5, dtype=dtype), torch.rand(2, 1, 3, 5)
    assert torch.equal(x * spread(factor, x), x * factor.to(dtype))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 1), (3, 17), (8, 8), (19, 5)])
def test_every_size_comes_back_finite(name: str, size: tuple[int, int]) -> None:
    net = network(name)
    image = noisy(net.config.channels, *size)
    result = net.denoise(image)
    assert result.shape == image.shape
    assert result.isfinite().all()


@pytest.mark.parametrize("name", ["deep", "paper"])
def test_pictures_of_a_batch_do_not_mix(name: str) -> None:
    image = noisy(1)
    together = network(name)(image)
    for number in range(len(image)):
        torch.testing.assert_close(network(name)(image[number : number + 1])[0], together[number])


REACH: dict[str, Config] = {
    "deep": DeepConfig(widths=(2, 3), blocks=(1, 0), window=3),
    "deep, three scales": DeepConfig(widths=(2, 3, 3), blocks=(0, 1, 1), window=3),
    "deep, each its window": DeepConfig(widths=(2, 3, 3), blocks=(0, 1, 1), window=(3, 5, 1)),
    "deep without window": DeepConfig(widths=(2, 3), blocks=(1, 1), window=1),
    "paper": PaperConfig(filters=10, kernel=7, stride=4),
}


@cache
def reach_network(name: str) -> Network:
    torch.manual_seed(3)
    return build(REACH[name]).eval().double().requires_grad_(False)


@pytest.mark.parametrize("name", REACH)
def test_halo_bounds_what_a_pixel_can_change(name: str) -> None:
    net = reach_network(name)
    side = 2 * net.halo + 2 * net.stride + 8
    image = noisy(1, side, side)[:1]
    before = net.denoise(image)[0, 0]
    reach = 0
    for offset in range(net.stride):  # each place of the grid
        at = side // 2 + offset
        changed = image.clone()
        changed[0, 0, at, at] += 10
        places = (net.denoise(changed)[0, 0] != before).nonzero()
        reach = max(reach, int((places - at).abs().max()))
    assert reach <= net.halo
    assert reach > net.halo // 2  # nor is it far more than needed


@pytest.mark.parametrize("name", REACH)
def test_tiles_on_the_grid_with_a_halo_give_the_whole(name: str) -> None:
    net = reach_network(name)
    assert net.halo % net.stride == 0
    length = 2 * net.halo + 5 * net.stride + 3
    image = noisy(1, 9, length)
    whole = net.denoise(image)
    start = net.halo + 2 * net.stride
    inside = net.denoise(image[..., start - net.halo : start + net.stride + net.halo])
    inside = inside[..., net.halo : net.halo + net.stride]
    torch.testing.assert_close(inside, whole[..., start : start + net.stride])
    at_border = net.denoise(image[..., start - net.halo :])[..., net.halo :]
    torch.testing.assert_close(at_border, whole[..., start:])


def macs_per_pixel(net: Network, side: int = 64) -> float:
    """Multiply-adds of all convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        net(torch.rand(1, net.config.channels, side, side))
    return float(counter.get_total_flops()) / 2 / side**2


def test_the_counter_counts() -> None:
    # head 9·4·2 at half size, tail 9·2·4, a block of two 9·2·2 each way
    config = DeepConfig(widths=(2,), blocks=(1,))
    assert macs_per_pixel(build(config)) == (9 * 4 * 2 + 9 * 2 * 4 + 2 * 2 * 9 * 2 * 2) / 4


def test_going_up_is_a_transposed_convolution() -> None:
    torch.manual_seed(0)
    x, code = torch.rand(2, 6, 3, 5), torch.rand(2, 4, 6, 10)
    weight, gate = torch.rand(2, 6, 4, 2, 2)
    up = F.conv_transpose2d(x, weight, stride=2)
    gains = 1 + F.conv_transpose2d(unit(x), gate, stride=2)
    x, code = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, code))
    for kernels, expected in (((weight,), up + code), ((weight, gate), up + gains * code)):
        total = raised(x, code, *kernels)
        torch.testing.assert_close(total, expected)
        assert total.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("channels", [1, 3])
def test_deep_costs_at_most_60_kmac_a_pixel(channels: int) -> None:
    assert 40_000 < macs_per_pixel(build(replace(FLAGSHIP, channels=channels))) <= 60_000


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [(21, 26), (64, 20), (70, 6)])
def test_strips_change_nothing(
    name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network(name)
    image = noisy(net.config.channels, *size)
    with torch.enable_grad():
        whole = net.denoise(image)
    monkeypatch.setattr(paper, "STRIP", 100)
    monkeypatch.setattr(deep, "FEW_STRIPS", 1)
    monkeypatch.setattr(deep, "DEEP_STRIP", 1)
    for least in (1, 2, 3, 8, 1000):
        monkeypatch.setattr(deep, "LEAST_ROWS", least)
        with torch.no_grad():
            torch.testing.assert_close(net.denoise(image), whole)


@pytest.mark.parametrize("name", ["deep-gray", "deep-color"])
def test_the_fast_way_is_the_reference_to_1e5(name: str) -> None:
    net = checkpoints.load(name).network
    image = noisy(net.config.channels, 270, 150).float()
    reference = net.denoise(image)
    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep, "DEEP_STRIP", 1 << 18)
        fast = net.denoise(image)
    torch.testing.assert_close(fast, reference, rtol=0, atol=1e-5)


def test_thresholds_are_one_list_a_scale() -> None:
    net = build(DeepConfig(widths=(4, 6), blocks=(0, 0), tau=1.25))
    assert net.facts() == {"tau": [[1.25] * 4, [1.25] * 6]}
    assert build(DeepConfig(widths=(4, 6), blocks=(0, 0), activation="relu")).facts() == {}


@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_reach_every_weight(channels: int) -> None:
    torch.manual_seed(0)
    for config in (
        DeepConfig(channels=channels, widths=(4, 6), blocks=(1, 1)),
        PaperConfig(channels=channels, filters=40, kernel=5, stride=3),
    ):
        net = build(config)
        net(noisy(channels).float()).square().sum().backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


# bfloat16


def in_bfloat16(net: Network, image: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        result: Tensor = net.denoise(image)
    return result


@pytest.mark.parametrize("name", ["deep-gray", "deep-color"])
def test_bfloat16_rounds_the_noise_and_not_the_picture(name: str) -> None:
    net = checkpoints.load(name).network
    image = noisy(net.config.channels, 70, 90).float() + 100  # bfloat16 has steps of 0.5 there
    expected, found = net.denoise(image), in_bfloat16(net, image)
    removed = (image - expected).square().mean().sqrt()
    assert found.dtype == torch.float32
    assert 0 < (found - expected).square().mean().sqrt() < 1e-2 * removed


@pytest.mark.parametrize("name", ["deep-gray", "deep-color"])
def test_powers_of_two_are_exactly_equivariant_in_bfloat16(name: str) -> None:
    net = checkpoints.load(name).network
    image = noisy(net.config.channels, 35, 43).float()
    result = in_bfloat16(net, image)
    for exponent in (-9, -1, 5):
        assert torch.equal(in_bfloat16(net, image * 2**exponent), result * 2**exponent)


@pytest.mark.parametrize("name", ["deep-gray", "deep-color"])
def test_other_scales_are_equivariant_to_a_fiftieth_of_the_noise_in_bfloat16(name: str) -> None:
    net = checkpoints.load(name).network
    image = noisy(net.config.channels, 35, 43).float()
    result = in_bfloat16(net, image)
    removed = (image - result).square().mean().sqrt()
    for c in (0.3, 7.0):
        error = in_bfloat16(net, image * c) / c - result
        assert error.square().mean().sqrt() < 2e-2 * removed


@pytest.mark.parametrize("name", ["deep-gray", "deep-color"])
def test_flat_pictures_stay_as_they_are_in_bfloat16(name: str) -> None:
    net = checkpoints.load(name).network
    flat = torch.full((1, net.config.channels, 40, 33), 0.7)
    torch.testing.assert_close(in_bfloat16(net, flat), flat, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name.startswith("deep")])
def test_strips_equal_the_whole_to_a_rounding_of_bfloat16(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    net = build(CONFIGS[name]).eval()
    image = noisy(net.config.channels, 70, 26).float()
    whole = in_bfloat16(net, image).detach()
    for name, size in (("FEW_STRIPS", 1), ("DEEP_STRIP", 1), ("LEAST_ROWS", 3)):
        monkeypatch.setattr(deep, name, size)
    with torch.no_grad():
        error = in_bfloat16(net, image) - whole
    assert error.abs().max() < 2e-2 * (image - whole).abs().max()


@pytest.mark.parametrize("name", ["paper", "paper pass", "relu"])
def test_the_paper_stays_in_float32(name: str) -> None:
    net = build(CONFIGS[name]).eval()
    image = noisy(net.config.channels).float()
    assert torch.equal(in_bfloat16(net, image), net.denoise(image))


@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_in_bfloat16_are_close_to_those_in_float32(channels: int) -> None:
    torch.manual_seed(0)
    net = build(DeepConfig(channels=channels, widths=(8, 16), blocks=(1, 1)))
    image = noisy(channels).float()
    gradients = []
    for run in (net, lambda image: in_bfloat16(net, image)):
        (run(image) - image / 2).square().sum().backward()
        gradients.append([p.grad for p in net.parameters() if p.grad is not None])
        net.zero_grad()
    assert len(gradients[0]) == len(gradients[1]) == len(list(net.parameters()))
    for exact, rounded in zip(*gradients, strict=True):
        assert rounded.dtype == torch.float32
        assert (exact - rounded).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 9), (9, 3), (4, 4), (5, 12)])
def test_padding_mirrors_and_repeats_the_border_where_too_small(height: int, width: int) -> None:
    image = noisy(3, height, width)
    left, right, top, bottom = 1, 4, 3, 2
    across = "reflect" if width > 4 else "edge"
    down = "reflect" if height > 3 else "edge"
    expected = np.pad(image.numpy(), ((0, 0), (0, 0), (0, 0), (left, right)), mode=across)  # type: ignore[call-overload]
    expected = np.pad(expected, ((0, 0), (0, 0), (top, bottom), (0, 0)), mode=down)  # type: ignore[call-overload]
    np.testing.assert_array_equal(pad_image(image, left, right, top, bottom).numpy(), expected)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 9), (9, 3), (4, 1), (40, 12)])
def test_far_padding_mirrors_again_and_again(height: int, width: int) -> None:
    image = noisy(3, height, width)
    expected = np.pad(image.numpy(), ((0, 0), (0, 0), (17, 22), (17, 22)), mode="reflect")
    np.testing.assert_array_equal(pad_far(image, 17, 22).numpy(), expected)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"channels": 2}, "channels must be 1 or 3"),
        ({"filters": 0}, "filters, kernel and the steps of Algorithm 2 must be whole numbers"),
        ({"filters": 10**9}, "whole numbers from 1 to"),
        ({"kernel": 11.0}, "whole numbers"),
        ({"stride": 1}, "stride must be whole numbers from 2"),
        ({"stride": 12}, "must not exceed the kernel"),
        ({"steps": 0}, "whole numbers"),
        ({"activation": "gelu"}, "the activation is one of nelu, "),
    ],
)
def test_impossible_paper_configs(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        PaperConfig(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"channels": 4}, "channels must be 1 or 3"),
        ({"widths": (), "blocks": ()}, "as many"),
        ({"widths": (8,)}, "as many"),
        ({"widths": (8, 16, 20, 8), "symmetric": True}, "multiples of 8"),
        ({"symmetric": "yes"}, "true or false"),
        ({"widths": (8, 0, 8, 8)}, "widths must be whole numbers"),
        ({"blocks": (1, -1, 1, 1)}, "blocks must be whole numbers"),
        ({"decoder_blocks": (1, 1)}, "as many"),
        ({"hidden": (8, 8)}, "widths and hidden must be as many"),
        ({"hidden": (8, 8, 0, 8)}, "hidden must be whole numbers"),
        ({"hidden": (8, 8, 8, 9), "symmetric": True}, "multiples of 8"),
        ({"window": 4}, "odd"),
        ({"window": (5, 3, 2)}, "odd"),
        ({"window": ()}, "there must be a window"),
        ({"window": "5"}, "window must be whole numbers"),
        ({"tau": float("nan")}, "tau"),
        ({"gated": 2}, "gated is true or false"),
        ({"activation": "soft"}, "the activation is one of nelu, "),
    ],
)
def test_impossible_deep_configs(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        DeepConfig(**changes)  # type: ignore[arg-type]


def test_what_crosses_to_the_decoder_is_bounded_by_the_noise_nelu_measures() -> None:
    """u − NeLU(u) is never larger than the threshold; with the code itself it adds up to u."""
    torch.manual_seed(0)
    coeffs = torch.randn(2, 8, 9, 7)
    coeffs[0, 3] *= 1000  # strong structure in one channel
    for window in (1, 5):
        removed, kept = NeLU(8, window=window, removed=True), NeLU(8, window=window)
        rest = removed(coeffs)
        torch.testing.assert_close(rest + kept(coeffs), coeffs)
        assert bool((rest.abs() <= coeffs.abs() + 1e-6).all())
        assert bool((rest[0, 3].abs() < coeffs[0, 3].abs().mean()).all())


def test_the_hidden_channels_of_a_centred_block_sum_to_0() -> None:
    torch.manual_seed(0)
    block = ResidualBlock(8, 8).double()
    block.centre()
    hidden = block.first(torch.randn(2, 8, 9, 7, dtype=torch.float64) - 3)
    torch.testing.assert_close(hidden.sum(1), torch.zeros(2, 9, 7, dtype=torch.float64))
    assert block.is_centred()
    with torch.no_grad():
        block.first.weight -= 0.01
    assert not block.is_centred()


def test_idle_blocks_are_those_whose_hidden_channels_are_off() -> None:
    torch.manual_seed(0)
    net = build(CONFIGS["deep"])
    image = noisy(1).float()
    assert not any(map(is_idle, hidden_channels(net, image).values()))
    with torch.no_grad():
        net.get_parameter("decoder.1.0.first.weight").zero_()
    hidden = hidden_channels(net, image)
    assert [name for name in hidden if is_idle(hidden[name])] == ["decoder.1.0"]


@pytest.mark.parametrize(("side", "idle"), [(3, True), (4, False)])
def test_a_block_is_idle_below_one_hidden_value_in_a_hundred(side: int, idle: bool) -> None:
    block = ResidualBlock(8, 8)
    with torch.no_grad():
        block.first.weight.zero_()
        block.first.weight[:, :, 1, 1] = torch.eye(8)  # hidden is the image itself
    image = -torch.ones(1, 8, 32, 32)
    image[..., :side, :side] = 1
    assert is_idle(hidden_channels(torch.nn.Sequential(block), image)["0"]) is idle
