"""NeLU inside your own torch network: trained at one noise level, used at others.

Two auto-encoders for sparse signals x = D·z, alike but for their activation: NeLU, whose
threshold follows the noise in each signal, and a soft threshold of learned height.
"""

import torch
from torch import Tensor, nn

from nelu_cli import NeLU
from nelu_cli.operators import soft_threshold

SIZE, TRAINED_AT = 64, 0.1


class Soft(nn.Module):
    """A soft threshold of learned height."""

    def __init__(self) -> None:
        super().__init__()
        self.height = nn.Parameter(torch.tensor(0.1))

    def forward(self, coeffs: Tensor) -> Tensor:
        code: Tensor = soft_threshold(coeffs, self.height.abs())
        return code


class AutoEncoder(nn.Module):
    """x̂ = D·shrink(W·y)."""

    def __init__(self, shrink: nn.Module) -> None:
        super().__init__()
        self.analysis = nn.Linear(SIZE, SIZE, bias=False)
        self.shrink = shrink
        self.synthesis = nn.Linear(SIZE, SIZE, bias=False)
        with torch.no_grad():  # both start at the truth, so that only the activation differs
            self.analysis.weight.copy_(columns().T)
            self.synthesis.weight.copy_(columns())

    def forward(self, noisy: Tensor) -> Tensor:
        estimate: Tensor = self.synthesis(self.shrink(self.analysis(noisy)))
        return estimate


def columns() -> Tensor:
    """One fixed orthogonal matrix D."""
    random = torch.Generator().manual_seed(1)
    orthogonal: Tensor = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=random)).Q
    return orthogonal


def signals(count: int, random: torch.Generator) -> Tensor:
    """Sparse combinations of the columns of D."""
    places = torch.rand(count, SIZE, generator=random) < 0.08
    found: Tensor = (torch.randn(count, SIZE, generator=random) * places) @ columns().T
    return found


def main(steps: int = 500) -> dict[str, dict[float, float]]:
    errors: dict[str, dict[float, float]] = {}
    for name, shrink in {"NeLU": NeLU(SIZE, tau=2.0), "soft": Soft()}.items():
        torch.manual_seed(0)
        random = torch.Generator().manual_seed(0)
        network = AutoEncoder(shrink)
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        for _ in range(steps):
            clean = signals(256, random)
            noisy = clean + TRAINED_AT * torch.randn(clean.shape, generator=random)
            loss = (network(noisy) - clean).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        clean = signals(2000, random)
        errors[name] = {}
        for sigma in (0.1, 0.3, 1.0):
            noisy = clean + sigma * torch.randn(clean.shape, generator=random)
            with torch.no_grad():
                errors[name][sigma] = float((network(noisy) - clean).square().mean()) / sigma**2
    for sigma in (0.1, 0.3, 1.0):
        row = ", ".join(f"{name} {found[sigma]:.3f}" for name, found in errors.items())
        print(f"squared error at σ = {sigma}, in units of σ²: {row}")
    return errors


if __name__ == "__main__":
    main()
