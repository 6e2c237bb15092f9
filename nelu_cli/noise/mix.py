"""A mix of kinds of noise, as a text: "white", or "camera=6,white=2,grain=1"."""

from dataclasses import dataclass
from typing import get_args

import numpy as np

from nelu_cli.errors import UsageError
from nelu_cli.noise.kinds import DRAWN, WHITE_LIKE
from nelu_cli.words import NoiseKind

PHOTO = "camera=62,correlated=13,grain=5,scan=3,jpeg=5,white=12"
"""What photographs and scans hold; "photo" stands for it."""


@dataclass(frozen=True)
class NoiseMix:
    """Kinds of noise and how often each is drawn."""

    kinds: tuple[NoiseKind, ...]
    shares: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> "NoiseMix":
        """Read ``kind=share,kind=share``; a share left out is 1."""
        kinds: list[NoiseKind] = []
        shares: list[float] = []
        trained_on = (*WHITE_LIKE, *DRAWN)
        usable = {kind: kind for kind in get_args(NoiseKind) if kind in trained_on}
        for part in (PHOTO if text == "photo" else text).split(","):
            kind, _, share = part.strip().partition("=")
            try:
                number = float(share or 1)
            except ValueError:
                number = -1.0
            if kind not in usable or not 0 < number < 1e6:
                raise UsageError(
                    f"noise {text!r}: give photo, or kinds with shares such as camera=6,white=2; "
                    f"the kinds are {', '.join(usable)}"
                )
            kinds.append(usable[kind])
            shares.append(number)
        return cls(tuple(kinds), tuple(share / sum(shares) for share in shares))

    @property
    def needs_colour(self) -> bool:
        """Whether some kind is made of colour pictures, for grey ones too."""
        return any(kind in DRAWN for kind in self.kinds)

    def draw(self, rng: np.random.Generator) -> NoiseKind:
        """One kind; a mix of one draws no random number."""
        if len(self.kinds) == 1:
            return self.kinds[0]
        return self.kinds[int(rng.choice(len(self.kinds), p=self.shares))]


WHITE = NoiseMix(("white",), (1.0,))
