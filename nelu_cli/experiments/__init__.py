"""The paper's experiments and theorems, each as a function of a frozen config.

Computing (one module for each group of experiments) is apart from drawing (:mod:`drawing`); what a
claim must reach is written down in :mod:`claims`. This catalogue imports none of them, so that
listing it is instant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nelu_cli.errors import UsageError

if TYPE_CHECKING:
    from nelu_cli.experiments.results import Experiment

__all__ = ["CATALOGUE", "Entry", "load"]


@dataclass(frozen=True)
class Entry:
    """A line of ``nelu experiment list``."""

    about: str
    duration: str
    module: str


CATALOGUE: Mapping[str, Entry] = {
    "analytical": Entry(
        "known transform: error and best λ over σ, soft threshold against NeLU",
        "seconds",
        "analytical",
    ),
    "bound": Entry("Theorem 2: the estimation error beside its bound", "seconds", "analytical"),
    "support": Entry(
        "Theorems 1, 3, 4 and 5, stated and repaired: how often the support is recovered",
        "seconds",
        "support",
    ),
    "lemma": Entry("Lemma 1: how often its four events fail", "seconds", "lemma"),
    "layered-pursuit": Entry(
        "two layers: is the best λ of each the same at every noise level?", "a minute", "pursuit"
    ),
    "sparse-coding": Entry(
        "learned transform: codes at noise levels never trained on", "minutes", "trainable"
    ),
    "signal-denoising": Entry(
        "learned transform and decoder, over the condition number of W: unseen noise levels",
        "minutes",
        "trainable",
    ),
    "shift-averaging": Entry(
        "stride-shift averaging in 1-D, and PSNR over the number of shifts", "seconds", "shifts"
    ),
    "table": Entry(
        "natural images: PSNR of NeLU and ReLU auto-encoders trained at σ = 15",
        "minutes",
        "natural",
    ),
    "qualitative": Entry(
        "three pictures and what each network leaves of them", "seconds", "natural"
    ),
}


def load(name: str) -> "Experiment[Any]":
    """The experiment of that name, with the modules that it needs."""
    if name not in CATALOGUE:
        raise UsageError(f"{name}: no such experiment; there are {', '.join(CATALOGUE)}")
    module = import_module(f"{__name__}.{CATALOGUE[name].module}")
    experiment: Experiment[Any] = module.EXPERIMENTS[name]
    return experiment
