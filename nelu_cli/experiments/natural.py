"""The paper's experiments with pictures: section "Natural images" and its appendices.

All pictures are grey; noise levels are on the 0–255 scale.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from nelu_cli import evaluation
from nelu_cli.checkpoints import load
from nelu_cli.data import sets as datasets
from nelu_cli.errors import DatasetError, UsageError
from nelu_cli.evaluation import NOISY, Comparison, Method, Results, model_method
from nelu_cli.experiments.results import (
    Advance,
    Claim,
    Config,
    Curves,
    Experiment,
    Panel,
    Row,
    Series,
    mean_series,
    silent,
)
from nelu_cli.networks import PaperAutoencoder
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.operators import nelu
from nelu_cli.runtime.models import load_model
from nelu_cli.runtime.shifts import every_shift, shift_average

__all__ = [
    "EXPERIMENTS",
    "Illustration",
    "Qualitative",
    "QualitativeConfig",
    "ShiftAveraging",
    "ShiftAveragingConfig",
    "TableConfig",
    "qualitative",
    "shift_averaging",
    "table",
]

RELU, UNROLLED, EXACT = "paper-relu-s15", "paper-nelu-unrolled-s15", "paper-nelu-s15"
MODELS = (RELU, UNROLLED, EXACT)
SIGMA_LABEL = "noise level σ (0–255 scale)"


def find_images(dataset: str | None, data_dir: Path | None, limit: int | None) -> datasets.ImageSet:
    """The set of that name (by default bsd68 if it is there, else samples), thinned to ``limit``.

    What is kept is spread evenly over the set.
    """
    if dataset is not None:
        images = datasets.find(dataset, data_dir)
    else:
        try:
            images = datasets.find("bsd68", data_dir)
        except DatasetError:
            images = datasets.find(datasets.SAMPLES)
    count = len(images.paths)
    kept = count if limit is None else min(limit, count)
    paths = tuple(images.paths[index * count // kept] for index in range(kept))
    return datasets.ImageSet(images.name, paths)


@dataclass(frozen=True)
class PicturesConfig(Config):
    """``images`` of the set are used, all by default."""

    dataset: str | None = None
    data_dir: Path | None = None
    images: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.images is not None and self.images < 1:
            raise UsageError("--images must be at least 1")


# Stride-shift averaging


@dataclass(frozen=True)
class ShiftAveragingConfig(PicturesConfig):
    """PSNR over the number of shifts for a block DCT and for networks of the paper's kind."""

    images: int | None = 12
    sigma255: float = 25.0
    models: tuple[str, ...] = (EXACT,)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sigma(self.sigma255)

    @classmethod
    def quick(cls) -> Self:
        return cls(images=2)


@dataclass(frozen=True)
class Illustration:
    """Stride-shift averaging of a 1-D signal with stride 2, each (samples,)."""

    clean: tuple[float, ...]
    noisy: tuple[float, ...]
    shifts: tuple[tuple[float, ...], ...]  # denoised on each of the two grids, shifted back
    average: tuple[float, ...]

    def error(self, signal: tuple[float, ...]) -> float:
        """Mean squared error."""
        return float(np.mean(np.square(np.subtract(signal, self.clean))))


@dataclass(frozen=True)
class ShiftAveraging(Curves):
    """The curves, with the illustration drawn beside them."""

    illustration: Illustration


SHIFT_COUNTS = (1, 2, 4, 8, 16, 32, 64)
BLOCK = 8
BLOCK_TAU = 2.0


def shift_averaging(config: ShiftAveragingConfig, advance: Advance = silent) -> ShiftAveraging:
    """Average a denoiser over shifts of its grid: in 1-D for the eye, on pictures for the PSNR.

    The shifts that are averaged are the first of one random order of all stride² shifts.

    References
    ----------
    Section "Natural images" and appendix "Illustration of experiment".
    """
    denoisers: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
        "8×8 block DCT with NeLU": (block_dct_nelu, BLOCK)
    }
    for name in config.models:
        checkpoint = load(name)
        network = checkpoint.network
        if isinstance(network, PaperAutoencoder):
            denoisers[checkpoint.name] = (network.denoise_strided, network.config.stride)
        else:
            denoisers[checkpoint.name] = (network.denoise, network.stride)
    images = find_images(config.dataset, config.data_dir, config.images)
    share = 1 / len(images.paths) / len(denoisers)
    scores: dict[str, list[list[float]]] = {name: [] for name in denoisers}
    for path in images.paths:
        clean = datasets.load_clean(path, 1)
        seed = noise_seed(path.name, config.sigma255, config.seed)
        _, noisy = add_noise(clean, "white", config.sigma255, seed)
        tensor = torch.from_numpy(noisy[..., 0])[None, None]
        for name, (denoise, stride) in denoisers.items():
            estimates = _estimates(denoise, tensor, stride, config.seed)
            scores[name].append(
                [evaluation.psnr(clean[..., 0], np.clip(estimate, 0, 1)) for estimate in estimates]
            )
            advance(share)
    counts = {name: _counts(stride) for name, (_, stride) in denoisers.items()}
    series = tuple(
        mean_series(name, counts[name], torch.tensor(scores[name], dtype=torch.float64).T)
        for name in denoisers
    )
    panel = Panel(
        "psnr",
        "number of shifts averaged",
        "PSNR (dB)",
        series,
        f"{len(images.paths)} pictures of {images.name}, σ = {config.sigma255:g}",
        log_x=True,
    )
    illustration = _illustrate(config.seed)
    claims = [_illustration_claim(illustration)]
    for curve in series:
        steps = np.diff(curve.mean)
        claims.append(
            Claim(
                f"every doubling of the shifts raises the PSNR ({curve.label})",
                bool((steps > 0).all()),
                f"by {steps[0]:.2f} dB at first, {steps[-1]:.2f} dB at last, "
                f"{curve.mean[-1] - curve.mean[0]:.2f} dB in all",
            )
        )
    return ShiftAveraging("shifts", (panel,), tuple(claims), illustration)


def _counts(stride: int) -> tuple[int, ...]:
    return tuple(count for count in SHIFT_COUNTS if count <= stride**2)


@torch.no_grad()
def _estimates(
    denoise: Callable[[Tensor], Tensor], noisy: Tensor, stride: int, seed: int
) -> list[np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    """The average over the first 1, 2, 4 … shifts, each (H, W)."""
    order = torch.randperm(stride**2, generator=torch.Generator().manual_seed(seed)).tolist()
    shifts = [every_shift(stride)[index] for index in order]
    total = torch.zeros_like(noisy)
    averages = []
    for count, shift in enumerate(shifts, start=1):
        total += shift_average(denoise, noisy, [shift], margin=4 * stride)
        if count in _counts(stride):
            averages.append((total / count)[0, 0].numpy().copy())
    return averages


def dct_matrix(size: int) -> Tensor:
    """The orthonormal DCT-II as a matrix (frequency, position)."""
    k = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi / size * k[:, None] * (k + 0.5)) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.float()


def block_dct_nelu(image: Tensor) -> Tensor:
    """A sparse auto-encoder that nobody trained: DCT of 8×8 blocks, NeLU, inverse DCT.

    The mean of a block passes; NeLU runs over its 63 other coefficients. (1, 1, H, W) to the same;
    what does not fill a block stays as it is.
    """
    down, right = (size // BLOCK for size in image.shape[-2:])
    whole = image[0, 0, : down * BLOCK, : right * BLOCK]
    blocks = whole.reshape(down, BLOCK, right, BLOCK).transpose(1, 2)  # (down, right, 8, 8)
    transform = dct_matrix(BLOCK)
    coeffs = (transform @ blocks @ transform.T).flatten(2)
    rest = nelu(coeffs[..., 1:], BLOCK_TAU / math.sqrt(BLOCK**2 - 1), dim=-1)
    code = torch.cat([coeffs[..., :1], rest], -1).view(blocks.shape)
    result = image.clone()
    result[0, 0, : down * BLOCK, : right * BLOCK] = (
        (transform.T @ code @ transform).transpose(1, 2).reshape(whole.shape)
    )
    return result


ILLUSTRATION_LENGTH = 64
ILLUSTRATION_SIGMA = 0.15


def _illustrate(seed: int) -> Illustration:
    """Stride 2: a Haar auto-encoder whose differences within pairs pass through NeLU."""
    generator = torch.Generator().manual_seed(seed)
    position = torch.linspace(0, 1, ILLUSTRATION_LENGTH, dtype=torch.float64)
    steps = 0.2 + 0.6 * (position > 0.25) - 0.3 * (position > 0.6) + 0.4 * (position > 0.85)
    clean = steps + 0.1 * torch.sin(6 * position)
    noise = torch.randn(ILLUSTRATION_LENGTH, generator=generator, dtype=torch.float64)
    noisy = clean + ILLUSTRATION_SIGMA * noise

    def denoise(signal: Tensor) -> Tensor:
        pairs = signal.view(-1, 2)
        detail = (pairs[:, 0] - pairs[:, 1]) / math.sqrt(2)
        lam = 2 / math.sqrt(len(detail))
        kept = nelu(detail[None], lam)[0]
        half = torch.stack([kept, -kept], 1) / math.sqrt(2)
        return (pairs.mean(1, keepdim=True) + half).flatten()

    ends = torch.cat([noisy[:1], noisy, noisy[-1:]])  # the second grid is one longer on each side
    shifts = [denoise(noisy), denoise(ends)[1:-1]]
    average = (shifts[0] + shifts[1]) / 2
    return Illustration(
        tuple(clean.tolist()),
        tuple(noisy.tolist()),
        tuple(tuple(shift.tolist()) for shift in shifts),
        tuple(average.tolist()),
    )


def _illustration_claim(illustration: Illustration) -> Claim:
    single = [illustration.error(shift) for shift in illustration.shifts]
    average = illustration.error(illustration.average)
    return Claim(
        "the average of the shifts is better than each of them (1-D, stride 2)",
        average < min(single),
        f"its mean squared error is {average:.4f}; {single[0]:.4f} and {single[1]:.4f} before, "
        f"{illustration.error(illustration.noisy):.4f} of the noisy signal",
    )


# The table


@dataclass(frozen=True)
class TableConfig(PicturesConfig):
    """The paper's noise levels, and auto-encoders trained at σ = 15."""

    sigmas255: tuple[float, ...] = (15, 25, 35, 50, 75, 90, 105, 120)
    relu: str = RELU
    nelu: tuple[str, ...] = (UNROLLED, EXACT)

    @classmethod
    def quick(cls) -> Self:
        return cls(images=2, sigmas255=(15, 50, 120))


def table(config: TableConfig, advance: Advance = silent) -> Curves:
    """PSNR of NeLU and ReLU auto-encoders over the noise level, through ``nelu eval``'s code.

    References
    ----------
    Section "Natural images" and its table.
    """
    methods = _methods((config.relu, *config.nelu))
    relu, *nelus = (method.name for method in methods)
    images = find_images(config.dataset, config.data_dir, config.images)
    share = 1 / len(images.paths) / len(config.sigmas255) / len(methods)
    results = evaluation.evaluate(
        images,
        methods,
        config.sigmas255,
        seed=config.seed,
        progress=lambda done: advance(done * share),
    )
    scores = {name: _scores(results, name) for name in results.methods}
    gains = {name: scores[name] - scores[relu] for name in nelus}
    whole = images.name == "bsd68" and len(images.paths) == BSD68
    published = evaluation.paper_rows(config.sigmas255) if whole else ()
    title = f"{len(images.paths)} pictures of {images.name}"
    panels = (
        Panel(
            "psnr",
            SIGMA_LABEL,
            "PSNR (dB)",
            (
                *(mean_series(name, config.sigmas255, values) for name, values in scores.items()),
                *(_published(row) for row in published),
            ),
            title,
        ),
        Panel(
            "psnr_gain_over_relu",
            SIGMA_LABEL,
            "PSNR minus that of ReLU (dB)",
            tuple(mean_series(name, config.sigmas255, gain) for name, gain in gains.items()),
            title,
        ),
    )
    claims = [
        claim
        for name, gain in gains.items()
        for claim in _gain_claims(name, gain, config.sigmas255)
    ]
    if published:
        claims += [_paper_claim(name, scores[name], published[-1]) for name in nelus]
    return Curves("sigma255", panels, tuple(claims))


BSD68 = 68


def _published(row: evaluation.Published) -> Series:
    return Series(f"{row.name} (published)", tuple(row.psnr), tuple(row.psnr.values()))


def _methods(names: tuple[str, ...]) -> list[Method]:
    """All models, loaded before any work is done: a missing one is an error at once."""
    models = [load_model(name, channels=1, precision="float32") for name in names]
    return [model_method(model.name, model) for model in models]


def _scores(results: Results, method: str) -> Tensor:
    """PSNR (levels, images)."""
    return torch.tensor(
        [
            [
                score.psnr
                for score in results.scores
                if score.method == method and score.sigma255 == sigma
            ]
            for sigma in results.sigmas
        ],
        dtype=torch.float64,
    )


VIRTUALLY_ALL = 7 / 8  # the paper's own table: 7 of 8 levels


def _gain_claims(name: str, gain: Tensor, sigmas: tuple[float, ...]) -> tuple[Claim, Claim]:
    means = gain.mean(1).tolist()
    better = sum(mean > 0 for mean in means)
    return (
        Claim(
            f"{name} beats ReLU at virtually all noise levels (7 of 8, as in the paper)",
            better >= VIRTUALLY_ALL * len(means),
            f"at {better} of {len(means)}, by {min(means):+.2f} to {max(means):+.2f} dB",
        ),
        Claim(
            f"the lead of {name} widens away from the trained level",
            means[-1] > means[0],
            f"{means[0]:+.2f} dB at σ = {sigmas[0]:g}, {means[-1]:+.2f} dB at σ = {sigmas[-1]:g}",
        ),
    )


def _paper_claim(name: str, scores: Tensor, published: evaluation.Published) -> Claim:
    difference = scores.mean(1) - torch.tensor(list(published.psnr.values()), dtype=torch.float64)
    return Claim(
        f"{name} reaches the published PSNR of NeLU at every level (within 0.1 dB)",
        bool((difference >= -0.1).all()),
        f"{float(difference.min()):+.2f} to {float(difference.max()):+.2f} dB",
    )


# One picture


@dataclass(frozen=True)
class QualitativeConfig(Config):
    """Any picture at any noise level; by default a sample photograph of scikit-image."""

    image: Path | None = None
    sigma255: float = 50.0
    relu: str = RELU
    nelu: tuple[str, ...] = (UNROLLED, EXACT)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sigma(self.sigma255)


@dataclass(frozen=True)
class Qualitative:
    """The picture, what every network made of it, and its PSNR."""

    comparison: Comparison
    claims: tuple[Claim, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(
            {
                "image": self.comparison.image,
                "sigma255": f"{self.comparison.sigma255:g}",
                "method": method,
                "psnr": f"{psnr:.4f}",
            }
            for method, psnr in self.comparison.psnr.items()
        )

    @property
    def summary(self) -> tuple[Row, ...]:
        return tuple(
            {"method": method, "PSNR (dB)": f"{psnr:.2f}"}
            for method, psnr in self.comparison.psnr.items()
        )


def qualitative(config: QualitativeConfig, advance: Advance = silent) -> Qualitative:
    """Denoise one picture with every network.

    References
    ----------
    Appendix "Qualitative analysis".
    """
    methods = _methods((config.relu, *config.nelu))
    relu, *nelus = (method.name for method in methods)
    if config.image is None:
        images = datasets.find(datasets.SAMPLES)
        path = next((path for path in images.paths if path.stem == "astronaut"), images.paths[0])
    else:
        path = config.image
    comparisons: list[Comparison] = []
    evaluation.evaluate(
        datasets.ImageSet(path.stem, (path,)),
        methods,
        (config.sigma255,),
        seed=config.seed,
        progress=lambda done: advance(done / len(methods)),
        save=comparisons.append,
    )
    (comparison,) = comparisons
    psnr = comparison.psnr
    claims = tuple(
        Claim(
            f"{name} leaves less error than ReLU in {comparison.image} at σ = {config.sigma255:g}",
            psnr[name] > psnr[relu],
            f"{psnr[name] - psnr[relu]:+.2f} dB ({psnr[name]:.2f} against "
            f"{psnr[relu]:.2f}, {psnr[NOISY]:.2f} before)",
        )
        for name in nelus
    )
    return Qualitative(comparison, claims)


def _check_sigma(sigma255: float) -> None:
    if not 0 < sigma255 < math.inf:
        raise UsageError("--sigma must be a number above 0, on the 0–255 scale")


EXPERIMENTS: dict[
    str,
    Experiment[ShiftAveragingConfig] | Experiment[TableConfig] | Experiment[QualitativeConfig],
] = {
    "shift-averaging": Experiment(ShiftAveragingConfig, shift_averaging),
    "table": Experiment(TableConfig, table),
    "qualitative": Experiment(QualitativeConfig, qualitative),
}
