"""Words that a person chooses from, for the library and for the command line.

Nothing is imported here, so that the command line has them at once.
"""

from typing import Literal

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "float32", "bfloat16"]
Quality = Literal["normal", "best"]
Colour = Literal["srgb", "p3", "adobe", "linear"]
Nan = Literal["keep", "refuse"]
NoiseKind = Literal[
    "white",
    "coupled",
    "poisson",
    "speckle",
    "uniform",
    "spatial",
    "camera",
    "correlated",
    "grain",
    "scan",
    "jpeg",
]
