"""The training loop: what it minimises, how it saves, how it goes on after a stop."""

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch import distributed as dist

from nelu_cli import __version__, checkpoints
from nelu_cli.atomic import atomic_file
from nelu_cli.checkpoints import TrainingRecord
from nelu_cli.data.patches import Batch, PatchSource, load_pictures
from nelu_cli.data.sets import ImageSet, find, load_clean
from nelu_cli.errors import DatasetError, TrainingError
from nelu_cli.evaluation import psnr
from nelu_cli.evaluation.figures import training_curve
from nelu_cli.networks import (
    Config,
    DeepConfig,
    Network,
    PaperConfig,
    ResidualBlock,
    build,
    hidden_channels,
    is_idle,
)
from nelu_cli.networks.symmetry import ORIENTATIONS, Symmetry
from nelu_cli.noise import add_noise, noise_seed
from nelu_cli.training.optimizers import OptimizerName, parameter_optimizers

__all__ = ["Event", "Loss", "Schedule", "TrainConfig", "load_run", "train"]

Loss = Literal["scaled-mse", "rmse", "mse", "l1", "log-mse"]
Schedule = Literal["cooldown", "paper"]

LOG_EVERY = 50  # steps
SAVE_EVERY = 180.0  # seconds
DIVERGED = 30.0  # times the running mean of the loss …
PATIENCE = 10  # … for so many steps in a row


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the result of a run, beside the network's own config."""

    data: tuple[str, ...] = ("cbsd432",)
    validate: str | None = None
    """Name of the validation set; without one, the pictures held out of training."""
    hold_out: int = 10
    """Keep every n-th picture of each set out of training; 0 keeps none out."""
    sigma255: tuple[float, float] = (0.0, 120.0)
    sigma_power: float = 1.0
    """σ is the lower end plus a share uᵖ of the range, u uniform: above 1, small σ are commoner."""
    contrast: tuple[float, float] = (1.0, 1.0)
    """Clean patches are multiplied by a factor from this range before noise is added."""
    smallest_scale: float = 0.5
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
        if (self.steps is None) == (self.minutes is None):
            raise TrainingError("give either a number of steps or a number of minutes")
        if (self.steps or self.minutes or 0) <= 0:
            raise TrainingError("the length of a run must be positive")
        if not 0 <= self.sigma255[0] <= self.sigma255[1]:
            raise TrainingError(f"sigma {self.sigma255}: a level or a range of levels from 0 up")
        if not 0 < self.contrast[0] <= self.contrast[1]:
            raise TrainingError(f"contrast {self.contrast}: a range of positive factors")
        if self.batch < 1 or self.patch < 8 or self.final_patch < self.patch:
            raise TrainingError("batch ≥ 1 and final patch ≥ patch ≥ 8 are needed")
        if not (0 < self.lr < math.inf and 0 < self.sigma_power < math.inf):
            raise TrainingError("lr and sigma power must be numbers above 0")
        if not (0 <= self.clip < math.inf and 0 <= self.ema < 1 and 0 <= self.beta2 < 1):
            raise TrainingError("clip must be 0 or above, ema and beta2 from 0 to below 1")
        if self.validate_every < 1 or self.hold_out < 0 or self.hold_out == 1:
            raise TrainingError("validate every ≥ 1 and a hold-out of 0 or from 2 up are needed")
        for name, choices in (
            ("loss", Loss),
            ("schedule", Schedule),
            ("optimizer", OptimizerName),
        ):
            if getattr(self, name) not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise TrainingError(f"{name} {getattr(self, name)!r} is none of {known}")

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
        return self.final_patch, max(number, _world())

    def learning_rate(self, step: int, progress: float) -> float:
        """Warm-up, then the schedule: flat with a final cooldown, or the paper's 300 epochs."""
        rate = self.lr * min(1.0, (step + 1) / self.warm_up) if self.warm_up else self.lr
        if self.schedule == "paper":  # ×0.7 after every 50 of 300 epochs
            return rate * 0.7 ** int(progress * 6)
        falling = max(0.0, (progress - 1) / self.cooldown + 1) if self.cooldown else 0.0
        return rate * 0.5 * (1 + math.cos(math.pi * min(falling, 1.0)))


@dataclass(frozen=True)
class Event:
    """What a run reports as it goes."""

    step: int
    progress: float
    loss: float
    lr: float
    megapixels_per_second: float
    data_share: float
    """Share of the time that was spent waiting for patches."""
    seconds: float
    seconds_left: float
    validation: Mapping[str, float] | None = None


def _loss(kind: Loss, estimate: Tensor, batch: Batch) -> Tensor:
    error = estimate - batch.clean
    if kind == "l1":
        return error.abs().mean()
    per_sample = error.square().mean((1, 2, 3))
    if kind == "log-mse":
        return 0.1 * (per_sample + 1e-6).log().mean()
    if kind == "rmse":  # every sample pulls alike, at any level and however hard the picture is
        return (per_sample / batch.contrast.square() + 1e-8).sqrt().mean()
    if kind == "scaled-mse":  # in full contrast, and so that no level drowns the others
        level = batch.sigma255 / batch.contrast
        per_sample = per_sample / batch.contrast.square() * 255 / (level + 3)
    return per_sample.mean()


@dataclass(frozen=True)
class Validation:
    """What a run is measured on: the central 512 × 512 pixels of at most 24 pictures."""

    name: str
    pictures: Sequence[tuple[str, NDArray[np.float32]]]
    unreadable: int = 0

    @classmethod
    def load(cls, images: ImageSet, channels: int, *, skip: bool = False) -> "Validation":
        """Read the pictures; leave out (and count) what cannot be read, or raise DatasetError."""
        pictures = []
        chosen = images.paths[:: max(1, math.ceil(len(images.paths) / 24))]
        for path in chosen:
            try:
                pictures.append((path.name, _centre(load_clean(path, channels), 512)))
            except DatasetError:
                if not skip:
                    raise
        return cls(images.name, pictures, len(chosen) - len(pictures))


@torch.inference_mode()
def validation_psnr(
    network: Network, validation: Validation, sigmas: Sequence[int]
) -> dict[str, float]:
    """Mean PSNR for each level."""
    result = {}
    for sigma in sigmas:
        values = []
        for name, picture in validation.pictures:
            noisy = add_noise(picture, "gaussian", sigma, noise_seed(name, sigma, 0))
            estimate = network(torch.from_numpy(noisy).permute(2, 0, 1)[None])[0].clamp(0, 1)
            values.append(psnr(picture, estimate.permute(1, 2, 0).numpy()))
        result[str(sigma)] = round(float(np.mean(values)), 4)
    return result


def _centre(picture: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    top, left = (max(0, length - side) // 2 for length in picture.shape[:2])
    return picture[top : top + side, left : left + side]


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


class _Run:
    """One training run: network, optimizer, averages, files."""

    def __init__(
        self, config: TrainConfig, network_config: Config, out: Path, data_dir: Path | None
    ) -> None:
        self.config, self.out = config, out
        self.training, self.validation, self.unreadable = _load_data(
            config, network_config.channels, data_dir
        )
        torch.manual_seed(config.seed)
        self.network = build(network_config)
        self.centred = [m for m in self.network.modules() if isinstance(m, ResidualBlock)]
        for block in self.centred:
            block.centre()
        self.symmetry: Symmetry | None = None
        if isinstance(network_config, DeepConfig) and network_config.symmetric:
            self.symmetry = Symmetry(self.network)
            self.symmetry.impose(self.network)
        self.averaged = build(network_config)
        self.averaged.load_state_dict(self.network.state_dict())
        self.averaged.requires_grad_(False).eval()
        self.optimizers = parameter_optimizers(
            self.network,
            config.optimizer,
            config.lr,
            config.epsilon,
            beta2=config.beta2,
            weight_decay=config.weight_decay,
        )
        self.model: nn.Module = self.network
        if _world() > 1:
            self.model = nn.parallel.DistributedDataParallel(self.network)
        self.step = 0
        self.seconds = 0.0
        self.best = -math.inf
        self.latest: dict[str, float] = {}

    # ------------------------------------------------------------------ one step

    def progress(self) -> float:
        """How much of the run is done, 0 to 1, the same on every process."""
        done = torch.tensor(self.config.progress(self.step, self.seconds), dtype=torch.float64)
        if _world() > 1:
            dist.broadcast(done, 0)
        return float(done)

    def items(self, number: int) -> range:
        """This process's share of a batch."""
        return range(_rank() * number // _world(), (_rank() + 1) * number // _world())

    def update(self, batch: Batch, progress: float) -> float:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.config.learning_rate(self.step, progress)
        loss = _loss(self.config.loss, self.model(batch.noisy), batch)
        self.network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.symmetry:
            parameters = self.network.named_parameters()
            self.symmetry.average((n, p.grad) for n, p in parameters if p.grad is not None)
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip)
        value = float(loss.detach())
        if _world() > 1:
            mean = torch.tensor(value, dtype=torch.float64)
            dist.all_reduce(mean)
            value = float(mean) / _world()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss became {value} at step {self.step}; the last good state is in "
                f"{self.out}: try a lower --lr"
            )
        with _interrupted_later():
            for optimizer in self.optimizers:
                optimizer.step()
            for block in self.centred:
                block.centre()
            decay = min(self.config.ema, (1 + self.step) / (10 + self.step))
            with torch.no_grad():
                pairs = zip(self.averaged.parameters(), self.network.parameters(), strict=True)
                for average, value_now in pairs:
                    average.lerp_(value_now, 1 - decay)
            self.step += 1
        return value

    # ------------------------------------------------------------------ files

    def validate(self, record: TrainingRecord) -> dict[str, float]:
        chosen_by = self.config.chosen_by
        sigmas = sorted({*self.config.validation_sigmas, *chosen_by})
        self.latest = validation_psnr(self.averaged, self.validation, sigmas)
        mean = sum(self.latest[str(sigma)] for sigma in chosen_by) / len(chosen_by)
        if mean > self.best:
            self.best = mean
            self.save_weights("best", record)
        return self.latest

    def save_weights(self, name: str, record: TrainingRecord) -> None:
        record = replace(
            record,
            steps=self.step,
            hours=round(self.seconds / 3600, 3),
            validation=dict(self.latest),
            date=datetime.now(UTC).date().isoformat(),
        )
        weights = self.averaged.state_dict()
        if self.symmetry:
            self.symmetry.average(weights.items())  # rid of its roundings
        checkpoints.save(self.out / f"{name}.safetensors", weights, self.network.config, record)

    def save_state(self, name: str) -> None:
        """Everything that an exact resume needs."""
        tensors: dict[str, Tensor] = {}
        for key, network in (("weights", self.network), ("ema", self.averaged)):
            tensors |= {f"{key}.{n}": p.detach() for n, p in network.named_parameters()}
        for optimizer in self.optimizers:
            for n, p in self.network.named_parameters():
                for key, value in optimizer.state.get(p, {}).items():
                    tensors[f"optimizer.{n}/{key}"] = value
        numbers = {"step": self.step, "seconds": self.seconds, "best": self.best}
        metadata = {"nelu-training": json.dumps(numbers | {"latest": self.latest})}
        content = {key: tensor.contiguous() for key, tensor in tensors.items()}
        with atomic_file(self.out / f"{name}.safetensors") as handle:
            handle.write(safetensors.torch.save(content, metadata))

    def load_state(self, name: str) -> None:
        path = self.out / f"{name}.safetensors"
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                numbers = json.loads((file.metadata() or {})["nelu-training"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            for key, network in (("weights", self.network), ("ema", self.averaged)):
                network.load_state_dict(
                    {n: tensors[f"{key}.{n}"] for n, _ in network.named_parameters()}
                )
            self.step, self.seconds = int(numbers["step"]), float(numbers["seconds"])
            self.best, self.latest = float(numbers["best"]), dict(numbers["latest"])
            parameters = dict(self.network.named_parameters())
            owner = {
                p: optimizer
                for optimizer in self.optimizers
                for group in optimizer.param_groups
                for p in group["params"]
            }
            for name, value in tensors.items():
                if name.startswith("optimizer."):
                    n, key = name.removeprefix("optimizer.").split("/")
                    p = parameters[n]
                    if value.shape == p.shape:  # in the memory layout of the parameter
                        value = torch.empty_like(p).copy_(value)
                    owner[p].state[p][key] = value
        except (OSError, KeyError, RuntimeError, ValueError, safetensors.SafetensorError) as error:
            raise TrainingError(f"{path}: the run cannot be resumed from it ({error})") from error


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Let Ctrl-C wait, so that a step is taken whole or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal comes here
        return
    waiting: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def _load_data(
    config: TrainConfig, channels: int, data_dir: Path | None
) -> tuple[PatchSource, Validation, int]:
    """What to train on, what to validate on, and how many pictures cannot be read."""
    sets, held_out, unreadable = [], [], 0
    for name in config.data:
        paths = find(name, data_dir).paths
        keep = set(paths[:: config.hold_out]) if config.hold_out and len(paths) > 1 else set()
        held_out += sorted(keep)
        pictures, failed = load_pictures([path for path in paths if path not in keep], channels)
        sets.append(pictures)
        unreadable += failed
    named = config.validate and find(config.validate, data_dir)
    images = named or ImageSet("held-out", tuple(held_out))
    validation = Validation.load(images, channels, skip=not named)
    if not validation.pictures:
        raise TrainingError("nothing to validate on: name a set with --validate, or hold some out")
    source = PatchSource(
        sets,
        config.sigma255,
        config.sigma_power,
        config.contrast,
        config.smallest_scale,
        config.seed,
        config.turn,
    )
    return source, validation, unreadable + validation.unreadable


def load_run(out: Path) -> tuple[TrainConfig, Config]:
    """The configs of a run that was begun in ``out``."""
    path = out / "config.json"
    try:
        text = json.loads(path.read_text())
        family = PaperConfig if text["network"].pop("family") == "paper" else DeepConfig
        return TrainConfig(**text["training"]), family(**text["network"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path}: no run to resume here ({error})") from error


def train(
    config: TrainConfig,
    network_config: Config,
    out: Path,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    command: str = "",
    on_event: Callable[[Event], None] = lambda event: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> None:
    """Train a network, writing to the folder ``out`` as it goes.

    Written: ``config.json``; ``log.jsonl``, an event a line, and ``curve.png``;
    ``best.safetensors`` and ``last.safetensors``, weights for use (the moving average);
    ``state.safetensors``, all that an exact resume needs; ``stable.safetensors``, the state where
    the cooldown of the learning rate began, from which a longer run goes on.

    A KeyboardInterrupt saves and is raised again.
    """
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    if distributed:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        _train(
            config, network_config, out, data_dir, resume, start_from, command, on_event, on_note
        )
    finally:
        if distributed:
            dist.destroy_process_group()


def _train(
    config: TrainConfig,
    network_config: Config,
    out: Path,
    data_dir: Path | None,
    resume: bool,
    start_from: str | Path | None,
    command: str,
    on_event: Callable[[Event], None],
    on_note: Callable[[str], None],
) -> None:
    # For the curve. Later, Ctrl-C inside this import could come out as another error, unsaved.
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401

    run = _Run(config, network_config, out, data_dir)
    writer = _rank() == 0
    if run.unreadable and writer:
        on_note(f"{run.unreadable} pictures could not be read and are left out")
    if resume:
        _go_on(run, load_run(out)[0])
        if writer:
            run.save_state("state")  # before the new length, which must not meet an old state
            _forget_after(out / "log.jsonl", run.step)
            begun = checkpoints.read_header(out / "last.safetensors").record.command
            command = f"{begun} && {command}"
    elif start_from:
        idle = _start_from(run, start_from)
        if idle and writer:
            on_note(f"blocks hardly ever on in {start_from} begin afresh: {', '.join(idle)}")
    run.centred = [block for block in run.centred if block.is_centred()]  # not of older weights
    if writer:
        out.mkdir(parents=True, exist_ok=True)
        configs = {
            "training": asdict(config),
            "network": asdict(network_config) | {"family": network_config.family},
        }
        with atomic_file(out / "config.json") as handle:
            handle.write(json.dumps(configs, indent=1).encode())
    low, high = config.sigma255
    record = TrainingRecord(
        data=config.data,
        sigma=f"{low:g}" if low == high else f"{low:g}-{high:g}",
        seed=config.seed,
        validated_on=run.validation.name,
        chosen_by=config.chosen_by,
        note=config.note,
        command=command,
        version=__version__,
    )
    try:
        _loop(run, record, writer, on_event)
    except KeyboardInterrupt:
        if writer and run.step:
            run.save_state("state")
            run.save_weights("last", record)
        raise


def _loop(
    run: _Run, record: TrainingRecord, writer: bool, on_event: Callable[[Event], None]
) -> None:
    config = run.config
    mean_loss: float | None = None
    spikes = 0
    waiting = pixels = 0.0
    since_log = since_save = time.monotonic()
    with ThreadPoolExecutor(1) as loader, _log_file(run.out, writer) as log:

        def fetch(step: int, progress: float) -> Batch:
            patch, number = config.patch_and_batch(progress)
            return run.training.batch(step, run.items(number), patch)

        progress = run.progress()
        batch = loader.submit(fetch, run.step, progress)
        while progress < 1:
            started = time.monotonic()
            current = batch.result()
            batch = loader.submit(fetch, run.step + 1, _ahead(config, run.step + 1, progress))
            waiting += time.monotonic() - started
            loss = run.update(current, progress)
            if mean_loss is not None and loss > DIVERGED * mean_loss > 0:
                spikes += 1
            else:
                spikes = 0
                mean_loss = loss if mean_loss is None else 0.99 * mean_loss + 0.01 * loss
            if spikes >= PATIENCE:
                raise TrainingError(
                    f"the loss jumped to {loss:.3g} at step {run.step}; the last good state is in "
                    f"{run.out}: try a lower --lr"
                )
            pixels += current.clean.shape[0] * current.clean.shape[-1] ** 2 * _world()
            run.seconds += time.monotonic() - started
            before, progress = progress, run.progress()
            validating = run.step % config.validate_every == 0 or progress >= 1
            if writer and (validating or run.step % LOG_EVERY == 0):
                now = time.monotonic()
                elapsed = now - since_log
                event = Event(
                    step=run.step,
                    progress=min(progress, 1.0),
                    loss=mean_loss,
                    lr=config.learning_rate(run.step, progress),
                    megapixels_per_second=pixels / 1e6 / elapsed,
                    data_share=waiting / elapsed,
                    seconds=run.seconds,
                    seconds_left=run.seconds * (1 - progress) / progress,
                    validation=run.validate(record) if validating else None,
                )
                log.write(json.dumps(asdict(event)) + "\n")
                log.flush()
                on_event(event)
                if validating:
                    training_curve(run.out / "log.jsonl", run.out / "curve.png")
                waiting = pixels = 0.0
                since_log = time.monotonic()
            if writer and before < 1 - config.cooldown <= progress:
                run.save_state("stable")
            if writer and (progress >= 1 or time.monotonic() - since_save > SAVE_EVERY):
                run.save_state("state")
                run.save_weights("last", record)
                since_save = time.monotonic()
        batch.cancel()


def _ahead(config: TrainConfig, step: int, progress: float) -> float:
    """The progress of a step that has not come yet (known exactly for a number of steps)."""
    return step / config.steps if config.steps is not None else progress


def _log_file(out: Path, writer: bool) -> Any:
    return open(out / "log.jsonl" if writer else os.devnull, "a", encoding="utf-8")


def _forget_after(log: Path, step: int) -> None:
    """Drop what a run logged after the state from which it goes on."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    whole = (line for line in lines if line.endswith("}\n"))
    with atomic_file(log) as handle:
        handle.writelines(x.encode() for x in whole if json.loads(x)["step"] <= step)


def _go_on(run: _Run, before: TrainConfig) -> None:
    """Load the state to go on from: if the run is to be longer, that before its cooldown."""
    run.load_state("state")
    longer = run.progress() < before.progress(run.step, run.seconds)
    if longer and (run.out / "stable.safetensors").exists():
        best = run.best
        run.load_state("stable")
        run.best = best


def _start_from(run: _Run, name_or_path: str | Path) -> list[str]:
    """Take over the tensors of other weights, where names and shapes agree.

    From grey to colour, the first layer looks at the mean of the colours and the last one gives
    the same for each. A scale or a block that the other weights do not have adds nothing at first,
    nor does a block that had died in them: it begins afresh. Returns the names of those blocks. Of
    a block that is to have fewer hidden channels, the strongest remain.
    """
    other = checkpoints.load(name_or_path).network
    patches = run.training.batch(0, range(8), run.config.patch).noisy
    hidden = hidden_channels(other, patches[:, : other.config.channels])
    source = other.state_dict()
    own = run.network.state_dict()
    for block, channels in hidden.items():
        first, second = f"{block}.first.weight", f"{block}.second.weight"
        if first in own and len(own[first]) < len(source[first]):
            energy = channels.square().mean((0, 2, 3)) * source[second].square().sum((0, 2, 3))
            keep = _largest(energy, len(own[first]), ORIENTATIONS if run.symmetry else 1)
            source[first], source[second] = source[first][keep], source[second][:, keep]
    taken = {}
    for name, fresh in own.items():
        tensor = source.get(name)
        if tensor is not None and name == "head.weight" and 3 * tensor.shape[1] == fresh.shape[1]:
            tensor = tensor.repeat(1, 3, 1, 1) / 3
        if tensor is not None and name == "tail.weight" and 3 * len(tensor) == len(fresh):
            tensor = tensor.repeat(3, 1, 1, 1)
        if tensor is not None and tensor.shape == fresh.shape:
            taken[name] = tensor
    if not taken:
        raise TrainingError(f"{name_or_path}: has nothing in common with the network to train")
    if run.symmetry and not run.symmetry.holds(taken):
        raise TrainingError(f"{name_or_path}: is not symmetric; add --no-symmetry, or start afresh")
    idle = [
        block
        for block, channels in hidden.items()
        if is_idle(channels) and f"{block}.first.weight" in taken
    ]
    for block in idle:
        del taken[f"{block}.first.weight"], taken[f"{block}.second.weight"]
    new = {name: fresh for name, fresh in own.items() if name not in taken}
    outputs = ("up.", "second.")  # the last layers of a scale and of a block
    taken |= {n: torch.zeros_like(p) for n, p in new.items() if any(x in n for x in outputs)}
    for network in (run.network, run.averaged):
        network.load_state_dict(taken, strict=False)
    return idle


def _largest(values: Tensor, count: int, group: int) -> Tensor:
    """Indices of the ``count`` largest values, in order; only whole groups of neighbours."""
    chosen = values.view(-1, group).sum(1).topk(count // group).indices.sort().values
    return (chosen[:, None] * group + torch.arange(group)).flatten()
