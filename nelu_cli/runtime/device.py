"""Where to compute."""

import torch

from nelu_cli.errors import UsageError


def find_device(name: str) -> torch.device:
    """The device that a person calls auto, cpu, cuda or mps."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if name not in available:
        raise UsageError(f"unknown device {name!r}; choose auto, {', '.join(available)}")
    if not available[name]:
        raise UsageError(f"device {name} is not available on this machine; use auto or cpu")
    return torch.device(name)
