"""Which model a bare ``nelu denoise`` chooses, and what a wrong choice would cost.

    python -m benchmarks.choice --dataset photos --every 10 --pairs cc

White noise of several levels, or another kind, rounded to 8 bits, on the central 512 × 512 pixels
of every n-th picture of a set: how often a white model is chosen, and the mean PSNR of the choice
and of both models. Then the same for real pairs.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from nelu_cli.data import sets
from nelu_cli.evaluation import psnr
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.noise.filters import FloatImage, quantise
from nelu_cli.runtime.choice import PHOTO_MODELS, choose_model
from nelu_cli.runtime.models import Models, preferred_model
from nelu_cli.runtime.pipeline import denoise_pixels
from nelu_cli.words import NoiseKind

SIDE = 512
Case = tuple[FloatImage, NDArray[np.uint8]]  # clean, noisy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="samples")
    parser.add_argument("--every", type=int, default=1, help="take every n-th picture of the set")
    parser.add_argument("--sigmas", default="0,1,2,3,5,10,25,50")
    parser.add_argument("--noise", default="white", choices=get_args(NoiseKind))
    parser.add_argument("--pairs", help="a set of real pairs, such as cc")
    parser.add_argument("--channels", type=int, choices=(1, 3), default=3)
    arguments = parser.parse_args()
    models = Models()
    white = preferred_model(arguments.channels)
    photo = PHOTO_MODELS[arguments.channels]
    print(f"| noise | a white model chosen | PSNR chosen | {white} | {photo} |")
    print("|---|---|---|---|---|")
    paths = sets.find(arguments.dataset).paths[:: arguments.every]
    for text in arguments.sigmas.split(","):
        cases = _added(arguments.noise, paths, float(text), arguments.channels)
        print(_row(f"{arguments.noise}, σ = {text}", cases, models, white, photo), flush=True)
    if arguments.pairs:
        pairs = sets.pairs_of(sets.find(arguments.pairs))
        real = (
            tuple(sets.load_clean(path, arguments.channels) for path in (pair.clean, pair.noisy))
            for pair in pairs
        )
        cases = ((clean, quantise(noisy)) for clean, noisy in real)
        print(_row(f"real, {arguments.pairs}", cases, models, white, photo))


def _added(kind: NoiseKind, paths: tuple[Path, ...], sigma: float, channels: int) -> Iterator[Case]:
    for path in paths:
        clean = sets.load_clean(path, channels)
        top, left = (max(0, length - SIDE) // 2 for length in clean.shape[:2])
        clean = clean[top : top + SIDE, left : left + SIDE]
        yield clean, quantise(add_noise(clean, kind, sigma, noise_seed(path.name, sigma, 0)).noisy)


def _row(name: str, cases: Iterator[Case], models: Models, white: str, photo: str) -> str:
    chosen, scores = [], []
    for clean, noisy in cases:
        choice = choose_model(noisy, models).model
        chosen.append(choice.name != photo)
        row = []
        for model in (choice, models.load(white), models.load(photo)):
            cleaned = denoise_pixels(noisy, model).pixels
            row.append(psnr(clean, np.asarray(cleaned / np.float32(255), np.float32)))
        scores.append(row)
    means = " | ".join(f"{value:.2f}" for value in np.mean(scores, axis=0))
    return f"| {name} | {sum(chosen)} of {len(chosen)} | {means} |"


if __name__ == "__main__":
    main()
