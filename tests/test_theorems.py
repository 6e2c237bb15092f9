"""The paper's theorems hold for the codes that :func:`nelu_cli.operators.nelu` computes.

Setting: y = x + ξ, z* = W·x, e = W·ξ, and NeLU gets u = W·y = z* + e. The bounds are stated in
ε = s_max·‖ξ‖₂ and in the least η with λ‖z*‖₁ ≤ ηε. With λ = ‖e‖∞/‖e‖₂, all noise levels share
one λ, so an instance here is a code and a noise level, and every noise draw has many of them.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from nelu_cli.operators import nelu

DRAWS = 60
CODES = 60
ROUNDING = 1 + 1e-9


class Instances(NamedTuple):
    """CODES codes at CODES noise levels, with the same noise up to its level."""

    clean: Tensor  # z*, (CODES, d)
    error: Tensor  # e, (CODES, d)
    epsilon: Tensor  # s_max·‖ξ‖₂, (CODES, 1)
    lam: float

    def solve(self) -> Tensor:
        return nelu(self.clean + self.error, self.lam)

    @property
    def eta(self) -> Tensor:
        return self.lam * self.clean.abs().sum(1, keepdim=True) / self.epsilon

    @property
    def bound(self) -> Tensor:
        """(2 + η)ε, Theorem 2's; λ times this is Theorem 1's."""
        return (2 + self.eta) * self.epsilon


def normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=random, dtype=torch.float64)


def l2(vectors: Tensor) -> Tensor:
    return vectors.square().sum(-1, keepdim=True).sqrt()


def singular_values(matrix: Tensor) -> Tensor:
    values: Tensor = torch.linalg.svdvals(matrix)
    return values


def pivotal_lam(error: Tensor) -> Tensor:
    """λ = ‖e‖∞/‖e‖₂ of vectors (..., d)."""
    return error.abs().amax(-1, keepdim=True) / l2(error)


def transform(kind: str, random: torch.Generator) -> Tensor:
    """W (d, n) with rows of length 1."""
    if kind == "orthogonal":
        basis: Tensor = torch.linalg.qr(normal(random, 96, 96))[0]
        return basis
    rows = normal(random, 96, 96 if kind == "square" else 60)
    return rows / l2(rows)


def sparse_codes(matrix: Tensor, random: torch.Generator) -> Tensor:
    """Sparse z* = W·x: a few entries for a square W, zeros where x can be silent otherwise."""
    d, n = matrix.shape
    if d == n:
        magnitude = 1 + torch.rand(CODES, d, generator=random, dtype=torch.float64)
        chosen = torch.rand(CODES, d, generator=random).argsort(1) < 3
        return magnitude * normal(random, CODES, d).sign() * chosen
    silent = n - 2
    orthogonal = torch.linalg.svd(matrix[:silent])[2][silent:]  # to the silent rows
    clean: Tensor = normal(random, CODES, n - silent) @ orthogonal @ matrix.T
    clean[:, :silent] = 0
    return clean


def draw_noise(kind: str, n: int, random: torch.Generator) -> Tensor:
    """ξ (n,)."""
    if kind == "uniform":
        return 2 * torch.rand(n, generator=random, dtype=torch.float64) - 1
    if kind == "impulses":
        return normal(random, n) * (torch.arange(n) % 20 == 0)
    return normal(random, n)


def instances(transform_kind: str, noise_kind: str) -> Iterator[Instances]:
    random = torch.Generator().manual_seed(1)
    levels = torch.logspace(-3, 3, CODES, dtype=torch.float64).unsqueeze(1)
    for _ in range(DRAWS):
        matrix = transform(transform_kind, random)
        clean = sparse_codes(matrix, random)
        noise = draw_noise(noise_kind, matrix.shape[1], random)
        error = matrix @ noise
        epsilon = singular_values(matrix)[0] * noise.norm()
        yield Instances(clean, levels * error, levels * epsilon, pivotal_lam(error).item())


every_setting = pytest.mark.parametrize(
    ("transform_kind", "noise_kind"),
    [
        (transform_kind, noise_kind)
        for transform_kind in ("orthogonal", "square", "overcomplete")
        for noise_kind in ("normal", "uniform", "impulses")
    ],
)


@every_setting
def test_theorem_1_bounds_the_largest_error(transform_kind: str, noise_kind: str) -> None:
    for case in instances(transform_kind, noise_kind):
        errors = (case.solve() - case.clean).abs().amax(1, keepdim=True)
        assert (errors <= case.lam * case.bound * ROUNDING).all()


@every_setting
def test_theorem_2_bounds_the_euclidean_error(transform_kind: str, noise_kind: str) -> None:
    for case in instances(transform_kind, noise_kind):
        assert (l2(case.solve() - case.clean) <= case.bound * ROUNDING).all()


@pytest.mark.parametrize("transform_kind", ["orthogonal", "square"])
@pytest.mark.parametrize("noise_kind", ["normal", "uniform"])
def test_theorem_1_recovers_the_support(transform_kind: str, noise_kind: str) -> None:
    """Codes are scaled until the theorem's condition min|z*| > 2λ(2 + η)ε just holds."""
    recovered = 0
    for case in instances(transform_kind, noise_kind):
        support = case.clean != 0
        smallest = case.clean.abs().where(support, math.inf).amin(1, keepdim=True)
        room = smallest - 2 * case.lam**2 * case.clean.abs().sum(1, keepdim=True)
        fits = (room > 0).squeeze(1)  # otherwise no scale satisfies the condition
        scale = (4 * case.lam * case.epsilon / room)[fits] * 1.0001
        strong = case._replace(
            clean=scale * case.clean[fits], error=case.error[fits], epsilon=case.epsilon[fits]
        )
        assert (scale * smallest[fits] > 2 * case.lam * strong.bound).all()
        found = strong.solve().abs() > case.lam * strong.bound
        assert torch.equal(found, support[fits])
        recovered += int(fits.sum())
    assert recovered > 1000


@every_setting
def test_lam_is_the_same_at_every_noise_level(transform_kind: str, noise_kind: str) -> None:
    for case in instances(transform_kind, noise_kind):
        lams = pivotal_lam(case.error)
        torch.testing.assert_close(lams, torch.full_like(lams, case.lam), rtol=1e-14, atol=0)
        assert 1 / math.sqrt(case.error.shape[1]) <= case.lam <= 1


def test_the_check_bites_a_wrong_code() -> None:
    """No code at all is outside Theorem 2's bound as soon as the signal outweighs the noise."""
    case = next(instances("orthogonal", "normal"))
    weak = case.epsilon.squeeze(1) < 0.1
    nothing = torch.zeros_like(case.clean)
    assert (l2(nothing - case.clean) > case.bound)[weak].all()


@pytest.mark.parametrize("bases", [1, 2])
def test_the_gaussian_theorem_holds_with_its_probability(bases: int) -> None:
    """One λ for all σ: ‖ẑ − z*‖∞ ≤ λ(2 + 2η + 1/s_min)·√n·s_max·σ, with ε = 2√n·s_max·σ."""
    n, a, count = 256, 4.0, 2000
    random = torch.Generator().manual_seed(2)
    matrix = torch.cat([torch.linalg.qr(normal(random, n, n))[0] for _ in range(bases)])
    d = len(matrix)
    values = singular_values(matrix)
    s_max, s_min = values[0], values[-1]
    sigma = torch.logspace(-3, 3, count, dtype=torch.float64).unsqueeze(1)
    x = normal(random, count, n) * (torch.rand(count, n, generator=random) < 0.02)
    clean = x @ matrix[:n] @ matrix.T  # few entries in the first basis
    error = sigma * normal(random, count, n) @ matrix.T
    lam = a * math.sqrt(2 * math.log(d) / n)
    code = nelu(clean + error, lam)
    eta = lam * clean.abs().sum(1, keepdim=True) / (2 * math.sqrt(n) * s_max * sigma)
    bound = lam * (2 + 2 * eta + 1 / s_min) * math.sqrt(n) * s_max * sigma
    failures = ((code - clean).abs().amax(1, keepdim=True) > bound).double().mean()
    assert failures <= 2 * d ** (1 - a**2 / 8) + (1 + math.e**2) * math.exp(-n / 24)


# Lemma 1


@pytest.mark.parametrize("d", [256, 512])
def test_lemma_1_has_its_probabilities(d: int) -> None:
    """The four events of e = Wξ, for W with unit rows: as often as the lemma says, or more."""
    n, a, count, sigma = 256, 4.0, 4000, 0.7
    random = torch.Generator().manual_seed(3)
    rows = normal(random, d, n)
    matrix = rows / l2(rows)
    values = singular_values(matrix)
    s_max, s_min = float(values[0]), float(values[-1])
    error = sigma * normal(random, count, n) @ matrix.T
    largest, length = error.abs().amax(1), error.norm(dim=1)
    level = math.sqrt(math.log(d) / n)
    lam = a * math.sqrt(2) * level
    first = largest / math.sqrt(n) <= a * sigma * level / 2
    second = largest / math.sqrt(n) <= lam / 2 * sigma / math.sqrt(2)
    norm = length / math.sqrt(n)
    third = (s_min * sigma / math.sqrt(2) < norm) & (norm < 2 * s_max * sigma)
    fourth = (largest / length <= lam / (2 * s_min)) & third
    by_rows, by_norm = 2 * d ** (1 - a**2 / 8), (1 + math.e**2) * math.exp(-n / 24)

    def missed(event: Tensor) -> float:
        return float((~event).double().mean())

    assert missed(first) <= by_rows
    assert torch.equal(first, second)
    assert missed(third) <= by_norm
    assert missed(fourth) <= by_rows + by_norm
    assert fourth[second & third].all()


# The synthesis model: Theorems 4 and 5, as stated and repaired


class Synthesis(NamedTuple):
    """Solutions of the synthesis model at many signal strengths, (count, d) each."""

    code: Tensor  # ẑ
    clean: Tensor  # z*
    lam: Tensor  # (count, 1)
    epsilon: Tensor
    spread: Tensor  # ‖(I − DᵀD)z*‖₂
    mu: float

    @property
    def noise_part(self) -> Tensor:
        """(2 + η)ε with the η of z*."""
        return 2 * self.epsilon + self.lam * self.clean.abs().sum(1, keepdim=True)

    @property
    def coherence(self) -> Tensor:
        """ρμ‖z*‖∞."""
        count = (self.clean != 0).sum(1, keepdim=True)
        return count * self.mu * self.clean.abs().amax(1, keepdim=True)

    @property
    def stated(self) -> Tensor:
        return self.lam * self.noise_part + self.coherence

    @property
    def repaired(self) -> Tensor:
        return self.stated + self.lam * self.spread


def synthesis(kind: str, nonzeros: int, seed: int = 0) -> Synthesis:
    random = torch.Generator().manual_seed(seed)
    n, count = 512, 120
    atoms = normal(random, n, n)
    if kind == "two bases":  # the identity and Hadamard's: all products 1/√n
        atoms = torch.ones(1, 1, dtype=torch.float64)
        while len(atoms) < n:
            atoms = torch.kron(atoms, torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double())
    dictionary = torch.cat([torch.eye(n, dtype=torch.float64), atoms / atoms.norm(dim=0)], 1)
    gram = dictionary.T @ dictionary
    d = 2 * n
    clean = normal(random, count, d).sign() * (
        torch.rand(count, d, generator=random).argsort(1) < nonzeros
    )
    clean = clean * torch.logspace(-1, 4, count, dtype=torch.float64).unsqueeze(1)
    noise = normal(random, count, n)
    error, lam = noise @ dictionary, pivotal_lam(noise @ dictionary)
    coefficients = clean @ gram + error
    code = torch.cat([nelu(u[None], float(x)) for u, x in zip(coefficients, lam, strict=True)])
    return Synthesis(
        code,
        clean,
        lam,
        singular_values(dictionary)[0] * l2(noise),
        l2(clean - clean @ gram),
        float((gram - torch.eye(d, dtype=torch.float64)).abs().max()),
    )


def test_theorem_4_as_stated_is_false() -> None:
    case = synthesis("two bases", 2)
    errors = (case.code - case.clean).abs().amax(1, keepdim=True)
    assert (errors > 1.5 * case.stated).any()


@pytest.mark.parametrize("kind", ["two bases", "random atoms"])
@pytest.mark.parametrize("nonzeros", [1, 2, 5])
def test_theorems_4_and_5_hold_repaired(kind: str, nonzeros: int) -> None:
    case = synthesis(kind, nonzeros)
    errors = case.code - case.clean
    d = errors.shape[1]
    assert (errors.abs().amax(1, keepdim=True) <= case.repaired * ROUNDING).all()
    limit = case.noise_part + 2 * case.mu * math.sqrt(d) * case.clean.abs().sum(1, keepdim=True)
    assert (l2(errors) <= limit * ROUNDING).all()
    assert (case.spread <= case.mu * math.sqrt(d) * case.clean.abs().sum(1, keepdim=True)).all()


def test_the_corollary_recovers_the_support() -> None:
    """k < |z*_min|/(2μ|z*_max|) − (λ(2 + η)ε + λ‖(I − DᵀD)z*‖₂)/(μ|z*_max|), here k = 1."""
    case = synthesis("two bases", 1)
    largest = case.clean.abs().amax(1, keepdim=True)  # also the least: there is but one
    rest = case.lam * (case.noise_part + case.spread)
    most = largest / (2 * case.mu * largest) - rest / (case.mu * largest)
    covered = most.squeeze(1) > 1
    assert covered.sum() > 10
    found = case.code.abs() > case.repaired
    assert torch.equal(found[covered], (case.clean != 0)[covered])
    assert torch.equal(covered.unsqueeze(1), largest > 2 * case.repaired)
