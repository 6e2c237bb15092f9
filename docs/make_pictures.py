"""Make the README's pictures: ``python docs/make_pictures.py``.

A photograph that comes with scikit-image (a cat, CC0) goes through our model of a camera (noise of
σ = 8 on the 0–255 scale, seed 3) and is saved as an ordinary 8-bit file; a bare ``nelu denoise``
cleans that file.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

from nelu_cli.noise import add_noise
from nelu_cli.noise.filters import quantise

SIGMA, SEED = 8, 3
DOCS = Path(__file__).parent


def main() -> None:
    clean = np.asarray(data.chelsea() / np.float32(255), np.float32)
    noisy = quantise(add_noise(clean, "camera", SIGMA, SEED).noisy)
    Image.fromarray(noisy).save(DOCS / "noisy.png")
    denoised = DOCS / "denoised.png"
    command = ["denoise", "--force", str(DOCS / "noisy.png"), str(denoised)]
    subprocess.run([sys.executable, "-m", "nelu_cli", *command], check=True)
    pair = np.concatenate([noisy, np.asarray(Image.open(denoised))], axis=1)
    Image.fromarray(pair).save(DOCS / "noisy-denoised.png", optimize=True)
    denoised.unlink()


if __name__ == "__main__":
    main()
