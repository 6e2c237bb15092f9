"""The Python interface: arrays of all kinds, Pillow images and tensors in, the same kind out."""

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
from nelu_cli.runtime.layout import Array, Layout, usual_axes
from nelu_cli.runtime.lazy import axes_of, denoise_lazily, is_labelled, is_lazy, middle_of
from nelu_cli.runtime.models import Model, Models, default_models
from nelu_cli.runtime.options import DEFAULT_MEMORY, Options
from nelu_cli.runtime.pipeline import denoise_pixels
from nelu_cli.runtime.tiling import TileProgress
from nelu_cli.words import Nan, Quality

if TYPE_CHECKING:
    from dask.array import Array as DaskArray
    from PIL.Image import Image
    from xarray import DataArray

Kind = TypeVar("Kind", NDArray[Any], Tensor, "Image", "DaskArray", "DataArray")


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
            A Dask array gives a lazy Dask array: nothing is computed yet. An xarray.DataArray
            gives one with the same coordinates and attributes, lazy if it holds a Dask array; its
            dimensions called y and x are rows and columns, one called rgb is a colour.
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

        Blocks of a Dask array are computed with the halo of the network around them: together
        they are the whole, to rounding. Which model is for the noise, the scale of the values and
        whether to dither are settled once for the whole array, in a task of its own that looks at
        the middle 1024×1024 pixels of the middle picture; with ``model`` the noise is not looked
        at. All blocks are computed in float32, if the model has it. Pixels without a value are
        found block by block, and a block of nothing else stays as it is.

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
    result: Kind = _denoise(picture, model, options, axes, progress)
    return result


def _denoise(
    picture: Any,
    model: Model | str | Path | None,
    options: Options,
    axes: str | None,
    progress: TileProgress | None,
) -> Any:
    if is_labelled(picture):
        named = axes or axes_of(picture)
        return picture.copy(data=_denoise(picture.data, model, options, named, progress))
    if is_lazy(picture):
        if progress is not None:
            raise UsageError("a Dask array is not computed yet; its progress is Dask's to tell")
        return denoise_lazily(picture, model, options, axes)
    given = _take(picture)
    layout = Layout(axes or given.usual_axes(), given.array.shape)
    pixels, alpha = layout.split(given.array)
    masked = None if given.mask is None else layout.split(given.mask)[0]
    chosen = choose_model(pixels, default_models() if model is None else Models(model)).model
    cleaned = denoise_pixels(pixels, chosen, options, masked=masked, progress=progress).pixels
    return given.back(layout.join(cleaned, alpha))


def estimate_noise(
    picture: "NDArray[Any] | Tensor | Image | DaskArray | DataArray",
    model: Model | str | Path | None = None,
    *,
    axes: str | None = None,
) -> float:
    """The noise level of a picture, as :func:`denoise` takes it, in pixel values.

    Measured on a sample of the picture, or of the one in the middle of a stack; of a Dask array,
    its middle alone is computed.
    """
    source: Any = picture
    if is_labelled(source):
        axes, source = axes or axes_of(source), source.data
    if is_lazy(source):
        axes = axes or usual_axes(source.shape, channels_at=-1)
        source = np.asarray(middle_of(source, axes))
    given = _take(source)
    pixels, _ = Layout(axes or given.usual_axes(), given.array.shape).split(
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
    given = _taken(picture)
    if given.array.dtype.kind not in "uif":
        raise ImageError(
            f"pixels of type {given.array.dtype} cannot be denoised; use integers or floats"
        )
    return given


def _taken(picture: object) -> _Given:
    if isinstance(picture, Tensor):
        return _take_tensor(picture)
    pillow = sys.modules.get("PIL.Image")  # whoever has such an image has imported it
    if pillow is not None and isinstance(picture, pillow.Image):
        return _take_image(picture)
    if isinstance(picture, np.ma.MaskedArray):
        return _take_masked(picture)
    array = np.asarray(picture)
    return _Given(array, partial(usual_axes, array.shape, channels_at=-1), lambda result: result)


def _take_masked(array: np.ma.MaskedArray[Any, Any]) -> _Given:
    mask = np.ma.getmaskarray(array)

    def back(result: Array) -> Array:
        return np.ma.MaskedArray(result, mask.copy(), fill_value=array.fill_value)

    return _Given(array.data, partial(usual_axes, array.shape, channels_at=-1), back, mask)


def _take_tensor(tensor: Tensor) -> _Given:
    inner = tensor.detach().cpu()
    array = (inner.float() if inner.dtype == torch.bfloat16 else inner).numpy()

    def back(result: Array) -> Tensor:
        found = torch.from_numpy(result).to(tensor.device)
        return found.to(tensor.dtype) if result.dtype == array.dtype else found

    return _Given(array, partial(usual_axes, array.shape, channels_at=-3), back)


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
