"""How the process gets its memory."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Let the C library keep large blocks that are freed, for the next ones of the same size.

    By default they go back to the system at once, and each of a network's feature maps is fetched
    anew, page by page. Only glibc has that habit, and only there is anything done. Whole pictures
    of 64 MiB and more still go back: kept, the holes that they leave do not fit the next ones.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            # older versions refuse more than 32 MiB
            mallopt(M_MMAP_THRESHOLD, 1 << 26) or mallopt(M_MMAP_THRESHOLD, 1 << 25)
            mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
