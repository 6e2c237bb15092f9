"""The colour spaces that a RAW file can be developed to, each with its profile."""

import struct
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from nelu_cli.errors import UsageError
from nelu_cli.words import Colour

_D50, _D65 = (0.9642, 1.0, 0.8249), (0.95047, 1.0, 1.08883)
_BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)
_REC709 = ((0.64, 0.33), (0.30, 0.60), (0.15, 0.06))


@dataclass(frozen=True)
class ColourSpace:
    """Primaries as chromaticities, white D65, and the curve from values to light."""

    title: str
    libraw: str
    """What LibRaw calls the primaries."""
    primaries: tuple[tuple[float, float], ...]
    power: float
    toe: float
    """Slope of the straight part near black; 0: none."""


SPACES: dict[Colour, ColourSpace] = {
    "srgb": ColourSpace("sRGB", "sRGB", _REC709, 2.4, 12.92),
    "p3": ColourSpace(
        "Display P3", "P3D65", ((0.68, 0.32), (0.265, 0.69), (0.15, 0.06)), 2.4, 12.92
    ),
    "adobe": ColourSpace(
        "compatible with Adobe RGB (1998)",
        "Adobe",
        ((0.64, 0.33), (0.21, 0.71), (0.15, 0.06)),
        563 / 256,
        0.0,
    ),
    "linear": ColourSpace("linear light, sRGB primaries", "sRGB", _REC709, 1.0, 1.0),
}


def colour_named(name: str) -> Colour:
    """Check a name from outside."""
    for known in get_args(Colour):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"--color {name}: choose one of {', '.join(get_args(Colour))}")


def profile(space: ColourSpace) -> bytes:
    """An ICC profile (version 4.3): a matrix and one curve."""
    columns = _to_d50(space.primaries)
    tags = {
        b"desc": _text(space.title),
        b"cprt": _text("No copyright, use freely"),
        b"wtpt": _xyz(_D50),
        **{tag: _xyz(columns[:, i]) for i, tag in enumerate((b"rXYZ", b"gXYZ", b"bXYZ"))},
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), _curve(space)),
    }
    start = 128 + 4 + 12 * len(tags)
    table, body = struct.pack(">I", len(tags)), b""
    places: dict[bytes, int] = {}
    for tag, data in tags.items():
        if data not in places:
            places[data] = start + len(body)
            body += data + b"\0" * (-len(data) % 4)
        table += tag + struct.pack(">II", places[data], len(data))
    kind = (b"mntr", b"RGB ", b"XYZ ")
    date = (2026, 1, 1, 0, 0, 0)
    header = struct.pack(
        ">I4xI4s4s4s6H4s28x", start + len(body), 0x04300000, *kind, *date, b"acsp"
    ) + b"".join(map(_fixed, _D50))
    return header.ljust(128, b"\0") + table + body


def _to_d50(primaries: tuple[tuple[float, float], ...]) -> NDArray[np.float64]:
    """The matrix from linear RGB, white D65, to XYZ relative to D50."""
    raw = np.array([(x / y, 1.0, (1 - x - y) / y) for x, y in primaries]).T
    matrix = raw * np.linalg.solve(raw, np.array(_D65))
    gains = (_BRADFORD @ _D50) / (_BRADFORD @ _D65)
    adapted: NDArray[np.float64] = np.linalg.inv(_BRADFORD) @ np.diag(gains) @ _BRADFORD @ matrix
    return adapted


def _fixed(value: float) -> bytes:
    return struct.pack(">i", round(value * 65536))


def _xyz(values: "tuple[float, ...] | NDArray[np.float64]") -> bytes:
    return b"XYZ \0\0\0\0" + b"".join(_fixed(float(value)) for value in values)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-be")
    return b"mluc\0\0\0\0" + struct.pack(">II4sII", 1, 12, b"enUS", len(encoded), 28) + encoded


def _curve(space: ColourSpace) -> bytes:
    """Light = value^power, or ((value + c)/(1 + c))^power above a straight part."""
    if space.toe <= 1.0:
        return b"para\0\0\0\0\0\0\0\0" + _fixed(space.power)
    numbers = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
    return b"para\0\0\0\0\0\x03\0\0" + b"".join(map(_fixed, numbers))
