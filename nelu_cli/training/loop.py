"""The training loop: steps, events, saving; it goes on after a stop."""

import importlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import distributed as dist

from nelu_cli import __version__
from nelu_cli.atomic import sweep
from nelu_cli.checkpoints import TrainingRecord
from nelu_cli.data.patches import Batch
from nelu_cli.errors import TrainingError
from nelu_cli.evaluation.figures import training_curve
from nelu_cli.networks import Config
from nelu_cli.training.config import TrainConfig
from nelu_cli.training.folder import (
    Event,
    append_event,
    begun_with,
    forget_after,
    load_run,
    owned,
    read_log,
    save_run,
)
from nelu_cli.training.processes import rank, world
from nelu_cli.training.run import CPU, Run, go_on
from nelu_cli.training.transplant import start_from as take_weights

LOG_EVERY = 50  # steps
SAVE_EVERY = 180.0  # seconds
DIVERGED = 30.0  # times the running mean of the loss …
PATIENCE = 10  # … or no finite gradient, for so many steps in a row


class RunStopped(KeyboardInterrupt):
    """Ctrl-C or its like, in ``__cause__``; the run is saved and can be resumed."""


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

    The state is there from the start, so that a run can be resumed whenever it is killed. After a
    KeyboardInterrupt the run is saved and :class:`RunStopped` is raised, if there is anything to
    save yet.
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
        if start_from and not resume:
            idle = take_weights(run, start_from)
            if idle and rank() == 0:
                on_note(f"blocks hardly ever on in {start_from} begin afresh: {', '.join(idle)}")
        with owned(out, resume) if rank() == 0 else nullcontext():
            _train(run, resume, command, on_event, on_note)
    finally:
        if run is not None:
            run.leave_group()
        if distributed:
            dist.destroy_process_group()


def _train(
    run: Run,
    resume: bool,
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
        begun = begun_with(out)
        command = f"{begun} && {command}" if begun else command
    run.centred = [block for block in run.centred if block.is_centred()]  # not of older weights
    if writer:
        sweep(out)
        run.save_state("state")  # before the new length, which must not meet an old state
        forget_after(out, run.step)
        save_run(out, config, network_config, command)
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
        if writer and not (out / "best.safetensors").exists():  # stopped while it was measured
            run.validate(record)
    except KeyboardInterrupt as stop:
        if not writer:
            raise
        run.save_state("state")
        if run.step:
            run.save_weights("last", record)
        raise RunStopped from stop


def _loop(
    run: Run, record: TrainingRecord, writer: bool, on_event: Callable[[Event], None]
) -> None:
    config = run.config
    mean_loss: float | None = None
    bad = 0
    waiting = pixels = 0.0
    since_log = since_save = time.monotonic()
    with ThreadPoolExecutor(1) as loader:

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
            void = run.void
            loss = run.update(current, progress)
            mean_loss = loss if mean_loss is None else mean_loss
            jumped = loss > DIVERGED * mean_loss > 0
            if not jumped:
                mean_loss = 0.99 * mean_loss + 0.01 * loss
            bad = bad + 1 if jumped or run.void > void else 0
            if bad >= PATIENCE:
                what = f"the loss jumped to {loss:.3g}" if jumped else "the gradient was not finite"
                raise TrainingError(
                    f"{what} at step {run.step}, the last of {bad} bad ones; the last good state "
                    f"is in {run.out}: try a lower --lr"
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
                    void=run.void,
                    validation=run.validate(record) if validating else None,
                )
                append_event(run.out, event)
                on_event(event)
                if validating:
                    _draw_curve(run.out)
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


def _draw_curve(out: Path) -> None:
    events = read_log(out)
    losses = {event.step: event.loss for event in events}
    validated = {event.step: event.validation for event in events if event.validation}
    training_curve(losses, validated, out / "curve.png")
