"""Whether a JPEG holds all its data. Decoders fill what is missing with grey, without a word."""

import io
import re
from collections.abc import Callable

import numpy as np
from PIL import JpegImagePlugin

from nelu_cli.images.picture import Array

END = b"\xff\xd9"
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_LOSSLESS = {0xC3, 0xC7, 0xCB, 0xCF}  # frames without coefficients
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a segment
_SCAN, _RESTARTS = 0xDA, 0xDD
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # in the data of a scan
_ARITHMETIC = re.compile(rb"\xff[\xc9-\xcb\xcd-\xcf]")  # frames
_RUNS = tuple(bytes((37 * at + first) % 251 for at in range(64)) for first in (85, 181))
_FURTHER = _RUNS + tuple(
    bytes(255 - byte for byte in run).replace(b"\xff", b"\xff\0") for run in _RUNS
)
"""Data without markers: each bit is 1 in two of the four, as the decoder goes on with 0."""


def scans(content: bytes) -> tuple[int, str | None]:
    """Where the picture's data end, and what is wrong with them, seen from the markers alone.

    Of each component, scans must bring every coefficient, to its last bit; and between restart
    markers, of which there must be enough, lie as many blocks as were announced.
    """
    missing: dict[int, list[int]] = {}  # bits of each coefficient of each component
    frame, interval, lossless = b"", 0, False
    position, end = 2, len(content)
    while position + 4 <= end and content[position : position + 2] != END:
        marker, length = content[position + 1], int.from_bytes(content[position + 2 : position + 4])
        body = content[position + 4 : position + 2 + length]
        if content[position] != 0xFF:  # something between segments
            position = _next_marker(content, position)
        elif marker == 0xFF or marker in _ALONE:
            position += 1 if marker == 0xFF else 2
        elif position + 2 + length > end:
            break
        else:
            position += 2 + length
            if marker in _FRAMES:
                frame, missing = body, {body[at]: [16] * 64 for at in range(6, len(body), 3)}
                lossless = marker in _LOSSLESS
            elif marker == _RESTARTS:
                interval = int.from_bytes(body)
            elif marker == _SCAN and len(body) > 5:
                first, last, bits = body[-3:]
                for at in range(1, 2 * body[0], 2):
                    row = missing.setdefault(body[at], [16] * 64)
                    row[first : last + 1] = [bits & 15] * (last + 1 - first)
                after = _next_marker(content, position)
                if interval and len(missing) == body[0]:
                    markers = len(_RESTART.findall(content, position, after))
                    if (markers + 1) * interval < _blocks(frame):
                        return after, "truncated: parts of its data are missing"
                position = after
    if content[position : position + 2] != END:
        return position, "truncated"
    if not lossless and any(any(bits) for bits in missing.values()):
        return position, "truncated: parts of its data are missing"
    return position, None


def frame_size(content: bytes) -> tuple[int, int] | None:
    """Height and width by the first frame's header; None if there is no frame."""
    position = 2
    while position + 9 <= len(content):
        marker = content[position + 1]
        if content[position] != 0xFF:
            position = _next_marker(content, position)
        elif marker == 0xFF or marker in _ALONE:
            position += 1 if marker == 0xFF else 2
        elif marker in _FRAMES:
            height, width = (int.from_bytes(content[position + at :][:2]) for at in (5, 7))
            return height, width
        else:
            position += 2 + int.from_bytes(content[position + 2 : position + 4])
    return None


def _next_marker(content: bytes, position: int) -> int:
    found = _MARKER.search(content, position)
    return found.start() if found else len(content)


def _blocks(frame: bytes) -> int:
    """How many groups of blocks a scan of all components holds."""
    height, width = int.from_bytes(frame[1:3]), int.from_bytes(frame[3:5])
    sampling = [frame[at] for at in range(7, len(frame), 3)] if frame[5] > 1 else [0x11]
    across = 8 * max(1, *(factors >> 4 for factors in sampling))
    down = 8 * max(1, *(factors & 15 for factors in sampling))
    return -(-width // across) * -(-height // down)


def is_cut(content: bytes, end: int, pixels: Array, decode: Callable[[bytes], Array]) -> bool:
    """Whether the decoder takes bytes put in before the end as data: then data are missing.

    Even if only the last block is cut, which no marker shows. Where data are missing, the decoder
    goes on with zeros. Other bytes may mean the same pixels by chance, so several are tried.
    Arithmetic coding may end early.

    Args:
        content: a file whose markers are all there.
        end: where its data end, by :func:`scans`.
        pixels: what ``decode`` makes of it.
        decode: gives the pixels of a file.
    """
    if _ARITHMETIC.search(content, 0, end):
        return False
    return not all(
        np.array_equal(decode(content[:end] + further + content[end:]), pixels)
        for further in _FURTHER
    )


def is_whole(content: bytes) -> bool:
    """Whether a JPEG within another file, with all its tables, holds all its data.

    Of kinds that Pillow does not decode (12 bits, lossless) only the markers are looked at.
    """
    end, problem = scans(content)
    if problem:
        return False
    try:
        return not is_cut(content, end, _pixels(content), _pixels)
    except Exception:  # decoders raise anything
        return True


def _pixels(content: bytes) -> Array:
    return np.asarray(JpegImagePlugin.JpegImageFile(io.BytesIO(content)))
