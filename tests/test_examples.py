"""The examples run and show what they say they show."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parents[1] / "examples"


def run(name: str) -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / name))


def put(path: Path, seed: int) -> None:
    values = 128 + 30 * np.random.default_rng(seed).standard_normal((80, 90))
    Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(path)


def test_the_list_of_examples_is_whole() -> None:
    listed = set(re.findall(r"\]\((\w+\.py)\)", (FOLDER / "README.md").read_text("utf-8")))
    assert listed == {path.name for path in FOLDER.glob("*.py")}
    assert not {name.removesuffix(".py") for name in listed} & sys.stdlib_module_names


def test_array(capsys: pytest.CaptureFixture[str]) -> None:
    run("one_array.py")["main"]()
    errors = [float(found) for found in re.findall(r"error ([\d.]+)", capsys.readouterr().out)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 3


def test_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], small_models: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    put(source / "a.png", 0)
    put(source / "b.png", 1)
    main = run("folder.py")["main"]
    assert main(source, target) == 0
    assert sorted(path.name for path in target.iterdir()) == ["a.png", "b.png"]
    (source / "c.png").write_text("no picture")
    assert main(source, target) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *["done", "done"],
        *["skipped", "skipped", "failed"],
    ]


def test_own_network() -> None:
    errors = run("own_network.py")["main"](steps=200)
    assert errors["NeLU"][0.1] < 1.2 * errors["soft"][0.1]
    assert errors["NeLU"][1.0] < errors["soft"][1.0] / 3


def test_train_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pictures").mkdir()
    for seed in range(4):
        put(tmp_path / "pictures" / f"{seed}.png", seed)
    run("train_own.py")["main"](tmp_path / "pictures", tmp_path / "run", steps=20)
    assert "best: noise of 0.1" in capsys.readouterr().out


def test_shrinkages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["shrinkages.py", str(tmp_path / "figure.png")])
    errors = run("shrinkages.py")["errors"]
    assert max(errors["NeLU"]) < 2 * min(errors["NeLU"])
    assert errors["NeLU"][-1] < errors["soft"][-1]
    assert (tmp_path / "figure.png").stat().st_size > 1000
