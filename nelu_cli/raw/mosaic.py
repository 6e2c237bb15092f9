"""The values of a sensor, one colour a pixel, and their way to a picture and back.

They are denoised where their noise is white: each of the four places of the 2×2 cell of colours is
a plane of its own, variance-stabilised, so that a network for white noise may be used.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, log2
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from nelu_cli.images import Metadata, Picture
from nelu_cli.raw.anscombe import SensorNoise, destabilise, stabilise
from nelu_cli.raw.dng import Sensor, write_dng
from nelu_cli.raw.noise_model import estimate_sensor_noise

_WINDOW = 15  # positions of a plane, the side of the box over which what was removed is judged
_CHANCE = 1.3  # mean square of noise alone that such a box seldom exceeds: 1 ± 0.1
_STRONG = 0.03
"""Noise at middle grey, as a share of white, above which denoising the mosaic is the better way: by
``python -m benchmarks.raw``, see docs/photographers.md; its sensor at ISO 18,000, about."""
Develop = Callable[[bytes, bool, str], Picture]  # a DNG, whether in 16 bits, and the colour space


@dataclass(frozen=True, eq=False)
class Mosaic:
    """What a sensor saw.

    Attributes:
        values: as the file had them, (H, W).
        sensor: what they mean.
        developer: makes a picture of a DNG file.
    """

    values: NDArray[np.uint16]
    sensor: Sensor
    developer: Develop

    @cached_property
    def noise(self) -> SensorNoise:
        """Gain and read noise, found in the picture itself."""
        return estimate_sensor_noise(self._signal(), self._reach)

    @cached_property
    def strength(self) -> float:
        """The noise at middle grey, as a share of white: what it is in the planes, too."""
        return self.noise.deviation(0.18 * self._reach) / self._reach

    @property
    def _reach(self) -> float:
        """From darkness to a full sensor."""
        return self.sensor.white - max(self.sensor.black)

    @property
    def drowned(self) -> bool:
        """Whether the noise is so strong that it is better taken out before developing."""
        return self.strength > _STRONG

    def picture(self, format: str) -> Picture:
        """Four planes of half the size with white noise, to be denoised one by one."""
        return Picture(self._planes(), None, format, Metadata(undeveloped=self))

    def develop(self, picture: Picture, *, deep: bool, colour: str) -> Picture:
        """The picture in colours, upright, of planes that :meth:`picture` gave."""
        content = io.BytesIO()
        self.write(picture, content)
        return replace(self.developer(content.getvalue(), deep, colour), notes=picture.notes)

    def corner(self, *, deep: bool) -> Picture:
        """What :meth:`develop` gives, but one pixel of it."""
        pixel = np.zeros((1, 1, 3), np.uint16 if deep else np.uint8)
        return Picture(pixel, None, "RAW")

    def write(self, picture: Picture, stream: BinaryIO) -> None:
        """Write a DNG of planes that :meth:`picture` gave, with as many bits as 16 allow."""
        sensor = self.sensor
        factor = 2 ** max(0, floor(log2(65535 / sensor.white)))
        values = np.rint(self._values(picture.pixels) * factor).clip(0, 65535).astype(np.uint16)
        black = tuple(factor * level for level in sensor.black)
        write_dng(stream, values, replace(sensor, black=black, white=factor * sensor.white))

    def _signal(self) -> NDArray[np.float32]:
        """The four planes, (H/2, W/2, 4), black being 0."""
        height, width = self.values.shape
        even = np.pad(self.values, ((0, height % 2), (0, width % 2)), "reflect")
        planes = [even[row::2, col::2] for row in (0, 1) for col in (0, 1)]
        return np.stack(planes, -1).astype(np.float32) - np.array(self.sensor.black, np.float32)

    def _planes(self) -> NDArray[np.float32]:
        return stabilise(self._signal(), self.noise) * np.float32(self.strength)

    def _values(self, planes: NDArray[np.float32]) -> NDArray[np.float32]:
        """The values of a mosaic from its planes; those that nobody changed are as they were."""
        original = self._planes()
        different = planes != original
        kept = _within_the_noise(original, planes, self.strength)
        signal = destabilise(kept / np.float32(self.strength), self.noise)
        signal += np.array(self.sensor.black, np.float32)
        height, width = self.values.shape
        values = np.empty((height + height % 2, width + width % 2), np.float32)
        changed = np.empty(values.shape, bool)
        for plane, (row, col) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
            values[row::2, col::2] = signal[..., plane]
            changed[row::2, col::2] = different[..., plane]
        values, changed = values[:height, :width], changed[:height, :width]
        return np.where(changed, values, self.values.astype(np.float32))


def _within_the_noise(
    original: NDArray[np.float32], cleaned: NDArray[np.float32], deviation: float
) -> NDArray[np.float32]:
    """Give back what was taken beyond the noise, whose deviation is known here.

    A network that has to find the noise level may take for noise the finest texture, which in a
    plane of every other pixel is nearly random. If r, what was removed, is noise n plus texture t,
    then the multiple c·r that is closest to n is that of c = E n²/(E n² + E t²). E t² is by how
    much the mean of r² around a pixel exceeds that of the noise and its chance.
    """
    removed = original - cleaned
    energy = _box_mean(removed**2, _WINDOW) / deviation**2  # of noise alone: 1
    share = (1 / (1 + np.maximum(energy - _CHANCE, 0))).astype(np.float32)
    result: NDArray[np.float32] = original - share * removed
    return result


def _box_mean(field: NDArray[np.float32], size: int) -> NDArray[np.float64]:
    """Means over size × size positions, fewer at the border, of (H, W, C)."""
    from scipy import ndimage  # slow to import

    def smooth(plane: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(ndimage.uniform_filter(plane, (size, size, 1), mode="constant"))

    return smooth(field.astype(np.float64)) / smooth(np.ones((*field.shape[:2], 1)))
