"""Work that torch does not split by itself, spread over its threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MOST = 8
"""Threads at most: each item in work takes memory of its own."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_count() -> int:
    """How many items :func:`map_in_threads` has in work at a time."""
    return min(torch.get_num_threads(), MOST)


def map_in_threads(fn: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """``fn`` of each item, in order, without gradients: an item on each of torch's threads.

    No more items are in work, or done and not yet taken, than there are threads.
    """
    allowed, threads = torch.get_num_threads(), thread_count()

    @torch.inference_mode(torch.is_inference_mode_enabled())
    @torch.no_grad()
    def run(item: Item) -> Result:
        return fn(item)

    if threads == 1:
        yield from map(run, items)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for first in range(0, len(items), threads):
                yield from pool.map(run, items[first : first + threads])
    finally:
        torch.set_num_threads(allowed)  # threads to come would else have one, too
