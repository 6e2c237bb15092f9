"""What tests of several commands share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nelu_cli.cli import run

Nelu = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nelu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Nelu:
    """Run a command line; return its status, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call
