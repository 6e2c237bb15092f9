"""How much working memory a network takes."""

from nelu_cli.networks import DeepConfig, Network
from nelu_cli.networks.deep import DEEP_STRIP, FEW_STRIPS, LEAST_ROWS
from nelu_cli.networks.paper import STRIP
from nelu_cli.networks.parallel import thread_count

__all__ = ["working_memory"]


def working_memory(network: Network, channels: int, width: int) -> list[tuple[int, int]]:
    """Bytes that a pass over a tile takes, of at most that width: in any case, and for each pixel.

    Several such pairs if each is enough. They count the feature maps, or strips of them, that are
    alive at the peak of a pass, as measured on the CPU (growth of the resident size, and PyTorch's
    own count of its allocations, which the tests repeat), rounded up; and the pixels' own copies in
    float.
    """
    config = network.config
    if isinstance(config, DeepConfig):  # 4 bytes a sample, a quarter of the pixels at 1/2
        most = [max(pair) for pair in zip(config.widths, config.insides, strict=True)]
        maps = [size >> 2 * scale for scale, size in enumerate(most)]
        whole = max(6 * size + sum(maps[:scale]) for scale, size in enumerate(maps))
        row = 4 * max(maps) * -(-width // 2)
        strip = max(4 * DEEP_STRIP * max(maps) // config.widths[0], LEAST_ROWS * row)
        in_strips = 6 * FEW_STRIPS * strip + network.halo * row
        return [(0, whole + 16 * channels), (in_strips, 16 * channels)]
    patch = config.channels * config.kernel**2
    at_once = thread_count() * max(STRIP, width + config.kernel)  # patches: a strip on each thread
    held = 5 * at_once * max(5 * patch + 3 * config.filters, patch + 7 * config.filters)
    return [(held, 64 * config.channels + 32 * channels)]
