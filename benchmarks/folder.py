"""How much of the time for a folder of small pictures goes into the network.

    python -m benchmarks.folder

``nelu denoise in out`` on synthetic PNGs of 256×256, grey; reading and writing should hide behind
the network. The share is the time in which the network runs over that of the whole command, start
of Python and loading of the weights left out.
"""

import contextlib
import io
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from benchmarks.common import parser, picture, show
from nelu_cli.cli import run
from nelu_cli.networks import DeepAutoencoder


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--pictures", type=int, default=500)
    options.add_argument("--threads", type=int, default=2)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    spent = 0.0
    forward = DeepAutoencoder.forward

    def timed(network: DeepAutoencoder, image: torch.Tensor) -> torch.Tensor:
        nonlocal spent
        start = time.perf_counter()
        result = forward(network, image)
        spent += time.perf_counter() - start
        return result

    DeepAutoencoder.forward = timed  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in", Path(folder) / "out"
        source.mkdir()
        image = Image.fromarray(picture(0.0656, 1)[..., 0]).resize((256, 256))
        for number in range(chosen.pictures):
            image.save(source / f"{number:04}.png")
        with contextlib.redirect_stdout(io.StringIO()):
            run(["denoise", "--quiet", str(source / "0000.png"), str(target / "first.png")])
            spent = 0.0
            start = time.perf_counter()
            run(["denoise", "--quiet", str(source), str(target)])
            whole = time.perf_counter() - start
    row = {"pictures": chosen.pictures, "pictures/s": chosen.pictures / whole}
    show(
        f"a folder, {chosen.threads} threads",
        [row | {"in the network": spent / whole}],
        chosen.json,
        {"pictures": "d", "pictures/s": ".1f", "in the network": ".1%"},
    )


if __name__ == "__main__":
    main()
