"""``nelu models``, as a user types it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nelu_cli import checkpoints
from nelu_cli.checkpoints import TrainingRecord
from nelu_cli.networks import Config, DeepConfig, PaperConfig, build

Nelu = Callable[..., tuple[int, str, str]]
RECORD = TrainingRecord(
    data=("cbsd432", "[holiday] photos"),
    sigma="0-120",
    steps=1234,
    hours=0.5,
    seed=7,
    validation={"15": 31.254, "50": 26.5},
    validated_on="set12",
    command="nelu train --sigma 0-120",
    date="2026-01-02",
    version="0.1.0",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand for the bundled weights: one model of each family."""
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    configs: dict[str, Config] = {
        "small-deep": DeepConfig(widths=(4, 6), blocks=(0, 0), tau=1.25),
        "small-paper": PaperConfig(channels=3, filters=10, kernel=5, stride=3),
    }
    for name, config in configs.items():
        torch.manual_seed(0)
        tensors = build(config).state_dict()
        checkpoints.save(tmp_path / f"{name}.safetensors", tensors, config, RECORD)
    return tmp_path


def test_the_list_says_size_data_noise_and_psnr(nelu: Nelu, folder: Path) -> None:
    status, out, err = nelu("models")
    assert (status, err) == (0, "")
    group, _, heading, deep, paper, _ = out.splitlines()
    assert group == "For any picture:"
    for title in ("model", "MB", "weights", "channels", "trained on", "noise", "PSNR in dB"):
        assert title in heading
    assert deep.startswith("small-deep ")
    assert paper.startswith("small-paper ")
    assert "1,510" in paper  # 2 · 10 · 75 weights and 10 τ
    for text in ("cbsd432, [holiday] photos", "σ 0-120", "15: 31.25 50: 26.50 (set12)"):
        assert text in deep


def test_models_of_one_noise_level_are_set_apart(nelu: Nelu, folder: Path) -> None:
    """They harm pictures with less noise, so nobody should take them by mistake."""
    config = DeepConfig(widths=(4, 6), blocks=(0, 0))
    record = replace(RECORD, sigma="15")
    checkpoints.save(folder / "only-15.safetensors", build(config).state_dict(), config, record)
    _, out, _ = nelu("models")
    any_picture, comparisons = out.split("Trained at one noise level, for comparisons with the ")
    assert "only-15" not in any_picture
    assert "only-15" in comparisons
    assert "small-deep" not in comparisons


def test_one_model_with_its_origin(nelu: Nelu, folder: Path) -> None:
    status, out, err = nelu("models", "small-deep")
    assert (status, err) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert facts["model"].strip() == "small-deep"
    assert facts["network"].strip() == "deep"
    assert facts["training"].strip() == "1,234 steps, 0.5 hours, seed 7"
    assert facts["command"].strip() == "nelu train --sigma 0-120"
    assert facts["made"].strip() == "2026-01-02 by nelu 0.1.0"
    assert "small-paper" not in out


def test_json_of_one_model_holds_everything(nelu: Nelu, folder: Path) -> None:
    status, out, _ = nelu("models", "small-deep", "--json")
    assert status == 0
    entry = json.loads(out)
    assert entry["name"] == "small-deep"
    assert entry["file"] == str(folder / "small-deep.safetensors")
    assert entry["bytes"] == (folder / "small-deep.safetensors").stat().st_size
    assert entry["network"] == "deep"
    assert entry["config"]["widths"] == [4, 6]
    assert entry["record"]["validation"] == {"15": 31.254, "50": 26.5}
    assert entry["record"]["command"] == RECORD.command
    assert entry["tau"] == [[1.25] * 4, [1.25] * 6]
    assert entry["parameters"] == sum(
        tensor.numel() for tensor in checkpoints.load("small-deep").network.state_dict().values()
    )


def test_json_of_all_models_is_a_list(nelu: Nelu, folder: Path) -> None:
    _, out, _ = nelu("models", "--json")
    deep, paper = json.loads(out)
    assert (deep["name"], paper["name"]) == ("small-deep", "small-paper")
    assert "tau" not in paper


def test_a_weights_file_may_be_named_by_its_path(nelu: Nelu, folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "last.safetensors"
    mine.parent.mkdir()
    mine.write_bytes((folder / "small-deep.safetensors").read_bytes())
    status, out, _ = nelu("models", mine)
    assert status == 0
    assert "last" in out


def test_an_unknown_name_is_one_line_with_the_known_ones(nelu: Nelu, folder: Path) -> None:
    status, out, err = nelu("models", "huge", "--json")
    assert (status, out) == (1, "")
    assert err == (
        "nelu: huge: neither a file nor a bundled model "
        "(bundled: small-deep, small-paper; see nelu models)\n"
    )


def test_a_damaged_file_is_one_line(nelu: Nelu, folder: Path) -> None:
    damaged = folder / "small-deep.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    status, _, err = nelu("models", "small-deep")
    assert status == 1
    assert err.startswith(f"nelu: {damaged}: not a readable weights file")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_no_models(
    nelu: Nelu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: tmp_path)
    status, out, _ = nelu("models", *option)
    assert status == 0
    assert out.strip() == ("[]" if option else "No models are bundled.")


def test_names_can_be_copied_at_80_columns(
    nelu: Nelu, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "paper-nelu-unrolled-s15-contrast"
    (folder / "small-paper.safetensors").rename(folder / f"{long}.safetensors")
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = nelu("models")
    assert status == 0
    assert any(line.startswith(f"{long} ") for line in out.splitlines())
    assert "…" not in out
