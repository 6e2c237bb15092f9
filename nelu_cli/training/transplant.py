"""Beginning a run with the weights of another network."""

from pathlib import Path

import torch
from torch import Tensor

from nelu_cli import checkpoints
from nelu_cli.errors import TrainingError
from nelu_cli.networks import hidden_channels, is_idle
from nelu_cli.networks.symmetry import ORIENTATIONS
from nelu_cli.training.run import Run


def start_from(run: Run, name_or_path: str | Path) -> list[str]:
    """Take over the tensors of other weights, where names and shapes agree.

    From grey to colour, the first layer looks at the mean of the colours and the last one gives
    the same for each; from colour to grey, they do what they did to a picture of three equal
    colours. A scale or a block that the other weights do not have adds nothing at first,
    nor does a block that had died in them: it begins afresh. Returns the names of those blocks. Of
    a block that is to have fewer hidden channels, the strongest remain.
    """
    other = checkpoints.load(name_or_path).network.to(run.device)
    patches = run.training.batch(0, range(8), run.config.patch).noisy.to(run.device)
    colours = [number % patches.shape[1] for number in range(other.channels)]
    hidden = hidden_channels(other, patches[:, colours])
    source = other.state_dict()
    own = run.network.state_dict()
    for block, channels in hidden.items():
        first, second = f"{block}.first.weight", f"{block}.second.weight"
        if first in own and len(own[first]) < len(source[first]):
            energy = channels.square().mean((0, 2, 3)) * source[second].square().sum((0, 2, 3))
            keep = _largest(energy, len(own[first]), ORIENTATIONS if run.symmetry else 1)
            source[first], source[second] = source[first][keep], source[second][:, keep]
    taken = {}
    for name, fresh in own.items():
        tensor = source.get(name)
        if tensor is not None and name in ("head.weight", "tail.weight"):
            tensor = _in_colours(tensor, name, fresh.shape)
        if tensor is not None and tensor.shape == fresh.shape:
            taken[name] = tensor
    if not taken:
        raise TrainingError(f"{name_or_path}: has nothing in common with the network to train")
    if run.symmetry and not run.symmetry.holds(taken):
        raise TrainingError(
            f"{name_or_path}: is not symmetric; leave out --symmetry, or start afresh"
        )
    idle = [
        block
        for block, channels in hidden.items()
        if is_idle(channels) and f"{block}.first.weight" in taken
    ]
    for block in idle:
        del taken[f"{block}.first.weight"], taken[f"{block}.second.weight"]
    new = {name: fresh for name, fresh in own.items() if name not in taken}
    outputs = ("up.", "second.", "gate")  # the last layers of a scale and of a block, and gains
    taken |= {n: torch.zeros_like(p) for n, p in new.items() if any(x in n for x in outputs)}
    for network in (run.network, run.averaged):
        network.load_state_dict(taken, strict=False)
    return idle


def _in_colours(tensor: Tensor, name: str, shape: torch.Size) -> Tensor:
    """The first or last convolution, for another number of colours."""
    axis = 1 if name == "head.weight" else 0
    share = 3 if name == "head.weight" else 1  # the head adds up what the colours give it
    if 3 * tensor.shape[axis] == shape[axis]:
        return torch.cat([tensor] * 3, axis) / share
    if tensor.shape[axis] == 3 * shape[axis]:
        return torch.stack(tensor.tensor_split(3, axis)).mean(0) * share
    return tensor


def _largest(values: Tensor, count: int, group: int) -> Tensor:
    """Indices of the ``count`` largest values, in order; only whole groups of neighbours."""
    chosen = values.view(-1, group).sum(1).topk(count // group).indices.sort().values
    return (chosen[:, None] * group + torch.arange(group)).flatten()
