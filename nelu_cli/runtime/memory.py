"""How much working memory a tile takes."""

from nelu_cli.networks import Memory, Network

FLOAT = 4  # bytes of a pixel in work


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
