"""The sizes of the frames in an AV1 stream, from its headers (sections 5.5 and 5.9 of AV1)."""

from collections.abc import Iterator
from dataclasses import dataclass

from nelu_cli.images.iso_boxes import Bits

_SEQUENCE, _FRAME_HEADER, _FRAME = 1, 3, 6  # kinds of units
_KEY, _INTRA_ONLY, _SWITCH = 0, 2, 3  # kinds of frames
_CHOOSE = 2  # a switch of the sequence that each frame sets for itself
_HEADER_BYTES = 512  # more than any header takes up to the size


@dataclass
class _Sequence:
    """What the headers of frames need to know: lengths in bits, 0 for what is left out."""

    size: tuple[int, int]
    size_bits: tuple[int, int]
    reduced: bool
    id_bits: int = 0
    delta_id_bits: int = 0
    order_bits: int = 0
    screen_content: int = _CHOOSE
    whole_vectors: int = _CHOOSE
    time_bits: int = 0
    buffered: bool = False


def frame_sizes(data: bytes) -> set[tuple[int, int]]:
    """Width and height of every frame that says its size.

    Raises:
        ValueError: the stream is truncated, or begins with a frame.
    """
    sequence: _Sequence | None = None
    sizes: set[tuple[int, int]] = set()
    for kind, unit in _units(data):
        if kind == _SEQUENCE:
            sequence = _sequence(Bits(unit))
        elif kind in (_FRAME_HEADER, _FRAME):
            if sequence is None:
                raise ValueError("a frame before the header of its sequence")
            size = _frame_size(Bits(unit), sequence)
            sizes |= {size} if size else set()
    return sizes


def _units(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and beginning of each unit of the stream."""
    position = 0
    while position < len(data):
        head = data[position]
        position += 2 if head & 4 else 1
        size = len(data) - position
        if head & 2:
            size = shift = 0
            more = True
            while more:
                size |= (data[position] & 127) << shift
                more, position, shift = data[position] > 127, position + 1, shift + 7
        yield head >> 3 & 15, data[position : position + min(size, _HEADER_BYTES)]
        position += size


def _sequence(bits: Bits) -> _Sequence:
    bits(4)  # profile, still picture
    reduced = bool(bits(1))
    time_bits = buffered = 0
    if reduced:
        bits(5)
    else:
        delay_bits = 0
        if bits(1):  # times
            bits(64)
            equal = bits(1)
            if equal:
                _skip_long(bits)
            buffered = bits(1)
            if buffered:
                delay_bits, _, _, time_bits = bits(5) + 1, bits(32), bits(5), bits(5) + 1
                time_bits *= not equal
        delays = bits(1)
        for _ in range(bits(5) + 1):  # operating points
            bits(12)
            if bits(5) > 7:
                bits(1)
            if buffered and bits(1):
                bits(2 * delay_bits + 1)
            if delays and bits(1):
                bits(4)
    size_bits = bits(4) + 1, bits(4) + 1
    size = bits(size_bits[0]) + 1, bits(size_bits[1]) + 1
    sequence = _Sequence(size, size_bits, reduced, time_bits=time_bits, buffered=bool(buffered))
    if reduced:
        return sequence
    if bits(1):
        sequence.delta_id_bits = bits(4) + 2
        sequence.id_bits = sequence.delta_id_bits + bits(3) + 1
    bits(7)  # tools
    ordered = bits(1)
    if ordered:
        bits(2)
    if not bits(1):
        sequence.screen_content = bits(1)
    if sequence.screen_content and not bits(1):
        sequence.whole_vectors = bits(1)
    if ordered:
        sequence.order_bits = bits(3) + 1
    return sequence


def _skip_long(bits: Bits) -> None:
    """A number after as many zeros as it has bits."""
    zeros = 0
    while not bits(1):
        zeros += 1
    bits(zeros)


def _frame_size(bits: Bits, sequence: _Sequence) -> tuple[int, int] | None:
    """The size of a frame; None if it is that of an earlier one."""
    if sequence.reduced:
        return sequence.size
    if bits(1):  # an earlier one is shown
        return None
    kind, shown = bits(2), bits(1)
    if shown:
        bits(sequence.time_bits)
    else:
        bits(1)
    whole = kind == _SWITCH or (kind == _KEY and shown)
    robust = bool(whole or bits(1))
    bits(1)
    screen_content = bits(1) if sequence.screen_content == _CHOOSE else sequence.screen_content
    if screen_content and sequence.whole_vectors == _CHOOSE:
        bits(1)
    bits(sequence.id_bits)
    if kind != _SWITCH and not bits(1):
        return sequence.size
    bits(sequence.order_bits)
    intra = kind in (_KEY, _INTRA_ONLY)
    if not (intra or robust):
        bits(3)
    if sequence.buffered and bits(1):
        raise ValueError("frames of an unknown form")
    replaced = 255 if whole else bits(8)
    if robust and (not intra or replaced != 255):
        bits(8 * sequence.order_bits)
    if not intra:
        brief = sequence.order_bits and bits(1)
        if brief:
            bits(6)
        for _ in range(7):
            bits((0 if brief else 3) + sequence.delta_id_bits)
        if not robust and any(bits(1) for _ in range(7)):
            return None  # that of a frame that it refers to
    width, height = (bits(count) + 1 for count in sequence.size_bits)
    return width, height
