"""Laws of stride-shift averaging."""

import pytest
import torch
from torch import Tensor

from nelu_cli.networks import PaperActivation, PaperAutoencoder, PaperConfig
from nelu_cli.runtime.shifts import every_shift, shift_average


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
