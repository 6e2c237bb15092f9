"""float32 or bfloat16: how it is chosen, and what bfloat16 changes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Nelu
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from nelu_cli.errors import UsageError
from nelu_cli.networks import DeepAutoencoder
from nelu_cli.runtime import precision
from nelu_cli.runtime.arrays import denoise
from nelu_cli.runtime.choice import choose_model
from nelu_cli.runtime.models import Models, load_model
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.runtime.precision import choose_precision, needs_float32

CPU = torch.device("cpu")
pays = precision.bfloat16_pays  # before the fixture of all tests takes its place


def photo(sigma: float, white: float, side: int = 192, channels: int = 1) -> NDArray[np.float64]:
    """Soft discs with sharp rims on a ramp, with noise of so many levels of ``white``."""
    rng = np.random.default_rng(7)
    down, right = np.mgrid[0:side, 0:side] / side
    clean = 0.2 + 0.3 * right
    for _ in range(12):
        y, x, radius, light = rng.uniform((0, 0, 0.02, -0.3), (1, 1, 0.2, 0.4))
        clean = clean + light * ((down - y) ** 2 + (right - x) ** 2 < radius**2)
    clean = np.repeat(np.clip(clean, 0.05, 0.95)[..., None], channels, -1) * white
    return clean + sigma * rng.standard_normal(clean.shape)


# What is faster here


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[torch.dtype]]:
    """A processor with the instructions, twice as fast in bfloat16; every timing is listed."""
    asked: list[torch.dtype] = []

    def seconds(dtype: torch.dtype) -> float:
        asked.append(dtype)
        return 2.0 if dtype == torch.float32 else 1.0

    monkeypatch.setattr(precision, "_seconds", seconds)
    monkeypatch.setattr(precision, "_has_instructions", lambda: True)
    monkeypatch.setattr(precision, "_timings_file", lambda: tmp_path / "cache" / "timings.json")
    pays.cache_clear()
    yield asked
    pays.cache_clear()


def in_a_new_process() -> bool:
    pays.cache_clear()
    return pays("cpu")


def test_the_timing_decides_and_is_remembered(
    timed: list[torch.dtype], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_a_new_process()
    assert len(timed) == 2
    assert in_a_new_process()
    assert len(timed) == 2
    monkeypatch.setattr(torch, "__version__", "9.9")  # is timed anew
    assert in_a_new_process()
    assert len(timed) == 4
    assert len(json.loads((tmp_path / "cache" / "timings.json").read_text())) == 2


def test_a_little_faster_is_not_worth_it(
    timed: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_seconds", lambda dtype: 1.1 if dtype.itemsize == 4 else 1.0)
    assert not in_a_new_process()


def test_without_the_instructions_nothing_is_timed(
    timed: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_has_instructions", lambda: False)
    assert not in_a_new_process()
    assert not timed


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": {"float32": "x"}}', "null"])
def test_a_damaged_cache_costs_only_the_timing(
    content: str, timed: list[torch.dtype], tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "timings.json").write_text(content)
    assert in_a_new_process()
    assert in_a_new_process()
    assert len(timed) == 2


def test_a_cache_that_cannot_be_written_costs_only_the_timing(
    timed: list[torch.dtype], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert in_a_new_process()
    assert in_a_new_process()
    assert len(timed) == 4


@pytest.mark.parametrize(
    ("flags", "there"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 sse", True),
        ("flags\t\t: fpu amx_bf16", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t\t: fpu avx512f avx512bw", False),
        ("", True),  # not told: the timing tells
    ],
)
def test_the_processor_is_asked(flags: str, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"model name\t: X\n{flags}\n")
    assert precision._has_instructions() is there


def test_a_convolution_can_be_timed_in_both() -> None:
    assert precision._seconds(torch.float32) > 0
    assert precision._seconds(torch.bfloat16) > 0


def test_graphics_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, there in (((8, 0), True), ((7, 5), False)):
        pays.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)  # noqa: B023
        assert pays("cuda") is there
    pays.cache_clear()
    assert not pays("mps")


def test_what_is_asked_for_is_taken() -> None:
    assert choose_precision("float32", CPU) == "float32"
    assert choose_precision("bfloat16", CPU) == "bfloat16"
    assert choose_precision("auto", CPU) == "float32"
    with pytest.raises(UsageError, match="'half'; choose one of auto, float32, bfloat16"):
        choose_precision("half", CPU)


# What a picture needs


@pytest.mark.parametrize("sigma", [0, 3, 100])
def test_eight_bits_never_need_float32(sigma: float) -> None:
    assert not needs_float32(np.clip(photo(sigma, 255), 0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("sigma", "needed"), [(0, True), (3, True), (100, True), (1300, False), (6000, False)]
)
def test_sixteen_bits_need_it_where_the_noise_is_small(sigma: float, needed: bool) -> None:
    pixels = np.clip(photo(sigma, 65535), 0, 65535).astype(np.uint16)
    assert needs_float32(pixels) is needed
    assert needs_float32(np.stack([pixels, pixels])) is needed
    assert needs_float32(pixels.astype(np.float32)) is needed


@given(exponent=st.integers(-60, 60), pedestal=st.integers(-(2**20), 2**20), loud=st.booleans())
def test_neither_contrast_nor_brightness_matters(exponent: int, pedestal: int, loud: bool) -> None:
    pixels = np.round(photo(2000 if loud else 20, 65535, side=64))
    assert needs_float32((pixels + pedestal) * 2.0**exponent) is not loud


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((8, 8, 1), np.nan, np.float32),
        np.array([[[np.inf], [-np.inf]], [[1], [2]]], np.float32),
        np.zeros((1, 9, 1), np.uint16),
        np.zeros((9, 1, 3), np.float64),
        np.zeros((0, 4, 1), np.uint16),
        np.full((8, 8, 1), 7, np.uint16),
    ],
)
def test_odd_pictures_take_the_safe_way(pixels: NDArray[Any]) -> None:
    constant = pixels.dtype == np.uint16 and pixels.size == 64
    assert needs_float32(pixels) is not constant  # a flat picture comes out as it is in either


# Models


def test_weights_are_converted_once_but_for_the_head_and_tau() -> None:
    network = load_model("deep-gray", precision="bfloat16").network
    assert isinstance(network, DeepAutoencoder)
    for name, parameter in network.named_parameters():
        exact = name.startswith(("head.", "codes."))
        assert parameter.dtype == (torch.float32 if exact else torch.bfloat16), name
    assert {p.dtype for p in load_model("deep-gray").network.parameters()} == {torch.float32}


def test_the_papers_network_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="model paper-nelu-s15 computes in float32 only"):
        load_model("paper-nelu-s15", precision="bfloat16")
    monkeypatch.setattr(precision, "bfloat16_pays", lambda device: True)
    assert load_model("paper-nelu-s15").precision == "float32"


def test_float32_is_taken_where_bfloat16_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bits with noise of 3 levels: bfloat16 adds an error as large, so it is not used."""
    pixels = np.clip(photo(3, 60000), 0, 65535).round().astype(np.uint16)
    exact = denoise(pixels, load_model("deep-gray", precision="float32"))
    rounded = denoise(pixels, load_model("deep-gray", precision="bfloat16"))
    assert np.std(rounded.astype(float) - exact) > 1
    monkeypatch.setattr(precision, "bfloat16_pays", lambda device: True)
    model = load_model("deep-gray")
    assert model.precision == "bfloat16"
    assert np.array_equal(denoise(pixels, model), exact)
    assert choose_model(pixels, Models("deep-gray")).model.precision == "float32"
    loud = np.clip(photo(3000, 60000), 0, 65535).round().astype(np.uint16)
    assert choose_model(loud, Models("deep-gray")).model.precision == "bfloat16"


# What bfloat16 changes


@pytest.mark.parametrize("sigma", [0, 5, 15, 50])
@pytest.mark.parametrize("channels", [1, 3])
def test_eight_bit_results_differ_by_one_level_at_most(sigma: float, channels: int) -> None:
    name = "deep-color" if channels == 3 else "deep-gray"
    pixels = np.clip(photo(sigma, 255, channels=channels), 0, 255).round().astype(np.uint8)
    exact, rounded = (
        denoise(pixels, load_model(name, precision=each)).astype(int)
        for each in ("float32", "bfloat16")
    )
    assert np.mean(np.abs(exact - rounded) <= 1) >= 0.998


@pytest.mark.parametrize("name", ["deep-gray", "deep-color"])
def test_tiles_equal_the_whole_to_a_rounding_of_bfloat16(name: str) -> None:
    channels = 3 if name == "deep-color" else 1
    pixels = photo(0.1, 1.0, side=600, channels=channels).astype(np.float32)
    model = load_model(name, precision="bfloat16")
    tiles: list[int] = []
    whole = denoise(pixels, model)
    parts = denoise(pixels, model, memory=48 << 20, progress=lambda done, total: tiles.append(done))
    assert len(tiles) > 1
    assert np.abs(whole - parts).max() <= 2**-8 * np.abs(whole - pixels).max()


def test_the_noise_level_is_the_same() -> None:
    pixels = photo(20, 255).round().astype(np.uint8)
    exact, rounded = (
        estimate_noise(pixels, load_model("deep-gray", precision=each))
        for each in ("float32", "bfloat16")
    )
    assert rounded == pytest.approx(exact, rel=0.02)


# The command line


def test_denoise_and_info_say_which_was_used(nelu: Nelu, tmp_path: Path) -> None:
    source = tmp_path / "noisy.png"
    Image.fromarray(np.clip(photo(20, 255, 64), 0, 255).astype(np.uint8)[..., 0]).save(source)
    for number, (options, used) in enumerate(
        [([], "float32"), (["--precision", "bfloat16"], "bfloat16")]
    ):
        target = tmp_path / f"clean{number}.png"
        status, out, _ = nelu("denoise", source, target, "--json", *options)
        assert status == 0
        assert json.loads(out)["precision"] == used
        status, out, _ = nelu("info", source, "--json", *options)
        assert json.loads(out)["precision"] == used
        status, out, _ = nelu("info", source, *options)
        assert f"in {used})" in out


def test_bfloat16_of_a_float32_model_is_refused_in_one_line(nelu: Nelu, tmp_path: Path) -> None:
    source = tmp_path / "noisy.png"
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(source)
    status, _, err = nelu(
        "denoise",
        source,
        tmp_path / "o.png",
        "--model",
        "paper-nelu-s15",
        "--precision",
        "bfloat16",
    )
    assert status == 2
    assert err == "nelu: model paper-nelu-s15 computes in float32 only; choose that or auto\n"


def test_eval_names_the_precision(nelu: Nelu, tmp_path: Path) -> None:
    for number in range(2):
        pixels = np.clip(photo(0, 255, 48), 0, 255).astype(np.uint8)[..., 0]
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    options = ("--model", "deep-gray", "--sigmas", "25", "--precision", "bfloat16")
    status, out, err = nelu("eval", "--dataset", tmp_path, *options)
    assert status == 0, err
    assert "deep-gray, bfloat16" in out
