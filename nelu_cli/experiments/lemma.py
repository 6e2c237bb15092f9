"""Lemma 1 of the paper's appendix: how often its four events fail, beside what it allows."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from nelu_cli.experiments.claims import claim
from nelu_cli.experiments.model import TrialsConfig
from nelu_cli.experiments.results import (
    Curves,
    Experiment,
    Panel,
    Progress,
    Series,
    silent,
)

NAMES = ("C₁", "C₂", "C₃", "A")


@dataclass(frozen=True)
class LemmaConfig(TrialsConfig):
    """``trials`` draws of noise for each n; W is (2n, n) with unit rows."""

    trials: int = 4000
    sizes: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    a: float = 3.2  # a little above 2√2, where the lemma begins
    sigma: float = 0.5

    @classmethod
    def quick(cls) -> Self:
        return cls(trials=1000, sizes=(16, 32, 64, 128, 256))


def events(error: Tensor, n: int, a: float, sigma: float, s_min: float, s_max: float) -> Tensor:
    """Whether C₁, C₂, C₃ and A happened, (4, trials), for e = Wξ (trials, d)."""
    d = error.shape[1]
    largest, norm = error.abs().amax(1), error.norm(dim=1)
    lasso = a * sigma * math.sqrt(math.log(d) / n)
    lam = a * math.sqrt(2 * math.log(d) / n)
    size = norm / math.sqrt(n)
    first = largest / math.sqrt(n) <= lasso / 2
    second = largest / math.sqrt(n) <= lam / 2 * sigma / math.sqrt(2)
    third = (s_min * sigma / math.sqrt(2) < size) & (size < 2 * s_max * sigma)
    return torch.stack([first, second, third, (largest / norm <= lam / (2 * s_min)) & third])


def allowed(n: int, d: int, a: float) -> tuple[float, float, float, float]:
    """How often C₁, C₂, C₃ and A may fail."""
    rows = min(1.0, 2 * d ** (1 - a**2 / 8))
    norm = min(1.0, (1 + math.e**2) * math.exp(-n / 24))
    return rows, rows, norm, min(1.0, rows + norm)


def lemma(config: LemmaConfig, advance: Progress = silent) -> Curves:
    """Count how often the events of Lemma 1 fail for Gaussian noise, as n grows.

    References
    ----------
    Lemma 1 of the appendix "Lemmas", on which Theorem 3 rests.
    """
    generator = torch.Generator().manual_seed(config.seed)
    missed, limits = [], []
    for n in config.sizes:
        rows = torch.randn(2 * n, n, generator=generator, dtype=torch.float64)
        matrix = rows / rows.norm(dim=1, keepdim=True)
        values = torch.linalg.svdvals(matrix)
        noise = torch.randn(config.trials, n, generator=generator, dtype=torch.float64)
        happened = events(
            config.sigma * noise @ matrix.T,
            n,
            config.a,
            config.sigma,
            float(values[-1]),
            float(values[0]),
        )
        missed.append((~happened).double().mean(1).tolist())
        limits.append(allowed(n, 2 * n, config.a))
        advance(1 / len(config.sizes))
    sizes = tuple(map(float, config.sizes))
    found = {name: tuple(row[i] for row in missed) for i, name in enumerate(NAMES)}
    allow = {name: tuple(row[i] for row in limits) for i, name in enumerate(NAMES)}
    panels = tuple(
        Panel(
            f"failures_{name}",
            "n",
            "share of trials",
            (Series("fails", sizes, found[name]), Series("allowed", sizes, allow[name])),
            f"event {name}",
            log_x=True,
        )
        for name in NAMES
    )
    claims = tuple(
        claim(
            "lemma",
            all(a <= b for a, b in zip(found[name], allow[name], strict=True)),
            f"fails in {max(found[name]):.2%} of the trials at most; allowed "
            f"{min(allow[name]):.1%} at n = {config.sizes[-1]}, {max(allow[name]):.1%} at "
            f"n = {config.sizes[0]}",
            name,
        )
        for name in NAMES
    )
    return Curves("n", panels, claims)


EXPERIMENTS = {"lemma": Experiment(LemmaConfig, lemma)}
