"""A network of another package: found by its entry point, trained, listed and used like ours."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from conftest import Nelu
from PIL import Image

from nelu_cli import checkpoints
from nelu_cli.checkpoints import TrainingRecord
from nelu_cli.errors import CheckpointError, NeluError, UsageError
from nelu_cli.networks import DeepConfig, PaperConfig, build, family, family_names

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nelu_cli.networks import Family, Memory, Network, Recipe


@dataclass(frozen=True)
class BlurConfig:
    family: ClassVar[str] = "blur"
    channels: int = 1
    reach: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.reach <= 20:
            raise ValueError("the reach must be from 1 to 20")


class Blur(Network):
    """The noise is a learned share of what a blur takes away."""

    stride = 1

    def __init__(self, config: BlurConfig) -> None:
        super().__init__()
        self.config = config
        self.halo = config.reach
        self.share = nn.Parameter(torch.tensor(0.5))

    def forward(self, image: Tensor) -> Tensor:
        size, reach = 2 * self.config.reach + 1, self.config.reach
        blurred = nn.functional.avg_pool2d(image, size, 1, reach, count_include_pad=False)
        return self.share * (image - blurred)

    def working_memory(self, width: int) -> list[Memory]:
        return [Memory(0, 12 * self.config.channels)]

    def facts(self) -> dict[str, object]:
        return {"share": float(self.share)}


FAMILY = Family(
    about="a learned share of a blur",
    config=BlurConfig,
    build=Blur,
    recipes={"nelu": Recipe(BlurConfig(reach=2), {"sigma255": (25.0, 25.0), "patch": 32})},
)
NO_FAMILY = Blur
'''


def install(site: Path, entry: str = "blur_network:FAMILY", module: str = MODULE) -> Path:
    """What an installer leaves of the package ``blur-network``; return its entry points."""
    (site / "blur_network.py").write_text(module)
    facts = site / "blur_network-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: blur-network\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[nelu.networks]\nblur = {entry}\n")
    return facts / "entry_points.txt"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages, on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "blur_network", raising=False)
    return folder


def test_our_own_families_are_there_without_any_package() -> None:
    assert family_names()[:2] == ["paper", "deep"]
    for name in ("paper", "deep"):
        assert family(name).name == name
        for recipe in family(name).recipes.values():
            assert recipe.config.family == name


def test_a_foreign_network_is_trained_listed_and_used(
    site: Path, pictures: Path, tmp_path: Path, nelu: Nelu
) -> None:
    install(site)
    assert family_names() == ["paper", "deep", "blur"]
    out = tmp_path / "run"
    settings = ["--steps", "3", "--batch", "2", "--data", pictures, "--quiet"]
    status, _, err = nelu("train", "--network", "blur", "--out", out, *settings)
    assert status == 0, err
    weights = out / "best.safetensors"
    header = checkpoints.read_description(weights)
    assert (header.config.family, header.record.sigma) == ("blur", "25")
    status, text, _ = nelu("models", weights)
    assert status == 0
    assert "blur" in text
    status, text, _ = nelu("models", weights, "--json")
    described = json.loads(text)
    assert described["config"] == {"channels": 1, "reach": 2}
    assert 0 < described["share"] < 1
    source, target = pictures / "0.png", tmp_path / "clean.png"
    status, _, err = nelu("denoise", source, target, "--model", weights, "--json")
    assert status == 0, err
    before, after = (np.asarray(Image.open(path)).astype(float) for path in (source, target))
    assert np.var(np.diff(after, axis=0)) < np.var(np.diff(before, axis=0))
    status, _, err = nelu("train", "--resume", "--out", out, "--steps", "5", "--quiet")
    assert status == 0, err
    status, _, err = nelu("train", "--network", "blur", "--signed", "--out", tmp_path / "x")
    assert status == 2
    assert err == (
        "nelu: --signed/--nonnegative is not an option of --network blur; leave it out\n"
    )


def test_without_the_package_its_weights_say_what_is_missing(
    site: Path, tmp_path: Path, nelu: Nelu
) -> None:
    entry_points = install(site)
    network = build(family("blur").config())
    file = tmp_path / "blur.safetensors"
    checkpoints.save(file, network.state_dict(), network.config, TrainingRecord())
    entry_points.unlink()
    status, _, err = nelu("models", file)
    assert status == 1
    assert err == (
        f"nelu: {file}: there is no network 'blur' here; there are paper, deep; "
        "install the package that brings it\n"
    )


@pytest.mark.parametrize(
    ("entry", "module", "fault"),
    [
        ("blur_network:GONE", MODULE, r"blur_network:GONE fails \(AttributeError: .*GONE"),
        ("blur_network:FAMILY", "import not_there", r"fails \(ModuleNotFoundError: .*not_there"),
        ("blur_network:FAMILY", "1 / 0", r"fails \(ZeroDivisionError: division by zero\)"),
        ("blur_network:NO_FAMILY", MODULE, "is not a family of that name"),
        (
            "blur_network:FAMILY",
            MODULE.replace('str] = "blur"', 'str] = "other"'),
            "is not a family of that name",
        ),
        (
            "blur_network:FAMILY",
            MODULE.replace('recipes={"nelu"', 'recipes={"other"'),
            "the family blur has no recipe 'nelu'",
        ),
    ],
)
def test_a_broken_package_is_one_line(entry: str, module: str, fault: str, site: Path) -> None:
    install(site, entry, module)
    with pytest.raises(NeluError, match=f"^network 'blur': .*{fault}"):
        family("blur")


def test_no_package_can_take_the_place_of_ours(site: Path) -> None:
    install(site).write_text("[nelu.networks]\ndeep = blur_network:FAMILY\n")
    assert family("deep").config is DeepConfig
    assert family_names() == ["paper", "deep"]


def test_unknown_networks_are_named_with_what_there_is() -> None:
    with pytest.raises(UsageError, match="there is no network 'wide' here; there are paper, deep"):
        family("wide")


# What a file can ask for


def file_with(path: Path, network: str, config: object) -> Path:
    description = {"schema": 1, "network": network, "config": config, "record": {}}
    metadata = {"nelu": json.dumps(description)}
    path.write_bytes(safetensors.torch.save({"a": torch.zeros(1)}, metadata))
    return path


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"widths": [8], "blocks": [10000]}, "there are at most 200 blocks"),
        ({"widths": [8] * 4, "blocks": [30] * 4}, "there are at most 200 blocks"),
        ({"widths": [8] * 9, "blocks": [0] * 9}, "there are at most 8 scales"),
        (
            {"widths": [8], "blocks": [1], "window": 101},
            "window must be whole numbers from 1 to 99",
        ),
    ],
)
def test_what_would_take_long_to_build_is_refused_before(
    config: object, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "build", lambda config: pytest.fail("was built"))
    with pytest.raises(CheckpointError, match=fault):
        checkpoints.load(file_with(tmp_path / "large.safetensors", "deep", config))


def test_soft_of_older_files_is_relu_with_signed_codes(tmp_path: Path) -> None:
    config = PaperConfig(filters=10, kernel=5, stride=3, activation="relu", signed=True)
    path = tmp_path / "old.safetensors"
    checkpoints.save(path, build(config).state_dict(), config, TrainingRecord())
    content = path.read_bytes()
    old = content.replace(rb"\"relu\", \"signed\": true", rb"\"soft\", \"signed\":false")
    assert old != content
    path.write_bytes(old)
    assert checkpoints.load(path).network.config == config
