"""The paper's experiments with its networks: its table, and pictures to look at."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from nelu_cli import evaluation
from nelu_cli.data import sets as datasets
from nelu_cli.errors import UsageError
from nelu_cli.evaluation import NOISY, Comparison, Method, Results, model_method
from nelu_cli.experiments.claims import MARKS, claim
from nelu_cli.experiments.pictures import (
    EXACT,
    LITERAL,
    RELU,
    UNROLLED,
    PicturesConfig,
    check_sigma,
    find_images,
)
from nelu_cli.experiments.results import (
    Claim,
    Config,
    Curves,
    Experiment,
    Panel,
    Progress,
    Row,
    Series,
    mean_series,
    silent,
)
from nelu_cli.runtime.models import load_model

SIGMA_LABEL = "noise level σ (0–255 scale)"
BSD68 = 68  # pictures: what the paper's table is a mean over


@dataclass(frozen=True)
class TableConfig(PicturesConfig):
    """The paper's noise levels, and auto-encoders trained at σ = 15.

    Each group begins with its ReLU: ours, and the paper's own network to the letter.
    """

    sigmas255: tuple[float, ...] = (15, 25, 35, 50, 75, 90, 105, 120)
    groups: tuple[tuple[str, ...], ...] = ((RELU, UNROLLED, EXACT), LITERAL)

    @classmethod
    def quick(cls) -> Self:
        return cls(images=2, sigmas255=(15, 50, 120))


def table(config: TableConfig, advance: Progress = silent) -> Curves:
    """PSNR of NeLU and ReLU auto-encoders over the noise level, through ``nelu eval``'s code.

    PSNR is given of estimates clipped to 0–1, as everywhere here, and as they are: the code that
    the paper builds on does not clip.

    References
    ----------
    Section "Natural images" and its table.
    """
    methods = _methods(tuple(name for group in config.groups for name in group))
    names = iter([method.name for method in methods])
    groups = [[next(names) for _ in group] for group in config.groups]
    images = find_images(config.dataset, config.data_dir, config.images)
    share = 1 / len(images.paths) / len(config.sigmas255) / len(methods)
    results = evaluation.evaluate(
        images,
        methods,
        config.sigmas255,
        seed=config.seed,
        progress=lambda done: advance(done * share),
    )
    sigmas = config.sigmas255
    scores = {name: _scores(results, name) for name in results.methods}
    gains = {name: scores[name] - scores[relu] for relu, *others in groups for name in others}
    whole = images.name == "bsd68" and len(images.paths) == BSD68
    published = evaluation.paper_rows(sigmas) if whole else ()
    title = f"{len(images.paths)} pictures of {images.name}"

    def panel(quantity: str, label: str, curves: dict[str, Tensor], *more: Series) -> Panel:
        series = (mean_series(name, sigmas, values) for name, values in curves.items())
        return Panel(quantity, SIGMA_LABEL, label, (*series, *more), title)

    raw = {name: _scores(results, name, clipped=False) for name in results.methods}
    panels = (
        panel("psnr", "PSNR (dB)", scores, *(_published(row) for row in published)),
        panel("psnr_gain_over_relu", "PSNR minus that of ReLU (dB)", gains),
        panel("psnr_not_clipped", "PSNR, not clipped (dB)", raw),
    )
    claims = [
        each
        for relu, *others in groups
        for name in others
        for each in _gain_claims(name, relu, gains[name], sigmas)
    ]
    if published and len(groups) > 1:
        rows = (published[0], *[published[-1]] * (len(groups[1]) - 1))
        claims += [
            _paper_claim(name, scores[name], row) for name, row in zip(groups[1], rows, strict=True)
        ]
    return Curves("sigma255", panels, tuple(claims))


def _published(row: evaluation.Published) -> Series:
    return Series(f"{row.name} (published)", tuple(row.psnr), tuple(row.psnr.values()))


def _methods(names: tuple[str, ...]) -> list[Method]:
    """All models, loaded before any work is done: a missing one is an error at once."""
    models = [load_model(name, channels=1) for name in names]
    return [model_method(model.name, model) for model in models]


def _scores(results: Results, method: str, clipped: bool = True) -> Tensor:
    """PSNR (levels, images)."""
    return torch.tensor(
        [
            [
                score.psnr if clipped else score.psnr_not_clipped
                for score in results.scores
                if score.method == method and score.sigma255 == sigma
            ]
            for sigma in results.sigmas
        ],
        dtype=torch.float64,
    )


def _gain_claims(
    name: str, relu: str, gain: Tensor, sigmas: tuple[float, ...]
) -> tuple[Claim, Claim]:
    means = gain.mean(1).tolist()
    better = sum(mean > 0 for mean in means)
    return (
        claim(
            "table",
            better >= MARKS["table"].limit * len(means),
            f"at {better} of {len(means)}, by {min(means):+.2f} to {max(means):+.2f} dB",
            name,
            relu,
        ),
        claim(
            "table widens",
            means[-1] > means[0],
            f"{means[0]:+.2f} dB at σ = {sigmas[0]:g}, {means[-1]:+.2f} dB at σ = {sigmas[-1]:g}",
            name,
            relu,
        ),
    )


def _paper_claim(name: str, scores: Tensor, published: evaluation.Published) -> Claim:
    difference = scores.mean(1) - torch.tensor(list(published.psnr.values()), dtype=torch.float64)
    return claim(
        "table published",
        bool((difference >= -MARKS["table published"].limit).all()),
        f"{float(difference.min()):+.2f} to {float(difference.max()):+.2f} dB",
        name,
    )


# Pictures to look at


@dataclass(frozen=True)
class QualitativeConfig(Config):
    """Three pictures at σ = 25, 50 and 50, as in the paper (which does not name them); or one.

    By default three photographs of bsd68, or of scikit-image where that is missing.
    """

    image: Path | None = None
    sigma255: float | None = None
    data_dir: Path | None = None
    relu: str = RELU
    nelu: tuple[str, ...] = (UNROLLED, EXACT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma255 is not None:
            if self.image is None:
                raise UsageError(
                    "--sigma needs --image; without it: 25, 50 and 50, as in the paper"
                )
            check_sigma(self.sigma255)


PAPER_SIGMAS = (25.0, 50.0, 50.0)


@dataclass(frozen=True)
class Qualitative:
    """The pictures, what every network made of them, and its PSNR."""

    comparisons: tuple[Comparison, ...]
    claims: tuple[Claim, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(
            {
                "image": comparison.image,
                "sigma255": f"{comparison.sigma255:g}",
                "method": method,
                "psnr": f"{psnr:.4f}",
            }
            for comparison in self.comparisons
            for method, psnr in comparison.psnr.items()
        )

    @property
    def summary(self) -> tuple[Row, ...]:
        return tuple(
            {
                "picture": comparison.image,
                "σ": f"{comparison.sigma255:g}",
                **{method: f"{psnr:.2f}" for method, psnr in comparison.psnr.items()},
            }
            for comparison in self.comparisons
        )


def qualitative(config: QualitativeConfig, advance: Progress = silent) -> Qualitative:
    """Denoise pictures with every network, to be looked at.

    References
    ----------
    Appendix "Qualitative analysis".
    """
    methods = _methods((config.relu, *config.nelu))
    relu, *nelus = (method.name for method in methods)
    if config.image is not None:
        chosen = [(config.image, config.sigma255 or PAPER_SIGMAS[-1])]
    else:
        images = find_images(None, config.data_dir, len(PAPER_SIGMAS))
        chosen = list(zip(images.paths, PAPER_SIGMAS, strict=False))
    comparisons: list[Comparison] = []
    for path, sigma255 in chosen:
        evaluation.evaluate(
            datasets.ImageSet(path.stem, (path,)),
            methods,
            (sigma255,),
            seed=config.seed,
            progress=lambda done: advance(done / len(methods) / len(chosen)),
            save=comparisons.append,
        )
    claims = []
    for comparison in comparisons:
        psnr = comparison.psnr
        claims += [
            claim(
                "picture",
                psnr[name] > psnr[relu],
                f"{psnr[name] - psnr[relu]:+.2f} dB ({psnr[name]:.2f} against "
                f"{psnr[relu]:.2f}, {psnr[NOISY]:.2f} before)",
                name,
                f"{comparison.image} at σ = {comparison.sigma255:g}",
            )
            for name in nelus
        ]
    return Qualitative(tuple(comparisons), tuple(claims))


EXPERIMENTS: dict[str, Experiment[TableConfig] | Experiment[QualitativeConfig]] = {
    "table": Experiment(TableConfig, table),
    "qualitative": Experiment(QualitativeConfig, qualitative),
}
