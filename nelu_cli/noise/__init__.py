"""Seeded noise models, each with its formula; used by training, evaluation and the tests."""

from nelu_cli.noise.kinds import (
    DRAWN,
    WHITE_LIKE,
    NoisyPair,
    add_noise,
    draw_noise,
    noise_seed,
    white_like,
)
from nelu_cli.noise.mix import PHOTO, WHITE, NoiseMix

__all__ = [
    "DRAWN",
    "PHOTO",
    "WHITE",
    "WHITE_LIKE",
    "NoiseMix",
    "NoisyPair",
    "add_noise",
    "draw_noise",
    "noise_seed",
    "white_like",
]
