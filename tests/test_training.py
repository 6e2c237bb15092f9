"""Training: exact resume, the same result on several processes, honest stops."""

import itertools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from nelu_cli import checkpoints, cli
from nelu_cli.data.patches import Batch
from nelu_cli.errors import DatasetError, TrainingError
from nelu_cli.networks import Config, DeepConfig, PaperConfig, ResidualBlock
from nelu_cli.networks.symmetry import Symmetry
from nelu_cli.operators import AcceleratedNeLU
from nelu_cli.training import Event, Loss, TrainConfig, load_run, train
from nelu_cli.training import loop as training
from nelu_cli.training import run as training_run
from nelu_cli.training.optimizers import OptimizerName

TINY_DEEP = DeepConfig(widths=(4, 4), blocks=(1, 1), window=3)
TINY_PAPER = PaperConfig(filters=8, kernel=5, stride=4)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def config(pictures: Path) -> TrainConfig:
    return TrainConfig(
        data=(str(pictures),),
        hold_out=4,
        sigma255=(0, 60),
        steps=16,
        minutes=None,
        batch=2,
        patch=16,
        final_patch=32,
        warm_up=2,
        validate_every=4,
        validation_sigmas=(25,),
    )


def weights(out: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return checkpoints.load(out / f"{name}.safetensors").network.state_dict()


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first | second)


def interrupt_at(step: int) -> Callable[[Event], None]:
    def stop(event: Event) -> None:
        if event.step >= step:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("network", [TINY_DEEP, TINY_PAPER], ids=["deep", "paper"])
@pytest.mark.parametrize("step", [4, 12])  # before and within the cooldown
def test_interrupted_and_resumed_equals_uninterrupted(
    config: TrainConfig, network: Config, step: int, tmp_path: Path
) -> None:
    train(config, network, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, network, tmp_path / "parts", on_event=interrupt_at(step), command="begin")
    train(config, network, tmp_path / "parts", resume=True, command="go on")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    record = checkpoints.load(tmp_path / "parts/last.safetensors").record
    assert record.command == "begin && go on"
    logs = [
        [(json.loads(line)["step"], json.loads(line)["loss"]) for line in text.splitlines()][-1][0]
        for text in (
            (tmp_path / "whole/log.jsonl").read_text(),
            (tmp_path / "parts/log.jsonl").read_text(),
        )
    ]
    assert logs[0] == logs[1] == 16


def test_a_longer_run_goes_on_from_before_the_cooldown(config: TrainConfig, tmp_path: Path) -> None:
    """Train 10, then ask for 20: the same as 20 at once, as far as both are flat."""
    config = replace(config, final_patch=16)
    train(replace(config, steps=10), TINY_DEEP, tmp_path / "extended")
    assert (tmp_path / "extended/stable.safetensors").exists()
    train(replace(config, steps=20), TINY_DEEP, tmp_path / "extended", resume=True)
    train(replace(config, steps=20), TINY_DEEP, tmp_path / "at_once")
    assert same(weights(tmp_path / "extended"), weights(tmp_path / "at_once"))
    steps = [
        json.loads(line)["step"]
        for line in (tmp_path / "extended/log.jsonl").read_text().splitlines()
    ]
    assert steps == sorted(set(steps))


def test_a_stop_just_after_a_run_was_made_longer_changes_nothing(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, final_patch=16)
    train(replace(config, steps=10), TINY_DEEP, tmp_path / "extended")
    longer = replace(config, steps=20)
    with monkeypatch.context() as patch:
        patch.setattr(training, "_loop", Mock(side_effect=OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            train(longer, TINY_DEEP, tmp_path / "extended", resume=True)
    train(longer, TINY_DEEP, tmp_path / "extended", resume=True)
    train(longer, TINY_DEEP, tmp_path / "at_once")
    assert same(weights(tmp_path / "extended"), weights(tmp_path / "at_once"))


def test_minutes_may_follow_steps(config: TrainConfig, tmp_path: Path) -> None:
    train(replace(config, steps=10), TINY_DEEP, tmp_path / "run")
    longer = replace(config, steps=None, minutes=1e6)
    run = training_run.Run(longer, TINY_DEEP, tmp_path / "run", None)
    training_run.go_on(run, replace(config, steps=10))
    assert 0 < run.step < 10  # where the cooldown began


def test_a_longer_run_keeps_the_best_weights(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Mock(side_effect=[{"25": 30.0}, {"25": 31.0}, {"25": 30.2}, {"25": 30.1}])
    monkeypatch.setattr(training_run, "validation_psnr", measured)
    config = replace(config, validate_every=100)
    for steps in (10, 20, 30):
        train(replace(config, steps=steps), TINY_DEEP, tmp_path / "run", resume=steps > 10)
    assert measured.call_count == 3
    record = checkpoints.load(tmp_path / "run/best.safetensors").record
    assert record.validation == {"25": 31.0}


@pytest.mark.parametrize(
    ("sigma255", "levels"),
    [((15, 15), (15,)), ((0, 120), (15, 25, 50)), ((20, 60), (25, 50)), ((30, 32), (31,))],
)
def test_weights_are_chosen_by_levels_that_training_sees(
    config: TrainConfig, sigma255: tuple[float, float], levels: tuple[int, ...]
) -> None:
    config = replace(config, sigma255=sigma255, validation_sigmas=(15, 25, 50))
    assert config.chosen_by == levels


def test_other_levels_do_not_choose_the_weights_of_a_sigma_15_run(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second validation is better on the mean of all levels, the first at 15."""
    measured = Mock(side_effect=[{"15": 30.0, "50": 20.0}, {"15": 29.9, "50": 25.0}])
    monkeypatch.setattr(training_run, "validation_psnr", measured)
    config = replace(
        config, sigma255=(15, 15), validation_sigmas=(15, 50), steps=8, validate_every=4
    )
    train(config, TINY_DEEP, tmp_path / "run")
    record = checkpoints.load(tmp_path / "run/best.safetensors").record
    assert record.validation == {"15": 30.0, "50": 20.0}
    assert record.chosen_by == (15,)


def test_ctrl_c_inside_a_step_waits_for_its_end(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(config, TINY_DEEP, tmp_path / "whole")
    usual, calls = torch.optim.AdamW.step, itertools.count(1)

    def interrupted(self: torch.optim.AdamW) -> None:
        if next(calls) == 6:
            signal.raise_signal(signal.SIGINT)
        usual(self)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config, TINY_DEEP, tmp_path / "parts")
    with open(tmp_path / "parts/log.jsonl", "a") as log:
        log.write('{"step": 6, "los')  # as after a power cut
    train(config, TINY_DEEP, tmp_path / "parts", resume=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    config: TrainConfig, tmp_path: Path
) -> None:
    config = replace(config, steps=4)
    train(config, TINY_DEEP, tmp_path / "a")
    train(config, TINY_DEEP, tmp_path / "b")
    train(replace(config, seed=1), TINY_DEEP, tmp_path / "c")
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_training_learns_to_denoise(config: TrainConfig, tmp_path: Path) -> None:
    config = replace(config, steps=150, sigma255=(25, 25), lr=5e-3, validate_every=50)
    events: list[Event] = []
    train(config, TINY_DEEP, tmp_path / "run", on_event=events.append)
    last = events[-1]
    assert last.validation is not None
    noisy = -20 * math.log10(25 / 255)
    assert last.validation["25"] > noisy + 2
    assert last.progress == 1
    record = checkpoints.load(tmp_path / "run/best.safetensors").record
    assert record.steps == 150
    assert record.sigma == "25"
    assert record.validated_on == "held-out"
    assert record.validation["25"] == max(e.validation["25"] for e in events if e.validation)
    assert (tmp_path / "run/curve.png").stat().st_size > 0


def test_minutes_end_a_run(config: TrainConfig, tmp_path: Path) -> None:
    events: list[Event] = []
    config = replace(config, steps=None, minutes=0.02, validate_every=10**6)
    train(config, TINY_DEEP, tmp_path / "run", on_event=events.append)
    assert events[-1].progress == 1


def test_start_from_takes_over_what_fits(config: TrainConfig, tmp_path: Path) -> None:
    train(replace(config, steps=8), TINY_DEEP, tmp_path / "grey")
    colour = replace(TINY_DEEP, channels=3)
    small = replace(config, steps=1, warm_up=10**9, batch=1)  # a learning rate of nearly 0
    train(small, colour, tmp_path / "colour", start_from=tmp_path / "grey/last.safetensors")
    grey, taken = (
        checkpoints.load(tmp_path / name / "last.safetensors").network
        for name in ("grey", "colour")
    )
    image = torch.rand(1, 1, 24, 32)  # a colour picture without colours is done as a grey one
    expected = grey(image).expand(1, 3, 24, 32)
    torch.testing.assert_close(taken(image.expand(1, 3, 24, 32)), expected, rtol=1e-4, atol=1e-5)
    more = replace(TINY_DEEP, widths=(4, 4, 4), blocks=(1, 1, 1))  # a new scale adds 0 at first
    train(small, more, tmp_path / "more", start_from=tmp_path / "grey/last.safetensors")
    deeper = checkpoints.load(tmp_path / "more/last.safetensors").network
    torch.testing.assert_close(deeper(image), grey(image), rtol=1e-4, atol=1e-5)
    gated = replace(TINY_DEEP, gated=True)  # gains begin at 1
    train(small, gated, tmp_path / "gated", start_from=tmp_path / "grey/last.safetensors")
    same = checkpoints.load(tmp_path / "gated/last.safetensors").network
    torch.testing.assert_close(same(image), grey(image), rtol=1e-4, atol=1e-5)
    with pytest.raises(TrainingError, match="nothing in common"):
        train(small, TINY_PAPER, tmp_path / "x", start_from=tmp_path / "grey/last.safetensors")


def blocks(out: Path) -> dict[str, ResidualBlock]:
    modules = checkpoints.load(out / "last.safetensors").network.named_modules()
    return {name: module for name, module in modules if isinstance(module, ResidualBlock)}


@pytest.mark.parametrize("optimizer", get_args(OptimizerName))
def test_training_keeps_blocks_centred(
    config: TrainConfig, tmp_path: Path, optimizer: OptimizerName
) -> None:
    train(replace(config, optimizer=optimizer), TINY_DEEP, tmp_path)
    assert all(block.is_centred() for block in blocks(tmp_path).values())


def test_training_moves_all_gains(config: TrainConfig, tmp_path: Path) -> None:
    train(config, replace(TINY_DEEP, gated=True), tmp_path)
    parameters = checkpoints.load(tmp_path / "last.safetensors").network.named_parameters()
    gates = [parameter.abs().max() for name, parameter in parameters if "gate" in name]
    assert len(gates) == 2 * sum(TINY_DEEP.blocks) + len(TINY_DEEP.widths) - 1
    assert min(gates) > 0


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_strongest_hidden_channels_remain(
    config: TrainConfig, tmp_path: Path, symmetric: bool
) -> None:
    wide = DeepConfig(widths=(8, 8), blocks=(1, 1), hidden=(24, 8), window=3, symmetric=symmetric)
    train(config, wide, tmp_path / "wide")
    loaded = checkpoints.load(tmp_path / "wide/last.safetensors")
    tensors = loaded.network.state_dict()
    weak = slice(8, 16)
    for side in ("encoder", "decoder"):
        tensors[f"{side}.0.0.second.weight"][:, weak] = 0
    other = tmp_path / "other.safetensors"
    checkpoints.save(other, tensors, wide, loaded.record)
    narrow = replace(wide, hidden=(16, 8))
    train(replace(config, steps=1, lr=1e-9), narrow, tmp_path / "new", start_from=other)
    image = torch.rand(1, 1, 20, 24)  # without those that do nothing, the result is the same
    taken = checkpoints.load(tmp_path / "new/last.safetensors").network(image)
    expected = checkpoints.load(other).network(image)
    torch.testing.assert_close(taken, expected, rtol=1e-4, atol=1e-5)


def test_a_block_that_has_died_begins_afresh(config: TrainConfig, tmp_path: Path) -> None:
    train(config, TINY_DEEP, tmp_path / "old")
    loaded = checkpoints.load(tmp_path / "old/last.safetensors")
    tensors = loaded.network.state_dict()
    tensors["encoder.1.0.first.weight"].zero_()  # never on
    tensors["decoder.1.0.first.weight"].add_(0.01)  # on, but not centred
    other = tmp_path / "other.safetensors"
    checkpoints.save(other, tensors, TINY_DEEP, loaded.record)
    notes: list[str] = []
    still = replace(config, steps=1, lr=1e-9)
    train(still, TINY_DEEP, tmp_path / "new", start_from=other, on_note=notes.append)
    assert notes == [f"blocks hardly ever on in {other} begin afresh: encoder.1.0"]
    new = blocks(tmp_path / "new")
    assert float(new["encoder.1.0"].first.weight.detach().abs().max()) > 0.1
    assert not new["decoder.1.0"].is_centred()  # what was learned stays
    image = torch.rand(1, 1, 20, 24)
    restarted = checkpoints.load(tmp_path / "new/last.safetensors").network
    expected = checkpoints.load(other).network(image)
    torch.testing.assert_close(restarted(image), expected, rtol=1e-4, atol=1e-5)


def test_training_keeps_a_network_symmetric(config: TrainConfig, tmp_path: Path) -> None:
    network = DeepConfig(widths=(8, 8), blocks=(1, 1), symmetric=True)
    train(config, network, tmp_path / "run")
    trained = checkpoints.load(tmp_path / "run/last.safetensors").network
    assert Symmetry(trained).holds(trained.state_dict(), tolerance=1e-6)
    train(config, network, tmp_path / "on", start_from=tmp_path / "run/last.safetensors")
    free = replace(network, symmetric=False)
    train(config, free, tmp_path / "free", start_from=tmp_path / "run/last.safetensors")
    with pytest.raises(TrainingError, match=r"free.*: is not symmetric; leave out --symmetry"):
        train(config, network, tmp_path / "x", start_from=tmp_path / "free/last.safetensors")


@pytest.mark.parametrize("loss", get_args(Loss))
def test_a_loss_falls_with_the_error(loss: Loss) -> None:
    clean = torch.rand(2, 1, 8, 8)
    batch = Batch(clean, clean, torch.tensor([5.0, 50.0]), torch.ones(2))
    far, near = (float(training_run._loss(loss, clean + error, batch)) for error in (0.1, 0.01))
    assert near < far


@pytest.mark.parametrize("loss", ["scaled-mse", "rmse"])
def test_reduced_contrast_counts_as_the_noise_it_stands_for(loss: Loss) -> None:
    clean, error = torch.rand(2, 2, 1, 8, 8)
    sigma, contrast = torch.tensor([15.0, 30.0]), torch.tensor([0.5, 0.25])
    factor = contrast[:, None, None, None]
    full = Batch(clean, clean, sigma / contrast, torch.ones(2))
    reduced = Batch(clean * factor, clean * factor, sigma, contrast)
    torch.testing.assert_close(
        training_run._loss(loss, (clean + error) * factor, reduced),
        training_run._loss(loss, clean + error, full),
    )


@pytest.mark.parametrize("bad", [math.nan, 1e9])
def test_a_diverging_loss_stops_and_keeps_the_last_good_state(
    config: TrainConfig, tmp_path: Path, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config, TINY_DEEP, tmp_path / "run", on_event=interrupt_at(8))
    good = weights(tmp_path / "run")
    honest = training_run._loss
    monkeypatch.setattr(training, "PATIENCE", 2)
    calls = iter([False, True, True, True])
    monkeypatch.setattr(
        training_run, "_loss", lambda *a: honest(*a) * (bad if next(calls) else 1.0)
    )
    with pytest.raises(
        TrainingError, match=r"loss .* step \d+.*; the last good state is in .*--lr"
    ):
        train(config, TINY_DEEP, tmp_path / "run", resume=True)
    assert same(good, weights(tmp_path / "run"))


def test_a_step_without_a_finite_gradient_moves_nothing_and_is_counted(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = training_run._loss
    bad: set[int] = set()
    calls = itertools.count()

    def loss(kind: Loss, estimate: torch.Tensor, batch: Batch) -> torch.Tensor:
        cliff = (0 * estimate).sum().sqrt() if next(calls) in bad else 0.0
        return honest(kind, estimate, batch) + cliff

    monkeypatch.setattr(training_run, "_loss", loss)
    run = training_run.Run(config, TINY_DEEP, tmp_path, None)
    batch = run.training.batch(0, range(2), 16)
    bad.add(1)
    run.update(batch, 0.0)
    before = {name: value.clone() for name, value in run.network.state_dict().items()}
    run.update(batch, 0.0)
    assert (run.step, run.void) == (2, 1)
    assert same(before, run.network.state_dict())
    run.update(batch, 0.0)
    assert not same(before, run.network.state_dict())

    events: list[Event] = []
    bad |= {5, 8}
    with pytest.raises(KeyboardInterrupt):
        train(config, TINY_DEEP, tmp_path / "run", on_event=interrupt_at(4))
    train(config, TINY_DEEP, tmp_path / "run", resume=True, on_event=events.append)
    assert [event.void for event in events] == [2, 2, 2]
    bad |= set(range(100))
    with pytest.raises(TrainingError, match=r"gradient was not finite at step 10, the last of 10 "):
        train(config, TINY_DEEP, tmp_path / "lost")


def test_unreadable_pictures_are_counted_and_skipped(
    config: TrainConfig, pictures: Path, tmp_path: Path
) -> None:
    for name in ("0a.png", "1.png", "4.png"):  # every fifth is held out: 0 and 4
        (pictures / name).write_bytes(b"not a picture")
    notes: list[str] = []
    train(replace(config, steps=1, hold_out=5), TINY_DEEP, tmp_path / "run", on_note=notes.append)
    assert notes == ["3 pictures could not be read and are left out"]


def test_errors_say_what_to_do(config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no run to resume here"):
        load_run(tmp_path)
    with pytest.raises(DatasetError, match="no such dataset"):
        train(replace(config, data=("missing",)), TINY_DEEP, tmp_path / "run")
    with pytest.raises(TrainingError, match="nothing to validate on"):
        train(replace(config, hold_out=0), TINY_DEEP, tmp_path / "run")
    wrong_settings: list[dict[str, Any]] = [
        {"steps": None, "minutes": None},
        {"steps": -1},
        {"sigma255": (20.0, 10.0)},
        {"contrast": (0.0, 1.0)},
        {"validate_every": 0},
        {"hold_out": -1},
        {"lr": math.nan},
        {"final_patch": 8},
        {"loss": "hinge"},
        {"clip": -1.0},
        {"ema": 1.0},
    ]
    for wrong in wrong_settings:
        with pytest.raises(TrainingError):
            replace(config, **wrong)
    train(replace(config, steps=1), TINY_DEEP, tmp_path / "run")
    (tmp_path / "run/state.safetensors").write_bytes(b"cut off")
    with pytest.raises(TrainingError, match="cannot be resumed"):
        train(replace(config, steps=1), TINY_DEEP, tmp_path / "run", resume=True)


def test_a_setting_that_is_none_of_the_choices_is_told_the_choices() -> None:
    wrong: Any = "hinge"
    message = "loss 'hinge' is none of scaled-mse, rmse, mse, l1, log-mse"
    with pytest.raises(TrainingError, match=f"^{message}$"):
        TrainConfig(loss=wrong)


def test_the_learning_rate_warms_up_stays_and_falls() -> None:
    config = TrainConfig(steps=1000, minutes=None, warm_up=10, cooldown=0.4, lr=1.0)
    rates = [config.learning_rate(step, step / 1000) for step in range(1001)]
    assert rates[:10] == pytest.approx(np.arange(1, 11) / 10)
    assert rates[10:600] == [1.0] * 590
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(0)
    paper = TrainConfig(steps=300, minutes=None, warm_up=0, schedule="paper", lr=2e-2)
    epochs = [paper.learning_rate(epoch, epoch / 300) for epoch in (0, 49, 50, 299)]
    assert epochs == pytest.approx([2e-2, 2e-2, 1.4e-2, 2e-2 * 0.7**5])


# ---------------------------------------------------------------- the command


def command(pictures: Path, out: Path, *more: str) -> list[str]:
    return [
        *("train", "--network", "deep", "--widths", "8,8", "--blocks", "1,1", "--window", "3"),
        *("--data", str(pictures), "--hold-out", "4", "--patch", "16", "--batch", "4"),
        *("--sigma", "0-60", "--out", str(out), "--threads", "1", *more),
    ]


CHILD = """
import gc, pathlib, sys
from nelu_cli import cli

gc.disable()  # a group must end without luck
status = cli.run(sys.argv[1:])
names = [task.read_text().strip() for task in pathlib.Path("/proc/self/task").glob("*/comm")]
assert not [name for name in names if "gloo" in name], names  # could abort the process as it ends
sys.exit(status)
"""


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("bfloat16", 2e-3)])
def test_two_processes_equal_one(
    pictures: Path, tmp_path: Path, precision: str, tolerance: float
) -> None:
    length = ("--steps", "6", "--validate-every", "6", "--precision", precision)
    assert cli.run(command(pictures, tmp_path / "one", *length, "--quiet")) == 0
    arguments = command(pictures, tmp_path / "two", *length, "--quiet")
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    with socket.socket() as free:  # a port that nobody else has
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ran = subprocess.run(
        [*launcher, "--master-port", str(port), str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,  # on a busy machine
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stdout
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=100 * tolerance, atol=tolerance)
    logs = [(tmp_path / run / "log.jsonl").read_text().splitlines() for run in ("one", "two")]
    assert len(logs[0]) == len(logs[1]) == 1


def test_ctrl_c_saves_and_says_how_to_go_on(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = command(pictures, out, "--minutes", "10", "--validate-every", "20")
    process = subprocess.Popen(
        [sys.executable, "-m", "nelu_cli", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "best.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == (
        f"nelu: stopped and saved; go on with: nelu train --resume --out {out}"
    )
    assert not list(out.glob(".*"))
    steps = checkpoints.load(out / "last.safetensors").record.steps
    assert cli.run(["train", "--resume", "--out", str(out), "--minutes", "0.001", "--quiet"]) == 0
    assert checkpoints.load(out / "last.safetensors").record.steps >= steps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "wide"], "there is no network 'wide' here; there are paper, deep"),
        (["--steps", "1", "--minutes", "1"], "not both"),
        (["--sigma", "loud"], "--sigma loud: give a number such as 15, or a range such as 0-120"),
        (["--network", "deep", "--widths", "a,b"], "whole numbers separated by commas"),
        (
            ["--network", "deep", "--recipe", "paper"],
            "--recipe paper is not one of --network deep, which has nelu",
        ),
        (["--widths", "8,8"], "--widths is not an option of --network paper; leave it out"),
        (["--symmetry"], "--symmetry is not an option of --network paper; leave it out"),
        (
            ["--network", "deep", "--decode"],
            "--pass-through/--decode is not an option of --network deep; leave it out",
        ),
        (
            ["--network", "deep", "--iterations", "20"],
            "--iterations is not an option of --network deep; leave it out",
        ),
        (["--iterations", "0"], "filters, kernel and the steps of Algorithm 2 must be"),
        (["--iterations", "20"], "--iterations is for --activation nelu-unrolled"),
        (["--network", "deep", "--window", "4"], "the window must be odd"),
        (["--network", "deep", "--hidden", "8,8"], "widths and hidden must be as many"),
        (["--channels", "2"], "channels must be 1 or 3, not 2"),
        (["--device", "tpu"], "'tpu' is not one of 'auto', 'cpu', 'cuda', 'mps'"),
        (["--activation", "tanh"], "the activation is one of nelu, nelu-unrolled, relu"),
    ],
)
def test_wrong_options_exit_with_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", "--out", str(tmp_path / "run"), *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "the length of a run must be positive: --steps or --minutes"),
        (["--minutes", "0"], "the length of a run must be positive: --steps or --minutes"),
        (["--minutes", "-1"], "the length of a run must be positive: --steps or --minutes"),
        (["--minutes", "inf"], "the length of a run must be positive: --steps or --minutes"),
        (["--steps", "1", "--seed", "-5"], "seed -5: a whole number from 0 up"),
    ],
)
def test_impossible_lengths_and_seeds_are_refused_before_anything_is_written(
    arguments: list[str],
    message: str,
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    assert cli.run(["train", "--data", str(pictures), "--out", str(out), *arguments]) == 1
    assert capsys.readouterr().err == f"nelu: {message}\n"
    assert not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there_is_refused(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.run(command(pictures, out, "--steps", "1", "--device", "cuda")) == 2
    assert "device cuda is not available on this machine" in capsys.readouterr().err


def test_weights_and_batches_go_to_the_device(config: TrainConfig, tmp_path: Path) -> None:
    run = training_run.Run(config, TINY_DEEP, tmp_path, None, torch.device("meta"))
    assert {p.device.type for p in run.network.parameters()} == {"meta"}
    assert {p.device.type for p in run.averaged.parameters()} == {"meta"}
    batch = run.training.batch(0, range(2), 16).to(run.device)
    parts = (batch.clean, batch.noisy, batch.sigma255, batch.contrast)
    assert {part.device.type for part in parts} == {"meta"}


def test_colour_weights_begin_a_grey_network_as_they_were(
    config: TrainConfig, tmp_path: Path
) -> None:
    colour = replace(TINY_DEEP, channels=3)
    train(config, colour, tmp_path / "colour")
    other = tmp_path / "colour/last.safetensors"
    still = replace(config, steps=1, lr=1e-9)
    train(still, TINY_DEEP, tmp_path / "grey", start_from=other)
    grey = torch.rand(1, 1, 20, 24)
    found = checkpoints.load(tmp_path / "grey/last.safetensors").network(grey)
    expected = checkpoints.load(other).network(grey.expand(1, 3, 20, 24))
    torch.testing.assert_close(found, expected.mean(1, keepdim=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("options", "hidden"), [((), ()), (("--hidden", "16,8"), (16, 8))])
def test_hidden_channels_are_as_wide_as_the_rest_unless_given(
    pictures: Path, tmp_path: Path, options: tuple[str, ...], hidden: tuple[int, ...]
) -> None:
    out = tmp_path / "run"
    assert cli.run(command(pictures, out, "--steps", "1", "--quiet", *options)) == 0
    config = checkpoints.load(out / "last.safetensors").network.config
    assert isinstance(config, DeepConfig)
    assert config.hidden == hidden


def test_a_run_is_neither_overwritten_nor_changed(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.run(command(pictures, out, "--steps", "1", "--quiet")) == 0
    before = (out / "last.safetensors").read_bytes()
    assert cli.run(command(pictures, out, "--steps", "1")) == 2
    assert "holds a run already; add --resume, or choose another --out" in capsys.readouterr().err
    assert cli.run(["train", "--resume", "--out", str(out), "--lr", "1"]) == 2
    assert "--lr: a resumed run keeps its settings" in capsys.readouterr().err
    assert (out / "last.safetensors").read_bytes() == before
    assert cli.run(["train", "--resume", "--out", str(tmp_path / "none")]) == 1
    assert "no run to resume here" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["nelu", "paper"])
def test_sigma_15_trains_the_papers_network(pictures: Path, tmp_path: Path, recipe: str) -> None:
    out = tmp_path / "run"
    arguments = ["--sigma", "15", "--data", str(pictures), "--steps", "1", "--out", str(out)]
    small = ["--patch", "16", "--batch", "1", "--quiet", "--recipe", recipe]
    assert cli.run(["train", *arguments, *small]) == 0
    checkpoint = checkpoints.load(out / "best.safetensors")
    ours = recipe == "nelu"
    stride = 2 if ours else 1
    expected = PaperConfig(signed=ours, pass_through=ours, training_stride=stride)
    assert checkpoint.network.config == expected
    assert checkpoint.record.sigma == "15"
    assert ("Waterloo" in checkpoint.record.note) == (not ours)
    assert checkpoint.record.command.startswith("nelu train --sigma 15 --data ")


def test_algorithm_2_has_as_many_steps_as_it_is_given(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["--data", str(pictures), "--steps", "1", "--patch", "16", "--batch", "1"]
    algorithm = ["--activation", "nelu-unrolled", "--iterations", "3"]
    assert cli.run(["train", *arguments, *algorithm, "--quiet", "--out", str(out)]) == 0
    network = checkpoints.load(out / "best.safetensors").network
    assert [m.steps for m in network.modules() if isinstance(m, AcceleratedNeLU)] == [3]


def test_the_papers_recipe_is_the_papers(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["--recipe", "paper", "--data", str(pictures), "--steps", "1", "--out", str(out)]
    assert cli.run(["train", *arguments, "--quiet"]) == 0
    config, network = load_run(out)
    assert isinstance(network, PaperConfig)
    assert (network.filters, network.kernel, network.stride) == (175, 11, 8)
    assert network.training_stride == 1  # all 64 shifts
    assert (network.signed, network.pass_through) == (False, False)
    assert (config.optimizer, config.lr, config.epsilon) == ("adamw", 2e-2, 1e-3)
    assert (config.beta2, config.weight_decay) == (0.999, 0.01)  # AdamW's usual ones
    assert (config.clip, config.ema, config.turn) == (0, 0, False)
    assert (config.batch, config.patch, config.final_patch) == (1, 128, 128)
    assert (config.loss, config.sigma255, config.smallest_scale) == ("mse", (15, 15), 1)
    rates = [config.learning_rate(1000, progress) for progress in (0.0, 0.17, 0.34, 0.99)]
    np.testing.assert_allclose(rates, [2e-2, 1.4e-2, 0.98e-2, 2e-2 * 0.7**5])


def test_without_averaging_or_clipping_the_weights_are_those_of_plain_adamw(
    config: TrainConfig, tmp_path: Path
) -> None:
    config = replace(
        config, optimizer="adamw", ema=0.0, clip=0.0, beta2=0.9, weight_decay=0.1, steps=1
    )
    run = training_run.Run(config, TINY_PAPER, tmp_path, None)
    mirror = training_run.Run(config, TINY_PAPER, tmp_path, None)
    batch = run.training.batch(0, range(2), 16)
    run.update(batch, 0.0)
    rate = config.learning_rate(0, 0.0)
    plain = torch.optim.AdamW(
        mirror.network.parameters(), rate, betas=(0.9, 0.9), eps=1e-8, weight_decay=0.1
    )
    clean = mirror.network.denoise(batch.noisy)
    training_run._loss(config.loss, clean, batch).backward()  # type: ignore[no-untyped-call]
    plain.step()
    for name, parameter in run.averaged.named_parameters():
        torch.testing.assert_close(parameter, mirror.network.get_parameter(name).detach())


def test_without_data_it_trains_on_samples_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NELU_DATA", raising=False)
    monkeypatch.setenv("NELU_CACHE", str(tmp_path))
    out = tmp_path / "run"
    tiny = ("--network", "deep", "--widths", "8", "--blocks", "0", "--steps", "1")
    assert cli.run(["train", *tiny, "--out", str(out)]) == 0
    assert "training on a few sample pictures" in capsys.readouterr().err
    assert checkpoints.load(out / "last.safetensors").record.data == ("samples",)


@pytest.mark.parametrize("wanted", ["auto", "float32", "bfloat16"])
def test_the_precision_is_kept_with_the_run(
    wanted: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nelu_cli.runtime.precision.bfloat16_pays", lambda device: True)
    arguments = ("--steps", "1", "--precision", wanted, "--quiet")
    assert cli.run(command(pictures, tmp_path / "run", *arguments)) == 0
    expected = "float32" if wanted == "float32" else "bfloat16"
    assert load_run(tmp_path / "run")[0].precision == expected


def test_a_network_without_bfloat16_says_so(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--network", "paper", "--precision", "bfloat16", "--data", str(pictures)]
    assert cli.run([*arguments, "--out", str(tmp_path / "run")]) == 2
    said = "nelu: --precision bfloat16: a paper network computes in float32\n"
    assert capsys.readouterr().err == said


def test_bfloat16_resumes_exactly(config: TrainConfig, tmp_path: Path) -> None:
    config = replace(config, precision="bfloat16")
    with pytest.raises(KeyboardInterrupt):
        train(config, TINY_DEEP, tmp_path / "run", on_event=interrupt_at(8))
    train(config, TINY_DEEP, tmp_path / "run", resume=True)
    train(config, TINY_DEEP, tmp_path / "at_once")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "at_once"))
