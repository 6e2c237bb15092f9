"""How well denoisers do on a set of images: PSNR and SSIM, means and standard errors.

The protocol is that of the literature. A clean image in 0..1 gets seeded noise, neither clipped
nor rounded; or the noise is a camera's own, and the clean image is the mean of many shots. An
estimate is clipped to 0..1 before it is compared with the clean image; the noisy image itself is
compared as it is. PSNR and SSIM are taken per image, then averaged over images.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nelu_cli.data import sets as datasets
from nelu_cli.errors import DatasetError, NeluError
from nelu_cli.evaluation.methods import Method
from nelu_cli.evaluation.metrics import SSIM_SIDE, psnr, ssim
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.noise.filters import FloatImage
from nelu_cli.words import NoiseKind

NOISY = "noisy"  # the first row of every table
Level = float | None  # σ of added noise on the 0..255 scale; None: the noise is a camera's own


def level_text(level: Level) -> str:
    """``σ 15``, or ``real``."""
    return "real" if level is None else f"σ {level:g}"


@dataclass(frozen=True)
class Score:
    """One method on one image at one noise level."""

    method: str
    sigma255: Level
    image: str
    psnr: float
    ssim: float
    psnr_not_clipped: float = math.nan


@dataclass(frozen=True)
class Mean:
    """Mean over images with its standard error, which one image alone cannot have (NaN)."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return cls(float(np.mean(values)), math.nan)
        return cls(float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))))


@dataclass(frozen=True)
class Published:
    """A row of somebody's published table: mean PSNR by noise level, on a certain dataset."""

    name: str
    dataset: str
    psnr: Mapping[float, float]


@dataclass(frozen=True)
class Comparison:
    """One image at one noise level with what every method made of it (clipped to 0..1)."""

    image: str
    sigma255: Level
    clean: FloatImage
    noisy: FloatImage
    estimates: Mapping[str, FloatImage]
    psnr: Mapping[str, float]  # of the noisy image and of every estimate


@dataclass(frozen=True)
class Results:
    """Every score of one evaluation and what is needed to repeat it."""

    dataset: str
    noise: str
    seed: int
    channels: int
    images: tuple[str, ...]
    sigmas: tuple[Level, ...]
    methods: Mapping[str, str]  # name of the row: its note
    scores: tuple[Score, ...]
    published: tuple[Published, ...] = ()

    def psnr(self, method: str, sigma255: Level) -> Mean:
        return Mean.of([score.psnr for score in self._cell(method, sigma255)])

    def ssim(self, method: str, sigma255: Level) -> Mean:
        return Mean.of([score.ssim for score in self._cell(method, sigma255)])

    def not_clipped(self) -> "Results":
        """The same with the PSNR of estimates as they are, also outside 0..1."""
        scores = tuple(replace(score, psnr=score.psnr_not_clipped) for score in self.scores)
        return replace(self, scores=scores)

    def _cell(self, method: str, sigma255: Level) -> list[Score]:
        return [s for s in self.scores if s.method == method and s.sigma255 == sigma255]

    def to_json(self) -> str:
        """Everything, means and single values, as one JSON object; what is not finite is null."""
        means = []
        for method in self.methods:
            for sigma in self.sigmas:
                psnr, ssim = self.psnr(method, sigma), self.ssim(method, sigma)
                raw = self.not_clipped().psnr(method, sigma)
                means.append(
                    {
                        "method": method,
                        "sigma": sigma,
                        "psnr": _rounded(psnr.value, 4),
                        "psnr_standard_error": _rounded(psnr.error, 4),
                        "psnr_not_clipped": _rounded(raw.value, 4),
                        "ssim": _rounded(ssim.value, 6),
                        "ssim_standard_error": _rounded(ssim.error, 6),
                    }
                )
        document: dict[str, Any] = {
            "dataset": self.dataset,
            "noise": self.noise,
            "seed": self.seed,
            "channels": self.channels,
            "images": self.images,
            "sigmas": self.sigmas,
            "methods": [{"name": name, "note": note} for name, note in self.methods.items()],
            "means": means,
            "scores": [_row(score) for score in self.scores],
            "published": [
                {"method": row.name, "dataset": row.dataset, "sigma": sigma, "psnr": value}
                for row in self.published
                for sigma, value in row.psnr.items()
            ],
        }
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """One line for each method, noise level and image."""
        text = io.StringIO()
        writer = csv.DictWriter(text, _row(self.scores[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_row, self.scores))
        return text.getvalue()


def _row(score: Score) -> dict[str, str | float | None]:
    return {
        "method": score.method,
        "sigma": score.sigma255,
        "image": score.image,
        "psnr": _rounded(score.psnr, 4),
        "psnr_not_clipped": _rounded(score.psnr_not_clipped, 4),
        "ssim": _rounded(score.ssim, 6),
    }


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


class _Case(NamedTuple):
    """One image at one level, to be cleaned by every method."""

    image: str
    level: Level
    clean: FloatImage
    noisy: FloatImage
    told: float
    """σ on the 0..255 scale, for the methods that are told it."""


def evaluate(
    images: datasets.ImageSet,
    methods: Sequence[Method],
    sigmas: Sequence[float],
    *,
    channels: int = 1,
    noise: NoiseKind = "white",
    seed: int = 0,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    save: Callable[[Comparison], None] | None = None,
) -> Results:
    """Score the noisy images and every method at every noise level.

    The noise depends only on the image's file name, the level and the seed. So the same call
    gives the same digits, and neither the other images nor the other methods matter.

    Args:
        images: the set; ``limit`` keeps its first images.
        methods: in the order of the rows; the noisy input comes before them.
        sigmas: noise levels on the 0..255 scale.
        channels: 1 compares grey versions, 3 colour.
        progress: called with 1 whenever a method has done an image.
        save: called with each image at each level.
    """
    paths = images.paths[:limit]

    def cases() -> Iterator[_Case]:
        for path, image in zip(paths, labels(paths), strict=True):
            picture = _load(path, channels)
            for sigma in sigmas:
                pair = add_noise(picture, noise, sigma, noise_seed(path.name, sigma, seed))
                yield _Case(image, sigma, *pair, sigma)

    return Results(
        dataset=images.name,
        noise=noise,
        seed=seed,
        channels=channels,
        images=tuple(labels(paths)),
        sigmas=tuple(sigmas),
        methods=_rows(methods),
        scores=_score(cases(), methods, progress, save),
    )


def evaluate_pairs(
    name: str,
    pairs: Sequence[datasets.Pair],
    methods: Sequence[Method],
    *,
    channels: int = 3,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    save: Callable[[Comparison], None] | None = None,
) -> Results:
    """Score real photographs against their clean counterparts, as :func:`evaluate` does.

    Methods that are told a noise level are told the deviation of the pair's difference.
    """
    pairs = pairs[:limit]

    def cases() -> Iterator[_Case]:
        for pair in pairs:
            clean, noisy = _load(pair.clean, channels), _load(pair.noisy, channels)
            if clean.shape != noisy.shape:
                raise DatasetError(f"{pair.noisy}: is not as large as {pair.clean}")
            yield _Case(pair.name, None, clean, noisy, 255 * float(np.std(noisy - clean)))

    return Results(
        dataset=name,
        noise="real",
        seed=0,
        channels=channels,
        images=tuple(pair.name for pair in pairs),
        sigmas=(None,),
        methods=_rows(methods),
        scores=_score(cases(), methods, progress, save),
    )


def _load(path: Path, channels: int) -> FloatImage:
    picture = datasets.load_clean(path, channels)
    if min(picture.shape[:2]) < SSIM_SIDE:
        raise DatasetError(f"{path}: SSIM needs at least {SSIM_SIDE}×{SSIM_SIDE} pixels")
    return picture


def _rows(methods: Sequence[Method]) -> dict[str, str]:
    return {NOISY: "input", **{method.name: method.note for method in methods}}


def _score(
    cases: Iterator[_Case],
    methods: Sequence[Method],
    progress: Callable[[int], None] | None,
    save: Callable[[Comparison], None] | None,
) -> tuple[Score, ...]:
    advance = progress or (lambda amount: None)
    scores: list[Score] = []
    for image, level, clean, noisy, told in cases:
        before = psnr(clean, noisy)
        here = [Score(NOISY, level, image, before, ssim(clean, noisy), before)]
        estimates = {}
        for method in methods:
            raw = method.denoise(noisy, told)
            estimate = np.clip(raw, 0, 1)
            if estimate.shape != noisy.shape or not np.isfinite(estimate).all():
                where = f"{image}, {level_text(level)}"
                raise NeluError(f"{method.name}: gives no picture for {where}")
            estimates[method.name] = estimate
            found = psnr(clean, estimate), ssim(clean, estimate), psnr(clean, raw)
            here.append(Score(method.name, level, image, *found))
            advance(1)
        if save is not None:
            values = {score.method: score.psnr for score in here}
            save(Comparison(image, level, clean, noisy, estimates, values))
        scores += here
    return tuple(scores)


def labels(paths: Sequence[Path]) -> list[str]:
    """Short names of image files, one for each: the stem, or as much of the path as it takes."""
    stems = [path.stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    common = next(
        folder for folder in paths[0].parents if all(path.is_relative_to(folder) for path in paths)
    )
    return [path.relative_to(common).as_posix() for path in paths]


_PAPER_SIGMAS = (15, 25, 35, 50, 75, 90, 105, 120)
_PAPER_PSNR = {
    "paper's ReLU": (28.47, 25.89, 23.49, 20.58, 17.07, 15.48, 14.13, 12.99),
    "paper's NeLU": (28.65, 25.93, 23.48, 20.69, 17.62, 16.37, 15.36, 14.57),
}


def paper_rows(sigmas: Sequence[Level]) -> tuple[Published, ...]:
    """The paper's table on BSD68 (auto-encoders trained at σ = 15), where it has the level."""
    return tuple(
        Published(
            name,
            "bsd68",
            {s: value for s, value in zip(_PAPER_SIGMAS, values, strict=True) if s in sigmas},
        )
        for name, values in _PAPER_PSNR.items()
    )
