"""DNG files with tifffile: a mosaic, 16-bit, and what another developer needs to know about it."""

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np
import tifffile
from numpy.typing import NDArray

from nelu_cli import __version__
from nelu_cli.images import exif
from nelu_cli.images.tiff_tags import append_children, extratags

DNG_VERSION, BLACK_DIMENSION, BLACK, WHITE = 50706, 50713, 50714, 50717
CFA_DIMENSION, CFA_PATTERN, CFA_PLANES, CFA_LAYOUT = 33421, 33422, 50710, 50711
UNIQUE_MODEL, NEUTRAL, MATRIX, ILLUMINANT = 50708, 50728, 50721, 50778
MAKER_NOTE = 37500
D65 = 21
COLOUR_TAGS = {  # matrices, calibration, white balance, illuminants, exposure, of a DNG
    *(MATRIX, 50722, 50723, 50724, 50725, 50726, 50727, NEUTRAL, 50729, 50730),
    *(ILLUMINANT, 50779, 50964, 50965, UNIQUE_MODEL, 50709),
}
CAMERA_TAGS = exif.MAIN_TAGS - {exif.ORIENTATION, 305}  # 305: the software, which is now nelu
_TYPES = {"B": 1, "H": 3}
_RATIONAL, _SIGNED_RATIONAL = 5, 10
_DENOMINATOR = 1_000_000


@dataclass(frozen=True)
class Sensor:
    """What a mosaic's values mean.

    Attributes:
        cell: the colours of the 2×2 cell at the upper left, row by row: 0 red, 1 green, 2 blue.
        black: the value of darkness at each place of that cell.
        white: the value at which the sensor is full.
        orientation: as in EXIF, 1 to 8.
        tags: of colour, camera and lens, as a DNG has them, with EXIF and GPS as children.
        order: the byte order of these tags.
    """

    cell: tuple[int, ...]
    black: tuple[float, ...]
    white: float
    orientation: int
    tags: exif.Directory
    order: Literal["<", ">"]


def is_dng(start: bytes, stream: BinaryIO) -> bool:
    """Whether a TIFF's first directory says that it is a DNG."""
    if start[:4] not in (b"II*\0", b"MM\0*"):
        return False
    order = ">" if start[:2] == b"MM" else "<"
    try:
        (offset,) = struct.unpack_from(f"{order}I", start, 4)
        stream.seek(offset)
        (count,) = struct.unpack(f"{order}H", stream.read(2))
        table = stream.read(12 * count)
        codes = {code for code, *_ in struct.iter_unpack(f"{order}HHI4s", table)}
    except struct.error:
        return False
    return DNG_VERSION in codes


def entry(
    code: int, kind: int | Literal["B", "H"], values: Sequence[float], order: str
) -> exif.Entry:
    """A tag of numbers: bytes, shorts or ratios."""
    if isinstance(kind, str):
        data = struct.pack(f"{order}{len(values)}{kind}", *(int(value) for value in values))
        return exif.Entry(code, _TYPES[kind], len(values), data)
    number = "I" if kind == _RATIONAL else "i"
    ratios = [part for value in values for part in (round(value * _DENOMINATOR), _DENOMINATOR)]
    return exif.Entry(
        code, kind, len(values), struct.pack(f"{order}{2 * len(values)}{number}", *ratios)
    )


def colour_tags(
    matrix: NDArray[np.float64], white_balance: Sequence[float], model: str, order: str
) -> exif.Directory:
    """What a DNG says of colour: from XYZ to the camera's values, and what was grey."""
    name = model.encode("ascii", "replace") + b"\0"
    neutral = [min(1.0, min(white_balance) / gain) for gain in white_balance]
    return exif.Directory(
        (
            exif.Entry(UNIQUE_MODEL, 2, len(name), name),
            entry(MATRIX, _SIGNED_RATIONAL, [float(value) for value in matrix.ravel()], order),
            entry(ILLUMINANT, "H", [D65], order),
            entry(NEUTRAL, _RATIONAL, neutral, order),
        )
    )


def write_dng(stream: BinaryIO, values: NDArray[np.uint16], sensor: Sensor) -> None:
    """Write a mosaic, (H, W), uncompressed and without a preview."""
    order = sensor.order
    own = (
        exif.Entry(DNG_VERSION, 1, 4, bytes((1, 4, 0, 0))),
        exif.Entry(DNG_VERSION + 1, 1, 4, bytes((1, 1, 0, 0))),  # readable since 1.1
        entry(CFA_DIMENSION, "H", (2, 2), order),
        exif.Entry(CFA_PATTERN, 1, 4, bytes(sensor.cell)),
        exif.Entry(CFA_PLANES, 1, 3, bytes((0, 1, 2))),
        entry(CFA_LAYOUT, "H", (1,), order),
        entry(BLACK_DIMENSION, "H", (2, 2), order),
        entry(BLACK, _RATIONAL, sensor.black, order),
        entry(WHITE, "H", (min(round(sensor.white), 65535),), order),
        entry(exif.ORIENTATION, "H", (sensor.orientation,), order),
    )
    codes = {tag.code for tag in own}
    kept = sensor.tags.without(codes)
    children = tuple((code, child.without({MAKER_NOTE})) for code, child in kept.children)
    whole = exif.Directory((*own, *kept.entries), children)
    content = io.BytesIO()
    tifffile.imwrite(
        content,
        values.astype(f"{order}u2"),
        byteorder=order,
        photometric="cfa",
        metadata=None,
        software=f"nelu {__version__}",
        extratags=extratags(whole, order, first=True, big=False),
    )
    append_children(content, whole, order, big=False)
    stream.write(content.getbuffer())
