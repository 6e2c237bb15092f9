"""A comparison of shrinkages, cell by cell. Usage: shrinkages.py [FIGURE.png]"""

# %% Sparse coefficients in noise of several levels
import sys

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nelu_cli import nelu
from nelu_cli.operators import soft_threshold

random = torch.Generator().manual_seed(0)
COUNT, ENTRIES = 500, 256
clean = torch.randn(COUNT, ENTRIES, generator=random) * 3
clean *= torch.rand(COUNT, ENTRIES, generator=random) < 0.05
levels = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]

# %% Shrinkages. The first two are tuned for σ = 0.2 and told nothing; NeLU finds the level itself
TUNED = 0.2


def soft(u: Tensor) -> Tensor:
    """Every entry moves towards 0."""
    return soft_threshold(u, 2 * TUNED)


def hard(u: Tensor) -> Tensor:
    """Small entries become 0, the others stay."""
    return u * (u.abs() > 3 * TUNED)


def pivotal(u: Tensor) -> Tensor:
    """min ‖z − u‖₂ + λ‖z‖₁: a soft threshold whose height follows the residual."""
    return nelu(u, 2 / ENTRIES**0.5)


shrinkages = {"soft": soft, "hard": hard, "NeLU": pivotal}

# %% Errors, in units of the noise
errors: dict[str, list[float]] = {name: [] for name in shrinkages}
for sigma in levels:
    noisy = clean + sigma * torch.randn(clean.shape, generator=random)
    for name, shrink in shrinkages.items():
        errors[name].append(float((shrink(noisy) - clean).square().mean().sqrt()) / sigma)
print("σ     " + "".join(f"{sigma:>7}" for sigma in levels))
for name, values in errors.items():
    print(f"{name:6}" + "".join(f"{value:7.2f}" for value in values))

# %% A figure
figure = Figure(figsize=(5, 3.5), layout="constrained")
axes = figure.add_subplot(xlabel="σ", ylabel="error / σ", xscale="log", yscale="log")
for name, values in errors.items():
    axes.plot(levels, values, marker="o", label=name)
axes.legend()
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1])
