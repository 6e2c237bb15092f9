"""Denoising that tells how far it is and can be stopped, for those who must not wait for it."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event
from typing import Any

from nelu_cli.runtime.arrays import denoise
from nelu_cli.runtime.lazy import is_lazy


class Stopped(Exception):
    """Somebody asked for it."""


def axes_of_layer(dimensions: int, *, colour: bool) -> str:
    """Axes of a layer's data: rows and columns are the last two, before the samples of a colour."""
    others = dimensions - (3 if colour else 2)
    return "ABCDEFGHIJKLMNOPQRTUVWZ"[:others] + "YX" + ("S" if colour else "")


def denoise_in_steps(
    data: Any, axes: str, model: str | None, strength: float, stop: Event
) -> Generator[float, None, Any]:
    """Yield the share that is done, 0 to 1; return the clean data, which is lazy if ``data`` is.

    Raises:
        Stopped: ``stop`` was set.
    """
    lazy: bool = is_lazy(data)
    if lazy:
        return denoise(data, model, strength=strength, axes=axes)
    told: SimpleQueue[float | None] = SimpleQueue()

    def tell(done: int, total: int) -> None:
        if stop.is_set():
            raise Stopped("stopped")
        told.put(done / total)

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(denoise, data, model, strength=strength, axes=axes, progress=tell)
        work.add_done_callback(lambda _: told.put(None))
        while (share := told.get()) is not None:
            yield share
        return work.result()
