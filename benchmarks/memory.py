"""Peak memory of ``nelu denoise`` against the size of the picture: ``python -m benchmarks.memory``.

Each size runs in a process of its own on a synthetic RGB picture (8 bits, smooth shapes with
noise); what is reported is the largest resident size that process ever had. With ``--memory`` as
the ceiling of the working memory, the rest is Python, torch, and the picture itself, in and out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

MIB = 2**20


def make_picture(path: Path, megapixels: float) -> None:
    """A TIFF of about so many megapixels, 4:3, written strip by strip."""
    import tifffile

    width = round((megapixels * 1e6 * 4 / 3) ** 0.5)
    height = round(megapixels * 1e6 / width)
    rng = np.random.default_rng(0)
    across = 128 + 60 * np.sin(np.arange(width) / 40)[:, None] * np.array([1, 0.8, 0.6])

    def rows() -> Iterator[NDArray[np.uint8]]:
        for top in range(0, height, 64):
            count = min(64, height - top)
            strip = across + rng.normal(0, 20, (count, width, 3))
            yield np.clip(strip, 0, 255).astype(np.uint8)

    tifffile.imwrite(
        path, rows(), shape=(height, width, 3), dtype=np.uint8, rowsperstrip=64, photometric="rgb"
    )


def peak(picture: Path, target: Path, memory: str) -> int:
    """Largest resident size in bytes of one ``nelu denoise``."""
    command = ["denoise", "--quiet", "--memory", memory, str(picture), str(target)]
    code = (
        "import resource, sys; from nelu_cli.cli import run; status = run(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    return int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megapixels", type=float, nargs="+", default=[1, 4, 25, 100])
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for megapixels in options.megapixels:
            picture, target = Path(folder) / "in.tif", Path(folder) / "out.tif"
            make_picture(picture, megapixels)
            size = peak(picture, target, options.memory)
            target.unlink()
            results.append({"megapixels": megapixels, "peak_mib": round(size / MIB)})
    if options.json:
        print(json.dumps({"memory": options.memory, "results": results}))
        return
    table = Table(title=f"nelu denoise --memory {options.memory}, RGB, 8 bits", box=None)
    for title in ("Mpx", "picture in and out, MiB", "peak, MiB"):
        table.add_column(title, justify="right")
    for row in results:
        pixels = 2 * 3 * row["megapixels"] * 1e6 / MIB
        table.add_row(f"{row['megapixels']:g}", f"{pixels:.0f}", str(row["peak_mib"]))
    Console().print(table)


if __name__ == "__main__":
    main()
