"""How a training run moves the weights: AdamW, or Muon for the inner convolutions."""

from collections import defaultdict
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

OptimizerName = Literal["adamw", "muon"]

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""p(s) = a·s + b·s³ + c·s⁵ takes every singular value in (0, 1] near 1 in a few steps."""


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Nearly U·Vᵀ of each matrix U·S·Vᵀ: (N, rows, columns) to the same, singular values about 1.

    Newton–Schulz: X ← a·X + b·(XXᵀ)X + c·(XXᵀ)²X. All factors are polynomials in the first XXᵀ
    and commute, so the steps are taken in that small square matrix, and X is multiplied once.
    """
    if matrices.shape[-2] > matrices.shape[-1]:
        transposed: Tensor = orthogonalise(matrices.mT, steps).mT
        return transposed
    a, b, c = NEWTON_SCHULZ
    x: Tensor = matrices / matrices.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None]
    gram = x @ x.mT
    total: Tensor = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    for _ in range(steps):
        factor = b * gram + c * (gram @ gram)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        total = factor @ total
        gram = factor @ gram @ factor
    return total @ x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised: every direction of a weight matrix moves by the same amount.

    A convolution (out, in, k, k) is the matrix (out, in·k·k). The update is scaled to entries of
    root mean square 0.2·lr, about that of AdamW, so that one learning rate serves both.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            alike = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for parameters in alike.values():
                self._move(parameters, group["lr"], group["momentum"])

    def _move(self, parameters: list[Tensor], lr: float, momentum: float) -> None:
        directions = []
        for parameter in parameters:
            gradient, state = parameter.grad, self.state[parameter]
            assert gradient is not None
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(gradient, 1 - momentum)
            ahead = gradient.lerp(state["momentum"], momentum)
            directions.append(ahead.flatten(1))
        updates = orthogonalise(torch.stack(directions))
        scale = 0.2 * max(updates.shape[-2:]) ** 0.5
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.add_(update.view(parameter.shape), alpha=-lr * scale)


def parameter_optimizers(
    network: nn.Module,
    name: OptimizerName,
    lr: float,
    epsilon: float,
    *,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
) -> list[torch.optim.Optimizer]:
    """The optimizers that together move all parameters.

    Muon takes the convolutions between the first and the last layer; AdamW takes all else.
    """
    inner: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for path, parameter in network.named_parameters():
        ends = path.startswith(("head.", "tail."))
        (inner if name == "muon" and parameter.ndim == 4 and not ends else rest).append(parameter)
    adamw = torch.optim.AdamW(
        rest, lr=lr, betas=(0.9, beta2), eps=epsilon, weight_decay=weight_decay, fused=True
    )
    return [Muon(inner, lr), adamw] if inner else [adamw]
