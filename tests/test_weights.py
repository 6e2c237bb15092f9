"""What the bundled default weights promise, on the photographs that come with scikit-image."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nelu_cli import checkpoints
from nelu_cli.data import sets as datasets
from nelu_cli.evaluation import psnr
from nelu_cli.runtime.arrays import denoise
from nelu_cli.runtime.models import Model, load_model
from nelu_cli.runtime.pipeline import denoise_pixels

FloatImage = NDArray[np.float32]


@pytest.fixture(scope="module", params=["deep-gray", "deep-color"])
def model(request: pytest.FixtureRequest) -> Model:
    return load_model(request.param)


def photographs(channels: int) -> list[FloatImage]:
    """The middles of the samples, 0–1, sides at most 256."""
    pictures = []
    for path in datasets.find("samples").paths[:4]:
        clean = datasets.load_clean(path, channels)
        top, left = (max(0, length - 256) // 2 for length in clean.shape[:2])
        pictures.append(clean[top : top + 256, left : left + 256])
    return pictures


def noisy(clean: FloatImage, sigma255: float | NDArray[np.float64]) -> FloatImage:
    """With noise of one level, or of a level for each column."""
    noise = np.random.default_rng(0).standard_normal(clean.shape)
    levels = np.broadcast_to(np.asarray(sigma255) / 255, clean.shape[1])[None, :, None]
    return (clean + levels * noise).astype(np.float32)


def test_files_are_small() -> None:
    for name in checkpoints.bundled():
        assert checkpoints.resolve(name).stat().st_size < 8e6


@pytest.mark.parametrize(("sigma", "gain"), [(5, 1), (15, 5), (50, 10), (120, 14)])
def test_noise_is_removed_at_every_level(model: Model, sigma: float, gain: float) -> None:
    before, after = [], []
    for clean in photographs(model.channels):
        before.append(psnr(clean, noisy(clean, sigma)))
        after.append(psnr(clean, denoise(noisy(clean, sigma), model)))
    assert np.mean(after) > np.mean(before) + gain


@pytest.mark.parametrize("name", ["deep-gray", "deep-color"])
def test_a_clean_picture_stays_as_it_is(name: str) -> None:
    model = load_model(name)
    values = [psnr(clean, denoise(clean, model)) for clean in photographs(model.channels)]
    assert np.mean(values) > 45


def test_noise_that_varies_over_the_picture_costs_little(model: Model) -> None:
    """σ from 5 to 50 across, against each half at its own level all over."""
    ramp = np.linspace(5, 50, 256)
    lost = []
    for clean in photographs(model.channels):
        varying = denoise(noisy(clean, ramp), model)
        for half in (slice(0, 128), slice(128, 256)):
            level = float(np.sqrt(np.mean(ramp[half] ** 2)))
            constant = denoise(noisy(clean, level), model)
            lost.append(
                psnr(clean[:, half], constant[:, half]) - psnr(clean[:, half], varying[:, half])
            )
    assert np.mean(lost) < 0.25


def test_the_noise_map_follows_a_ramp(model: Model) -> None:
    ramp = np.linspace(5, 50, 384)
    flat = np.full((256, 384, model.channels), 0.5, np.float32)
    found = denoise_pixels(noisy(flat, ramp), model, noise_map=True).noise_map
    assert found is not None
    np.testing.assert_allclose(np.median(found, axis=0) * 255, ramp, rtol=0.15)
