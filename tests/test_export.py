"""Exported networks are the networks: plain operations, ONNX files, what is refused."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nelu_cli import __version__, checkpoints
from nelu_cli.checkpoints import Checkpoint, TrainingRecord
from nelu_cli.errors import CheckpointError
from nelu_cli.export import export_onnx, onnx_file
from nelu_cli.export.portable import portable
from nelu_cli.networks import Config, DeepConfig, Network, PaperConfig, build

Nelu = Callable[..., tuple[int, str, str]]
Image = NDArray[np.float32]
SMALL = DeepConfig(channels=3, widths=(8, 12), blocks=(1, 0), window=(3, 1))
CONFIGS: dict[str, Config] = {
    "deep": SMALL,
    "gated": replace(SMALL, gated=True),
    "one scale": DeepConfig(widths=(8,), blocks=(1,)),
    "kept": DeepConfig(widths=(8, 8), blocks=(0, 1), activation="nelu-kept"),
    "relu": DeepConfig(widths=(8, 8), blocks=(0, 1), activation="relu"),
    "paper": PaperConfig(filters=20, kernel=5, stride=3),
    "paper, signed": PaperConfig(filters=20, kernel=5, stride=3, signed=True, pass_through=True),
    "paper, colour": PaperConfig(channels=3, filters=20, kernel=4, stride=2),
    "paper, unrolled": PaperConfig(filters=20, kernel=5, stride=3, activation="nelu-unrolled"),
    "paper, relu": PaperConfig(filters=20, kernel=5, stride=3, activation="relu"),
    "paper, soft": PaperConfig(filters=20, kernel=5, stride=3, activation="relu", signed=True),
}
SIZES = [(1, 1), (2, 7), (5, 3), (16, 16), (37, 51)]


def network_of(config: Config) -> Network:
    torch.manual_seed(0)
    network = build(config).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("tau") or "gate" in name:  # not all alike
                parameter.add_(0.3 * torch.rand_like(parameter))
    return network


def checkpoint_of(config: Config) -> Checkpoint:
    record = TrainingRecord(data=("photos",), sigma="0-50", steps=7)
    return Checkpoint("mine", Path("mine.safetensors"), network_of(config), record)


@pytest.mark.parametrize("kind", CONFIGS)
def test_plain_operations_give_the_same_at_every_size(kind: str) -> None:
    network = network_of(CONFIGS[kind])
    plain = portable(network)
    with torch.no_grad():
        for height, width in SIZES:
            noisy = torch.rand(2, network.config.channels, height, width)
            torch.testing.assert_close(plain(noisy), network.denoise(noisy), atol=2e-5, rtol=1e-4)


def test_exporting_leaves_the_network_as_it_was() -> None:
    network = network_of(SMALL)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    portable(network).requires_grad_(False)
    assert all(parameter.requires_grad for parameter in network.parameters())
    torch.testing.assert_close(dict(network.state_dict()), before)


# The file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "mine.onnx"
    done = export_onnx(checkpoint_of(SMALL), path)
    assert done.path == path
    assert done.bytes == path.stat().st_size
    assert 0 < done.difference < 1e-5
    return path


@pytest.fixture(scope="module")
def run(file: Path) -> Callable[[Image], Image]:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def call(noisy: Image) -> Image:
        found: Image = session.run(["clean"], {"noisy": noisy})[0]
        return found

    return call


def noise(*shape: int) -> Image:
    return np.random.default_rng(1).random(shape, np.float32)


def test_onnxruntime_and_torch_agree_on_odd_sizes(run: Callable[[Image], Image]) -> None:
    network = network_of(SMALL)
    for height, width in [*SIZES, (101, 77)]:
        noisy = noise(1, 3, height, width)
        with torch.no_grad():
            expected = network.denoise(torch.from_numpy(noisy)).numpy()
        assert np.abs(run(noisy) - expected).max() < 1e-4


def test_the_exported_network_is_scale_equivariant(run: Callable[[Image], Image]) -> None:
    noisy = noise(1, 3, 33, 44)
    np.testing.assert_allclose(run(noisy * 1000), 1000 * run(noisy), rtol=1e-4, atol=1e-2)


def test_tiles_with_the_halo_of_the_metadata_give_the_whole(
    run: Callable[[Image], Image], file: Path
) -> None:
    facts = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    stride, halo = int(facts["stride"]), int(facts["halo"])
    noisy = noise(1, 3, 90, 70)
    side = 6 * stride
    whole, tiled = run(noisy), np.empty_like(noisy)
    for top in range(0, 90, side):
        for left in range(0, 70, side):
            above, before = max(0, top - halo), max(0, left - halo)
            clean = run(noisy[..., above : top + side + halo, before : left + side + halo])
            part = clean[..., top - above :, left - before :][..., :side, :side]
            tiled[..., top : top + side, left : left + side] = part
    assert np.abs(tiled - whole).max() < 1e-5


def test_the_file_describes_itself(file: Path) -> None:
    model = onnx.load(file)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    network = network_of(SMALL)
    assert json.loads(facts.pop("training"))["data"] == ["photos"]
    assert facts == {
        "name": "mine",
        "network": "deep",
        "channels": "3",
        "stride": str(network.stride),
        "halo": str(network.halo),
        "version": __version__,
    }
    for value, name in ((model.graph.input[0], "noisy"), (model.graph.output[0], "clean")):
        assert value.name == name
        sizes = [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        assert sizes == ["batch", 3, "height", "width"]


def test_the_paper_s_network_can_be_exported(tmp_path: Path) -> None:
    done = export_onnx(checkpoint_of(CONFIGS["paper, signed"]), tmp_path / "paper.onnx")
    assert done.difference < 1e-5


# nelu export


def test_a_bundled_model_is_exported(nelu: Nelu, tmp_path: Path) -> None:
    path = tmp_path / "deep.onnx"
    status, out, err = nelu("export", "deep-color", path)
    assert (status, out) == (0, "")
    assert err.startswith(f"deep-color → {path}: ")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    noisy = noise(1, 3, 67, 45)
    with torch.no_grad():
        expected = checkpoints.load("deep-color").network.denoise(torch.from_numpy(noisy)).numpy()
    assert np.abs(session.run(None, {"noisy": noisy})[0] - expected).max() < 1e-4


class Foreign(Network):
    """A network of a family that export knows nothing of."""

    config = DeepConfig(widths=(4,), blocks=(0,))
    stride, halo = 1, 1

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        object.__setattr__(self.config, "family", "foreign")
        self.scale = scale
        self.blur = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, image: Tensor) -> Tensor:
        blurred: Tensor = self.blur(image)
        return blurred * (1 if torch.compiler.is_exporting() else self.scale)


class Untraceable(Foreign):
    def forward(self, image: Tensor) -> Tensor:
        return image if image.sum() > 0 else -image


@pytest.fixture
def foreign() -> Iterator[Callable[[Network], Checkpoint]]:
    yield lambda network: Checkpoint("mine", Path("mine"), network, TrainingRecord())
    object.__delattr__(Foreign.config, "family")


Make = Callable[[Network], Checkpoint]


def test_an_ordinary_network_of_another_family_can_be_exported(
    foreign: Make, tmp_path: Path
) -> None:
    assert export_onnx(foreign(Foreign()), tmp_path / "blur.onnx").difference < 1e-6


def test_one_that_comes_out_different_is_not_written(foreign: Make, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^mine: the exported network differs .* nothing"):
        export_onnx(foreign(Foreign(0.9)), tmp_path / "blur.onnx")
    assert list(tmp_path.iterdir()) == []


def test_one_that_cannot_be_traced_is_refused_in_one_line(foreign: Make, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^mine: this network cannot be exported \(.+\)$"):
        export_onnx(foreign(Untraceable()), tmp_path / "sum.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(
    nelu: Nelu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    status, out, err = nelu("export", "deep-gray", tmp_path / "deep.onnx")
    assert (status, out) == (1, "")
    assert err == f"nelu: exporting needs the package {name}: pip install 'nelu-cli[onnx]'\n"


def test_existing_files_and_other_names_are_refused(nelu: Nelu, tmp_path: Path) -> None:
    taken = tmp_path / "deep.onnx"
    taken.write_text("mine")
    assert nelu("export", "deep-gray", taken) == (
        1,
        "",
        f"nelu: {taken}: exists already; --force replaces it\n",
    )
    other = tmp_path / "deep.pt"
    assert nelu("export", "deep-gray", other) == (
        2,
        "",
        f"nelu: {other}: an ONNX file; let its name end in .onnx\n",
    )
    assert taken.read_text() == "mine"


def test_the_exporter_s_remarks_are_silenced_and_then_heard_again() -> None:
    logger = logging.getLogger("torch.onnx")
    with onnx_file._silence():
        assert not logger.isEnabledFor(logging.WARNING)
        assert logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.WARNING)
