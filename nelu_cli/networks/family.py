"""A family of networks: what the registry keeps of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from nelu_cli.networks.base import Config, Network

OURS: Final = "nelu"
"""The name of the recipe that every family has."""


def _replaced(config: Any, given: Mapping[str, Any]) -> Config:
    changed: Config = replace(config, **given)
    return changed


@dataclass(frozen=True)
class Recipe:
    """How training begins: a config, and the settings of a run that are not the usual ones."""

    config: Config
    training: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """By the names of :class:`nelu_cli.training.TrainConfig`."""


@dataclass(frozen=True)
class Family:
    """Everything that is needed to read, build and train networks of a kind.

    ``config`` is a frozen dataclass, see :class:`nelu_cli.networks.base.Config`; ``build`` makes
    the network of one, with fresh random weights. Of the options of ``nelu train``, those that are
    named like fields of the config can be used with the family.
    """

    about: str
    """A few words, for the help."""
    config: type[Any]
    build: Callable[[Any], Network]
    recipes: Mapping[str, Recipe]
    shaped: Callable[[Any, Mapping[str, Any]], Config] = _replaced
    """A config with some fields given anew, by their names."""

    def __post_init__(self) -> None:
        if OURS not in self.recipes:
            raise ValueError(f"the family {self.name} has no recipe {OURS!r}")

    @property
    def name(self) -> str:
        name: str = self.config.family
        return name
