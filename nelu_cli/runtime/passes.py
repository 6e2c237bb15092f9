"""How a network is run over tiles: channel by channel, once or turned; and the memory it takes."""

from collections.abc import Callable

import torch
from torch import Tensor

from nelu_cli.networks import Memory, Network
from nelu_cli.networks.padding import pad_image
from nelu_cli.networks.symmetry import ORIENTATIONS, turned
from nelu_cli.runtime.models import Model
from nelu_cli.words import Quality

FLOAT = 4  # bytes of a pixel in work


def passes(model: Model, quality: Quality) -> Callable[[Tensor], Tensor]:
    """The function that finds the noise in tiles (N, C, h, w)."""
    network = model.network

    def full(image: Tensor) -> Tensor:
        if quality == "best" and not network.symmetric:  # else one pass is the average
            return flip_average(network, image, network.stride)
        noise: Tensor = network(image)
        return noise

    def find(tiles: Tensor) -> Tensor:
        with torch.inference_mode():
            groups = torch.split(tiles, model.channels, dim=1)
            found = [full(group.to(model.device)).cpu() for group in groups]
            return found[0] if len(found) == 1 else torch.cat(found, dim=1)

    return find


def flip_average(fn: Callable[[Tensor], Tensor], image: Tensor, stride: int) -> Tensor:
    """Mean of ``fn`` over the eight symmetries of the square, each undone afterwards.

    ``image`` (B, C, H, W) is first padded to multiples of ``stride`` at the right and bottom, so
    that a flip maps the network's grid onto itself.
    """
    height, width = image.shape[-2:]
    padded = pad_image(image, 0, -width % stride, 0, -height % stride)
    total = torch.zeros_like(padded)
    for g in range(ORIENTATIONS):
        undo = -g % 4 if g < 4 else g  # a reflection undoes itself
        total += turned(fn(turned(padded, g).contiguous()), undo)
    return (total / ORIENTATIONS)[..., :height, :width]


def working_memory(
    network: Network, channels: int, width: int, *, best: bool = False, noise_map: bool = False
) -> list[Memory]:
    """Bytes that a pass over a tile takes, of at most that width; several if each is enough.

    What the network says, and copies of the pixels in float32: the tile and its noise; the sum over
    the eight ways to look at it and what is added to it; the perturbed tile and how it reacts.
    """
    copies = 2 + 4 * best + 4 * noise_map
    pixels = FLOAT * copies * channels
    return [Memory(fixed, per_pixel + pixels) for fixed, per_pixel in network.working_memory(width)]
