"""Denoising networks, one file a family."""

from nelu_cli.networks.base import Network
from nelu_cli.networks.deep import (
    FLAGSHIP,
    DeepAutoencoder,
    DeepConfig,
    ResidualBlock,
    hidden_channels,
    is_idle,
)
from nelu_cli.networks.paper import PaperActivation, PaperAutoencoder, PaperConfig

__all__ = [
    "FLAGSHIP",
    "Config",
    "DeepAutoencoder",
    "DeepConfig",
    "Network",
    "PaperActivation",
    "PaperAutoencoder",
    "PaperConfig",
    "ResidualBlock",
    "build",
    "hidden_channels",
    "is_idle",
]

Config = PaperConfig | DeepConfig


def build(config: Config) -> Network:
    """The network of a config, with fresh random weights."""
    return PaperAutoencoder(config) if isinstance(config, PaperConfig) else DeepAutoencoder(config)
