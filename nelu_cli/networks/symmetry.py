"""Weights that treat a picture alike however it is turned or mirrored: f(T_g y) = T_g f(y).

T_g are the eight turns and reflections of a square. The channels of a layer come in groups of
eight, one for each h, which move with the picture: channel h for y, turned by g, is channel g·h for
T_g y. A convolution keeps to that if its weights do,

    W[g·h, g·i] = T_g W[h, i]   for output channel h and input channel i of their groups,

so that each weight is one of eight that are equal, its *orbit*; the cells of a pixel-unshuffled
picture take the place of channels at both ends. Sums, ReLU, and NeLU with one τ for a group keep to
it by themselves.

Training stays among such weights if it starts there and each gradient is averaged over the orbits:
AdamW treats equal entries equally, and Muon's U·Vᵀ of a matrix M = P·M·Qᵀ is the same again under
the permutations P and Q. Whatever the network learns from one orientation it then knows in all
eight.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

ORIENTATIONS = 8


def turned(x: Tensor, g: int, dims: tuple[int, int] = (-2, -1)) -> Tensor:
    """T_g: mirrored if g ≥ 4, then turned by g mod 4 quarters."""
    return torch.rot90(x.flip(dims[1]) if g >= 4 else x, g % 4, dims)


class Symmetry:
    """The orbits of the weights of a :class:`nelu_cli.networks.DeepAutoencoder`."""

    def __init__(self, network: nn.Module) -> None:
        self.orbits = {name: _orbits(name, p.shape) for name, p in network.named_parameters()}

    def average(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Give all weights of an orbit their mean, in place."""
        for name, tensor in tensors:
            orbits = self.orbits[name]
            flat = tensor.flatten().clone()
            flat[orbits] = flat[orbits].mean(1, keepdim=True).expand_as(orbits)
            tensor.copy_(flat.view(tensor.shape))

    @torch.no_grad()
    def impose(self, network: nn.Module) -> None:
        """Make random weights symmetric, and as large as they were: the mean of 8 is √8 smaller."""
        self.average(network.named_parameters())
        for parameter in network.parameters():
            if parameter.ndim == 4:
                parameter.mul_(ORIENTATIONS**0.5)

    def holds(self, tensors: Mapping[str, Tensor], tolerance: float = 1e-4) -> bool:
        """Whether the weights are symmetric, up to rounding."""
        for name, tensor in tensors.items():
            of_orbits = tensor.flatten()[self.orbits[name]]
            if (of_orbits - of_orbits[:, :1]).abs().max() > tolerance * tensor.abs().max():
                return False
        return True


def _orbits(name: str, shape: torch.Size) -> Tensor:
    """Indices into the flattened weights, (number of orbits, 8)."""
    places = torch.arange(shape.numel()).view(shape)
    moved = torch.stack([_moved(name, places, g).flatten() for g in range(ORIENTATIONS)])
    return moved[:, moved[0] == moved.amin(0)].mT.contiguous()


def _moved(name: str, weights: Tensor, g: int) -> Tensor:
    """What g makes of weights: τ (channels,), or kernels (out, in, k, k)."""
    if weights.ndim == 1:
        return _moved_channels(weights, g, 0)
    first, second = _moved_channels, _moved_channels
    if name == "tail.weight":
        first = _moved_cells
    if name == "head.weight":
        second = _moved_cells
    return first(second(turned(weights, g), g, 1), g, 0)


def _moved_channels(weights: Tensor, g: int, axis: int) -> Tensor:
    before, after = weights.shape[:axis], weights.shape[axis + 1 :]
    groups = weights.reshape(*before, -1, ORIENTATIONS, *after)
    return groups.index_select(axis + 1, _products(g).argsort()).reshape(weights.shape)


def _moved_cells(weights: Tensor, g: int, axis: int) -> Tensor:
    """The four pixels of a cell change places; each colour stays."""
    cells = weights.reshape(*weights.shape[:axis], -1, 2, 2, *weights.shape[axis + 1 :])
    return turned(cells, g, (axis + 1, axis + 2)).reshape(weights.shape)


def _products(g: int) -> Tensor:
    """g·h for each h: first h, then g."""
    corners = torch.arange(4).view(2, 2)
    known = [turned(corners, h) for h in range(ORIENTATIONS)]
    products = [turned(corner, g) for corner in known]
    return torch.tensor([[torch.equal(p, k) for k in known].index(True) for p in products])
