"""Speed of the exported networks in onnxruntime beside torch: ``python -m benchmarks.export``.

Both run the whole picture at once on the same number of threads and take turns; the median round
counts. Torch is given without gradients, as ``nelu denoise`` runs it.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.common import parser, picture, show
from nelu_cli import checkpoints
from nelu_cli.export import export_onnx


def measure(name: str, megapixels: float, rounds: int, threads: int) -> dict[str, Any]:
    """Seconds per megapixel of one model in both."""
    import onnxruntime

    checkpoint = checkpoints.load(name)
    channels = checkpoint.network.config.channels
    pixels = picture(megapixels, channels).astype(np.float32) / 255
    noisy = np.ascontiguousarray(np.moveaxis(pixels, -1, 0)[None])
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(checkpoint, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def by_torch() -> object:
        with torch.inference_mode():
            return checkpoint.network.denoise(torch.from_numpy(noisy))

    def by_onnxruntime() -> object:
        return session.run(None, {"noisy": noisy})

    ways: dict[str, Callable[[], object]] = {"torch": by_torch, "onnxruntime": by_onnxruntime}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, once in ways.items():
            start = time.perf_counter()
            once()
            if number:  # the first is for warming up
                seconds[way].append(time.perf_counter() - start)
    found = {way: median(times) / megapixels for way, times in seconds.items()}
    return {"model": name, **found, "ratio": found["onnxruntime"] / found["torch"]}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", default=["deep-gray", "deep-color"])
    options.add_argument("--megapixels", type=float, default=1.0)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=os.cpu_count())
    chosen = options.parse_args()
    rows = [
        measure(name, chosen.megapixels, chosen.rounds, chosen.threads) for name in chosen.models
    ]
    formats = {"model": "", "torch": ".3f", "onnxruntime": ".3f", "ratio": ".2f"}
    title = f"seconds a megapixel, {chosen.megapixels:g} Mpx, {chosen.threads} threads"
    show(title, rows, chosen.json, formats)


if __name__ == "__main__":
    main()
