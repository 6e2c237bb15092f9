"""Make the README's pictures: ``python docs/make_pictures.py``.

A photograph that comes with scikit-image (a cat, CC0) gets Gaussian noise of σ = 40 on the 0–255
scale (seed 0) and is saved as an ordinary 8-bit file; ``nelu denoise`` cleans that file.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

SIGMA = 40
DOCS = Path(__file__).parent


def main() -> None:
    clean = np.asarray(data.chelsea())
    noise = SIGMA * np.random.default_rng(0).standard_normal(clean.shape)
    noisy = np.clip(np.rint(clean + noise), 0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(DOCS / "noisy.png")
    denoised = DOCS / "denoised.png"
    command = ["denoise", "--force", str(DOCS / "noisy.png"), str(denoised)]
    subprocess.run([sys.executable, "-m", "nelu_cli", *command], check=True)
    pair = np.concatenate([noisy, np.asarray(Image.open(denoised))], axis=1)
    Image.fromarray(pair).save(DOCS / "noisy-denoised.png", optimize=True)
    denoised.unlink()


if __name__ == "__main__":
    main()
