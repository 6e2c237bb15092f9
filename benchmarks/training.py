"""Speed of ``nelu train``: steps and megapixels a second, and where the time goes.

    python -m benchmarks.training

The default settings of each network on synthetic pictures in memory, in float32 and in bfloat16
(autocast; weights and optimizers are float32), step by step in turns. Patches are cut in a thread
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
from nelu_cli.data.patches import PatchSource
from nelu_cli.networks import FLAGSHIP, Config, PaperConfig, build, family
from nelu_cli.training import TrainConfig
from nelu_cli.training.optimizers import parameter_optimizers

NETWORKS: dict[str, Config] = {
    "deep, grey": FLAGSHIP,
    "deep, colour": replace(FLAGSHIP, channels=3),
    "paper, NeLU": PaperConfig(signed=True, pass_through=True),
    "paper, ReLU": PaperConfig(signed=True, pass_through=True, activation="relu"),
}


def measure(network_config: Config, steps: int) -> list[dict[str, Any]]:
    """A row for each precision."""
    usual: dict[str, Any] = {**family(network_config.family).recipes["nelu"].training}
    config = TrainConfig(**usual)
    pictures = [picture(0.15, network_config.channels) for _ in range(8)]
    source = PatchSource([pictures], config.sigma255, 1.0, (1.0, 1.0), 0.5, 0)
    torch.manual_seed(0)
    network = build(network_config)
    optimizers = parameter_optimizers(network, config.optimizer, 1e-4, config.epsilon)
    spent: dict[str, list[list[float]]] = {"float32": [], "bfloat16": []}
    for step, precision in itertools.product(range(steps + 2), spent):
        marks = [time.perf_counter()]
        batch = source.batch(step, range(config.batch), config.patch)
        marks.append(time.perf_counter())
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            noise = network(batch.noisy)
        loss = nn.functional.mse_loss(batch.noisy - noise, batch.clean)
        marks.append(time.perf_counter())
        network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        marks.append(time.perf_counter())
        for optimizer in optimizers:
            optimizer.step()
        marks.append(time.perf_counter())
        spent[precision].append([after - before for before, after in itertools.pairwise(marks)])
    rows: list[dict[str, Any]] = []
    for precision, parts in spent.items():
        data, forward, backward, update = (median(part) for part in zip(*parts[2:], strict=True))
        whole = forward + backward + update  # patches are cut meanwhile
        rows.append(
            {
                "precision": precision,
                "batch": f"{config.batch} × {config.patch}²",
                "steps/s": 1 / whole,
                "to float32": 1 / whole / rows[0]["steps/s"] if rows else 1.0,
                "Mpx/s": config.batch * config.patch**2 / 1e6 / whole,
                "forward": forward / whole,
                "backward": backward / whole,
                "optimizer": update / whole,
                "data": data / whole,
            }
        )
    return rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=15)
    chosen = options.parse_args()
    rows = [
        {"network": name} | row
        for name, config in NETWORKS.items()
        for row in measure(config, chosen.steps)
    ]
    formats = {"network": "", "precision": "", "batch": "", "steps/s": ".2f", "to float32": ".2f"}
    formats |= {"Mpx/s": ".3f"}
    formats |= dict.fromkeys(("forward", "backward", "optimizer", "data"), ".0%")
    show(f"{torch.get_num_threads()} threads", rows, chosen.json, formats)


if __name__ == "__main__":
    main()
