"""How large the picture is that a strip or tile of a TIFF holds, by its own header.

Segments of some compressions are whole files. Their decoders follow those files, not the TIFF.
"""

import struct

import tifffile

from nelu_cli.images import jpeg_scans
from nelu_cli.images.iso_boxes import boxes

WHOLE_FILES = {int(each) for each in tifffile.TIFF.IMAGE_COMPRESSIONS} | {34887}
"""Numbers of those compressions; the last is LERC."""
_J2K, _JXL, _JXR = b"\xff\x4f\xff\x51", b"\xff\x0a", b"WMPHOTO\0"
_BOXED = (b"\0\0\0\x0cjP  ", b"\0\0\0\x0cJXL ")
_STREAMS = (b"jp2c", b"jxlc", b"jxlp")
_JXL_BITS = (9, 13, 18, 30)
_JXL_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


def misfit(content: bytes, height: int, width: int) -> str | None:
    """What is wrong with a segment if it holds a larger picture than there is room for."""
    found = segment_size(content)
    if found is None or (found[0] <= height and found[1] <= width):
        return None
    return f"{found[1]} x {found[0]} pixels in a strip or tile of {width} x {height}"


def segment_size(content: bytes) -> tuple[int, int] | None:
    """Height and width of a JPEG, JPEG 2000, JPEG XL, JPEG XR, WebP, PNG or LERC.

    Returns:
        None for anything else, which has no size of its own.

    Raises:
        ValueError, struct.error: it is truncated.
    """
    if content.startswith(_BOXED):
        content = next(
            (data[4 * (name == b"jxlp") :] for name, data in boxes(content) if name in _STREAMS),
            b"",
        )
    if content.startswith(b"\xff\xd8"):
        return jpeg_scans.frame_size(content)
    if content.startswith(_J2K):
        right, bottom, left, top = struct.unpack_from(">4I", content, 8)
        return bottom - top, right - left
    if content.startswith(_JXL):
        return _jpeg_xl(int.from_bytes(content[2:12], "little"))
    if content.startswith(b"\x89PNG"):
        width, height = struct.unpack_from(">II", content, 16)
        return height, width
    if content.startswith(b"Lerc2 "):
        height, width = struct.unpack_from("<ii", content, 14)
        return height, width
    if content.startswith(b"II\xbc") and _JXR in content:
        at = content.index(_JXR)
        width, height = struct.unpack_from(
            ">HH" if content[at + 10] & 128 else ">II", content, at + 12
        )
        return height + 1, width + 1
    if content.startswith(b"RIFF"):
        return _webp(content)
    return None


def _jpeg_xl(bits: int) -> tuple[int, int]:
    """Both sides from the bits of a stream, the lowest first."""

    def take(count: int) -> int:
        nonlocal bits
        value, bits = bits & ((1 << count) - 1), bits >> count
        return value

    small = take(1)

    def side() -> int:
        return 8 * (take(5) + 1) if small else take(_JXL_BITS[take(2)]) + 1

    height = side()
    ratio = take(3)
    if not ratio:
        return height, side()
    over, under = _JXL_RATIOS[ratio - 1]
    return height, height * over // under


def _webp(content: bytes) -> tuple[int, int]:
    kind = content[12:16]
    if kind == b"VP8X":
        return int.from_bytes(content[27:30], "little") + 1, int.from_bytes(
            content[24:27], "little"
        ) + 1
    if kind == b"VP8L":
        (value,) = struct.unpack_from("<I", content, 21)
        return (value >> 14 & 0x3FFF) + 1, (value & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", content, 26)
    return height & 0x3FFF, width & 0x3FFF
