"""The Python interface: shapes, dtypes and ranges kept; laws of strength, scale and flatness."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import nelu_cli
from nelu_cli import checkpoints
from nelu_cli.errors import CheckpointError, ImageError, UsageError
from nelu_cli.networks import (
    FLAGSHIP,
    Config,
    DeepConfig,
    Memory,
    Network,
    PaperConfig,
    build,
    deep,
    parallel,
)
from nelu_cli.networks.symmetry import Symmetry
from nelu_cli.runtime import noise_level
from nelu_cli.runtime.arrays import denoise
from nelu_cli.runtime.models import Model, default_models, load_model
from nelu_cli.runtime.noise_level import estimate_noise, find_and_probe
from nelu_cli.runtime.options import Options
from nelu_cli.runtime.passes import flip_average, passes, working_memory
from nelu_cli.runtime.pipeline import denoise_pixels
from nelu_cli.words import Quality

DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4", "f8", ">u2", ">f4"]
CPU = torch.device("cpu")


def random_model(channels: int = 1, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    config = DeepConfig(channels=channels, widths=(4, 4, 4), blocks=(1, 0, 0), window=1)
    return Model("random", build(config).eval().requires_grad_(False), CPU)


class Blur(Network):
    """A denoiser that anybody can check: the local mean. Right wherever the picture is flat."""

    config = DeepConfig()
    stride = 1
    halo = 4

    def forward(self, image: Tensor) -> Tensor:
        return image - F.avg_pool2d(image, 9, 1, 4, count_include_pad=False)


GREY, COLOUR, BLUR = random_model(), random_model(3), Model("blur", Blur(), CPU)


def noisy(shape: tuple[int, ...], dtype: DTypeLike = "u1", seed: int = 0) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    values = np.clip(0.5 + 0.1 * random.standard_normal(shape), 0, 1)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return values.astype(dtype)
    return (values * np.iinfo(kind).max).astype(dtype)


# Shapes and dtypes


@given(
    shape=st.one_of(
        st.tuples(st.integers(1, 40), st.integers(1, 40)),
        st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4)),
        st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(5, 20)),
        st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 4)),
    ),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=60, deadline=None)
def test_shape_and_dtype_are_kept_and_the_input_is_left_alone(
    shape: tuple[int, ...], dtype: str
) -> None:
    array = noisy(shape, dtype)
    before = array.copy()
    result = denoise(array, GREY)
    assert result.shape == array.shape
    assert result.dtype == array.dtype
    assert not np.shares_memory(result, array)
    np.testing.assert_array_equal(array, before)


def test_stacks_are_done_picture_by_picture() -> None:
    stack = noisy((3, 24, 31), "u2")
    expected = [denoise(page, GREY) for page in stack]
    np.testing.assert_array_equal(denoise(stack, GREY), expected)
    coloured = noisy((2, 24, 31, 3))
    expected = [denoise(page, COLOUR) for page in coloured]
    np.testing.assert_array_equal(denoise(coloured, COLOUR), expected)


def test_a_small_last_axis_means_channels_and_a_large_one_columns() -> None:
    array = noisy((6, 20, 3), "f4")
    channels = np.stack([denoise(array[..., k], GREY) for k in range(3)], axis=-1)
    np.testing.assert_allclose(denoise(array, GREY), channels, atol=1e-6)
    array = noisy((6, 20, 5), "f4")
    pages = np.stack([denoise(page, GREY) for page in array])
    np.testing.assert_allclose(denoise(array, GREY), pages, atol=1e-6)


def test_a_grey_model_does_colour_channel_by_channel() -> None:
    array = noisy((30, 20, 3))
    expected = np.stack([denoise(array[..., k], GREY) for k in range(3)], axis=-1)
    np.testing.assert_array_equal(denoise(array, GREY), expected)


def test_views_and_lists_are_taken() -> None:
    array = noisy((40, 40, 4), "u1")
    view = array[::2, ::-1, :3]
    np.testing.assert_array_equal(denoise(view, COLOUR), denoise(view.copy(), COLOUR))
    assert denoise(noisy((8, 8)).tolist(), GREY).shape == (8, 8)


# Laws


@pytest.mark.parametrize("dtype", DTYPES)
def test_strength_0_returns_the_input_bit_for_bit(dtype: str) -> None:
    array = noisy((20, 33, 3), dtype)
    np.testing.assert_array_equal(denoise(array, COLOUR, strength=0), array)


@given(strength=st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_strength_is_linear(strength: float) -> None:
    array = noisy((20, 33), "f8")
    full = denoise(array, GREY)
    expected = array + strength * (full - array)
    np.testing.assert_allclose(denoise(array, GREY, strength=strength), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "quality"), [*((dtype, "normal") for dtype in DTYPES), ("u1", "best"), ("u2", "best")]
)
@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_flat_pictures_stay_flat_at_every_depth(dtype: str, level: float, quality: Quality) -> None:
    kind = np.dtype(dtype)
    white = 1.0 if kind.kind == "f" else float(np.iinfo(kind).max)
    flat = np.full((37, 21, 3), level * white).astype(dtype)
    result = denoise(flat, COLOUR, quality=quality)
    if kind.kind == "f":
        np.testing.assert_allclose(result, flat, rtol=1e-5, atol=1e-6)
    elif kind.itemsize <= 2:
        np.testing.assert_array_equal(result, flat)
    else:
        np.testing.assert_allclose(result.astype(float), flat.astype(float), atol=1e-6 * white)


@given(scale=st.floats(-100, 125), dtype=st.sampled_from(["f4", "f8"]))
@settings(max_examples=20, deadline=None)
def test_floats_of_any_range_need_no_normalising(scale: float, dtype: str) -> None:
    array = noisy((20, 33), dtype)
    factor = np.dtype(dtype).type(2.0**scale)
    np.testing.assert_allclose(denoise(array * factor, GREY) / factor, denoise(array, GREY), 1e-4)


def test_brightness_does_not_matter() -> None:
    array = noisy((20, 33), "f4")
    shifted = denoise(array - np.float32(3.0), GREY)
    np.testing.assert_allclose(shifted + 3.0, denoise(array, GREY), atol=1e-5)


def test_depth_does_not_matter() -> None:
    fine = noisy((20, 33), "u2") // 257 * 257
    coarse = (fine // 257).astype("u1")
    difference = denoise(fine, GREY) / 257 - denoise(coarse, GREY)
    assert np.abs(difference).max() <= 0.51


@pytest.mark.parametrize("quality", ["normal", "best"])
def test_memory_changes_nothing_but_the_tiles(quality: Quality) -> None:
    array = noisy((150, 130, 3), "f4")
    steps: list[tuple[int, int]] = []
    small = denoise(
        array,
        COLOUR,
        quality=quality,
        memory=400 << 10,
        progress=lambda *step: steps.append(step),
    )
    tiles = steps[-1][1]
    assert [step for step in steps if step[1] == tiles] == [(k + 1, tiles) for k in range(tiles)]
    assert tiles > 3
    np.testing.assert_allclose(small, denoise(array, COLOUR, quality=quality), atol=1e-5)


def test_best_is_indifferent_to_flips_and_turns() -> None:
    array = noisy((24, 40), "f4")
    expected = denoise(array, GREY, quality="best")
    flipped = denoise(np.rot90(array[::-1]), GREY, quality="best")
    np.testing.assert_allclose(np.rot90(flipped, -1)[::-1], expected, atol=1e-5)
    assert np.abs(denoise(array, GREY) - expected).max() > 1e-4


def test_symmetric_weights_need_one_pass_for_the_best() -> None:
    config = DeepConfig(widths=(8, 8), blocks=(1, 1), symmetric=True)
    network = build(config).eval().requires_grad_(False)
    Symmetry(network).impose(network)
    passes: list[Tensor] = []
    network.register_forward_hook(lambda module, inputs, output: passes.append(output))
    array = noisy((24, 40), "f4")
    best = denoise(array, Model("symmetric", network, CPU), quality="best")
    assert len(passes) == 1
    image = torch.from_numpy(array)[None, None]
    mean = flip_average(network, image, network.stride)[0, 0]
    np.testing.assert_allclose(best, array - mean.numpy(), atol=1e-5)


def test_threads_may_share_a_model() -> None:
    arrays = [noisy((40, 40), seed=seed) for seed in range(4)]
    expected = [denoise(array, GREY) for array in arrays]
    results: dict[int, NDArray[Any]] = {}

    def work(number: int) -> None:
        results[number] = denoise(arrays[number], GREY)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in enumerate(expected):
        np.testing.assert_array_equal(results[number], result)


@pytest.mark.parametrize("quality", ["normal", "best"])
def test_progress_is_told_within_a_tile(quality: Quality, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows, so that a large picture in one tile does not seem to hang; never backwards."""
    monkeypatch.setattr(deep, "DEEP_STRIP", 16 * 200 * 20)
    monkeypatch.setattr(deep, "FEW_STRIPS", 2)
    steps: list[tuple[int, int]] = []
    denoise(noisy((600, 400)), GREY, quality=quality, progress=lambda *step: steps.append(step))
    shares = [done / total for done, total in steps]
    assert len(steps) > 3
    assert shares == sorted(shares)
    assert steps[-1] == (1, 1)
    assert 0 < shares[0] < 0.5


# Noise


def noise_map(pixels: NDArray[Any], model: Model, memory: int = 1 << 30) -> NDArray[np.float64]:
    found = denoise_pixels(pixels, model, Options(memory=memory), noise_map=True).noise_map
    assert found is not None
    return found


@pytest.mark.parametrize("shape", [(200, 300, 1), (2, 150, 200, 3)])
def test_noise_is_measured_in_pixel_values(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    pixels = (30_000 + 1500 * random.standard_normal(shape)).astype("u2")
    assert np.median(noise_map(pixels, BLUR)) == pytest.approx(1500, rel=0.03)


def test_noise_that_stays_in_the_picture_is_counted() -> None:
    """A denoiser that leaves a third of everything removes two thirds of the energy by chance."""

    class Timid(Blur):
        def forward(self, image: Tensor) -> Tensor:
            return 0.7 * super().forward(image)

    random = np.random.default_rng(0)
    pixels = 128 + 10 * random.standard_normal((200, 300, 1))
    residual = 0.7 * 10
    expected = residual / np.sqrt(0.7)
    assert np.median(noise_map(pixels, Model("timid", Timid(), CPU))) == pytest.approx(
        expected, rel=0.04
    )


@pytest.mark.parametrize("memory", [1 << 22, 1 << 30])
@pytest.mark.parametrize(("most", "block"), [(2_000_000, 1), (5000, 6)])
def test_noise_map_follows_a_ramp(
    memory: int, most: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_level, "_MAP_PIXELS", most)
    random = np.random.default_rng(0)
    sigma = np.linspace(5, 50, 317)
    pixels = 128 + sigma[:, None, None] * random.standard_normal((317, 411, 1))
    found = noise_map(pixels, BLUR, memory)
    assert found.shape == (-(-317 // block), -(-411 // block))
    middle = block * np.arange(len(found)) + (block - 1) / 2
    expected = np.interp(middle, np.arange(317), sigma)
    np.testing.assert_allclose(found.mean(axis=1), expected, rtol=0.15)


@pytest.mark.parametrize("shape", [(9, 9, 1), (100, 5000, 1), (3, 250, 250, 1), (120, 130, 3)])
def test_the_noise_level_is_measured_on_a_sample(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    pixels = (128 + 10 * random.standard_normal(shape)).astype("u1")
    assert estimate_noise(pixels, BLUR) == pytest.approx(10, rel=0.25 if shape[0] == 9 else 0.04)


def test_flat_pictures_have_no_noise() -> None:
    for value in (0, 128, 255):
        assert estimate_noise(np.full((50, 50, 3), value, "u1"), COLOUR) < 0.01


# Errors


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4), bool), "type bool cannot be denoised"),
        (np.zeros((4, 4), complex), "type complex128 cannot be denoised"),
        (np.zeros((4, 4), object), "type object cannot be denoised"),
        (np.zeros(4), "shape (4,) is no picture"),
        (np.zeros((1, 1, 1, 1, 1)), "is no picture"),
        (np.zeros((0, 4)), "holds no pixels"),
        (np.full((4, 4), np.nan), "no pixel holds a value"),
        (np.array([[0, -3.4e38], [0, 1]], "f4"), "reach 3.4e+38, perhaps a mark of missing pixels"),
        (np.array([[0, 1.7e308], [0, 1]]), "reach 1.7e+308, perhaps a mark of missing pixels"),
    ],
)
def test_what_is_no_picture_is_refused(array: NDArray[Any], message: str) -> None:
    with pytest.raises(ImageError) as caught:
        denoise(array, GREY)
    assert message in str(caught.value)


def test_a_colour_model_refuses_grey_pictures() -> None:
    with pytest.raises(ImageError, match="model random needs 3 channels, the picture has 1"):
        denoise(noisy((8, 8)), COLOUR)


@pytest.mark.parametrize("strength", [-0.1, 1.5, float("nan")])
def test_strength_outside_0_to_1_is_refused(strength: float) -> None:
    with pytest.raises(UsageError, match="outside 0 to 1"):
        denoise(noisy((8, 8)), GREY, strength=strength)


def test_unknown_quality_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown quality 'great'"):
        denoise(noisy((8, 8)), GREY, quality="great")  # type: ignore[arg-type]


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="allow more memory"):
        denoise(noisy((80, 80)), GREY, memory=1000)


# Models


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that stands for the bundled weights, empty at first."""
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: tmp_path)
    default_models.cache_clear()
    yield tmp_path
    default_models.cache_clear()


def save(path: Path, channels: int) -> None:
    network = random_model(channels).network
    checkpoints.save(path, network.state_dict(), network.config, checkpoints.TrainingRecord())


def test_the_default_model_follows_the_channels(weights: Path) -> None:
    with pytest.raises(CheckpointError, match="no weights are bundled"):
        load_model()
    save(weights / "a-colour.safetensors", 3)
    with pytest.raises(CheckpointError, match="no weights are bundled for grey pictures"):
        load_model()
    assert load_model(channels=3).name == "a-colour"
    save(weights / "other.safetensors", 1)
    assert load_model().name == "other"
    save(weights / "deep-gray.safetensors", 1)
    assert load_model().name == load_model(channels=4).name == "deep-gray"
    assert load_model(channels=3).name == "deep-gray"
    save(weights / "deep-color.safetensors", 3)
    assert load_model(channels=3).name == "deep-color"
    assert load_model("other").name == "other"
    assert denoise(noisy((9, 9, 3))).shape == (9, 9, 3)


def test_a_model_can_be_a_file(weights: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    save(path, 1)
    model = load_model(path)
    assert (model.name, model.channels, model.device) == ("mine", 1, CPU)
    np.testing.assert_array_equal(denoise(noisy((9, 9)), path), denoise(noisy((9, 9)), model))


def test_a_missing_device_is_an_error(weights: Path) -> None:
    save(weights / "deep-gray.safetensors", 1)
    with pytest.raises(UsageError, match="unknown device 'abacus'"):
        load_model(device="abacus")
    for device, there in {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }.items():
        if not there:
            with pytest.raises(UsageError, match=f"device {device} is not available"):
                load_model(device=device)


def test_the_package_offers_denoise_and_load_model() -> None:
    assert nelu_cli.denoise is denoise
    assert nelu_cli.load_model is load_model


# Memory


def peak_memory(work: Callable[[], object], tmp_path: Path) -> int:
    """The most bytes that torch ever holds during the work."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        work()
    run.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    changes = [event for event in events if event["name"] == "[memory]"]
    changes.sort(key=lambda event: event["ts"])
    peak: int = max(itertools.accumulate(event["args"]["Bytes"] for event in changes))
    return peak


@pytest.mark.parametrize("quality", ["normal", "best"])
@pytest.mark.parametrize("noise_map", [False, True])
def test_the_copies_of_the_pixels_are_counted(
    quality: Quality, noise_map: bool, tmp_path: Path
) -> None:
    class Light(Blur):
        """Takes no memory but for its result."""

        def forward(self, image: Tensor) -> Tensor:
            return image / 2

        def working_memory(self, width: int) -> list[Memory]:
            return [Memory(0, 0)]

    network = Light()
    tile = torch.rand(1, 1, 256, 300)
    find = passes(Model("light", network, CPU), quality)
    work = partial(find_and_probe, find) if noise_map else find
    peak = tile.nbytes + peak_memory(lambda: work(tile), tmp_path)
    (need,) = working_memory(network, 1, 300, best=quality == "best", noise_map=noise_map)
    assert peak <= need.per_pixel * tile.numel() * 1.001 < 1.2 * peak


@pytest.mark.parametrize(
    ("config", "height", "width"),
    [
        (DeepConfig(), 256, 256),
        (FLAGSHIP, 1536, 1536),
        (DeepConfig(hidden=(64, 96, 64, 64), activation="relu"), 1536, 1536),
        (DeepConfig(channels=3, widths=(48, 96, 128), blocks=(1, 1, 2)), 256, 256),
        (DeepConfig(widths=(16, 96), blocks=(1, 1)), 256, 256),
        (DeepConfig(widths=(16, 96), blocks=(1, 1), gated=True), 256, 256),
        (DeepConfig(channels=3, gated=True), 512, 512),
        (PaperConfig(), 192, 192),
        (PaperConfig(), 4, 9000),
        (PaperConfig(channels=3), 192, 192),
        (PaperConfig(activation="nelu-unrolled", steps=3), 192, 192),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_memory_estimate_is_honest(
    config: Config,
    height: int,
    width: int,
    dtype: torch.dtype,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "MOST", 1)  # the profiler sees no other thread
    network = build(config).eval().requires_grad_(False)
    if dtype == torch.bfloat16:
        rounded = network.in_bfloat16()
        if rounded is None:
            return
        network = rounded
    image = torch.rand(1, config.channels, height, width)
    with torch.inference_mode():
        peak = peak_memory(lambda: network(image), tmp_path)
    needs = working_memory(network, config.channels, width)  # with the tile itself
    assert all(peak < fixed + per_pixel * width * height for fixed, per_pixel in needs)
    assert min(fixed + per_pixel * width * height for fixed, per_pixel in needs) < 3.5 * peak
