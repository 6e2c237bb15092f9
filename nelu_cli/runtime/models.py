"""Weights ready to run."""

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import torch
from numpy.typing import NDArray

from nelu_cli import checkpoints
from nelu_cli.errors import CheckpointError, UsageError
from nelu_cli.networks import Network
from nelu_cli.runtime.device import find_device
from nelu_cli.runtime.precision import Format, choose_precision, needs_float32
from nelu_cli.runtime.shifts import ShiftAveraged
from nelu_cli.words import Precision

PREFERRED: Final = {1: ("deep-gray",), 3: ("deep-color", "deep-gray")}  # by picture channels


@dataclass(frozen=True)
class Model:
    """Weights, ready to run. Made by :func:`load_model`.

    May be shared between threads. To another process it travels as its name or path, and is loaded
    again there.
    """

    name: str
    network: Network
    device: torch.device
    precision: Format = "float32"
    """What the network computes in."""
    exact: "Model | None" = None
    """The same in float32, for pictures in which bfloat16 could be seen."""
    source: str | Path | None = None
    """What it was loaded by."""
    for_photos: bool = False
    """Trained on noise that is correlated, as a camera's: then grey pictures may be stored as
    colour, and a colour model takes grey ones, too."""
    shifts: int | None = None
    """How many shifts of the network's grid are averaged, if asked for."""

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is None:  # made by hand: travels whole
            parts = self.name, self.network, self.device, self.precision, self.exact
            return Model, (*parts, None, self.for_photos)
        precision: Precision = "auto" if self.exact else self.precision
        where, shifts = self.device.type, self.shifts
        load = partial(load_model, self.source, device=where, precision=precision, shifts=shifts)
        return load, ()

    def suited_to(self, pixels: NDArray[Any]) -> "Model":
        """This model, in float32 if the pixels (..., H, W, C) need it."""
        return self.exact if self.exact and needs_float32(pixels) else self

    @property
    def channels(self) -> int:
        """1: for any picture, channel by channel; 3: for colour pictures."""
        return self.network.channels


def load_model(
    name: str | Path | None = None,
    *,
    channels: int = 1,
    device: str = "auto",
    precision: Precision = "auto",
    shifts: int | None = None,
) -> Model:
    """Load weights for :func:`denoise`.

    Args:
        name: a bundled model's name, or the path of a weights file. By default the best bundled
            model for pictures of ``channels`` channels (3: colour; anything else: grey).
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "mps".
        precision: "float32", "bfloat16", or "auto": bfloat16 where the device is faster in it,
            but float32 for pictures in which it could be seen.
        shifts: average over so many shifts of the network's grid, each a pass of its own. By
            default one pass, which for the ``paper`` networks is the average over all of them.
    """
    chosen = preferred_model(channels) if name is None else name
    where = find_device(device)
    checkpoint = checkpoints.load(chosen)
    bundled = str(chosen) in checkpoints.bundled()
    source = chosen if bundled else checkpoint.path.resolve()
    exact = Model(
        checkpoint.name,
        checkpoint.network.to(where),
        where,
        source=source,
        for_photos=checkpoint.record.noise != "white",
    )
    if shifts is not None:
        exact = replace(exact, network=ShiftAveraged(exact.network, shifts), shifts=shifts)
    if choose_precision(precision, where) == "float32":
        return exact
    rounded = exact.network.in_bfloat16()
    if rounded is None:
        if precision == "auto":
            return exact
        raise UsageError(f"model {exact.name} computes in float32 only; choose that or auto")
    return replace(
        exact, network=rounded, precision="bfloat16", exact=exact if precision == "auto" else None
    )


def preferred_model(channels: int) -> str:
    """The bundled model for pictures of so many channels."""
    bundled = checkpoints.bundled()
    channels = 3 if channels == 3 else 1
    for name in PREFERRED[channels]:
        if name in bundled:
            return name
    for name in bundled:
        if checkpoints.read_description(name).config.channels in (1, channels):
            return name
    kind = "colour" if channels == 3 else "grey"
    raise CheckpointError(f"no weights are bundled for {kind} pictures; name a file of weights")


class Models:
    """The model asked for, or any of the bundled ones; each is loaded once, when first needed."""

    def __init__(
        self,
        asked: Model | str | Path | None = None,
        device: str = "auto",
        precision: Precision = "auto",
        shifts: int | None = None,
    ) -> None:
        self.asked = asked
        self.shifts = shifts
        self.device = device
        self.precision: Precision = precision
        self._loaded: dict[str | Path, Model] = {}

    def check(self) -> None:
        """Raise now what would otherwise be said of every picture."""
        find_device(self.device)
        if self.asked is None:
            name = preferred_model(1)
            if self.shifts is not None:  # there may not be so many
                self.load(name)
        else:
            self.load(self.asked)

    def load(self, name: Model | str | Path) -> Model:
        """A model by its name or path, ready to run."""
        if isinstance(name, Model):
            return name
        if name not in self._loaded:
            self._loaded[name] = load_model(
                name, device=self.device, precision=self.precision, shifts=self.shifts
            )
        return self._loaded[name]


@cache
def default_models(precision: Precision = "auto") -> Models:
    """The bundled models, for those who name none; loaded once in a process."""
    return Models(precision=precision)
