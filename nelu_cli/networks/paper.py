"""The paper's convolutional auto-encoder: one hidden layer, all stride shifts averaged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nelu_cli import operators
from nelu_cli.networks.base import Memory, Network, check, check_counts
from nelu_cli.networks.family import OURS, Family, Recipe
from nelu_cli.networks.padding import pad_image
from nelu_cli.networks.parallel import map_in_threads, thread_count
from nelu_cli.operators import AcceleratedNeLU, NeLU

STRIP = 4096
"""Patches that a thread of the paper's network holds at a time; a whole row if that is more."""

PaperActivation = Literal["nelu", "nelu-unrolled", "relu"]


@dataclass(frozen=True)
class PaperConfig:
    """The paper's convolutional auto-encoder, one hidden layer.

    ``pass_through`` False is the paper's form, x̂ = D·shrink(W·y). True is x̂ = y − D·(u − shrink(u))
    with u = W·y and zero-mean filters: what the filters do not see passes through unchanged.
    """

    family: ClassVar[str] = "paper"
    channels: int = 1
    filters: int = 175
    kernel: int = 11
    stride: int = 8
    activation: PaperActivation = "nelu"
    signed: bool = False
    pass_through: bool = False
    steps: int = 10  # of Algorithm 2
    training_stride: int = 2
    """Training averages the grids at multiples of this: 1 is all shifts, as in the paper; 2 is
    nearly the same at a quarter of the cost."""

    def __post_init__(self) -> None:
        if str(self.activation) == "soft":  # of older files
            object.__setattr__(self, "activation", "relu")
            object.__setattr__(self, "signed", True)
        check_counts("channels", 1, self.channels)
        check(self.channels in (1, 3), f"channels must be 1 or 3, not {self.channels}")
        check_counts(
            "filters, kernel and the steps of Algorithm 2", 1, self.filters, self.kernel, self.steps
        )
        check_counts("stride", 2, self.stride)
        check_counts("training stride", 1, self.training_stride)
        check(self.stride <= self.kernel, "the stride must not exceed the kernel")
        known = ", ".join(get_args(PaperActivation))
        check(self.activation in get_args(PaperActivation), f"the activation is one of {known}")


class BiasedShrink(nn.Module):
    """The classic sparse encoder: one learned bias a channel, ReLU or soft threshold.

    The soft threshold is ReLU on u and on −u: S_b(u) = ReLU(u − b) − ReLU(−u − b). The bias is an
    amount of grey, not a multiple of the noise: it fits one noise level.
    """

    def __init__(self, entries: int, *, signed: bool, bias: float = 0.1) -> None:
        super().__init__()
        self.signed = signed
        self.bias = nn.Parameter(torch.full((entries,), bias))

    def forward(self, coeffs: Tensor) -> Tensor:  # (..., C)
        if self.signed:
            return operators.soft_threshold(coeffs, self.bias.clamp(min=0))
        return F.relu(coeffs - self.bias)


def _paper_activation(config: PaperConfig) -> nn.Module:
    match config.activation:
        case "nelu":
            return NeLU(config.filters, nonnegative=not config.signed, dim=-1)
        case "nelu-unrolled":
            proximal: operators.Proximal = "soft" if config.signed else "relu"
            return AcceleratedNeLU(config.filters, steps=config.steps, proximal=proximal, dim=-1)
        case "relu":
            return BiasedShrink(config.filters, signed=config.signed)


class PaperAutoencoder(Network):
    """The noise y − D·shrink(W·y), averaged over all stride² shifts of the convolution's grid.

    The average of the shifts is one dense auto-encoder: a code at every position, decoded, divided
    by stride². :meth:`forward` computes that; :meth:`denoise_strided` is one grid, the form that
    the definition (``runtime.shifts.shift_average``) averages. In training mode the average
    is over the positions at multiples of the config's ``training_stride``.

    With ``activation="nelu"`` and f(y) = y − noise(y): f(c·y) = c·f(y) for c > 0 exactly. With
    ``pass_through`` also f(y + b) = f(y) + b for any brightness b of each channel. The other
    activations promise neither.
    """

    config: PaperConfig
    stride = 1

    def __init__(self, config: PaperConfig) -> None:
        super().__init__()
        self.config = config
        entries = config.channels * config.kernel**2  # of a patch
        self.halo = config.kernel - 1
        filters = torch.empty(config.filters, entries)
        # of variance 1/entries
        nn.init.uniform_(filters, -((3 / entries) ** 0.5), (3 / entries) ** 0.5)
        self.analysis = nn.Parameter(filters)
        # D ≈ Wᵀ, so that the untrained network roughly reproduces its input: each pixel is covered
        # by (kernel/stride)² patches, each represented filters/entries times over.
        cover = (config.kernel / config.stride) ** 2 * config.filters / entries
        self.synthesis = nn.Parameter(filters.clone())
        with torch.no_grad():
            self.synthesis.mul_(1 / cover)
        self.activation = _paper_activation(config)

    def upgrade(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Older files hold λ of Algorithm 2 in place of τ."""
        names = "activation.lam", "activation.tau", "activation.momentum"
        if names[0] not in tensors or names[1] in tensors or names[2] not in tensors:
            return tensors
        new = {name: tensor for name, tensor in tensors.items() if name != names[0]}
        new[names[1]] = AcceleratedNeLU.tau_of(
            tensors[names[0]], tensors[names[2]], self.config.filters
        )
        return new

    def encode(self, patches: Tensor) -> Tensor:
        """Patches (B, P, entries) to coefficients u = W·y (B, P, filters)."""
        analysis: Tensor = self.analysis
        if self.config.pass_through:
            planes = analysis.view(len(analysis), self.config.channels, -1)
            analysis = (planes - planes.mean(-1, keepdim=True)).flatten(1)
        return patches @ analysis.t()

    def forward(self, image: Tensor) -> Tensor:
        stride = self.config.training_stride if self.training else 1
        with torch.autocast(image.device.type, enabled=False):  # bfloat16 would round the picture
            return self._noise(image, stride)

    def denoise_strided(self, image: Tensor) -> Tensor:
        """The picture without the noise that one grid of patches finds, without averaging."""
        return image - self._noise(image, stride=self.config.stride)

    def one_grid(self) -> tuple[Callable[[Tensor], Tensor], int]:
        return partial(self._noise, stride=self.config.stride), self.config.stride

    def _noise(self, image: Tensor, stride: int) -> Tensor:
        """The average of the grids whose positions are multiples of ``stride``.

        Without gradients the picture goes through in strips of patches that fit into the cache, one
        on each thread: NeLU's passes are too short to be shared, and this took 2.5 s/Mpx, not 3.9.
        """
        kernel, config = self.config.kernel, self.config
        height, width = image.shape[-2:]
        border = kernel - 1  # every pixel lies in all patches that can hold it
        padded = pad_image(image, border, border, border, border)
        rows = (padded.shape[-2] - kernel) // stride + 1
        columns = (padded.shape[-1] - kernel) // stride + 1
        summed = torch.zeros_like(padded)

        def strip_of(first: int) -> Tensor:
            """What the rows of patches from ``first`` on give."""
            last = min(first + at_once, rows) - 1
            strip = padded[..., first * stride : last * stride + kernel, :]
            coeffs = self.encode(F.unfold(strip, kernel, stride=stride).mT)
            code = self.activation(coeffs)
            if config.pass_through:
                code = coeffs - code
            decoded = self.synthesis.t() @ code.mT  # (B, entries, P)
            return F.fold(decoded, strip.shape[-2:], kernel, stride=stride)

        training = torch.is_grad_enabled()
        at_once = rows if training else max(1, STRIP // (len(image) * columns))
        firsts = range(0, rows, at_once)
        strips = map(strip_of, firsts) if training else map_in_threads(strip_of, firsts)
        for first, strip in zip(firsts, strips, strict=True):
            summed[..., first * stride : first * stride + strip.shape[-2], :] += strip
        result = summed[..., border : border + height, border : border + width]
        result = result * (stride / config.stride) ** 2
        return result if config.pass_through else image - result

    def working_memory(self, width: int) -> list[Memory]:
        """A strip of patches on each thread, and the copies of the picture."""
        config = self.config
        patch = config.channels * config.kernel**2
        at_once = thread_count() * max(STRIP, width + config.kernel)  # patches
        held = 5 * at_once * max(5 * patch + 3 * config.filters, patch + 7 * config.filters)
        return [Memory(held, 80 * config.channels)]


def _shaped(config: PaperConfig, given: Mapping[str, Any]) -> PaperConfig:
    """Steps are for Algorithm 2 alone: nobody is to believe that they did anything elsewhere."""
    shaped = replace(config, **given)
    takes_steps = shaped.activation == "nelu-unrolled"
    check("steps" not in given or takes_steps, "--iterations is for --activation nelu-unrolled")
    return shaped


FAMILY = Family(
    about="one hidden layer, as in the paper",
    config=PaperConfig,
    build=PaperAutoencoder,
    recipes={
        OURS: Recipe(
            PaperConfig(signed=True, pass_through=True),
            {"sigma255": (15.0, 15.0), "loss": "mse", "patch": 64, "final_patch": 64},
        ),
        "paper": Recipe(
            PaperConfig(training_stride=1),
            {
                "sigma255": (15.0, 15.0),
                "loss": "mse",
                "batch": 1,
                "optimizer": "adamw",
                "lr": 2e-2,
                "schedule": "paper",
                "epsilon": 1e-3,
                "beta2": 0.999,
                "weight_decay": 0.01,
                "clip": 0.0,
                "ema": 0.0,
                "turn": False,
                "warm_up": 0,
                "cooldown": 0.0,
                "smallest_scale": 1.0,
                "note": "the paper's recipe, but not on the Waterloo Exploration set, which is not "
                "to be had, and its 300 epochs are the length of the run, whatever that is",
            },
        ),
    },
    shaped=_shaped,
)
