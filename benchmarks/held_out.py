"""PSNR of white models on what training held out, set by set, and where colours are hardest.

    python -m benchmarks.held_out --model deep-color --model runs/deep/best.safetensors

The central 256 × 256 pixels of every tenth picture of each set; and of all their patches of
128 × 128 the tenth with the strongest chroma, and the tenth with the most detail of colour. White
noise, or another kind, neither clipped nor rounded, seed 0.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import torch

from benchmarks.common import parser, show
from nelu_cli import checkpoints
from nelu_cli.data import sets
from nelu_cli.data.patches import detail
from nelu_cli.evaluation import psnr
from nelu_cli.networks import Network
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.noise.filters import FloatImage, to_ycc
from nelu_cli.words import NoiseKind

MIDDLE, PATCH = 256, 128
HOLD_OUT = 10


class Cut(NamedTuple):
    name: str
    pixels: FloatImage


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--model", action="append", required=True, help="repeatable")
    arguments.add_argument("--dataset", action="append", help="repeatable; cbsd432 and photos")
    arguments.add_argument("--sigmas", default="0,1,5,15,25,50,75,120")
    arguments.add_argument("--noise", default="white", choices=get_args(NoiseKind))
    given = arguments.parse_args()
    networks = {name: checkpoints.load(name).network.eval() for name in given.model}
    channels = {network.channels for network in networks.values()}
    if len(channels) != 1:
        raise SystemExit("models of grey and of colour cannot be compared")
    groups = held_out(given.dataset or ["cbsd432", "photos"], channels.pop())
    sigmas = [float(sigma) for sigma in given.sigmas.split(",")]
    rows = [
        {"pictures": group, "model": name}
        | {f"{sigma:g}": mean_psnr(network, cuts, sigma, given.noise) for sigma in sigmas}
        for group, cuts in groups.items()
        for name, network in networks.items()
    ]
    formats = {"pictures": "", "model": ""} | {f"{sigma:g}": ".3f" for sigma in sigmas}
    show(f"Held-out pictures, {given.noise} noise, PSNR in dB", rows, given.json, formats)


def held_out(names: Sequence[str], channels: int) -> dict[str, list[Cut]]:
    """The middles of each set's held-out pictures and, in colour, the hardest patches."""
    groups: dict[str, list[Cut]] = {}
    patches: list[Cut] = []
    for name in names:
        cuts = groups[Path(name).name] = []
        for path in sets.find(name).paths[::HOLD_OUT]:
            clean = sets.load_clean(path, channels)
            height, width = clean.shape[:2]
            top, left = max(0, height - MIDDLE) // 2, max(0, width - MIDDLE) // 2
            cuts.append(Cut(path.name, clean[top : top + MIDDLE, left : left + MIDDLE]))
            patches += [
                Cut(f"{path.name}, {top}, {left}", clean[top : top + PATCH, left : left + PATCH])
                for top in range(0, height - PATCH + 1, PATCH)
                for left in range(0, width - PATCH + 1, PATCH)
            ]
    measures = {"strongest colours": chroma, "most detail of colour": detail}
    for group, measure in measures.items() if channels == 3 else ():
        patches.sort(key=lambda cut: measure(cut.pixels), reverse=True)
        groups[group] = patches[: max(1, len(patches) // 10)]
    return groups


def chroma(pixels: FloatImage) -> float:
    """Root mean square of Cb and Cr."""
    return float(np.sqrt(np.square(to_ycc(pixels)[..., 1:]).mean()))


@torch.inference_mode()
def mean_psnr(
    network: Network, cuts: Sequence[Cut], sigma255: float, kind: NoiseKind = "white"
) -> float:
    found = []
    for name, clean in cuts:
        seed = noise_seed(name, sigma255, 0)
        _, noisy = add_noise(clean, kind, sigma255, seed)
        estimate = network.denoise(torch.from_numpy(noisy).permute(2, 0, 1)[None])[0]
        found.append(psnr(clean, estimate.clamp(0, 1).permute(1, 2, 0).numpy()))
    return float(np.mean(found))


if __name__ == "__main__":
    main()
