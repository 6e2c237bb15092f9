"""What the axes of an array mean, and the way to a stack of pictures and back."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nelu_cli.errors import ImageError, UsageError

Array = NDArray[Any]
_NARROW = 16  # columns: a stack of narrower pictures is more likely a picture of many channels


def usual_axes(shape: tuple[int, ...], channels_at: int) -> str:
    """What the axes of an array mean if nobody says it; channels are last, or third from last."""
    dimensions = len(shape)
    if dimensions == 2:
        return "YX"
    if dimensions == 3 and shape[channels_at] > 4:
        samples = shape[-1]
        if channels_at == -1 and samples <= _NARROW and 4 * samples <= min(shape[:2]):
            raise ImageError(
                f"an array of shape {shape} may be a picture of {samples} channels, or a "
                "stack of narrow ones; say which: axes='YXC' or axes='NYX'"
            )
        return "NYX"
    if dimensions in (3, 4):
        channels = shape[channels_at]
        if channels > 4:
            raise ImageError(
                f"an array of shape {shape} would have {channels} channels; "
                "say what its axes are, as in axes='TCYX'"
            )
        letter = "C" if channels == 2 else "S"
        return "N"[: dimensions - 3] + ("YX" + letter if channels_at == -1 else letter + "YX")
    raise ImageError(
        f"an array of shape {shape} is no picture; give (H, W), (H, W, C), a stack "
        "(N, H, W) or (N, H, W, C), or say what its axes are, as in axes='TCYX'"
    )


@dataclass(frozen=True)
class Layout:
    """How an array of any order becomes a stack (N, H, W, C), and the way back."""

    axes: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        axes = self.axes
        if len(set(axes)) != len(axes) or not {"X", "Y"} <= set(axes) or not axes.isupper():
            raise UsageError(f"axes {axes!r}: give each axis a capital letter, Y and X among them")
        if len(axes) != len(self.shape):
            raise UsageError(f"axes {axes!r} do not fit an array of shape {self.shape}")
        if "S" in axes and not 1 <= self.shape[axes.index("S")] <= 4:
            samples = self.shape[axes.index("S")]
            raise UsageError(f"axes {axes!r}: {samples} samples are no colour; call them C")

    @property
    def order(self) -> list[int]:
        """The axes of the array in the order of the stack: pages, rows, columns, samples."""
        last = [self.axes.index(letter) for letter in "YXS" if letter in self.axes]
        return [axis for axis in range(len(self.axes)) if axis not in last] + last

    def split(self, array: Array) -> tuple[Array, Array | None]:
        """Colours (N, H, W, C), and alpha (N, H, W, 1)."""
        if array.size == 0:
            raise ImageError(f"an array of shape {array.shape} holds no pixels")
        moved = array.transpose(self.order)
        if "S" not in self.axes:
            moved = moved[..., np.newaxis]
        pages = moved.reshape(-1, *moved.shape[-3:])
        if pages.shape[-1] in (2, 4):
            return pages[..., :-1], pages[..., -1:]
        return pages, None

    def join(self, pixels: Array, alpha: Array | None) -> Array:
        """The array of these colours and alpha."""
        if alpha is not None:
            dtype = pixels.dtype  # its byte order, too
            pixels = np.concatenate([pixels, alpha], axis=-1, dtype=dtype, casting="unsafe")
            pixels = pixels.astype(dtype, copy=False)
        moved = pixels.reshape([self.shape[axis] for axis in self.order])
        return np.ascontiguousarray(moved.transpose(np.argsort(self.order)))
