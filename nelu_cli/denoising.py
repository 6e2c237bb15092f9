"""The pipeline from noisy to clean pixels, and the Python interface.

Pixels stay in their own dtype; only the tile in work is float. What the network takes out is
subtracted from the original pixels, so depth and range are kept: ``output = y + s·(x̂ − y)`` for
input y, estimate x̂ and strength s.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nelu_cli import checkpoints
from nelu_cli.errors import CheckpointError, ImageError, UsageError
from nelu_cli.images import to_dtype
from nelu_cli.networks import DeepConfig, Network
from nelu_cli.padding import pad_image
from nelu_cli.shifts import shift_average
from nelu_cli.tiling import Region, TileProgress, choose_tile, plan_tiles, stream_tiles

__all__ = [
    "DEFAULT_MEMORY",
    "Denoised",
    "Model",
    "Quality",
    "denoise",
    "denoise_pixels",
    "estimate_noise",
    "load_model",
    "preferred_model",
]

DEFAULT_MEMORY: Final = 1 << 30  # bytes

Quality = Literal["fast", "normal", "best"]


@dataclass(frozen=True)
class Effort:
    """What is averaged: the eight flips and rotations or not, and shifts of the grid in eighths."""

    flips: bool
    shifts: tuple[tuple[int, int], ...] = ((0, 0),)


EFFORTS: Final[dict[Quality, Effort]] = {
    "fast": Effort(flips=False),
    "normal": Effort(flips=False),
    "best": Effort(flips=True, shifts=((0, 0), (2, 5), (5, 2), (7, 7))),
}

PREFERRED: Final = {1: ("deep-gray",), 3: ("deep-color", "deep-gray")}  # by picture channels


@dataclass(frozen=True)
class Model:
    """Weights, ready to run. Made by :func:`load_model`; may be shared between threads."""

    name: str
    network: Network
    device: torch.device

    @property
    def channels(self) -> int:
        """1: for any picture, channel by channel; 3: for colour pictures."""
        return self.network.config.channels


@dataclass(frozen=True)
class Denoised:
    """The result, and the noise found in the input.

    Attributes:
        pixels: shape and dtype of the input.
        noise_map: standard deviation of the noise over the picture, in pixel values; subsampled
            for large pictures.
    """

    pixels: NDArray[Any]
    noise_map: NDArray[np.float32]

    @property
    def noise(self) -> float:
        """The noise level of the input: the median of the map."""
        return float(np.median(self.noise_map))


def load_model(name: str | Path | None = None, *, channels: int = 1, device: str = "auto") -> Model:
    """Load weights for :func:`denoise`.

    Args:
        name: a bundled model's name, or the path of a weights file. By default the best bundled
            model for pictures of ``channels`` channels (3: colour; anything else: grey).
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "mps".
    """
    chosen = preferred_model(channels) if name is None else name
    where = _find_device(device)
    checkpoint = checkpoints.load(chosen)
    return Model(name=checkpoint.name, network=checkpoint.network.to(where), device=where)


def preferred_model(channels: int) -> str:
    """The bundled model for pictures of so many channels."""
    bundled = checkpoints.bundled()
    channels = 3 if channels == 3 else 1
    for name in PREFERRED[channels]:
        if name in bundled:
            return name
    for name in bundled:
        if checkpoints.read_header(name).config.channels in (1, channels):
            return name
    raise CheckpointError("no weights are bundled with this installation; name a file with --model")


def denoise(
    array: NDArray[Any],
    model: Model | str | Path | None = None,
    *,
    strength: float = 1.0,
    quality: Quality = "normal",
    memory: int = DEFAULT_MEMORY,
    progress: TileProgress | None = None,
) -> NDArray[Any]:
    """Remove noise of any unknown level from a picture or a stack of pictures.

    Args:
        array: (H, W); (H, W, C) with C ≤ 4; a stack (N, H, W) or (N, H, W, C). Any integer or
            float dtype, any range. Three channels are colour; others are done one by one.
        model: from :func:`load_model`, or what that takes; by default the best bundled one.
        strength: how much of the estimated noise is taken out, 0 to 1.
        quality: "fast", "normal" (one pass) or "best" (the mean over flips, rotations and shifts).
        memory: ceiling in bytes for the working memory, on top of input and output.
        progress: called as ``progress(tiles_done, tiles_in_all)``.

    Returns:
        A new array of the same shape and dtype.

    Raises:
        NeluError: the array is no picture, or the weights cannot be had.
    """
    pixels = _as_stack(np.asarray(array))
    if not isinstance(model, Model):
        model = _cached_model(model, 3 if pixels.shape[-1] == 3 else 1)
    result = denoise_pixels(
        pixels, model, strength=strength, quality=quality, memory=memory, progress=progress
    )
    return result.pixels.reshape(np.shape(array))


def denoise_pixels(
    pixels: NDArray[Any],
    model: Model,
    *,
    strength: float = 1.0,
    quality: Quality = "normal",
    memory: int = DEFAULT_MEMORY,
    progress: TileProgress | None = None,
) -> Denoised:
    """Denoise (H, W, C) or (N, H, W, C) pixels and measure their noise, tile by tile."""
    if not 0 <= strength <= 1:
        raise UsageError(f"strength {strength} is outside 0 to 1")
    _check_pixels(pixels, model)
    stack = pixels if pixels.ndim == 4 else pixels[np.newaxis]
    count, height, width, channels = stack.shape
    scale = _scale(pixels)
    wide = _wide(pixels.dtype)
    fn = _passes(model, quality)
    stride, halo = model.network.stride, model.network.halo
    room = memory // _bytes_per_pixel(model.network, channels)
    tile = choose_tile(height, width, stride=stride, halo=halo, max_pixels=room)
    tiles = plan_tiles(height, width, tile, stride=stride, halo=halo)
    meter = _NoiseMeter(height, width)
    output = np.empty_like(stack, subok=False)

    for index in range(count):
        page, cleaned = stack[index], output[index]

        def read(region: Region, page: NDArray[Any] = page) -> Tensor:
            return _to_tensor(page[region], scale)

        def write(
            core: Region,
            before: Tensor,
            after: Tensor,
            page: NDArray[Any] = page,
            cleaned: NDArray[Any] = cleaned,
        ) -> None:
            removed: NDArray[Any] = (before - after).numpy()  # (C, h, w)
            meter.add(core, removed)
            if strength:
                removed = removed.transpose(1, 2, 0).astype(wide) * (strength * scale)
                cleaned[core] = to_dtype(page[core].astype(wide) - removed, pixels.dtype)
            else:
                cleaned[core] = page[core]

        def step(done: int, total: int, index: int = index) -> None:
            if progress is not None:
                progress(index * total + done, count * total)

        stream_tiles(fn, tiles, read, write, step)
    return Denoised(output.reshape(pixels.shape), meter.deviation() * np.float32(scale))


def estimate_noise(pixels: NDArray[Any], model: Model) -> float:
    """The noise level of (H, W, C) or (N, H, W, C) pixels, in pixel values.

    As :attr:`Denoised.noise`, but large pictures are sampled: a grid of crops of the middle page.
    """
    _check_pixels(pixels, model)
    page = pixels if pixels.ndim == 3 else pixels[len(pixels) // 2]
    if page.shape[0] * page.shape[1] > _SAMPLES**2 * _SAMPLE_SIDE**2:
        rows, cols = (
            [slice(start, start + _SAMPLE_SIDE) for start in _spread(length)]
            for length in page.shape[:2]
        )
        crops = [page[row, col] for row in rows for col in cols]
    else:
        crops = [page]
    maps = [denoise_pixels(crop, model).noise_map for crop in crops]
    return float(np.median(np.concatenate([noise_map.ravel() for noise_map in maps])))


# How the network is run


def _passes(model: Model, quality: Quality) -> Callable[[Tensor], Tensor]:
    """The function that cleans one tile (C, h, w)."""
    if quality not in get_args(Quality):
        raise UsageError(f"unknown quality {quality!r}; choose fast, normal or best")
    effort = EFFORTS[quality]
    stride, network = model.network.stride, model.network
    shifts = sorted({(down * stride // 8, right * stride // 8) for down, right in effort.shifts})

    def shifted(image: Tensor) -> Tensor:
        if shifts == [(0, 0)]:
            estimate: Tensor = network(image)
            return estimate
        return shift_average(network, image, shifts, margin=stride)

    def full(image: Tensor) -> Tensor:
        return flip_average(shifted, image, stride) if effort.flips else shifted(image)

    def clean(tile: Tensor) -> Tensor:
        with torch.inference_mode():
            groups = torch.split(tile, model.channels)
            return torch.cat([full(group[None].to(model.device))[0].cpu() for group in groups])

    return clean


def flip_average(fn: Callable[[Tensor], Tensor], image: Tensor, stride: int) -> Tensor:
    """Mean of ``fn`` over the eight symmetries of the square, each undone afterwards.

    ``image`` (B, C, H, W) is first padded to multiples of ``stride`` at the right and bottom, so
    that a flip maps the network's grid onto itself.
    """
    height, width = image.shape[-2:]
    padded = pad_image(image, 0, -width % stride, 0, -height % stride)
    total = torch.zeros_like(padded)
    for quarter_turns in range(4):
        turned = torch.rot90(padded, quarter_turns, (-2, -1))
        both = fn(turned.contiguous()) + fn(turned.flip(-1)).flip(-1)
        total += torch.rot90(both, -quarter_turns, (-2, -1))
    return (total / 8)[..., :height, :width]


def _bytes_per_pixel(network: Network, channels: int) -> int:
    """Working memory of a tile for each pixel that is read, halo included.

    The number of feature maps alive at the peak was measured as the growth of the resident size
    (on the CPU, with tiles of 512² and 1024²) and rounded up; ``test_memory_estimate_is_honest``
    repeats the measurement.
    """
    config = network.config
    if isinstance(config, DeepConfig):  # 4 bytes a sample, a quarter of the pixels at 1/2
        features = 8 * max(width // 4**scale for scale, width in enumerate(config.widths))
    else:
        features = 4 * (5 * config.filters + 3 * config.channels * config.kernel**2)
    return features + 32 * channels


def _find_device(name: str) -> torch.device:
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


@lru_cache(maxsize=4)
def _cached_model(name: str | Path | None, channels: int) -> Model:
    return load_model(name, channels=channels)


# From pixels to tensors


def _as_stack(array: NDArray[Any]) -> NDArray[Any]:
    """View any picture or stack as (N, H, W, C)."""
    match array.ndim:
        case 2:
            return array[np.newaxis, :, :, np.newaxis]
        case 3 if array.shape[-1] <= 4:
            return array[np.newaxis]
        case 3:
            return array[..., np.newaxis]
        case 4:
            return array
    raise ImageError(
        f"an array of shape {array.shape} is no picture; "
        "give (H, W), (H, W, C), or a stack (N, H, W) or (N, H, W, C)"
    )


def _check_pixels(pixels: NDArray[Any], model: Model) -> None:
    if pixels.dtype.kind not in "uif":
        raise ImageError(
            f"pixels of type {pixels.dtype} cannot be denoised; use integers or floats"
        )
    if pixels.size == 0:
        raise ImageError(f"an array of shape {pixels.shape} holds no pixels")
    if model.channels not in (1, pixels.shape[-1]):
        raise ImageError(
            f"model {model.name} needs {model.channels} channels, the picture has "
            f"{pixels.shape[-1]}; choose another model or leave the choice to nelu"
        )


def _scale(pixels: NDArray[Any]) -> float:
    """What to divide pixels by: the dtype's white, unless the values are far from it.

    The default networks do not care (they are scale-equivariant); this keeps their arithmetic
    away from the ends of float32, and the others near the range they were trained on.
    """
    white = 1.0 if pixels.dtype.kind == "f" else float(np.iinfo(pixels.dtype).max)
    with np.errstate(invalid="ignore"):
        peak = max(abs(float(pixels.min())), abs(float(pixels.max())))
    if not math.isfinite(peak):
        bad = sum(int(np.count_nonzero(~np.isfinite(row))) for row in pixels)
        raise ImageError(
            f"{bad} of {pixels.size} pixel values are not finite (NaN or infinity); "
            "replace them first"
        )
    if peak == 0 or white / 256 <= peak <= white * 256:
        return white
    return 2.0 ** math.ceil(math.log2(peak))


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type that holds every value of ``dtype``, or nearly."""
    narrow = dtype.itemsize <= 2 or dtype == np.float32
    return np.dtype(np.float32 if narrow else np.float64)


def _to_tensor(pixels: NDArray[Any], scale: float) -> Tensor:
    """(h, w, C) pixels as a float32 tensor (C, h, w)."""
    scaled = pixels.astype(_wide(pixels.dtype)) / scale
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1), dtype=np.float32))


# The noise that was found

_MAP_PIXELS: Final = 2_000_000  # most pixels of a noise map
_MAP_WINDOW: Final = 15  # picture pixels, the side of the box for the local mean
_SAMPLES: Final = 4  # crops along each side of a large picture
_SAMPLE_SIDE: Final = 256


def _spread(length: int) -> list[int]:
    """Starts of the crops along one side."""
    if length <= _SAMPLES * _SAMPLE_SIDE:
        return list(range(0, length, _SAMPLE_SIDE))
    return [round(k * (length - _SAMPLE_SIDE) / (_SAMPLES - 1)) for k in range(_SAMPLES)]


class _NoiseMeter:
    """Collects the energy of what is removed, in blocks of ``block`` × ``block`` pixels."""

    def __init__(self, height: int, width: int) -> None:
        self.block = max(1, math.ceil(math.sqrt(height * width / _MAP_PIXELS)))
        shape = (-(-height // self.block), -(-width // self.block))
        self.energy = np.zeros(shape)
        self.count = np.zeros(shape)

    def add(self, core: Region, removed: NDArray[np.float32]) -> None:
        """Add what was removed, (C, h, w), from the region ``core``."""
        energy = np.einsum("chw,chw->hw", removed, removed)
        (rows, first_row), (cols, first_col) = (self._blocks(part) for part in core)
        sums = np.add.reduceat(np.add.reduceat(energy, rows, axis=0), cols, axis=1)
        lengths = [
            np.diff(np.append(starts, part.stop - part.start))
            for starts, part in zip((rows, cols), core, strict=True)
        ]
        where = np.s_[first_row : first_row + len(rows), first_col : first_col + len(cols)]
        self.energy[where] += sums
        self.count[where] += np.outer(*lengths) * len(removed)

    def _blocks(self, part: slice) -> tuple[NDArray[np.intp], int]:
        """Where blocks start inside ``part``, and the number of the first block."""
        first = part.start // self.block
        starts = np.arange(first * self.block, part.stop, self.block) - part.start
        return np.maximum(starts, 0), first

    def deviation(self) -> NDArray[np.float32]:
        """Local root mean square of all that was added."""
        side = max(1, round((_MAP_WINDOW / self.block - 1) / 2) * 2 + 1)
        energy, count = (
            F.avg_pool2d(torch.from_numpy(field)[None], side, 1, side // 2)[0].numpy()
            for field in (self.energy, self.count)
        )
        deviation: NDArray[np.float32] = np.sqrt(energy / count).astype(np.float32)
        return deviation
