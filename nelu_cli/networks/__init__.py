"""Denoising networks, one file a family. A new one takes a line in ``registry``."""

from nelu_cli.networks.base import Config, Memory, Network
from nelu_cli.networks.blocks import ResidualBlock, hidden_channels, is_idle
from nelu_cli.networks.deep import FLAGSHIP, DeepAutoencoder, DeepConfig
from nelu_cli.networks.family import Family, Recipe
from nelu_cli.networks.paper import PaperActivation, PaperAutoencoder, PaperConfig
from nelu_cli.networks.registry import build, family, family_names

__all__ = [
    "FLAGSHIP",
    "Config",
    "DeepAutoencoder",
    "DeepConfig",
    "Family",
    "Memory",
    "Network",
    "PaperActivation",
    "PaperAutoencoder",
    "PaperConfig",
    "Recipe",
    "ResidualBlock",
    "build",
    "family",
    "family_names",
    "hidden_channels",
    "is_idle",
]
