"""How much working memory a tile takes."""

from nelu_cli.networks import Memory, Network

__all__ = ["working_memory"]

COPIES = 4
"""Of the pixels in float32, at most, beside what the network takes: the tile, its noise, and what
the noise map looks at."""


def working_memory(network: Network, channels: int, width: int) -> list[Memory]:
    """Bytes that a pass over a tile takes, of at most that width; several if each is enough."""
    pixels = 4 * COPIES * channels
    return [Memory(fixed, per_pixel + pixels) for fixed, per_pixel in network.working_memory(width)]
