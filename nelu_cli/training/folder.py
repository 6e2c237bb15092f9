"""The folder of a run: its settings, its log. Whatever is damaged there is one clear line."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from nelu_cli import checkpoints
from nelu_cli.atomic import held, write_whole
from nelu_cli.errors import CheckpointError, NeluError, TrainingError
from nelu_cli.networks import Config, family
from nelu_cli.training.config import TrainConfig, check_types

CONFIG, LOG = "config.json", "log.jsonl"


@dataclass(frozen=True)
class Event:
    """What a run reports as it goes; a line of its log."""

    step: int
    progress: float
    loss: float
    lr: float
    megapixels_per_second: float
    data_share: float
    """Share of the time that was spent waiting for patches."""
    seconds: float
    seconds_left: float
    void: int = 0
    """Steps so far that moved nothing, for their gradient was not finite."""
    validation: Mapping[str, float] | None = None


@contextlib.contextmanager
def owned(out: Path, resume: bool) -> Iterator[None]:
    """A run's folder, made unless it is resumed, in which nobody else trains until the block ends.

    Raises:
        TrainingError: somebody does.
    """
    if not resume:
        out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(out))
        except BlockingIOError:
            raise TrainingError(
                f"{out}: another nelu train is at work on this run; stop it first, or choose "
                "another --out"
            ) from None
        except OSError as error:
            raise TrainingError(f"{out}: cannot be opened ({error.strerror})") from error
        yield


def save_run(out: Path, config: TrainConfig, network_config: Config, command: str) -> None:
    """Write down what a run is, and by which commands it was begun and resumed."""
    content = {
        "training": asdict(config),
        "network": asdict(network_config) | {"family": network_config.family},
        "command": command,
    }
    write_whole(out / CONFIG, json.dumps(content, indent=1).encode())


def load_run(out: Path) -> tuple[TrainConfig, Config]:
    """The configs of a run that was begun in ``out``.

    Raises:
        TrainingError: there is none, or its file is damaged.
    """
    path = out / CONFIG
    if not path.exists():
        raise TrainingError(f"{path}: no run to resume here")
    try:
        content = json.loads(path.read_bytes())
        network_config = family(content["network"].pop("family")).config(**content["network"])
        check_types(network_config)
        return TrainConfig(**content["training"]), network_config
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror})") from error
    except (NeluError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        fault = str(error) if isinstance(error, NeluError) else f"{type(error).__name__}: {error}"
        raise TrainingError(
            f"{path}: damaged, so the run cannot be resumed ({fault}); begin another one, with "
            "--start-from its weights"
        ) from error


def begun_with(out: Path) -> str:
    """The commands that a run was made by so far."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        return str(json.loads((out / CONFIG).read_bytes())["command"])
    with contextlib.suppress(CheckpointError):  # of a run of older versions
        return checkpoints.read_description(out / "last.safetensors").record.command
    return ""


def append_event(out: Path, event: Event) -> None:
    """Add a line to the log."""
    path = out / LOG
    try:
        with open(path, "a", encoding="utf-8") as log:
            log.write(json.dumps(asdict(event)) + "\n")
    except OSError as error:
        raise TrainingError(f"{path}: cannot be written ({error.strerror})") from error


def read_log(out: Path) -> list[Event]:
    """The lines of a log that can be understood; a power cut may have left others."""
    path = out / LOG
    events = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, TypeError, TrainingError, RecursionError):
            event = Event(**json.loads(line))
            check_types(event)
            events.append(event)
    return events


def forget_after(out: Path, step: int) -> None:
    """Drop what a run logged after the state from which it goes on, and what is damaged."""
    lines = [json.dumps(asdict(event)) + "\n" for event in read_log(out) if event.step <= step]
    write_whole(out / LOG, "".join(lines).encode())
