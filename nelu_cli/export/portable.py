"""Networks in operations that every runtime knows: the same result, written for a tracer.

What torch runs is written for speed: strips of rows, pieces that fit into a cache, loops that end
when Newton has converged. A graph for other programs can have none of that, so here each part is
said once more, plainly, for pictures of any size; tests hold the two together.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nelu_cli.networks import DeepAutoencoder, Network, PaperAutoencoder
from nelu_cli.operators import WINDOW_FLOOR, NeLU, lam_of_entries


def portable(network: Network) -> nn.Module:
    """The network as a module that can be traced; maps noisy pictures to clean ones.

    A family that is not known here is taken as it is: if it is made of ordinary layers, that works.
    """
    return _FAMILIES.get(network.config.family, _AsItIs)(network)


class _AsItIs(nn.Module):
    """The picture less what the network finds in it."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)

    def forward(self, image: Tensor) -> Tensor:
        return self.network.denoise(image)


class _PlainNeLU(nn.Module):
    """:class:`~nelu_cli.operators.NeLU` over dimension 1 of (B, C, H, W), in plain operations.

    The exact solution by sorting: of the quotients of all sets of the k largest |uᵢ|/λᵢ the least.
    With a window, one Newton step from the energy, every sum averaged over the window.
    """

    def __init__(self, layer: NeLU) -> None:
        super().__init__()
        lam = lam_of_entries(layer.lam(layer.entries).detach(), layer.entries)
        self.register_buffer("lam", lam.view(-1, 1, 1))
        self.window, self.nonnegative, self.removed = layer.window, layer.nonnegative, layer.removed
        self.never_shrinks = not (layer.nonnegative or layer.window or bool(lam.square().sum() > 1))

    lam: Tensor

    def forward(self, u: Tensor) -> Tensor:
        if self.never_shrinks:
            return torch.zeros_like(u) if self.removed else u
        positive = u.clamp(min=0) if self.nonnegative else u
        rest = (u - positive).square().sum(1, keepdim=True)  # energy that can never be active
        energy = self._stepped(positive, rest) if self.window else self._exact(positive, rest)
        threshold = energy.sqrt() * self.lam
        if self.nonnegative:
            taken = torch.minimum(u, threshold)
        else:
            taken = torch.maximum(torch.minimum(u, threshold), -threshold)
        return taken if self.removed else u - taken

    def _stepped(self, u: Tensor, rest: Tensor) -> Tensor:
        """ρ after one step with averaged sums, (B, 1, H, W)."""
        before = self._mean(u.square().sum(1, keepdim=True) + rest)
        active = (u / self.lam).square() > before
        weight = torch.where(active, self.lam.square(), 0.0).sum(1, keepdim=True)
        inactive = torch.where(active, 0.0, u.square()).sum(1, keepdim=True) + rest
        return self._mean(inactive) / (1 - self._mean(weight)).clamp(min=WINDOW_FLOOR)

    def _mean(self, field: Tensor) -> Tensor:
        size = self.window or 1
        return F.avg_pool2d(field, size, 1, size // 2, count_include_pad=False)

    def _exact(self, u: Tensor, rest: Tensor) -> Tensor:
        """ρ, the least quotient, (B, 1, H, W)."""
        ratio, order = (u / self.lam).square().movedim(1, -1).sort(-1, descending=True)
        weight = self.lam.flatten().square()[order]  # (B, H, W, C)
        energies = ratio * weight
        zero = torch.zeros_like(energies[..., :1])
        active = torch.cat([zero, weight.cumsum(-1)], -1)  # k = 0 … C
        inactive = torch.cat([energies.flip(-1).cumsum(-1).flip(-1), zero], -1)
        inactive = inactive + rest.movedim(1, -1)
        possible = (active < 1) & torch.cat([zero == 0, ratio > 0], -1)
        quotient = torch.where(possible, inactive / (1 - active), torch.inf)
        return quotient.amin(-1).unsqueeze(1)


class _PortableDeep(nn.Module):
    """The deep network over whole feature maps."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        assert isinstance(network, DeepAutoencoder)
        self.network = copy.deepcopy(network)
        self.network.codes = nn.ModuleList(
            _PlainNeLU(code) if isinstance(code, NeLU) else code for code in network.codes
        )

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[2:]
        cell, stride = self.network.CELL, self.network.stride
        padded = _continued(_continued(image, 2, cell, stride), 3, cell, stride)
        noise = self.network.estimate_noise(F.pixel_unshuffle(padded, cell))
        return image - F.pixel_shuffle(noise, cell)[:, :, :height, :width]


class _PortablePaper(nn.Module):
    """The paper's network: one convolution, the shrinkage, one transposed convolution."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        assert isinstance(network, PaperAutoencoder)
        config = network.config
        shape = (config.filters, config.channels, config.kernel, config.kernel)
        analysis, synthesis = network.analysis.detach(), network.synthesis.detach()
        if config.pass_through:
            planes = analysis.view(config.filters, config.channels, -1)
            analysis = (planes - planes.mean(-1, keepdim=True)).flatten(1)
        self.register_buffer("analysis", analysis.reshape(shape).clone())
        self.register_buffer("synthesis", synthesis.reshape(shape) / config.stride**2)
        self.border, self.pass_through = config.kernel - 1, config.pass_through
        match network.activation:
            case NeLU() as layer:
                self.shrink: nn.Module = _PlainNeLU(layer)
            case layer:
                self.shrink = _OverChannels(layer)

    analysis: Tensor
    synthesis: Tensor

    def forward(self, image: Tensor) -> Tensor:
        padded = _continued(_continued(image, 2, self.border, 1), 3, self.border, 1)
        coeffs = F.conv2d(padded, self.analysis)
        code = self.shrink(coeffs)
        if self.pass_through:
            code = coeffs - code
        decoded = F.conv_transpose2d(code, self.synthesis)
        height, width = image.shape[2:]
        border = self.border
        result = decoded[:, :, border : border + height, border : border + width]
        return image - result if self.pass_through else result


class _OverChannels(nn.Module):
    """A layer for the last dimension, applied to dimension 1 of (B, C, H, W)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = copy.deepcopy(layer)

    def forward(self, coeffs: Tensor) -> Tensor:
        code: Tensor = self.layer(coeffs.movedim(1, -1))
        return code.movedim(-1, 1)


def _continued(image: Tensor, dim: int, edge: int, stride: int) -> Tensor:
    """Mirror a side by ``edge``, and farther at its end up to a multiple of ``stride``.

    As :func:`nelu_cli.networks.padding.pad_image`: where the picture is too small to be mirrored,
    its border is repeated.
    """
    length = image.shape[dim]
    whole = (length + stride - 1) // stride * stride
    places = torch.arange(whole + 2 * edge, device=image.device) - edge
    mirrored = (length - 1) - ((length - 1) - places.abs()).abs()
    repeated = places.clamp(0, length - 1)
    fits = places[-1:] <= 2 * (length - 1)  # a tensor, so that it is decided when it runs
    return image.index_select(dim, torch.where(fits, mirrored, repeated).clamp(0, length - 1))


_FAMILIES: dict[str, Callable[[Network], nn.Module]] = {
    "deep": _PortableDeep,
    "paper": _PortablePaper,
}
