"""Training: configuration, the loop, the run folder, optimizers, transplanted weights."""

from nelu_cli.training.config import Loss, Precision, Schedule, TrainConfig
from nelu_cli.training.loop import Event, train
from nelu_cli.training.run import load_run

__all__ = ["Event", "Loss", "Precision", "Schedule", "TrainConfig", "load_run", "train"]
