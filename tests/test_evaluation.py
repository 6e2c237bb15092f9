"""Measuring denoisers: laws of the measures, repeatability, baselines, and the figures."""

import csv
import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nelu_cli.data import sets as datasets
from nelu_cli.data.sets import ImageSet
from nelu_cli.errors import DatasetError, NeluError, UsageError
from nelu_cli.evaluation import (
    BASELINES,
    NOISY,
    Comparison,
    Mean,
    Method,
    Results,
    baseline,
    evaluate,
    evaluate_pairs,
    figures,
    labels,
    paper_rows,
    psnr,
    ssim,
)
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.noise.filters import FloatImage


def smooth(height: int = 48, width: int = 40, channels: int = 1, shift: float = 0) -> FloatImage:
    """A picture with gentle waves and one hard edge, in 0.2..0.8."""
    y, x = np.mgrid[:height, :width]
    waves = 0.5 + 0.2 * np.sin(y / 9 + shift) * np.cos(x / 7) + 0.1 * (x > width / 2)
    return np.stack([waves - 0.05 * c for c in range(channels)], axis=-1).astype(np.float32)


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    paths = []
    for number in range(3):
        path = tmp_path / f"picture{number}.png"
        pixels = np.rint(smooth(channels=3, shift=number) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(path)
        paths.append(path)
    return ImageSet("waves", tuple(paths))


IDENTITY = Method("identity", lambda noisy, sigma255: noisy)
HALF = Method("half", lambda noisy, sigma255: noisy * np.float32(0.5), "told σ")


# The measures


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 1))
def test_psnr_of_a_constant_error_is_its_decibels(error: float) -> None:
    clean = smooth()
    assert psnr(clean, (clean + np.float32(error)).astype(np.float32)) == pytest.approx(
        -20 * math.log10(error), abs=0.01
    )


def test_psnr_of_equal_images_is_infinite_and_ssim_one() -> None:
    clean = smooth(channels=3)
    assert psnr(clean, clean) == math.inf
    assert ssim(clean, clean) == pytest.approx(1.0)


def test_ssim_is_the_mean_over_channels() -> None:
    clean = smooth(channels=3)
    noisy = add_noise(clean, "white", 25, seed=1).noisy
    single = [ssim(clean[..., c : c + 1], noisy[..., c : c + 1]) for c in range(3)]
    assert ssim(clean, noisy) == pytest.approx(np.mean(single))


def test_mean_has_the_standard_error() -> None:
    mean = Mean.of([1.0, 2.0, 6.0])
    assert mean.value == pytest.approx(3.0)
    assert mean.error == pytest.approx(math.sqrt(7) / math.sqrt(3))
    assert math.isnan(Mean.of([4.0]).error)
    assert Mean.of([4.0, math.inf]).value == math.inf


# The evaluation


def test_same_call_gives_the_same_digits(images: ImageSet) -> None:
    first = evaluate(images, [IDENTITY], [15, 50])
    second = evaluate(images, [IDENTITY], [15, 50])
    assert first == second
    assert first.to_json() == second.to_json()


def test_scores_depend_on_nothing_but_their_image_level_and_seed(images: ImageSet) -> None:
    whole = evaluate(images, [IDENTITY, HALF], [15, 50])
    part = evaluate(ImageSet("part", images.paths[1:]), [HALF], [50])
    assert set(part.scores) <= set(whole.scores)
    other = evaluate(images, [HALF], [50], seed=1)
    assert not set(other.scores) & set(whole.scores)


def test_noisy_row_comes_first_and_is_not_clipped(tmp_path: Path) -> None:
    path = tmp_path / "white.png"
    Image.new("L", (128, 128), 255).save(path)
    white = ImageSet("white", (path,))
    results = evaluate(white, [IDENTITY], [50])
    assert list(results.methods.items()) == [(NOISY, "input"), ("identity", "blind")]
    expected = -20 * math.log10(50 / 255)
    assert results.psnr(NOISY, 50).value == pytest.approx(expected, abs=0.1)
    # on white, clipping takes away half of the noise energy: 3 dB
    assert results.psnr("identity", 50).value == pytest.approx(expected + 3.0, abs=0.2)


def test_rows_are_means_over_images(images: ImageSet) -> None:
    results = evaluate(images, [IDENTITY], [25])
    values = [score.psnr for score in results.scores if score.method == "identity"]
    assert len(values) == 3
    assert results.psnr("identity", 25) == Mean.of(values)
    assert results.images == ("picture0", "picture1", "picture2")


def test_limit_progress_and_channels(images: ImageSet) -> None:
    steps: list[float] = []
    shapes: set[tuple[int, ...]] = set()

    def look(noisy: FloatImage, sigma255: float) -> FloatImage:
        shapes.add(noisy.shape)
        return noisy

    results = evaluate(
        images, [Method("look", look), HALF], [15, 25], channels=3, limit=2, progress=steps.append
    )
    assert results.images == ("picture0", "picture1")
    assert steps == [1] * 8
    assert shapes == {(48, 40, 3)}
    assert {method: results.methods[method] for method in ("look", "half")} == {
        "look": "blind",
        "half": "told σ",
    }


def test_method_is_told_the_level(images: ImageSet) -> None:
    told: list[float] = []

    def listen(noisy: FloatImage, sigma255: float) -> FloatImage:
        told.append(sigma255)
        return noisy

    evaluate(images, [Method("listen", listen)], [15, 25], limit=1)
    assert told == [15, 25]


def test_json_has_means_scores_and_published_rows(images: ImageSet) -> None:
    perfect = Method("perfect", lambda noisy, sigma255: datasets.load_clean(images.paths[0], 1))
    results = evaluate(images, [perfect], [15, 20], limit=1)
    results = replace(results, published=paper_rows(results.sigmas))
    document = json.loads(results.to_json())
    assert document["dataset"] == "waves"
    assert document["sigmas"] == [15, 20]
    assert document["methods"] == [
        {"name": "noisy", "note": "input"},
        {"name": "perfect", "note": "blind"},
    ]
    assert len(document["scores"]) == 4
    noisy, perfect_row = document["means"][0], document["means"][2]
    assert noisy["psnr"] == document["scores"][0]["psnr"]
    assert noisy["psnr_standard_error"] is None  # one image
    assert perfect_row["psnr"] is None  # infinite
    assert perfect_row["ssim"] == 1
    assert document["published"] == [
        {"method": "paper's ReLU", "dataset": "bsd68", "sigma": 15, "psnr": 28.47},
        {"method": "paper's NeLU", "dataset": "bsd68", "sigma": 15, "psnr": 28.65},
    ]


def test_csv_has_one_line_for_each_score(images: ImageSet) -> None:
    results = evaluate(images, [HALF], [15, 25])
    lines = list(csv.DictReader(io.StringIO(results.to_csv())))
    assert len(lines) == len(results.scores) == 12
    for line, score in zip(lines, results.scores, strict=True):
        assert line["method"] == score.method
        assert float(line["sigma"]) == score.sigma255
        assert line["image"] == score.image
        assert float(line["psnr"]) == pytest.approx(score.psnr, abs=1e-4)
        assert float(line["ssim"]) == pytest.approx(score.ssim, abs=1e-6)


@pytest.mark.parametrize("answer", [np.full((48, 40, 1), np.nan), np.zeros((2, 2, 1))])
def test_method_that_gives_no_picture_is_named(images: ImageSet, answer: FloatImage) -> None:
    broken = Method("broken", lambda noisy, sigma255: answer)
    with pytest.raises(NeluError, match=r"^broken: gives no picture for picture0, σ 15$"):
        evaluate(images, [broken], [15])


def test_image_too_small_for_ssim_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.png"
    Image.new("L", (64, 10)).save(path)
    with pytest.raises(DatasetError, match=r"tiny\.png: SSIM needs at least 11×11 pixels"):
        evaluate(ImageSet("tiny", (path,)), [], [15])


def test_labels_are_stems_unless_two_files_share_one() -> None:
    assert labels([Path("a/one.png"), Path("b/two.png")]) == ["one", "two"]
    assert labels([Path("x/a/one.png"), Path("x/b/one.png")]) == ["a/one.png", "b/one.png"]
    assert labels([Path("x/one.png"), Path("x/one.jpg")]) == ["one.png", "one.jpg"]


def test_noisy_bsd68_is_that_of_the_papers_table() -> None:
    try:
        images = datasets.find("bsd68")
    except DatasetError:
        pytest.skip("bsd68 is not on this machine")
    for sigma, expected in ((15, 24.61), (25, 20.17), (50, 14.15)):
        values = []
        for path in images.paths:
            clean = datasets.load_clean(path, 1)
            seed = noise_seed(path.name, sigma, 0)
            values.append(psnr(clean, add_noise(clean, "white", sigma, seed).noisy))
        assert np.mean(values) == pytest.approx(expected, abs=0.011)


# Baselines


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", list(BASELINES))
def test_baseline_takes_noise_out(name: str, channels: int) -> None:
    if name == "bm3d":
        pytest.importorskip("bm3d")
    clean = smooth(channels=channels)
    noisy = add_noise(clean, "white", 25, seed=3).noisy
    before = noisy.copy()
    estimate = baseline(name).denoise(noisy, 25)
    assert estimate.shape == clean.shape
    assert psnr(clean, estimate) > psnr(clean, noisy) + 4
    assert np.array_equal(noisy, before)


@pytest.mark.parametrize("name", ["wavelet", "nlm", "tv"])
def test_blind_baseline_does_not_look_at_the_true_level(name: str) -> None:
    noisy = add_noise(smooth(), "white", 25, seed=3).noisy
    blind, told = baseline(name), baseline(f"{name}-told")
    assert (blind.note, told.note) == ("blind", "told σ")
    assert np.array_equal(blind.denoise(noisy, 1), blind.denoise(noisy, 99))
    assert not np.array_equal(told.denoise(noisy, 1), told.denoise(noisy, 99))


def test_unknown_baseline_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"^magic: no such baseline; there are wavelet, nlm, tv,"):
        baseline("magic")


def test_missing_bm3d_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm3d", None)
    with pytest.raises(UsageError, match=r"pip install 'nelu-cli\[bm3d\]'"):
        baseline("bm3d")


def test_paper_rows_hold_only_levels_of_the_paper() -> None:
    relu, nelu = paper_rows([15, 20, 120])
    assert relu.psnr == {15: 28.47, 120: 12.99}
    assert nelu.psnr == {15: 28.65, 120: 14.57}
    assert nelu.dataset == "bsd68"


# Figures


@pytest.fixture
def results(images: ImageSet) -> Results:
    return evaluate(images, [IDENTITY, HALF], [50, 15], limit=2)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_curves_are_written_and_repeatable(results: Results, tmp_path: Path, suffix: str) -> None:
    results = replace(results, published=paper_rows(results.sigmas))
    path = tmp_path / f"curves{suffix}"
    figures.psnr_curves(results, path)
    first = path.read_bytes()
    assert len(first) > 1000
    if suffix != ".svg":  # which has random identifiers
        figures.psnr_curves(results, path)
        assert path.read_bytes() == first


def test_curves_refuse_another_format(results: Results, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"curves\.gif: a figure can be written as \.png, \.svg"):
        figures.psnr_curves(results, tmp_path / "curves.gif")
    assert not list(tmp_path.glob("curves*"))


@pytest.mark.parametrize("channels", [1, 3])
def test_comparison_writes_every_picture(images: ImageSet, tmp_path: Path, channels: int) -> None:
    folder = tmp_path / "out"
    kept: list[Comparison] = []

    def save(comparison: Comparison) -> None:
        kept.append(comparison)
        figures.save_comparison(comparison, folder)

    slashed = Method("runs/../best", lambda noisy, sigma255: noisy)
    evaluate(images, [slashed], [15], channels=channels, limit=1, save=save)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.png")}
    level = "picture0/sigma15"
    assert names == {
        "picture0/clean.png",
        f"{level}/comparison.png",
        f"{level}/noisy.png",
        f"{level}/noisy-error.png",
        f"{level}/runs_.._best.png",
        f"{level}/runs_.._best-error.png",
    }
    with Image.open(folder / "picture0/clean.png") as image:
        assert image.mode == ("L" if channels == 1 else "RGB")
        pixels = np.asarray(image).reshape(48, 40, channels)
    assert np.array_equal(pixels, np.rint(kept[0].clean * 255))
    assert kept[0].psnr.keys() == {NOISY, "runs/../best"}


def test_detail_is_the_square_with_the_most_structure() -> None:
    image = np.zeros((60, 80, 1), np.float32)
    image[30:50:2, 40:60] = 1
    rows, columns = figures.detail(image, side=20)
    assert abs(rows.start - 30) <= 1
    assert abs(columns.start - 40) <= 1
    rows, columns = figures.detail(image, side=500)
    assert (rows, columns) == (slice(0, 60), slice(0, 80))


# Real pairs


def test_real_pairs_are_scored_against_their_clean_half(tmp_path: Path) -> None:
    clean, noisy = tmp_path / "clean", tmp_path / "noisy"
    for folder, light in ((clean, 100), (noisy, 110)):
        folder.mkdir()
        for name in ("a.png", "b.png"):
            Image.new("RGB", (16, 16), (light, light, light)).save(folder / name)
    pairs = datasets.matched_pairs(datasets.find(str(noisy)), datasets.find(str(clean)))
    told: list[float] = []

    def mend(picture: FloatImage, sigma255: float) -> FloatImage:
        told.append(sigma255)
        return np.full_like(picture, 101 / 255)

    results = evaluate_pairs("mine", pairs, [Method("mend", mend)])
    assert results.sigmas == (None,)
    assert results.images == ("a", "b")
    assert results.psnr("noisy", None).value == pytest.approx(20 * np.log10(255 / 10))
    assert results.psnr("mend", None).value == pytest.approx(20 * np.log10(255))
    assert told == pytest.approx([0, 0], abs=1e-4)  # a constant difference is no noise
    assert json.loads(results.to_json())["sigmas"] == [None]
    with pytest.raises(UsageError, match="not real pairs"):
        figures.psnr_curves(results, tmp_path / "curves.png")


def test_pairs_that_do_not_match_are_refused(tmp_path: Path) -> None:
    for folder, name in (("noisy", "a"), ("noisy", "b"), ("clean", "a")):
        (tmp_path / folder).mkdir(exist_ok=True)
        Image.new("RGB", (12, 12 if name == "a" else 13)).save(tmp_path / folder / f"{name}.png")
    noisy, clean = (datasets.find(str(tmp_path / name)) for name in ("noisy", "clean"))
    with pytest.raises(DatasetError, match=r"1 of 2 pictures have no counterpart .*, b.png"):
        datasets.matched_pairs(noisy, clean)
    pair = datasets.Pair("x", tmp_path / "noisy/b.png", tmp_path / "clean/a.png")
    with pytest.raises(DatasetError, match="is not as large as"):
        evaluate_pairs("mine", [pair], [])


@pytest.mark.parametrize("name", ["wavelet-told", "nlm-told", "tv-told"])
def test_told_baselines_are_told_sigma_on_the_scale_of_255(name: str) -> None:
    """What leaves least error is the true σ, on the scale on which every method is told it."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0.2, 0.8, 64, dtype=np.float32)
    clean = np.broadcast_to(ramp, (64, 64))[..., None]
    noisy = clean + np.float32(25 / 255) * rng.standard_normal(clean.shape, np.float32)
    method = baseline(name)
    errors = {
        sigma255: float(np.mean((method.denoise(noisy, sigma255) - clean) ** 2))
        for sigma255 in (25 / 255, 25.0)
    }
    assert errors[25.0] < 0.5 * errors[25 / 255]
