"""Which pictures the experiments use. All are grey; noise levels are on the 0–255 scale."""

import math
from dataclasses import dataclass
from pathlib import Path

from nelu_cli.data import sets as datasets
from nelu_cli.errors import DatasetError, UsageError
from nelu_cli.experiments.results import Config

RELU, UNROLLED, EXACT = "paper-relu-s15", "paper-nelu-unrolled-s15", "paper-nelu-s15"
LITERAL = ("paper-literal-relu", "paper-literal-nelu", "paper-literal-exact")
"""The paper's own networks: x̂ = D·shrink(W·y), codes of 0 and above."""


def find_images(dataset: str | None, data_dir: Path | None, limit: int | None) -> datasets.ImageSet:
    """The set of that name (by default bsd68 if it is there, else samples), thinned to ``limit``.

    What is kept is spread evenly over the set.
    """
    if dataset is not None:
        images = datasets.find(dataset, data_dir)
    else:
        try:
            images = datasets.find("bsd68", data_dir)
        except DatasetError:
            images = datasets.find(datasets.SAMPLES)
    count = len(images.paths)
    kept = count if limit is None else min(limit, count)
    paths = tuple(images.paths[index * count // kept] for index in range(kept))
    return datasets.ImageSet(images.name, paths)


@dataclass(frozen=True)
class PicturesConfig(Config):
    """``images`` of the set are used, all by default."""

    dataset: str | None = None
    data_dir: Path | None = None
    images: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.images is not None and self.images < 1:
            raise UsageError("--images must be at least 1")


def check_sigma(sigma255: float) -> None:
    if not 0 < sigma255 < math.inf:
        raise UsageError("--sigma must be a number above 0, on the 0–255 scale")
