"""What every denoising network promises, and the checks that their configs share.

What is banned inside, so that f(c·y) = c·f(y) holds exactly: biases, normalisation layers,
saturating activations, products of features, clamps. A product with features over their own norm,
which no c changes, is allowed: see :func:`nelu_cli.networks.blocks.unit`.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from torch import Tensor, nn

if TYPE_CHECKING:
    from nelu_cli.networks.symmetry import Symmetry

LARGEST = 10_000
"""Of any count in a config: far above every use, so that a damaged file cannot ask for more."""


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_counts(name: str, least: int, *counts: object, most: int = LARGEST) -> None:
    good = all(isinstance(count, int) and least <= count <= most for count in counts)
    check(good, f"{name} must be whole numbers from {least} to {most}")


class Config(Protocol):
    """What rebuilds a network: a frozen dataclass of numbers, texts and tuples of them.

    Its ``__post_init__`` raises ValueError for what cannot be, and bounds what would take long to
    build: configs are read from files of any origin. Tuples may come as lists, from JSON.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    family: ClassVar[str]

    @property
    def channels(self) -> int:
        """1: for any picture, channel by channel; 3: for colour pictures."""
        ...


class Memory(NamedTuple):
    """Bytes that a pass takes: in any case, and for each pixel."""

    fixed: int
    per_pixel: int


class Network(nn.Module):
    """A map of pictures (B, C, H, W) of any size to the noise in them, of the same shape.

    The rest of the program knows no more of a network than what stands here.
    """

    config: Config
    stride: int
    """Tiles that start at multiples of it give the result of the whole picture."""
    halo: int
    """No result depends on input pixels farther away than this; a multiple of the stride."""

    def forward(self, image: Tensor) -> Tensor:
        """The noise in a picture, in the picture's own type: f(y) = y − noise(y)."""
        raise NotImplementedError  # pragma: no cover

    def denoise(self, image: Tensor) -> Tensor:
        """The picture without its noise."""
        noise: Tensor = self(image)
        return image - noise

    def one_grid(self) -> tuple[Callable[[Tensor], Tensor], int]:
        """The noise as one grid of positions finds it, and the grid's period.

        What shifts can be averaged over. A network that averages them itself gives its parts.
        """
        return self, self.stride

    @property
    def channels(self) -> int:
        """1: for any picture, channel by channel; 3: for colour pictures."""
        return self.config.channels

    def working_memory(self, width: int) -> list[Memory]:
        """What a pass over a tile of at most that width takes, without the tile and its noise.

        Several, if each is enough. This one suits a few dozen channels at full size.
        """
        return [Memory(0, 1024)]

    @property
    def symmetric(self) -> bool:
        """Whether a picture is treated alike however it is turned or mirrored.

        Then one pass is the mean over the eight ways to look at it.
        """
        return False

    def symmetry(self) -> "Symmetry | None":
        """What keeps the weights so in training, for a network that is symmetric by its weights."""
        return None

    def noise_colours(self) -> Tensor | None:
        """A (channels, n): the noise that it is for is A·m, m independent, of mean variance 1.

        None if it is for noise that is independent in the channels.
        """
        return None

    def in_bfloat16(self) -> Self | None:
        """A copy for inference that computes in bfloat16, but for the pixels and its result.

        None if the network has no place where that would round the noise and not the picture.
        """
        return None

    def upgrade(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of an older file under today's names; those of today's files as they are."""
        return tensors

    def facts(self) -> Mapping[str, object]:
        """What else there is to say about the weights, for ``nelu models NAME --json``."""
        return {}
