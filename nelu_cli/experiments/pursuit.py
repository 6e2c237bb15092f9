"""Several layers: thresholding layer by layer with NeLU, the direction the paper leaves open.

x = D₁z₁ and z₁ = D₂z₂, both codes sparse: z₂ has few non-zeros, and every atom of D₂ few, too. From
y = x + ξ, the layered pursuit takes ẑ₁ = shrink(D₁ᵀy), then ẑ₂ = shrink(D₂ᵀẑ₁). D₁ is orthogonal;
D₂ is orthogonal, or coherent: random sparse atoms, with which D₂ᵀD₂z₂ ≠ z₂ even without noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Generator, Tensor

from nelu_cli.errors import UsageError
from nelu_cli.experiments.claims import MARKS, claim
from nelu_cli.experiments.model import (
    EXACT,
    SHRINKS,
    SIGMA_LABEL,
    SOFT,
    Shrink,
    SignalsConfig,
    hadamard,
    log_grid,
    slope,
    sparse_codes,
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

Kind = Literal["orthogonal", "coherent"]
KINDS: tuple[Kind, ...] = ("orthogonal", "coherent")
RANGES = {SOFT: (5e-3, 5.0), EXACT: (0.03, 1.0)}  # of λ
ATOM = 4  # non-zeros of an atom of D₂


@dataclass(frozen=True)
class PursuitConfig(SignalsConfig):
    """λ of each layer is swept over ``grid`` values."""

    trials: int = 500
    d: int = 256
    nonzeros: int = 4
    grid: int = 80

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d % ATOM:
            raise UsageError(f"the layered pursuit needs a multiple of {ATOM} entries")

    @classmethod
    def quick(cls) -> Self:
        return cls(trials=60, grid=40)


def second_dictionary(kind: Kind, d: int, generator: Generator) -> Tensor:
    """D₂ (d, d), unit atoms of four non-zeros each."""
    if kind == "orthogonal":
        blocks = torch.kron(torch.eye(d // ATOM, dtype=torch.float64), hadamard(ATOM))
        shuffled: Tensor = blocks[torch.randperm(d, generator=generator)]
        return shuffled
    atoms = sparse_codes((d, d), ATOM, generator).sign()
    scaled: Tensor = atoms.T / ATOM**0.5
    return scaled


def _best(
    coeffs: Tensor, truth: Tensor, shrink: Shrink, lams: list[float], tried: Callable[[], None]
) -> tuple[Tensor, Tensor]:
    """The λ of least mean squared error at each level, and the codes that it gives."""
    errors = sweep(coeffs, truth, shrink, lams, tried).mean(-1)
    best = [lams[int(k)] for k in errors.argmin(0)]
    codes = [shrink(level, lam) for level, lam in zip(coeffs, best, strict=True)]
    return torch.tensor(best, dtype=torch.float64), torch.stack(codes)


def layered_pursuit(config: PursuitConfig, advance: Progress = silent) -> Curves:
    """Find the best λ of each of two layers at every noise level: does it depend on σ?

    References
    ----------
    Section "Conclusion" of the paper, which leaves several layers to future work.
    """
    panels: list[Panel] = []
    claims: list[Claim] = []
    sigma = torch.tensor(config.sigmas, dtype=torch.float64)
    share = 1 / (len(KINDS) * 2 * 2 * config.grid)
    for kind in KINDS:
        generator = torch.Generator().manual_seed(config.seed)
        dictionary = second_dictionary(kind, config.d, generator)
        shape = (len(config.sigmas), config.trials, config.d)
        deep = sparse_codes(shape, config.nonzeros, generator)
        middle = deep @ dictionary.T
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        first = middle + sigma[:, None, None] * noise  # D₁ᵀy: D₁ is orthogonal, e as white as ξ
        curves: dict[str, list[Series]] = {"1": [], "2": [], "error": []}
        for name, shrink in SHRINKS.items():
            lams = log_grid(*RANGES[name], config.grid)
            lam_1, found = _best(first, middle, shrink, lams, lambda: advance(share))
            lam_2, code = _best(found @ dictionary, deep, shrink, lams, lambda: advance(share))
            for layer, lam in (("1", lam_1), ("2", lam_2)):
                curves[layer].append(Series(name, config.sigmas, tuple(lam.tolist())))
                if name == EXACT:
                    claims.append(_pivotal(layer, kind, sigma, lam, curves[layer][0]))
            errors = (code - deep).square().sum(-1)
            curves["error"].append(mean_series(name, config.sigmas, errors))
        panels += [
            Panel(
                f"lambda_{layer}_{kind}",
                SIGMA_LABEL,
                f"oracle λ of layer {layer}",
                tuple(curves[layer]),
                f"D₂ {kind}",
                log_y=True,
            )
            for layer in ("1", "2")
        ]
        panels.append(
            Panel(
                f"squared_error_{kind}",
                SIGMA_LABEL,
                r"mean of $\|\hat z_2 - z_2\|_2^2$",
                tuple(curves["error"]),
                f"D₂ {kind}",
                log_y=True,
            )
        )
    return Curves("sigma", tuple(panels), tuple(claims))


def _pivotal(layer: str, kind: Kind, sigma: Tensor, lam: Tensor, soft: Series) -> Claim:
    exponent = slope(sigma, lam)
    other = slope(sigma, torch.tensor(soft.mean, dtype=torch.float64))
    return claim(
        "layers",
        abs(exponent) <= MARKS["layers"].limit,
        f"it grows as σ^{exponent:.3f}, from {span(lam, '.3g')}; that of the soft threshold as "
        f"σ^{other:.3f}",
        f"{layer}, D₂ {kind},",
    )


EXPERIMENTS = {"layered-pursuit": Experiment(PursuitConfig, layered_pursuit)}
