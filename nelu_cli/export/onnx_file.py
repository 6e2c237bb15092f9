"""Write a network as an ONNX file, and check the file against torch before anybody uses it."""

import contextlib
import importlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from nelu_cli import __version__
from nelu_cli.atomic import atomic_file
from nelu_cli.checkpoints import Checkpoint
from nelu_cli.errors import CheckpointError
from nelu_cli.export.portable import portable
from nelu_cli.networks import Network

OPSET = 18
TOLERANCE = 1e-4  # of pixel values between 0 and 1
INPUT, OUTPUT = "noisy", "clean"
_AXES = ("batch", None, "height", "width")  # which of them are free
_TRACED = (2, 45, 70)  # batch, height and width: nothing that a size could be mistaken for
_CHECKED = ((1, 1, 1), (1, 37, 51), (2, 64, 29))


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    bytes: int
    difference: float
    """The largest difference between onnxruntime and torch, for pixel values between 0 and 1."""


def export_onnx(checkpoint: Checkpoint, path: Path) -> Exported:
    """Write the network of a checkpoint to ``path``, whole or not at all.

    The graph maps ``noisy`` (batch, channels, height, width) to ``clean`` of the same shape, for
    any batch, height and width, in float32. Its metadata hold name, network, channels, stride,
    halo, the record of the training and the version of nelu.

    Raises:
        CheckpointError: a package is missing, the network cannot be exported, or the exported one
            differs from torch.
        OSError: the file cannot be written.
    """
    onnx, runtime = (_import(name) for name in ("onnx", "onnxruntime"))
    _import("onnxscript")
    network = checkpoint.network
    plain = portable(network).cpu().float().eval().requires_grad_(False)
    model = _traced(plain, network.config.channels, checkpoint.name)
    _name_axes(model)
    model.producer_name, model.producer_version = "nelu", __version__
    facts = {
        "name": checkpoint.name,
        "network": network.config.family,
        "channels": str(network.config.channels),
        "stride": str(network.stride),
        "halo": str(network.halo),
        "training": json.dumps(asdict(checkpoint.record)),
        "version": __version__,
    }
    onnx.helper.set_model_props(model, facts)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    difference = _difference(runtime, content, network.cpu().float())
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"{checkpoint.name}: the exported network differs from torch by {difference:.1e}; "
            "nothing was written"
        )
    with atomic_file(path) as handle:
        handle.write(content)
    return Exported(path, len(content), difference)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CheckpointError(
            f"exporting needs the package {name}: pip install 'nelu-cli[onnx]'"
        ) from error


def _traced(network: nn.Module, channels: int, name: str) -> Any:
    """The ONNX model of a network."""
    batch, height, width = _TRACED
    free = {axis: torch.export.Dim.DYNAMIC for axis, label in enumerate(_AXES) if label}
    with _silence():
        try:
            program = torch.onnx.export(
                network,
                (torch.rand(batch, channels, height, width),),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=(free,),
            )
        except Exception as error:  # the tracer raises nearly anything on code it cannot follow
            reason = " ".join(str(error).split())[:160]
            raise CheckpointError(f"{name}: this network cannot be exported ({reason})") from error
    assert program is not None
    return program.model_proto


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the exporter's remarks about other packages and its own future to itself."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _name_axes(model: Any) -> None:
    """Call the free sizes of input and output by their names, and forget those in between."""
    for value in (model.graph.input[0], model.graph.output[0]):
        for label, size in zip(_AXES, value.type.tensor_type.shape.dim, strict=True):
            if label:
                size.dim_param = label
    del model.graph.value_info[:]


def _difference(runtime: ModuleType, content: bytes, network: Network) -> float:
    """The largest difference between what onnxruntime and torch make of some noise."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(0)
    channels = session.get_inputs()[0].shape[1]
    largest = 0.0
    for batch, height, width in _CHECKED:
        noisy = torch.rand(batch, channels, height, width, generator=generator)
        (found,) = session.run(None, {INPUT: noisy.numpy()})
        with torch.no_grad():
            expected = network.denoise(noisy).numpy()
        largest = max(largest, float(np.abs(found - expected).max()))
    return largest
