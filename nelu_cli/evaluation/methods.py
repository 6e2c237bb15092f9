"""Denoisers with names: our networks, and baselines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nelu_cli.errors import UsageError
from nelu_cli.noise.filters import FloatImage
from nelu_cli.words import Quality

if TYPE_CHECKING:
    from nelu_cli.runtime.models import Model, Models

Denoiser = Callable[[FloatImage, float], FloatImage]  # (noisy image, σ on 0–255) -> estimate
Smoother = Callable[[FloatImage, float], FloatImage]  # (noisy image, σ on 0–1) -> estimate


@dataclass(frozen=True)
class Method:
    """A denoiser with the name of its row; ``note`` says whether it is told the noise level."""

    name: str
    denoise: Denoiser
    note: str = "blind"


def model_method(name: str, model: "Model", *, quality: Quality = "normal") -> Method:
    """One of our networks as a row: it is never told σ."""
    from nelu_cli.runtime.arrays import denoise

    def run(noisy: FloatImage, sigma255: float) -> FloatImage:
        return denoise(noisy, model, quality=quality)

    return Method(name, run)


def chosen_method(models: "Models", *, quality: Quality = "normal") -> Method:
    """What a bare ``nelu denoise`` does: the model is chosen for each picture."""
    from nelu_cli.runtime.choice import choose_model
    from nelu_cli.runtime.options import Options
    from nelu_cli.runtime.pipeline import denoise_pixels

    def run(noisy: FloatImage, sigma255: float) -> FloatImage:
        model = choose_model(noisy, models).model
        cleaned: FloatImage = denoise_pixels(noisy, model, Options(quality=quality)).pixels
        return cleaned

    return Method("nelu denoise", run)


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


def _blind(smooth: Smoother) -> Denoiser:
    def run(noisy: FloatImage, sigma255: float) -> FloatImage:
        from skimage.restoration import estimate_sigma

        return smooth(noisy, float(estimate_sigma(noisy, average_sigmas=True, channel_axis=-1)))

    return run


def _told(smooth: Smoother) -> Denoiser:
    def run(noisy: FloatImage, sigma255: float) -> FloatImage:
        return smooth(noisy, sigma255 / 255) if sigma255 else noisy

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
