"""The paper's experiments with a learned transform: section "Trainable transforms".

One linear layer and a shrinkage (soft threshold, Algorithm 2, exact NeLU), with a second linear
layer where the task is to denoise. All are trained on the same pairs at one noise level and then
tested at many. Two kinds of W are tried:

- Gaussian with unit rows, as in the paper. A square Gaussian matrix is badly conditioned
  (condition number of the order of d and often far more), so x = W⁻¹z* lies mostly along a few
  directions.
- With a chosen condition number κ: orthogonal for κ = 1.
"""

from dataclasses import dataclass
from typing import Self

from nelu_cli.experiments.claims import MARKS, claim
from nelu_cli.experiments.learned import (
    EXACT,
    FREE,
    GAUSSIAN,
    TIED,
    UNROLLED,
    Outcome,
    TrainableConfig,
    run,
)
from nelu_cli.experiments.model import SIGMA_LABEL
from nelu_cli.experiments.results import (
    Claim,
    Curves,
    Experiment,
    Panel,
    Progress,
    Row,
    mean_series,
    silent,
)


@dataclass(frozen=True)
class SparseCodingConfig(TrainableConfig):
    @classmethod
    def quick(cls) -> Self:
        return cls(steps=300)


@dataclass(frozen=True)
class SignalDenoisingConfig(TrainableConfig):
    steps: int = 3000  # finding W without being shown z* takes longer
    conditions: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, GAUSSIAN)
    decoders: tuple[str, ...] = (FREE, TIED)

    @classmethod
    def quick(cls) -> Self:
        return cls(d=40, nonzeros=2, steps=300, trials=500, conditions=(1.0, 3.0, GAUSSIAN))


def _panel(outcome: Outcome, config: TrainableConfig, names: tuple[str, str, str]) -> Panel:
    quantity, y_label, title = names
    return Panel(
        quantity,
        SIGMA_LABEL,
        y_label,
        tuple(mean_series(name, config.sigmas, error) for name, error in outcome.errors.items()),
        title,
        log_y=True,
        mark_x=(config.trained_sigma, "trained here"),
    )


def _kind(kappa: float) -> str:
    return "Gaussian W, as in the paper" if kappa == GAUSSIAN else f"κ = {kappa:g}"


def _key(kappa: float) -> str:
    return "gaussian" if kappa == GAUSSIAN else f"kappa_{kappa:g}"


def sparse_coding(config: SparseCodingConfig, advance: Progress = silent) -> Curves:
    """Learn to estimate z* from y = W⁻¹z* + ξ at σ = 0.1; test at other levels.

    References
    ----------
    Section "Trainable transforms", supervised sparse coding.
    """
    panels, claims = [], []
    for kappa in config.conditions:
        outcome = run(config, kappa, None, advance, 1 / len(config.conditions))
        names = f"squared_error_of_code_{_key(kappa)}", r"mean of $\|\hat z - z^*\|_2^2$"
        panels.append(_panel(outcome, config, (*names, _kind(kappa))))
        claims += [
            _robust(f"{name} ({_kind(kappa)})", outcome, name, config) for name in (UNROLLED, EXACT)
        ]
    return Curves("sigma", tuple(panels), tuple(claims))


def _robust(about: str, outcome: Outcome, name: str, config: TrainableConfig) -> Claim:
    """NeLU has the lower error at every level that was not trained on."""
    gains = outcome.gains(name, config)
    least, most = (pick(gains, key=gains.__getitem__) for pick in (min, max))
    return claim(
        "robust",
        gains[least] > MARKS["robust"].limit,
        f"the error of the soft threshold is {gains[least]:.2f} (σ = {least:g}) to "
        f"{gains[most]:.2f} (σ = {most:g}) times as large; it learned λ = {outcome.learned:.3g}",
        about,
    )


@dataclass(frozen=True)
class SignalDenoising(Curves):
    """The curves, with a table over the condition number."""

    table: tuple[Row, ...] = ()

    @property
    def summary(self) -> tuple[Row, ...]:
        return self.table


def signal_denoising(config: SignalDenoisingConfig, advance: Progress = silent) -> SignalDenoising:
    """Learn to estimate x from y = x + ξ at σ = 0.1; test at other levels, for W of many kinds.

    W decides how far this can go. With a badly conditioned W itself as the encoder, the noise in
    W·y is as large as the code, so that a network gains little by shrinking and falls back on what
    a Wiener filter does; a free encoder need not be W. The verdict is up to which condition number
    κ NeLU beats the soft threshold at every unseen level, with a free decoder and with the paper's
    W⁺.

    References
    ----------
    Section "Trainable transforms", signal denoising.
    """
    panels, table = [], []
    outcomes: dict[tuple[float, str], Outcome] = {}
    share = 1 / len(config.conditions) / len(config.decoders)
    for kappa in config.conditions:
        for decoder in config.decoders:
            outcome = outcomes[kappa, decoder] = run(config, kappa, decoder, advance, share)
            tied = "tied" if decoder == TIED else "free"
            names = f"squared_error_of_signal_{_key(kappa)}_{tied}", r"mean of $\|\hat x - x\|_2^2$"
            panels.append(_panel(outcome, config, (*names, f"{_kind(kappa)}, {decoder}")))
            last = {
                name: f"{float(error[-1].mean()):.3g}" for name, error in outcome.errors.items()
            }
            kind = "Gaussian" if kappa == GAUSSIAN else f"{kappa:g}"
            condition_number = f"{kind} ({outcome.kappa:.3g})"
            at = f"error at σ = {config.sigmas[-1]:g} of"
            table.append({"κ (found)": condition_number, at: decoder, **last})
    claims = [
        _up_to(name, decoder, outcomes, config)
        for decoder in config.decoders
        for name in (UNROLLED, EXACT)
    ]
    if GAUSSIAN in config.conditions:
        claims += [
            _robust(
                f"{name}, {decoder} ({_kind(GAUSSIAN)})", outcomes[GAUSSIAN, decoder], name, config
            )
            for decoder in config.decoders
            for name in (UNROLLED, EXACT)
        ]
    return SignalDenoising("sigma", tuple(panels), tuple(claims), tuple(table))


def _up_to(
    name: str,
    decoder: str,
    outcomes: dict[tuple[float, str], Outcome],
    config: SignalDenoisingConfig,
) -> Claim:
    """Up to which condition number NeLU beats the soft threshold at every unseen level."""
    key = f"robust to κ, {'exact' if name == EXACT else 'Algorithm 2'}"
    numbers = sorted(kappa for kappa in config.conditions if kappa != GAUSSIAN)
    gains = {kappa: outcomes[kappa, decoder].gains(name, config) for kappa in numbers}
    least = {kappa: min(gains[kappa].values()) for kappa in numbers}
    wins = [kappa for kappa in numbers if all(least[k] > 1 for k in numbers if k <= kappa)]
    asked = [kappa for kappa in numbers if kappa <= MARKS[key].limit]
    up_to = f"up to κ = {wins[-1]:g}" if wins else "at no κ"
    where = {kappa: min(found, key=found.__getitem__) for kappa, found in gains.items()}
    shown = ", ".join(
        f"{gains[kappa][where[kappa]]:.2f} at κ = {kappa:g} (σ = {where[kappa]:g})"
        for kappa in numbers
    )
    above = min(
        gain
        for found in gains.values()
        for sigma, gain in found.items()
        if sigma > config.trained_sigma
    )
    return claim(
        key,
        all(least[kappa] > 1 for kappa in asked),
        f"it does {up_to}; the error of the soft threshold is at least so many times as large: "
        f"{shown}; above the trained level alone, at any κ: {above:.2f}",
        f"{name}, {decoder},",
    )


EXPERIMENTS: dict[str, Experiment[SparseCodingConfig] | Experiment[SignalDenoisingConfig]] = {
    "sparse-coding": Experiment(SparseCodingConfig, sparse_coding),
    "signal-denoising": Experiment(SignalDenoisingConfig, signal_denoising),
}
