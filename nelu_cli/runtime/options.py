"""How pixels are denoised: what a person can choose, checked once."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from nelu_cli.errors import UsageError

__all__ = ["DEFAULT_MEMORY", "Options", "Quality"]

DEFAULT_MEMORY: Final = 2 << 30  # bytes: 34 Mpx of colour in one tile

Quality = Literal["normal", "best"]


@dataclass(frozen=True)
class Options:
    """The same for all pictures of one command."""

    strength: float = 1.0
    """How much of the estimated noise is taken out, 0 to 1."""
    quality: Quality = "normal"
    """One pass, or the best: the mean over eight flips and rotations."""
    memory: int = DEFAULT_MEMORY
    """Ceiling in bytes for the working memory, on top of input and output."""

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UsageError(f"strength {self.strength} is outside 0 to 1")
        if self.quality not in get_args(Quality):
            raise UsageError(f"unknown quality {self.quality!r}; choose normal or best")
        if self.memory < 1:
            raise UsageError(f"memory of {self.memory} bytes is not enough; allow more")
