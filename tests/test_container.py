"""The container file: what it says of the package is so."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = [
    line
    for line in (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def arguments(instruction: str) -> list[str]:
    """What follows each such instruction, in order."""
    return [
        line.removeprefix(f"{instruction} ") for line in LINES if line.startswith(f"{instruction} ")
    ]


def last_stage() -> list[str]:
    begin = max(index for index, line in enumerate(LINES) if line.startswith("FROM "))
    return LINES[begin:]


def test_what_is_copied_exists_and_is_all_that_the_wheel_needs() -> None:
    copied = [
        name
        for text in arguments("COPY")
        if not text.startswith("--from=")
        for name in text.split()[:-1]
    ]
    assert all((ROOT / name).exists() for name in copied)
    needed = {"nelu_cli", "weights", "pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]}
    assert needed <= set(copied)


def test_it_runs_nelu_as_a_user_without_rights() -> None:
    stage = last_stage()
    user = next(line for line in stage if line.startswith("USER ")).split()[1]
    assert user not in ("root", "0")
    assert any(line.startswith("RUN useradd") and line.endswith(f" {user}") for line in stage)
    assert stage.index(f"USER {user}") > max(
        index for index, line in enumerate(stage) if line.startswith(("RUN", "COPY"))
    )
    (entry,) = arguments("ENTRYPOINT")
    (command,) = json.loads(entry)
    assert command in PROJECT["scripts"]


def test_torch_is_that_for_the_cpu_and_the_one_that_is_declared() -> None:
    run = " ".join(arguments("RUN"))
    torch = next(need for need in PROJECT["dependencies"] if need.startswith("torch"))
    assert arguments("ARG") == ["TORCH=https://download.pytorch.org/whl/cpu"]
    assert f"""--index-url "$TORCH" '{torch}'""" in run


def test_extras_exist() -> None:
    (extras,) = re.findall(r"'\.\[(.*?)\]'", " ".join(arguments("RUN")))
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
