"""The multi-scale auto-encoder: bias-free residual blocks, NeLU at every scale."""

import copy
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nelu_cli.networks import rows
from nelu_cli.networks.base import Memory, Network, check, check_counts
from nelu_cli.networks.blocks import ResidualBlock, ZeroMeanConv, raised
from nelu_cli.networks.family import OURS, Family, Recipe
from nelu_cli.networks.padding import pad_image, pad_rows
from nelu_cli.networks.rows import Strip
from nelu_cli.networks.symmetry import ORIENTATIONS, Symmetry
from nelu_cli.networks.watching import tell
from nelu_cli.operators import PIECE, NeLU

DEEP_STRIP = 8 << 20
"""Bytes of a feature map that a layer of the deep network takes at a time …"""
LEAST_ROWS = 8
"""… but at least so many rows."""
FEW_STRIPS = 4
"""Where so many strips would do, one does it a little faster."""

MOST_SCALES, MOST_BLOCKS = 8, 200
"""In all; many more would take long to build, for a file that asks for them."""
LARGEST_WINDOW = 99

DeepActivation = Literal["nelu", "nelu-kept", "relu"]


@dataclass(frozen=True)
class DeepConfig:
    """The multi-scale auto-encoder: ``widths`` and ``blocks`` at 1/2, 1/4, 1/8 …

    The decoder has as many blocks as the encoder, unless ``decoder_blocks`` says otherwise.
    Inside a block there are as many channels as outside, unless ``hidden`` says how many.
    ``gated``: blocks, and what crosses to the decoder, have gains, see
    :func:`nelu_cli.networks.blocks.unit`.
    ``symmetric`` weights treat a picture alike however it is turned or mirrored, see
    :mod:`nelu_cli.networks.symmetry`; training keeps them so.
    """

    family: ClassVar[str] = "deep"
    channels: int = 1
    widths: tuple[int, ...] = (48, 80, 128, 128)
    blocks: tuple[int, ...] = (1, 1, 1, 1)
    decoder_blocks: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    activation: DeepActivation = "nelu"
    window: int | tuple[int, ...] = (5, 5, 5, 1)  # the last is for all coarser scales too
    tau: float = 1.5  # where training starts
    symmetric: bool = False
    gated: bool = False

    def __post_init__(self) -> None:
        for name in ("widths", "blocks", "decoder_blocks", "hidden"):  # lists when read from JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.window, list):
            object.__setattr__(self, "window", tuple(self.window))
        check_counts("channels", 1, self.channels)
        check(self.channels in (1, 3), f"channels must be 1 or 3, not {self.channels}")
        check(len(self.widths) <= MOST_SCALES, f"there are at most {MOST_SCALES} scales")
        for blocks in self.sides:
            check(len(self.widths) == len(blocks) >= 1, "widths and blocks must be as many")
            check_counts("blocks", 0, *blocks)
        check(sum(map(sum, self.sides)) <= MOST_BLOCKS, f"there are at most {MOST_BLOCKS} blocks")
        check(len(self.widths) == len(self.insides), "widths and hidden must be as many")
        check_counts("widths", 1, *self.widths)
        check_counts("hidden", 1, *self.hidden)
        check(len(self.windows) == len(self.widths), "there must be a window")
        check_counts("window", 1, *self.windows, most=LARGEST_WINDOW)
        check(all(window % 2 for window in self.windows), "the window must be odd")
        check(0 <= self.tau < float("inf"), f"tau must be a number from 0 up, not {self.tau}")
        known = ", ".join(get_args(DeepActivation))
        check(self.activation in get_args(DeepActivation), f"the activation is one of {known}")
        for name in ("symmetric", "gated"):
            value = getattr(self, name)
            check(value in (False, True), f"{name} is true or false, not {value}")
        uneven = any(width % ORIENTATIONS for width in self.widths + self.insides)
        groups = not (self.symmetric and uneven)
        check(groups, f"widths must be multiples of {ORIENTATIONS}, or leave out --symmetry")

    @property
    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The blocks of the encoder and of the decoder at each scale."""
        return self.blocks, self.decoder_blocks or self.blocks

    @property
    def insides(self) -> tuple[int, ...]:
        """The channels inside a block at each scale."""
        return self.hidden or self.widths

    @property
    def windows(self) -> tuple[int, ...]:
        """The window of NeLU at each scale."""
        given = self.window if isinstance(self.window, tuple) else (self.window,)
        return (given + given[-1:] * len(self.widths))[: len(self.widths)]


FLAGSHIP = DeepConfig(
    blocks=(1, 0, 0, 0), decoder_blocks=(2, 2, 2, 2), hidden=(48, 64, 64, 64), gated=True
)
"""The shape of the bundled default models, but for their channels."""


def _deep_activation(config: DeepConfig, width: int, window: int) -> nn.Module:
    match config.activation:
        case "nelu":
            return NeLU(width, config.tau, window=window, removed=True)
        case "nelu-kept":
            return NeLU(width, config.tau, window=window)
        case "relu":
            return nn.ReLU()


def _blocks(gated: bool, count: int, width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(width, hidden, gated) for _ in range(count)))


def _through_blocks(blocks: nn.Module, strips: Iterator[Strip]) -> Iterator[Strip]:
    for block in blocks.children():
        assert isinstance(block, ResidualBlock)
        gate = None if block.gate is None else block.gate.weight
        kernels = block.first.weight, block.second.weight, gate
        strips = rows.through(rows.Residual(*kernels), strips)
    return strips


def _shuffled(cells: Tensor, cell: int) -> Tensor:
    """``F.pixel_shuffle``, which is half as fast for channels_last, and so is what follows it."""
    batch, _, height, width = cells.shape
    planes = cells.reshape(batch, -1, cell, cell, height, width).permute(0, 1, 4, 2, 5, 3)
    return planes.reshape(batch, -1, height * cell, width * cell)


class DeepAutoencoder(Network):
    """The noise, estimated by a bias-free auto-encoder with NeLU at each scale.

    Pixel-unshuffle by 2; scales 1/2, 1/4 …; at each, residual blocks on the way down and up. At
    each scale a signed NeLU splits what the encoder found, u, into its sparse code NeLU(u), the
    picture, and the rest, u − NeLU(u) = clip(u, ±λr), the noise. As the result is the noise, it is
    the rest that crosses to the decoder: the deep form of x̂ = y − D·(u − NeLU(u)). The noise level
    r is measured in the rest itself, around each position, and bounds it, so that no edge, however
    strong, can pass for noise. (``activation="nelu-kept"`` sends the code across instead: it
    learns more slowly, and the coarsest code tends to die.)

    For any weights, with f(y) = y − noise(y): f(c·y) = c·f(y) for c > 0, and f(y + b) = f(y) + b
    for any brightness b of each channel.
    """

    config: DeepConfig
    CELL = 2  # pixel-unshuffle

    def __init__(self, config: DeepConfig) -> None:
        super().__init__()
        self.config = config
        widths, scales = config.widths, len(config.widths)
        self.stride = self.CELL * 2 ** (scales - 1)
        self.halo = _deep_halo(config, self.CELL)
        self.head = ZeroMeanConv(config.channels, self.CELL, widths[0])
        self.encoder, self.decoder = (
            nn.ModuleList(
                _blocks(config.gated, *each)
                for each in zip(side, widths, config.insides, strict=True)
            )
            for side in config.sides
        )
        self.codes = nn.ModuleList(
            _deep_activation(config, *each) for each in zip(widths, config.windows, strict=True)
        )
        steps = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2, bias=False) for a, b in steps)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2, bias=False) for a, b in steps)
        # What a coarser scale says of how much of the codes is noise.
        gated = steps if config.gated else []
        self.gates = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2, bias=False) for a, b in gated
        )
        for gate in self.gates:
            nn.init.zeros_(gate.get_parameter("weight"))
        self.tail = nn.Conv2d(widths[0], config.channels * self.CELL**2, 3, padding=1, bias=False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        below, right = -height % self.stride, -width % self.stride
        if not torch.is_grad_enabled():
            return self._in_strips(image, below, right)
        edge = self.CELL  # the head has no padding of its own, so that flat pictures stay flat
        padded = pad_image(image, edge, edge + right, edge, edge + below)
        cells = F.pixel_unshuffle(padded, self.CELL).contiguous(memory_format=torch.channels_last)
        noise = F.pixel_shuffle(self.estimate_noise(cells), self.CELL)
        return noise[..., :height, :width].to(image.dtype)

    def estimate_noise(self, cells: Tensor) -> Tensor:
        """From (B, C·2², H/2, W/2) to the same."""
        x = self.head(cells).to(self._inner_type(cells))  # (B, widths[0], H/2, W/2)
        codes = []
        for scale, (encode, code) in enumerate(zip(self.encoder, self.codes, strict=True)):
            coeffs = encode(x)
            codes.append(code(coeffs))
            if scale < len(self.down):
                x = self.down[scale](coeffs)
        x = self.decoder[-1](codes.pop())
        for scale in reversed(range(len(self.up))):
            total = raised(x, codes.pop(), *self._kernels(scale))
            x = self.decoder[scale](total)
        noise: Tensor = self.tail(x)
        return noise

    def _kernels(self, scale: int) -> tuple[Tensor, Tensor | None]:
        """Of the way up to a scale, and of the gains of its codes."""
        gate = self.gates[scale].get_parameter("weight") if self.config.gated else None
        return self.up[scale].get_parameter("weight"), gate

    def in_bfloat16(self) -> Self:
        """A copy in which everything between the first convolution and the output is bfloat16."""
        result = copy.deepcopy(self)
        for name in ("encoder", "decoder", "down", "up", "gates", "tail"):
            result.get_submodule(name).to(torch.bfloat16)
        return result

    def _inner_type(self, like: Tensor) -> torch.dtype:
        """What everything between head and output is computed in."""
        if torch.is_autocast_enabled(like.device.type):
            return torch.get_autocast_dtype(like.device.type)
        return self.tail.weight.dtype

    def _in_strips(self, image: Tensor, below: int, right: int) -> Tensor:
        """As :meth:`forward`, see :mod:`nelu_cli.networks.rows`."""
        result = torch.empty_like(image)
        height, width = image.shape[2:]
        kernel, stride = self._fast_tail()
        tail = rows.Convolution(kernel, stride)
        top = 0
        for noise, *_ in rows.through(tail, self._decoded(0, self._heads(image, below, right))):
            pixels = _shuffled(noise[:, : len(self.tail.weight) * stride**2], self.CELL * stride)
            bottom = min(height, top + pixels.shape[2])
            result[:, :, top:bottom] = pixels[:, :, : bottom - top, :width]
            top = bottom
            tell(top, height)
        if top != height:
            raise RuntimeError(f"the strips end at row {top} of {height}")
        return result

    def _heads(self, image: Tensor, below: int, right: int) -> Iterator[Strip]:
        """What the head makes of the picture, with room around each strip."""
        cell = self.CELL
        count, columns = (image.shape[2] + below) // cell, (image.shape[3] + right) // cell
        size = self._inner_type(image).itemsize
        most = DEEP_STRIP // (len(image) * self.config.widths[0] * columns * size)
        most = max(LEAST_ROWS, most // LEAST_ROWS * LEAST_ROWS)
        most = count if count <= FEW_STRIPS * most else most
        # The first strip is as much longer as the encoder's blocks will make it shorter.
        cuts = [0, *range(most + 2 * self.config.blocks[0], count - LEAST_ROWS, most), count]

        def head(top: int, bottom: int) -> Strip:
            first, last = top - rows.ABOVE - 1, bottom + rows.BELOW + 1
            part = pad_rows(image, cell * first, cell * last, cell, cell + below)
            part = pad_image(part, cell, cell + right, 0, 0)
            cells = F.pixel_unshuffle(part, cell).contiguous(memory_format=torch.channels_last)
            room = self.head(cells).to(self._inner_type(cells))
            return Strip(room[:, :, rows.ABOVE : -rows.BELOW], bottom == count, room)

        return itertools.starmap(head, itertools.pairwise(cuts))

    def _decoded(self, scale: int, strips: Iterator[Strip]) -> Iterator[Strip]:
        """What the decoder makes of a scale and all coarser ones."""
        strips = _through_blocks(self.encoder[scale], strips)
        if scale == len(self.down):
            codes = self._codes(scale, strips)
        else:
            crossing, going_down = rows.fork(strips)
            down = rows.Down(self.down[scale].get_parameter("weight"), least=2)
            coarser = self._decoded(scale + 1, rows.through(down, going_down))
            rise = rows.Rise(coarser, *self._kernels(scale))
            codes = rows.through(rise, self._codes(scale, crossing))
        return _through_blocks(self.decoder[scale], codes)

    def _codes(self, scale: int, coeffs: Iterator[Strip]) -> Iterator[Strip]:
        """What crosses from the encoder to the decoder."""
        code = self.codes[scale]
        if isinstance(code, NeLU):
            return rows.through(rows.RowNeLU(code), coeffs)
        return (Strip(F.relu(strip.rows), strip.last) for strip in coeffs)

    def _fast_tail(self) -> tuple[Tensor, int]:
        """The last convolution, widened with zeros to 16 channels, at which CPUs are faster."""
        weight = self.tail.weight
        outputs = len(weight)
        if outputs > 4 or not self.down:  # the 12 of colour; a single scale may have an odd size
            return F.pad(weight, (0,) * 7 + (-outputs % 8,)), 1
        # Of grey, 2×2 positions of 2×2 pixels together, in half the time.
        four = torch.stack([F.pad(weight, (b, 1 - b, a, 1 - a)) for a in (0, 1) for b in (0, 1)])
        four = four.view(2, 2, self.CELL, self.CELL, *four.shape[2:]).transpose(1, 2)
        return four.flatten(0, 3), 2

    def working_memory(self, width: int) -> list[Memory]:
        """Feature maps, or strips of them, that are alive at the peak of a pass.

        As measured on the CPU (growth of the resident size, and PyTorch's own count of its
        allocations, which the tests repeat), rounded up.
        """
        config, size = self.config, self.tail.weight.element_size()
        most = [max(pair) for pair in zip(config.widths, config.insides, strict=True)]
        # Samples for each pixel: at 1/2 there are a quarter as many positions.
        maps = [count / 4 ** (scale + 1) for scale, count in enumerate(most)]
        whole = max(6 * each + sum(maps[:scale]) for scale, each in enumerate(maps))
        row = size * most[0] * -(-width // 2)
        strip = max(DEEP_STRIP * most[0] // config.widths[0], LEAST_ROWS * row)
        pieces = 4 * PIECE * 4  # of NeLU, in float32
        return [
            Memory(0, math.ceil(4 * whole)),
            Memory(pieces, math.ceil(size * whole)),
            Memory(pieces + 6 * FEW_STRIPS * strip + self.halo * row, 0),
        ]

    @property
    def symmetric(self) -> bool:
        return self.config.symmetric

    def symmetry(self) -> Symmetry | None:
        return Symmetry(self) if self.symmetric else None

    def facts(self) -> Mapping[str, object]:
        """The learned τ of each scale's code, one for each channel."""
        taus = [code.tau.tolist() for code in self.codes if isinstance(code, NeLU)]
        return {"tau": taus} if taus else {}


def _deep_halo(config: DeepConfig, cell: int) -> int:
    """Radius of the receptive field: the longest path through the NeLU of one scale."""
    longest = down = 0  # in pixels
    for scale, (encoder, decoder, window) in enumerate(
        zip(*config.sides, config.windows, strict=True)
    ):
        position: int = cell * 2**scale
        down += 2 * (encoder + decoder) * position  # and up again
        across = 0 if config.activation == "relu" else 2 * (window // 2) * position
        longest = max(longest, down + across)
    longest += 2 * cell  # head and tail
    return (-(-longest // position) + 1) * position  # one more, for it may begin inside a cell


def _shaped(config: DeepConfig, given: Mapping[str, Any]) -> DeepConfig:
    """Blocks hold for the decoder too, and widths inside the blocks, unless these are given."""
    followers = {"blocks": "decoder_blocks", "widths": "hidden"}
    cleared = {follower: () for name, follower in followers.items() if name in given}
    return replace(config, **{**cleared, **given})


FAMILY = Family(
    about="multi-scale",
    config=DeepConfig,
    build=DeepAutoencoder,
    recipes={OURS: Recipe(FLAGSHIP)},
    shaped=_shaped,
)
