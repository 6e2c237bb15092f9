"""Speed of ``nelu train``: steps and megapixels a second, and where the time goes.

    python -m benchmarks.training

The default settings of each network on synthetic pictures in memory. Patches are cut in a thread
of their own during training; here the time to cut them is measured by itself, as "data".
"""

import itertools
import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.common import parser, picture, show
from nelu_cli.cli.train import DEFAULTS
from nelu_cli.data.patches import PatchSource
from nelu_cli.networks import FLAGSHIP, Config, PaperConfig, build
from nelu_cli.training import TrainConfig
from nelu_cli.training.optimizers import parameter_optimizers

NETWORKS: dict[str, Config] = {
    "deep, grey": FLAGSHIP,
    "deep, colour": replace(FLAGSHIP, channels=3),
    "paper, NeLU": PaperConfig(signed=True, pass_through=True),
    "paper, ReLU": PaperConfig(signed=True, pass_through=True, activation="relu"),
}


def measure(network_config: Config, steps: int) -> dict[str, Any]:
    config = TrainConfig(**DEFAULTS[network_config.family])
    pictures = [picture(0.15, network_config.channels) for _ in range(8)]
    source = PatchSource([pictures], config.sigma255, 1.0, (1.0, 1.0), 0.5, 0)
    torch.manual_seed(0)
    network = build(network_config)
    optimizers = parameter_optimizers(network, config.optimizer, 1e-4, config.epsilon)
    spent: list[list[float]] = []
    for step in range(steps + 2):
        marks = [time.perf_counter()]
        batch = source.batch(step, range(config.batch), config.patch)
        marks.append(time.perf_counter())
        loss = nn.functional.mse_loss(network(batch.noisy), batch.clean)
        marks.append(time.perf_counter())
        network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        marks.append(time.perf_counter())
        for optimizer in optimizers:
            optimizer.step()
        marks.append(time.perf_counter())
        spent.append([after - before for before, after in itertools.pairwise(marks)])
    data, forward, backward, update = (median(part) for part in zip(*spent[2:], strict=True))
    whole = forward + backward + update  # patches are cut meanwhile
    return {
        "batch": f"{config.batch} × {config.patch}²",
        "steps/s": 1 / whole,
        "Mpx/s": config.batch * config.patch**2 / 1e6 / whole,
        "forward": forward / whole,
        "backward": backward / whole,
        "optimizer": update / whole,
        "data": data / whole,
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=15)
    chosen = options.parse_args()
    rows = [{"network": n} | measure(config, chosen.steps) for n, config in NETWORKS.items()]
    formats = {"network": "", "batch": "", "steps/s": ".2f", "Mpx/s": ".3f"}
    formats |= dict.fromkeys(("forward", "backward", "optimizer", "data"), ".0%")
    show(f"{torch.get_num_threads()} threads", rows, chosen.json, formats)


if __name__ == "__main__":
    main()
