"""How pixels are denoised: what a person can choose, checked once."""

from dataclasses import dataclass
from typing import Final, get_args

from nelu_cli.errors import UsageError
from nelu_cli.words import Nan, Quality

DEFAULT_MEMORY: Final = 1 << 30  # bytes: about 30 Mpx of colour in one tile


@dataclass(frozen=True)
class Options:
    """The same for all pictures of one command."""

    strength: float = 1.0
    """How much of the estimated noise is taken out, 0 to 1."""
    luma: float = 1.0
    """How much of that in brightness."""
    chroma: float | None = None
    """How much of that in colour; for colour pictures alone."""
    quality: Quality = "normal"
    """One pass, or the best: the mean over eight flips and rotations."""
    memory: int = DEFAULT_MEMORY
    """Ceiling in bytes for the working memory, on top of input and output."""
    dtype: str | None = None
    """Type of the result, its values unchanged but for rounding; by default the input's."""
    nan: Nan = "keep"
    """Whether to refuse pictures with NaN or infinity, or leave such pixels as they are."""

    def __post_init__(self) -> None:
        shares = {"strength": self.strength, "luma": self.luma, "chroma": self.chroma}
        for name, share in shares.items():
            if share is not None and not 0 <= share <= 1:
                raise UsageError(f"{name} {share} is outside 0 to 1")
        if self.nan not in get_args(Nan):
            raise UsageError(f"unknown choice {self.nan!r} for NaN; choose keep or refuse")
        if self.quality not in get_args(Quality):
            raise UsageError(f"unknown quality {self.quality!r}; choose normal or best")
        if self.memory < 1:
            raise UsageError(f"memory of {self.memory} bytes is not enough; allow more")

    @property
    def idle(self) -> bool:
        """Whether nothing is to be taken out."""
        return self.strength == 0 or (self.luma == 0 and self.chroma == 0)
