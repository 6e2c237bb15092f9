"""The package as a whole: its layers, its command line, and the wheel that is installed."""

import ast
import graphlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import typer.main
from PIL import Image

from nelu_cli import __version__, cli, errors
from nelu_cli.cli import app

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nelu_cli"

LAYERS: dict[str, set[str]] = {
    # What each room may import from the package besides ``errors`` and ``words``; data flows one
    # way.
    "errors": set(),
    "words": set(),
    "stopping": set(),
    "atomic": set(),
    "operators": set(),
    "noise": set(),
    "networks": {"operators"},
    "checkpoints": {"atomic", "networks"},
    "images": {"atomic"},
    "runtime": {"atomic", "checkpoints", "images", "networks"},
    "raw": {"images"},
    "files": {"atomic", "images", "raw", "runtime"},
    "pages": {"atomic", "images"},
    "cluster": {"atomic", "files", "images", "runtime"},
    "viewer": {"checkpoints", "runtime"},
    "export": {"atomic", "checkpoints", "networks", "operators"},
    "data": {"atomic", "images", "noise"},
    "evaluation": {"atomic", "data", "noise", "runtime"},
    "training": {
        "atomic",
        "checkpoints",
        "data",
        "evaluation",
        "networks",
        "noise",
        "stopping",
    },
    "experiments": {
        "atomic",
        "checkpoints",
        "data",
        "evaluation",
        "networks",
        "noise",
        "operators",
        "runtime",
    },
}
WITHOUT_TORCH = [
    "atomic",
    "cli",
    "data",
    "errors",
    "files",
    "images",
    "noise",
    "pages",
    "stopping",
    "raw",
]
FREE = {"__init__", "__main__", "cli"}  # may import anything (cli: inside functions)
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:[349][0-7]|10[0-7]|[34]8;)[\d;]*m")


# Layers


def module_of(path: Path) -> str:
    """The module or package directly under nelu_cli to which a file belongs."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> Iterator[str]:
    """Names of modules of the package that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            source = node.module or ""
            names = [f"{source}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "nelu_cli" and rest not in ("", "__version__"):
                yield rest.split(".")[0]


def test_every_module_has_a_layer() -> None:
    assert {module_of(path) for path in PACKAGE.rglob("*.py")} == LAYERS.keys() | FREE


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=module_of)
def test_imports_go_one_way(path: Path) -> None:
    module = module_of(path)
    if module not in FREE:
        allowed = LAYERS[module] | {module, "errors", "words"}
        assert set(imported_modules(path)) <= allowed


def test_layers_have_no_cycle() -> None:
    assert set(graphlib.TopologicalSorter(LAYERS).static_order()) == LAYERS.keys()


def test_contributors_read_the_same_table() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", text, re.MULTILINE)
    written = {module: set(re.findall(r"\w+", allowed)) for module, allowed in rows}
    del written["cli"]
    assert written == LAYERS


def test_errors_are_all_listed_and_all_nelu_errors() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert set(errors.__all__) == defined
    assert all(issubclass(getattr(errors, name), errors.NeluError) for name in defined)


# The command line


def commands() -> list[list[str]]:
    """Every command and sub-command, [] being ``nelu`` itself."""
    found: list[list[str]] = []
    waiting: list[tuple[list[str], object]] = [([], typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        found.append(name)
        children: dict[str, object] = getattr(command, "commands", {})
        waiting += [([*name, child], value) for child, value in children.items()]
    return found


def run(*arguments: str, **environment: str) -> str:
    """Standard output of ``python arguments``, which must succeed; not on a terminal."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "COLUMNS")
        and name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        env={"PYTHONPATH": str(ROOT), **inherited, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def nelu(*arguments: str, **environment: str) -> str:
    return run("-m", "nelu_cli", *arguments, **environment)


def test_the_walk_finds_the_commands() -> None:
    assert [] in commands()
    assert ["denoise"] in commands()
    assert ["data", "list"] in commands()


def test_help_and_version_answer_without_torch() -> None:
    lines = [[*command, option] for command in commands() for option in ("--help", "-h")]
    lines.append(["--version"])
    script = (
        "import json, sys\n"
        "from nelu_cli.cli import run\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    assert run(line) == 0, line\n"
        "print(json.dumps(sorted({'torch', 'numpy', 'matplotlib', 'skimage'} & set(sys.modules))))"
    )
    output = run("-c", script, json.dumps(lines))
    assert output.splitlines()[-1] == "[]"
    assert output.count("Usage: nelu") == len(lines) - 1
    assert f"nelu {__version__}" in output.splitlines()


def test_light_modules_and_the_package_itself_do_not_import_torch() -> None:
    names = ", ".join(["nelu_cli", *(f"nelu_cli.{name}" for name in WITHOUT_TORCH)])
    assert run("-c", f"import sys, {names}; print('torch' in sys.modules)") == "False\n"


def test_denoising_imports_nothing_slow_that_it_does_not_need(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(tmp_path / "in.png")
    script = (
        "import json, sys\n"
        "from nelu_cli.cli import run\n"
        "for model in ('deep-gray', 'paper-nelu-s15'):\n"
        "    assert run(['denoise', '-f', '-q', '--model', model, *sys.argv[1:]]) == 0\n"
        "slow = {'torch._dynamo', 'sympy', 'matplotlib', 'skimage', 'scipy'}\n"
        "print(json.dumps(sorted(slow & set(sys.modules))))"
    )
    output = run("-c", script, str(tmp_path / "in.png"), str(tmp_path / "out.png"))
    assert json.loads(output.splitlines()[-1]) == []


def test_every_command_and_option_explains_itself() -> None:
    for name in commands():
        command = typer.main.get_command(app)
        for part in name:
            command = command.commands[part]  # type: ignore[attr-defined]
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), (name, parameter.name)


@pytest.mark.parametrize("group", [["--help"], ["data", "--help"]])
def test_no_command_is_described_in_half_a_sentence(group: list[str]) -> None:
    _, commands = nelu(*group).split("Commands:")
    assert all(line.endswith(".") and "..." not in line for line in commands.splitlines() if line)


def test_python_dash_m_is_nelu() -> None:
    assert nelu("--version") == f"nelu {__version__}\n"


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_wait_asleep_unless_the_user_says_how(given: dict[str, str], spins: str) -> None:
    """Said before torch is there, since OpenMP looks for it once, as it is loaded."""
    script = (
        "import os, sys; from nelu_cli import __main__ as entry, cli\n"
        "cli.main = lambda: print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
        "entry.main()"
    )
    assert run("-c", script, **given) == f"{spins} False\n"


def test_no_command_shows_the_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nelu_cli"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Usage: nelu" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_no_color_is_honoured() -> None:
    bar = (
        "import sys; from nelu_cli.cli.reporting import progress; sys.stderr = sys.stdout\n"
        "with progress('', 1) as advance: advance()"
    )
    assert COLOUR.search(run("-c", bar, FORCE_COLOR="1"))
    assert not COLOUR.search(run("-c", bar, FORCE_COLOR="1", NO_COLOR="1"))
    assert run("-c", bar) == ""


@pytest.mark.parametrize("command", ["--help", "models"])
def test_a_pipe_gets_plain_text(command: str) -> None:
    assert "\x1b" not in nelu(command)


def test_bash_completion_lists_the_commands() -> None:
    asked = {"_NELU_COMPLETE": "complete_bash", "COMP_WORDS": "nelu ", "COMP_CWORD": "1"}
    expected = {name[0] for name in commands() if len(name) == 1}
    assert set(nelu(**asked).split()) == expected


def test_bash_completion_lists_the_models() -> None:
    asked = {
        "_NELU_COMPLETE": "complete_bash",
        "COMP_WORDS": "nelu denoise --model deep-",
        "COMP_CWORD": "3",
    }
    names = {path.stem for path in (ROOT / "weights").glob("deep-*.safetensors")}
    assert names
    assert set(nelu(**asked).split()) == names


def test_zsh_completion_completes_a_command() -> None:
    asked = {"_NELU_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "nelu deno"}
    assert '"denoise"' in nelu(**asked)


def test_fish_completion_completes_an_option() -> None:
    asked = {
        "_NELU_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "nelu denoise --",
    }
    assert "--help" in nelu(**asked)


# The gate


def test_pre_commit_and_the_readme_check_the_same() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    line = re.search(r"^<!-- test -->\n```sh\n(.*)\n```$", readme, re.MULTILINE)
    hooks = re.findall(r"entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert line, "README.md: no code block of one line follows the line <!-- test -->"
    assert line[1].split(" && ")[-len(hooks) :] == hooks


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_its_data_alone(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    here = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    weights = {f"nelu_cli/weights/{path.name}" for path in (ROOT / "weights").glob("*.safetensors")}
    assert "nelu_cli/py.typed" in here
    information = {name for name in names if ".dist-info/" in name}
    assert {
        name for name in names - information if not name.startswith("nelu_cli/weights/")
    } == here
    assert weights <= names
    assert any(name.endswith("LICENSE") for name in information)


def test_an_installed_wheel_loads_its_weights_outside_the_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    run(
        *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--no-index", "--target", str(installed), str(wheel)),
    )
    script = (
        "import nelu_cli\n"
        "from nelu_cli import checkpoints\n"
        "print(nelu_cli.__file__)\n"
        "for name in checkpoints.bundled():\n"
        "    print(checkpoints.load(name).path)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    package, *loaded = [Path(line) for line in done.stdout.splitlines()]
    assert package == installed / "nelu_cli" / "__init__.py"
    shipped = sorted(path.name for path in (ROOT / "weights").glob("*.safetensors"))
    assert shipped, "there are no weights to ship"
    assert sorted(loaded) == [installed / "nelu_cli" / "weights" / name for name in shipped]


def test_names_that_are_no_text_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "utf-8", errors="strict"))
    monkeypatch.setattr(sys, "argv", ["nelu", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    print(os.fsdecode(b"\xff.png"), flush=True)
    assert output.getvalue().endswith(b"\\udcff.png\n")


def test_a_failure_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = OSError(28, "No space left on device", "runs/deep/state")
    monkeypatch.setattr(cli, "app", Mock(side_effect=failure))
    assert cli.run(["train"]) == 1
    assert capsys.readouterr().err == "nelu: runs/deep/state: No space left on device\n"
