"""Which families of networks there are: our own, and those of other packages.

A package adds a family with an entry point of the group ``nelu.networks``, whose name is the
family's and whose object is a :class:`nelu_cli.networks.family.Family`:

    [project.entry-points."nelu.networks"]
    tiny = "tiny_networks:FAMILY"
"""

from importlib import metadata
from typing import Final

from nelu_cli.errors import NeluError, UsageError
from nelu_cli.networks import deep, paper
from nelu_cli.networks.base import Config, Network
from nelu_cli.networks.family import Family

GROUP: Final = "nelu.networks"
BUILT_IN: Final = {each.name: each for each in (paper.FAMILY, deep.FAMILY)}


def family_names() -> list[str]:
    """The names of all families; nothing is loaded for it."""
    return [*BUILT_IN, *sorted(metadata.entry_points(group=GROUP).names - BUILT_IN.keys())]


def family(name: str) -> Family:
    """A family by its name; one of ours goes before one of another package.

    Raises:
        UsageError: there is no such family.
        NeluError: the package that has it is broken.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = [*metadata.entry_points(group=GROUP, name=name)]
    if not found:
        known = ", ".join(family_names())
        raise UsageError(f"there is no network {name!r} here; there are {known}")
    try:
        made = found[0].load()
    except Exception as error:  # whatever another package does
        fault = f"{type(error).__name__}: {error}"
        raise NeluError(f"network {name!r}: {found[0].value} fails ({fault})") from error
    if not isinstance(made, Family) or made.name != name:
        raise NeluError(f"network {name!r}: {found[0].value} is not a family of that name")
    return made


def build(config: Config) -> Network:
    """The network of a config, with fresh random weights."""
    return family(config.family).build(config)
