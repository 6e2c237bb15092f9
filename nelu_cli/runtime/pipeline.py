"""The pipeline from noisy to clean pixels, and the Python interface.

Pixels stay in their own dtype; only the tile in work is float. What the network takes out is
subtracted from the original pixels, so depth and range are kept: ``output = y + s·(x̂ − y)`` for
input y, estimate x̂ and strength s.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nelu_cli import checkpoints
from nelu_cli.errors import CheckpointError, ImageError, UsageError
from nelu_cli.images import strips, to_dtype
from nelu_cli.networks import DeepConfig, Network
from nelu_cli.networks.deep import DEEP_STRIP, FEW_STRIPS, LEAST_ROWS
from nelu_cli.networks.padding import pad_image
from nelu_cli.networks.paper import STRIP
from nelu_cli.networks.parallel import thread_count
from nelu_cli.networks.symmetry import ORIENTATIONS, turned
from nelu_cli.runtime.tiling import Region, TileProgress, choose_tile, plan_tiles, stream_tiles

__all__ = [
    "DEFAULT_MEMORY",
    "Model",
    "Quality",
    "denoise",
    "denoise_pixels",
    "estimate_noise",
    "find_device",
    "load_model",
    "preferred_model",
]

DEFAULT_MEMORY: Final = 2 << 30  # bytes: 34 Mpx of colour in one tile
LARGEST_PIXEL: Final = 1e38  # so that the next power of two is a float32

Quality = Literal["fast", "normal", "best"]


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
        channels: int = self.network.config.channels
        return channels


def load_model(name: str | Path | None = None, *, channels: int = 1, device: str = "auto") -> Model:
    """Load weights for :func:`denoise`.

    Args:
        name: a bundled model's name, or the path of a weights file. By default the best bundled
            model for pictures of ``channels`` channels (3: colour; anything else: grey).
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "mps".
    """
    chosen = preferred_model(channels) if name is None else name
    where = find_device(device)
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
    kind = "colour" if channels == 3 else "grey"
    raise CheckpointError(f"no weights are bundled for {kind} pictures; name a file of weights")


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
        model: from :func:`load_model`, or what that takes (then loaded at every call); by default
            the best bundled one.
        strength: how much of the estimated noise is taken out, 0 to 1.
        quality: "fast", "normal" (one pass) or "best" (the mean over eight flips and rotations;
            symmetric weights give it in one pass).
        memory: ceiling in bytes for the working memory, on top of input and output.
        progress: called as ``progress(tiles_done, tiles_in_all)``.

    Returns:
        A new array of the same shape and dtype.

    Raises:
        NeluError: the array is no picture, or the weights cannot be had.
    """
    pixels = _as_stack(np.asarray(array))
    if model is None:
        model = _default_model(3 if pixels.shape[-1] == 3 else 1)
    elif not isinstance(model, Model):
        model = load_model(model)
    cleaned, _ = denoise_pixels(
        pixels, model, strength=strength, quality=quality, memory=memory, progress=progress
    )
    return cleaned.reshape(np.shape(array))


def denoise_pixels(
    pixels: NDArray[Any],
    model: Model,
    *,
    strength: float = 1.0,
    quality: Quality = "normal",
    memory: int = DEFAULT_MEMORY,
    noise_map: bool = False,
    progress: TileProgress | None = None,
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Denoise (H, W, C) or (N, H, W, C) pixels tile by tile.

    Returns:
        The cleaned pixels; and, if asked for (it takes twice the time), the standard deviation of
        the noise over the picture, in pixel values, subsampled for large pictures.
    """
    if not 0 <= strength <= 1:
        raise UsageError(f"strength {strength} is outside 0 to 1")
    _check_pixels(pixels, model)
    stack = pixels if pixels.ndim == 4 else pixels[np.newaxis]
    count, height, width, channels = stack.shape
    scale = _scale(pixels)
    wide = _wide(pixels.dtype)
    clean = _passes(model, quality)
    stride, halo = model.network.stride, model.network.halo
    needs = _working_memory(model.network, channels, width)
    room = max(0, *((memory - fixed) // per_pixel for fixed, per_pixel in needs))
    tile = choose_tile(height, width, stride=stride, halo=halo, max_pixels=room)
    tiles = plan_tiles(height, width, tile, stride=stride, halo=halo)
    meter = _NoiseMeter(height, width) if noise_map else None
    fn = clean if meter is None else partial(_clean_and_probe, clean)
    output = np.empty_like(stack, subok=False)

    def clean_page(page: NDArray[Any], cleaned: NDArray[Any], step: TileProgress | None) -> None:
        def read(region: Region) -> Tensor:
            return _to_tensor(page[region], scale)

        def write(core: Region, before: Tensor, after: Tensor) -> None:
            removed: NDArray[np.float32] = (before - after[:channels]).numpy()  # (C, h, w)
            if meter is not None:
                meter.add(core, removed, after[channels:].numpy())
            if strength:
                source, target = page[core], cleaned[core]
                for rows in strips(source.shape):
                    less = removed[:, rows].transpose(1, 2, 0).astype(wide) * (strength * scale)
                    target[rows] = to_dtype(source[rows].astype(wide) - less, pixels.dtype)
            else:
                cleaned[core] = page[core]

        stream_tiles(lambda tile: fn(tile[None])[0], tiles, read, write, step)

    for index in range(count):
        clean_page(stack[index], output[index], _step_of_page(progress, index, count))
    found = None if meter is None else meter.deviation() * scale
    return output.reshape(pixels.shape), found


def _step_of_page(progress: TileProgress | None, index: int, count: int) -> TileProgress | None:
    """Progress over the tiles of all pages, from that over the tiles of one."""
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, count * total)


def estimate_noise(pixels: NDArray[Any], model: Model) -> float:
    """The noise level of (H, W, C) or (N, H, W, C) pixels, in pixel values.

    The median of the noise map, of a sample: a grid of crops from the middle page.
    """
    _check_pixels(pixels, model)
    page = pixels if pixels.ndim == 3 else pixels[len(pixels) // 2]
    crops = np.stack(
        [
            page[top : top + _SAMPLE_SIDE, left : left + _SAMPLE_SIDE]
            for top in _spread(page.shape[0])
            for left in _spread(page.shape[1])
        ]
    )
    scale = _scale(crops)
    noisy = torch.stack([_to_tensor(crop, scale) for crop in crops])
    found = _clean_and_probe(_passes(model, "normal"), noisy)
    cleaned, sensitivity = found.tensor_split(2, dim=1)
    levels = []
    for removed, reaction in zip((noisy - cleaned).numpy(), sensitivity.numpy(), strict=True):
        meter = _NoiseMeter(*crops.shape[1:3])
        meter.add((slice(0, crops.shape[1]), slice(0, crops.shape[2])), removed, reaction)
        levels.append(meter.deviation())
    return float(np.median(levels)) * scale


# How the network is run


def _passes(model: Model, quality: Quality) -> Callable[[Tensor], Tensor]:
    """The function that cleans tiles (N, C, h, w)."""
    if quality not in get_args(Quality):
        raise UsageError(f"unknown quality {quality!r}; choose fast, normal or best")
    network, config = model.network, model.network.config
    symmetric = isinstance(config, DeepConfig) and config.symmetric

    def full(image: Tensor) -> Tensor:
        if quality == "best" and not symmetric:  # else one pass is the average
            return flip_average(network, image, network.stride)
        estimate: Tensor = network(image)
        return estimate

    def clean(tiles: Tensor) -> Tensor:
        with torch.inference_mode():
            groups = torch.split(tiles, model.channels, dim=1)
            return torch.cat([full(group.to(model.device)).cpu() for group in groups], dim=1)

    return clean


def flip_average(fn: Callable[[Tensor], Tensor], image: Tensor, stride: int) -> Tensor:
    """Mean of ``fn`` over the eight symmetries of the square, each undone afterwards.

    ``image`` (B, C, H, W) is first padded to multiples of ``stride`` at the right and bottom, so
    that a flip maps the network's grid onto itself.
    """
    height, width = image.shape[-2:]
    padded = pad_image(image, 0, -width % stride, 0, -height % stride)
    total = torch.zeros_like(padded)
    for g in range(ORIENTATIONS):
        undo = -g % 4 if g < 4 else g  # a reflection undoes itself
        total += turned(fn(turned(padded, g).contiguous()), undo)
    return (total / ORIENTATIONS)[..., :height, :width]


def _clean_and_probe(clean: Callable[[Tensor], Tensor], tiles: Tensor) -> Tensor:
    """The clean tiles (N, C, h, w), followed by the sensitivity at each pixel: (N, 2C, h, w).

    The sensitivity is ε·(f(y + hε) − f(y))/h for random signs ε; its local mean estimates the
    mean of ∂fᵢ/∂yᵢ, the share of the noise that a denoiser cannot tell from the picture.
    """
    cleaned = clean(tiles)
    signs = torch.randint(0, 2, tiles.shape, generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    step = 0.1 * float((tiles - cleaned).square().mean().sqrt()) + 1e-6
    return torch.cat([cleaned, (clean(tiles + step * signs) - cleaned) * signs / step], dim=1)


def _working_memory(network: Network, channels: int, width: int) -> list[tuple[int, int]]:
    """Bytes that a pass over a tile takes, of at most that width: in any case, and for each pixel.

    Several such pairs if each is enough. They count the feature maps, or strips of them, that are
    alive at the peak of a pass, as measured on the CPU (growth of the resident size, and PyTorch's
    own count of its allocations, which the tests repeat), rounded up; and the pixels' own copies in
    float.
    """
    config = network.config
    if isinstance(config, DeepConfig):  # 4 bytes a sample, a quarter of the pixels at 1/2
        most = [max(pair) for pair in zip(config.widths, config.insides, strict=True)]
        maps = [size >> 2 * scale for scale, size in enumerate(most)]
        whole = max(6 * size + sum(maps[:scale]) for scale, size in enumerate(maps))
        row = 4 * max(maps) * -(-width // 2)
        strip = max(4 * DEEP_STRIP * max(maps) // config.widths[0], LEAST_ROWS * row)
        in_strips = 6 * FEW_STRIPS * strip + network.halo * row
        return [(0, whole + 16 * channels), (in_strips, 16 * channels)]
    patch = config.channels * config.kernel**2
    at_once = thread_count() * max(STRIP, width + config.kernel)  # patches: a strip on each thread
    held = 5 * at_once * max(5 * patch + 3 * config.filters, patch + 7 * config.filters)
    return [(held, 64 * config.channels + 32 * channels)]


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


@cache
def _default_model(channels: int) -> Model:
    return load_model(channels=channels)


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
    away from the ends of float32. Those with a learned bias want 8-bit or 0–1 pictures at full
    contrast, as they were trained on.
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
    if peak > LARGEST_PIXEL:
        raise ImageError(
            f"pixel values reach {peak:.3g}, perhaps a mark of missing pixels; replace them first"
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
    height, width, channels = pixels.shape
    planes = np.empty((channels, height, width), np.float32)
    for rows in strips(pixels.shape):
        scaled = pixels[rows].astype(_wide(pixels.dtype)) / scale
        planes[:, rows] = scaled.transpose(2, 0, 1)
    return torch.from_numpy(planes)


# The noise that was found

_MAP_PIXELS: Final = 2_000_000  # most pixels of a noise map
_MAP_WINDOW: Final = 15  # picture pixels, the side of the box for local means
_SAMPLES: Final = 3  # most crops along each side of a picture
_SAMPLE_SIDE: Final = 48  # with 64 the level is hardly closer, and takes a third longer to find
_LEAST_SHARE: Final = 0.05  # of the noise that must have been removed to judge by it


def _spread(length: int) -> list[int]:
    """Starts of the crops along one side of a picture; they cover at most half of it."""
    crops = min(_SAMPLES, max(1, length // (2 * _SAMPLE_SIDE)))
    last = max(0, length - _SAMPLE_SIDE)
    return [k * last // (crops - 1) for k in range(crops)] if crops > 1 else [last // 2]


class _NoiseMeter:
    """Measures the noise level from what a denoiser removes and from how it reacts.

    For noise of deviation σ and a denoiser f that leaves as small an error as can be,
    E(y − f(y))² = σ²·(1 − E ∂f/∂y), by Stein's identity: what is missing from the energy of the
    residual is the noise that stays in the picture, hidden in its texture. Both sides are collected
    in blocks of ``block`` × ``block`` pixels and averaged over a window.
    """

    def __init__(self, height: int, width: int) -> None:
        self.block = max(1, math.ceil(math.sqrt(height * width / _MAP_PIXELS)))
        shape = (-(-height // self.block), -(-width // self.block))
        self.energy = np.zeros(shape)
        self.sensitivity = np.zeros(shape)
        self.count = np.zeros(shape)

    def add(
        self, core: Region, removed: NDArray[np.float32], sensitivity: NDArray[np.float32]
    ) -> None:
        """Add what was removed from the region ``core`` and the sensitivity there, (C, h, w)."""
        rows, cols = (self._blocks(part) for part in core)
        where = np.ix_(
            *(np.arange(part.start // self.block, -(-part.stop // self.block)) for part in core)
        )
        for total, values in (
            (self.energy, np.einsum("chw,chw->hw", removed, removed)),
            (self.sensitivity, sensitivity.sum(axis=0)),
            (self.count, np.full(removed.shape[1:], len(removed))),
        ):
            total[where] += np.add.reduceat(np.add.reduceat(values, rows, axis=0), cols, axis=1)

    def _blocks(self, part: slice) -> NDArray[np.intp]:
        """Where blocks start inside ``part``."""
        first = part.start // self.block * self.block
        starts: NDArray[np.intp] = np.arange(first, part.stop, self.block) - part.start
        starts[0] = 0
        return starts

    def deviation(self) -> NDArray[np.float64]:
        """The noise level of each block."""
        side = max(1, round((_MAP_WINDOW / self.block - 1) / 2) * 2 + 1)
        energy, sensitivity, count = (
            F.avg_pool2d(torch.from_numpy(field)[None], side, 1, side // 2)[0].numpy()
            for field in (self.energy, self.sensitivity, self.count)
        )
        share = np.clip(1 - sensitivity / count, _LEAST_SHARE, 1)
        deviation: NDArray[np.float64] = np.sqrt(energy / count / share)
        return deviation
