"""NeLU as layers for any network: exact, and as the paper's Algorithm 2."""

import torch
from torch import Tensor, nn

from nelu_cli.operators.algorithms import Proximal, algorithm_2
from nelu_cli.operators.exact import nelu


class NeLU(nn.Module):
    """The exact NeLU as a layer, with a learnable τ: λ = τ/√d for vectors of d entries.

    τ is the threshold as a multiple of the residual's root mean square, so it means the same for
    any d. Signed codes without a window and with τ ≤ 1 throughout are not shrunk at all.
    With ``removed`` the layer gives what it takes away, at most λr anywhere, instead of the code.
    """

    def __init__(
        self,
        entries: int,
        tau: float = 1.5,
        *,
        per_channel: bool = True,
        nonnegative: bool = False,
        dim: int | None = 1,
        window: int | None = None,
        removed: bool = False,
    ) -> None:
        super().__init__()
        self.entries = entries
        self.removed = removed
        self.nonnegative = nonnegative
        self.dim = dim
        self.window = window
        self.tau = nn.Parameter(torch.full((entries,) if per_channel else (), float(tau)))

    def lam(self, d: int) -> Tensor:
        """λ for vectors of d entries."""
        lam: Tensor = self.tau.abs() / d**0.5  # its sign means nothing, so it cannot end below 0
        return lam

    def forward(self, coeffs: Tensor) -> Tensor:
        return nelu(
            coeffs,
            self.lam(self.entries if self.dim is not None else coeffs[0].numel()),
            nonnegative=self.nonnegative,
            dim=self.dim,
            window=self.window,
            removed=self.removed,
        )

    def extra_repr(self) -> str:
        return f"{self.entries}, window={self.window}, nonnegative={self.nonnegative}"


class AcceleratedNeLU(nn.Module):
    """The paper's Algorithm 2 as a layer of N steps with learnable λ, β and α.

    Its fixed point is NeLU for (1 − α)λ, so λ alone says little: what is learned in its place is
    τ = (1 − α)λ√d, which means what it means in :class:`NeLU`, for any d and any momentum. Signed
    codes are shrunk at rest only where τ > 1, so it starts above 1.
    """

    def __init__(
        self,
        entries: int,
        tau: float = 1.5,
        *,
        steps: int = 10,
        step_size: float = 0.3,
        momentum: float = 0.5,
        proximal: Proximal = "relu",
        dim: int | None = 1,
    ) -> None:
        super().__init__()
        self.entries = entries
        self.steps = steps
        self.proximal: Proximal = proximal
        self.dim = dim
        self.tau = nn.Parameter(torch.tensor(float(tau)))
        self.step_size = nn.Parameter(torch.tensor(float(step_size)))
        self.momentum = nn.Parameter(torch.tensor(float(momentum)))

    def lam(self, d: int) -> Tensor:
        """λ = τ/((1 − α)√d) for vectors of d entries."""
        lam: Tensor = self.tau / (_less_than_one(self.momentum) * d**0.5)
        return lam

    @staticmethod
    def tau_of(lam: Tensor, momentum: Tensor, d: int) -> Tensor:
        """τ for the λ of the paper: the inverse of :meth:`lam`."""
        tau: Tensor = lam * _less_than_one(momentum) * d**0.5
        return tau

    def forward(self, coeffs: Tensor) -> Tensor:
        return algorithm_2(
            coeffs,
            self.lam(self.entries if self.dim is not None else coeffs[0].numel()),
            self.step_size,
            self.momentum,
            steps=self.steps,
            proximal=self.proximal,
            dim=self.dim,
        )

    def extra_repr(self) -> str:
        return f"{self.entries}, steps={self.steps}, proximal={self.proximal}"


def _less_than_one(momentum: Tensor) -> Tensor:
    """1 − α, kept above 0: a step without friction has no rest."""
    return (1 - momentum).clamp(min=0.01)
