"""The square-root lasso for any dictionary: optimal, equal to other solvers, pivotal."""

import importlib
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from nelu_cli.errors import NeluError
from nelu_cli.operators import duality_gap, nelu, sqrt_lasso

cvxpy: Any = importlib.import_module("cvxpy")  # its type hints are incomplete

SHAPES = [(40, 20), (40, 40), (40, 120)]


def problem(n: int, d: int, seed: int = 0, coherent: float = 0.0) -> tuple[Tensor, Tensor]:
    """A dictionary with unit columns and a signal of five of them, with noise."""
    random = torch.Generator().manual_seed(seed)
    dictionary = torch.randn(n, d, generator=random, dtype=torch.float64)
    dictionary += coherent * torch.randn(n, 1, generator=random, dtype=torch.float64)
    dictionary /= dictionary.norm(dim=0)
    code = torch.zeros(d, dtype=torch.float64)
    code[torch.randperm(d, generator=random)[:5]] = 3.0
    noise = torch.randn(n, generator=random, dtype=torch.float64)
    return dictionary, dictionary @ code + 0.1 * noise


def objective(dictionary: Tensor, signal: Tensor, code: Tensor, lam: float) -> float:
    return float((signal - dictionary @ code).norm() + lam * code.abs().sum())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lam", [0.2, 0.4, 0.8])
@pytest.mark.parametrize("coherent", [0.0, 2.0])
def test_the_optimality_conditions_hold(
    shape: tuple[int, int], lam: float, coherent: float
) -> None:
    """Dᵀr/‖r‖ = λ·sign(z) on the support, at most λ elsewhere."""
    dictionary, signal = problem(*shape, coherent=coherent)
    code = sqrt_lasso(dictionary, signal, lam)
    residual = signal - dictionary @ code
    pull = dictionary.T @ residual / residual.norm()
    assert pull.abs().max() <= lam * (1 + 1e-6)
    on = code != 0
    torch.testing.assert_close(pull[on], lam * code[on].sign(), atol=1e-6, rtol=0)
    assert duality_gap(dictionary, signal, code, lam) <= 1e-8 * signal.norm()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lam", [0.25, 0.5])
def test_it_equals_an_independent_convex_solver(shape: tuple[int, int], lam: float) -> None:
    dictionary, signal = problem(*shape)
    code = cvxpy.Variable(shape[1])
    cost = cvxpy.norm(signal.numpy() - dictionary.numpy() @ code, 2) + lam * cvxpy.norm(code, 1)
    best = cvxpy.Problem(cvxpy.Minimize(cost)).solve(solver="CLARABEL")
    found = sqrt_lasso(dictionary, signal, lam)
    assert abs(objective(dictionary, signal, found, lam) - best) < 1e-6 * best
    torch.testing.assert_close(found, torch.from_numpy(code.value), atol=1e-3, rtol=0)


@pytest.mark.filterwarnings("ignore")  # of numba's and scikit-learn's own making
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lam", [0.25, 0.5])
def test_it_equals_the_solver_of_skglm(shape: tuple[int, int], lam: float) -> None:
    solvers = pytest.importorskip("skglm.experimental.sqrt_lasso")
    dictionary, signal = problem(*shape)
    model = solvers.SqrtLasso(alpha=lam, fit_intercept=False, tol=1e-10)
    model.fit(dictionary.numpy(), signal.numpy())
    found, theirs = sqrt_lasso(dictionary, signal, lam), torch.from_numpy(model.coef_)
    ours, best = (objective(dictionary, signal, code, lam) for code in (found, theirs))
    assert abs(ours - best) < 1e-6 * best
    torch.testing.assert_close(found, theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("lam", [0.2, 0.3, 0.6])
def test_the_identity_as_dictionary_is_nelu(lam: float) -> None:
    _, signal = problem(40, 40)
    eye = torch.eye(40, dtype=torch.float64)
    torch.testing.assert_close(sqrt_lasso(eye, signal, lam), nelu(signal[None], lam)[0])


@pytest.mark.parametrize("scale", [1e-6, 1e3])
def test_it_scales_with_the_signal(scale: float) -> None:
    dictionary, signal = problem(40, 120)
    torch.testing.assert_close(
        sqrt_lasso(dictionary, scale * signal, 0.4), scale * sqrt_lasso(dictionary, signal, 0.4)
    )


def test_a_large_lam_gives_nothing_and_types_are_kept() -> None:
    dictionary, signal = problem(40, 20)
    assert not sqrt_lasso(dictionary, signal, 1.01).any()
    assert not sqrt_lasso(dictionary, torch.zeros_like(signal), 0.3).any()
    assert sqrt_lasso(dictionary[:, :0], signal, 0.3).shape == (0,)
    assert not sqrt_lasso(torch.zeros_like(dictionary), signal, 0.3).any()
    single = sqrt_lasso(dictionary.float(), signal.float(), 0.3)
    assert single.dtype == torch.float32
    torch.testing.assert_close(
        single.double(), sqrt_lasso(dictionary, signal, 0.3), atol=1e-5, rtol=0
    )


def test_what_cannot_be_solved_is_said() -> None:
    dictionary, signal = problem(40, 120)
    with pytest.raises(NeluError, match=r"duality gap is .* after 2 steps.*larger lam"):
        sqrt_lasso(dictionary, signal, 0.3, max_steps=2)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="lam must be a number above 0"):
            sqrt_lasso(dictionary, signal, wrong)
    with pytest.raises(ValueError, match=r"needs a dictionary \(n, d\) and a signal \(n,\)"):
        sqrt_lasso(dictionary, signal[:-1], 0.3)
