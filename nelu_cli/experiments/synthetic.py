"""The paper's experiments with a known transform: sections "Synthetic data" and "Theory".

Signals follow the transform model: W is square with unit rows, z* has few non-zero entries at
random places, x = W⁻¹z* and y = x + ξ with Gaussian ξ. So Wy = z* + e with e = Wξ, and x itself
is never needed. Everything is float64.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor

from nelu_cli.errors import UsageError
from nelu_cli.experiments.results import (
    Advance,
    Claim,
    Config,
    Curves,
    Experiment,
    Panel,
    Series,
    mean_series,
    silent,
    span,
)
from nelu_cli.operators import nelu, soft_threshold

__all__ = [
    "EXPERIMENTS",
    "AnalyticalConfig",
    "BoundConfig",
    "SupportConfig",
    "analytical",
    "bound",
    "gaussian_transform",
    "nelu_each",
    "sparse_codes",
    "support",
]

SIGMAS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
"""From a fifth to five times the level 0.1 that the paper trains at; non-zero entries of z* have
variance 1."""

SIGMA_LABEL = "noise level σ"


def gaussian_transform(d: int, generator: Generator) -> Tensor:
    """A square Gaussian matrix (d, d) whose rows are scaled to unit ℓ₂ norm."""
    transform = torch.randn(d, d, generator=generator, dtype=torch.float64)
    scaled: Tensor = transform / transform.norm(dim=1, keepdim=True)
    return scaled


def sparse_codes(shape: tuple[int, ...], nonzeros: int, generator: Generator) -> Tensor:
    """Vectors over the last dimension with standard normal entries at ``nonzeros`` places."""
    places = torch.rand(shape, generator=generator, dtype=torch.float64).topk(nonzeros).indices
    entries = torch.randn(places.shape, generator=generator, dtype=torch.float64)
    return torch.zeros(shape, dtype=torch.float64).scatter_(-1, places, entries)


def nelu_each(coeffs: Tensor, lam: Tensor) -> Tensor:
    """Solve min_z ‖z − u‖₂ + λ‖z‖₁ over the last dimension, with one λ for each vector.

    The active set is that of the k largest entries for the k with the least residual
    Σ_inactive uᵢ² / (1 − kλ²); see :func:`nelu_cli.operators.nelu`, which has one λ for all.
    """
    energy = coeffs.square().sort(dim=-1, descending=True).values
    tail = energy.flip(-1).cumsum(-1).flip(-1)
    tail = torch.cat([tail, torch.zeros_like(tail[..., :1])], -1)  # inactive energy, k = 0 … d
    k = torch.arange(tail.shape[-1], dtype=coeffs.dtype)
    room = 1 - k * lam.square().unsqueeze(-1)
    residual = torch.where(room > 0, tail / room, torch.inf).amin(-1)
    return soft_threshold(coeffs, (lam * residual.sqrt()).unsqueeze(-1))


def _ratio(noise: Tensor) -> Tensor:
    """‖e‖∞/‖e‖₂ over the last dimension: the λ of Theorem 1."""
    ratio: Tensor = noise.abs().amax(-1) / noise.norm(dim=-1)
    return ratio


def _check_trials(trials: int) -> None:
    if trials < 2:
        raise UsageError("--trials must be at least 2: standard errors need it")


# Analytical transform


@dataclass(frozen=True)
class AnalyticalConfig(Config):
    """``trials`` realisations at each level; λ swept over ``grid`` values for each algorithm."""

    trials: int = 1000
    d: int = 100
    nonzeros: int = 5
    sigmas: tuple[float, ...] = SIGMAS
    grid: int = 400

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_trials(self.trials)

    @classmethod
    def quick(cls) -> Self:
        return cls(trials=200, grid=150)


SOFT_RANGE = (5e-3, 5.0)  # λ of soft thresholding, in units of z*
NELU_RANGE = (0.05, 1.0)  # λ of NeLU: below 1/√d nothing is shrunk, at 1 everything is


def analytical(config: AnalyticalConfig, advance: Advance = silent) -> Curves:
    """Estimate z* from Wy by soft thresholding and by NeLU, at many noise levels.

    Oracle λ: the one value for a level that gives the least mean of ‖ẑ − z*‖₂² over its trials,
    swept over a logarithmic grid; its standard error is that of a bootstrap over trials.
    Theoretical λ: ½‖e‖∞/‖e‖₂ of each trial.

    References
    ----------
    Section "Synthetic data" with its two figures, and the appendix on the ℓ∞ error.
    """
    generator = torch.Generator().manual_seed(config.seed)
    transform = gaussian_transform(config.d, generator)
    shape = (len(config.sigmas), config.trials, config.d)
    truth = sparse_codes(shape, config.nonzeros, generator)
    sigma = torch.tensor(config.sigmas, dtype=torch.float64)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64) @ transform.T
    noise = noise * sigma[:, None, None]
    coeffs = truth + noise

    soft_grid = _log_grid(*SOFT_RANGE, config.grid)
    nelu_grid = _log_grid(*NELU_RANGE, config.grid)
    step = 0.5 / config.grid

    def squared_errors(code: Tensor) -> Tensor:
        advance(step)
        return (code - truth).square().sum(-1)

    # (grid, levels, trials); one λ at a time, every realisation at once
    soft_errors = torch.stack([squared_errors(soft_threshold(coeffs, lam)) for lam in soft_grid])
    nelu_errors = torch.stack([squared_errors(nelu(coeffs, lam, dim=-1)) for lam in nelu_grid])
    soft_best, soft_spread = _oracle(soft_grid, soft_errors, generator)
    nelu_best, nelu_spread = _oracle(nelu_grid, nelu_errors, generator)
    theory = _ratio(noise) / 2  # (levels, trials)

    labels = ("soft threshold, oracle λ", "NeLU, oracle λ", "NeLU, theoretical λ")
    codes = (
        soft_threshold(coeffs, soft_best[:, None, None]),
        nelu_each(coeffs, nelu_best[:, None].expand(theory.shape)),
        nelu_each(coeffs, theory),
    )
    errors = [(code - truth).square().sum(-1) for code in codes]
    largest = [(code - truth).abs().amax(-1) for code in codes]
    sigmas = config.sigmas

    def panel(quantity: str, y_label: str, samples: list[Tensor]) -> Panel:
        series = (mean_series(*pair) for pair in zip(labels, [sigmas] * 3, samples, strict=True))
        return Panel(quantity, SIGMA_LABEL, y_label, tuple(series))

    lams = (
        Series(labels[0], sigmas, tuple(soft_best.tolist()), tuple(soft_spread.tolist())),
        Series(labels[1], sigmas, tuple(nelu_best.tolist()), tuple(nelu_spread.tolist())),
        mean_series(labels[2], sigmas, theory),
    )
    return Curves(
        "sigma",
        (
            panel("squared_l2_error", r"mean of $\|\hat z - z^*\|_2^2$", errors),
            Panel("lambda", SIGMA_LABEL, r"$\lambda$ used", lams),
            panel("linf_error", r"mean of $\|\hat z - z^*\|_\infty$", largest),
        ),
        _analytical_claims(sigma, errors, largest, soft_best, nelu_best, theory.mean(1)),
    )


def _log_grid(low: float, high: float, count: int) -> list[float]:
    return torch.logspace(math.log10(low), math.log10(high), count, dtype=torch.float64).tolist()


BOOTSTRAPS = 200


def _oracle(grid: list[float], errors: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """The best λ of each level for ``errors`` (grid, levels, trials), and its standard error."""
    lam = torch.tensor(grid, dtype=torch.float64)
    trials = errors.shape[-1]
    draws = torch.randint(trials, (BOOTSTRAPS, trials), generator=generator)
    counts = torch.zeros(BOOTSTRAPS, trials, dtype=torch.float64)
    counts.scatter_add_(1, draws, torch.ones_like(counts))
    resampled = lam[(errors @ counts.T).argmin(0)]  # (levels, bootstraps)
    return lam[errors.mean(-1).argmin(0)], resampled.std(1)


def _slope(sigma: Tensor, lam: Tensor) -> float:
    """The exponent p of the best fit λ ∝ σ^p."""
    x = sigma.log() - sigma.log().mean()
    return float((x @ lam.log()) / (x @ x))


def _analytical_claims(
    sigma: Tensor,
    errors: list[Tensor],
    largest: list[Tensor],
    soft_best: Tensor,
    nelu_best: Tensor,
    theory: Tensor,
) -> tuple[Claim, ...]:
    soft, oracle, theoretical = (samples.mean(1) for samples in errors)
    soft_slope, nelu_slope = _slope(sigma, soft_best), _slope(sigma, nelu_best)
    similar, near, cost = oracle / soft, theory / nelu_best, theoretical / oracle
    lowest = largest[2].mean(1) / torch.minimum(largest[0].mean(1), largest[1].mean(1))
    return (
        Claim(
            "with oracle λ both algorithms do equally well (within 5 %)",
            bool(((similar - 1).abs() <= 0.05).all()),
            f"the error of NeLU is {span(similar, '.3f')} times that of the soft threshold",
        ),
        Claim(
            "the oracle λ of the soft threshold is proportional to σ (exponent within 0.1 of 1)",
            abs(soft_slope - 1) <= 0.1,
            f"it grows as σ^{soft_slope:.3f}, from {span(soft_best, '.3g')}",
        ),
        Claim(
            "the oracle λ of NeLU does not depend on σ (exponent within 0.1 of 0)",
            abs(nelu_slope) <= 0.1,
            f"it grows as σ^{nelu_slope:.3f}, from {span(nelu_best, '.3g')}",
        ),
        Claim(
            "the theoretical λ of NeLU is close to its oracle λ (within a third)",
            bool(((near - 1).abs() <= 1 / 3).all()),
            f"it is {span(near)} times the oracle's, and the error {span(cost)} times",
        ),
        Claim(
            "the theoretical λ gives the least ℓ∞ error, since the oracle minimises the ℓ₂ error",
            bool((lowest < 1).all()),
            f"it is {span(lowest, '.3f')} times the better of the two oracles' errors",
        ),
    )


# The bound of Theorem 2


@dataclass(frozen=True)
class BoundConfig(Config):
    """``trials`` realisations at each level; the paper has 20."""

    trials: int = 20
    d: int = 100
    nonzeros: int = 5
    sigmas: tuple[float, ...] = SIGMAS

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_trials(self.trials)


def bound(config: BoundConfig, advance: Advance = silent) -> Curves:
    """Compare ‖ẑ − z*‖₂ with the bound (2 + η)ε, for λ = ‖e‖∞/‖e‖₂.

    ε = s_max‖ξ‖₂ and η is the least that Assumption 2 allows, so that the bound of a trial is
    2·s_max‖ξ‖₂ + λ‖z*‖₁. The proof needs only 2‖e‖₂ + λ‖z*‖₁, which is drawn too.

    References
    ----------
    Theorem 2 and appendix "Empirical validation of Theorem 2".
    """
    generator = torch.Generator().manual_seed(config.seed)
    transform = gaussian_transform(config.d, generator)
    shape = (len(config.sigmas), config.trials, config.d)
    truth = sparse_codes(shape, config.nonzeros, generator)
    sigma = torch.tensor(config.sigmas, dtype=torch.float64)[:, None, None]
    noise = sigma * torch.randn(shape, generator=generator, dtype=torch.float64)
    e = noise @ transform.T
    lam = _ratio(e)
    error = (nelu_each(truth + e, lam) - truth).norm(dim=-1)
    penalty = lam * truth.abs().sum(-1)
    s_max = torch.linalg.matrix_norm(transform, 2)
    limit = 2 * s_max * noise.norm(dim=-1) + penalty
    sharper = 2 * e.norm(dim=-1) + penalty
    advance(1.0)
    panel = Panel(
        "squared_l2_error",
        SIGMA_LABEL,
        "mean of the squared norm",
        (
            mean_series("‖ẑ − z*‖₂", config.sigmas, error.square()),
            mean_series("bound (2 + η)ε", config.sigmas, limit.square()),
            mean_series("sharper bound 2‖e‖₂ + λ‖z*‖₁", config.sigmas, sharper.square()),
        ),
        log_y=True,
    )
    share = error / limit
    claim = Claim(
        "‖ẑ − z*‖₂ ≤ (2 + η)ε in every trial (Theorem 2)",
        bool((share <= 1).all()),
        f"the error is {span(share)} of the bound, {span(error / sharper)} of the sharper one, "
        f"in {share.numel()} trials",
    )
    return Curves("sigma", (panel,), (claim,))


# Support recovery: Theorems 1 and 3, and Theorems 4 and 5 for the synthesis model


@dataclass(frozen=True)
class SupportConfig(Config):
    """``trials`` realisations, each at every ratio of |z*_j| (equal for all j ∈ S) to σ."""

    trials: int = 500
    d: int = 100
    nonzeros: int = 5
    gaussian_d: int = 4096  # Theorem 3: its λ exceeds 1 for n = 100
    a: float = 4.0  # Theorem 3: its probability is below 0 for a = 2√2
    synthesis_n: int = 1024  # a power of two: D = [I, Hadamard/√n]
    synthesis_nonzeros: int = 2
    ratios: tuple[float, ...] = tuple(10 ** (k / 12) for k in range(37))  # 1 … 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_trials(self.trials)
        if self.synthesis_n & (self.synthesis_n - 1):
            raise UsageError("the synthesis model needs a power of two")

    @classmethod
    def quick(cls) -> Self:
        return cls(trials=100, ratios=tuple(10 ** (k / 6) for k in range(19)))


@dataclass(frozen=True)
class _Recovery:
    """What happened in every trial, each (ratios, trials)."""

    plain: Tensor  # {j : ẑ_j ≠ 0} is the true support
    theorem: Tensor  # so is {j : |ẑ_j| > radius}
    guaranteed: Tensor  # |z*_j| > 2·radius on the support: the theorem's condition
    share: Tensor  # ‖ẑ − z*‖∞ / radius


def _recover(code: Tensor, truth: Tensor, radius: Tensor) -> _Recovery:
    """Judge codes (trials, d) where a theorem says ‖ẑ − z*‖∞ ≤ radius (trials,)."""
    nonzero = truth != 0
    return _Recovery(
        ((code != 0) == nonzero).all(1),
        ((code.abs() > radius[:, None]) == nonzero).all(1),
        truth.abs().amax(1) > 2 * radius,
        (code - truth).abs().amax(1) / radius,
    )


def _stack(parts: list[_Recovery]) -> _Recovery:
    return _Recovery(
        *(
            torch.stack([getattr(part, name) for part in parts])
            for name in ("plain", "theorem", "guaranteed", "share")
        )
    )


def support(config: SupportConfig, advance: Advance = silent) -> Curves:
    """How often the support of z* is recovered exactly, as |z*_j|/σ grows.

    Three settings, each with non-zero entries ±A at random places and noise of level 1:

    - Theorem 1: W Gaussian with unit rows, λ = ‖e‖∞/‖e‖₂, radius λ(2 + η)ε.
    - Theorem 3: W orthogonal (so that e is white, whatever W), λ = a√(2 log d/n), radius
      λ(2 + 2η + 1/s_min)√n·s_max·σ with the η of ε = 2√n·s_max·σ, as in its proof.
    - Theorem 4: D = [I, H/√n], μ(D) = 1/√n, λ = ‖e‖∞/‖e‖₂ with e = Dᵀξ, radius
      λ(2 + η)ε + ρμ‖z*‖∞. The theorem takes over Assumption 2, λ‖z*‖₁ ≤ ηε; but its proof
      applies Theorem 1 to z̄ = DᵀDz*, which needs λ‖z̄‖₁ ≤ ηε. Both readings are tried.

    The theorems estimate the support as {j : |ẑ_j| > radius} and guarantee it where
    |z*_j| > 2·radius on the support.
    """
    generator = torch.Generator().manual_seed(config.seed)
    analysis = _theorem_1(config, generator, advance)
    gaussian = _theorem_3(config, generator, advance)
    synthesis, stated, l2_share, l2_stated = _theorem_4(config, generator, advance)

    def panel(quantity: str, title: str, outcome: _Recovery) -> Panel:
        def series(label: str, happened: Tensor) -> Series:
            return mean_series(label, config.ratios, happened.double())

        return Panel(
            quantity,
            r"$|z^*_j| \,/\, \sigma$",
            "share of trials",
            (
                series("ẑ has exactly the support of z*", outcome.plain),
                series("the theorem's estimate is exact", outcome.theorem),
            ),
            title,
            log_x=True,
            shaded=series("the theorem guarantees it", outcome.guaranteed),
        )

    chance = (
        1
        - 2 * config.gaussian_d ** (1 - config.a**2 / 8)
        - (1 + math.e**2) * math.exp(-config.gaussian_d / 24)
    )
    within = float((gaussian.share <= 1).double().mean())
    return Curves(
        "amplitude_over_sigma",
        (
            panel("theorem_1", f"Theorem 1: d = {config.d}, {config.nonzeros} non-zeros", analysis),
            panel(
                "theorem_3",
                f"Theorem 3: d = {config.gaussian_d}, {config.nonzeros} non-zeros",
                gaussian,
            ),
            panel(
                "theorem_4",
                f"Theorem 4: d = {2 * config.synthesis_n}, {config.synthesis_nonzeros} non-zeros",
                synthesis,
            ),
        ),
        (
            Claim(
                "‖ẑ − z*‖∞ ≤ λ(2 + η)ε in every trial (Theorem 1)",
                bool((analysis.share <= 1).all()),
                _of_bound(analysis.share),
            ),
            _guarantee("Theorem 1", config, analysis),
            Claim(
                f"‖ẑ − z*‖∞ keeps the bound of Theorem 3 with probability ≥ {chance:.4f}",
                within >= chance,
                f"it does in {within:.2%} of the trials; {_of_bound(gaussian.share)}",
            ),
            _guarantee("Theorem 3", config, gaussian),
            Claim(
                "‖ẑ − z*‖∞ ≤ λ(2 + η)ε + ρμ(D)‖z*‖∞ in every trial (Theorem 4, with the η of z*)",
                bool((stated.share <= 1).all()),
                _of_bound(stated.share),
            ),
            Claim(
                "the same with the η of z̄ = DᵀDz*, which the proof needs",
                bool((synthesis.share <= 1).all()),
                _of_bound(synthesis.share),
            ),
            _guarantee("Theorem 4 (η of z̄)", config, synthesis),
            Claim(
                "‖ẑ − z*‖₂ ≤ (2 + η)ε + μ(D)√d‖z*‖₁ in every trial (Theorem 5, with the η of z*)",
                bool((l2_stated <= 1).all()),
                f"{_of_bound(l2_stated)}; with the η of z̄ {float(l2_share.max()):.2f}",
            ),
        ),
    )


def _of_bound(share: Tensor) -> str:
    broken = float((share > 1).double().mean())
    if broken == 0:
        return f"the error is at most {float(share.max()):.2f} of the bound"
    return (
        f"the error is above the bound in {broken:.0%} of the trials, up to {share.max():.2f}-fold"
    )


def _guarantee(theorem: str, config: SupportConfig, outcome: _Recovery) -> Claim:
    """The support is exact wherever the theorem's condition is met."""
    covered = int(outcome.guaranteed.sum())
    exact = int((outcome.guaranteed & outcome.theorem).sum())
    always = outcome.plain.all(1).long().flip(0).cumprod(0).flip(0)  # here and above
    first = next((r for r, ok in zip(config.ratios, always.tolist(), strict=True) if ok), None)
    plain = (
        f"the support of ẑ itself is exact in all trials from |z*_j|/σ = {first:.3g}"
        if first is not None
        else "the support of ẑ itself is at no ratio exact in all trials"
    )
    return Claim(
        f"where {theorem} guarantees the support, its estimate is exact",
        0 < covered == exact,
        f"exact in {exact} of {covered} covered trials; {plain}",
    )


def _signs(trials: int, d: int, nonzeros: int, generator: Generator) -> Tensor:
    return sparse_codes((trials, d), nonzeros, generator).sign()


def _theorem_1(config: SupportConfig, generator: Generator, advance: Advance) -> _Recovery:
    transform = gaussian_transform(config.d, generator)
    signs = _signs(config.trials, config.d, config.nonzeros, generator)
    noise = torch.randn(config.trials, config.d, generator=generator, dtype=torch.float64)
    e = noise @ transform.T
    lam = _ratio(e)
    epsilon = torch.linalg.matrix_norm(transform, 2) * noise.norm(dim=1)
    parts = []
    for ratio in config.ratios:
        truth = ratio * signs
        radius = lam * (2 * epsilon + lam * truth.abs().sum(1))
        parts.append(_recover(nelu_each(truth + e, lam), truth, radius))
        advance(0.2 / len(config.ratios))
    return _stack(parts)


def _theorem_3(config: SupportConfig, generator: Generator, advance: Advance) -> _Recovery:
    d = config.gaussian_d
    signs = _signs(config.trials, d, config.nonzeros, generator)
    e = torch.randn(config.trials, d, generator=generator, dtype=torch.float64)
    lam = config.a * math.sqrt(2 * math.log(d) / d)
    parts = []
    for ratio in config.ratios:
        truth = ratio * signs
        radius = lam * (3 * math.sqrt(d) + lam * truth.abs().sum(1))
        parts.append(_recover(nelu(truth + e, lam), truth, radius))
        advance(0.4 / len(config.ratios))
    return _stack(parts)


def _hadamard(n: int) -> Tensor:
    """The orthogonal matrix with entries ±1/√n, for n a power of two (Sylvester)."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    step = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    while matrix.shape[0] < n:
        matrix = torch.kron(matrix, step)
    return matrix / math.sqrt(n)


def _theorem_4(
    config: SupportConfig, generator: Generator, advance: Advance
) -> tuple[_Recovery, _Recovery, Tensor, Tensor]:
    """Theorem 4 with the η of z̄ and with that of z*; shares of Theorem 5's bound, likewise."""
    n, rho = config.synthesis_n, config.synthesis_nonzeros
    d, mu = 2 * n, 1 / math.sqrt(n)
    hadamard = _hadamard(n)
    signs = _signs(config.trials, d, rho, generator)
    noise = torch.randn(config.trials, n, generator=generator, dtype=torch.float64)

    def synthesise(code: Tensor) -> Tensor:  # Dz, (trials, n)
        return code[:, :n] + code[:, n:] @ hadamard.T

    def correlate(signal: Tensor) -> Tensor:  # Dᵀx, (trials, d)
        return torch.cat([signal, signal @ hadamard], 1)

    e, gram = correlate(noise), correlate(synthesise(signs))
    lam = _ratio(e)
    epsilon = math.sqrt(2) * noise.norm(dim=1)  # DDᵀ = 2I
    by_bar: list[_Recovery] = []
    by_star: list[_Recovery] = []
    l2_bar: list[Tensor] = []
    l2_star: list[Tensor] = []
    for ratio in config.ratios:
        truth, bar = ratio * signs, ratio * gram
        code = nelu_each(bar + e, lam)
        coherence = mu * truth.abs().sum(1)  # ρμ‖z*‖∞, since all |z*_j| are equal
        error = (code - truth).norm(dim=1)
        for signal, recoveries, shares in ((bar, by_bar, l2_bar), (truth, by_star, l2_star)):
            limit = 2 * epsilon + lam * signal.abs().sum(1)  # (2 + η)ε
            recoveries.append(_recover(code, truth, lam * limit + coherence))
            shares.append(error / (limit + math.sqrt(d) * coherence))
        advance(0.4 / len(config.ratios))
    return _stack(by_bar), _stack(by_star), torch.stack(l2_bar), torch.stack(l2_star)


EXPERIMENTS = {
    "analytical": Experiment(AnalyticalConfig, analytical),
    "bound": Experiment(BoundConfig, bound),
    "support": Experiment(SupportConfig, support),
}
