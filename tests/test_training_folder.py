"""The folder of a training run: killed at any time, damaged in any way, or on a full disk."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from conftest import Nelu
from PIL import Image
from safetensors import safe_open

from nelu_cli import checkpoints
from nelu_cli.atomic import held
from nelu_cli.errors import TrainingError
from nelu_cli.networks import DeepConfig
from nelu_cli.training import Event, RunStopped, TrainConfig, load_run, train
from nelu_cli.training import loop as training
from nelu_cli.training.folder import read_log
from nelu_cli.training.run import Run

TINY = DeepConfig(widths=(8, 8), blocks=(1, 1), window=3)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def config(pictures: Path) -> TrainConfig:
    return TrainConfig(
        data=(str(pictures),),
        hold_out=4,
        sigma255=(0, 60),
        steps=8,
        minutes=None,
        batch=2,
        patch=16,
        final_patch=16,
        warm_up=2,
        validate_every=8,
        validation_sigmas=(25,),
    )


@pytest.fixture
def run(config: TrainConfig, tmp_path: Path) -> Path:
    """A whole run."""
    train(config, TINY, tmp_path / "run", command="begin")
    return tmp_path / "run"


def same(first: Path, second: Path) -> bool:
    a, b = (
        checkpoints.load(out / "last.safetensors").network.state_dict() for out in (first, second)
    )
    return all(torch.equal(a[name], b[name]) for name in a | b)


class Killed(Exception):
    """Stands for a kill: nothing is saved after it."""


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    usual = Run.update

    def update(self: Run, *arguments: Any) -> float:
        if self.step == step:
            raise Killed
        return usual(self, *arguments)

    monkeypatch.setattr(Run, "update", update)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("step", [1, 3, 5, 7])
def test_saving_changes_nothing(
    config: TrainConfig,
    symmetric: bool,
    step: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saved after every step and interrupted: the same weights as in one go, 8 of 8."""
    network = replace(TINY, symmetric=symmetric)
    train(config, network, tmp_path / "whole")
    usual = Run.update

    def update(self: Run, *arguments: Any) -> float:
        if self.step == step:
            raise KeyboardInterrupt
        return usual(self, *arguments)

    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "update", update)
        with pytest.raises(RunStopped):
            train(config, network, tmp_path / "parts")
    train(config, network, tmp_path / "parts", resume=True)
    assert same(tmp_path / "whole", tmp_path / "parts")


def test_a_run_killed_before_its_first_save_can_be_resumed(
    config: TrainConfig, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    with monkeypatch.context() as patch:
        killed_at(patch, 5)
        with pytest.raises(Killed):
            train(config, TINY, killed, command="begin")
    assert not (killed / "last.safetensors").exists()
    (killed / ".state.safetensors.0123456789abcdef.tmp").write_bytes(b"of a kill")
    os.utime(killed / ".state.safetensors.0123456789abcdef.tmp", (0, 0))
    train(config, TINY, killed, resume=True, command="go on")
    assert same(run, killed)
    assert checkpoints.load(killed / "last.safetensors").record.command == "begin && go on"
    assert not list(killed.glob(".*"))


def test_a_real_kill_before_the_first_save(pictures: Path, tmp_path: Path, nelu: Nelu) -> None:
    out = tmp_path / "run"
    arguments = (
        "train",
        "--network",
        "deep",
        "--widths",
        "8,8",
        "--blocks",
        "1,1",
        "--patch",
        "16",
    )
    more = ("--window", "3", "--data", str(pictures), "--hold-out", "4", "--out", str(out))
    process = subprocess.Popen(
        [sys.executable, "-m", "nelu_cli", *arguments, *more, "--minutes", "9", "--threads", "1"]
    )
    while not (out / "config.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert nelu("train", "--resume", "--out", out, "--minutes", "0.001", "-q") == (0, "", "")


def test_two_trainings_of_one_run_are_one_too_many(
    run: Path, config: TrainConfig, nelu: Nelu
) -> None:
    """The second would go on from what the first has saved, and both would save over each other."""
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with held(run):
        status, _, err = nelu("train", "--resume", "--out", str(run), "--steps", "12")
        with pytest.raises(TrainingError, match="another nelu train is at work"):
            train(config, TINY, run)
    assert status == 1
    assert "another nelu train is at work on this run; stop it first" in " ".join(err.split())
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    train(replace(config, steps=12), TINY, run, resume=True)  # and now nothing is in the way


@pytest.mark.parametrize("missing", ["last", "best", "stable"])
def test_weights_that_are_missing_do_not_block(
    missing: str, config: TrainConfig, tmp_path: Path
) -> None:
    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(RunStopped):
        train(replace(config, validate_every=4), TINY, out, on_event=stop, command="begin")
    (out / f"{missing}.safetensors").unlink(missing_ok=True)
    train(config, TINY, out, resume=True, command="go on")
    assert checkpoints.load(out / "last.safetensors").record.command == "begin && go on"


def test_stopped_in_its_last_validation_a_run_still_gets_its_best_weights(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"

    def stop(*arguments: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nelu_cli.training.run.validation_psnr", stop)
        with pytest.raises(RunStopped):
            train(config, TINY, out)
    assert not (out / "best.safetensors").exists()
    train(config, TINY, out, resume=True)
    assert checkpoints.load(out / "best.safetensors").record.steps == 8


def options(pictures: Path, out: Path) -> list[str | Path]:
    return [
        *("train", "--network", "deep", "--widths", "8,8", "--blocks", "1,1", "--patch", "16"),
        *("--window", "3", "--data", pictures, "--hold-out", "4", "--steps", "4", "--out", out),
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_data_load_nothing_is_said_to_be_saved(
    number: signal.Signals,
    pictures: Path,
    tmp_path: Path,
    nelu: Nelu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nelu_cli.stopping import Stopped

    def stop(*arguments: object) -> None:
        raise Stopped(number)

    monkeypatch.setattr("nelu_cli.training.run.load_pictures", stop)
    out = tmp_path / "run"
    assert nelu(*options(pictures, out)) == (128 + number, "", "nelu: interrupted\n")
    assert not out.exists()
    monkeypatch.undo()
    monkeypatch.setattr(Run, "update", stop)
    status, _, said = nelu(*options(pictures, out))
    assert status == 128 + number
    assert said == f"nelu: stopped and saved; go on with: nelu train --resume --out {out}\n"


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_full_disk_names_the_file(
    pictures: Path, run: Path, tmp_path: Path, nelu: Nelu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files does to ours what a full disk does, at a place of our choice."""
    sizes = {path.name: path.stat().st_size for path in run.iterdir()}
    state = (run / "state.safetensors").read_bytes()
    out = tmp_path / "new"
    with no_file_larger_than(10):
        status, _, said = nelu(*options(pictures, out))
    assert (status, said) == (
        1,
        f"nelu: {out}/state.safetensors: cannot be written (File too large)\n",
    )
    assert sizes["log.jsonl"] < sizes["config.json"] < sizes["last.safetensors"]
    with no_file_larger_than(sizes["state.safetensors"] // 2):
        status, _, said = nelu("train", "--resume", "--out", run, "--steps", "9")
    name = f"{run}/state.safetensors"
    assert (status, said) == (1, f"nelu: {name}: cannot be written (File too large)\n")
    assert (run / "state.safetensors").read_bytes() == state
    assert sorted(path.name for path in run.iterdir()) == sorted(sizes)
    monkeypatch.setattr(Run, "save_state", lambda *arguments: None)
    with no_file_larger_than(sizes["config.json"] - 1):
        status, _, said = nelu("train", "--resume", "--out", run, "--steps", "9")
    assert (status, said) == (1, f"nelu: {run}/config.json: File too large\n")


GOOD_LINE = (
    '{"step": 1, "progress": 0.1, "loss": 0.5, "lr": 1e-3, "megapixels_per_second": 1.0, '
    '"data_share": 0.0, "seconds": 1.0, "seconds_left": 9.0, "validation": null}'
)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\0\0\0\0", b"\xff\xfe}", b"{}", b"[]", b"3", b"null", b'{"step": 1}', b"}"),
        *(b'{"step": 2, "los', b"[" * 100_000, GOOD_LINE.replace("0.5", '"low"').encode()),
        *(GOOD_LINE.replace("null", "[]").encode(), GOOD_LINE.replace("1,", "1e400,", 1).encode()),
        GOOD_LINE.replace("}", ', "more": 1}').encode(),
    ],
)
def test_a_bad_line_in_the_log_never_blocks(line: bytes, config: TrainConfig, run: Path) -> None:
    log = run / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(GOOD_LINE.encode() + b"\n" + line + b"\n" + whole + line)
    train(replace(config, steps=12), TINY, run, resume=True)
    assert [event.step for event in read_log(run)][:1] == [1]
    assert [event.step for event in read_log(run)][-1:] == [12]
    assert all(json.loads(each) for each in log.read_text().splitlines())


def changed_config(run: Path, part: str, **fields: object) -> None:
    content = json.loads((run / "config.json").read_text())
    content[part] |= fields
    (run / "config.json").write_text(json.dumps(content))


def written_config(content: bytes) -> Callable[[Path], object]:
    return lambda run: (run / "config.json").write_bytes(content)


def cut_config(run: Path) -> None:
    content = (run / "config.json").read_bytes()
    (run / "config.json").write_bytes(content[: len(content) // 2])


def without(part: str) -> Callable[[Path], None]:
    def remove(run: Path) -> None:
        content = json.loads((run / "config.json").read_text())
        del content[part]
        (run / "config.json").write_text(json.dumps(content))

    return remove


DAMAGED_CONFIGS: dict[str, Callable[[Path], object]] = {
    "empty": written_config(b""),
    "cut": cut_config,
    "zeros": written_config(bytes(500)),
    "no text": written_config(b"\xff\xfe\x00{"),
    "a list": written_config(b"[]"),
    "a number": written_config(b"7"),
    "null": written_config(b"null"),
    "deep": written_config(b"[" * 100_000),
    "parts are lists": written_config(b'{"network": [], "training": []}'),
    "no training": without("training"),
    "no network": without("network"),
    "no such family": lambda run: changed_config(run, "network", family="wide"),
    "family a number": lambda run: changed_config(run, "network", family=7),
    "family a list": lambda run: changed_config(run, "network", family=["deep"]),
    "unknown field": lambda run: changed_config(run, "training", colour="blue"),
    "unknown network field": lambda run: changed_config(run, "network", colour="blue"),
    "widths text": lambda run: changed_config(run, "network", widths="88"),
    "widths negative": lambda run: changed_config(run, "network", widths=[-8, 8]),
    "widths huge": lambda run: changed_config(run, "network", widths=[10**9, 10**9]),
    "tau text": lambda run: changed_config(run, "network", tau="x"),
    "lr text": lambda run: changed_config(run, "training", lr="fast"),
    "lr not a number": lambda run: changed_config(run, "training", lr=float("nan")),
    "lr huge": lambda run: changed_config(run, "training", lr=10**400),
    "batch a fraction": lambda run: changed_config(run, "training", batch=2.5),
    "batch huge": lambda run: changed_config(run, "training", batch=10**12),
    "batch true": lambda run: changed_config(run, "training", batch=True),
    "data a word": lambda run: changed_config(run, "training", data="cbsd432"),
    "data numbers": lambda run: changed_config(run, "training", data=[1, 2]),
    "sigma a number": lambda run: changed_config(run, "training", sigma255=15),
    "sigma of three": lambda run: changed_config(run, "training", sigma255=[1, 2, 3]),
    "sigma infinite": lambda run: changed_config(run, "training", sigma255=[0, float("inf")]),
    "noise a number": lambda run: changed_config(run, "training", noise=3),
    "noise unknown": lambda run: changed_config(run, "training", noise="loud"),
    "no length": lambda run: changed_config(run, "training", steps=None),
    "steps text": lambda run: changed_config(run, "training", steps="8"),
    "levels text": lambda run: changed_config(run, "training", validation_sigmas=["loud"]),
    "cooldown 9": lambda run: changed_config(run, "training", cooldown=9),
    "scale 0": lambda run: changed_config(run, "training", smallest_scale=0),
    "nested": lambda run: changed_config(run, "training", data=[["a"]]),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to copy and damage, with its pictures beside it."""
    folder = tmp_path_factory.mktemp("finished")
    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    for number in range(4):
        pixels = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"pictures/{number}.png")
    settings = TrainConfig(
        data=(str(folder / "pictures"),), hold_out=4, steps=2, minutes=None, batch=1, patch=16
    )
    train(replace(settings, final_patch=16), TINY, folder / "run")
    return folder / "run"


def check_one_line(run: Path, name: str, nelu: Nelu) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    status, out, said = nelu("train", "--resume", "--out", run, "--steps", "3")
    assert (status, out) == (1, "")
    assert said.startswith(f"nelu: {run / name}: ")
    assert said.count("\n") == 1
    assert len(said) < 500
    after = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert before == after


def copied(finished: Path, tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    for path in finished.iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    return run


@pytest.mark.parametrize("kind", DAMAGED_CONFIGS)
def test_a_damaged_config_is_one_line(
    kind: str, finished: Path, tmp_path: Path, nelu: Nelu
) -> None:
    run = copied(finished, tmp_path)
    DAMAGED_CONFIGS[kind](run)
    check_one_line(run, "config.json", nelu)


Tensors = dict[str, torch.Tensor]


def changed_state(
    change: Callable[[Tensors, dict[str, str]], object],
) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        path = run / "state.safetensors"
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        change(tensors, metadata)
        path.write_bytes(safetensors.torch.save(tensors, metadata))

    return damage


def numbers(**fields: object) -> Callable[[Path], None]:
    def change(tensors: Tensors, metadata: dict[str, str]) -> None:
        found = json.loads(metadata["nelu-training"]) | fields
        metadata["nelu-training"] = json.dumps(found)

    return changed_state(change)


def written_state(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(run: Path) -> None:
        path = run / "state.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return damage


def to_folder(run: Path) -> None:
    (run / "state.safetensors").unlink()
    (run / "state.safetensors").mkdir()


HEAD, MOMENT = "head.weight", "optimizer.head.weight/exp_avg"
DAMAGED_STATES: dict[str, Callable[[Path], object]] = {
    "missing": lambda run: (run / "state.safetensors").unlink(),
    "a folder": to_folder,
    "empty": written_state(lambda content: b""),
    "cut": written_state(lambda content: content[: len(content) // 2]),
    "a byte short": written_state(lambda content: content[:-1]),
    "a byte long": written_state(lambda content: content + b"x"),
    "zeros": written_state(lambda content: bytes(len(content))),
    "text": written_state(lambda content: b"not a state"),
    "huge header": written_state(lambda content: b"\xff" * 8 + content[8:]),
    "broken header": written_state(lambda content: content.replace(b'"dtype"', b'"dtipe"', 1)),
    "weights in its place": lambda run: (run / "state.safetensors").write_bytes(
        (run / "last.safetensors").read_bytes()
    ),
    "no numbers": changed_state(lambda tensors, metadata: metadata.clear()),
    "numbers cut": changed_state(lambda t, metadata: metadata.update({"nelu-training": "{"})),
    "numbers a list": changed_state(lambda t, metadata: metadata.update({"nelu-training": "[]"})),
    "no step": numbers(step=None),
    "step text": numbers(step="x"),
    "step negative": numbers(step=-1),
    "step infinite": numbers(step=float("inf")),
    "seconds not a number": numbers(seconds=float("nan")),
    "best a list": numbers(best=[]),
    "latest a list": numbers(latest=[1]),
    "latest text": numbers(latest={"25": "x"}),
    "a tensor missing": changed_state(lambda tensors, m: tensors.pop(f"weights.{HEAD}")),
    "an average missing": changed_state(lambda tensors, m: tensors.pop(f"ema.{HEAD}")),
    "a tensor of another shape": changed_state(
        lambda tensors, m: tensors.update({f"weights.{HEAD}": torch.zeros(3)})
    ),
    "a moment of another shape": changed_state(
        lambda tensors, m: tensors.update({MOMENT: torch.zeros(3)})
    ),
    "a moment missing": changed_state(lambda tensors, m: tensors.pop(MOMENT)),
}


@pytest.mark.parametrize("kind", DAMAGED_STATES)
def test_a_damaged_state_is_one_line(kind: str, finished: Path, tmp_path: Path, nelu: Nelu) -> None:
    run = copied(finished, tmp_path)
    DAMAGED_STATES[kind](run)
    check_one_line(run, "state.safetensors", nelu)


def test_a_run_says_what_it_is(run: Path, config: TrainConfig) -> None:
    assert load_run(run) == (config, TINY)
