"""float32 or bfloat16: what the processor is faster in, and what a picture needs.

Our networks are homogeneous, so that bfloat16's rounding is relative to what they estimate, the
noise, and not to the picture. The pixels, the first convolution, the sums inside NeLU and the
subtraction are float32 in any case.
"""

import json
import platform
import time
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from nelu_cli.atomic import write_whole
from nelu_cli.errors import UsageError
from nelu_cli.words import Precision

Format = Literal["float32", "bfloat16"]

WORTH_IT: Final = 1.2  # times as fast as float32, so that bfloat16 is chosen
VISIBLE: Final = 1 / 128  # noise, as a part of the picture's range, below which it could be seen
LOWER_QUARTILE: Final = 0.3186  # of |x| for a standard normal x
_SAMPLES: Final = 1_000_000  # pixels, about, by which a picture is judged
_TRIALS: Final = 5


def choose_precision(wanted: str, device: torch.device) -> Format:
    """What to compute in on a device: as asked, or what is faster there."""
    match wanted:
        case "float32" | "bfloat16":
            return wanted
        case "auto":
            return "bfloat16" if bfloat16_pays(device.type) else "float32"
    choices = ", ".join(get_args(Precision))
    raise UsageError(f"unknown precision {wanted!r}; choose one of {choices}")


def needs_float32(pixels: NDArray[Any]) -> bool:
    """Whether bfloat16 could be seen in the pixels (..., H, W, C).

    A coefficient is rounded to 2⁻⁹ of itself, and at an edge it is as large as the edge. On
    photographs this makes an error of 1.6e-4 of the picture's range (root mean square), whatever
    the noise. 8 bits cannot show that. More bits can, where the noise is not far above it. How
    strong the noise is, differences of four neighbours tell,

        d = (y₀₀ − y₀₁ − y₁₀ + y₁₁)/2,

    which have its deviation; the lower quartile of |d|, as it shows first where the picture is
    quiet. Texture counts as noise: it hides as much.
    """
    if pixels.dtype.kind not in "uif" or pixels.dtype.itemsize == 1:
        return False
    page = pixels if pixels.ndim < 4 else pixels[len(pixels) // 2]
    step = 2 * max(1, page.size // _SAMPLES)  # rows from one pair to the next
    count = len(page) // 2 * 2
    with np.errstate(all="ignore"):  # infinite pixels are refused elsewhere
        upper = page[0:count:step].astype(np.float64)
        lower = page[1:count:step].astype(np.float64)
        down = upper - lower
        differences = np.abs(down[:, 1:] - down[:, :-1]) / 2
        if differences.size == 0:
            return True
        deviation = np.quantile(differences, 0.25) / LOWER_QUARTILE
        span = max(upper.max(), lower.max()) - min(upper.min(), lower.min())
        return not deviation >= VISIBLE * span


@cache
def bfloat16_pays(device: str) -> bool:
    """Whether bfloat16 is the faster of the two.

    Graphics cards: as is usual there, bfloat16 on those of NVIDIA's that have it, float32 on
    Apple's. Processors without the instructions emulate it several times slower; where they are
    there, one small convolution is timed in both, once for each processor and version of PyTorch.
    """
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    if device != "cpu" or not _has_instructions():
        return False
    key = f"{_processor()}, torch {torch.__version__}"
    known = _read_timings()
    if key not in known:
        known[key] = {"float32": _seconds(torch.float32), "bfloat16": _seconds(torch.bfloat16)}
        _write_timings(known)
    return known[key]["float32"] > WORTH_IT * known[key]["bfloat16"]


def _has_instructions() -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    flags = _cpuinfo("flags") or _cpuinfo("Features")  # of Intel and AMD, of ARM
    if flags is None:  # not Linux: let the timing tell
        return True
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags.split())


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(field: str) -> str | None:
    """What Linux says of its first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == field), None)


@torch.inference_mode()
def _seconds(dtype: torch.dtype) -> float:
    """The time of a 64→64 3×3 convolution of 64² positions, the best of some."""
    image = torch.ones(1, 64, 64, 64, dtype=dtype).contiguous(memory_format=torch.channels_last)
    kernel = torch.ones(64, 64, 3, 3, dtype=dtype).contiguous(memory_format=torch.channels_last)
    times = []
    for _ in range(_TRIALS + 1):  # the first is slower
        start = time.perf_counter()
        F.conv2d(image, kernel, padding=1)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _timings_file() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("nelu") / "precision.json"


def _read_timings() -> dict[str, dict[str, float]]:
    """What was measured before; nothing if the file cannot be read or is damaged."""
    try:
        content = json.loads(_timings_file().read_text("utf-8"))
        return {
            str(key): {name: float(times[name]) for name in get_args(Format)}
            for key, times in content.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _write_timings(timings: dict[str, dict[str, float]]) -> None:
    """Remember; where that cannot be, the next process measures again."""
    path = _timings_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(timings, indent=1).encode())
    except OSError:
        pass
