"""Which of several processes this is, where a run is split over some."""

from torch import distributed as dist


def world() -> int:
    """How many processes share a run."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """The number of this one; 0 writes the files."""
    return dist.get_rank() if dist.is_initialized() else 0
