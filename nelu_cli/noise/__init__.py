"""Seeded noise models, each with its formula."""

from nelu_cli.noise.models import NoiseKind, add_noise, noise_seed

__all__ = ["NoiseKind", "add_noise", "noise_seed"]
