"""Training: configuration, the loop, the run folder, optimizers, transplanted weights."""

from nelu_cli.training.config import Loss, TrainConfig
from nelu_cli.training.folder import Event, load_run
from nelu_cli.training.loop import RunStopped, train

__all__ = [
    "Event",
    "Loss",
    "RunStopped",
    "TrainConfig",
    "load_run",
    "train",
]
