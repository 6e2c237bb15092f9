"""Training: configuration, the loop, the run folder, optimizers, transplanted weights."""

from nelu_cli.training.loop import Event, TrainConfig, load_run, train

__all__ = ["Event", "TrainConfig", "load_run", "train"]
