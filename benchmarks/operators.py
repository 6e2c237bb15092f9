"""Exact NeLU against the paper's two algorithms: time, and distance from the optimum.

    python -m benchmarks.operators

All methods solve one problem: sparse codes under noise whose level differs from sample to sample,
signed, λ = 1.5/√d for every channel and learnable. Times are forward plus backward (Algorithm 1:
forward alone), divided by exact NeLU's (Newton) in the same round; rounds go through all methods
in turn, and the median round counts.

Algorithms 1 and 2 get the step size (and Algorithm 2 the momentum) that brings them nearest to the
optimum, found on a part of the very data they are then measured on. Algorithm 2 rests at the
minimiser for (1 − α)λ, so λ/(1 − α) is tried for its λ as well as λ.
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from nelu_cli.operators import algorithm_1, algorithm_2, nelu

TAU = 1.5
STEP_SIZES = [10 ** (k / 6) for k in range(-15, 7)]  # 0.003 … 10
MOMENTA = [0.0, 0.3, 0.5, 0.7, 0.8, 0.9]
FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


@dataclass(frozen=True)
class Method:
    name: str
    solve: Callable[[Tensor, Tensor], Tensor]
    """From coefficients and λ to the code."""
    settings: str = ""
    forward_only: bool = False


@dataclass(frozen=True)
class Row:
    memory_format: str
    method: str
    settings: str
    forward_only: bool
    time_ratio: float
    """To exact NeLU by Newton."""
    distance: float
    """‖z − z*‖₂/‖z*‖₂, z* being the optimum."""
    objective_gap: float
    """Mean of (objective − optimal objective)/optimal objective."""


def coefficients(shape: tuple[int, ...]) -> Tensor:
    """One entry in twenty is signal of size 1; noise from 15/255 in the first sample to 75/255."""
    random = torch.Generator().manual_seed(0)
    signal = torch.randn(shape, generator=random)
    signal = signal * (torch.rand(shape, generator=random) < 0.05)
    levels = torch.linspace(15, 75, shape[0]).view(-1, 1, 1, 1) / 255
    return signal + levels * torch.randn(shape, generator=random)


def objective(z: Tensor, u: Tensor, lam: Tensor) -> Tensor:
    return (z - u).square().sum(1).sqrt() + (lam.view(-1, 1, 1) * z.abs()).sum(1)


def distance(z: Tensor, optimum: Tensor) -> float:
    return float((z - optimum).square().sum().sqrt() / optimum.square().sum().sqrt())


def tuned_algorithm_1(u: Tensor, lam: float, max_steps: int) -> Method:
    optimum = nelu(u.double(), lam, solver="sort")

    def solve(coeffs: Tensor, bias: Tensor, step_size: float) -> Tensor:
        return algorithm_1(coeffs, bias.mean(), step_size=step_size, max_steps=max_steps)

    best = min(STEP_SIZES, key=lambda step: distance(solve(u, torch.tensor(lam), step), optimum))
    return Method("Algorithm 1", lambda v, bias: solve(v, bias, best), f"β={best:.3g}", True)


def tuned_algorithm_2(u: Tensor, lam: float, steps: int) -> Method:
    optimum = nelu(u.double(), lam, solver="sort")

    def code(coeffs: Tensor, bias: Tensor, step: Tensor, momentum: Tensor, raised: bool) -> Tensor:
        bias = bias.mean() / (1 - momentum) if raised else bias.mean()
        return algorithm_2(coeffs, bias, step, momentum, steps=steps, proximal="soft")

    step, momentum, raised = min(
        itertools.product(map(torch.tensor, STEP_SIZES), map(torch.tensor, MOMENTA), [False, True]),
        key=lambda choice: distance(code(u, torch.tensor(lam), *choice), optimum),
    )
    settings = f"β={step:.3g} α={momentum:.3g}" + (" λ/(1−α)" if raised and momentum > 0 else "")
    step.requires_grad_()
    momentum.requires_grad_()
    return Method(
        f"Algorithm 2, N={steps}", lambda v, bias: code(v, bias, step, momentum, raised), settings
    )


def methods(u: Tensor, lam: float, max_steps: int) -> list[Method]:
    part = u[:, :, :6, :6]
    return [
        Method("NeLU, Newton", lambda v, bias: nelu(v, bias)),
        Method("NeLU, sort", lambda v, bias: nelu(v, bias, solver="sort")),
        *(tuned_algorithm_2(part, lam, steps) for steps in (5, 10, 20)),
        tuned_algorithm_1(part, lam, max_steps),
    ]


def seconds(method: Method, u: Tensor, lam: float, gradient: Tensor) -> float:
    bias = torch.full((u.shape[1],), lam, requires_grad=True)
    leaf = u.clone().requires_grad_()
    start = time.perf_counter()
    if method.forward_only:
        with torch.no_grad():
            method.solve(leaf, bias)
    else:
        torch.autograd.backward(method.solve(leaf, bias), gradient)
    return time.perf_counter() - start


def measure(memory_format: str, shape: tuple[int, ...], rounds: int, max_steps: int) -> list[Row]:
    u = coefficients(shape).contiguous(memory_format=FORMATS[memory_format])
    lam = TAU / math.sqrt(shape[1])
    bias = torch.full((shape[1],), lam)
    exact = nelu(u.double(), lam, solver="sort")
    best = objective(exact, u.double(), bias.double())
    gradient = torch.randn_like(u)
    contenders = methods(u, lam, max_steps)
    ratios: dict[str, list[float]] = {method.name: [] for method in contenders}
    for method in contenders[:2]:
        seconds(method, u, lam, gradient)  # the first call of anything is slow
    for number in range(rounds):
        # Algorithm 1 takes thousands of steps: once is enough.
        running = [method for method in contenders if number == 0 or not method.forward_only]
        times = {method.name: seconds(method, u, lam, gradient) for method in running}
        for name, value in times.items():
            ratios[name].append(value / times[contenders[0].name])
    rows = []
    for method in contenders:
        with torch.no_grad():
            z = method.solve(u, bias).double()
        gap = ((objective(z, u.double(), bias.double()) - best) / best).mean().item()
        rows.append(
            Row(
                memory_format,
                method.name,
                method.settings,
                method.forward_only,
                median(ratios[method.name]),
                distance(z, exact),
                gap,
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--shape", type=int, nargs=4, default=[4, 128, 64, 64], metavar=("B", "C", "H", "W")
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--max-steps", type=int, default=2000, help="limit of Algorithm 1")
    options = parser.parse_args()
    shape = tuple(options.shape)
    rows = [
        row for name in FORMATS for row in measure(name, shape, options.rounds, options.max_steps)
    ]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for name in FORMATS:
        table = Table(title=f"{shape}, float32, {name}, {torch.get_num_threads()} threads")
        for heading in ("method", "tuned", "time", "distance", "objective gap"):
            table.add_column(heading, no_wrap=True)
        for row in rows:
            if row.memory_format == name:
                table.add_row(
                    row.method + (" (forward)" if row.forward_only else ""),
                    row.settings,
                    f"{row.time_ratio:.2f}×",
                    f"{row.distance:.1e}",
                    f"{row.objective_gap:.1e}",
                )
        Console().print(table)


if __name__ == "__main__":
    main()
