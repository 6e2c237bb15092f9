"""Seeded noise models, each with its formula; used by training, evaluation and the tests."""

from nelu_cli.noise.kinds import DRAWN, NoisyPair, add_noise, draw_noise, noise_seed
from nelu_cli.noise.mix import PHOTO, WHITE, NoiseMix

__all__ = [
    "DRAWN",
    "PHOTO",
    "WHITE",
    "NoiseMix",
    "NoisyPair",
    "add_noise",
    "draw_noise",
    "noise_seed",
]
