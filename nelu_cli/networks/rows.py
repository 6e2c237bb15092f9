"""Feature maps as strips of rows that pass from layer to layer, so that none is ever there whole.

A layer is a function of strips: given the next one of its input, it returns the rows that can be
computed by now, or None. Of what it has seen it keeps only the rows that its next result will look
at. All layers together then hold about as many rows as an output pixel depends on, however tall the
picture is, and compute every row once. That needs little memory, and getting new memory from the
system is what a first pass over a large picture waits for.

Nothing here is for training: results are written into memory that exists.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nelu_cli.networks.blocks import over_rms, spread, unit
from nelu_cli.operators import (
    PIECE,
    NeLU,
    WindowMeans,
    lam_of_entries,
    shrink,
    squared_norms,
    window_quotient,
    window_sums,
)

ABOVE, BELOW = 3, 1
"""Rows of memory kept free before and after a strip, for what a convolution has to see there."""


class Strip(NamedTuple):
    """The next rows of a feature map, (B, C, n, W) in channels_last."""

    rows: Tensor
    last: bool
    room: Tensor | None = None
    """The rows with ABOVE and BELOW, whatever these contain, if they have been allocated so."""

    def after(self, known: Tensor | None) -> Tensor:
        """``known`` (a row of zeros at first), the strip, and a row of zeros in the end, in one.

        It takes the room of the strip.
        """
        room = self.room
        if room is None:
            room = _room(self.rows, self.rows.shape[2])
            room[:, :, ABOVE:-BELOW] = self.rows
        first = ABOVE - (1 if known is None else known.shape[2])
        room[:, :, first:ABOVE] = 0 if known is None else known
        if self.last:
            room[:, :, -BELOW:] = 0
            return room[:, :, first:]
        return room[:, :, first:-BELOW]


def _room(like: Tensor, count: int) -> Tensor:
    batch, channels, _, width = like.shape
    return like.new_empty(batch, ABOVE + count + BELOW, width, channels).movedim(-1, 1)


def _strip(like: Tensor, count: int, last: bool) -> Strip:
    """A strip with room, to be filled."""
    room = _room(like, count)
    return Strip(room[:, :, ABOVE:-BELOW], last, room)


def through(layer: Callable[[Strip], Strip | None], strips: Iterator[Strip]) -> Iterator[Strip]:
    """What a layer makes of strips. (A generator would hold on to those it has done with.)"""
    return filter(None, map(layer, strips))


def fork(strips: Iterator[Strip]) -> tuple[Iterator[Strip], Iterator[Strip]]:
    """Two iterators over the same strips, which wait for the slower of them.

    (``itertools.tee`` would keep dozens that both have done with.)
    """
    waiting: tuple[deque[Strip], deque[Strip]] = (deque(), deque())

    def branch(own: deque[Strip]) -> Iterator[Strip]:
        while own or _fetch():
            yield own.popleft()

    def _fetch() -> bool:
        strip = next(strips, None)
        if strip is not None:
            for queue in waiting:
                queue.append(strip)
        return strip is not None

    return branch(waiting[0]), branch(waiting[1])


class Queue:
    """Rows that wait to be taken in other portions."""

    def __init__(self, strips: Iterator[Strip] | None = None) -> None:
        self.strips = strips or iter(())  # where more come from
        self.waiting: deque[Tensor] = deque()

    def put(self, rows: Tensor) -> None:
        self.waiting.append(rows)

    def take(self, count: int) -> list[Tensor]:
        """The next ``count`` rows, in one or more pieces."""
        pieces = []
        while count:
            rows = self.waiting.popleft() if self.waiting else self._fetched()
            if rows.shape[2] > count:
                self.waiting.appendleft(rows[:, :, count:])
                rows = rows[:, :, :count]
            pieces.append(rows)
            count -= rows.shape[2]
        return pieces

    def _fetched(self) -> Tensor:
        strip = next(self.strips, None)
        if strip is None:  # StopIteration would end the layers above, in silence
            raise RuntimeError("a layer was asked for more rows than there are")
        return strip.rows


class Even:
    """The same rows, an even number of them in each strip."""

    def __init__(self) -> None:
        self.odd: Tensor | None = None

    def __call__(self, strip: Strip) -> Strip | None:
        if self.odd is not None:
            strip = Strip(torch.cat([self.odd, strip.rows], 2), strip.last)
            self.odd = None
        count = strip.rows.shape[2] // 2 * 2
        if count < strip.rows.shape[2]:
            self.odd = strip.rows[:, :, count:].clone()
            strip = Strip(strip.rows[:, :, :count], strip.last)
        return strip if count else None


class Convolution:
    """``F.conv2d(…, padding=1)`` with a kernel of stride + 2 rows, for multiples of stride rows."""

    def __init__(self, kernel: Tensor, stride: int = 1) -> None:
        self.kernel = kernel
        self.stride = stride
        self.known: Tensor | None = None  # rows that the next result looks at, too

    def __call__(self, strip: Strip) -> Strip | None:
        return self.of(strip.after(self.known), strip.last)

    def of(self, seen: Tensor, last: bool) -> Strip | None:
        """The result for a strip that follows what is known, in one piece."""
        count = (seen.shape[2] - 2) // self.stride * self.stride
        self.known = seen[:, :, count:].clone()  # a view would hold all of the memory
        if not count:
            return None
        seen = seen[:, :, : count + 2]
        return Strip(F.conv2d(seen, self.kernel, stride=self.stride, padding=(0, 1)), last)


class Residual:
    """x + conv(ReLU(conv(x))) with the two kernels, with gains if there is a gate."""

    def __init__(self, first: Tensor, second: Tensor, gate: Tensor | None = None) -> None:
        self.hide, self.update, self.gate = Convolution(first), Convolution(second), gate
        self.before = 1  # rows of zeros that what is known of x begins with

    def __call__(self, strip: Strip) -> Strip | None:
        seen = strip.after(self.hide.known)
        raw = self.hide.of(seen, strip.last)
        if raw is None:
            return None
        x, self.before = seen[:, :, self.before :], 0
        hidden = _strip(raw.rows, raw.rows.shape[2], strip.last)
        torch.clamp_min(raw.rows, 0, out=hidden.rows)
        del raw  # whose memory is then free for the next result
        if self.gate is not None:
            here = seen[:, :, 1:-1]
            gains = F.conv2d(here, self.gate)  # less 1
            gains.mul_(spread(over_rms(here), gains))
            hidden.rows.addcmul_(hidden.rows, gains)
            del gains
        update = self.update(hidden)
        if update is None:
            return None
        count = update.rows.shape[2]
        result = _strip(update.rows, count, strip.last)
        torch.add(x[:, :, :count], update.rows, out=result.rows)
        return result


class Down:
    """``F.conv2d(…, stride=2)`` with a 2×2 kernel, in strips of at least so many rows."""

    def __init__(self, kernel: Tensor, least: int) -> None:
        self.kernel = kernel
        self.least = least
        self.even = Even()
        self.ready: list[Tensor] = []

    def __call__(self, strip: Strip) -> Strip | None:
        even = self.even(strip)
        if even is not None:
            self.ready.append(F.conv2d(even.rows, self.kernel, stride=2))
        if not strip.last and sum(rows.shape[2] for rows in self.ready) < self.least:
            return None
        joined, self.ready = _joined(self.ready), []
        return Strip(joined, strip.last)


class Rise:
    """``F.conv_transpose2d(…, stride=2)`` of the coarser scale, with a 2×2 kernel, plus the codes.

    Two 1×1 convolutions, one for the even rows and one for the odd ones, which is faster. The sum
    takes the memory of the codes. With a gate, the codes have gains.
    """

    def __init__(
        self, coarser: Iterator[Strip], weight: Tensor, gate: Tensor | None = None
    ) -> None:
        self.coarser = Queue(coarser)
        self.kernels, self.gates = _of_rows(weight), None if gate is None else _of_rows(gate)
        self.even = Even()

    def __call__(self, codes: Strip) -> Strip | None:
        even = self.even(codes)
        if even is None:
            return None
        batch, channels, count, width = even.rows.shape
        x = _joined(self.coarser.take(count // 2))

        def raised(x: Tensor, kernel: Tensor) -> Tensor:
            return F.conv2d(x, kernel).movedim(1, -1).reshape(batch, -1, width, channels)

        direction = x if self.gates is None else unit(x)
        for parity, kernel in enumerate(self.kernels):
            row = even.rows[:, :, parity::2].movedim(1, -1)
            if self.gates is not None:
                row.addcmul_(row, raised(direction, self.gates[parity]))
            row += raised(x, kernel)
        return even


def _of_rows(weight: Tensor) -> Tensor:
    """Of a 2×2 kernel (in, out, 2, 2) those of the even and the odd rows, (2, 2·out, in, 1, 1)."""
    return weight.permute(2, 3, 1, 0).flatten(1, 2)[..., None, None]


class RowNeLU:
    """A layer of signed codes with a window: see :func:`nelu_cli.operators.nelu`."""

    def __init__(self, layer: NeLU) -> None:
        if layer.window is None or layer.nonnegative:
            raise ValueError("strips of rows need NeLU with a window and signed codes")
        self.removed = layer.removed
        self.lam = lam_of_entries(layer.lam(layer.entries), layer.entries)
        self.energies, self.sums = WindowMeans(layer.window), WindowMeans(layer.window)
        self.to_sum, self.to_shrink = Queue(), Queue()  # coefficients that wait for either

    def __call__(self, strip: Strip) -> Strip | None:
        with torch.autocast(strip.rows.device.type, enabled=False):  # not for NeLU's sums
            return self._codes(strip)

    def _codes(self, strip: Strip) -> Strip | None:
        u, last, _ = strip
        self.to_sum.put(u)
        self.to_shrink.put(u)
        squares = torch.empty_like(u[:, 0], dtype=self.lam.dtype)  # (B, rows, W)
        for part, piece in _pieces([u]):
            squares[:, part] = squared_norms(piece, self.lam.dtype)
        energy = self.energies.push(squares, last)
        found = energy.new_empty(2, *energy.shape)
        for part, piece in _pieces(self.to_sum.take(energy.shape[1])):
            found[0, :, part], found[1, :, part] = window_sums(piece, self.lam, energy[:, part])
        means = self.sums.push(found.flatten(0, 1), last)
        energy, _ = window_quotient(*means.view(2, len(u), *means.shape[1:]))
        if not energy.shape[1]:
            return None
        code = _strip(u, energy.shape[1], last)
        for part, piece in _pieces(self.to_shrink.take(energy.shape[1])):
            result = code.rows[:, :, part].movedim(1, -1)
            shrink(piece, self.lam, energy[:, part], result, removed=self.removed)
        return code


def _joined(pieces: list[Tensor]) -> Tensor:
    return torch.cat(pieces, 2) if len(pieces) > 1 else pieces[0]


def _pieces(parts: list[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Rows in pieces (B, n, W, C) that fit into the cache, and which of all rows they are."""
    top = 0
    for rows in parts:
        for piece in torch.split(rows, max(1, PIECE // rows[:, :, 0].numel()), dim=2):
            bottom = top + piece.shape[2]
            yield slice(top, bottom), piece.movedim(1, -1)
            top = bottom
