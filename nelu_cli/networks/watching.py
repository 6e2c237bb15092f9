"""How far a network is with a picture, for those who wait for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watcher = Callable[[int, int], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Have ``watcher(rows_done, rows_in_all)`` called in this block, by networks that tell."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def tell(done: int, total: int) -> None:
    """Say how many rows of a picture are done."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(done, total)
