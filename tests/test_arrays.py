"""What Python users can hand in: arrays of any order, masked ones, Pillow images, tensors."""

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import nelu_cli
from nelu_cli import Model, denoise, errors, estimate_noise, load_model
from nelu_cli.errors import ImageError, UsageError
from nelu_cli.networks import DeepConfig, build

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def models(small_models: Path) -> Path:
    return small_models


def noisy(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    random = np.random.default_rng(seed)
    return (128 + 20 * random.standard_normal(shape)).astype(np.uint8)


# The package


def test_the_package_offers_what_it_lists() -> None:
    assert sorted(nelu_cli.__all__) == nelu_cli.__all__
    for name in nelu_cli.__all__:
        assert getattr(nelu_cli, name) is not None
    assert set(errors.__all__) <= set(nelu_cli.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = nelu_cli.nonsense


def test_the_readme_tells_of_everything_in_the_package() -> None:
    section = (ROOT / "README.md").read_text("utf-8").split("## From Python")[1].split("\n## ")[0]
    written = set(re.findall(r"\w+", section))
    assert set(nelu_cli.__all__) <= written


def test_importing_all_errors_and_settings_needs_no_torch() -> None:
    script = (
        "import sys\n"
        "from nelu_cli import ImageError, NeluError, Options, Record, Job\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


# Kinds


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "CMYK", "I", "F", "I;16"])
def test_an_image_comes_back_as_an_image(mode: str) -> None:
    colours = noisy(24, 30, 4)
    if mode == "I;16":
        image = Image.fromarray(colours[..., 0].astype(np.uint16) * 100)
    else:
        bands = Image.Image.getbands(Image.new(mode, (1, 1)))
        planes = [Image.fromarray(colours[..., k]) for k in range(len(bands))]
        image = planes[0].convert(mode) if len(planes) == 1 else Image.merge(mode, planes)
    image.info["dpi"] = (300, 300)
    result = denoise(image)
    assert (result.mode, result.size) == (mode, image.size)
    assert result.info == image.info
    before, after = np.asarray(image), np.asarray(result)
    assert (before != after).any()
    if mode in ("LA", "RGBA"):
        np.testing.assert_array_equal(after[..., -1], before[..., -1])
        np.testing.assert_array_equal(
            after[..., :-1].squeeze(), denoise(before[..., :-1].squeeze())
        )
    elif mode == "CMYK":
        inks = [denoise(before[..., k]) for k in range(4)]
        np.testing.assert_array_equal(after, np.stack(inks, axis=-1))
    else:
        np.testing.assert_array_equal(after, denoise(before))


def test_palettes_are_expanded_and_odd_modes_refused() -> None:
    image = Image.fromarray(noisy(24, 30, 3)).convert("P")
    assert denoise(image).mode == "RGB"
    for mode in ("1", "HSV", "LAB", "YCbCr"):
        with pytest.raises(ImageError, match=f"mode {mode} cannot be denoised"):
            denoise(Image.new(mode, (8, 8)))


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((24, 30), (0, 1)),
        ((3, 24, 30), (1, 2, 0)),
        ((4, 24, 30), (1, 2, 0)),
        ((7, 24, 30), (0, 1, 2)),
        ((2, 3, 24, 30), (0, 2, 3, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_a_tensor_has_its_channels_first(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype
) -> None:
    tensor = torch.from_numpy(noisy(*shape)).to(dtype)
    tensor.requires_grad_(dtype.is_floating_point)
    result = denoise(tensor)
    assert (result.shape, result.dtype, result.requires_grad) == (tensor.shape, dtype, False)
    array = tensor.detach().float().numpy() if dtype == torch.bfloat16 else tensor.detach().numpy()
    expected = torch.from_numpy(denoise(array.transpose(order))).to(dtype)
    assert torch.equal(result, expected.permute(*np.argsort(order).tolist()))


def test_rgba_arrays_keep_their_alpha_and_use_the_colour_model() -> None:
    array = noisy(24, 30, 4)
    result = denoise(array)
    np.testing.assert_array_equal(result[..., 3], array[..., 3])
    np.testing.assert_array_equal(result[..., :3], denoise(array[..., :3], "deep-color"))


def test_two_channels_are_two_pictures() -> None:
    array = noisy(24, 30, 2)
    expected = np.stack([denoise(array[..., k]) for k in range(2)], axis=-1)
    np.testing.assert_array_equal(denoise(array), expected)


# Axes


@given(axes=st.permutations("TCYX"))
@settings(max_examples=24, deadline=None)
def test_axes_may_come_in_any_order(axes: list[str]) -> None:
    sizes = {"T": 3, "C": 2, "Y": 20, "X": 16}
    array = noisy(*(sizes[letter] for letter in axes))
    moved = array.transpose([axes.index(letter) for letter in "TCYX"])
    expected = np.stack([[denoise(plane) for plane in page] for page in moved])
    result = denoise(array, axes="".join(axes))
    assert result.shape == array.shape
    np.testing.assert_array_equal(
        result.transpose([axes.index(letter) for letter in "TCYX"]), expected
    )


def test_samples_are_colour_and_channels_are_not() -> None:
    array = noisy(3, 24, 30)
    colour = denoise(array.transpose(1, 2, 0), "deep-color").transpose(2, 0, 1)
    np.testing.assert_array_equal(denoise(array, axes="SYX"), colour)
    grey = np.stack([denoise(plane, "deep-gray") for plane in array])
    np.testing.assert_array_equal(denoise(array, axes="CYX"), grey)


@pytest.mark.parametrize(
    ("shape", "axes", "error", "message"),
    [
        ((3, 2, 64, 64), None, ImageError, "would have 64 channels; say what its axes are"),
        ((2, 2, 3, 8, 8), None, ImageError, "is no picture"),
        ((64, 64, 5), None, ImageError, "may be a picture of 5 channels, or a stack of narrow"),
        ((8, 8), "YXC", UsageError, "do not fit an array of shape"),
        ((8, 8), "YY", UsageError, "Y and X among them"),
        ((8, 8), "yx", UsageError, "Y and X among them"),
        ((8, 8, 5), "YXS", UsageError, "5 samples are no colour; call them C"),
    ],
)
def test_odd_axes_are_refused(
    shape: tuple[int, ...], axes: str | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        denoise(noisy(*shape), axes=axes)


@pytest.mark.parametrize("kind", ["bool", "complex64", "U1"])
def test_what_is_no_number_is_refused(kind: str) -> None:
    with pytest.raises(ImageError, match="cannot be denoised; use integers or floats"):
        denoise(np.zeros((16, 16), kind))
    with pytest.raises(ImageError, match="cannot be denoised; use integers or floats"):
        estimate_noise(np.zeros((16, 16), kind))


def test_many_axes_are_taken_when_named() -> None:
    assert denoise(noisy(2, 2, 3, 8, 8), axes="TZCYX").shape == (2, 2, 3, 8, 8)


# Masks, types, noise


def test_a_masked_array_keeps_its_mask_and_what_is_under_it() -> None:
    plain = noisy(40, 50).astype(np.float32)
    mask = np.zeros(plain.shape, bool)
    mask[10:20, 10:20] = True
    spoiled = np.where(mask, np.float32(1e6), plain)
    result = denoise(np.ma.MaskedArray(spoiled, mask, fill_value=-1.0))
    assert isinstance(result, np.ma.MaskedArray)
    np.testing.assert_array_equal(result.mask, mask)
    np.testing.assert_array_equal(result.data[mask], spoiled[mask])
    assert result.fill_value == -1
    other = denoise(np.ma.MaskedArray(np.where(mask, np.float32(-3), plain), mask))
    np.testing.assert_array_equal(result.data[~mask], other.data[~mask])


def test_the_type_of_the_result_can_be_chosen() -> None:
    array = noisy(24, 30)
    precise = denoise(array, dtype=np.float32)
    assert precise.dtype == np.float32
    np.testing.assert_array_equal(np.rint(precise), denoise(array))
    assert denoise(torch.from_numpy(array), dtype=torch.float64).dtype == torch.float64
    assert denoise(Image.fromarray(array), dtype="float32").mode == "F"
    for bad in ("nonsense", complex, "U3"):
        with pytest.raises(UsageError, match="type"):
            denoise(array, dtype=bad)


def test_quality_fast_is_normal_for_one_more_version() -> None:
    array = noisy(24, 30)
    with pytest.warns(DeprecationWarning, match="'fast' is 'normal'"):
        result = denoise(array, quality="fast")  # type: ignore[arg-type]
    np.testing.assert_array_equal(result, denoise(array))


@pytest.mark.parametrize("kind", [np.asarray, Image.fromarray, torch.from_numpy])
def test_noise_is_measured_in_any_kind(kind: Callable[[NDArray[np.uint8]], Any]) -> None:
    array = noisy(100, 120)
    assert estimate_noise(kind(array)) == estimate_noise(array, load_model("deep-gray"))
    assert estimate_noise(array[None, None], axes="TCYX") == estimate_noise(array)


# Other processes


def _denoise_elsewhere(model: Model, array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return denoise(array, model)


def test_a_model_travels_as_its_name(models: Path) -> None:
    model = load_model("deep-gray")
    assert len(pickle.dumps(model)) < 1000
    again = pickle.loads(pickle.dumps(model))
    assert (again.name, again.device) == (model.name, model.device)
    path = models / "deep-gray.safetensors"
    assert len(pickle.dumps(load_model(path))) < 1000
    array = noisy(24, 30)
    np.testing.assert_array_equal(denoise(array, again), denoise(array, model))


def test_a_model_works_in_another_process(models: Path) -> None:
    model, array = load_model(models / "deep-gray.safetensors"), noisy(24, 30)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        elsewhere = pool.submit(_denoise_elsewhere, model, array).result()
    np.testing.assert_array_equal(elsewhere, denoise(array, model))


def test_a_model_made_by_hand_travels_whole() -> None:
    config = DeepConfig(widths=(4, 4), blocks=(1, 0), window=1)
    model = Model("mine", build(config).eval().requires_grad_(False), torch.device("cpu"))
    again = pickle.loads(pickle.dumps(model))
    array = noisy(24, 30)
    np.testing.assert_array_equal(denoise(array, again), denoise(array, model))
