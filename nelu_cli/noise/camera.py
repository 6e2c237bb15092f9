"""Camera noise: what a sensor's independent noise has become in a finished photograph.

On the sensor the noise is independent from pixel to pixel, of variance ``shot·x + read``. Then the
camera interpolates the missing colours, multiplies, mixes and bends them, filters luma and chroma
apart, sharpens, rounds and compresses. Afterwards neighbours are correlated (in CC, pictures of
three real cameras: luma 0.43–0.61 at distance 1, chroma 0.77–0.92), and a network that only knows
white noise takes what it sees for detail.

:func:`camera` undoes a picture's rendering, adds the sensor's noise and renders it again. Its
target is the same rendering without noise and without JPEG, so that nothing is asked but denoising:
the mean of many such shots. (That of one without noise is another: the tone curve and clipping make
noise lopsided. A network that has to undo this brightens real pictures by up to 1 of 255.)
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from nelu_cli.noise.filters import FloatImage, blur, from_ycc, mean_over_noise, resize, to_ycc

Demosaic = Literal["bilinear", "gradient-corrected", "edge-directed"]

_BAYER: Final = np.array([[0, 1], [1, 2]])  # red, green / green, blue; rolled for other phases
_TENT: Final = np.array([0.5, 1, 0.5])
_DETAIL: Final = 2.0
_ENERGY: Final = 1.0
_ENERGY_OF_NOISE: Final = 4.0
"""Noise reduction takes for detail what a Gaussian of so many pixels blurs away, and measures its
energy and that of the noise over Gaussians of so many."""


@dataclass(frozen=True)
class Camera:
    """One camera and one exposure. All numbers of pixel values are for white = 1."""

    shot: float
    read: float
    """The sensor's noise has the variance shot·x + read."""
    exposure: float
    white_balance: tuple[float, float, float]
    """Gains of red, green and blue."""
    matrix: tuple[tuple[float, float, float], ...]
    """From the camera's colours to sRGB; rows sum to 1."""
    gamma: float
    toe: float
    """The tone curve is (x + toe)^(1/gamma), shifted and scaled to run from 0 to 1."""
    phase: tuple[int, int]
    """Rows and columns by which the mosaic red-green/green-blue is shifted."""
    demosaic: Demosaic
    luma_blur: float
    chroma_blur: tuple[float, float]
    """The camera's noise reduction: Gaussians, in pixels; chroma has a fine and a coarse one."""
    floor: float
    """How much noise remains, at least, where the camera sees no detail."""
    threshold: float
    """How much stronger than the noise's own energy detail must be to be spared."""
    luma_level: float
    """How much of the luma noise's deviation noise reduction leaves."""
    chroma_level: float
    """Deviation of the chroma noise that it leaves, relative to that of luma."""
    sharpening: float
    sharpening_radius: float
    scale: float
    """Of the finished picture: 1 as the sensor has it, below 1 made smaller."""


def draw_camera(rng: np.random.Generator) -> Camera:
    """A random camera.

    log shot is uniform from log 5e-5 to log 1.2e-2, log read = 2.18·log shot + 1.2 ± 0.5.
    """
    log_shot = rng.uniform(np.log(5e-5), np.log(1.2e-2))
    log_read = 2.18 * log_shot + 1.2 + 0.5 * rng.standard_normal()
    red, blue = rng.uniform(1.3, 2.4, 2)
    methods: tuple[Demosaic, ...] = ("bilinear", "gradient-corrected", "edge-directed")
    a, b = rng.uniform(0.1, 0.8, 2)
    c, d = rng.uniform(0.05, 0.4, 2)
    e, f = rng.uniform(-0.1, 0.15, 2)
    return Camera(
        shot=float(np.exp(log_shot)),
        read=float(np.exp(log_read)),
        exposure=float(rng.uniform(0.4, 1)),
        white_balance=(float(red), 1.0, float(blue)),
        matrix=((1 + a + e, -a, -e), (-c, 1 + c + d, -d), (-f, -b, 1 + b + f)),
        gamma=float(rng.uniform(1.8, 2.6)),
        toe=float(np.exp(rng.uniform(np.log(0.003), np.log(0.05)))),
        phase=(int(rng.integers(2)), int(rng.integers(2))),
        demosaic=methods[int(rng.integers(len(methods)))],
        luma_blur=float(rng.uniform(0.4, 0.9) if rng.uniform() < 0.85 else rng.uniform(0, 0.4)),
        chroma_blur=(float(rng.uniform(0.5, 1.6)), float(rng.uniform(1.2, 3.2))),
        floor=float(rng.uniform(0.15, 0.7)) if rng.uniform() < 0.6 else 1.0,
        threshold=float(np.exp(rng.uniform(np.log(0.8), np.log(5)))),
        luma_level=float(rng.uniform(0.4, 1.2)),
        chroma_level=float(np.exp(rng.uniform(np.log(0.2), np.log(1.3)))),
        sharpening=float(rng.uniform(0, 0.8)) if rng.uniform() < 0.4 else 0.0,
        sharpening_radius=float(rng.uniform(0.6, 1.5)),
        scale=float(rng.uniform(0.6, 1)) if rng.uniform() < 0.15 else 1.0,
    )


def camera(
    picture: FloatImage, settings: Camera, rng: np.random.Generator
) -> tuple[FloatImage, FloatImage]:
    """Render a finished sRGB picture (H, W, 3) again, without and with the sensor's noise.

    Returns the clean and the noisy picture, neither rounded nor compressed; clean within 0–1.
    """
    height, width, _ = picture.shape
    if settings.scale < 1:
        picture = resize(picture, round(height / settings.scale), round(width / settings.scale))
    mosaic, sites = _expose(picture, settings)
    variance = settings.shot * mosaic + settings.read
    noise = rng.standard_normal(mosaic.shape, dtype=np.float32) * np.sqrt(variance)
    seen, seen_noisy = (_develop(shot, sites, settings) for shot in (mosaic, mosaic + noise))
    clean = mean_over_noise(lambda linear: _curved(linear, settings), seen, seen_noisy - seen)
    noise = _curved(seen_noisy, settings) - clean
    clean, noisy = _finish(clean, noise, settings, rng)
    if settings.scale < 1:
        clean, noisy = (resize(part, height, width) for part in (clean, noisy))
    return np.clip(clean, 0, 1), noisy


def _expose(picture: FloatImage, settings: Camera) -> tuple[FloatImage, NDArray[np.intp]]:
    """What the sensor sees, (H, W), and which colour each of its pixels has."""
    height, width, _ = picture.shape
    low, high = _curve_ends(settings)
    linear = (picture * (high - low) + low) ** np.float32(settings.gamma) - settings.toe
    inverse = np.linalg.inv(np.array(settings.matrix)) / np.array(settings.white_balance)[:, None]
    seen = linear @ (inverse * settings.exposure).T.astype(np.float32)
    pattern = np.roll(_BAYER, settings.phase, (0, 1))
    sites = np.tile(pattern, (-(-height // 2), -(-width // 2)))[:height, :width]
    mosaic = np.take_along_axis(seen, sites[..., None], -1)[..., 0]
    return np.maximum(mosaic, 0, dtype=np.float32), sites


def _develop(mosaic: FloatImage, sites: NDArray[np.intp], settings: Camera) -> FloatImage:
    """Demosaic, white balance, colour matrix."""
    seen = demosaic(mosaic, sites, settings.demosaic)
    colours = np.array(settings.matrix) * np.array(settings.white_balance) / settings.exposure
    developed: FloatImage = seen @ colours.T.astype(np.float32)
    return developed


def _curved(linear: FloatImage, settings: Camera) -> FloatImage:
    """The tone curve."""
    low, high = _curve_ends(settings)
    curved = (np.clip(linear, 0, 1) + np.float32(settings.toe)) ** np.float32(1 / settings.gamma)
    finished: FloatImage = (curved - np.float32(low)) / np.float32(high - low)
    return finished


def _curve_ends(settings: Camera) -> tuple[float, float]:
    low = settings.toe ** (1 / settings.gamma)
    high = (1 + settings.toe) ** (1 / settings.gamma)
    return float(low), float(high)


def _finish(
    clean: FloatImage, noise: FloatImage, settings: Camera, rng: np.random.Generator
) -> tuple[FloatImage, FloatImage]:
    """Noise reduction and sharpening."""
    clean, noise = _reduce(to_ycc(clean), to_ycc(noise), settings, float(rng.uniform()))
    if settings.sharpening:
        for part in (clean, noise):
            luma = part[..., :1]
            fine = luma - blur(luma, settings.sharpening_radius)
            part[..., :1] += np.float32(settings.sharpening) * fine
    clean = np.clip(from_ycc(clean), 0, 1)
    return clean, clean + from_ycc(noise)


def _reduce(
    clean: FloatImage, noise: FloatImage, settings: Camera, fine_share: float
) -> tuple[FloatImage, FloatImage]:
    """The camera's noise reduction, of luma and chroma (H, W, 3).

    Both are blurred. Then noise is taken out where the camera sees no detail: of it remains the
    share f + (1 − f)·A²/(A² + t²N²), where A is the energy of the luma's detail, N that of the
    noise's, f the floor and t the threshold. As A has the noise in it, isolated dots survive, and
    so does the noise along edges.
    """
    luma, grain = (blur(part[..., :1], settings.luma_blur) for part in (clean, noise))
    chroma, blots = clean[..., 1:], noise[..., 1:]
    fine, coarse = (blur(blots, radius) for radius in settings.chroma_blur)
    share = np.float32(fine_share)
    blots = _of_level(fine, 1) * share + _of_level(coarse, 1) * (1 - share)
    chroma = blur(chroma, settings.chroma_blur[0])

    level = float(noise[..., 0].std()) * settings.luma_level
    if settings.floor < 1:
        rough = grain - blur(grain, _DETAIL)
        detail = luma - blur(luma, _DETAIL) + rough
        allowed = settings.threshold * blur(np.square(rough), _ENERGY_OF_NOISE) + 1e-9
        seen = np.square(blur(np.square(detail), _ENERGY))
        kept = np.asarray(
            settings.floor + (1 - settings.floor) * seen / (seen + np.square(allowed)), np.float32
        )
        grain, blots = grain * kept, blots * kept
    parts = _of_level(grain, level), _of_level(blots, level * settings.chroma_level)
    return np.concatenate([luma, chroma], -1), np.concatenate(parts, -1)


def _of_level(noise: FloatImage, level: float) -> FloatImage:
    """Noise scaled to that standard deviation."""
    return noise * np.float32(level / (float(noise.std()) + 1e-8))


def demosaic(mosaic: FloatImage, sites: NDArray[np.intp], method: Demosaic) -> FloatImage:
    """Three colours at each pixel of a mosaic (H, W).

    - ``bilinear``: the mean of the nearest pixels of that colour;
    - ``gradient-corrected``: green is the mean of its four neighbours plus a quarter of the other
      colour's second difference; red and blue are green plus the interpolated colour difference;
    - ``edge-directed``: the same, but green is interpolated along rows or columns, whichever
      changes less.
    """
    masks = sites[..., None] == np.arange(3)
    green = masks[..., 1]
    if method == "bilinear":
        planes = _tent(mosaic[..., None] * masks)
        planes[..., 1] = np.where(green, mosaic, _neighbours(mosaic))
        return planes
    across, down = _line(mosaic, 1), _line(mosaic, 0)
    if method == "edge-directed":
        change = [
            np.abs(_shifted(mosaic, 1, axis) - _shifted(mosaic, -1, axis))
            + np.abs(2 * mosaic - _shifted(mosaic, 2, axis) - _shifted(mosaic, -2, axis))
            for axis in (1, 0)
        ]
        other = np.where(change[0] < change[1], across, down)
    else:
        other = (across + down) / 2
    full_green = np.where(green, mosaic, other)
    differences = _tent((mosaic - full_green)[..., None] * masks)
    differences[..., 1] = 0
    return differences + full_green[..., None]


def _tent(planes: FloatImage) -> FloatImage:
    """Interpolate colours that stand at every other row and column, 0 between them."""
    rows = ndimage.correlate1d(planes, _TENT, axis=0, mode="mirror")
    return np.asarray(ndimage.correlate1d(rows, _TENT, axis=1, mode="mirror"), np.float32)


def _neighbours(mosaic: FloatImage) -> FloatImage:
    """The mean of the four nearest pixels."""
    total = sum(_shifted(mosaic, step, axis) for step in (1, -1) for axis in (0, 1))
    return np.asarray(total / 4, np.float32)


def _line(mosaic: FloatImage, axis: int) -> FloatImage:
    """The value between two neighbours along an axis, corrected by the pixel's own curvature."""
    mean = (_shifted(mosaic, 1, axis) + _shifted(mosaic, -1, axis)) / 2
    bend = (2 * mosaic - _shifted(mosaic, 2, axis) - _shifted(mosaic, -2, axis)) / 4
    return np.asarray(mean + bend, np.float32)


def _shifted(mosaic: FloatImage, step: int, axis: int) -> FloatImage:
    """The pixels ``step`` further along an axis, mirrored at the border (which keeps colours)."""
    length = mosaic.shape[axis]
    places = np.abs(np.arange(length) + step)
    places = np.where(places >= length, 2 * (length - 1) - places, places)
    return mosaic.take(places, axis)
