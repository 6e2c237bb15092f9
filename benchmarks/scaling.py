"""Time and peak memory of ``nelu denoise`` over the size of the picture.

    python -m benchmarks.scaling

Each run is a process of its own on a synthetic RGB picture (8 bits, uncompressed TIFF in and out);
small sizes, up to 25 Mpx, run up to nine times. Time is that of the whole command without the start
of Python, the median run's, given per megapixel as a multiple of the first size's; memory is the
largest resident size a process ever had. "Beyond" is what it takes beyond ``--memory`` and the
pixels themselves, in and out: Python and torch.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import tifffile

from benchmarks.common import parser, picture, show

MIB = 2**20


def measure(source: Path, target: Path, memory: str) -> tuple[float, int]:
    """Seconds and largest resident size in bytes of one ``nelu denoise``."""
    command = ["denoise", "--json", "--memory", memory, str(source), str(target)]
    code = (
        "import resource, sys; from nelu_cli.cli import run; status = run(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    report, peak = done.stdout.splitlines()
    return json.loads(report)["seconds"], int(peak) * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--sizes", type=float, nargs="+", default=[1, 4, 12, 50, 100, 200])
    options.add_argument("--memory", type=int, default=1024, help="MiB")
    chosen = options.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.tif", Path(folder) / "out.tif"
        for size in chosen.sizes:
            pixels = picture(size, 3)
            both = 2 * pixels.nbytes / MIB
            megapixels = pixels.shape[0] * pixels.shape[1] / 1e6
            tifffile.imwrite(source, pixels, photometric="rgb")
            del pixels
            runs = []
            for _ in range(max(1, min(9, int(50 / size)))):
                runs.append(measure(source, target, f"{chosen.memory}MiB"))
                target.unlink()
            seconds, peak = median(run[0] for run in runs), max(run[1] for run in runs)
            first = rows[0]["s/Mpx"] if rows else seconds / megapixels
            rows.append(
                {
                    "Mpx": size,
                    "s/Mpx": seconds / megapixels,
                    "time per Mpx": seconds / megapixels / first,
                    "pixels, MiB": both,
                    "peak, MiB": peak / MIB,
                    "beyond, MiB": peak / MIB - both - chosen.memory,
                }
            )
    formats = {"Mpx": "g", "s/Mpx": ".2f", "time per Mpx": ".2f"}
    formats |= {"pixels, MiB": ".0f", "peak, MiB": ".0f", "beyond, MiB": ".0f"}
    show(f"nelu denoise --memory {chosen.memory}MiB, RGB", rows, chosen.json, formats)


if __name__ == "__main__":
    main()
