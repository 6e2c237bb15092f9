"""Weights files: safetensors that rebuild their own network.

The tensors are the network's; the file's metadata holds one JSON text under the key ``nelu``:
schema version, network family, its config and the record of its training. Nothing is pickled.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from nelu_cli.atomic import write_whole
from nelu_cli.errors import CheckpointError, UsageError
from nelu_cli.networks import Config, Network, build, family

SCHEMA = 1
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class TrainingRecord:
    """Where weights come from: enough to judge them and to make them again."""

    data: tuple[str, ...] = ()
    noise: str = "white"
    sigma: str = ""
    """Levels of the white noise in training on the 0–255 scale: "15" or "0-120"."""
    steps: int = 0
    hours: float = 0.0
    seed: int = 0
    validation: Mapping[str, float] = field(default_factory=dict)
    """PSNR in dB by noise level, on the set named by ``validated_on``."""
    validated_on: str = ""
    chosen_by: tuple[int, ...] = ()
    """The noise levels whose validation chose these weights among those of the run."""
    note: str = ""
    command: str = ""
    date: str = ""
    version: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A network read from a file, ready for inference."""

    name: str
    path: Path
    network: Network
    record: TrainingRecord


@dataclass(frozen=True)
class Description:
    """What a file says of itself, without its tensors."""

    name: str
    path: Path
    config: Config
    record: TrainingRecord
    parameters: int


def save(path: Path, tensors: Mapping[str, Tensor], config: Config, record: TrainingRecord) -> None:
    """Write weights to ``path`` in one atomic step."""
    description = {
        "schema": SCHEMA,
        "network": config.family,
        "config": asdict(config),
        "record": asdict(record),
    }
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"nelu": json.dumps(description)}
    try:
        write_whole(path, safetensors.torch.save(content, metadata))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror})") from error


def load(name_or_path: str | Path) -> Checkpoint:
    """Build the network that a file describes and fill in its weights."""
    described = read_description(name_or_path)
    path = described.path
    with torch.device("meta"):  # shapes only, until the file is known to fit
        network = build(described.config)
    tensors = network.upgrade(safetensors.torch.load_file(path))
    expected = network.state_dict()
    if missing := sorted(expected.keys() - tensors.keys()):
        raise CheckpointError(f"{path}: the tensor {missing[0]} is missing; the file is incomplete")
    if foreign := sorted(tensors.keys() - expected.keys()):
        raise CheckpointError(f"{path}: the tensor {foreign[0]} is not part of its network")
    for name, tensor in tensors.items():
        if (found := _kind(tensor)) != (needed := _kind(expected[name])):
            raise CheckpointError(f"{path}: {name} is {found}, but its network needs {needed}")
        if not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{path}: {name} holds values that are not finite numbers")
    network.load_state_dict(tensors, assign=True)  # in the memory layout of the file
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.requires_grad_(False)
    return Checkpoint(described.name, path, network.eval(), described.record)


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def read_description(name_or_path: str | Path) -> Description:
    """Read and check what a weights file says of itself."""
    path = resolve(name_or_path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a readable weights file ({error})") from error
    if "nelu" not in metadata:
        raise CheckpointError(f"{path}: a safetensors file, but not one of nelu's")
    config, record = _parse(path, metadata["nelu"])
    return Description(path.stem, path, config, record, sum(map(math.prod, shapes)))


def _parse(path: Path, text: str) -> tuple[Config, TrainingRecord]:
    try:
        description: dict[str, Any] = json.loads(text)
        schema = description["schema"]
        if schema != SCHEMA:
            raise CheckpointError(
                f"{path}: written in schema {schema}, this version of nelu reads {SCHEMA}; "
                "upgrade nelu or train again"
            )
        config: Config = family(description["network"]).config(**description["config"])
        known = {entry.name for entry in fields(TrainingRecord)}
        record = {name: value for name, value in description["record"].items() if name in known}
        record["data"] = tuple(map(str, record.get("data", ())))
        record["chosen_by"] = tuple(map(int, record.get("chosen_by", ())))
        levels = record.get("validation", {})
        record["validation"] = {str(level): float(psnr) for level, psnr in levels.items()}
        return config, TrainingRecord(**record)
    except UsageError as error:
        raise CheckpointError(f"{path}: {error}; install the package that brings it") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path}: its description is damaged ({fault})") from error


def resolve(name_or_path: str | Path) -> Path:
    """A bundled name, or else a path to an existing file."""
    folder = _bundled_folder()
    if str(name_or_path) in bundled():
        return folder / f"{name_or_path}{SUFFIX}"
    path = Path(name_or_path)
    if path.is_file():
        return path
    names = ", ".join(bundled()) or "none"
    raise CheckpointError(
        f"{name_or_path}: neither a file nor a bundled model (bundled: {names}; see nelu models)"
    )


def bundled() -> list[str]:
    """Names of the weights that come with the package."""
    return sorted(path.stem for path in _bundled_folder().glob(f"*{SUFFIX}"))


def _bundled_folder() -> Path:
    """weights/ is inside an installed package, and at the top level of a checkout."""
    package = Path(__file__).parent
    installed = package / "weights"
    return installed if installed.is_dir() else package.parent / "weights"
