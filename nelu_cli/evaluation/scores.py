"""How well denoisers do on a set of images: PSNR and SSIM, means and standard errors.

The protocol is that of the literature. A clean image in 0..1 gets seeded noise, neither clipped
nor rounded. An estimate is clipped to 0..1 before it is compared with the clean image; the noisy
image itself is compared as it is. PSNR and SSIM are taken per image, then averaged over images.
SSIM is scikit-image's with the settings of Wang et al. (2004): Gaussian window of σ = 1.5,
population covariance, data range 1.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nelu_cli.data import sets as datasets
from nelu_cli.errors import DatasetError, NeluError, UsageError
from nelu_cli.noise import NoiseKind, add_noise, noise_seed

if TYPE_CHECKING:
    from nelu_cli.runtime.models import Model
    from nelu_cli.runtime.options import Quality

__all__ = [
    "BASELINES",
    "Comparison",
    "Mean",
    "Method",
    "Published",
    "Results",
    "Score",
    "baseline",
    "evaluate",
    "labels",
    "model_method",
    "paper_rows",
    "psnr",
    "ssim",
]

FloatImage = npt.NDArray[np.float32]  # (H, W, C), clean values in 0..1
Denoiser = Callable[[FloatImage, float], FloatImage]  # (noisy image, sigma255) -> estimate

NOISY = "noisy"  # the first row of every table
SSIM_SIDE = 11  # the window of SSIM must fit into the image


@dataclass(frozen=True)
class Method:
    """A denoiser with the name of its row; ``note`` says whether it is told the noise level."""

    name: str
    denoise: Denoiser
    note: str = "blind"


@dataclass(frozen=True)
class Score:
    """One method on one image at one noise level."""

    method: str
    sigma255: float
    image: str
    psnr: float
    ssim: float


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
    sigma255: float
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
    sigmas: tuple[float, ...]  # on the 0..255 scale
    methods: Mapping[str, str]  # name of the row: its note
    scores: tuple[Score, ...]
    published: tuple[Published, ...] = ()

    def psnr(self, method: str, sigma255: float) -> Mean:
        return Mean.of([score.psnr for score in self._cell(method, sigma255)])

    def ssim(self, method: str, sigma255: float) -> Mean:
        return Mean.of([score.ssim for score in self._cell(method, sigma255)])

    def _cell(self, method: str, sigma255: float) -> list[Score]:
        return [s for s in self.scores if s.method == method and s.sigma255 == sigma255]

    def to_json(self) -> str:
        """Everything, means and single values, as one JSON object; what is not finite is null."""
        means = []
        for method in self.methods:
            for sigma in self.sigmas:
                psnr, ssim = self.psnr(method, sigma), self.ssim(method, sigma)
                means.append(
                    {
                        "method": method,
                        "sigma": sigma,
                        "psnr": _rounded(psnr.value, 4),
                        "psnr_standard_error": _rounded(psnr.error, 4),
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
    row = asdict(score)
    return {
        "method": row["method"],
        "sigma": row["sigma255"],
        "image": row["image"],
        "psnr": _rounded(score.psnr, 4),
        "ssim": _rounded(score.ssim, 6),
    }


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def psnr(clean: FloatImage, estimate: FloatImage) -> float:
    """10·log₁₀(1 / mean squared error), in dB; infinite for equal images."""
    error = float(np.mean(np.square(clean.astype(np.float64) - estimate)))
    return -10 * math.log10(error) if error > 0 else math.inf


def ssim(clean: FloatImage, estimate: FloatImage) -> float:
    """Structural similarity, as stated at the top of this module; at least 11×11 pixels."""
    from skimage.metrics import structural_similarity

    return float(
        structural_similarity(
            clean.astype(np.float64),
            estimate.astype(np.float64),
            data_range=1.0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            channel_axis=-1,
        )
    )


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
    advance = progress or (lambda amount: None)
    scores: list[Score] = []
    for path, image in zip(paths, labels(paths), strict=True):
        picture = datasets.load_clean(path, channels)
        if min(picture.shape[:2]) < SSIM_SIDE:
            raise DatasetError(f"{path}: SSIM needs at least {SSIM_SIDE}×{SSIM_SIDE} pixels")
        for sigma in sigmas:
            seed_here = noise_seed(path.name, sigma, seed)
            clean, noisy = add_noise(picture, noise, sigma, seed_here)
            here = [Score(NOISY, sigma, image, psnr(clean, noisy), ssim(clean, noisy))]
            estimates = {}
            for method in methods:
                estimate = _estimate(method, noisy, sigma, image)
                estimates[method.name] = estimate
                here.append(
                    Score(method.name, sigma, image, psnr(clean, estimate), ssim(clean, estimate))
                )
                advance(1)
            if save is not None:
                values = {score.method: score.psnr for score in here}
                save(Comparison(image, sigma, clean, noisy, estimates, values))
            scores += here
    return Results(
        dataset=images.name,
        noise=noise,
        seed=seed,
        channels=channels,
        images=tuple(labels(paths)),
        sigmas=tuple(sigmas),
        methods={NOISY: "input", **{method.name: method.note for method in methods}},
        scores=tuple(scores),
    )


def _estimate(method: Method, noisy: FloatImage, sigma255: float, image: str) -> FloatImage:
    estimate = np.clip(method.denoise(noisy, sigma255), 0, 1)
    if estimate.shape != noisy.shape or not np.isfinite(estimate).all():
        raise NeluError(f"{method.name}: gives no picture for {image} at σ = {sigma255:g}")
    return estimate


def labels(paths: Sequence[Path]) -> list[str]:
    """Short names of image files, one for each: the stem, or as much of the path as it takes."""
    stems = [path.stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    common = next(
        folder for folder in paths[0].parents if all(path.is_relative_to(folder) for path in paths)
    )
    return [path.relative_to(common).as_posix() for path in paths]


def model_method(name: str, model: "Model", *, quality: "Quality" = "normal") -> Method:
    """One of our networks as a row: it is never told σ."""
    from nelu_cli.runtime.pipeline import denoise

    def run(noisy: FloatImage, sigma255: float) -> FloatImage:
        return denoise(noisy, model, quality=quality)

    return Method(name, run)


# Baselines. Those of scikit-image measure σ with `estimate_sigma`; the `-told` ones are told it.


def _wavelet(noisy: FloatImage, sigma: float) -> FloatImage:
    """BayesShrink soft thresholding, in YCbCr for colour images."""
    from skimage.restoration import denoise_wavelet

    estimate: FloatImage = denoise_wavelet(
        noisy,
        sigma=sigma,
        method="BayesShrink",
        mode="soft",
        rescale_sigma=True,
        convert2ycbcr=noisy.shape[-1] == 3,
        channel_axis=-1,
    )
    return estimate


def _nlm(noisy: FloatImage, sigma: float) -> FloatImage:
    """Non-local means: patches of 5×5, searched ±6 pixels around, h = 0.6 σ, chosen on `set12`."""
    from skimage.restoration import denoise_nl_means

    estimate: FloatImage = denoise_nl_means(
        noisy,
        patch_size=5,
        patch_distance=6,
        h=0.6 * sigma,
        sigma=sigma,
        fast_mode=True,
        preserve_range=True,
        channel_axis=-1,
    )
    return estimate.reshape(noisy.shape)  # it drops a single channel


def _tv(noisy: FloatImage, sigma: float) -> FloatImage:
    """Total variation (Chambolle) with weight 0.9 σ, chosen on `set12`."""
    from skimage.restoration import denoise_tv_chambolle

    estimate: FloatImage = denoise_tv_chambolle(noisy, weight=0.9 * sigma, channel_axis=-1)
    return estimate


def _bm3d(noisy: FloatImage, sigma: float) -> FloatImage:
    """BM3D, or CBM3D for colour images, with the settings of the authors' package."""
    from bm3d import bm3d, bm3d_rgb

    estimate = (bm3d_rgb if noisy.shape[-1] == 3 else bm3d)(noisy.astype(np.float64), sigma)
    return np.asarray(estimate, dtype=np.float32).reshape(noisy.shape)


def _blind(denoise: Denoiser) -> Denoiser:
    def run(noisy: FloatImage, sigma255: float) -> FloatImage:
        from skimage.restoration import estimate_sigma

        return denoise(noisy, float(estimate_sigma(noisy, average_sigmas=True, channel_axis=-1)))

    return run


def _told(denoise: Denoiser) -> Denoiser:
    def run(noisy: FloatImage, sigma255: float) -> FloatImage:
        return denoise(noisy, sigma255 / 255) if sigma255 else noisy

    return run


BASELINES: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("wavelet", _blind(_wavelet)),
        Method("nlm", _blind(_nlm)),
        Method("tv", _blind(_tv)),
        Method("wavelet-told", _told(_wavelet), "told σ"),
        Method("nlm-told", _told(_nlm), "told σ"),
        Method("tv-told", _told(_tv), "told σ"),
        Method("bm3d", _told(_bm3d), "told σ"),
    )
}


def baseline(name: str) -> Method:
    """The baseline of that name, or an error that says what there is or what to install."""
    if name not in BASELINES:
        raise UsageError(f"{name}: no such baseline; there are {', '.join(BASELINES)}")
    if name == "bm3d":
        try:
            import bm3d  # noqa: F401
        except (ImportError, OSError) as error:  # OSError: its compiled part does not load
            raise UsageError("bm3d is not installed: pip install 'nelu-cli[bm3d]'") from error
    return BASELINES[name]


_PAPER_SIGMAS = (15, 25, 35, 50, 75, 90, 105, 120)
_PAPER_PSNR = {
    "paper's ReLU": (28.47, 25.89, 23.49, 20.58, 17.07, 15.48, 14.13, 12.99),
    "paper's NeLU": (28.65, 25.93, 23.48, 20.69, 17.62, 16.37, 15.36, 14.57),
}


def paper_rows(sigmas: Sequence[float]) -> tuple[Published, ...]:
    """The paper's table on BSD68 (auto-encoders trained at σ = 15), where it has the level."""
    return tuple(
        Published(
            name,
            "bsd68",
            {s: value for s, value in zip(_PAPER_SIGMAS, values, strict=True) if s in sigmas},
        )
        for name, values in _PAPER_PSNR.items()
    )
