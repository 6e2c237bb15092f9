"""The Python interface: arrays, Pillow images and tensors in, the same kind out."""

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from nelu_cli.errors import ImageError, UsageError
from nelu_cli.runtime import noise_level
from nelu_cli.runtime.choice import choose_model
from nelu_cli.runtime.models import Model, Models, default_models
from nelu_cli.runtime.options import DEFAULT_MEMORY, Nan, Options, Quality
from nelu_cli.runtime.pipeline import denoise_pixels
from nelu_cli.runtime.tiling import TileProgress

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["denoise", "estimate_noise"]

Kind = TypeVar("Kind", NDArray[Any], Tensor, "Image")

Array = NDArray[Any]


def denoise(
    picture: Kind,
    model: Model | str | Path | None = None,
    *,
    strength: float = 1.0,
    luma: float = 1.0,
    chroma: float | None = None,
    quality: Quality = "normal",
    axes: str | None = None,
    dtype: DTypeLike | torch.dtype | None = None,
    nan: Nan = "keep",
    memory: int = DEFAULT_MEMORY,
    progress: TileProgress | None = None,
) -> Kind:
    """Remove noise of any unknown level from a picture or a stack of pictures.

    Args:
        picture: an array (H, W), (H, W, C), or a stack (N, H, W) or (N, H, W, C), with at most four
            channels; a tensor (H, W), (C, H, W), (N, H, W) or (N, C, H, W); or a Pillow image. Any
            integer or float type, any range. Three channels are colour, the last of four is alpha
            and stays as it is. Masked pixels and those that are not finite stay as they are.
        model: from :func:`load_model`, or what that takes (then loaded at every call); by default
            the bundled one for the noise that is found, white or a camera's.
        strength: how much of the estimated noise is taken out, 0 to 1.
        luma: how much of that in brightness, 0 to 1.
        chroma: how much of that in colour, 0 to 1; for colour pictures alone.
        quality: "normal" (one pass) or "best" (the mean over eight flips and rotations;
            symmetric weights give it in one pass).
        axes: a letter for each axis, for arrays of any order: Y and X are rows and columns, S the
            samples of a colour (1 grey, 2 grey and alpha, 3 colour, 4 colour and alpha), all others
            (C, T, Z, …) are independent pictures: "TCYX", "ZYX", "SYX".
        dtype: type of the result, its values unchanged but for rounding; by default the picture's.
        nan: "refuse" raises an error if values are not finite.
        memory: ceiling in bytes for the working memory, on top of input and output.
        progress: called as ``progress(done, in_all)``: tiles, or hundredths of them.

    Returns:
        A new picture of the same kind, shape and type.

    Raises:
        NeluError: this is no picture, or the weights cannot be had.
    """
    options = Options(
        strength=strength,
        luma=luma,
        chroma=chroma,
        quality=_current(quality),
        memory=memory,
        dtype=None if dtype is None else _dtype_name(dtype),
        nan=nan,
    )
    given = _take(picture)
    layout = _Layout(axes or given.usual_axes(), given.array.shape)
    pixels, alpha = layout.split(given.array)
    masked = None if given.mask is None else layout.split(given.mask)[0]
    chosen = choose_model(pixels, default_models() if model is None else Models(model)).model
    cleaned = denoise_pixels(pixels, chosen, options, masked=masked, progress=progress).pixels
    result: Kind = given.back(layout.join(cleaned, alpha))
    return result


def estimate_noise(
    picture: "NDArray[Any] | Tensor | Image",
    model: Model | str | Path | None = None,
    *,
    axes: str | None = None,
) -> float:
    """The noise level of a picture, as :func:`denoise` takes it, in pixel values.

    Measured on a sample of the picture, or of the one in the middle of a stack.
    """
    given = _take(picture)
    pixels, _ = _Layout(axes or given.usual_axes(), given.array.shape).split(
        np.ma.getdata(given.array)
    )
    chosen = choose_model(pixels, default_models() if model is None else Models(model)).model
    return noise_level.estimate_noise(pixels, chosen)


def _current(quality: Quality) -> Quality:
    """``fast`` was the same as ``normal``, and is taken for one more version."""
    if str(quality) != "fast":
        return quality
    warnings.warn("quality 'fast' is 'normal', and will go", DeprecationWarning, stacklevel=3)
    return "normal"


def _dtype_name(dtype: DTypeLike | torch.dtype) -> str:
    """The name of a NumPy or torch type of numbers."""
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype
    try:
        found = np.dtype(name)
    except TypeError as error:
        raise UsageError(f"unknown type {dtype!r}; use one of NumPy's") from error
    if found.kind not in "uif":
        raise UsageError(f"a picture cannot be of type {found}; use integers or floats")
    return found.str


# Kinds of pictures


@dataclass(frozen=True)
class _Given:
    """A picture of any kind as an array, what its axes usually mean, and the way back."""

    array: Array
    usual_axes: Callable[[], str]
    back: Callable[[Array], Any]
    mask: NDArray[np.bool_] | None = None


def _take(picture: object) -> _Given:
    if isinstance(picture, Tensor):
        return _take_tensor(picture)
    pillow = sys.modules.get("PIL.Image")  # whoever has such an image has imported it
    if pillow is not None and isinstance(picture, pillow.Image):
        return _take_image(picture)
    if isinstance(picture, np.ma.MaskedArray):
        return _take_masked(picture)
    array = np.asarray(picture)
    return _Given(array, partial(_usual_axes, array, channels_at=-1), lambda result: result)


def _take_masked(array: np.ma.MaskedArray[Any, Any]) -> _Given:
    mask = np.ma.getmaskarray(array)

    def back(result: Array) -> Array:
        return np.ma.MaskedArray(result, mask.copy(), fill_value=array.fill_value)

    return _Given(array.data, partial(_usual_axes, array, channels_at=-1), back, mask)


def _take_tensor(tensor: Tensor) -> _Given:
    inner = tensor.detach().cpu()
    array = (inner.float() if inner.dtype == torch.bfloat16 else inner).numpy()

    def back(result: Array) -> Tensor:
        found = torch.from_numpy(result).to(tensor.device)
        return found.to(tensor.dtype) if result.dtype == array.dtype else found

    return _Given(array, partial(_usual_axes, array, channels_at=-3), back)


def _take_image(image: "Image") -> _Given:
    """Palettes are expanded; what else the image carries goes along."""
    from PIL import Image

    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    if image.mode not in ("L", "LA", "RGB", "RGBA", "CMYK", "I", "F", "I;16", "I;16B", "I;16L"):
        raise ImageError(
            f"a Pillow image of mode {image.mode} cannot be denoised; convert it first"
        )
    array = np.asarray(image)
    axes = "YX" if array.ndim == 2 else "YXC" if image.mode == "CMYK" else "YXS"

    def back(result: Array) -> Image.Image:
        if result.dtype != array.dtype:
            return Image.fromarray(result)
        found = Image.frombytes(image.mode, image.size, result.tobytes())
        found.info = dict(image.info)
        return found

    return _Given(array, lambda: axes, back)


# Axes


def _usual_axes(array: Array, channels_at: int) -> str:
    """What the axes of an array mean if nobody says it; channels are last, or third from last."""
    if array.ndim == 2:
        return "YX"
    if array.ndim == 3 and array.shape[channels_at] > 4:
        return "NYX"
    if array.ndim in (3, 4):
        channels = array.shape[channels_at]
        if channels > 4:
            raise ImageError(
                f"an array of shape {array.shape} would have {channels} channels; "
                "say what its axes are, as in axes='TCYX'"
            )
        letter = "C" if channels == 2 else "S"
        return "N"[: array.ndim - 3] + ("YX" + letter if channels_at == -1 else letter + "YX")
    raise ImageError(
        f"an array of shape {array.shape} is no picture; give (H, W), (H, W, C), a stack "
        "(N, H, W) or (N, H, W, C), or say what its axes are, as in axes='TCYX'"
    )


@dataclass(frozen=True)
class _Layout:
    """How an array of any order becomes a stack (N, H, W, C), and the way back."""

    axes: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        axes = self.axes
        if len(set(axes)) != len(axes) or not {"X", "Y"} <= set(axes) or not axes.isupper():
            raise UsageError(f"axes {axes!r}: give each axis a capital letter, Y and X among them")
        if len(axes) != len(self.shape):
            raise UsageError(f"axes {axes!r} do not fit an array of shape {self.shape}")
        if "S" in axes and not 1 <= self.shape[axes.index("S")] <= 4:
            samples = self.shape[axes.index("S")]
            raise UsageError(f"axes {axes!r}: {samples} samples are no colour; call them C")

    @property
    def order(self) -> list[int]:
        """The axes of the array in the order of the stack: pages, rows, columns, samples."""
        last = [self.axes.index(letter) for letter in "YXS" if letter in self.axes]
        return [axis for axis in range(len(self.axes)) if axis not in last] + last

    def split(self, array: Array) -> tuple[Array, Array | None]:
        """Colours (N, H, W, C), and alpha (N, H, W, 1)."""
        if array.size == 0:
            raise ImageError(f"an array of shape {array.shape} holds no pixels")
        moved = array.transpose(self.order)
        if "S" not in self.axes:
            moved = moved[..., np.newaxis]
        pages = moved.reshape(-1, *moved.shape[-3:])
        if pages.shape[-1] in (2, 4):
            return pages[..., :-1], pages[..., -1:]
        return pages, None

    def join(self, pixels: Array, alpha: Array | None) -> Array:
        """The array of these colours and alpha."""
        if alpha is not None:
            dtype = pixels.dtype  # its byte order, too
            pixels = np.concatenate([pixels, alpha], axis=-1, dtype=dtype, casting="unsafe")
            pixels = pixels.astype(dtype, copy=False)
        moved = pixels.reshape([self.shape[axis] for axis in self.order])
        return np.ascontiguousarray(moved.transpose(np.argsort(self.order)))
