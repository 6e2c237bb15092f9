"""The layers of the deep network, and which of its blocks do nothing."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST = 1e-30
"""Below it, what is divided by is 0."""
QUIET = 1e-2
"""Of the mean size in a picture, below which gains of a position teach nothing."""


class ZeroMeanConv(nn.Conv2d):
    """A convolution of a pixel-unshuffled picture that gives 0 wherever the picture is flat.

    Each filter's mean is taken off, separately for each colour, so that neither brightness nor a
    colour cast changes its output.

    It computes in the type of its weights also under autocast: bfloat16 rounds the picture, not the
    noise, and two neighbours that differ by little would become equal.
    """

    def __init__(self, colours: int, cell: int, width: int) -> None:
        super().__init__(colours * cell**2, width, 3, bias=False)
        self.colours = colours

    def forward(self, image: Tensor) -> Tensor:
        # (width, colours · cell², 3, 3) to (width, colours, everything else)
        planes = self.weight.reshape(self.out_channels, self.colours, -1)
        weight = (planes - planes.mean(2, keepdim=True)).view(self.weight.shape)
        with torch.autocast(image.device.type, enabled=False):
            return F.conv2d(image, weight.contiguous(memory_format=torch.channels_last))


def unit(x: Tensor) -> Tensor:
    """x over its root mean square over the channels: what is where, but not how strong it is.

    As unit(c·x) = unit(x), gains of the form 1 + G·unit(x) leave a network scale-equivariant.
    """
    if torch.is_grad_enabled() and x.requires_grad:
        result: Tensor = _Unit.apply(x)  # type: ignore[no-untyped-call]
        return result
    return x * spread(over_rms(x), x)


class _Unit(torch.autograd.Function):
    """y = x/r with r = rms(x), and its derivative ∂L/∂x = (g − y·mean(g·y))/r for g = ∂L/∂y.

    That has no bound where r is 0 and others are not, and one such position is enough for a
    gradient without end, of which clipping leaves nothing. So where r is much less than elsewhere
    in the picture, there is no derivative.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        scale = over_rms(x)
        y = x * spread(scale, x)
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        y, scale = ctx.saved_tensors
        rms = 1 / scale
        felt = (rms > QUIET * rms.mean((1, 2, 3), keepdim=True)) & (rms > SMALLEST)
        along = spread((g * y).mean(1, keepdim=True), y)
        return torch.addcmul(g, y, along, value=-1).mul_(spread(scale * felt, y))


def over_rms(x: Tensor) -> Tensor:
    """1 over the root mean square of the channels, (B, 1, H, W), at least in float32."""
    exact = torch.promote_types(x.dtype, torch.float32)
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=exact)
    scale: Tensor = x.shape[1] ** 0.5 / norm.clamp(min=SMALLEST)
    return scale


def spread(factor: Tensor, x: Tensor) -> Tensor:
    """A factor (B, 1, H, W) of each position in the form that multiplies x (B, C, H, W) fastest.

    In bfloat16 one number for a row of channels is slow, one for each channel is not. A matrix
    product gives them.
    """
    factor = factor.to(x.dtype)
    if x.dtype != torch.bfloat16:
        return factor
    return (factor.movedim(1, -1) @ x.new_ones(1, x.shape[1])).movedim(-1, 1)


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


def raised(x: Tensor, codes: Tensor, weight: Tensor, gate: Tensor | None = None) -> Tensor:
    """``F.conv_transpose2d(x, weight, stride=2) + codes`` for channels_last and a 2×2 kernel.

    A 1×1 convolution and a sum, which is faster; its gradient is, too. With a gate, the codes are
    multiplied by 1 + ``F.conv_transpose2d(unit(x), gate, stride=2)``.
    """
    batch, _, height, width = x.shape

    def cells(x: Tensor, weight: Tensor) -> Tensor:
        kernel = weight.permute(2, 3, 1, 0).flatten(0, 2)[..., None, None]  # (2·2·out, in, 1, 1)
        flat = F.conv2d(x, kernel).movedim(1, -1)
        return flat.reshape(batch, height, width, 2, 2, -1).transpose(2, 3)

    codes = codes.movedim(1, -1).reshape(batch, height, 2, width, 2, -1)
    if gate is not None:
        codes = torch.addcmul(codes, codes, cells(unit(x), gate))
    total = codes + cells(x, weight)
    return total.reshape(batch, 2 * height, 2 * width, -1).movedim(-1, 1)


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
