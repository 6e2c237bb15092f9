"""Noise that is white from pixel to pixel, but alike in the channels of a colour picture.

So it is in a grey picture that was tinted and stored as colour, or where a stain fills one channel.
A network that knows independent noise takes it for detail. But colours are a choice of axes, and in
others the noise is independent and equally strong.

Let C = U·diag(σ²)·Uᵀ be the covariance of the noise of a pixel's channels. With T = C^(−1/2), the
noise of T·y is white, and n = T⁻¹·network(T·y). Of noise that has one colour u alone, C has no such
root; then n = u·network(uᵀ·y) with a grey network.

C is measured by the grey network, for which each single channel, whichever way the axes are turned,
holds white noise.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nelu_cli.networks import Memory, Network
from nelu_cli.runtime.models import Model

LEAST: Final = 1e-3
"""Of the strongest deviation: what is less counts as this much."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class NoiseColours:
    """Axes u along which the noise is independent, a row each, and its deviations σ along them.

    The strongest comes first.
    """

    axes: Matrix
    deviations: NDArray[np.float64]


def find_colours(crops: Tensor, grey: Model, known: Tensor | None = None) -> NoiseColours:
    """The colours of the noise in crops (N, C, h, w), of which ``known`` says what counts."""
    axes = np.eye(crops.shape[1])
    variances = np.ones(len(axes))
    for _ in range(2):  # the first is misled by detail of brightness, which all channels share
        found = _in_each(crops, axes, grey)
        if known is not None:
            found = found * known.all(1, keepdim=True)
        flat = found.transpose(0, 1).flatten(1).double().numpy()
        variances, turn = np.linalg.eigh(flat @ flat.T / flat.shape[1])
        axes = turn.T[::-1] @ axes
    return NoiseColours(axes, np.sqrt(variances[::-1].clip(min=0)))


@torch.inference_mode()
def _in_each(crops: Tensor, axes: Matrix, grey: Model) -> Tensor:
    """What a grey network finds along each axis."""
    along = mixed(crops, torch.from_numpy(axes).float())
    alone = along.reshape(-1, 1, *along.shape[2:]).to(grey.device)
    found: Tensor = grey.network(alone).cpu().reshape(along.shape)
    return found


def turned(model: Model, colours: NoiseColours) -> Model:
    """A colour model for noise of these colours, T = C^(−1/2)."""
    least = LEAST * colours.deviations.max()
    root = colours.axes.T * colours.deviations.clip(min=max(least, 1e-30)) @ colours.axes
    root /= np.linalg.norm(root, 2)  # the network does not care, bfloat16 and float32 do
    return _in_colours(model, np.linalg.inv(root), root)


def along(grey: Model, colours: NoiseColours) -> Model:
    """A grey model for noise of one colour."""
    axis = colours.axes[:1]
    return _in_colours(grey, axis, axis.T)


def _in_colours(model: Model, into: Matrix, back: Matrix) -> Model:
    exact = None if model.exact is None else _in_colours(model.exact, into, back)
    network = InColours(model.network, into, back).to(model.device)
    return replace(model, network=network, exact=exact, source=None)


class InColours(Network):
    """Another network, given the picture in other colours: n = back·network(into·y)."""

    def __init__(self, network: Network, into: Matrix, back: Matrix) -> None:
        super().__init__()
        self.network, self.config = network, network.config
        self.stride, self.halo = network.stride, network.halo
        self.register_buffer("into", torch.tensor(into, dtype=torch.float32))
        self.register_buffer("back", torch.tensor(back, dtype=torch.float32))
        self.eval()

    def forward(self, image: Tensor) -> Tensor:
        inside: Tensor = self.network(mixed(image, self.get_buffer("into")))
        return mixed(inside, self.get_buffer("back"))

    @property
    def channels(self) -> int:
        return len(self.get_buffer("back"))

    def noise_colours(self) -> Tensor:
        """Those of what it gives back."""
        back = self.get_buffer("back")
        return back / back.square().sum(1).mean().sqrt()

    @property
    def symmetric(self) -> bool:
        return self.network.symmetric

    def working_memory(self, width: int) -> list[Memory]:
        """The network's, and copies of the picture and of its noise in its colours."""
        copies = 4 * 2 * self.network.channels
        needs = self.network.working_memory(width)
        return [Memory(fixed, per_pixel + copies) for fixed, per_pixel in needs]


def mixed(image: Tensor, matrix: Tensor) -> Tensor:
    """Every pixel of (N, C, h, w) times the matrix."""
    return torch.einsum("ij,njhw->nihw", matrix.to(image.dtype), image).contiguous()
