"""Which model is for a picture: the one place where that is decided.

White noise is independent from pixel to pixel. That of a finished photograph is not: demosaicing,
noise reduction and JPEG have spread it over its neighbours. A network that knows only the one does
next to nothing about the other. So, unless a model is asked for, a few crops go through both a
white model and the photo model. Where the white model finds a good part as much, and what it finds
is not correlated, the noise is white, and the white model is for the picture; else it does not see
the noise. Unless there is hardly any: what the photo model then takes for noise is faint, or the
opposite in one pixel of what it is in the next, and is detail, which the white model leaves.

Noise may be independent from pixel to pixel, but alike in the channels of a colour picture. Then
the white model is for it in the noise's own colours (:mod:`nelu_cli.runtime.colours`), in which it
finds more.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nelu_cli import checkpoints
from nelu_cli.runtime.colours import along, find_colours, turned
from nelu_cli.runtime.models import Model, Models, preferred_model
from nelu_cli.runtime.passes import passes
from nelu_cli.runtime.pixels import equal_channels
from nelu_cli.runtime.samples import Sample, take_sample

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
COLOURED: Final = 0.45
"""Of the energy of what the photo model finds, the share of one colour from which on noise may be
alike in the channels. White noise of σ = 10 and 25 gives 0.33 to 0.43 in 14 photographs, noise of
which half is the same in all channels 0.49 and more."""
NEAR: Final = 0.2
"""Correlation of neighbours in what the photo model finds, from which on noise is not white from
pixel to pixel: 0.28 to 0.64 in CC, up to 0.11 where white noise is alike in the channels."""
ONE_COLOUR: Final = 0.25
"""Deviation in the second colour, as a share of the first, from which on there are others."""
AGREED: Final = 0.75
"""Share of one colour in what the photo model finds, below which there are others, too, which the
grey model does not see: 0.53 to 0.67 in three pictures of CC made smaller, whose noise has blotches
of colour; 0.77 and more where noise of σ = 3 is equal in the channels, in 11 of 12 photographs."""
MORE: Final = 1.05
"""How much more than the white model itself is found in the noise's own colours. White noise of
σ = 15: 1.01 at most …"""
MUCH_MORE: Final = 1.35
"""… and where it has several colours, and the photo model finds more still: up to 1.29 in clean
pictures full of detail."""
MOST: Final = 0.7
"""And how much of what the photo model finds: 0.8 and more where noise of σ = 15 is white but alike
in the channels, 0.45 where it is blurred in colour only, 0.65 in a clean picture full of detail."""
OPPOSITE: Final = -0.2
"""Correlation of neighbours below which it is detail that is found."""
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
    one_colour: float = 1 / 3
    """The share of its energy that the strongest colour has: 1/3 if the channels do not agree."""
    coupled: bool = False
    """White from pixel to pixel, but not from channel to channel."""

    @property
    def may_be_coupled(self) -> bool:
        """Whether noise could be white from pixel to pixel and yet of few colours."""
        near_white = OPPOSITE < self.correlation < NEAR
        return self.one_colour > COLOURED and near_white and self.loudness >= FAINT

    @property
    def kind(self) -> Literal["camera-like", "white", "coupled white"]:
        if self.coupled:
            return "coupled white"
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
    if character is None:
        return Choice(white.suited_to(pixels))
    if channels == 3 and character.may_be_coupled:
        grey = models.load(preferred_model(1))
        coloured = _in_its_colours(pixels, character, white, photo, grey)
        if coloured is not None:
            return Choice(coloured.suited_to(pixels), replace(character, coupled=True))
    like_camera = character.kind == "camera-like"
    return Choice((photo if like_camera else white).suited_to(pixels), character)


def candidates(channels: int, models: Models) -> list[Model]:
    """All that :func:`choose_model` may choose for pixels of so many channels."""
    if models.asked is not None:
        return [models.load(models.asked)]
    photos = [PHOTO_MODELS[n] for n in (1, channels) if n in PHOTO_MODELS]
    names = [preferred_model(channels), preferred_model(1)]
    names += [name for name in photos if name in checkpoints.bundled()]
    return [models.load(name) for name in dict.fromkeys(names)]


def _in_its_colours(
    pixels: NDArray[Any], character: NoiseCharacter, white: Model, photo: Model, grey: Model
) -> Model | None:
    """The white or the grey model in the noise's own colours, if there it finds more noise."""
    sample = take_sample(pixels, _SIDE)
    if sample is None or (white.channels, grey.channels) != (3, 1):
        return None
    known = None if sample.holes is None else ~torch.from_numpy(sample.holes).permute(0, 3, 1, 2)
    colours = find_colours(sample.crops, grey, known)
    options = [turned(white, colours)]
    alone = colours.deviations[1] < ONE_COLOUR * colours.deviations[0]
    if alone and character.one_colour > AGREED:
        options.append(along(grey, colours))
    every = [(_found(model, sample), model) for model in options]
    found, best = max(every, key=lambda each: float(np.linalg.norm(each[0])))
    of_white, of_photo = (
        float(np.linalg.norm(found) / np.linalg.norm(_found(model, sample)))
        for model in (white, photo)
    )
    more = MORE if of_photo >= 1 or best is not options[0] else MUCH_MORE
    enough = of_white >= more and of_photo >= MOST
    return best if enough and OPPOSITE < _correlation(found, 1) < _FELT else None


def _found(model: Model, sample: Sample) -> NDArray[np.float32]:
    """What a model takes for noise in the crops (N, C, h, w), and 0 where no values are."""
    found: NDArray[np.float32] = passes(model, "normal")(sample.crops).numpy()
    return found if sample.holes is None else found * ~sample.holes.transpose(0, 3, 1, 2)


def noise_character(pixels: NDArray[Any], white: Model, photo: Model) -> NoiseCharacter | None:
    """What two models take for noise in a few crops of a picture; none if there is nothing."""
    sample = take_sample(pixels, _SIDE)
    if sample is None:
        return None
    found_white, found_photo = _found(white, sample), _found(photo, sample)
    if not (found_white.any() and found_photo.any()) or min(found_photo.shape[2:]) < 2:
        return None
    far = min(_FAR, *(length - 1 for length in found_photo.shape[2:]))
    found = [_correlation(found_photo, distance) for distance in range(1, far + 1)]
    reach = next((k for k, value in enumerate(found) if value <= _FELT), len(found))
    share = float(np.linalg.norm(found_white) / np.linalg.norm(found_photo))
    beside = _correlation(found_white, 1)
    contrast = float(sample.crops.std()) or 1.0
    loudness = float(np.sqrt(np.mean(np.square(found_photo)))) / contrast
    flat = found_photo.swapaxes(0, 1).reshape(found_photo.shape[1], -1).astype(np.float64)
    energies = np.linalg.eigvalsh(flat @ flat.T)
    one_colour = float(energies[-1] / energies.sum())
    return NoiseCharacter(
        correlation=round(found[0], 3),
        reach=reach,
        white_share=round(share, 3),
        white_correlation=round(beside, 3),
        loudness=round(loudness, 3),
        one_colour=round(one_colour, 3),
    )


def _correlation(removed: NDArray[np.float32], distance: int) -> float:
    """Of pixels so far apart, in the luma (about) of (N, C, h, w)."""
    luma = removed.mean(1)
    across = np.mean(luma[:, :, distance:] * luma[:, :, :-distance])
    down = np.mean(luma[:, distance:] * luma[:, :-distance])
    return float(across + down) / (2 * float(np.mean(luma**2)) or 1.0)
