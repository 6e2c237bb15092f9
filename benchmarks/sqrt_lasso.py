"""The square-root lasso with a dictionary: sqrt_lasso against cvxpy and skglm, time as ratios.

    pip install -e '.[dev]' && python -m benchmarks.sqrt_lasso

One problem after the other, all solvers in turn, to a duality gap of 1e-9·‖y‖; the median of the
rounds counts. skglm compiles itself in a first call, which is not counted.
"""

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from nelu_cli.operators import duality_gap, sqrt_lasso

cvxpy: Any = importlib.import_module("cvxpy")  # its type hints are incomplete
Solve = Callable[[Tensor, Tensor, float], Tensor]
OURS = "sqrt_lasso"


@dataclass(frozen=True)
class Row:
    n: int
    d: int
    lam: float
    method: str
    nonzeros: int
    time_ratio: float
    """To sqrt_lasso."""
    gap: float
    """Duality gap over ‖y‖."""


def by_cvxpy(dictionary: Tensor, signal: Tensor, lam: float) -> Tensor:
    code = cvxpy.Variable(dictionary.shape[1])
    cost = cvxpy.norm(signal.numpy() - dictionary.numpy() @ code, 2) + lam * cvxpy.norm(code, 1)
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
    cvxpy.Problem(cvxpy.Minimize(cost)).solve(solver="CLARABEL", **tight)
    return torch.from_numpy(code.value)


def by_skglm(dictionary: Tensor, signal: Tensor, lam: float) -> Tensor:
    from skglm.experimental.sqrt_lasso import SqrtLasso

    model = SqrtLasso(alpha=lam, fit_intercept=False, tol=1e-9)
    model.fit(dictionary.numpy(), signal.numpy())
    return torch.from_numpy(model.coef_)


def problem(n: int, d: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    dictionary = torch.randn(n, d, generator=random, dtype=torch.float64)
    dictionary /= dictionary.norm(dim=0)
    code = torch.zeros(d, dtype=torch.float64)
    code[torch.randperm(d, generator=random)[: max(2, n // 20)]] = 3.0
    noise = torch.randn(n, generator=random, dtype=torch.float64)
    return dictionary, dictionary @ code + 0.1 * noise


def measure(n: int, d: int, lam: float, rounds: int) -> list[Row]:
    random = torch.Generator().manual_seed(0)
    solvers: dict[str, Solve] = {OURS: sqrt_lasso, "cvxpy (Clarabel)": by_cvxpy, "skglm": by_skglm}
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    gaps: dict[str, list[float]] = {name: [] for name in solvers}
    nonzeros: dict[str, int] = {}
    for solve in solvers.values():
        solve(*problem(n, d, random), lam)
    for _ in range(rounds):
        dictionary, signal = problem(n, d, random)
        for name, solve in solvers.items():
            start = time.perf_counter()
            code = solve(dictionary, signal, lam)
            seconds[name].append(time.perf_counter() - start)
            gaps[name].append(duality_gap(dictionary, signal, code, lam) / float(signal.norm()))
            nonzeros[name] = int((code.abs() > 1e-6).sum())
    ours = median(seconds[OURS])
    return [
        Row(n, d, lam, name, nonzeros[name], median(seconds[name]) / ours, max(gaps[name]))
        for name in solvers
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--sizes", default="50x100,100x400,200x1000", help="n×d, as 50x100,…")
    parser.add_argument("--lam", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # numba's
    rows = []
    for size in options.sizes.split(","):
        n, d = map(int, size.split("x"))
        rows += measure(n, d, options.lam, options.rounds)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table("n × d", "method", "non-zeros", "time", "gap / ‖y‖")
    for row in rows:
        size, gap = f"{row.n} × {row.d}", f"{row.gap:.0e}"
        table.add_row(size, row.method, str(row.nonzeros), f"{row.time_ratio:.2f}×", gap)
    Console().print(table)


if __name__ == "__main__":
    main()
