"""What tests of several commands share."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nelu_cli import checkpoints
from nelu_cli.cli import run
from nelu_cli.networks import DeepConfig, build
from nelu_cli.runtime.models import default_models

# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def float32_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results on every machine; tests of bfloat16 ask for it."""
    monkeypatch.setattr("nelu_cli.runtime.precision.bfloat16_pays", lambda device: False)


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


@pytest.fixture(scope="session")
def weights_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grey and a colour network, small and random, under the names of the bundled ones."""
    folder = tmp_path_factory.mktemp("weights")
    for name, channels in (("deep-gray", 1), ("deep-color", 3)):
        torch.manual_seed(channels)
        config = DeepConfig(channels=channels, widths=(4, 4, 4), blocks=(1, 0, 0), window=1)
        state = build(config).state_dict()
        path = folder / f"{name}.safetensors"
        checkpoints.save(path, state, config, checkpoints.TrainingRecord())
    return folder


@pytest.fixture
def small_models(weights_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Small random networks in place of the bundled ones."""
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: weights_folder)
    default_models.cache_clear()
    yield weights_folder
    default_models.cache_clear()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Smooth shapes with edges: something that can be denoised."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(4):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        coarse.resize((48, 40), Image.Resampling.NEAREST).save(folder / f"{number}.png")
    return folder
