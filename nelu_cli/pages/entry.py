"""What a page says and shows of one picture, the images already encoded.

The images of a picture fit into a budget of bytes: the first step of a ladder, from the whole
picture without losses down to a small overview, that does.
"""

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nelu_cli.images import Picture
from nelu_cli.pages.display import Pair, pair_of
from nelu_cli.pages.places import Place, busiest_and_flattest

_THUMBNAIL = 96  # pixels, the longer side
_VISIBLE = 28.0  # levels of 255: about what the removed noise is amplified to
_MAP_SIDE = 160  # blocks of the noise map along the longer side
_MAP_BLOCK = 8  # pixels, the least side of such a block

# (r, g, b) at equal steps: a scale whose lightness rises evenly, readable without colour vision
SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


@dataclass(frozen=True)
class _Step:
    """How large images may be: the longer side of the whole, the side of a crop, JPEG quality."""

    whole: int
    crop: int  # 0: no crops
    quality: int | None  # None: PNG, without losses


_LADDER = (
    _Step(1600, 640, None),
    _Step(1600, 512, 95),
    _Step(1200, 400, 92),
    _Step(960, 320, 88),
    _Step(720, 256, 85),
    _Step(560, 224, 80),
    _Step(400, 176, 72),
    _Step(240, 128, 60),
    _Step(160, 0, 50),
)


@dataclass(frozen=True)
class View:
    """One part of a picture: before, after and what was removed, as data: addresses."""

    name: str
    caption: str
    before: str
    after: str
    removed: str
    width: int
    height: int


@dataclass(frozen=True)
class Looks:
    """All that is shown of one picture."""

    thumbnail: str
    views: tuple[View, ...]
    noise_map: str
    strongest: float
    """The noise at the bright end of the map's scale, on the 0–255 scale of what is shown."""
    amplified: int
    """How many times the removed noise is amplified."""
    note: str


@dataclass(frozen=True)
class Entry:
    """One line of the table, and what is shown below it."""

    name: str
    result: str = ""
    picture: str = ""  # as "512×512 RGB uint8"
    noise: str = ""
    model: str = ""
    seconds: float | None = None
    problem: str = ""  # why there is nothing to see
    looks: Looks | None = None


def look_at(before: Picture, after: Picture, budget: int) -> Looks:
    """Encode what is to be seen of a picture in about ``budget`` bytes.

    Raises:
        Refusal: the two do not belong together; its message lacks the name of the second.
    """
    pair = pair_of(before, after)
    shown = pair.shown()
    deviation = _deviation(pair)
    spread, strongest = (float(level) * 255 for level in np.percentile(deviation, (50, 99)))
    amplified = 2 ** max(0, min(7, round(math.log2(_VISIBLE / max(spread, 0.1)))))
    coloured = _coloured(deviation * 255 / max(strongest, 1e-3))
    thumbnail = _address(_scaled(shown[1], _THUMBNAIL), 75, pair.icc)
    for step in _LADDER:
        if _least_bytes(shown[0].shape, step) > budget and step is not _LADDER[-1]:
            continue
        views = _Viewer(pair, shown, step, amplified).views()
        noise_map = _address(_scaled(coloured, min(_MAP_SIDE, step.whole // 4)), step.quality)
        size = sum(len(view.before) + len(view.after) + len(view.removed) for view in views)
        if size + len(noise_map) + len(thumbnail) <= budget:
            break
    return Looks(thumbnail, views, noise_map, strongest, amplified, pair.note)


def _least_bytes(shape: tuple[int, ...], step: _Step) -> float:
    """Fewer bytes than this no step takes, so that the large ones need not be tried in vain."""
    height, width, channels = shape
    factor = min(1.0, step.whole / max(height, width))
    return 3 * height * width * factor**2 * channels * (0.3 if step.quality is None else 0.02)


@dataclass(frozen=True)
class _Viewer:
    """Makes views of a pair, in the sizes of a step."""

    pair: Pair
    shown: tuple[NDArray[np.uint8], NDArray[np.uint8]]
    step: _Step
    amplified: int

    def views(self) -> tuple[View, ...]:
        """The whole picture; and, if it must be scaled down, its busiest and flattest place."""
        height, width = self.shown[0].shape[:2]
        factor = max(height, width) / self.step.whole
        if factor <= 1:
            everything = (slice(0, height), slice(0, width))
            return (self._crop("Whole", f"{width}×{height} pixels", everything),)
        overview = self._overview(width, height, factor)
        if not self.step.crop:
            return (overview,)
        busiest, flattest = busiest_and_flattest(self.shown[1], self.step.crop)
        return (
            overview,
            self._crop("Busiest place", _where(busiest), busiest),
            self._crop("Flattest place", _where(flattest), flattest),
        )

    def _overview(self, width: int, height: int, factor: float) -> View:
        # Averaging would hide the noise that was removed, so of that every n-th pixel is shown.
        every = slice(None, None, math.ceil(factor))
        before, after = (self._address(_scaled(each, self.step.whole)) for each in self.shown)
        caption = f"{width}×{height} pixels, scaled to {100 / factor:.0f} %"
        size = _scaled_size(width, height, self.step.whole)
        return View("Overview", caption, before, after, self._removed((every, every)), *size)

    def _crop(self, name: str, caption: str, place: Place) -> View:
        before, after = (self._address(_image(pixels[place])) for pixels in self.shown)
        height, width = (part.stop - part.start for part in place)
        return View(name, caption, before, after, self._removed(place), width, height)

    def _address(self, image: Image.Image) -> str:
        return _address(image, self.step.quality, self.pair.icc)

    def _removed(self, place: Place) -> str:
        """What was removed, around middle grey."""
        removed = self.pair.removed(*place) * (255 * self.amplified)
        pixels = np.rint(128 + removed).clip(0, 255).astype(np.uint8)
        return _address(_image(pixels), self.step.quality)


def _where(place: Place) -> str:
    rows, cols = place
    size = f"{cols.stop - cols.start}×{rows.stop - rows.start}"
    return f"{size} pixels, {cols.start} from the left and {rows.start} from the top"


def _deviation(pair: Pair) -> NDArray[np.float64]:
    """The deviation of what was removed, block by block."""
    height, width = pair.before.shape[:2]
    block = max(_MAP_BLOCK, math.ceil(max(height, width) / _MAP_SIDE))
    cols = np.arange(0, width, block)
    energy = []
    for top in range(0, height, block):
        removed = pair.removed(slice(top, top + block), slice(None))
        columns = np.square(removed, dtype=np.float64).mean(axis=(0, 2))
        energy.append(np.add.reduceat(columns, cols) / np.diff(np.append(cols, width)))
    return np.sqrt(np.array(energy))


def _coloured(levels: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Levels of 0 to 1 on the colour scale."""
    position = levels.clip(0, 1) * (len(SCALE) - 1)
    channels = [np.interp(position, range(len(SCALE)), c) for c in zip(*SCALE, strict=True)]
    pixels: NDArray[np.uint8] = np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
    return pixels


def _image(pixels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(
        np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    )


def _scaled_size(width: int, height: int, side: int) -> tuple[int, int]:
    factor = min(1.0, side / max(width, height))
    return max(1, round(width * factor)), max(1, round(height * factor))


def _scaled(pixels: NDArray[np.uint8], side: int) -> Image.Image:
    image = _image(pixels)
    return image.resize(
        _scaled_size(image.width, image.height, side), Image.Resampling.LANCZOS, reducing_gap=3.0
    )


def _address(image: Image.Image, quality: int | None, icc: bytes | None = None) -> str:
    """A data: address of the image as PNG, or as JPEG with full resolution of colour."""
    content = io.BytesIO()
    if quality is None:
        image.save(content, "PNG", icc_profile=icc)
        kind = "png"
    else:
        image.save(content, "JPEG", quality=quality, subsampling=0, icc_profile=icc)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode('ascii')}"
