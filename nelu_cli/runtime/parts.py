"""Pictures in parts: what is settled once, so that the parts fit together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nelu_cli.runtime.choice import choose_model
from nelu_cli.runtime.holes import Holes
from nelu_cli.runtime.models import Model, Models
from nelu_cli.runtime.options import Options
from nelu_cli.runtime.pipeline import Part, prepare
from nelu_cli.runtime.pixels import find_levels


@dataclass(frozen=True)
class Settled:
    """The model, the levels and whether to dither: the same for all parts."""

    model: Model
    part: Part


def settle(sample: NDArray[Any], masked: Holes | None, models: Models, options: Options) -> Settled:
    """Decide by a sample of the picture, (H, W, C) or (N, H, W, C)."""
    model = choose_model(sample, models).model
    if without_values(sample, masked):
        return Settled(model, Part(find_levels(np.zeros_like(sample)), dithered=False))
    work = prepare(sample, model, options, masked)
    return Settled(model, Part(work.levels, work.dithered))


def without_values(pixels: NDArray[Any], masked: Holes | None = None) -> bool:
    """Whether there is nothing to be seen."""
    known = np.isfinite(pixels) if masked is None else np.isfinite(pixels) & ~masked
    return not known.any()
