"""The benchmarks count right and run, at the smallest size."""

import json
import sys

import pytest
import torch

from benchmarks import scaling, speed, sqrt_lasso, training
from benchmarks.common import picture
from nelu_cli.networks import DeepConfig, PaperAutoencoder, PaperConfig, build


def test_pictures_have_the_size_asked_for() -> None:
    pixels = picture(0.03, 3)
    assert pixels.shape[0] * pixels.shape[1] == pytest.approx(30_000, rel=0.01)
    assert pixels.shape[2] == 3
    assert pixels.std() > 20


def test_multiply_adds_are_counted_exactly() -> None:
    inner, ends = 15 * 64 * 64 * 9, 2 * 64 * 9
    assert speed.macs_per_pixel(speed.dncnn(1), 1) == inner + ends


@pytest.mark.parametrize("channels", [1, 3])
def test_the_default_network_needs_at_most_60_thousand_multiply_adds_a_pixel(channels: int) -> None:
    network = build(DeepConfig(channels=channels))
    assert 20e3 < speed.macs_per_pixel(network, channels) < 60e3


def test_the_share_of_nelu_is_a_share() -> None:
    network = build(DeepConfig(widths=(8, 8), blocks=(1, 1)))
    assert 0 < speed.nelu_share(network, side=64, rounds=1) < 1


def test_the_peer_in_tiles_is_the_peer() -> None:
    network = speed.dncnn(1)
    pixels = picture(0.01, 1)
    with torch.inference_mode():
        whole = network(speed.to_tensor(pixels)[None])[0]
    torch.testing.assert_close(speed.in_tiles(network, 17, 2**13)(pixels), whole)


@torch.inference_mode()
def test_strided_convolutions_are_the_network_of_one_grid() -> None:
    network = build(PaperConfig(filters=20, kernel=5, stride=3, signed=True, pass_through=True))
    assert isinstance(network, PaperAutoencoder)
    image = torch.rand(1, 1, 32, 41)
    expected = network.denoise_strided(image)
    torch.testing.assert_close(speed.strided_convolutions(network)(image), expected)


def test_the_parts_of_a_training_step_add_up() -> None:
    rows = training.measure(DeepConfig(widths=(4,), blocks=(0,)), steps=1)
    assert [row["precision"] for row in rows] == ["float32", "bfloat16"]
    for row in rows:
        assert row["forward"] + row["backward"] + row["optimizer"] == pytest.approx(1)


def test_scaling_reports_time_and_memory(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scaling", "--sizes", "0.01", "--json"])
    scaling.main()
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    assert row["time per Mpx"] == 1
    assert 50 < row["peak, MiB"] < 5000


@pytest.mark.filterwarnings("ignore")  # of numba's and scikit-learn's own making
def test_all_solvers_of_the_square_root_lasso_find_the_optimum() -> None:
    pytest.importorskip("skglm")
    rows = sqrt_lasso.measure(30, 60, 0.3, rounds=1)
    assert [row.method for row in rows] == ["sqrt_lasso", "cvxpy (Clarabel)", "skglm"]
    assert rows[0].time_ratio == 1
    assert rows[0].gap < 1e-9
    assert all(row.gap < 1e-5 for row in rows)
