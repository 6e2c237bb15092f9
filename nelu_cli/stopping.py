"""Ctrl-C, SIGTERM and SIGHUP: all three end a command in the same way.

Until a command has begun there is nothing to clean up: one line, and the process ends. From then
on they raise :class:`Stopped` in the main thread, so that files are finished or removed, and what
is known is told. The exit status is 128 and the signal's number.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
_seen: list[int] = []


class Stopped(KeyboardInterrupt):
    """Somebody wants this to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def end_at_once() -> None:
    """End without ado; for the time in which modules are imported."""
    _handle(_leave)


def raise_stopped() -> None:
    """Raise :class:`Stopped` from now on."""
    _handle(_raise)


def stopped_by(error: BaseException) -> int | None:
    """The number of the signal behind an exception, if there is one.

    An interrupted import may end in any exception, so a signal that was seen explains it.
    """
    if isinstance(error, Stopped):
        return error.number
    if isinstance(error, KeyboardInterrupt):
        return int(signal.SIGINT)
    return _seen[-1] if _seen else None


@contextmanager
def interrupted_later() -> Iterator[None]:
    """Let Ctrl-C and its like wait, so that what is inside is done whole or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal comes here
        return
    waiting: list[int] = []
    usual = {number: signal.getsignal(number) for number in _SIGNALS}
    held = [number for number in _SIGNALS if callable(usual[number])]
    for number in held:
        signal.signal(number, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, usual[number])
        if waiting:
            signal.raise_signal(waiting[0])


def _handle(action: "signal._HANDLER") -> None:
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, action)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"nelu: interrupted\n")
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    raise Stopped(number)
