"""Laws of stride-shift averaging."""

import numpy as np
import pytest
import torch
from skimage import data
from torch import Tensor

from nelu_cli import denoise, load_model
from nelu_cli.errors import UsageError
from nelu_cli.evaluation import psnr
from nelu_cli.networks import DeepConfig, PaperActivation, PaperAutoencoder, PaperConfig, build
from nelu_cli.runtime.shifts import ShiftAveraged, every_shift, shift_average, spread_shifts
from nelu_cli.runtime.tiling import plan_tiles, run_tiled


def random_image(channels: int = 1, height: int = 19, width: int = 23) -> Tensor:
    return torch.rand(2, channels, height, width, generator=torch.Generator().manual_seed(5))


def network(config: PaperConfig) -> PaperAutoencoder:
    torch.manual_seed(2)
    made = PaperAutoencoder(config)
    made.eval().requires_grad_(False)
    return made


@pytest.mark.parametrize("activation", ["nelu", "nelu-unrolled", "relu"])
@pytest.mark.parametrize(("signed", "pass_through"), [(False, False), (True, True)])
@pytest.mark.parametrize("channels", [1, 3])
def test_dense_equals_explicit_shifts(
    activation: PaperActivation, signed: bool, pass_through: bool, channels: int
) -> None:
    config = PaperConfig(channels, 30, 5, 3, activation, signed, pass_through)
    net, image = network(config), random_image(channels)
    explicit = shift_average(net.denoise_strided, image, every_shift(3), margin=6)
    torch.testing.assert_close(net.denoise(image), explicit, atol=1e-5, rtol=1e-5)


def test_dense_equals_explicit_shifts_for_the_papers_sizes() -> None:
    net, image = network(PaperConfig(filters=130)), random_image(1, 27, 31)
    explicit = shift_average(net.denoise_strided, image, every_shift(8), margin=17)
    torch.testing.assert_close(net.denoise(image), explicit, atol=1e-5, rtol=1e-5)


def test_every_shift_lists_each_offset_of_the_grid_once() -> None:
    assert every_shift(1) == [(0, 0)]
    assert len(set(every_shift(8))) == 64
    assert max(every_shift(3)) == (2, 2)


@pytest.mark.parametrize("shifts", [every_shift(4), [(0, 0)], [(3, 1), (0, 2)]])
@pytest.mark.parametrize("size", [(1, 1), (2, 7), (19, 23)])
def test_the_identity_gives_the_picture(
    shifts: list[tuple[int, int]], size: tuple[int, int]
) -> None:
    image = random_image(3, *size)
    torch.testing.assert_close(shift_average(lambda x: x, image, shifts, margin=4), image)


def grid_bound(image: Tensor) -> Tensor:
    """A map that depends on the place in a grid of stride 3: factors 0 … 8."""
    rows, columns = torch.arange(image.shape[-2]), torch.arange(image.shape[-1])
    return image * (rows[:, None] % 3 * 3 + columns % 3)


def test_all_shifts_make_a_grid_invisible() -> None:
    image = random_image()
    averaged = shift_average(grid_bound, image, every_shift(3), margin=6)
    torch.testing.assert_close(averaged, 4 * image)  # the mean of 0 … 8


def test_a_subset_is_the_mean_of_its_shifts() -> None:
    image, shifts = random_image(), [(0, 1), (2, 2), (1, 0)]
    each = [shift_average(grid_bound, image, [shift], margin=3) for shift in shifts]
    torch.testing.assert_close(
        shift_average(grid_bound, image, shifts, margin=3), torch.stack(each).mean(0)
    )


def test_no_shift_with_a_margin_on_the_grid_is_the_map_itself() -> None:
    image = random_image()
    torch.testing.assert_close(
        shift_average(grid_bound, image, [(0, 0)], margin=3), grid_bound(image)
    )


@pytest.mark.parametrize(
    ("shifts", "margin", "fault"),
    [
        ([(0, 4)], 3, r"margin \(3\) must be at least the largest shift \(4\)"),
        ([], 3, "at least one shift"),
        ([(0, -1)], 3, "none negative"),
    ],
)
def test_impossible_shifts(shifts: list[tuple[int, int]], margin: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        shift_average(lambda x: x, random_image(), shifts, margin)


# For any model


def test_all_shifts_of_the_papers_network_are_its_dense_form() -> None:
    net, image = network(PaperConfig(1, 30, 5, 3)), random_image()
    averaged = ShiftAveraged(net, 9)
    torch.testing.assert_close(averaged(image), net(image), atol=1e-5, rtol=1e-5)
    one = ShiftAveraged(net, 1)
    assert (one(image) - net(image)).abs().max() > 1e-3


def test_a_deep_network_is_averaged_over_shifts_of_its_own_grid() -> None:
    torch.manual_seed(0)
    net = build(DeepConfig(widths=(8, 8), blocks=(0, 0), window=1)).eval().requires_grad_(False)
    image = random_image(1, 24, 28)
    shifts = spread_shifts(net.stride, 3)
    margin = net.halo + net.stride
    right = shift_average(net, image, shifts, margin)
    assert torch.equal(ShiftAveraged(net, 3)(image), right)


@pytest.mark.parametrize("count", [1, 4])
def test_tiles_of_an_averaged_network_give_the_whole(count: int) -> None:
    averaged = ShiftAveraged(network(PaperConfig(1, 30, 5, 3)), count)
    image = random_image(1, 40, 50)
    tile = (averaged.halo * 2 + 12, averaged.halo * 2 + 15)
    tiles = plan_tiles(40, 50, tile, stride=averaged.stride, halo=averaged.halo)
    assert len(tiles) > 4
    for tile_ in tiles:
        rows, columns = tile_.read
        assert rows.start % averaged.stride == columns.start % averaged.stride == 0
    whole = averaged(image)
    torch.testing.assert_close(run_tiled(averaged, image, tiles), whole, atol=1e-5, rtol=1e-5)


def test_shifts_are_spread_once_each_and_no_more_than_there_are() -> None:
    assert spread_shifts(4, 1) == [(0, 0)]
    assert sorted(spread_shifts(4, 16)) == every_shift(4)
    assert spread_shifts(4, 5) == spread_shifts(4, 16)[:5]
    for wrong in (0, 17):
        with pytest.raises(UsageError, match=f"--shifts {wrong}: the model's grid has 16 shifts"):
            spread_shifts(4, wrong)


def test_a_small_picture_is_cleaned_as_well_with_shifts() -> None:
    """It lies within a margin many times its size."""
    clean = np.asarray(data.chelsea()[20:84, 100:164, 1:2] / np.float32(255), np.float32)
    noise = np.random.default_rng(0).standard_normal(clean.shape)
    noisy = np.asarray(clean + 25 / 255 * noise, np.float32)
    plain, shifted = (
        psnr(clean, denoise(noisy, load_model("deep-gray", shifts=shifts))) for shifts in (None, 2)
    )
    assert shifted > plain - 0.2
