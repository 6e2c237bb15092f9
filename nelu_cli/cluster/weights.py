"""Which weights a task uses: small, so that it can travel, and loaded once in each process."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nelu_cli.runtime.models import Model, Models
from nelu_cli.words import Precision


@dataclass(frozen=True)
class Weights:
    """What :class:`Models` is made of."""

    name: str | None
    """A bundled model, or an absolute path; none: whatever suits the picture."""
    device: str = "auto"
    precision: Precision = "auto"
    shifts: int | None = None

    def models(self) -> Models:
        """Loaded when first needed, and shared by all tasks of a process."""
        return _loaded(self)

    def model(self) -> Model:
        """The one that is named."""
        assert self.name is not None
        return self.models().load(self.name)


def weights_of(models: Models) -> Weights:
    """What travels to other processes, which may have another folder in front of them."""
    asked = models.asked.source if isinstance(models.asked, Model) else models.asked
    name = None if asked is None else str(asked)
    if name is not None and Path(name).is_file():
        name = str(Path(name).resolve())
    return Weights(name, models.device, models.precision, models.shifts)


@cache
def _loaded(weights: Weights) -> Models:
    return Models(weights.name, weights.device, weights.precision, weights.shifts)
