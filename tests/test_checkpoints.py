"""Weights files: what goes in comes out, and every damage has its own line."""

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

import nelu_cli
from nelu_cli import checkpoints
from nelu_cli.checkpoints import TrainingRecord
from nelu_cli.errors import CheckpointError
from nelu_cli.networks import Config, DeepConfig, Network, PaperConfig, build
from nelu_cli.operators import AcceleratedNeLU

RECORD = TrainingRecord(
    data=("cbsd432", "my photos"),
    sigma="0-120",
    steps=1234,
    hours=0.5,
    seed=7,
    validation={"15": 31.25, "50": 26.5},
    validated_on="set12",
    chosen_by=(15, 50),
    note="by hand",
    command="nelu train --sigma 0-120",
    date="2026-01-02",
    version="0.1.0",
)
CONFIGS: list[Config] = [
    DeepConfig(widths=(4, 6), blocks=(1, 0), window=(3, 1), tau=1.25),
    DeepConfig(channels=3, widths=(4,), blocks=(1,), activation="relu"),
    PaperConfig(filters=10, kernel=5, stride=3, signed=True, pass_through=True),
    PaperConfig(channels=3, filters=10, kernel=5, stride=3, activation="nelu-unrolled", steps=4),
    PaperConfig(filters=10, kernel=5, stride=3, activation="relu"),
]


def save(path: Path, config: Config = CONFIGS[0], record: TrainingRecord = RECORD) -> Network:
    torch.manual_seed(4)
    network = build(config).eval()
    checkpoints.save(path, network.state_dict(), config, record)
    return network


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good weights file."""
    target = tmp_path / "model.safetensors"
    save(target)
    return target


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_what_is_saved_is_loaded_from_the_file_alone(config: Config, tmp_path: Path) -> None:
    saved = save(tmp_path / "mine.safetensors", config)
    loaded = checkpoints.load(tmp_path / "mine.safetensors")
    assert loaded.name == "mine"
    assert loaded.path == tmp_path / "mine.safetensors"
    assert loaded.record == RECORD
    assert loaded.network.config == config
    weights = loaded.network.state_dict()
    assert weights.keys() == saved.state_dict().keys()
    for name, tensor in saved.state_dict().items():
        assert torch.equal(weights[name], tensor)
        assert weights[name].stride() == tensor.stride()  # the fast memory format too
    image = torch.rand(1, config.channels, 9, 11)
    with torch.no_grad():
        assert torch.equal(loaded.network(image), saved(image))


def test_a_loaded_network_is_ready_for_inference(path: Path) -> None:
    network = checkpoints.load(path).network
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_loading_leaves_the_random_numbers_alone(path: Path) -> None:
    before = torch.get_rng_state()
    checkpoints.load(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_header_is_read_without_the_tensors(path: Path) -> None:
    header = checkpoints.read_description(path)
    assert (header.name, header.config, header.record) == ("model", CONFIGS[0], RECORD)
    assert header.parameters == sum(p.numel() for p in build(CONFIGS[0]).parameters())


def test_a_record_may_lack_fields_and_have_unknown_ones(path: Path) -> None:
    describe(path, lambda text: text.update(record={"sigma": "15", "mood": "good"}))
    assert checkpoints.load(path).record == TrainingRecord(sigma="15")


def test_a_file_from_before_tau_gives_the_same_pictures(tmp_path: Path) -> None:
    """Files of Algorithm 2 used to hold λ, and nothing of how training averages."""
    path = tmp_path / "old.safetensors"
    config = PaperConfig(filters=12, kernel=5, stride=2, activation="nelu-unrolled", signed=True)
    saved = save(path, config)
    layer = saved.activation
    assert isinstance(layer, AcceleratedNeLU)

    def make_old(tensors: Tensors, metadata: dict[str, str]) -> None:
        del tensors["activation.tau"]
        tensors["activation.lam"] = layer.lam(12).detach().clone()
        text = json.loads(metadata["nelu"])
        del text["config"]["training_stride"]
        metadata["nelu"] = json.dumps(text)

    rewrite(path, make_old)
    loaded = checkpoints.load(path).network
    assert loaded.config == config
    image = torch.rand(1, 1, 9, 11)
    with torch.no_grad():
        torch.testing.assert_close(loaded(image), saved(image))


# ------------------------------------------------------------------ damage

Tensors = dict[str, Tensor]


def rewrite(path: Path, change: Callable[[Tensors, dict[str, str]], object]) -> None:
    """Change a file's tensors and metadata."""
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    change(tensors, metadata)
    safetensors.torch.save_file(tensors, path, metadata)


def describe(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a file's description."""

    def apply(tensors: Tensors, metadata: dict[str, str]) -> None:
        text = json.loads(metadata["nelu"])
        change(text)
        metadata["nelu"] = json.dumps(text)

    rewrite(path, apply)


def fault(path: Path | str) -> str:
    """The message of loading a bad file: one line that begins with the file's name."""
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("part", [0.0, 0.0003, 0.01, 0.5, 0.999])
def test_truncated(path: Path, part: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    assert "not a readable weights file" in fault(path)


@pytest.mark.parametrize("content", [b"hello\n" * 40, b"\x89PNG\r\n\x1a\n" * 9, bytes(1000)])
def test_not_safetensors(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "not a readable weights file" in fault(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_foreign_safetensors(path: Path, metadata: dict[str, str] | None) -> None:
    safetensors.torch.save_file({"weight": torch.zeros(3)}, path, metadata)
    assert fault(path).endswith("a safetensors file, but not one of nelu's")


def test_missing(tmp_path: Path) -> None:
    message = fault(str(tmp_path / "no.safetensors"))
    assert "neither a file nor a bundled model" in message
    assert "nelu models" in message


def test_a_folder_is_no_weights_file(tmp_path: Path) -> None:
    assert "neither a file nor a bundled model" in fault(tmp_path)


def test_missing_tensor(path: Path) -> None:
    rewrite(path, lambda tensors, _: tensors.pop("head.weight"))
    assert fault(path).endswith("the tensor head.weight is missing; the file is incomplete")


def test_extra_tensor(path: Path) -> None:
    rewrite(path, lambda tensors, _: tensors.update(surplus=torch.zeros(1)))
    assert fault(path).endswith("the tensor surplus is not part of its network")


def test_wrong_shape(path: Path) -> None:
    rewrite(path, lambda tensors, _: tensors.update({"codes.0.tau": torch.ones(5)}))
    assert fault(path).endswith(
        "codes.0.tau is float32 of shape (5,), but its network needs float32 of shape (4,)"
    )


def test_wrong_type(path: Path) -> None:
    rewrite(path, lambda tensors, _: tensors.update({"codes.0.tau": torch.ones(4).long()}))
    assert "codes.0.tau is int64 of shape (4,)" in fault(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_finite(path: Path, value: float) -> None:
    rewrite(path, lambda tensors, _: tensors["tail.weight"].flatten()[3:4].fill_(value))
    assert fault(path).endswith("tail.weight holds values that are not finite numbers")


@pytest.mark.parametrize("schema", [0, 2, "1"])
def test_wrong_schema(path: Path, schema: object) -> None:
    describe(path, lambda text: text.update(schema=schema))
    assert f"written in schema {schema}, this version of nelu reads 1" in fault(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "{}", "[" * 100_000])
def test_damaged_json(path: Path, text: str) -> None:
    rewrite(path, lambda _, metadata: metadata.update(nelu=text))
    assert "its description is damaged" in fault(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"network": ["deep"]}, "unhashable"),
        ({"config": {"colour": True}}, "colour"),
        ({"config": {"channels": 2}}, "channels must be 1 or 3"),
        ({"config": {"channels": 1.0}}, "channels must be whole numbers"),
        ({"config": {"widths": [1.5], "blocks": [1]}}, "whole numbers"),
        ({"config": {"widths": 4}}, "not iterable"),
        ({"config": [1, 2]}, "mapping"),
        ({"record": None}, "NoneType"),
        ({"record": {"validation": {"15": "good"}}}, "good"),
    ],
)
def test_damaged_description(path: Path, changes: dict[str, Any], reason: str) -> None:
    describe(path, lambda text: text.update(changes))
    message = fault(path)
    assert "its description is damaged" in message
    assert reason in message


def test_an_unknown_network_is_named(path: Path) -> None:
    describe(path, lambda text: text.update(network="unet"))
    assert "there is no network 'unet' here; there are paper, deep; install" in fault(path)


def test_a_description_of_a_huge_network_costs_nothing(path: Path) -> None:
    huge = {"widths": [10_000] * 3, "blocks": [1] * 3}  # 20 GB, if it were built
    describe(path, lambda text: text.update(config=huge))
    assert "is missing" in fault(path)


# ------------------------------------------------------------------ saving


def test_a_full_disk_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot be written \(No space left on device\)"):
        save(path, record=replace(RECORD, steps=9999))
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_an_interrupt_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = path.read_bytes()

    def interrupt(*arguments: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors.torch, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(path)
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_saving_into_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be written"):
        save(tmp_path / "missing" / "model.safetensors")


def test_nothing_is_ever_pickled() -> None:
    package = Path(nelu_cli.__file__).parent
    banned = re.compile(
        r"(?<!safetensors\.)torch\.(load|save)\(|import c?pickle|allow_pickle|weights_only"
    )
    sources = list(package.rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        assert not banned.search(source.read_text(encoding="utf-8")), source


# ------------------------------------------------------------------ bundled


def test_a_bundled_name_needs_no_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: path.parent)
    (path.parent / "README.md").write_text("not a model")
    assert checkpoints.bundled() == ["model"]
    assert checkpoints.load("model").path == path
    assert "bundled: model;" in fault("other")


@pytest.mark.parametrize("name", checkpoints.bundled())
def test_bundled_weights_load_and_say_where_they_come_from(name: str) -> None:
    record = checkpoints.load(name).record
    assert record.data
    assert record.sigma
    assert record.steps > 0
    assert record.validation
    assert record.command.startswith("nelu train")
