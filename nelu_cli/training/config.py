"""What decides the result of a training run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from nelu_cli.errors import TrainingError
from nelu_cli.noise import NoiseMix
from nelu_cli.training.optimizers import OptimizerName
from nelu_cli.training.processes import world

Loss = Literal["scaled-mse", "rmse", "mse", "l1", "log-mse"]
Schedule = Literal["cooldown", "paper"]
Precision = Literal["float32", "bfloat16"]
LARGEST = 1 << 16
"""Patches in a step, and pixels along the side of one."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the result of a run, beside the network's own config."""

    data: tuple[str, ...] = ("cbsd432",)
    validate: str | None = None
    """Name of the validation set; without one, the pictures held out of training."""
    hold_out: int = 10
    """Keep every n-th picture of each set out of training; 0 keeps none out."""
    noise: str = "white"
    """Kinds of noise and their shares, see :class:`nelu_cli.noise.NoiseMix`."""
    sigma255: tuple[float, float] = (0.0, 120.0)
    """Levels of the white noise; the other kinds have levels of their own."""
    sigma_power: float = 1.0
    """σ is the lower end plus a share uᵖ of the range, u uniform: above 1, small σ are commoner."""
    contrast: tuple[float, float] = (1.0, 1.0)
    """Clean patches are multiplied by a factor from this range before noise is added."""
    smallest_scale: float = 0.5
    recolour: float = 0.0
    """Share of the patches whose colours are changed."""
    soft: float = 0.0
    """Share of the patches with white noise that are of pictures scaled up, up to 2.5 times."""
    vivid: float = 0.0
    """Share of the patches with white noise chosen for their detail, in colour that of colour."""
    loss: Loss = "scaled-mse"
    steps: int | None = None
    minutes: float | None = 60.0
    batch: int = 8
    patch: int = 128
    final_patch: int = 128
    """Side of the patches in the last fifth of a run, at the same number of pixels a step."""
    optimizer: OptimizerName = "muon"
    lr: float = 2e-3
    schedule: Schedule = "cooldown"
    warm_up: int = 200
    cooldown: float = 0.4
    """Share of the run over which the learning rate falls from ``lr`` to 0 (half a cosine)."""
    epsilon: float = 1e-8
    beta2: float = 0.99
    weight_decay: float = 0.0
    """The last three: of AdamW."""
    clip: float = 1.0
    """Largest norm of a step's gradient; 0 for no limit."""
    precision: Precision = "float32"
    """Of the network's convolutions; weights, averages and optimizer are float32 in any case."""
    ema: float = 0.999
    turn: bool = True
    """Flip and turn the patches at random."""
    seed: int = 0
    validate_every: int = 1000
    validation_sigmas: tuple[int, ...] = (15, 25, 50)
    note: str = ""
    """What the record in the weights says of how they were made, beside the command."""

    def __post_init__(self) -> None:
        for entry in fields(self):  # lists when read from JSON
            value = getattr(self, entry.name)
            if isinstance(value, list):
                object.__setattr__(self, entry.name, tuple(value))
        check_types(self)
        if (self.steps is None) == (self.minutes is None):
            raise TrainingError("give either a number of steps or a number of minutes")
        length = self.minutes if self.steps is None else self.steps
        if not 0 < (length or 0) < math.inf:
            raise TrainingError("the length of a run must be positive: --steps or --minutes")
        if not 0 <= self.seed < 2**63:
            raise TrainingError(f"seed {self.seed}: a whole number from 0 up")
        if not 0 <= self.sigma255[0] <= self.sigma255[1] < math.inf:
            raise TrainingError(f"sigma {self.sigma255}: a level or a range of levels from 0 up")
        NoiseMix.parse(self.noise)
        for name in ("recolour", "soft", "vivid"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} {getattr(self, name)}: a share from 0 to 1")
        if not 0 < self.contrast[0] <= self.contrast[1] < math.inf:
            raise TrainingError(f"contrast {self.contrast}: a range of positive factors")
        if not (1 <= self.batch <= LARGEST and 8 <= self.patch <= self.final_patch <= LARGEST):
            raise TrainingError(
                f"a batch of 1 to {LARGEST} and 8 ≤ patch ≤ final patch ≤ {LARGEST} are needed"
            )
        if not (0 < self.lr < math.inf and 0 < self.sigma_power < math.inf):
            raise TrainingError("lr and sigma power must be numbers above 0")
        if not (0 <= self.clip < math.inf and 0 <= self.ema < 1 and 0 <= self.beta2 < 1):
            raise TrainingError("clip must be 0 or above, ema and beta2 from 0 to below 1")
        if not (0 <= self.cooldown <= 1 and 0 < self.smallest_scale <= 1 and self.warm_up >= 0):
            raise TrainingError("cooldown and smallest scale are shares, warm-up is 0 or above")
        if not (0 < self.epsilon < math.inf and 0 <= self.weight_decay < math.inf):
            raise TrainingError("epsilon must be above 0 and weight decay 0 or above")
        if self.validate_every < 1 or self.hold_out < 0 or self.hold_out == 1:
            raise TrainingError("validate every ≥ 1 and a hold-out of 0 or from 2 up are needed")

    @property
    def chosen_by(self) -> tuple[int, ...]:
        """The levels by which the best weights are chosen: none that training may not see."""
        low, high = self.sigma255
        inside = tuple(sigma for sigma in self.validation_sigmas if low <= sigma <= high)
        return inside or (round((low + high) / 2),)

    def progress(self, step: int, seconds: float) -> float:
        """How much of the run is done, 0 to 1."""
        return step / self.steps if self.steps else seconds / 60 / (self.minutes or 1)

    def patch_and_batch(self, progress: float) -> tuple[int, int]:
        """Side and number of the patches of a step."""
        if progress < 0.8 or self.final_patch == self.patch:
            return self.patch, self.batch
        number = round(self.batch * (self.patch / self.final_patch) ** 2)
        return self.final_patch, max(number, world())

    def learning_rate(self, step: int, progress: float) -> float:
        """Warm-up, then the schedule: flat with a final cooldown, or the paper's 300 epochs."""
        rate = self.lr * min(1.0, (step + 1) / self.warm_up) if self.warm_up else self.lr
        if self.schedule == "paper":  # ×0.7 after every 50 of 300 epochs
            return rate * 0.7 ** int(progress * 6)
        falling = max(0.0, (progress - 1) / self.cooldown + 1) if self.cooldown else 0.0
        return rate * 0.5 * (1 + math.cos(math.pi * min(falling, 1.0)))


def check_types(record: Any) -> None:
    """Refuse a dataclass whose fields are of other types than it declares, as a file may say."""
    kinds = get_type_hints(type(record))
    for entry in fields(record):
        value, kind = getattr(record, entry.name), kinds[entry.name]
        if _fits(value, kind):
            continue
        if get_origin(kind) is Literal:
            known = ", ".join(get_args(kind))
            raise TrainingError(f"{entry.name} {value!r:.80} is none of {known}")
        raise TrainingError(f"{entry.name} cannot be {value!r:.80}")


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of a type: int is a float as well, but bool is no number."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in inside
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inside)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = inside[:1] * len(value) if inside[1:] == (...,) else inside
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inside[0]) and _fits(each, inside[1]) for key, each in value.items()
        )
    if kind is int or kind is float:
        number = isinstance(value, int | kind) and not isinstance(value, bool)
        return number and (not isinstance(value, int) or abs(value) < 2**63)
    return isinstance(value, kind)
