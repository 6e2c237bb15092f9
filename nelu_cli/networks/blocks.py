"""The residual blocks of the deep network, and which of them do nothing."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST = 1e-30
"""Below it, what is divided by is 0."""


def unit(x: Tensor) -> Tensor:
    """x over its root mean square over the channels: what is where, but not how strong it is.

    As unit(c·x) = unit(x), gains of the form 1 + G·unit(x) leave a network scale-equivariant.
    """
    return x * over_rms(x)


def over_rms(x: Tensor) -> Tensor:
    """1 over the root mean square of the channels, (B, 1, H, W)."""
    exact = torch.promote_types(x.dtype, torch.float32)
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=exact)
    scale: Tensor = x.shape[1] ** 0.5 / norm.clamp(min=SMALLEST)
    return scale.to(x.dtype)


class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(x))), without biases.

    ``gated``: x + conv(g·ReLU(conv(x))) with g = 1 + G·unit(x), a gain for each hidden channel at
    each position. A gain is what Wiener's filter is made of, and what ReLU can hardly imitate.

    A block whose hidden channels are all below 0 passes no gradient and never comes back, and at a
    high learning rate the coarser scales drift there. So training begins with and keeps to
    *centred* weights: the hidden channels before ReLU sum to 0 at every position, and some are on.
    """

    def __init__(self, width: int, hidden: int, gated: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, hidden, 3, padding=1, bias=False)
        self.second = nn.Conv2d(hidden, width, 3, padding=1, bias=False)
        self.gate = nn.Conv2d(width, hidden, 1, bias=False) if gated else None
        if self.gate is not None:
            nn.init.zeros_(self.gate.weight)
        nn.init.kaiming_uniform_(self.first.weight)
        nn.init.kaiming_uniform_(self.second.weight)
        with torch.no_grad():
            self.second.weight *= 0.1  # start close to the identity

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu_(self.first(x))
        if self.gate is not None:
            hidden = torch.addcmul(hidden, hidden, self.gate(unit(x)))
        update: Tensor = self.second(hidden)
        return update.add_(x)

    @torch.no_grad()
    def centre(self) -> None:
        self.first.weight -= self.first.weight.mean(0)

    def is_centred(self) -> bool:
        weight = self.first.weight
        return bool(weight.mean(0).abs().max() <= 1e-4 * weight.abs().max())


@torch.enable_grad()  # not in strips, then
def hidden_channels(network: nn.Module, image: Tensor) -> dict[str, Tensor]:
    """What the image gives rise to inside each residual block, after ReLU."""
    hidden: dict[str, Tensor] = {}
    hooks = []
    for name, block in network.named_modules():
        if isinstance(block, ResidualBlock):

            def look(_: nn.Module, inputs: tuple[Tensor], name: str = name) -> None:
                hidden[name] = inputs[0].detach()

            hooks.append(block.second.register_forward_pre_hook(look))
    network(image)
    for hook in hooks:
        hook.remove()
    return hidden


def is_idle(hidden: Tensor) -> bool:
    """Whether a block does nothing: hardly any of its hidden channels is on anywhere."""
    return bool(hidden.count_nonzero() < 0.01 * hidden.numel())
