"""Which model is for a picture: white noise or a camera's, told by how it is correlated."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from skimage import data

from nelu_cli import checkpoints, denoise
from nelu_cli.evaluation import psnr
from nelu_cli.noise import add_noise
from nelu_cli.noise.filters import FloatImage, quantise
from nelu_cli.runtime.choice import NoiseCharacter, choose_model, noise_character
from nelu_cli.runtime.models import Models, load_model
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.words import NoiseKind

Nelu = Callable[..., tuple[int, str, str]]
MODELS = Models(precision="float32")


def picture(name: str = "chelsea") -> FloatImage:
    """A photograph of scikit-image's, in 0–1."""
    pixels = getattr(data, name)()[:256, :256]
    return np.asarray(pixels[..., :3] / np.float32(255), np.float32)


def noisy(kind: NoiseKind, sigma: float, name: str = "chelsea", seed: int = 3) -> NDArray[np.uint8]:
    return quantise(add_noise(picture(name), kind, sigma, seed).noisy)


@pytest.mark.parametrize("name", ["chelsea", "coffee", "astronaut"])
@pytest.mark.parametrize("sigma", [5, 15, 50])
def test_white_noise_gets_a_white_model(name: str, sigma: float) -> None:
    choice = choose_model(noisy("white", sigma, name), MODELS)
    assert choice.model.name == "deep-color"
    assert choice.character is not None
    assert choice.character.kind == "white"
    assert choice.character.correlation < 0.1


@pytest.mark.parametrize("name", ["coffee", "astronaut"])
def test_a_clean_picture_gets_a_white_model_and_stays_as_it_is(name: str) -> None:
    clean = quantise(picture(name))
    assert choose_model(clean, MODELS).model.name == "deep-color"
    before, after = (np.asarray(p / np.float32(255), np.float32) for p in (clean, denoise(clean)))
    assert psnr(before, after) > 48


def test_what_changes_its_sign_from_pixel_to_pixel_is_no_noise_of_a_camera() -> None:
    camera = NoiseCharacter(0.3, 3, white_share=0.05, white_correlation=0.3, loudness=0.04)
    assert camera.kind == "camera-like"
    assert replace(camera, correlation=-0.05, reach=1).kind == "white"


@pytest.mark.parametrize("name", ["chelsea", "coffee", "astronaut"])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_camera_noise_gets_the_photo_model(name: str, seed: int) -> None:
    choice = choose_model(noisy("camera", 8, name, seed), MODELS)
    assert choice.model.name == "photo-color"
    assert choice.character is not None
    assert choice.character.kind == "camera-like"


def test_a_grey_picture_has_a_choice_too() -> None:
    grey = noisy("camera", 8)[..., 1:2]
    three = np.repeat(grey, 3, axis=-1)
    for pixels in (grey, three):
        assert choose_model(pixels, MODELS).model.name == "photo-gray"
    white = quantise(add_noise(picture()[..., :1], "white", 15, 0).noisy)
    for pixels in (white, np.repeat(white, 3, axis=-1)):
        assert choose_model(pixels, MODELS).model.name == "deep-gray"


def test_a_model_that_is_asked_for_is_taken() -> None:
    choice = choose_model(noisy("camera", 8), Models("deep-color"))
    assert choice.model.name == "deep-color"
    assert choice.character is None


def test_the_choice_does_not_depend_on_scale_or_brightness() -> None:
    pixels = noisy("camera", 8).astype(np.float32)
    both = [load_model(name, precision="float32") for name in ("deep-color", "photo-color")]
    found = [noise_character(p, *both) for p in (pixels, pixels * 4, pixels + 64, pixels / 255)]
    first = found[0]
    assert first is not None
    for other in found[1:]:
        assert other is not None
        assert other.correlation == pytest.approx(first.correlation, abs=0.01)
        assert other.white_share == pytest.approx(first.white_share, abs=0.01)
        assert other.loudness == pytest.approx(first.loudness, abs=0.01)
        assert other.reach == first.reach


def test_nothing_to_look_at_is_no_reason_to_fail() -> None:
    for pixels in (np.zeros((64, 64, 3), np.uint8), np.full((2, 2, 3), np.nan, np.float32)):
        assert choose_model(pixels, MODELS).model.name in ("deep-color", "deep-gray")
    assert choose_model(np.ones((1, 1, 3), np.uint8), MODELS).character is None


def test_without_photo_weights_the_white_ones_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deep-color", "deep-gray"):
        (tmp_path / f"{name}.safetensors").symlink_to(checkpoints.resolve(name))
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: tmp_path)
    assert choose_model(noisy("camera", 8), Models()).model.name == "deep-color"


@pytest.mark.parametrize("kind", ["camera", "grain", "correlated"])
def test_nobody_has_to_choose(kind: NoiseKind) -> None:
    """A bare denoise gains on every kind of noise that a photograph may have."""
    clean, dirty = add_noise(picture(), kind, 10, 5)
    assert psnr(clean, denoise(dirty).clip(0, 1)) > psnr(clean, dirty) + 1.5


def test_a_grey_picture_through_the_photo_model_is_cleaned() -> None:
    clean, dirty = (part[..., 1] for part in add_noise(picture(), "camera", 10, 3))
    result = denoise(dirty, "photo-gray")
    assert result.shape == dirty.shape
    assert psnr(clean, result.clip(0, 1)) > psnr(clean, dirty) + 1.5


def test_the_level_of_camera_noise_is_found_to_a_third() -> None:
    pixels = noisy("camera", 10)
    assert estimate_noise(pixels, load_model("photo-color")) == pytest.approx(10, rel=0.33)


def test_the_kind_of_noise_is_told(nelu: Nelu, tmp_path: Path) -> None:
    source = tmp_path / "in.png"
    Image.fromarray(noisy("camera", 10)).save(source)
    status, out, _ = nelu("info", str(source))
    assert status == 0
    assert "camera-like noise" in out
    assert "correlated over" in out
    status, out, _ = nelu("info", "--json", str(source))
    found = json.loads(out)
    assert found["noise_kind"] == "camera-like"
    assert found["noise_correlation"] > 0.1
    assert found["noise_white_share"] < 0.5
    assert found["noise_reach"] >= 1
    status, out, err = nelu("denoise", str(source), str(tmp_path / "out.png"))
    assert status == 0
    assert "photo-color, camera-like noise" in err
