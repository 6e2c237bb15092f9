"""PSNR and SSIM of pictures in 0..1.

SSIM is scikit-image's with the settings of Wang et al. (2004): Gaussian window of σ = 1.5,
population covariance, data range 1.
"""

import math

import numpy as np

from nelu_cli.noise.filters import FloatImage

SSIM_SIDE = 11  # the window of SSIM must fit into the image


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
