"""What every experiment returns: numbers for a CSV, claims, and curves to draw."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from nelu_cli.errors import UsageError

Progress = Callable[[float], None]
"""Called with the share of the whole experiment that has been done since the last call."""

Row = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Config:
    """What every experiment can be told. Children add fields and a :meth:`quick` variant."""

    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise UsageError("--seed must be a whole number from 0 to 2^63 - 1")

    @classmethod
    def quick(cls) -> Self:
        """The same experiment in seconds, with coarser numbers."""
        return cls()


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, whether it holds here, and by how much.

    ``paper`` is the paper's own sentence.
    """

    text: str
    holds: bool
    margin: str
    paper: str = ""

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "does not hold"


class Result(Protocol):
    """The outcome of an experiment, the same for the same config."""

    @property
    def claims(self) -> tuple[Claim, ...]: ...

    @property
    def rows(self) -> tuple[Row, ...]:
        """The lines of the CSV, all with the same keys."""
        ...

    @property
    def summary(self) -> tuple[Row, ...]:
        """A table short enough for a terminal."""
        ...


@dataclass(frozen=True)
class Series:
    """One curve: means with their standard errors (None where there is nothing to average)."""

    label: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    error: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Panel:
    """The axes of a figure and the curves in it."""

    quantity: str  # in the CSV
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    shaded: Series | None = None  # an area under a curve, behind the others
    mark_x: tuple[float, str] | None = None  # a vertical line and what it says

    @property
    def curves(self) -> tuple[Series, ...]:
        return self.series if self.shaded is None else (*self.series, self.shaded)


@dataclass(frozen=True)
class Curves:
    """A result that is all curves, over the same variable ``x_name``."""

    x_name: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(
            {
                "quantity": panel.quantity,
                "method": series.label,
                self.x_name: _digits(x),
                "mean": _digits(mean),
                "standard_error": "" if series.error is None else _digits(series.error[index]),
            }
            for panel in self.panels
            for series in panel.curves
            for index, (x, mean) in enumerate(zip(series.x, series.mean, strict=True))
        )

    @property
    def summary(self) -> tuple[Row, ...]:
        """The first panel at up to six values of x, one column for each curve."""
        series = self.panels[0].curves
        x = series[0].x
        step = max(1, -(-len(x) // 6))
        return tuple(
            {
                self.x_name: f"{x[index]:.3g}",
                **{curve.label: f"{curve.mean[index]:.4g}" for curve in series},
            }
            for index in sorted({*range(0, len(x), step), len(x) - 1})
        )


def _digits(value: float) -> str:
    return f"{value:.6g}"


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def mean_series(label: str, x: Sequence[float], samples: Tensor) -> Series:
    """The curve of the mean over trials of ``samples`` (len(x), trials)."""
    mean, trials = tuple(samples.mean(1).tolist()), samples.shape[1]
    if trials == 1:
        return Series(label, tuple(x), mean)
    return Series(label, tuple(x), mean, tuple((samples.std(1) / trials**0.5).tolist()))


def silent(share: float) -> None:
    """Nobody watches."""


def span(values: Tensor | Sequence[float], digits: str = ".2f") -> str:
    """``0.91 to 1.07``: the least and the greatest value."""
    values = torch.as_tensor(values)
    return f"{float(values.min()):{digits}} to {float(values.max()):{digits}}"


C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Experiment(Generic[C]):
    """An experiment and the config that it takes.

    The shares that ``run`` hands to its second argument add up to 1.
    """

    config: type[C]
    run: Callable[[C, Progress], Result]
