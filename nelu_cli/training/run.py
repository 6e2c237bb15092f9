"""One training run: network, optimizer, averages, and the files of its folder."""

import gc
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch import distributed as dist

from nelu_cli import checkpoints
from nelu_cli.atomic import write_whole
from nelu_cli.checkpoints import TrainingRecord
from nelu_cli.data.patches import Batch, PatchSource, load_pictures
from nelu_cli.data.sets import ImageSet, find
from nelu_cli.errors import TrainingError
from nelu_cli.networks import Config, Network, ResidualBlock, build
from nelu_cli.noise import NoiseMix
from nelu_cli.stopping import interrupted_later
from nelu_cli.training.config import Loss, TrainConfig
from nelu_cli.training.optimizers import parameter_optimizers
from nelu_cli.training.processes import rank, world
from nelu_cli.training.validation import REAL, Validation, validation_psnr

CPU = torch.device("cpu")


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


class Run:
    """One training run: network, optimizer, averages, files."""

    def __init__(
        self,
        config: TrainConfig,
        network_config: Config,
        out: Path,
        data_dir: Path | None,
        device: torch.device = CPU,
    ) -> None:
        self.config, self.out, self.device = config, out, device
        self.training, self.validation, self.unreadable = _load_data(
            config, network_config.channels, data_dir
        )
        torch.manual_seed(config.seed)
        self.network = build(network_config)
        self.centred = [m for m in self.network.modules() if isinstance(m, ResidualBlock)]
        for block in self.centred:
            block.centre()
        self.symmetry = self.network.symmetry()
        if self.symmetry:
            self.symmetry.impose(self.network)
        self.network.to(device)
        self.averaged = build(network_config).to(device)
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
        if world() > 1:
            self.model = nn.parallel.DistributedDataParallel(self.network)
        self.step = 0
        self.void = 0
        """Steps that moved nothing, for their gradient was not finite."""
        self.seconds = 0.0
        self.best = -math.inf
        self.latest: dict[str, float] = {}

    def leave_group(self) -> None:
        """Let go of the processes that share the run, so that their group can end.

        The threads of a group end with its last owner. A DistributedDataParallel is an owner,
        too, and, being part of a reference cycle, lives until a garbage collection. A thread that
        returns the tensor of the last exchange just when Python ends is stopped inside C++, which
        aborts the process ("terminate called without an active exception").
        """
        if self.model is not self.network:
            self.model = self.network
            gc.collect()

    # ------------------------------------------------------------------ one step

    def progress(self) -> float:
        """How much of the run is done, 0 to 1, the same on every process."""
        done = self.config.progress(self.step, self.seconds)
        if world() == 1:
            return done
        shared = torch.tensor(done, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return float(shared)

    def items(self, number: int) -> range:
        """This process's share of a batch."""
        return range(rank() * number // world(), (rank() + 1) * number // world())

    def update(self, batch: Batch, progress: float) -> float:
        """One step; its loss. Without a finite gradient it moves nothing, but is counted."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.config.learning_rate(self.step, progress)
        half = self.config.precision == "bfloat16"
        batch = batch.to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            noise = self.model(batch.noisy)
        loss = _loss(self.config.loss, batch.noisy - noise, batch)
        self.network.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.symmetry:
            parameters = self.network.named_parameters()
            self.symmetry.average((n, p.grad) for n, p in parameters if p.grad is not None)
        most = self.config.clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), most)
        value = float(loss.detach())
        if world() > 1:
            mean = torch.tensor(value, dtype=torch.float64, device=self.device)
            dist.all_reduce(mean)
            value = float(mean) / world()
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss became {value} at step {self.step}; the last good state is in "
                f"{self.out}: try a lower --lr"
            )
        with interrupted_later():
            self.step += 1
            if not norm.isfinite():
                self.void += 1
                return value
            for optimizer in self.optimizers:
                optimizer.step()
            for block in self.centred:
                block.centre()
            decay = min(self.config.ema, self.step / (9 + self.step))
            with torch.no_grad():
                pairs = zip(self.averaged.parameters(), self.network.parameters(), strict=True)
                for average, value_now in pairs:
                    average.lerp_(value_now, 1 - decay)
        return value

    # ------------------------------------------------------------------ files

    def validate(self, record: TrainingRecord) -> dict[str, float]:
        chosen_by = self.config.chosen_by
        sigmas = sorted({*self.config.validation_sigmas, *chosen_by})
        self.latest = validation_psnr(self.averaged, self.validation, sigmas)
        judged = [REAL] if REAL in self.latest else [str(sigma) for sigma in chosen_by]
        mean = sum(self.latest[level] for level in judged) / len(judged)
        if mean > self.best:
            self.save_weights("best", record)
            self.best = mean  # only now: an interrupted run has not got them
        return self.latest

    def save_weights(self, name: str, record: TrainingRecord) -> None:
        record = replace(
            record,
            steps=self.step,
            hours=round(self.seconds / 3600, 3),
            validation=dict(self.latest),
            date=datetime.now(UTC).date().isoformat(),
        )
        weights = {n: p.detach().clone() for n, p in self.averaged.state_dict().items()}
        if self.symmetry:  # of the copy, so that saving does not change what is trained
            self.symmetry.average(weights.items())
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
        numbers = {
            name: getattr(self, name) for name in ("step", "void", "seconds", "best", "latest")
        }
        metadata = {"nelu-training": json.dumps(numbers)}
        content = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
        path = self.out / f"{name}.safetensors"
        try:
            write_whole(path, safetensors.torch.save(content, metadata))
        except OSError as error:
            raise TrainingError(f"{path}: cannot be written ({error.strerror})") from error

    def load_state(self, name: str) -> None:
        """Take up what :meth:`save_state` wrote.

        Raises:
            TrainingError: it is missing, damaged, or of another network.
        """
        path = self.out / f"{name}.safetensors"
        if not path.exists():
            raise TrainingError(
                f"{path}: missing, so the run cannot be resumed; begin another one, with "
                "--start-from its weights"
            )
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                numbers = json.loads((file.metadata() or {})["nelu-training"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            for key, network in (("weights", self.network), ("ema", self.averaged)):
                _fill(network, {n: tensors[f"{key}.{n}"] for n, _ in network.named_parameters()})
            self._load_numbers(numbers)
            for optimizer in self.optimizers:
                self._load_optimizer(optimizer, tensors)
        except (
            *(OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError),
            *(ArithmeticError, safetensors.SafetensorError),
        ) as error:
            fault = f"{type(error).__name__}: {error}"
            raise TrainingError(
                f"{path}: damaged, so the run cannot be resumed ({fault}); begin another one, with "
                "--start-from its weights"
            ) from error

    def _load_numbers(self, numbers: Mapping[str, Any]) -> None:
        self.step, self.seconds = int(numbers["step"]), float(numbers["seconds"])
        self.best, self.void = float(numbers["best"]), int(numbers.get("void", 0))
        self.latest = {str(level): float(psnr) for level, psnr in numbers["latest"].items()}
        if self.step < 0 or not 0 <= self.seconds < math.inf or math.isnan(self.best):
            raise ValueError(f"step {self.step} after {self.seconds} seconds")

    def _load_optimizer(
        self, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
    ) -> None:
        names = {p: n for n, p in self.network.named_parameters()}
        keys = set()
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            start = f"optimizer.{names[p]}/"
            for name in (name for name in tensors if name.startswith(start)):
                value = tensors[name]
                if value.shape == p.shape:  # in the memory layout of the parameter
                    value = torch.empty_like(p).copy_(value)
                elif value.ndim:
                    raise ValueError(f"{name} has the shape {tuple(value.shape)}")
                optimizer.state[p][name.removeprefix(start)] = value.to(p.device)
            if p in optimizer.state:
                keys.add(frozenset(optimizer.state[p]))
        if len(keys) > 1:
            raise ValueError("a part of the optimizer is missing")


def _fill(network: Network, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if tensors[name].shape != parameter.shape:
            raise ValueError(f"{name} has the shape {tuple(tensors[name].shape)}")
    network.load_state_dict(tensors)


def _load_data(
    config: TrainConfig, channels: int, data_dir: Path | None
) -> tuple[PatchSource, Validation, int]:
    """What to train on, what to validate on, and how many pictures cannot be read."""
    noise = NoiseMix.parse(config.noise)
    sets, held_out, unreadable = [], [], 0
    for name in config.data:
        paths = find(name, data_dir).paths
        keep = set(paths[:: config.hold_out]) if config.hold_out and len(paths) > 1 else set()
        held_out += sorted(keep)
        chosen = [path for path in paths if path not in keep]
        pictures, failed = load_pictures(chosen, 3 if noise.needs_colour else channels)
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
        noise,
        turn=config.turn,
        grey=channels == 1,
        recolour=config.recolour,
        soft=config.soft,
        vivid=config.vivid,
    )
    return source, validation, unreadable + validation.unreadable


def go_on(run: Run, before: TrainConfig) -> None:
    """Load the state to go on from: if the run is to be longer, that before its cooldown."""
    run.load_state("state")
    longer = run.progress() < before.progress(run.step, run.seconds)
    if longer and (run.out / "stable.safetensors").exists():
        best = run.best
        run.load_state("stable")
        run.best = best
