"""Training patches: the seed, the step and the item decide, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from nelu_cli.data import patches
from nelu_cli.data.patches import Batch, PatchSource, Pixels, detail, load_pictures
from nelu_cli.errors import DatasetError
from nelu_cli.noise import NoiseMix


def random_picture(height: int, width: int, channels: int = 1, seed: int = 0) -> Pixels:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)


def flat(value: int, side: int = 20) -> Pixels:
    return np.full((side, side, 1), value, np.uint8)


def source(*sets: Sequence[Pixels]) -> PatchSource:
    default = [random_picture(40, 50, seed=seed) for seed in range(5)]
    return PatchSource(
        sets or [default],
        sigma255=(0.0, 50.0),
        sigma_power=1.0,
        contrast=(1.0, 1.0),
        smallest_scale=0.5,
        seed=11,
    )


def tensors(batch: Batch) -> tuple[Tensor, ...]:
    return batch.clean, batch.noisy, batch.sigma255, batch.contrast


def assert_same(one: Batch, other: Batch) -> None:
    for a, b in zip(tensors(one), tensors(other), strict=True):
        assert torch.equal(a, b)


def test_a_batch_has_the_shape_asked_for() -> None:
    colour = [random_picture(30, 40, 3)]
    batch = source(colour).batch(0, range(6), patch=16)
    assert batch.clean.shape == batch.noisy.shape == (6, 3, 16, 16)
    assert batch.sigma255.shape == (6,)
    assert {tensor.dtype for tensor in tensors(batch)} == {torch.float32}


def test_seed_step_and_item_alone_decide() -> None:
    first, second = source(), source()
    for step in (3, 1, 2):  # whatever was asked before
        second.batch(step, range(2), 16)
    batch = first.batch(7, range(4), 16)
    assert_same(batch, second.batch(7, range(4), 16))
    for other in (first.batch(8, range(4), 16), replace(first, seed=12).batch(7, range(4), 16)):
        assert not torch.equal(batch.clean, other.clean)
        assert not torch.equal(batch.sigma255, other.sigma255)


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_a_batch_split_over_processes_is_the_same_batch(ranks: int) -> None:
    share = 6 // ranks
    parts = [
        source().batch(5, range(rank * share, (rank + 1) * share), 16) for rank in range(ranks)
    ]
    joined = Batch(*(torch.cat(column) for column in zip(*map(tensors, parts), strict=True)))
    assert_same(joined, source().batch(5, range(6), 16))


def test_patches_are_cut_from_the_pictures_in_all_eight_poses() -> None:
    corner = np.zeros((8, 8, 1), np.uint8)
    corner[0, 1] = 255  # with no symmetry
    clean = source([corner]).batch(0, range(200), 8).clean
    assert len({tuple(patch.flatten().nonzero().flatten().tolist()) for patch in clean}) == 8


def test_patches_need_not_be_turned() -> None:
    corner = np.zeros((8, 8, 1), np.uint8)
    corner[0, 1] = 255
    clean = replace(source([corner]), turn=False).batch(0, range(20), 8).clean
    assert (clean[:, 0, 0, 1] == 1).all()


def test_a_power_above_1_draws_small_levels_more_often() -> None:
    plain = source([flat(128)])
    squared = replace(plain, sigma_power=2.0).batch(0, range(200), 8).sigma255
    torch.testing.assert_close(squared, plain.batch(0, range(200), 8).sigma255 ** 2 / 50)


def test_contrast_multiplies_the_clean_patch_alone() -> None:
    batch = replace(source([flat(255)]), contrast=(0.1, 1.0)).batch(0, range(300), 16)
    torch.testing.assert_close(batch.clean[:, 0, 0, 0], batch.contrast)
    assert 0.1 <= batch.contrast.min() < 0.2 < 0.9 < batch.contrast.max() <= 1
    found = (batch.noisy - batch.clean).std((1, 2, 3)) * 255
    assert found.mean() == pytest.approx(float(batch.sigma255.mean()), rel=0.03)


@pytest.mark.parametrize("mix", ["white", "coupled", "white=1,coupled=1"])
def test_the_noise_has_the_level_it_says(mix: str) -> None:
    grey = np.repeat(flat(128), 3, axis=-1)
    batch = replace(source([grey]), noise=NoiseMix.parse(mix)).batch(0, range(300), 16)
    assert batch.sigma255.min() >= 0
    assert batch.sigma255.max() <= 50
    assert batch.sigma255.mean() == pytest.approx(25, rel=0.1)
    noise = (batch.noisy - batch.clean).flatten(1)
    strong = batch.sigma255 > 10
    ratio = 255 * noise.std(1)[strong] / batch.sigma255[strong]
    assert ratio.mean() == pytest.approx(1, rel=0.02)
    assert batch.noisy[strong].std() > 0


def test_one_level_of_noise() -> None:
    batch = replace(source(), sigma255=(15.0, 15.0)).batch(0, range(20), 16)
    assert batch.sigma255.tolist() == [15] * 20


def test_noise_is_not_clipped() -> None:
    batch = source([flat(255), flat(0)]).batch(0, range(10), 16)
    assert batch.noisy.max() > 1
    assert batch.noisy.min() < 0


def test_contrast_scales_the_clean_patch() -> None:
    clean = replace(source([flat(255)]), contrast=(0.1, 0.6)).batch(0, range(300), 4).clean
    levels = clean.flatten(1)
    assert torch.equal(levels.min(1).values, levels.max(1).values)
    assert levels.min() >= 0.1
    assert levels.max() <= 0.6
    assert levels.mean() == pytest.approx(0.35, rel=0.05)


def test_each_set_is_drawn_equally_often() -> None:
    clean = source([flat(0)], [flat(255)] * 9).batch(0, range(400), 4).clean
    assert clean.mean() == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 5), (3, 40), (7, 8)])
def test_pictures_smaller_than_the_patch_are_scaled_up(height: int, width: int) -> None:
    batch = source([random_picture(height, width, 3)]).batch(0, range(8), 16)
    assert batch.clean.shape == (8, 3, 16, 16)
    assert batch.clean.min() >= 0
    assert batch.clean.max() <= 1
    grey = source([flat(100, side=5)]).batch(0, range(2), 16).clean
    torch.testing.assert_close(grey, torch.full_like(grey, 100 / 255))


def test_large_pictures_are_scaled_down_half_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    checkers = np.zeros((64, 64, 1), np.uint8)
    checkers[::2, ::2] = checkers[1::2, 1::2] = 255
    small = source([checkers]).batch(0, range(60), 16).clean
    assert set(small.flatten().tolist()) == {0.0, 1.0}  # cut as they are
    monkeypatch.setattr(patches, "LARGE", 64 * 64 - 1)
    large = source([checkers]).batch(0, range(60), 16).clean
    crisp = [bool(((patch == 0) | (patch == 1)).all()) for patch in large]
    assert 15 <= sum(crisp) <= 45


def test_unreadable_files_are_counted(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for path in paths:
        Image.new("RGB", (5, 4), (255, 0, 0)).save(path)
    paths[1].write_bytes(b"no picture")
    pictures, unreadable = load_pictures(paths, 3)
    assert unreadable == 1
    assert [pixels.shape for pixels in pictures] == [(4, 5, 3)] * 2
    assert pictures[0].dtype == np.uint8


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    with pytest.raises(DatasetError, match="none of the 2 pictures can be read"):
        load_pictures(paths, 1)
    with pytest.raises(DatasetError, match="no pictures to train on"):
        load_pictures([], 1)


@pytest.mark.parametrize("grey", [False, True])
def test_other_noise_than_white(grey: bool) -> None:
    pictures = [random_picture(60, 70, 3, seed) for seed in range(3)]
    mixed = replace(
        source(pictures), noise=NoiseMix.parse("camera,correlated,grain,scan,jpeg"), grey=grey
    )
    batch = mixed.batch(4, range(10), 32)
    assert batch.clean.shape == batch.noisy.shape == (10, 1 if grey else 3, 32, 32)
    assert_same(batch, mixed.batch(4, range(10), 32))
    assert batch.contrast.tolist() == [1] * 10
    found = 255 * (batch.noisy - batch.clean).flatten(1).std(1, correction=0)
    torch.testing.assert_close(found, batch.sigma255)


def test_camera_noise_comes_with_soft_pictures() -> None:
    pictures = [random_picture(90, 90, 3)]
    sharp = source(pictures).batch(0, range(20), 32).clean
    soft = replace(source(pictures), noise=NoiseMix.parse("camera")).batch(0, range(20), 32).clean
    assert soft.diff(dim=-1).abs().mean() < 0.6 * sharp.diff(dim=-1).abs().mean()


def test_soft_patches_are_of_pictures_scaled_up() -> None:
    sharp = source().batch(0, range(20), 16).clean
    soft = replace(source(), soft=1.0).batch(0, range(20), 16).clean
    assert soft.diff(dim=-1).abs().mean() < 0.8 * sharp.diff(dim=-1).abs().mean()


def test_vivid_patches_are_those_with_the_most_detail() -> None:
    dull = np.repeat(random_picture(40, 40), 3, axis=-1)  # of brightness alone
    for poor, rich in ((dull, random_picture(40, 40, 3)), (flat(99, 40), random_picture(40, 40))):
        assert detail(poor) == 0 < detail(rich)

        def share(source: PatchSource) -> float:
            """Of the patches that are of the rich picture."""
            clean = source.batch(0, range(60), 16).clean.permute(0, 2, 3, 1)
            return float(np.mean([detail(patch.numpy()) > 1e-6 for patch in clean]))

        plain = source([poor, rich])
        assert share(plain) < 0.7 < 0.85 < share(replace(plain, vivid=1.0))  # 1/2; all but 1/16


def test_recoloured_patches_have_other_colours_within_range() -> None:
    pictures = [random_picture(40, 40, 3)]
    plain = replace(source(pictures), recolour=1e-9).batch(0, range(8), 16).clean
    other = replace(source(pictures), recolour=1.0).batch(0, range(8), 16).clean
    assert not any(torch.equal(a, b) for a, b in zip(plain, other, strict=True))
    assert 0 <= other.min() <= other.max() <= 1
    assert_same(
        replace(source([flat(99)]), recolour=1.0).batch(0, range(4), 8),
        source([flat(99)]).batch(0, range(4), 8),  # grey ones have none
    )


def test_recoloured_patches_have_fine_detail_of_colour_alone() -> None:
    """In a picture whose channels rise and fall together, some come to do the opposite."""
    detail = np.repeat(random_picture(40, 40, 1), 3, axis=-1)
    batch = replace(source([detail]), recolour=1.0).batch(0, range(40), 16)
    channels = batch.clean.flatten(2)
    against = [bool(torch.corrcoef(patch).min() < 0) for patch in channels]
    assert 2 < sum(against) < 20  # of the half whose colours are mixed
