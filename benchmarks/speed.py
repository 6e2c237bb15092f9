"""Speed of our models against other denoisers: ``python -m benchmarks.speed``.

Every number of threads has a process of its own, bound to as many cores, so that all methods have
the same means whatever they make of them. Methods take turns and the median round counts; a method
that would need longer than ``--limit`` for a picture is left out there. Times are given as
multiples of our default model's on the same picture. All work on an array in memory.

Our default model runs in what ``nelu denoise`` would choose, bfloat16 on processors that are faster
in it, and in float32 beside it; so does DnCNN.

The peers get the noise level told and their packages' usual settings; "DnCNN" has the published
shape (17 layers of 64 channels) and random weights, and runs in tiles like our own networks: only
its time means anything.

"Of the best" is the throughput in multiply-adds as a share of that of the faster of two plain
operations in the same process and precision: a 64→64 3×3 convolution (channels_last) and a matrix
product.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import parser, picture, show
from nelu_cli.networks import Network, PaperAutoencoder, rows
from nelu_cli.networks.padding import pad_image
from nelu_cli.runtime.allocator import keep_freed_memory
from nelu_cli.runtime.arrays import denoise
from nelu_cli.runtime.models import load_model
from nelu_cli.runtime.shifts import every_shift, shift_average
from nelu_cli.runtime.tiling import choose_tile, plan_tiles, run_tiled
from nelu_cli.words import Precision, Quality

Pixels = NDArray[np.uint8]
Run = Callable[[Pixels], object]
NOISE = 25 / 255


def dncnn(channels: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The published shape, batch normalisation folded into the convolutions."""
    layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU(inplace=True)]
    for _ in range(15):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(inplace=True)]
    layers.append(nn.Conv2d(64, channels, 3, padding=1))
    return nn.Sequential(*layers).to(dtype, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def to_tensor(pixels: Pixels) -> Tensor:
    return torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)


def in_tiles(
    network: nn.Module, halo: int, features: int, dtype: torch.dtype = torch.float32
) -> Run:
    """Run over tiles of which a map of ``features`` channels takes 128 MiB in float32."""

    def run(pixels: Pixels) -> Tensor:
        image = to_tensor(pixels)
        room = 2**27 // (4 * features)
        height, width = image.shape[-2:]
        tile = choose_tile(height, width, stride=1, halo=halo, max_pixels=room)
        tiles = plan_tiles(height, width, tile, stride=1, halo=halo)
        with torch.inference_mode():

            def one(part: Tensor) -> Tensor:
                tile = part[None].to(dtype).contiguous(memory_format=torch.channels_last)
                cleaned: Tensor = network(tile)
                return cleaned[0].float()

            return run_tiled(one, image, tiles)

    return run


def our(name: str, quality: Quality, precision: Precision = "auto") -> Run:
    model = load_model(name, precision=precision)
    return lambda pixels: denoise(pixels, model, quality=quality)


def strided_convolutions(network: PaperAutoencoder) -> Callable[[Tensor], Tensor]:
    """One grid of the paper's network, as it is usually written: a convolution and its adjoint."""
    config = network.config
    shape = (config.filters, config.channels, config.kernel, config.kernel)
    analysis = network.encode(torch.eye(config.channels * config.kernel**2)).t().reshape(shape)
    synthesis = network.synthesis.view(shape)

    def run(image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        border = config.kernel - 1
        right, below = (
            (config.kernel - size - 2 * border) % config.stride for size in (width, height)
        )
        padded = pad_image(image, border, border + right, border, border + below)
        coeffs = F.conv2d(padded, analysis, stride=config.stride)
        code = network.activation(coeffs.movedim(1, -1)).movedim(-1, 1)
        if config.pass_through:
            code = coeffs - code
        decoded = F.conv_transpose2d(code, synthesis, stride=config.stride)
        result = decoded[..., border : border + height, border : border + width]
        return image - result if config.pass_through else result

    return run


def replicated(name: str) -> Run:
    """The paper's network as the paper runs it: every shift of the picture by itself."""
    network = load_model(name).network
    assert isinstance(network, PaperAutoencoder)
    stride = network.config.stride
    one = strided_convolutions(network)

    def run(pixels: Pixels) -> Tensor:
        with torch.inference_mode():
            return shift_average(one, to_tensor(pixels)[:, None], every_shift(stride), 2 * stride)

    return run


def methods(channels: int, threads: int) -> dict[str, Run]:
    """All there is to compare, the default model first."""
    import bm3d
    import cv2
    from skimage import restoration

    cv2.setNumThreads(threads)
    default = "deep-color" if channels == 3 else "deep-gray"
    cv_means = cv2.fastNlMeansDenoisingColored if channels == 3 else cv2.fastNlMeansDenoising

    def floats(fn: Callable[..., object], **settings: Any) -> Run:
        return lambda pixels: fn(pixels.astype(np.float32) / 255, channel_axis=-1, **settings)

    return {
        default: our(default, "normal"),
        f"{default}, float32": our(default, "normal", "float32"),
        f"{default}, best": our(default, "best"),
        "paper-nelu-s15": our("paper-nelu-s15", "normal"),
        "paper-nelu-s15, replicated shifts": replicated("paper-nelu-s15"),
        "DnCNN": in_tiles(dncnn(channels), halo=17, features=64),
        "DnCNN, bfloat16": in_tiles(
            dncnn(channels, torch.bfloat16), halo=17, features=64, dtype=torch.bfloat16
        ),
        "bm3d": lambda pixels: (bm3d.bm3d_rgb if channels == 3 else bm3d.bm3d)(
            pixels.astype(np.float64) / 255, NOISE
        ),
        "skimage nl_means (fast)": floats(
            restoration.denoise_nl_means, h=0.6 * NOISE, sigma=NOISE, fast_mode=True
        ),
        "skimage wavelet": floats(
            restoration.denoise_wavelet, sigma=NOISE, rescale_sigma=True, convert2ycbcr=channels > 1
        ),
        "skimage tv_chambolle": floats(restoration.denoise_tv_chambolle, weight=0.9 * NOISE),
        "OpenCV fastNlMeans": lambda pixels: cv_means(pixels, None, 15),
    }


def seconds(run: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


@torch.inference_mode()
def best_throughput(dtype: torch.dtype) -> dict[str, float]:
    """GMAC/s of a 64→64 3×3 convolution and of a matrix product, the best of ten."""
    image = torch.randn(1, 64, 512, 512).to(dtype, memory_format=torch.channels_last)
    kernel = torch.randn(64, 64, 3, 3).to(dtype, memory_format=torch.channels_last)
    matrix = torch.randn(2048, 2048).to(dtype)
    convolve = [seconds(lambda: F.conv2d(image, kernel, padding=1)) for _ in range(10)]
    multiply = [seconds(lambda: matrix @ matrix) for _ in range(10)]
    return {
        "convolution": 64 * 64 * 9 * 512**2 / min(convolve) / 1e9,
        "matrix product": 2048**3 / min(multiply) / 1e9,
    }


def macs_per_pixel(network: nn.Module, channels: int) -> float:
    """Multiply-adds in convolutions and matrix products; a whole picture, as in a large one.

    With gradients enabled our networks take no short cuts, so that no zeros are counted.
    """
    side = 256
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, channels, side, side))
    return float(counter.get_total_flops()) / 2 / side**2


@torch.inference_mode()
def nelu_share(network: Network, side: int = 1024, rounds: int = 5) -> float:
    """Share of a pass that is spent in the NeLU layers, the median of some passes."""
    spent = 0.0
    call = rows.RowNeLU.__call__

    def timed(layer: rows.RowNeLU, strip: rows.Strip) -> rows.Strip | None:
        nonlocal spent
        start = time.perf_counter()
        result = call(layer, strip)
        spent += time.perf_counter() - start
        return result

    image = torch.randn(1, network.config.channels, side, side)
    shares = []
    with patch.object(rows.RowNeLU, "__call__", timed):
        for _ in range(rounds + 1):  # the first is slower
            spent = 0.0
            whole = seconds(network, image)
            shares.append(spent / whole)
    return median(shares[1:])


def measure(
    threads: int, sizes: list[float], limit: float, rounds: int, names: list[str]
) -> list[dict[str, Any]]:
    torch.set_num_threads(threads)
    keep_freed_memory()  # as the command does; it helps all of them
    best = {
        "float32": best_throughput(torch.float32),
        "bfloat16": best_throughput(torch.bfloat16),
    }
    results: list[dict[str, Any]] = []
    for channels, kind in ((1, "grey"), (3, "colour")):
        contenders = methods(channels, threads)
        default = next(iter(contenders))
        model = load_model(default)
        ours = macs_per_pixel(load_model(default, precision="float32").network, channels)
        peer = macs_per_pixel(dncnn(channels), channels)
        counted: dict[str, tuple[float, str]] = {  # multiply-adds a pixel, and in what
            default: (ours, model.precision),
            f"{default}, float32": (ours, "float32"),
            "DnCNN": (peer, "float32"),
            "DnCNN, bfloat16": (peer, "bfloat16"),
        }
        share = nelu_share(model.network)
        speed: dict[str, float] = {}  # s/Mpx at the last size
        for size in sizes:
            pixels = picture(size, channels)
            megapixels = pixels.shape[0] * pixels.shape[1] / 1e6
            running = {
                name: run
                for name, run in contenders.items()
                if name == default
                or (
                    speed.get(name, 0) * megapixels <= limit and any(part in name for part in names)
                )
            }
            if not speed:
                for run in running.values():
                    run(pixels[:128, :128])  # the first call of anything is slow
            times: dict[str, list[float]] = {name: [] for name in running}
            for number in range(rounds):
                for name, run in running.items():
                    if number == 0 or times[name][0] < limit / rounds:
                        times[name].append(seconds(run, pixels))
            reference = median(times[default])
            for name, all_times in times.items():
                speed[name] = median(all_times) / megapixels
                macs, precision = counted.get(name, (None, "float32"))
                gmacs = macs / speed[name] / 1e3 if macs else None
                plain = best[precision]
                results.append(
                    {
                        "threads": threads,
                        "kind": kind,
                        "Mpx": size,
                        "method": name,
                        "Mpx/s": 1 / speed[name],
                        "time": median(all_times) / reference,
                        "precision": precision if macs else None,
                        "kMAC/px": macs / 1e3 if macs else None,
                        "GMAC/s": gmacs,
                        "of the best": gmacs / max(plain.values()) if gmacs else None,
                        "of the convolution": gmacs / plain["convolution"] if gmacs else None,
                        "in NeLU": share if name == default else None,
                    }
                )
    return results


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--sizes", type=float, nargs="+", default=[0.25, 1, 4, 12, 50])
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument(
        "--limit", type=float, default=60, help="leave out what takes more seconds"
    )
    options.add_argument("--methods", nargs="+", default=[""], help="parts of the names to compare")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--one", action="store_true", help="(the process of one thread count)")
    chosen = options.parse_args()
    for threads in chosen.threads:
        if not chosen.one:
            again = [sys.executable, "-m", "benchmarks.speed", *sys.argv[1:]]
            again += ["--one", "--threads", str(threads)]
            environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
            subprocess.run(again, check=True, env=environment)
            continue
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        results = measure(threads, chosen.sizes, chosen.limit, chosen.rounds, chosen.methods)
        formats = {
            "kind": "",
            "Mpx": "g",
            "method": "",
            "precision": "",
            "Mpx/s": ".3f",
            "time": ".2f",
            "kMAC/px": ".1f",
            "GMAC/s": ".1f",
            "of the best": ".0%",
            "of the convolution": ".0%",
            "in NeLU": ".1%",
        }
        show(f"{threads} threads", results, chosen.json, formats)


if __name__ == "__main__":
    main()
