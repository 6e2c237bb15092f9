"""The benchmarks count right and run, at the smallest size."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks import cluster, held_out, kills, mutations, scaling, speed, sqrt_lasso, training
from benchmarks.common import picture
from nelu_cli.cluster import blocks
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


def test_held_out_pictures_are_measured_set_by_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(11):
        colourful = number == 0
        pixels = picture(0.08, 3) // (1, 3, 1) if colourful else picture(0.08, 3)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{number:02}.png")
    cuts = held_out.held_out([str(tmp_path)], 3)
    middles, strongest, finest = cuts.values()
    assert [cut.name for cut in middles] == ["00.png", "10.png"]
    assert [cut.name for cut in strongest] == ["00.png, 0, 0"]  # of 4 patches
    assert [cut.name[:6] for cut in finest] == ["10.png"]  # where noise is not divided by 3
    assert middles[0].pixels.shape == (245, 256, 3)
    line = f"held_out --model deep-color --dataset {tmp_path} --sigmas 0,25 --json"
    monkeypatch.setattr(sys, "argv", line.split())
    held_out.main()
    rows = json.loads(capfd.readouterr().out)["rows"]
    assert [row["pictures"] for row in rows] == [*cuts]
    assert all(row["0"] > row["25"] > 20.2 for row in rows)


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


def test_the_harness_of_mutations_finds_nothing_wrong(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["mutations", "--count", "40", "--denoise", "0", "--json"]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit) as ending:
        mutations.main()
    out, err = capfd.readouterr()
    assert ending.value.code == 0, err
    total = json.loads(out)["rows"][-1]
    assert (total["kind"], total["cases"]) == ("all", 40)
    assert 0 < total["accepted"] < 40


def test_the_harness_of_mutations_sees_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A case is wrong if it was torn, changed its input, said nothing of a loss, or crashed."""
    source, target = tmp_path / "in.png", tmp_path / "out.png"
    fine = {"accepted": True, "message": "", "traceback": False, "seconds": 1.0, "peak": 9}
    fine |= {"digest": "a", "notes": 0}

    def failures(answer: dict[str, Any], whole: str = "") -> list[str]:
        outcome = mutations.Outcome("png", 0)
        mutations.judge(outcome, answer, source, target, b"input", whole)
        return outcome.failures

    source.write_bytes(b"input")
    target.write_bytes(mutations.SEEDS["png-grey"]())
    assert failures(fine) == []
    assert failures(fine, whole="b") == ["silent loss"]
    assert failures(fine | {"notes": 1}, whole="b") == []
    assert failures(fine | {"traceback": True}) == ["traceback"]
    assert failures(fine | {"accepted": False}) == ["torn file"]
    target.write_bytes(b"half")
    assert failures(fine) == ["torn file"]
    source.write_bytes(b"changed")
    assert failures(fine) == ["lost original", "torn file"]


def test_the_peer_runs_in_bfloat16_too() -> None:
    pixels = picture(0.01, 1)
    half = speed.dncnn(1, torch.bfloat16)
    result = speed.in_tiles(half, 17, 2**13, torch.bfloat16)(pixels)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float32
    assert result.isfinite().all()


def test_the_harness_of_kills_sees_what_is_wrong(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    originals, results = {"a.png": b"old", "b.png": b"two"}, {"a.png": b"new", "b.png": b"2"}
    for name, content in originals.items():
        (source / name).write_bytes(content)
    assert kills.examine(source, target, originals, results) == []
    (target / "a.png").write_bytes(b"new")
    assert kills.examine(source, target, originals, results) == []
    (target / "a.png").write_bytes(b"ne")
    (source / "b.png").unlink()
    found = kills.examine(source, target, originals, results)
    assert found == ["lost originals", "torn files"]
    assert kills.examine(source, source, originals, results) == ["lost originals"]
    (source / "a.png").write_bytes(b"new")
    (source / "b.png").write_bytes(b"two")
    assert kills.examine(source, source, originals, results) == []


def test_the_harness_of_kills_finds_nothing_wrong() -> None:
    """In a process of its own: a copy of one with many threads may wait for ever."""
    command = [sys.executable, "-m", "benchmarks.kills", "--count", "6", "--json"]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    row = json.loads(ran.stdout)["rows"][0]
    assert [row[name] for name in ("SIGKILL", "SIGTERM", "SIGINT")] == [2, 2, 2]


def test_what_machines_need_grows_with_their_number() -> None:
    one, many = (cluster.estimate(machines, 32, 1e6, halo=64) for machines in (1, 1000))
    assert many.pixels_per_second == 1000 * one.pixels_per_second == 32e9
    side = blocks.SIDE
    assert many.tasks_per_second == pytest.approx(32e9 / side**2)
    assert many.bytes_per_second == pytest.approx(
        32e9 * cluster.bytes_per_pixel(side, halo=64, itemsize=2)
    )
    assert cluster.bytes_per_pixel(2048, halo=0, itemsize=2) == 2 * 3.25


@pytest.mark.filterwarnings("default")  # zarr's own affairs
def test_a_large_image_is_measured_beside_a_tiff(tmp_path: Path) -> None:
    rows = cluster.large_image(0.00005, tmp_path, side=100, beside=1.0)
    found = {row["what"]: row["value"] for row in rows}
    assert found["large image, gigabytes"] == pytest.approx(0.00004)  # 2 planes of 100×100
    assert found["large image, peak memory in MiB"] > 1
    assert found["OME-Zarr, in times of the TIFF"] > 0
    assert (tmp_path / "out.ome.zarr" / "zarr.json").is_file()
    assert (tmp_path / "out.tif").is_file()


def test_a_disk_that_is_too_small_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"GB free, an image of 1e\+09 GB needs .*; name another"):
        cluster.large_image(1e9, tmp_path, side=4096, beside=1.0)
    assert not list(tmp_path.iterdir())
