"""How the process gets its memory."""

import ctypes
import sys
from collections.abc import Callable

__all__ = ["keep_freed_memory", "release_freed_memory"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Let the C library keep large blocks that are freed, for the next ones of the same size.

    By default they go back to the system at once, and each of a network's feature maps is fetched
    anew, page by page. Only glibc has that habit, and only there is anything done.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def release_freed_memory() -> None:
    """Give back what was kept: blocks of other sizes than before would not fit into it."""
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_glibc(name: str) -> Callable[..., object] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
