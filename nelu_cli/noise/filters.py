"""Small filters that the noise models share: blur, luma and chroma, sharpening, JPEG.

All of them take and give pictures (H, W, C) of float32.
"""

import io
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

FloatImage = NDArray[np.float32]  # (H, W, C), clean values in 0–1

_YCC: Final = np.array(  # JPEG's luma and two chromas, without offsets
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], np.float32
)
_RGB: Final = np.linalg.inv(_YCC).astype(np.float32)
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_HERMITE: Final = (_POINTS.astype(np.float32), (_WEIGHTS / _WEIGHTS.sum()).astype(np.float32))
_AROUND: Final = 4.0  # pixels


def to_ycc(picture: FloatImage) -> FloatImage:
    """Red, green, blue to luma, Cb, Cr (Rec. 601, chroma around 0)."""
    return picture @ _YCC.T


def from_ycc(picture: FloatImage) -> FloatImage:
    """The inverse of :func:`to_ycc`."""
    return picture @ _RGB.T


def blur(picture: FloatImage, sigma: float) -> FloatImage:
    """Convolve rows and columns with a Gaussian of deviation ``sigma`` pixels."""
    if sigma <= 0:
        return picture
    reach = max(1, int(3 * sigma + 0.5))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    taps /= taps.sum()
    rows = ndimage.correlate1d(picture, taps, axis=0, mode="mirror")
    return np.asarray(ndimage.correlate1d(rows, taps, axis=1, mode="mirror"), np.float32)


def mean_over_noise(
    of: Callable[[FloatImage], FloatImage], clean: FloatImage, noise: FloatImage
) -> FloatImage:
    """E of(clean + n) for Gaussian n as strong, at each place, as ``noise`` is around it.

    By the Gauss–Hermite rule with five points.
    """
    deviation = np.sqrt(blur(np.square(noise), _AROUND))
    total = np.zeros_like(clean)
    for point, weight in zip(*_HERMITE, strict=True):
        total += weight * of(np.asarray(clean + point * deviation, np.float32))
    return total


def resize(picture: FloatImage, height: int, width: int) -> FloatImage:
    """Bicubic, with antialiasing where it gets smaller."""
    planes = [
        Image.fromarray(np.ascontiguousarray(picture[..., c])).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        for c in range(picture.shape[-1])
    ]
    return np.stack([np.asarray(plane, np.float32) for plane in planes], axis=-1)


def quantise(picture: FloatImage) -> NDArray[np.uint8]:
    """8 bits: clipped to 0–1, rounded to 255ths."""
    return (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)


def jpeg_round_trip(pixels: NDArray[np.uint8], quality: int, subsampling: str) -> FloatImage:
    """What JPEG makes of 8-bit pixels; ``subsampling`` of chroma: 4:4:4, 4:2:2 or 4:2:0."""
    image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
    stored = io.BytesIO()
    image.save(stored, "JPEG", quality=quality, subsampling=subsampling)
    with Image.open(stored) as read:
        return np.asarray(read, np.float32).reshape(pixels.shape) / np.float32(255)
