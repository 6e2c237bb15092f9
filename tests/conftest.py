"""What tests of several commands share."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from nelu_cli.cli import run

# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
