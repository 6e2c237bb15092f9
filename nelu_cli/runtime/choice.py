"""Which model is for a picture: the one place where that is decided.

White noise is independent from pixel to pixel. That of a finished photograph is not: demosaicing,
noise reduction and JPEG have spread it over its neighbours. A network that knows only the one does
next to nothing about the other. So, unless a model is asked for, a few crops go through both a
white model and the photo model. Where the white model finds a good part as much, and what it finds
is not correlated, the noise is white, and the white model is for the picture; else it does not see
the noise. Unless there is hardly any: what the photo model then takes for noise is faint, or the
opposite in one pixel of what it is in the next, and is detail, which the white model leaves.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from nelu_cli import checkpoints
from nelu_cli.runtime.models import Model, Models, preferred_model
from nelu_cli.runtime.passes import passes
from nelu_cli.runtime.pixels import equal_channels
from nelu_cli.runtime.samples import take_sample

PHOTO_MODELS: Final = {1: "photo-gray", 3: "photo-color"}  # by picture channels
ENOUGH: Final = 0.3
"""How much a white model must find, as a share of what the photo model does (root mean squares).

It finds 0.01 to 0.03 of it in the 15 pictures of CC, in grey up to 0.17. With white noise of σ = 5
it is 0.80 or more in 27 held-out photographs.
"""
FAINT: Final = 0.02
"""Noise that is less, as a share of the picture's standard deviation, is none.

The photo model finds 0.033 or more in CC; in half of 27 held-out photographs, clean, less.
"""
_SIDE: Final = 64  # of the crops
_FAR: Final = 8  # pixels: the largest distance looked at
_FELT: Final = 0.1  # correlation of pixels from which on it counts


@dataclass(frozen=True)
class NoiseCharacter:
    """How the noise of a picture is correlated."""

    correlation: float
    """Of neighbouring pixels, in luma."""
    reach: int
    """Largest distance, in pixels, over which it is correlated."""
    white_share: float
    """Of what the photo model takes for noise, how much a white model finds."""
    white_correlation: float
    """Of neighbouring pixels in what the white model finds."""
    loudness: float
    """Of what the photo model takes for noise, as a share of the picture's standard deviation."""

    @property
    def kind(self) -> Literal["camera-like", "white"]:
        white = self.white_share >= ENOUGH and self.white_correlation < _FELT
        none = self.loudness < FAINT or self.correlation < 0
        return "white" if white or none else "camera-like"


@dataclass(frozen=True)
class Choice:
    """A model, and what it was chosen by: nothing if it was asked for."""

    model: Model
    character: NoiseCharacter | None = None


def choose_model(pixels: NDArray[Any], models: Models) -> Choice:
    """The model for the pixels (..., H, W, C) of a picture or a stack.

    By the command line, by :func:`denoise` and for files.
    """
    if models.asked is not None:
        return Choice(models.load(models.asked).suited_to(pixels))
    channels = 1 if equal_channels(pixels) else pixels.shape[-1]  # a grey picture stored as RGB
    white = models.load(preferred_model(channels))
    name = PHOTO_MODELS.get(channels)
    if name not in checkpoints.bundled():
        return Choice(white.suited_to(pixels))
    photo = models.load(name)
    character = noise_character(pixels[..., :channels], white, photo)
    like_camera = character is not None and character.kind == "camera-like"
    return Choice((photo if like_camera else white).suited_to(pixels), character)


def candidates(channels: int, models: Models) -> list[Model]:
    """All that :func:`choose_model` may choose for pixels of so many channels."""
    if models.asked is not None:
        return [models.load(models.asked)]
    photos = [PHOTO_MODELS[n] for n in (1, channels) if n in PHOTO_MODELS]
    names = [preferred_model(channels), preferred_model(1)]
    names += [name for name in photos if name in checkpoints.bundled()]
    return [models.load(name) for name in dict.fromkeys(names)]


def noise_character(pixels: NDArray[Any], white: Model, photo: Model) -> NoiseCharacter | None:
    """What two models take for noise in a few crops of a picture; none if there is nothing."""
    sample = take_sample(pixels, _SIDE)
    if sample is None:
        return None
    found_white, found_photo = (passes(m, "normal")(sample.crops).numpy() for m in (white, photo))
    if sample.holes is not None:
        known = ~sample.holes.transpose(0, 3, 1, 2)
        found_white, found_photo = found_white * known, found_photo * known
    if not (found_white.any() and found_photo.any()) or min(found_photo.shape[2:]) < 2:
        return None
    far = min(_FAR, *(length - 1 for length in found_photo.shape[2:]))
    found = [_correlation(found_photo, distance) for distance in range(1, far + 1)]
    reach = next((k for k, value in enumerate(found) if value <= _FELT), len(found))
    share = float(np.linalg.norm(found_white) / np.linalg.norm(found_photo))
    beside = _correlation(found_white, 1)
    contrast = float(sample.crops.std()) or 1.0
    loudness = float(np.sqrt(np.mean(np.square(found_photo)))) / contrast
    shown = (round(value, 3) for value in (share, beside, loudness))
    return NoiseCharacter(round(found[0], 3), reach, *shown)


def _correlation(removed: NDArray[np.float32], distance: int) -> float:
    """Of pixels so far apart, in the luma (about) of (N, C, h, w)."""
    luma = removed.mean(1)
    across = np.mean(luma[:, :, distance:] * luma[:, :, :-distance])
    down = np.mean(luma[:, distance:] * luma[:, :-distance])
    return float(across + down) / (2 * float(np.mean(luma**2)) or 1.0)
