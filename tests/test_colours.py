"""Noise that is white from pixel to pixel, but alike in the channels."""

import pickle

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skimage import data
from torch import Tensor

from nelu_cli import Options, denoise
from nelu_cli.evaluation import psnr
from nelu_cli.networks import DeepConfig, build
from nelu_cli.noise.filters import FloatImage, quantise
from nelu_cli.runtime.choice import choose_model
from nelu_cli.runtime.colours import NoiseColours, along, find_colours, turned
from nelu_cli.runtime.models import Model, Models
from nelu_cli.runtime.noise_level import estimate_noise
from nelu_cli.runtime.pipeline import denoise_pixels

MODELS = Models(precision="float32")
ONES = np.ones(3, np.float32)
SEPIA = np.array([1, 0.85, 0.65], np.float32)
GREEN = np.array([0, 1, 0], np.float32)


def small_model(channels: int) -> Model:
    torch.manual_seed(channels)
    network = build(DeepConfig(channels, widths=(8, 8), blocks=(1, 1), window=3)).eval()
    return Model("small", network.requires_grad_(False), torch.device("cpu"))


def some_colours(seed: int = 0) -> NoiseColours:
    axes = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3))).Q.T
    return NoiseColours(axes, np.array([2.0, 1.0, 0.5]))


def random_image(seed: int = 0) -> Tensor:
    return torch.rand(2, 3, 24, 20, generator=torch.Generator().manual_seed(seed))


def picture() -> FloatImage:
    return np.asarray(data.chelsea()[:256, :256] / np.float32(255), np.float32)


def coupled(same: float, tint: NDArray[np.float32], sigma255: float = 15) -> FloatImage:
    """Noise of which a share is the same in all channels, but for a tint."""
    rng = np.random.default_rng(4)
    one, each = rng.standard_normal((256, 256, 1)), rng.standard_normal((256, 256, 3))
    noise = (same**0.5 * one + (1 - same) ** 0.5 * each) * tint * sigma255 / 255
    return np.asarray(noise, np.float32)


def test_independent_noise_leaves_a_model_as_it_is() -> None:
    model, image = small_model(3), random_image()
    same = turned(model, NoiseColours(np.eye(3), np.ones(3)))
    torch.testing.assert_close(same.network(image), model.network(image))


def test_a_turned_model_does_in_the_noises_colours_what_it_did() -> None:
    model, image, colours = small_model(3), random_image(), some_colours()
    root = colours.axes.T * colours.deviations @ colours.axes  # C^(1/2)
    mixed = torch.einsum("ij,njhw->nihw", torch.from_numpy(root).float(), image)
    found = torch.einsum("ij,njhw->nihw", torch.from_numpy(root).float(), model.network(image))
    torch.testing.assert_close(turned(model, colours).network(mixed), found, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["turned", "along"])
def test_in_colours_a_network_keeps_its_promises(kind: str) -> None:
    colours = some_colours()
    model = turned(small_model(3), colours) if kind == "turned" else along(small_model(1), colours)
    network, image = model.network, random_image()
    assert (model.channels, network.channels) == (3, 3)
    noise = network(image)
    torch.testing.assert_close(network(4 * image), 4 * noise)
    tint = torch.tensor([0.5, -0.25, 1.0])[:, None, None]
    torch.testing.assert_close(network(image + tint), noise, atol=1e-5, rtol=1e-4)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.network(image), noise)
    if kind == "along":
        flat = noise.transpose(0, 1).flatten(1)
        assert torch.linalg.matrix_rank(flat, rtol=1e-4) == 1


@pytest.mark.parametrize("same", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("tint", [ONES, SEPIA], ids=["grey", "sepia"])
def test_the_colours_of_noise_are_found(same: float, tint: NDArray[np.float32]) -> None:
    noisy = torch.from_numpy(picture() + coupled(same, tint)).permute(2, 0, 1)[None]
    found = find_colours(noisy, MODELS.load("deep-gray"))
    covariance = np.outer(tint, tint) * (same + (1 - same) * np.eye(3)) * (15 / 255) ** 2
    variances, axes = np.linalg.eigh(covariance)
    first = found.deviations[0]
    assert first == pytest.approx(variances[-1] ** 0.5, rel=0.15)
    assert abs(found.axes[0] @ axes[:, -1]) > 0.99
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(3), atol=1e-6)
    others = np.sqrt(variances[:2].clip(0))[::-1]
    np.testing.assert_allclose(found.deviations[1:], others, atol=0.1 * first)


@pytest.mark.parametrize(
    ("same", "tint", "name"),
    [(1.0, ONES, "deep-gray"), (1.0, SEPIA, "deep-gray"), (0.5, ONES, "deep-color")],
    ids=["equal", "sepia", "half"],
)
@pytest.mark.parametrize("sigma255", [15.0, 40.0])
def test_noise_alike_in_the_channels_is_taken_out(
    same: float, tint: NDArray[np.float32], name: str, sigma255: float
) -> None:
    clean, noise = picture(), coupled(same, tint, sigma255)
    noisy = np.asarray(clean + noise, np.float32)
    choice = choose_model(noisy, MODELS)
    assert choice.model.name == name
    assert choice.character is not None
    assert choice.character.kind == "coupled white"
    assert estimate_noise(noisy, choice.model) == pytest.approx(float(noise.std()), rel=0.12)
    done = psnr(clean, denoise(noisy))
    for other in ("deep-color", "photo-color"):
        assert done > psnr(clean, denoise(noisy, MODELS.load(other))) + 0.3


def test_the_noise_of_a_stain_in_one_channel_is_taken_out() -> None:
    clean = picture() * GREEN
    noisy = quantise(np.asarray(clean + 40 / 255 * GREEN + coupled(0.0, GREEN, 10), np.float32))
    choice = choose_model(noisy, MODELS)
    assert choice.model.name == "deep-gray"
    cleaned = denoise_pixels(noisy, choice.model).pixels
    assert (cleaned[..., ::2] == 0).all()
    before, after = (
        psnr(clean[..., 1:2], np.asarray((p[..., 1:2] - 40.0) / 255, np.float32))
        for p in (noisy, cleaned)
    )
    assert after > before + 2


def test_tiles_in_colours_equal_the_whole() -> None:
    noisy = quantise(picture() + coupled(0.5, ONES))
    model = choose_model(noisy, MODELS).model
    whole = denoise_pixels(noisy, model).pixels.astype(int)
    tiled = denoise_pixels(noisy, model, Options(memory=40 << 20)).pixels.astype(int)
    assert np.abs(whole - tiled).max() <= 1
