"""What a person reads before a command, and what the shell offers while it is typed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from conftest import Nelu

from nelu_cli.cli import app, completion
from nelu_cli.data.downloads import CATALOGUE
from nelu_cli.evaluation.methods import BASELINES
from nelu_cli.experiments import CATALOGUE as EXPERIMENTS
from nelu_cli.networks import family
from nelu_cli.training import TrainConfig


def commands() -> Iterator[tuple[str, ...]]:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        yield from ((name, each) for each in inner) if inner else [(name,)]


@pytest.mark.parametrize("command", [*commands()])
def test_types_and_ranges_are_words(command: tuple[str, ...], nelu: Nelu) -> None:
    status, said, _ = nelu(*command, "--help")
    assert status == 0
    assert not re.search(r"<|>=|list\[|\bstr\b|\bint\b", said), said
    usage = said.partition("\n\n")[0]
    assert "{" not in usage
    assert usage.count("...") <= 1


def test_usage_names_what_is_needed(nelu: Nelu) -> None:
    for command, usage in {
        "denoise": "nelu denoise [OPTIONS] INPUT... [OUTPUT]",
        "models": "nelu models [OPTIONS] [NAME|PATH]",
        "compare": "nelu compare [OPTIONS] BEFORE AFTER PAGE.html",
    }.items():
        assert nelu(command, "-h")[1].startswith(f"Usage: {usage}\n")


def test_the_options_of_training_are_in_groups(nelu: Nelu) -> None:
    said = nelu("train", "-h")[1]
    titles = re.findall(r"(?m)^(\S.*):$", said)
    assert titles == ["Pictures and noise", "The network", "How it learns", "The run", "Options"]
    options = said.rpartition("Options:\n")[2]
    assert re.findall(r"--[\w-]+", options) == ["--help"]  # every other one is in a group


def number(value: object) -> str:
    return ",".join(map(number, value)) if isinstance(value, tuple) else f"{value:g}"


def test_the_help_of_training_tells_the_defaults_that_hold(nelu: Nelu) -> None:
    said = " ".join(nelu("train", "-h")[1].split()).replace("- ", "-")  # wrapped
    usual = TrainConfig()
    deep, paper = family("deep").recipes["nelu"], family("paper").recipes["nelu"]
    assert not deep.training  # as TrainConfig has it
    assert {*paper.training} == {"sigma255", "loss", "patch", "final_patch"}
    defaults = {
        "--hold-out": number(usual.hold_out),
        "--validate-every": str(usual.validate_every),
        "--noise": usual.noise,
        "--sigma": f"0-{usual.sigma255[1]:g}, paper: {paper.training['sigma255'][0]:g}",  # type: ignore[index]
        "--sigma-power": number(usual.sigma_power),
        "--contrast": number(usual.contrast[0]),
        "--recolour": number(usual.recolour),
        "--soft": number(usual.soft),
        "--vivid": number(usual.vivid),
        "--batch": number(usual.batch),
        "--patch": f"{usual.patch}, paper: {paper.training['patch']}",
        "--loss": f"{usual.loss}, paper: {paper.training['loss']}",
        "--optimizer": usual.optimizer,
        "--lr": number(usual.lr),
        "--clip": number(usual.clip),
        "--cooldown": number(usual.cooldown),
        "--minutes": number(usual.minutes),
        "--widths": number(deep.config.widths),  # type: ignore[attr-defined]
        "--blocks": number(deep.config.blocks),  # type: ignore[attr-defined]
        "--window": number(deep.config.window),  # type: ignore[attr-defined]
        "--decoder-blocks": f"--blocks if given, else {number(deep.config.decoder_blocks)}",  # type: ignore[attr-defined]
        "--hidden": f"--widths if given, else {number(deep.config.hidden)}",  # type: ignore[attr-defined]
    }
    for option, default in defaults.items():
        text = said.partition(f" {option} ")[2]
        assert text.partition(" Default: ")[2].startswith(f"{default}."), option


def test_completion_knows_all_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bsd-own").mkdir()
    (tmp_path / "bsd.txt").touch()
    assert completion.complete_sets("") == [*CATALOGUE, "samples"]
    assert completion.complete_sets("bsd") == ["bsd68", "bsd-own/"]
    assert completion.complete_sets("none/x") == []
    assert completion.complete_experiments("") == [*EXPERIMENTS, "all", "list"]
    assert sorted(completion.complete_baselines("")) == sorted(BASELINES)
    assert completion.complete_baselines("tv") == ["tv", "tv-told"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("nelu data fetch kod", "kodak24"),
        ("nelu eval --dataset mcm", "mcmaster"),
        ("nelu eval --pairs po", "polyu"),
        ("nelu eval --model deep-col", "deep-color"),
        ("nelu eval --baseline bm", "bm3d"),
        ("nelu train --data cbsd4", "cbsd432"),
        ("nelu train --validate kod", "kodak24"),
        ("nelu train --start-from deep-col", "deep-color"),
        ("nelu experiment anal", "analytical"),
        ("nelu experiment table --dataset kod", "kodak24"),
        ("nelu models deep-col", "deep-color"),
        ("nelu export deep-col", "deep-color"),
        ("nelu info --model deep-col", "deep-color"),
        ("nelu watch --model deep-col", "deep-color"),
    ],
)
def test_the_shell_offers_names(
    words: str, offered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_NELU_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        app([], prog_name="nelu")
    assert offered in capsys.readouterr().out.split()
