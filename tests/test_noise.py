"""Noise models: each has the level, the correlation and the dependence on light that it says."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from nelu_cli.errors import DatasetError, UsageError
from nelu_cli.noise import (
    DRAWN,
    PHOTO,
    NoiseMix,
    NoisyPair,
    add_noise,
    draw_noise,
    noise_seed,
)
from nelu_cli.noise.camera import camera, demosaic, draw_camera
from nelu_cli.noise.filters import FloatImage, blur, from_ycc, jpeg_round_trip, quantise, to_ycc
from nelu_cli.words import NoiseKind

SIDE = 200
KINDS: tuple[NoiseKind, ...] = get_args(NoiseKind)
PLAIN = [kind for kind in KINDS if kind not in DRAWN]
CAMERA_LIKE = [kind for kind in DRAWN if kind != "jpeg"]


def half_and_half() -> NDArray[np.float32]:
    """The upper half 0.2, the lower 0.8."""
    clean = np.full((SIDE, SIDE, 1), 0.2, np.float32)
    clean[SIDE // 2 :] = 0.8
    return clean


def deviations(kind: NoiseKind, sigma255: float) -> tuple[float, float, float]:
    """Standard deviation of the noise, on the 0–255 scale: all, in the dark, in the light."""
    clean = half_and_half()
    noise = 255 * (add_noise(clean, kind, sigma255, seed=3).noisy - clean)
    return float(noise.std()), float(noise[: SIDE // 2].std()), float(noise[SIDE // 2 :].std())


@pytest.mark.parametrize("kind", ["white", "coupled", "uniform", "poisson", "speckle"])
@pytest.mark.parametrize("sigma255", [15.0, 120.0])
def test_the_noise_is_as_strong_as_said(kind: NoiseKind, sigma255: float) -> None:
    assert deviations(kind, sigma255)[0] == pytest.approx(sigma255, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "ratio"), [("white", 1), ("uniform", 1), ("poisson", 2), ("speckle", 4)]
)
def test_how_the_noise_depends_on_the_light(kind: NoiseKind, ratio: float) -> None:
    _, dark, light = deviations(kind, 25)
    assert light / dark == pytest.approx(ratio, rel=0.03)  # the picture is 4 times as light


@pytest.mark.parametrize("kind", PLAIN)
def test_noise_has_no_mean(kind: NoiseKind) -> None:
    clean = half_and_half()
    assert np.mean(add_noise(clean, kind, 25, 1).noisy - clean) == pytest.approx(0, abs=0.002)


def test_gaussian_noise_is_gaussian_and_uniform_noise_is_bounded() -> None:
    clean = half_and_half()
    for kind, kurtosis in (("white", 3.0), ("uniform", 1.8)):
        noise = (add_noise(clean, kind, 25, 1).noisy - clean) * 255 / 25  # type: ignore[arg-type]
        assert np.mean(noise**4) == pytest.approx(kurtosis, rel=0.05)
    assert np.abs(noise).max() <= 3**0.5 + 1e-4


def test_coupled_noise_is_white_from_pixel_to_pixel_but_not_from_channel_to_channel() -> None:
    clean = np.zeros((SIDE, SIDE, 3), np.float32)
    found = [add_noise(clean, "coupled", 255, seed).noisy for seed in range(40)]
    one_colour = grey = 0
    for noise in found:
        assert np.mean(noise**2) == pytest.approx(1, rel=0.04)
        for channel in range(3):
            assert correlation(noise[..., channel], 1) == pytest.approx(0, abs=0.02)
        shares = np.linalg.eigvalsh(np.cov(noise.reshape(-1, 3).T)) / 3
        assert shares[-1] > 0.34
        one_colour += shares[-1] > 0.999
        grey += np.ptp(noise, axis=-1).max() < 1e-4
    assert 6 <= one_colour <= 20
    assert 1 <= grey < one_colour


def test_coupled_noise_of_a_grey_picture_is_white() -> None:
    noise = add_noise(half_and_half(), "coupled", 25, 1).noisy - half_and_half()
    assert np.mean((noise * 255 / 25) ** 4) == pytest.approx(3.0, rel=0.05)
    assert correlation(noise[..., 0], 1) == pytest.approx(0, abs=0.02)


def test_poisson_noise_counts() -> None:
    clean = half_and_half()
    peak = 0.5 / (25 / 255) ** 2
    counts = add_noise(clean, "poisson", 25, 1).noisy * peak
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-3)


def test_spatial_noise_rises_from_a_tenth_on_the_left() -> None:
    clean = half_and_half()
    columns = (add_noise(clean, "spatial", 50, 1).noisy - clean).std(axis=(0, 2)) * 255
    expected = 50 * np.linspace(0.1, 1, SIDE)
    assert np.mean(columns[:20]) == pytest.approx(np.mean(expected[:20]), rel=0.05)
    assert np.mean(columns[-20:]) == pytest.approx(np.mean(expected[-20:]), rel=0.05)
    assert np.mean(columns / expected) == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("kind", PLAIN)
def test_noise_is_seeded_unclipped_and_leaves_its_input(kind: NoiseKind) -> None:
    clean = half_and_half()
    noisy = add_noise(clean, kind, 120, seed=5).noisy
    assert noisy.dtype == np.float32
    assert noisy.shape == clean.shape
    np.testing.assert_array_equal(noisy, add_noise(clean, kind, 120, seed=5).noisy)
    assert not np.array_equal(noisy, add_noise(clean, kind, 120, seed=6).noisy)
    assert noisy.max() > 1
    assert noisy.min() < (0 if kind != "poisson" else 0.01)
    np.testing.assert_array_equal(clean, half_and_half())


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("light", [0.0, 0.5])
def test_no_noise_and_no_light_are_harmless(kind: NoiseKind, light: float) -> None:
    flat = np.full((4, 1, 3), light, np.float32)
    np.testing.assert_array_equal(add_noise(flat, kind, 0, 1).noisy, flat)
    assert np.isfinite(add_noise(flat, kind, 50, 1).noisy).all()


def test_unknown_noise() -> None:
    with pytest.raises(DatasetError, match="salt: no such noise; choose from white, coupled"):
        add_noise(half_and_half(), "salt", 15, 0)  # type: ignore[arg-type]


def test_a_noise_seed_depends_on_picture_level_and_seed_alone() -> None:
    # Fixed once and for all: published tables depend on it.
    assert noise_seed("test001.png", 15, 0) == noise_seed("test001.png", 15.0, 0)
    assert noise_seed("test001.png", 15, 0) == 14_689_028_252_272_287_908
    seeds = {
        noise_seed(f"{name}.png", s, seed) for name in "ab" for s in (15, 25) for seed in (0, 1)
    }
    assert len(seeds) == 8


# Noise with random settings


def soft_picture(side: int = 144, seed: int = 0) -> FloatImage:
    """A smooth colour picture with an edge, between 0.1 and 0.9."""
    rng = np.random.default_rng(seed)
    picture = blur(rng.standard_normal((side, side, 3)).astype(np.float32), 8)
    picture = 0.5 + 0.3 * picture / np.abs(picture).max()
    picture[:, side // 2 :] += 0.1
    return np.asarray(np.clip(picture, 0.1, 0.9), np.float32)


def correlation(noise: FloatImage, distance: int) -> float:
    """Of neighbours along rows and columns, (H, W)."""
    across = np.mean(noise[:, distance:] * noise[:, :-distance])
    down = np.mean(noise[distance:] * noise[:-distance])
    return float((across + down) / 2 / np.mean(noise**2))


@pytest.mark.parametrize("kind", DRAWN)
def test_random_noise_is_decided_by_its_seed(kind: NoiseKind) -> None:
    def draw(seed: int) -> NoisyPair:
        return draw_noise(soft_picture(), kind, np.random.default_rng(seed))

    for one, other in zip(draw(3), draw(3), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(draw(3).noisy, draw(4).noisy)


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("channels", [1, 3])
def test_random_noise_is_a_picture_of_8_bits(kind: NoiseKind, channels: int) -> None:
    picture = soft_picture()[..., :channels]
    clean, noisy = add_noise(picture, kind, 10, seed=1)
    assert clean.shape == noisy.shape == picture.shape
    assert clean.dtype == noisy.dtype == np.float32
    np.testing.assert_allclose(noisy * 255, np.rint(noisy * 255), atol=1e-3)
    assert 0 <= noisy.min() <= noisy.max() <= 1
    np.testing.assert_array_equal(picture, soft_picture()[..., :channels])


@pytest.mark.parametrize("kind", CAMERA_LIKE)
def test_random_noise_has_the_level_asked_for(kind: NoiseKind) -> None:
    found = []
    for seed in range(12):
        clean, noisy = add_noise(soft_picture(), kind, 12, seed)
        found.append(255 * float((noisy - clean).std()))
    assert np.mean(found) == pytest.approx(12, rel=0.15)  # JPEG takes a little of it away


def test_camera_noise_contains_that_of_real_cameras() -> None:
    """Measured on CC: deviation and correlation in luma and chroma, smallest and largest crop."""
    rows = []
    for seed in range(60):
        clean, noisy = draw_noise(soft_picture(), "camera", np.random.default_rng(seed))
        noise = to_ycc(noisy - clean) * 255
        noise = noise - blur(noise, 12)
        luma, chroma = noise[..., 0], noise[..., 1]
        rows.append(
            [
                *(luma.std(), chroma.std()),
                *(correlation(luma, distance) for distance in (1, 2)),
                *(correlation(chroma, distance) for distance in (1, 2, 4)),
            ]
        )
    low, high = np.percentile(rows, [3, 97], axis=0)
    real = [
        (2.9, 6.6),
        (1.2, 3.6),
        (0.43, 0.61),
        (0.0, 0.17),
        (0.77, 0.9),
        (0.47, 0.71),
        (0.11, 0.35),
    ]
    for smallest, largest, (least, most) in zip(low, high, real, strict=True):
        assert smallest <= least
        assert largest >= most


def test_the_camera_without_noise_gives_the_picture_back() -> None:
    picture = blur(soft_picture(), 2)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        settings = replace(draw_camera(rng), shot=0.0, read=0.0, sharpening=0.0)
        clean, noisy = camera(picture, settings, rng)
        np.testing.assert_allclose(noisy, clean, atol=1e-4)
        assert np.abs(clean - picture)[4:-4, 4:-4].mean() < 0.01


def test_shot_noise_grows_with_the_light_on_the_sensor() -> None:
    rng = np.random.default_rng(0)
    settings = replace(draw_camera(rng), shot=1e-3, read=0.0, gamma=1.0, sharpening=0.0)
    spread = []
    for light in (0.1, 0.4):
        clean, noisy = camera(np.full((96, 96, 3), light, np.float32), settings, rng)
        spread.append(float((noisy - clean)[..., 1].std()))
    assert spread[1] / spread[0] == pytest.approx(2, rel=0.15)  # the root of 4


@pytest.mark.parametrize("light", [0.01, 0.3, 0.97])
@pytest.mark.parametrize("kind", ["camera", "correlated", "grain", "scan"])
def test_the_target_is_the_mean_of_many_shots(kind: NoiseKind, light: float) -> None:
    """Also where the tone curve or clipping makes the noise lopsided: nothing gets brighter."""
    picture = np.full((64, 64, 3), light, np.float32)
    shifts = []
    for seed in range(32):
        clean, noisy = draw_noise(picture, kind, np.random.default_rng(seed), level=8 / 255)
        shifts.append(255 * float((noisy - clean).mean()))
    assert abs(np.mean(shifts)) < 0.6  # of a deviation of 8


def test_the_cameras_noise_reduction_leaves_the_noise_along_edges() -> None:
    """On CC's Canon there is twice as much of it as in flat places."""
    picture = np.full((96, 96, 3), 0.3, np.float32)
    picture[:, 48:] = 0.6
    drawn = replace(
        draw_camera(np.random.default_rng(3)), shot=2e-4, read=0.0, sharpening=0.0, gamma=2.0
    )
    ratios = []
    for floor in (0.2, 1.0):
        settings = replace(drawn, threshold=3.0, floor=floor, scale=1.0)
        clean, noisy = camera(picture, settings, np.random.default_rng(4))
        noise = to_ycc(noisy - clean)[..., 0]
        ratios.append(float(noise[:, 46:50].std() / noise[:, 60:90].std()))
    assert ratios[0] > 2 > 1.3 > ratios[1]


def test_a_picture_made_smaller_keeps_its_size_here_and_its_noise_is_less_correlated() -> None:
    found = []
    for scale in (1.0, 0.6):
        rng = np.random.default_rng(8)
        settings = replace(draw_camera(rng), luma_blur=1.0, floor=1.0, scale=scale)
        clean, noisy = camera(soft_picture(), settings, rng)
        assert clean.shape == soft_picture().shape
        found.append(correlation(to_ycc(noisy - clean)[..., 0], 1))
    assert found[1] < found[0] - 0.1


@pytest.mark.parametrize("method", ["bilinear", "gradient-corrected", "edge-directed"])
@pytest.mark.parametrize("phase", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_demosaicing_gives_back_what_changes_slowly(method: str, phase: tuple[int, int]) -> None:
    rows, columns = np.mgrid[:32, :40].astype(np.float32)
    picture = np.stack([0.2 + 0.01 * rows, 0.3 + 0.005 * columns, 0.6 - 0.01 * rows], -1)
    sites = np.tile(np.roll(np.array([[0, 1], [1, 2]]), phase, (0, 1)), (16, 20))
    mosaic = np.take_along_axis(picture, sites[..., None], -1)[..., 0]
    found = demosaic(mosaic, sites, method)  # type: ignore[arg-type]
    np.testing.assert_allclose(found[3:-3, 3:-3], picture[3:-3, 3:-3], atol=1e-5)


def test_grain_is_equal_in_all_channels_and_strongest_in_mid_tones() -> None:
    def spread(light: float) -> float:
        pair = DRAWN["grain"](np.full((64, 64, 3), light, np.float32), np.random.default_rng(2))
        noise = pair.noisy - pair.clean
        np.testing.assert_allclose(noise[..., 0], noise[..., 2], atol=1e-6)
        return float(noise.std())

    assert spread(0.5) > 2 * spread(0.02)


def test_some_correlated_noise_is_equal_in_all_channels() -> None:
    flat = np.full((32, 32, 3), 0.5, np.float32)
    equal = 0
    for seed in range(50):
        pair = DRAWN["correlated"](flat, np.random.default_rng(seed))
        equal += bool(np.allclose(pair.noisy[..., 0], pair.noisy[..., 1], atol=1e-5))
    assert 3 <= equal <= 20


def test_jpeg_noise_is_compression_alone_and_grows_with_the_level() -> None:
    picture = soft_picture()
    errors = []
    for sigma in (1, 3):
        clean, noisy = add_noise(picture, "jpeg", sigma, 0)
        np.testing.assert_array_equal(clean, picture)
        errors.append(float((noisy - clean).std()))
    assert errors[0] < errors[1]


def test_luma_and_chroma_are_a_round_trip() -> None:
    picture = soft_picture()
    np.testing.assert_allclose(from_ycc(to_ycc(picture)), picture, atol=1e-5)
    grey = np.repeat(picture[..., :1], 3, -1)
    np.testing.assert_allclose(to_ycc(grey)[..., 1:], 0, atol=1e-5)


def test_blur_keeps_flat_areas_and_reduces_noise_as_it_should() -> None:
    flat = np.full((40, 40, 1), 0.3, np.float32)
    np.testing.assert_allclose(blur(flat, 1.5), flat, atol=1e-6)
    noise = np.random.default_rng(0).standard_normal((256, 256, 1)).astype(np.float32)
    assert blur(noise, 2.0).std() == pytest.approx(1 / (2 * 2.0 * np.pi**0.5), rel=0.05)
    assert blur(noise, 0) is noise


def test_jpeg_of_high_quality_is_nearly_the_picture() -> None:
    pixels = quantise(soft_picture())
    stored = jpeg_round_trip(pixels, 99, "4:4:4")
    assert np.abs(stored * 255 - pixels).mean() < 1


# Mixes


def test_a_mix_draws_its_kinds_as_often_as_it_says() -> None:
    mix = NoiseMix.parse("camera=3, white")
    rng = np.random.default_rng(0)
    drawn = [mix.draw(rng) for _ in range(400)]
    assert drawn.count("camera") == pytest.approx(300, abs=30)
    assert set(drawn) == {"camera", "white"}
    assert mix.needs_colour
    assert not NoiseMix.parse("white").needs_colour


def test_photo_stands_for_its_mix() -> None:
    assert NoiseMix.parse("photo") == NoiseMix.parse(PHOTO)
    assert sum(NoiseMix.parse("photo").shares) == pytest.approx(1)


@pytest.mark.parametrize("text", ["", "salt", "camera=x", "camera=-1", "white=0", "a=b=c"])
def test_a_wrong_mix_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"the kinds are white, coupled, camera, correlated, grain"
    ):
        NoiseMix.parse(text)
