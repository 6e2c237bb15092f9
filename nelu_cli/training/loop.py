"""The training loop: steps, events, saving; it goes on after a stop."""

import importlib
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from nelu_cli import __version__, checkpoints
from nelu_cli.atomic import atomic_file
from nelu_cli.checkpoints import TrainingRecord
from nelu_cli.data.patches import Batch
from nelu_cli.errors import TrainingError
from nelu_cli.evaluation.figures import training_curve
from nelu_cli.networks import Config
from nelu_cli.training.config import TrainConfig
from nelu_cli.training.processes import rank, world
from nelu_cli.training.run import CPU, Run, forget_after, go_on, load_run
from nelu_cli.training.transplant import start_from as take_weights

__all__ = ["Event", "train"]

LOG_EVERY = 50  # steps
SAVE_EVERY = 180.0  # seconds
DIVERGED = 30.0  # times the running mean of the loss …
PATIENCE = 10  # … for so many steps in a row


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


def train(
    config: TrainConfig,
    network_config: Config,
    out: Path,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    device: torch.device = CPU,
    command: str = "",
    on_event: Callable[[Event], None] = lambda event: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> None:
    """Train a network, writing to the folder ``out`` as it goes.

    Written: ``config.json``; ``log.jsonl``, an event a line, and ``curve.png``;
    ``best.safetensors`` and ``last.safetensors``, weights for use (the moving average);
    ``state.safetensors``, all that an exact resume needs; ``stable.safetensors``, the state where
    the cooldown of the learning rate began, from which a longer run goes on.

    Of several processes (torchrun), each takes a graphics card of its own if ``device`` is one.

    A KeyboardInterrupt saves and is raised again.
    """
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    if distributed:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        # Imported later, as torch does by itself, its functions would own the group as a default
        # argument until Python ends, see Run.leave_group.
        importlib.import_module("torch.distributed.nn.functional")
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    run = None
    try:
        run = Run(config, network_config, out, data_dir, device)
        _train(run, resume, start_from, command, on_event, on_note)
    finally:
        if run is not None:
            run.leave_group()
        if distributed:
            dist.destroy_process_group()


def _train(
    run: Run,
    resume: bool,
    start_from: str | Path | None,
    command: str,
    on_event: Callable[[Event], None],
    on_note: Callable[[str], None],
) -> None:
    # For the curve. Later, Ctrl-C inside this import could come out as another error, unsaved.
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401

    config, network_config, out = run.config, run.network.config, run.out
    writer = rank() == 0
    if run.unreadable and writer:
        on_note(f"{run.unreadable} pictures could not be read and are left out")
    if resume:
        go_on(run, load_run(out)[0])
        if writer:
            run.save_state("state")  # before the new length, which must not meet an old state
            forget_after(out / "log.jsonl", run.step)
            begun = checkpoints.read_header(out / "last.safetensors").record.command
            command = f"{begun} && {command}"
    elif start_from:
        idle = take_weights(run, start_from)
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
        noise=config.noise,
        sigma=f"{low:g}" if low == high else f"{low:g}-{high:g}",
        seed=config.seed,
        validated_on=run.validation.name,
        chosen_by=() if run.validation.noisy else config.chosen_by,
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
    run: Run, record: TrainingRecord, writer: bool, on_event: Callable[[Event], None]
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
            pixels += current.clean.shape[0] * current.clean.shape[-1] ** 2 * world()
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
