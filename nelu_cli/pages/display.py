"""Two pictures as a screen can show them: upright, 8 bit, in one common range of values."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nelu_cli.images import Picture, row_slices
from nelu_cli.images.convert import fit
from nelu_cli.images.picture import Array, Refusal, upright

_DIM = 0.25  # a picture that stays below this share of white is shown stretched
_BRIGHT = 1.5  # and so are floats beyond this multiple of it
_LOOKED_AT = 1000  # rows and columns, at most, to find the range of values
_LARGEST_PROFILE = 4096  # bytes: it is repeated in every image of the page


@dataclass(frozen=True)
class Pair:
    """Before and after, (H, W, 1 or 3), in the values of their files, and the range to show."""

    before: Array
    after: Array
    whites: tuple[float, float]
    """The value that means 1.0 in each."""
    low: float
    high: float
    """What is shown as black and as white, as multiples of white."""
    icc: bytes | None
    note: str
    """What a person must know about how it is shown; empty if nothing."""

    def removed(self, rows: slice, cols: slice) -> NDArray[np.float32]:
        """Before − after, 1 standing for the range from black to white as shown."""
        before, after = (
            pixels[rows, cols].astype(np.float32) / np.float32(white)
            for pixels, white in zip((self.before, self.after), self.whites, strict=True)
        )
        difference: NDArray[np.float32] = np.nan_to_num(before - after)
        return difference / np.float32(self.high - self.low)

    def shown(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Both as 8-bit pixels."""
        return self._shown(self.before, self.whites[0]), self._shown(self.after, self.whites[1])

    def _shown(self, pixels: Array, white: float) -> NDArray[np.uint8]:
        result = np.empty(pixels.shape, np.uint8)
        scale = 255 / (self.high - self.low)
        for rows in row_slices(pixels.shape):
            values = (pixels[rows].astype(np.float32) / np.float32(white) - self.low) * scale
            result[rows] = np.rint(np.nan_to_num(values)).clip(0, 255)
        return result


def pair_of(before: Picture, after: Picture) -> Pair:
    """Bring two pictures of one size together.

    Raises:
        Refusal: they differ in size, pages or channels.
    """
    first, note = _viewable(before)
    second, _ = _viewable(after)
    if _size(before, first) != _size(after, second):
        raise Refusal(f"is {_size(after, second)}, the other picture {_size(before, first)}")
    low, high, stretch = _range(first)
    icc = before.metadata.icc if first.pixels.shape[-1] == 3 and not before.metadata.cmyk else None
    large = icc is not None and len(icc) > _LARGEST_PROFILE
    notes = [note, stretch, "shown without its colour profile, which is large" if large else ""]
    return Pair(
        first.pixels,
        second.pixels,
        (first.white, second.white),
        low,
        high,
        None if large else icc,
        "; ".join(filter(None, notes)),
    )


def _viewable(picture: Picture) -> tuple[Picture, str]:
    """One page of it, upright, grey or RGB, without alpha; and what was left out."""
    notes = []
    if picture.pixels.ndim == 4:
        pages, middle = len(picture.pixels), len(picture.pixels) // 2
        picture = replace(picture, pixels=picture.pixels[middle], alpha=None)
        if pages > 1:
            notes.append(f"page {middle + 1} of {pages} is shown")
    picture = upright(replace(picture, alpha=None))
    if picture.metadata.cmyk:
        picture = fit(picture, "PNG", allow_loss=True)
    channels = picture.pixels.shape[-1]
    if channels not in (1, 3):
        picture = replace(picture, pixels=picture.pixels[..., :1])
        notes.append(f"the first of {channels} channels is shown")
    return picture, "; ".join(notes)


def _size(whole: Picture, shown: Picture) -> str:
    height, width, _ = shown.pixels.shape
    pages = f", {len(whole.pixels)} pages" if whole.pixels.ndim == 4 else ""
    return f"{width}×{height}{pages}, {whole.pixels.shape[-1]} channels"


def _range(picture: Picture) -> tuple[float, float, str]:
    """What to show as black and white: 0 and 1, unless the values are far from filling that."""
    step = [max(1, -(-length // _LOOKED_AT)) for length in picture.pixels.shape[:2]]
    values = np.nan_to_num(
        picture.pixels[:: step[0], :: step[1]].astype(np.float64), posinf=0, neginf=0
    )
    low, high = (float(value) / picture.white for value in np.percentile(values, (0.1, 99.9)))
    if _DIM <= high <= _BRIGHT and low >= -_DIM:
        return 0.0, 1.0, ""
    if high - low < 1e-12:
        return low, low + 1.0, ""
    ends = f"{low * picture.white:.4g} to {high * picture.white:.4g}"
    return low, high, f"values from {ends} are shown as black to white"
