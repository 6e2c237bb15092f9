"""The paper's experiments with a known transform: section "Synthetic data", and Theorem 2."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor

from nelu_cli.experiments.claims import MARKS, claim
from nelu_cli.experiments.model import (
    EXACT,
    SHRINKS,
    SIGMA_LABEL,
    SOFT,
    SignalsConfig,
    cosparse_signals,
    gaussian_transform,
    log_grid,
    nelu_each,
    pivotal_lam,
    slope,
    sweep,
)
from nelu_cli.experiments.results import (
    Claim,
    Curves,
    Experiment,
    Panel,
    Progress,
    Series,
    mean_series,
    silent,
    span,
)
from nelu_cli.operators import algorithm_1, soft_threshold


def draw(config: SignalsConfig, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """W (d, d), z* and ξ (levels, trials, d): signals as the paper cites, then ‖z*‖₂ = √nonzeros.

    The last makes noise levels comparable: a Gaussian W is badly conditioned, so that Wx of an x of
    fixed length can have almost any length.
    """
    transform = gaussian_transform(config.d, generator)
    levels, trials = len(config.sigmas), config.trials
    inverse = torch.linalg.inv(transform)
    code = cosparse_signals(inverse, levels * trials, config.nonzeros, generator)[1]
    truth = code * (config.nonzeros**0.5 / code.norm(dim=1, keepdim=True))
    sigma = torch.tensor(config.sigmas, dtype=torch.float64)[:, None, None]
    shape = (levels, trials, config.d)
    noise = sigma * torch.randn(shape, generator=generator, dtype=torch.float64)
    return transform, truth.view(shape), noise


def by_algorithm_1(coeffs: Tensor, lam: Tensor, exact: Tensor) -> Tensor:
    """Algorithm 1 to convergence over the last dimension, one λ for each vector.

    A step β must be short against the residual r that is left, or the last steps go to and fro; and
    none of the paper's experiments says its β. So β = r/4, and r comes from the exact solution:
    that makes Algorithm 1 converge, and does not tell it where. Where r = 0 it cannot come to rest
    (the norm has no gradient there), and stays at 0.
    """
    step_size = (coeffs - exact).norm(dim=-1, keepdim=True) / 4
    return algorithm_1(
        coeffs, lam.unsqueeze(-1), step_size=step_size, tolerance=1e-9, max_steps=5000, dim=-1
    )


def agreement(code: Tensor, exact: Tensor, coeffs: Tensor) -> Claim:
    shrunk = (coeffs - exact).norm(dim=-1) > 0
    apart = float((code - exact)[shrunk].abs().max() / exact.abs().max())
    left_out = int((~shrunk).sum())
    note = f"; left out: {left_out} where λ√d < 1 and nothing is shrunk" if left_out else ""
    return claim(
        "algorithm 1",
        apart <= MARKS["algorithm 1"].limit,
        f"they differ by at most {apart:.1e} in {int(shrunk.sum())} problems{note}",
    )


@dataclass(frozen=True)
class AnalyticalConfig(SignalsConfig):
    """λ is swept over ``grid`` values for each algorithm."""

    grid: int = 400
    compared: int = 20  # trials of each level that Algorithm 1 solves too

    @classmethod
    def quick(cls) -> Self:
        return cls(trials=200, grid=150)


SOFT_RANGE = (5e-3, 5.0)  # λ of soft thresholding, in units of z*
NELU_RANGE = (0.05, 1.0)  # λ of NeLU: below 1/√d nothing is shrunk, at 1 everything is


def analytical(config: AnalyticalConfig, advance: Progress = silent) -> Curves:
    """Estimate z* from Wy by soft thresholding and by NeLU, at many noise levels.

    Oracle λ: the one value for a level that gives the least mean of ‖ẑ − z*‖₂² over its trials,
    swept over a logarithmic grid; its standard error is that of a bootstrap over trials.
    Theoretical λ: ½‖e‖∞/‖e‖₂ of each trial.

    References
    ----------
    Section "Synthetic data" with its two figures, and the appendix on the ℓ∞ error.
    """
    generator = torch.Generator().manual_seed(config.seed)
    transform, truth, noise = draw(config, generator)
    noise = noise @ transform.T
    coeffs = truth + noise

    soft_grid = log_grid(*SOFT_RANGE, config.grid)
    nelu_grid = log_grid(*NELU_RANGE, config.grid)

    def errors_of(name: str, grid: list[float]) -> Tensor:
        return sweep(coeffs, truth, SHRINKS[name], grid, lambda: advance(0.5 / config.grid))

    soft_best, soft_spread = _oracle(soft_grid, errors_of(SOFT, soft_grid), generator)
    nelu_best, nelu_spread = _oracle(nelu_grid, errors_of(EXACT, nelu_grid), generator)
    theory = pivotal_lam(noise) / 2  # (levels, trials)

    labels = ("soft threshold, oracle λ", "NeLU, oracle λ", "NeLU, theoretical λ")
    codes = (
        soft_threshold(coeffs, soft_best[:, None, None]),
        nelu_each(coeffs, nelu_best[:, None].expand(theory.shape)),
        nelu_each(coeffs, theory),
    )
    few = slice(0, config.compared)  # of each level
    iterated = by_algorithm_1(coeffs[:, few], theory[:, few], codes[2][:, few])
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
        (
            agreement(iterated, codes[2][:, few], coeffs[:, few]),
            *_analytical_claims(
                torch.tensor(sigmas, dtype=torch.float64),
                errors,
                largest,
                soft_best,
                nelu_best,
                theory.mean(1),
            ),
        ),
    )


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


def _analytical_claims(
    sigma: Tensor,
    errors: list[Tensor],
    largest: list[Tensor],
    soft_best: Tensor,
    nelu_best: Tensor,
    theory: Tensor,
) -> tuple[Claim, ...]:
    soft, oracle, theoretical = (samples.mean(1) for samples in errors)
    soft_slope, nelu_slope = slope(sigma, soft_best), slope(sigma, nelu_best)
    similar, near, cost = oracle / soft, theory / nelu_best, theoretical / oracle
    lowest = largest[2].mean(1) / torch.minimum(largest[0].mean(1), largest[1].mean(1))
    return (
        claim(
            "similar",
            bool(((similar - 1).abs() <= MARKS["similar"].limit).all()),
            f"the error of NeLU is {span(similar, '.3f')} times that of the soft threshold",
        ),
        claim(
            "soft grows",
            abs(soft_slope - 1) <= MARKS["soft grows"].limit,
            f"it grows as σ^{soft_slope:.3f}, from {span(soft_best, '.3g')}",
        ),
        claim(
            "nelu constant",
            abs(nelu_slope) <= MARKS["nelu constant"].limit,
            f"it grows as σ^{nelu_slope:.3f}, from {span(nelu_best, '.3g')}",
        ),
        claim(
            "theory close",
            bool(((near - 1).abs() <= MARKS["theory close"].limit).all()),
            f"it is {span(near)} times the oracle's, and the error {span(cost)} times",
        ),
        claim(
            "linf",
            bool((lowest < MARKS["linf"].limit).all()),
            f"it is {span(lowest, '.3f')} times the better of the two oracles' errors",
        ),
    )


# The bound of Theorem 2


@dataclass(frozen=True)
class BoundConfig(SignalsConfig):
    """As many trials as in the paper."""

    trials: int = 20


def bound(config: BoundConfig, advance: Progress = silent) -> Curves:
    """Compare ‖ẑ − z*‖₂ with the bound (2 + η)ε, for λ = ‖e‖∞/‖e‖₂.

    ε = s_max‖ξ‖₂ and η is the least that Assumption 2 allows, so that the bound of a trial is
    2·s_max‖ξ‖₂ + λ‖z*‖₁. The proof needs only 2‖e‖₂ + λ‖z*‖₁, which is drawn too.

    References
    ----------
    Theorem 2 and appendix "Empirical validation of Theorem 2".
    """
    generator = torch.Generator().manual_seed(config.seed)
    transform, truth, noise = draw(config, generator)
    e = noise @ transform.T
    lam = pivotal_lam(e)
    exact = nelu_each(truth + e, lam)
    iterated = by_algorithm_1(truth + e, lam, exact)
    error = (iterated - truth).norm(dim=-1)
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
    return Curves(
        "sigma",
        (panel,),
        (
            claim(
                "theorem 2",
                bool((share <= MARKS["theorem 2"].limit).all()),
                f"the error is {span(share)} of the bound, {span(error / sharper)} of the sharper "
                f"one, in {share.numel()} trials of Algorithm 1",
            ),
            agreement(iterated, exact, truth + e),
        ),
    )


EXPERIMENTS: dict[str, Experiment[AnalyticalConfig] | Experiment[BoundConfig]] = {
    "analytical": Experiment(AnalyticalConfig, analytical),
    "bound": Experiment(BoundConfig, bound),
}
