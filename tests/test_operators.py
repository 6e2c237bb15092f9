"""Laws of the shrinkage operators."""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import backward, gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from nelu_cli.operators import (
    AcceleratedNeLU,
    NeLU,
    Proximal,
    Solver,
    algorithm_1,
    algorithm_2,
    energy,
    nelu,
    soft_threshold,
)
from nelu_cli.operators.exact import shrink
from nelu_cli.operators.window import WINDOW_FLOOR

cvxpy: Any = importlib.import_module("cvxpy")  # its type hints are incomplete

SOLVERS: list[Solver] = ["newton", "sort"]
DTYPES = [torch.float32, torch.float64]


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sparse(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Coefficients as a network sees them: a few large ones on a ground of noise."""
    u = noise(*shape, seed=seed, dtype=dtype)
    return torch.where(noise(*shape, seed=seed + 1, dtype=dtype) > 1.2, 8 * u, u)


def tau(value: float, entries: int) -> float:
    return value / math.sqrt(entries)


def objective(z: Tensor, u: Tensor, lam: Tensor) -> Tensor:
    """‖z − u‖₂ + Σλᵢ|zᵢ| of vectors (..., d)."""
    residual: Tensor = torch.linalg.vector_norm(z - u, dim=-1)
    return residual + (lam * z.abs()).sum(-1)


def assert_optimal(
    z: Tensor, u: Tensor, lam: float | Tensor, *, nonnegative: bool, rtol: float = 1e-12
) -> None:
    """Check a certificate: primal value = dual value.

    The dual is max ⟨p, u⟩ with ‖p‖₂ ≤ 1 and |pᵢ| ≤ λᵢ (pᵢ ≤ λᵢ for z ≥ 0), and p = (u − z)/‖u − z‖₂
    attains it; where the residual is 0, p = λ·sign(u) does.
    """
    lam = torch.as_tensor(lam, dtype=u.dtype).expand(u.shape)
    r = (u - z).norm(dim=-1, keepdim=True)
    p = torch.where(r > 0, (u - z) / r, lam * u.sign())
    assert z.isfinite().all()
    assert (p.norm(dim=-1) <= 1 + rtol).all()
    assert ((p if nonnegative else p.abs()) <= lam * (1 + rtol) + rtol).all()
    if nonnegative:
        assert (z >= 0).all()
    gap = objective(z, u, lam) - (p * u).sum(-1)
    assert (gap.abs() <= rtol * (1 + lam.sum(-1)) * u.norm(dim=-1)).all()


# The minimiser


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_nelu_equals_an_independent_convex_solver(nonnegative: bool, per_channel: bool) -> None:
    for seed in range(8):
        d = 5 + 6 * seed
        u = sparse(d, seed=seed)
        lam = torch.full((d,), tau(1.3, d), dtype=torch.float64)
        if per_channel:
            lam = lam * (1 + 0.4 * noise(d, seed=seed + 100).tanh())
        z = cvxpy.Variable(d, nonneg=nonnegative)
        cost = cvxpy.norm2(z - u.numpy()) + lam.numpy() @ cvxpy.abs(z)
        problem = cvxpy.Problem(cvxpy.Minimize(cost))
        problem.solve(solver=cvxpy.CLARABEL)
        for solver in SOLVERS:
            ours = nelu(u, lam, nonnegative=nonnegative, dim=0, solver=solver)
            assert objective(ours, u, lam).item() == pytest.approx(problem.value, rel=1e-6)
            np.testing.assert_allclose(ours.numpy(), z.value, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("nonnegative", "proximal"), [(False, "soft"), (True, "relu")])
def test_nelu_equals_converged_algorithm_1(nonnegative: bool, proximal: Proximal) -> None:
    u = sparse(20, 30)
    for value in (1.2, 1.5, 2.0):
        lam = tau(value, 30)
        reached = algorithm_1(
            u, lam, step_size=1.0, tolerance=1e-13, max_steps=5000, proximal=proximal
        )
        torch.testing.assert_close(
            nelu(u, lam, nonnegative=nonnegative), reached, rtol=0, atol=1e-9
        )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_kkt_conditions(solver: Solver, nonnegative: bool) -> None:
    u = sparse(300, 40)
    lam = tau(1.0, 40) * (0.5 + torch.rand(40, dtype=torch.float64, generator=torch.manual_seed(0)))
    lam = lam * tau(1.4, 1) / lam.norm()  # Σλᵢ² = 1.4²
    z = nelu(u, lam, nonnegative=nonnegative, solver=solver)
    residual = u - z
    allowed = lam * residual.norm(dim=1, keepdim=True)
    used = z != 0
    assert used.any()
    assert not used.all()
    torch.testing.assert_close(residual[used], (z.sign() * allowed)[used], rtol=1e-12, atol=1e-12)
    below = residual if nonnegative else residual.abs()
    assert (below <= allowed * (1 + 1e-12)).all()
    assert (z * u >= 0).all()


entries = st.integers(-40, 40).map(lambda n: n / 8)  # zeros and ties are frequent


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    u=st.lists(entries, min_size=1, max_size=20),
    lam=st.one_of(st.floats(0.01, 1.5), st.integers(1, 20).map(lambda d: 1 / math.sqrt(d))),
    nonnegative=st.booleans(),
)
def test_nelu_is_optimal_for_any_vector(
    solver: Solver, u: list[float], lam: float, nonnegative: bool
) -> None:
    vector = torch.tensor(u, dtype=torch.float64, requires_grad=True)
    bias = torch.tensor(lam, dtype=torch.float64, requires_grad=True)
    z = nelu(vector, bias, nonnegative=nonnegative, dim=0, solver=solver)
    assert_optimal(z.detach(), vector.detach(), lam, nonnegative=nonnegative, rtol=1e-10)
    backward(z.sum())
    for gradient in (vector.grad, bias.grad):
        assert gradient is not None
        assert gradient.isfinite().all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 300),
    value=st.floats(0.5, 3),
    nonnegative=st.booleans(),
)
def test_newton_equals_sort(seed: int, d: int, value: float, nonnegative: bool) -> None:
    u = sparse(8, d, seed=seed).requires_grad_()
    lam = (tau(value, d) * (1 + 0.3 * noise(d, seed=seed).tanh())).requires_grad_()
    outcomes = []
    for solver in SOLVERS:
        z = nelu(u, lam, nonnegative=nonnegative, solver=solver)
        outcomes.append((z, *torch.autograd.grad(z.square().sum(), (u, lam))))
    for newton, sort in zip(*outcomes, strict=True):
        torch.testing.assert_close(newton, sort, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("largest", [1e2, 1e4, 1e6])
def test_one_huge_coefficient_does_not_blur_the_noise(solver: Solver, largest: float) -> None:
    u = noise(100, 64, dtype=torch.float32)
    u[:, 0] = largest
    exact = nelu(u.double(), tau(1.5, 64), solver="sort")
    z = nelu(u, tau(1.5, 64), solver=solver)
    torch.testing.assert_close(z[:, 1:].double(), exact[:, 1:], rtol=0, atol=3e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_float32_is_close_to_the_optimum(solver: Solver) -> None:
    u = sparse(500, 128, dtype=torch.float32)
    exact = nelu(u.double(), tau(1.5, 128))
    error = (nelu(u, tau(1.5, 128), solver=solver) - exact).norm() / exact.norm()
    assert error < 1e-6


# Symmetries


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_nelu_is_scale_equivariant(
    dtype: torch.dtype, window: int | None, nonnegative: bool
) -> None:
    u = sparse(2, 32, 6, 5, dtype=dtype)
    lam = tau(1.5, 32)
    z = nelu(u, lam, nonnegative=nonnegative, window=window)
    tolerance = 32 * torch.finfo(dtype).eps
    for c in torch.logspace(-6, 6, 25, dtype=torch.float64).tolist():
        scaled = nelu(c * u, lam, nonnegative=nonnegative, window=window) / c
        torch.testing.assert_close(scaled, z, rtol=0, atol=tolerance * z.abs().max().item())


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_nelu_scales_by_powers_of_two_bit_for_bit(dtype: torch.dtype, window: int | None) -> None:
    u = sparse(2, 32, 6, 5, dtype=dtype)
    z = nelu(u, tau(1.5, 32), window=window)
    for exponent in (-20, -3, 1, 20):
        assert torch.equal(nelu(u * 2**exponent, tau(1.5, 32), window=window), z * 2**exponent)


def test_nelu_is_sign_equivariant() -> None:
    u, signs = sparse(50, 30), noise(50, 30, seed=9).sign()
    torch.testing.assert_close(nelu(signs * u, 0.25), signs * nelu(u, 0.25))


@pytest.mark.parametrize("nonnegative", [False, True])
def test_nelu_is_permutation_equivariant(nonnegative: bool) -> None:
    u, lam = sparse(50, 30), 0.25 * (1 + 0.3 * noise(30, seed=5).tanh())
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        nelu(u[:, order], lam[order], nonnegative=nonnegative),
        nelu(u, lam, nonnegative=nonnegative)[:, order],
    )


# bfloat16

bfloat16_cases = pytest.mark.parametrize(
    "options",
    [
        {},
        {"nonnegative": True},
        {"solver": "sort", "removed": True},
        {"window": 3},
        {"window": 1, "removed": True},
        {"window": 3, "nonnegative": True, "removed": True},
    ],
    ids=str,
)


@bfloat16_cases
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_bfloat16_is_float32_rounded_once_and_so_are_its_gradients(
    options: dict[str, Any], memory_format: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "PIECE", 60)
    u = sparse(2, 12, 6, 5).bfloat16().contiguous(memory_format=memory_format)
    g = noise(2, 12, 6, 5, seed=3).bfloat16().contiguous(memory_format=memory_format)
    results = []
    for dtype in (torch.bfloat16, torch.float32):
        v, lam = (
            u.detach().to(dtype).requires_grad_(),
            torch.full((12,), tau(1.4, 12), requires_grad=True),
        )
        with torch.autocast("cpu", torch.bfloat16):  # changes nothing
            z = nelu(v, lam, **options)
            backward(z, g.to(dtype))
        results.append((z.detach(), v.grad, lam.grad))
    (z, grad_u, grad_lam), (z32, grad_u32, grad_lam32) = results
    assert z.dtype == torch.bfloat16
    assert z.is_contiguous(memory_format=memory_format)
    assert torch.equal(z, z32.bfloat16())
    assert grad_u is not None
    assert grad_u32 is not None
    assert torch.equal(grad_u, grad_u32.bfloat16())
    assert grad_lam is not None
    assert grad_lam.dtype == torch.float32
    torch.testing.assert_close(grad_lam, grad_lam32)


class LargestFloat32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Entries of the largest float32 tensor that any operation makes."""

    entries = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple) else (result,):
            if isinstance(made, Tensor) and made.dtype == torch.float32:
                self.entries = max(self.entries, made.numel())
        return result


@bfloat16_cases
def test_no_float32_copy_of_the_whole_is_made(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "PIECE", 1024)
    u = sparse(1, 64, 32, 32).bfloat16().contiguous(memory_format=torch.channels_last)
    with LargestFloat32() as seen:  # type: ignore[no-untyped-call]
        backward(nelu(u.requires_grad_(), tau(1.4, 64), **options).sum())
    assert seen.entries < u.numel() / 8


# Gradients


def check_gradient(u: Tensor, lam: Tensor | float, **options: Any) -> None:
    inputs = (u.clone().requires_grad_(), torch.as_tensor(lam, dtype=u.dtype).requires_grad_())
    assert gradcheck(lambda v, bias: nelu(v, bias, **options), inputs)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("per_channel", [False, True])
def test_gradcheck(nonnegative: bool, solver: Solver, per_channel: bool) -> None:
    u = sparse(6, 9)
    lam = tau(1.4, 9) * (1 + 0.3 * noise(9, seed=7).tanh() if per_channel else torch.tensor(1.0))
    check_gradient(u, lam, nonnegative=nonnegative, solver=solver)


@pytest.mark.parametrize("dim", [1, 2, -1, None])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_gradcheck_in_every_layout(dim: int | None, memory_format: torch.memory_format) -> None:
    u = sparse(2, 3, 4, 2).contiguous(memory_format=memory_format)
    entries = 24 if dim is None else u.shape[dim]
    check_gradient(u, tau(1.3, entries), dim=dim)
    if dim is not None:
        check_gradient(u, tau(1.3, entries) * torch.linspace(0.8, 1.2, entries), dim=dim)
    else:
        check_gradient(u, tau(1.3, entries) * torch.linspace(0.8, 1.2, 3), dim=dim)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("window", [1, 3])
def test_gradcheck_with_a_window(
    nonnegative: bool, memory_format: torch.memory_format, window: int
) -> None:
    u = sparse(2, 5, 3, 4).contiguous(memory_format=memory_format)
    lam = tau(1.4, 5) * torch.linspace(0.8, 1.2, 5, dtype=torch.float64)
    check_gradient(u, lam, nonnegative=nonnegative, window=window)


@pytest.mark.parametrize("lam", [0.2, 0.7])  # below and above 1/sqrt(5)
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_what_is_removed_is_the_rest_and_has_its_gradient(
    lam: float, nonnegative: bool, window: int | None
) -> None:
    u = sparse(2, 5, 3, 4)
    options: dict[str, Any] = {"nonnegative": nonnegative, "window": window}
    rest = nelu(u, lam, removed=True, **options)
    torch.testing.assert_close(rest + nelu(u, lam, **options), u)
    check_gradient(u, lam, removed=True, **options)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_pieces_make_no_difference(
    window: int | None, memory_format: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    u = sparse(2, 5, 6, 7).contiguous(memory_format=memory_format)
    whole = nelu(u, tau(1.3, 5), window=window)
    for entries in (1, 17, 60, 1000):
        monkeypatch.setattr(energy, "PIECE", entries)
        torch.testing.assert_close(nelu(u, tau(1.3, 5), window=window), whole)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(
    ("u", "lam"),
    [
        pytest.param([3.0, 3, 1, -1, 1, -1], 0.5, id="ties"),
        pytest.param([5.0, 0, 1, 0, 0.5, 2], 0.6, id="zeros"),
        pytest.param([3.0, -2, 1, -4, 5, 2], 6**-0.5 * 1.002, id="just above 1/sqrt(d)"),
        pytest.param([3.0, -2, 1, -4, 5, 2], 6**-0.5 * 0.998, id="just below 1/sqrt(d)"),
        pytest.param([3.0, -2, 1, -4, 5, 2], 0.05, id="far below 1/sqrt(d)"),
        pytest.param([9.0, 0.01, 0.02, 0.01, -0.03, 0.01], 0.999, id="just below 1"),
        pytest.param([9.0, 0.01, 0.02, 0.01, -0.03, 0.01], 1.001, id="just above 1"),
        pytest.param([9.0, 0, 0, 0, 0, 0], 1.2, id="single non-zero, above 1"),
        pytest.param([7.0], 0.5, id="one entry"),
        pytest.param([-7.0], 1.5, id="one entry, above 1"),
    ],
)
def test_gradcheck_near_degenerate_vectors(u: list[float], lam: float, nonnegative: bool) -> None:
    if nonnegative:
        u = [entry or -0.5 for entry in u]  # an entry 0 is a kink of codes z ≥ 0
    check_gradient(torch.tensor([u], dtype=torch.float64), lam, nonnegative=nonnegative)


def test_gradient_of_a_single_non_zero_entry() -> None:
    """With λ < 1 the others are kinks: along the entry itself the code is the entry."""
    u = torch.zeros(1, 6, dtype=torch.float64)
    u[0, 2] = 4
    u.requires_grad_()
    z = nelu(u, 0.6)
    backward(z[0, 2])
    assert torch.equal(z.detach(), u.detach())
    assert u.grad is not None
    assert u.grad[0, 2] == 1
    assert u.grad.isfinite().all()


@pytest.mark.parametrize("u", [torch.zeros(1, 6), torch.tensor([[0.0, 1, 0, 0, 2, 0]])])
def test_below_one_nothing_is_shrunk_and_every_gradient_passes(u: Tensor) -> None:
    u = u.double().requires_grad_()
    check_gradient(u.detach(), tau(0.9, 6))
    z = nelu(u, tau(0.9, 6))
    assert torch.equal(z, u)
    assert z is not u


def test_a_second_derivative_is_refused() -> None:
    u = sparse(2, 8).requires_grad_()
    (first,) = torch.autograd.grad(nelu(u, 0.5).square().sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        backward(first.sum())


# Degenerate input


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("u", "lam", "expected"),
    [
        pytest.param([0, 0, 0], 0.7, [0, 0, 0], id="zero vector"),
        pytest.param([0], 0.7, [0], id="one zero entry"),
        pytest.param([3], 0.7, [3], id="one entry, λ < 1"),
        pytest.param([-3], 1.3, [0], id="one entry, λ > 1"),
        pytest.param([0, 5, 0, 0], 0.9, [0, 5, 0, 0], id="single non-zero, λ < 1"),
        pytest.param([0, 5, 0, 0], 1.1, [0, 0, 0, 0], id="single non-zero, λ > 1"),
        pytest.param([1, 2, -3, 4], 0.4, [1, 2, -3, 4], id="λ < 1/√d"),
        pytest.param([1, 2, -3, 4], 1.0, [0, 0, 0, 0], id="λ = 1"),
        pytest.param([1, 2, -3, 4], 50.0, [0, 0, 0, 0], id="λ > 1"),
        pytest.param([1, 2, -3, 4], 0.0, [1, 2, -3, 4], id="λ = 0"),
        pytest.param([2, 2, 2, -2], 0.6, [0, 0, 0, 0], id="ties, λ > 1/√d"),
        pytest.param([2, 2, 2, -2], 0.4, [2, 2, 2, -2], id="ties, λ < 1/√d"),
        # ρ = 2/(1 − 2λ²), threshold λ√ρ = 1.88982…
        pytest.param([4, -4, 1, 1], 0.625, [2.11018, -2.11018, 0, 0], id="ties among active"),
    ],
)
def test_degenerate_vectors(
    u: list[float], lam: float, expected: list[float], solver: Solver, dtype: torch.dtype
) -> None:
    z = nelu(torch.tensor([u], dtype=dtype), lam, solver=solver)
    torch.testing.assert_close(z, torch.tensor([expected], dtype=dtype), rtol=0, atol=1e-5)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_never_nan(nonnegative: bool, window: int | None, dtype: torch.dtype) -> None:
    """Zero, tied, single, tiny and large vectors next to each other, for any λ."""
    u = torch.zeros(1, 5, 3, 3, dtype=dtype)
    u[0, :, 0, 1] = 2
    u[0, 3, 1, 1] = -7
    u[0, :, 2, 0] = 1e-12 * noise(5, dtype=dtype)
    u[0, :, 2, 2] = 1e9 * noise(5, dtype=dtype)
    for lam in (0.0, 1e-9, 0.2, 5**-0.5, 0.6, 1.0, 3.0):
        bias = torch.full((5,), lam, dtype=dtype, requires_grad=True)
        v = u.clone().requires_grad_()
        z = nelu(v, bias, nonnegative=nonnegative, window=window)
        gradients = torch.autograd.grad(z.sum(), (v, bias))
        assert all(value.isfinite().all() for value in (z, *gradients))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(0, 4, 3, 3), (2, 0, 3, 3), (2, 4, 0, 3)])
def test_empty_tensors(shape: tuple[int, ...], solver: Solver) -> None:
    u = torch.zeros(shape, requires_grad=True)
    lam = torch.tensor(0.6, requires_grad=True)
    for dim in (1, None):
        z = nelu(u, lam, dim=dim, solver=solver)
        assert z.shape == shape
        backward(z.sum())
    assert nelu(u, lam, window=3).shape == shape


# Shapes, layouts and modes


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 7, 4), (2, 5, 3, 4), (2, 3, 4, 2, 3)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_any_shape_and_dimension_is_a_stack_of_vectors(
    shape: tuple[int, ...], solver: Solver
) -> None:
    u = sparse(*shape)
    for dim in range(-len(shape), len(shape)):
        lam = tau(1.2, shape[dim])
        vectors = u.movedim(dim, -1)
        each = torch.stack(
            [nelu(v, lam, dim=0, solver=solver) for v in vectors.reshape(-1, shape[dim])]
        )
        expected = each.reshape(vectors.shape).movedim(-1, dim)
        torch.testing.assert_close(nelu(u, lam, dim=dim, solver=solver), expected)


def test_dim_none_takes_the_whole_sample() -> None:
    u = sparse(3, 4, 2, 5)
    lam = 0.2 * torch.linspace(0.7, 1.3, 4, dtype=torch.float64)
    spread = lam.view(4, 1, 1).expand(4, 2, 5).reshape(-1)
    expected = nelu(u.reshape(3, -1), spread).reshape(u.shape)
    torch.testing.assert_close(nelu(u, lam, dim=None), expected)
    channels_last = u.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(nelu(channels_last, lam, dim=None), expected)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dim", [1, 2, None])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_memory_format_is_kept(
    memory_format: torch.memory_format, dim: int | None, nonnegative: bool
) -> None:
    u = sparse(2, 6, 5, 4, dtype=torch.float32)
    expected = nelu(u, 0.45, dim=dim, nonnegative=nonnegative)
    formatted = u.contiguous(memory_format=memory_format).requires_grad_()
    for window in (None, 1, 3) if dim == 1 else (None,):
        z = nelu(formatted, 0.45, dim=dim, nonnegative=nonnegative, window=window)
        assert z.is_contiguous(memory_format=memory_format)
        if window is None:
            torch.testing.assert_close(z, expected)


def test_strided_views_work() -> None:
    u = sparse(2, 12, 5, 4)[:, ::2, 1:, ::2]
    torch.testing.assert_close(nelu(u, 0.5), nelu(u.contiguous(), 0.5))


@pytest.mark.parametrize("window", [None, 1, 3])
def test_inference_mode(window: int | None) -> None:
    u = sparse(2, 6, 5, 4)
    with torch.inference_mode():
        inferred = nelu(u, 0.45, window=window)
        assert inferred.is_inference()
        twice = nelu(inferred, 0.45, window=window)
    assert torch.equal(inferred, nelu(u, 0.45, window=window))
    assert torch.equal(twice, nelu(nelu(u, 0.45, window=window), 0.45, window=window))


def test_the_input_is_left_alone() -> None:
    u = sparse(2, 6, 5, 4)
    kept = u.clone()
    backward(nelu(u.requires_grad_(), 0.45).sum())
    assert torch.equal(u, kept)


def test_bad_arguments_are_refused() -> None:
    u = noise(2, 6, 5, 4)
    with pytest.raises(TypeError, match=r"float32 or float64 coefficients, not torch\.int64"):
        nelu(u.long(), 0.5)
    with pytest.raises(TypeError, match=r"not torch\.float16"):
        nelu(u.half(), 0.5)
    with pytest.raises(ValueError, match="one number or one for each entry"):
        nelu(u, torch.ones(6, 1))
    for options in ({"window": 2}, {"window": 3, "dim": 2}, {"window": 3, "solver": "sort"}):
        with pytest.raises(ValueError, match="a window must be odd"):
            nelu(u, 0.5, **cast(dict[str, Any], options))
    with pytest.raises(IndexError):
        nelu(u, 0.5, dim=4)


# The window


def windowed_by_hand(u: Tensor, lam: float, window: int) -> Tensor:
    """The definition, position by position, for one sample u (C, H, W)."""
    _, height, width = u.shape
    reach = window // 2

    def mean(field: Tensor) -> Tensor:
        out = torch.empty_like(field)
        for y in range(height):
            for x in range(width):
                rows = slice(max(y - reach, 0), y + reach + 1)
                out[y, x] = field[rows, max(x - reach, 0) : x + reach + 1].mean()
        return out

    rho = mean(u.square().sum(0))
    active = u.abs() > lam * rho.sqrt()
    inactive = mean((u.square() * ~active).sum(0))
    taken = mean(lam**2 * active.sum(0).to(u.dtype))
    rho = inactive / (1 - taken).clamp(min=WINDOW_FLOOR)
    return soft_threshold(u, lam * rho.sqrt())


@pytest.mark.parametrize("window", [1, 3])
def test_windowed_nelu_follows_its_definition(window: int) -> None:
    u = sparse(2, 16, 7, 6)
    expected = torch.stack([windowed_by_hand(sample, tau(1.5, 16), window) for sample in u])
    torch.testing.assert_close(nelu(u, tau(1.5, 16), window=window), expected)


def test_windowed_nelu_is_local() -> None:
    window = 3
    reach = 2 * (window // 2)
    u = sparse(1, 16, 24, 24)
    far = u.clone()
    far[..., :4, :] *= 50
    z, changed = nelu(u, tau(1.5, 16), window=window), nelu(far, tau(1.5, 16), window=window)
    assert torch.equal(z[..., 4 + reach :, :], changed[..., 4 + reach :, :])
    assert not torch.equal(z[..., 4:6, :], changed[..., 4:6, :])


def test_a_window_steadies_the_measure_of_the_noise() -> None:
    u = noise(2, 32, 24, 24)
    lam = tau(1.2, 32)

    def spread(window: int) -> float:
        measured = (u - nelu(u, lam, window=window)).abs().amax(1) / lam  # r at each position
        return (measured.std() / measured.mean()).item()

    assert spread(5) < 0.5 * spread(1)


# The paper's algorithms


@given(u=st.floats(-50, 50), threshold=st.floats(0, 50))
@settings(deadline=None, derandomize=True)
def test_soft_threshold_minimises_its_objective(u: float, threshold: float) -> None:
    grid = torch.linspace(-60, 60, 24001, dtype=torch.float64)
    z = soft_threshold(torch.tensor(u, dtype=torch.float64), threshold)

    def cost(code: Tensor) -> Tensor:
        return 0.5 * (code - u) ** 2 + threshold * code.abs()

    assert cost(z) <= cost(grid).min() + 1e-9


def test_algorithm_1_stops_at_its_step_limit_and_starts_at_zero() -> None:
    u = sparse(2, 10)
    assert torch.equal(algorithm_1(u, 0.5, step_size=0.1, max_steps=0), torch.zeros_like(u))
    one = soft_threshold(0.1 * u / u.norm(dim=1, keepdim=True), 0.05)
    torch.testing.assert_close(algorithm_1(u, 0.5, step_size=0.1, max_steps=1), one)


def test_algorithm_1_of_zero_and_of_nothing() -> None:
    assert torch.equal(algorithm_1(torch.zeros(2, 5), 0.5, step_size=0.1), torch.zeros(2, 5))
    assert algorithm_1(torch.zeros(0, 5), 0.5, step_size=0.1).shape == (0, 5)


def test_algorithm_2_without_momentum_is_algorithm_1() -> None:
    u = sparse(4, 12)
    for steps in (1, 7):
        torch.testing.assert_close(
            algorithm_2(u, 0.4, 0.3, 0.0, steps=steps, proximal="soft"),
            algorithm_1(u, 0.4, step_size=0.3, tolerance=0, max_steps=steps),
        )


@pytest.mark.parametrize(("nonnegative", "proximal"), [(False, "soft"), (True, "relu")])
def test_algorithm_2_approaches_the_optimum_of_a_smaller_lam(
    nonnegative: bool, proximal: Proximal
) -> None:
    u, lam, momentum = sparse(10, 30), tau(1.5, 30), 0.8
    optimum = nelu(u, lam, nonnegative=nonnegative)

    def distance(steps: int) -> Tensor:
        code = algorithm_2(u, lam / (1 - momentum), 0.3, momentum, steps=steps, proximal=proximal)
        return (code - optimum).abs().max() / optimum.abs().max()

    distances = [distance(steps) for steps in (10, 100, 400)]
    assert distances[0] > distances[1] > distances[2]
    assert distances[0] > 0.01
    assert distances[2] < 1e-4


def test_algorithm_2_is_not_scale_equivariant() -> None:
    """So the check of the exact operator bites."""
    u = sparse(10, 30)
    z = algorithm_2(u, tau(1.5, 30), 0.3, 0.9, steps=10)
    for c in (1e-2, 1e2):
        scaled = algorithm_2(c * u, tau(1.5, 30), 0.3, 0.9, steps=10) / c
        assert (scaled - z).norm() > 0.1 * z.norm()


def test_algorithm_2_has_a_gradient_for_every_weight() -> None:
    inputs = [sparse(3, 6), *(torch.tensor(v, dtype=torch.float64) for v in (0.5, 0.3, 0.7))]
    for value in inputs:
        value.requires_grad_()
    proximals: list[Proximal] = ["relu", "soft"]
    for proximal in proximals:
        assert gradcheck(
            lambda u, lam, step, momentum, proximal=proximal: algorithm_2(
                u, lam, step, momentum, steps=4, proximal=proximal
            ),
            tuple(inputs),
        )
    zeros = torch.zeros(2, 6, requires_grad=True)
    backward(algorithm_2(zeros, 0.5, 0.3, 0.7, steps=4).sum())
    assert zeros.grad is not None
    assert zeros.grad.isfinite().all()


# The layers


@pytest.mark.parametrize("per_channel", [False, True])
def test_the_layer_is_nelu_with_tau(per_channel: bool) -> None:
    layer = NeLU(16, 1.4, per_channel=per_channel, nonnegative=True, window=3)
    assert layer.tau.shape == ((16,) if per_channel else ())
    u = sparse(2, 16, 5, 4, dtype=torch.float32)
    z = layer(u)
    torch.testing.assert_close(z, nelu(u, tau(1.4, 16), nonnegative=True, window=3))
    backward(z.sum())
    assert layer.tau.grad is not None
    assert layer.tau.grad.any()


def test_tau_means_the_same_for_a_whole_sample_of_any_size() -> None:
    layer = NeLU(4, 1.4, dim=None)
    for size in (3, 9):
        u = sparse(2, 4, size, size, dtype=torch.float32)
        torch.testing.assert_close(layer(u), nelu(u, tau(1.4, 4 * size**2), dim=None))


def test_a_negative_tau_is_no_threshold() -> None:
    u = sparse(2, 16, 5, 4, dtype=torch.float32)
    torch.testing.assert_close(NeLU(16, -1.0)(u), u)


def test_the_accelerated_layer_is_algorithm_2_and_learns_its_weights() -> None:
    layer = AcceleratedNeLU(16, 1.6, steps=6, step_size=0.2, momentum=0.8, proximal="soft")
    lam = 1.6 / (0.2 * 4)
    u = sparse(2, 16, 5, 4, dtype=torch.float32)
    z = layer(u)
    torch.testing.assert_close(z, algorithm_2(u, lam, 0.2, 0.8, steps=6, proximal="soft"))
    backward(z.square().sum())
    assert {name for name, _ in layer.named_parameters()} == {"tau", "step_size", "momentum"}
    assert all(weight.grad is not None and weight.grad != 0 for weight in layer.parameters())


@pytest.mark.parametrize("proximal", ["relu", "soft"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("lam", [0.2, -0.1, torch.tensor(0.3), torch.linspace(0, 0.4, 12)[:, None]])
@pytest.mark.parametrize("dim", [1, None])
def test_algorithm_2_gives_the_same_with_and_without_gradients(
    proximal: Proximal, dtype: torch.dtype, lam: float | Tensor, dim: int | None
) -> None:
    u = sparse(3, 12, 7, dtype=dtype)
    u[1] = 0
    before = u.clone()
    expected = algorithm_2(u, lam, 0.3, torch.tensor(0.5), steps=8, proximal=proximal, dim=dim)
    with torch.no_grad():
        z = algorithm_2(u, lam, 0.3, torch.tensor(0.5), steps=8, proximal=proximal, dim=dim)
    assert z.dtype == expected.dtype
    relative, absolute = {torch.float64: (1e-12, 1e-12), torch.float32: (1e-5, 1e-5)}.get(
        dtype, (0.05, 0.02)
    )
    torch.testing.assert_close(z, expected, rtol=relative, atol=absolute)
    assert torch.equal(u, before)


@pytest.mark.parametrize("tau_value", [0.5, 1.3, 1.8])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_tau_of_the_accelerated_layer_is_that_of_the_nelu_it_tends_to(
    tau_value: float, momentum: float
) -> None:
    """Signed codes are shrunk at rest just where τ > 1, whatever the momentum."""
    u = sparse(4, 36, dtype=torch.float32)
    layer = AcceleratedNeLU(36, tau_value, steps=3000, momentum=momentum, proximal="soft")
    layer.step_size.data.fill_(0.05)
    code = layer(u)
    optimum = nelu(u, tau(tau_value, 36))
    assert (code - optimum).norm() < 0.05 * optimum.norm()
    shrunk = bool((code.norm(dim=1) < 0.97 * u.norm(dim=1)).all())
    assert shrunk == (tau_value > 1)


def test_the_start_of_the_accelerated_layer_shrinks() -> None:
    layer = AcceleratedNeLU(175)
    with torch.no_grad():
        assert (1 - layer.momentum) * layer.lam(175) * 175**0.5 > 1
        back = AcceleratedNeLU.tau_of(layer.lam(175), layer.momentum, 175)
    torch.testing.assert_close(back, layer.tau.detach())


def test_the_accelerated_layer_takes_whole_samples_of_any_size() -> None:
    layer = AcceleratedNeLU(4, 1.4, steps=5, proximal="soft", dim=None)
    for size in (3, 9):
        u = sparse(2, 4, size, size, dtype=torch.float32)
        lam = 1.4 / (0.5 * (4 * size**2) ** 0.5)
        flat = algorithm_2(u.flatten(1), lam, 0.3, 0.5, steps=5, proximal="soft")
        torch.testing.assert_close(layer(u), flat.view(u.shape))
    flat = algorithm_1(u.flatten(1), 0.2, step_size=0.1, max_steps=50)
    whole = algorithm_1(u, 0.2, step_size=0.1, max_steps=50, dim=None)
    torch.testing.assert_close(whole, flat.view(u.shape))


@pytest.mark.parametrize("layer", [NeLU(16), AcceleratedNeLU(16)])
def test_layers_describe_themselves(layer: nn.Module) -> None:
    assert repr(layer).startswith(("NeLU(16", "AcceleratedNeLU(16, steps=10"))


def test_the_benchmark_runs_and_finds_newton_at_the_optimum() -> None:
    tiny = ["--shape", "2", "16", "3", "3", "--rounds", "1", "--max-steps", "50", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.operators", *tiny],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    distances = {row["method"]: row["distance"] for row in rows}
    assert {row["memory_format"] for row in rows} == {"channels_last", "contiguous"}
    assert distances["NeLU, Newton"] < 1e-6 < distances["Algorithm 2, N=10"]


def test_the_sign_of_tau_means_nothing() -> None:
    u = torch.randn(2, 8, 5, 5)
    layer, mirrored = NeLU(8, 1.5, window=3), NeLU(8, -1.5, window=3)
    assert torch.equal(layer(u), mirrored(u))
    mirrored(u).square().sum().backward()
    assert mirrored.tau.grad is not None
    assert mirrored.tau.grad.count_nonzero() == 8


# Newton's steps


def newton_steps(u: Tensor, lam: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps Newton takes for one vector (d,)."""
    steps = 0
    usual = energy.split_energy

    def counted(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal steps
        steps += 1
        return usual(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(energy, "split_energy", counted)
        nelu(u[None], lam)
    return steps


def test_newton_ends_after_d_plus_1_steps_at_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few for noise, more for heavy tails, most where the entries fall geometrically."""
    random = torch.Generator().manual_seed(0)
    d, lams = 175, (0.08, 0.12, 0.3)
    noise = torch.randn(60, d, generator=random, dtype=torch.float64)
    tails = noise / torch.randn(60, d, generator=random, dtype=torch.float64)
    falling = [base ** -torch.arange(d, dtype=torch.float64) for base in (1.05, 1.3, 2.0, 4.0)]
    few, more, most = (
        max(newton_steps(u, lam, monkeypatch) for u in vectors for lam in lams)
        for vectors in (noise, tails, falling)
    )
    assert few <= 9 < more <= 17 < 50 < most <= d + 1
    short = torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=torch.float64)
    assert all(newton_steps(short, lam, monkeypatch) <= 5 for lam in (0.5, 0.6, 0.7, 0.9))


def test_newton_is_not_stopped_before_it_is_done() -> None:
    """These take 109 and 130 steps."""
    for base, lam in ((2.0, 0.0501), (3.0, 0.055)):
        u = (base ** -torch.arange(400, dtype=torch.float64))[None]
        taken = nelu(u, lam, removed=True)
        right = nelu(u, lam, removed=True, solver="sort")
        assert (taken - right).norm() <= 1e-9 * right.norm()


# In other people's networks


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [NeLU(12), NeLU(12, window=3), AcceleratedNeLU(12)])
def test_the_layers_take_and_give_any_float_type(layer: nn.Module, dtype: torch.dtype) -> None:
    u = sparse(2, 12, 5, 4).to(dtype).requires_grad_()
    z = layer(u)
    assert (z.dtype, z.shape) == (dtype, u.shape)
    backward(z.float().square().sum())
    assert u.grad is not None
    assert u.grad.isfinite().all()
    exact = layer(u.detach().double())
    assert (z - exact).norm() < 0.05 * exact.norm()


def test_the_package_offers_the_layer() -> None:
    from nelu_cli import NeLU as Layer
    from nelu_cli import nelu as function

    assert (Layer, function) == (NeLU, nelu)


@pytest.mark.filterwarnings("ignore")  # of torch's own making
@pytest.mark.parametrize("layer", [NeLU(30), AcceleratedNeLU(30)])
def test_a_compiled_network_gives_the_same(layer: nn.Module) -> None:
    network = nn.Sequential(nn.Linear(20, 30, bias=False), layer, nn.Linear(30, 5, bias=False))
    compiled = torch.compile(network, backend="eager")
    x = torch.randn(7, 20, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(compiled(x), network(x))
    gradients = torch.autograd.grad(compiled(x).sum(), list(network.parameters()))
    for found, right in zip(
        gradients, torch.autograd.grad(network(x).sum(), list(network.parameters())), strict=True
    ):
        torch.testing.assert_close(found, right)


def test_what_bfloat16_codes_lose_is_the_value_cut_off_at_the_threshold() -> None:
    torch.manual_seed(1)
    u = torch.cat([torch.randn(50, 8), torch.zeros(1, 8), torch.full((1, 8), -1e38)]).bfloat16()
    energy = torch.rand(52)
    lam = torch.rand(8) + 0.1
    result = torch.empty_like(u)
    shrink(u, lam, energy, result, removed=True)
    threshold = (energy.sqrt()[:, None] * lam).bfloat16()
    assert torch.equal(result, torch.clamp(u, -threshold, threshold))
