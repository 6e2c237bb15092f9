"""Pixels of any type, range and kind: what the pipeline does before and after the network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nelu_cli.errors import ImageError, UsageError
from nelu_cli.networks import DeepConfig, Network
from nelu_cli.runtime.arrays import denoise, estimate_noise
from nelu_cli.runtime.choice import choose_model
from nelu_cli.runtime.holes import fill_holes, find_holes
from nelu_cli.runtime.models import Model, Models
from nelu_cli.runtime.noise_level import NoiseMeter
from nelu_cli.runtime.options import Options
from nelu_cli.runtime.pipeline import denoise_pixels, prepare
from nelu_cli.runtime.pixels import find_levels, subtract, to_tensor
from nelu_cli.runtime.rounding import dither, needs_dither

CPU = torch.device("cpu")


class Blur(Network):
    """A denoiser that anybody can check: the local mean."""

    config = DeepConfig()
    stride = 1
    halo = 4

    def forward(self, image: Tensor) -> Tensor:
        return image - F.avg_pool2d(image, 9, 1, 4, count_include_pad=False)


class Worse(Blur):
    """Adds as much as it should take out."""

    def forward(self, image: Tensor) -> Tensor:
        return -super().forward(image)


class Broken(Blur):
    """Blows up at one place."""

    def forward(self, image: Tensor) -> Tensor:
        image = image.clone()
        image[..., 3, 3] = torch.inf
        return image


BLUR = Model("blur", Blur(), CPU)


def gaussian(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(shape)


# Pixels that say nothing


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e10, -1e30])
def test_a_bad_pixel_stays_and_changes_nothing_around_it(bad: float) -> None:
    clean = (0.5 + 0.1 * gaussian(60, 80)).astype(np.float32)
    spoiled = clean.copy()
    spoiled[30, 40] = bad
    result, expected = denoise(spoiled, BLUR), denoise(clean, BLUR)
    np.testing.assert_equal(result[30, 40], np.float32(bad))
    others = np.ones(clean.shape, bool)
    others[30, 40] = False
    assert np.abs(result - expected)[others].max() < 0.01


def test_a_saturated_marker_in_a_uint32_frame_is_left_alone() -> None:
    frame = (1000 + 30 * gaussian(60, 80)).astype(np.uint32)
    marked = frame.copy()
    marked[10, 10] = 2**32 - 1
    result, expected = denoise(marked, BLUR), denoise(frame, BLUR)
    assert result[10, 10] == 2**32 - 1
    difference = np.abs(result.astype(np.int64) - expected.astype(np.int64))
    difference[10, 10] = 0
    assert difference.max() <= 3


def test_bad_pixels_are_told_of_or_refused() -> None:
    pixels = gaussian(40, 40, 1)
    pixels[0, :3] = np.nan
    pixels[1, 0] = 1e12
    notes = denoise_pixels(pixels, BLUR).notes
    assert notes == (
        "3 of 1600 pixel values are not finite (NaN or infinity) and stay as they are",
        "1 of 1600 pixel values are far outside all others and stay as they are",
    )
    with pytest.raises(ImageError, match="3 of 1600 pixel values are not finite"):
        denoise(pixels, BLUR, nan="refuse")
    with pytest.raises(UsageError, match="choose keep or refuse"):
        denoise(pixels, BLUR, nan="drop")  # type: ignore[arg-type]
    assert denoise_pixels(gaussian(40, 40, 1), BLUR).notes == ()


def test_half_a_picture_without_values_does_not_hide_the_noise() -> None:
    pixels = 100 + 5 * gaussian(200, 200, 1)
    pixels[:, :120] = np.nan
    assert estimate_noise(pixels, BLUR) == pytest.approx(5, rel=0.1)
    found = denoise_pixels(pixels, BLUR, noise_map=True).noise_map
    assert found is not None
    assert np.isnan(found[:, :100]).all()
    assert np.nanmedian(found) == pytest.approx(5, rel=0.1)
    lonely = np.full((300, 300), np.nan)
    lonely[60, 60] = 1
    assert np.isnan(estimate_noise(lonely, BLUR))


@given(seed=st.integers(0, 50), share=st.floats(0.01, 0.95))
@settings(max_examples=20, deadline=None)
def test_holes_are_filled_from_around(seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    page = random.uniform(3, 4, (random.integers(1, 40), random.integers(1, 40), 2))
    holes = random.random(page.shape) < share
    holes[0, 0] = False
    filled = fill_holes(page, holes)
    np.testing.assert_array_equal(filled[~holes], page[~holes])
    assert filled.min() >= 3
    assert filled.max() <= 4


def test_bright_stars_and_sparse_pictures_are_no_holes() -> None:
    stars = gaussian(100, 100, 1)
    stars[50, 50] = 200
    assert find_holes(stars) == (None, ())
    sparse = np.zeros((100, 100, 1), np.float32)
    sparse[::30, ::30] = 1e6
    assert find_holes(sparse) == (None, ())


# Range and pedestal


@pytest.mark.parametrize(
    ("dtype", "pedestal"),
    [("f8", 1e8), ("f8", 1e9), ("f8", -1e9), ("u4", 2**31), ("i8", 1_700_000_000_000_000_000),
     ("u8", 2**63 + 2**40), (">i8", -(2**60)), ("u2", 60_000), ("f4", 30_000)],
)  # fmt: skip
def test_a_pedestal_changes_nothing(dtype: str, pedestal: float) -> None:
    noise = np.rint(20 * gaussian(60, 80)).astype(np.int64)
    flat = np.zeros((60, 80), dtype) + np.dtype(dtype).type(pedestal)
    noisy = (flat + noise.astype(dtype)).astype(dtype)
    result = denoise(noisy, BLUR)
    assert result.dtype == noisy.dtype
    moved = (result - flat).astype(np.int64 if flat.dtype.kind in "ui" else np.float64)
    if flat.dtype.kind == "u":
        moved = (result.astype(np.int64) - flat.astype(np.int64)).astype(np.int64)
    expected = denoise(noise.astype(np.float64), BLUR)
    tolerance = 0.51 if flat.dtype.kind in "ui" else 0.02
    assert np.abs(moved - expected).max() <= tolerance


def test_values_at_the_ends_of_64_bits_are_clamped() -> None:
    high, low = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    pixels = np.array([high, low, high, 5], np.int64)
    less = np.array([-10.0, 10.0, 10.0, 1.6])
    np.testing.assert_array_equal(subtract(pixels, less, "i8"), [high, low, high - 10, 3])


def test_ordinary_pictures_are_divided_by_white_alone() -> None:
    for dtype, white in (("u1", 255), ("u2", 65535), ("f4", 1)):
        ramp = np.linspace(0, white, 500).astype(dtype).reshape(20, 25, 1)
        levels = find_levels(ramp)
        assert (levels.middle, levels.scale) == (0, white)
        assert float(to_tensor(ramp, levels).max()) == 1


# Rounding


def test_photon_counts_keep_their_mean() -> None:
    random = np.random.default_rng(0)
    for peak in (0.5, 2.0, 3.3):
        counts = random.poisson(peak, (200, 200)).astype(np.uint16)
        assert needs_dither(counts[..., None])
        result = denoise(counts, BLUR)
        assert result.mean() == pytest.approx(counts.mean(), rel=0.01)
        precise = denoise(counts, BLUR, dtype="float32")
        assert precise.mean() == pytest.approx(counts.mean(), rel=0.01)
        assert np.abs(result - precise).max() <= 1


def test_dithering_is_told_of_and_needs_noise_of_about_a_level() -> None:
    flat = np.full((64, 64, 1), 100.0)
    for sigma, wanted in ((0, False), (0.5, True), (1.0, True), (8.0, False)):
        pixels = np.rint(flat + sigma * gaussian(64, 64, 1)).astype(np.uint8)
        assert needs_dither(pixels) == wanted
        notes = prepare(pixels, BLUR, Options()).notes
        assert [note.startswith("the noise is below two levels of uint8") for note in notes] == [
            True
        ] * wanted
    assert not needs_dither(gaussian(64, 64, 1))
    assert not needs_dither(np.zeros((1, 1, 1), np.uint8))


@given(value=st.floats(0, 1), top=st.integers(0, 10_000), left=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_dither_rounds_the_right_share_up_anywhere(value: float, top: int, left: int) -> None:
    threshold = dither((slice(top, top + 40), slice(left, left + 40)))
    assert np.floor(value + threshold).mean() == pytest.approx(value, abs=0.02)
    part = dither((slice(top + 7, top + 20), slice(left + 3, left + 9)))
    np.testing.assert_array_equal(part, threshold[7:20, 3:9])


# Weights that make it worse


@pytest.mark.parametrize("network", [Worse(), Broken()])
def test_weights_that_blow_up_are_named(network: Network) -> None:
    with pytest.raises(ImageError, match="model bad makes this picture worse"):
        denoise(gaussian(60, 80), Model("bad", network, CPU))


# Grey pictures in colour, brightness and colour


def test_a_grey_picture_stored_as_colour_goes_through_the_grey_model(small_models: Path) -> None:
    grey = (128 + 20 * gaussian(40, 50)).astype(np.uint8)
    colour = np.repeat(grey[..., None], 3, axis=-1)
    assert choose_model(colour, Models()).model.name == "deep-gray"
    result = denoise(colour)
    np.testing.assert_array_equal(result, np.repeat(denoise(grey)[..., None], 3, axis=-1))
    colour[5, 5, 2] ^= 1
    assert choose_model(colour, Models()).model.name == "deep-color"


def removed(pixels: NDArray[Any], **options: float) -> NDArray[np.float64]:
    return pixels - denoise(pixels, BLUR, **options)  # type: ignore[arg-type]


def test_brightness_and_colour_are_taken_out_separately() -> None:
    pixels = gaussian(40, 50, 3)
    everything = removed(pixels)
    weights = np.array([0.299, 0.587, 0.114])
    grey = (everything @ weights)[..., None]

    def same(found: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=1e-5)

    same(removed(pixels, luma=0), everything - grey)
    same(removed(pixels, chroma=0), grey)
    some = 0.3 * grey + 0.7 * (everything - grey)
    same(removed(pixels, luma=0.3, chroma=0.7), some)
    same(removed(pixels, luma=0.3, chroma=0.7, strength=0.5), some / 2)
    same(removed(pixels, luma=1, chroma=1), everything)


def test_grey_pictures_have_no_colour() -> None:
    with pytest.raises(ImageError, match="chroma is for colour pictures, this one is grey"):
        denoise(gaussian(20, 20), BLUR, chroma=0.5)
    grey = gaussian(20, 20)
    np.testing.assert_allclose(removed(grey, luma=0.5), removed(grey) / 2, atol=1e-5)
    with pytest.raises(UsageError, match="luma 2 is outside 0 to 1"):
        denoise(grey, BLUR, luma=2)


def test_nothing_counted_is_no_number() -> None:
    meter = NoiseMeter(4, 4)
    zeros = np.zeros((1, 4, 4), np.float32)
    meter.add((slice(0, 4), slice(0, 4)), zeros, zeros, np.zeros((4, 4, 1), bool))
    assert np.isnan(meter.deviation()).all()
