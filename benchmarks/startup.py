"""How long ``nelu`` takes to start, and what it imports: ``python -m benchmarks.startup``.

All commands take turns, each in a fresh process; the median round counts. Times are multiples of
that of ``python -c "import typer, rich"`` and of ``python -c "import torch"`` in the same run.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image

from benchmarks.common import parser, picture, show

LISTING = "; import sys; print(len(sys.modules), 'torch' in sys.modules)"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=9)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.png"
        Image.fromarray(picture(256 * 256 / 1e6, 1)[..., 0]).resize((256, 256)).save(source)
        denoise = ["denoise", "--force", "--quiet", str(source), str(Path(folder) / "out.png")]
        nelu = "from nelu_cli.cli import run; run({})"
        commands = {
            "python -c pass": "pass",
            "import typer, rich": "import typer, rich",
            "nelu --help": nelu.format(["--help"]),
            "nelu --version": nelu.format(["--version"]),
            "import torch": "import torch",
            "nelu denoise, 256² PNG": nelu.format(denoise),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(chosen.rounds + 1):  # the first fills the disk's cache
            for name, code in commands.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
                times[name].append(time.perf_counter() - start)
        rows: list[dict[str, Any]] = []
        middle = {name: median(all_times[1:]) for name, all_times in times.items()}
        for name, code in commands.items():
            done = subprocess.run(
                [sys.executable, "-c", code + LISTING], check=True, capture_output=True, text=True
            )
            modules, torch_there = done.stdout.split()[-2:]
            rows.append(
                {
                    "command": name,
                    "ms": middle[name] * 1e3,
                    "to typer, rich": middle[name] / middle["import typer, rich"],
                    "to torch": middle[name] / middle["import torch"],
                    "modules": int(modules),
                    "torch": "yes" if torch_there == "True" else "no",
                }
            )
    formats = {"command": "", "ms": ".0f", "to typer, rich": ".2f", "to torch": ".2f"}
    show("start", rows, chosen.json, formats | {"modules": "d", "torch": ""})


if __name__ == "__main__":
    main()
