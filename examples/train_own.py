"""Train a small network on your own pictures and use it. Usage: train_own.py FOLDER RUN

This one is tiny, to run in seconds; `nelu train -h` tells of real runs.
"""

import sys
from pathlib import Path

import numpy as np

from nelu_cli import denoise, load_model
from nelu_cli.networks import DeepConfig
from nelu_cli.training import TrainConfig, train


def main(folder: Path, run: Path, steps: int = 200) -> None:
    train(
        TrainConfig(
            data=(str(folder),),
            hold_out=2,
            sigma255=(5, 50),
            steps=steps,
            minutes=None,
            batch=4,
            patch=48,
            final_patch=48,
            warm_up=20,
            validate_every=steps,
        ),
        DeepConfig(widths=(8, 16), blocks=(1, 1), window=1),
        run,
        on_event=lambda event: print(f"step {event.step}: loss {event.loss:.4f}"),
    )
    model = load_model(run / "best.safetensors")
    noisy = 0.5 + 0.1 * np.random.default_rng(0).standard_normal((96, 96))
    before, after = noisy.std(), denoise(noisy, model).std()
    print(f"{model.name}: noise of {before:.3f} on a flat picture becomes {after:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
