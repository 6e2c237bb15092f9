"""OME-Zarr: what an image says of itself, and a new one that is laid out as another."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from nelu_cli.errors import ImageError

__all__ = ["Multiscale", "array_in", "copy_layout", "is_zarr", "read_multiscale"]

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


@dataclass(frozen=True)
class Multiscale:
    """An image in several resolutions.

    Attributes:
        axes: one letter for each dimension, as "tczyx".
        levels: the paths of its arrays in the group, the finest first.
    """

    axes: str
    levels: tuple[str, ...]


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr group or array."""
    return path.is_dir() and any((path / name).is_file() for name in _METADATA[:4])


def read_multiscale(path: Path) -> Multiscale:
    """What the image at ``path`` says of itself, in OME-Zarr 0.4 or 0.5.

    Raises:
        ImageError: there is no such image.
    """
    with _reported(path):
        attributes: dict[str, Any] = dict(_zarr().open_group(path, mode="r").attrs)
    attributes = attributes.get("ome", attributes)
    images = attributes.get("multiscales")
    if not images:
        kind = "a plate of images" if "plate" in attributes else "no image at its top"
        raise ImageError(f"{path}: {kind}; name one image in it, as {path / '0'}")
    try:
        axes = "".join(
            axis["name"] if isinstance(axis, dict) else axis for axis in images[0]["axes"]
        )
        levels = tuple(str(level["path"]) for level in images[0]["datasets"])
        dimensions = array_in(path, levels[0]).ndim
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ImageError(f"{path}: its description as OME-Zarr is damaged ({error!r})") from error
    if len(axes) != dimensions:
        raise ImageError(f"{path}: {dimensions} dimensions, but its axes are {axes!r}")
    return Multiscale(axes, levels)


def array_in(path: Path, level: str, mode: str = "r") -> Any:
    """An array of a group; ``mode`` "r+" to write into it."""
    with _reported(path):
        return _zarr().open_array(path / level, mode=mode)


def copy_layout(source: Path, target: Path, image: Multiscale) -> None:
    """Make a group that differs from ``source`` in that the image's arrays are still empty.

    Metadata, chunks and compression are the same, and what else is in the group, labels say, is
    copied.
    """
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_dir():
            continue
        in_image = any(name.is_relative_to(level) for level in image.levels)
        if not in_image or name.name in _METADATA:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Whatever Zarr finds wrong, in one line."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ImageError(f"{path}: cannot be read as OME-Zarr ({reason})") from error


def _zarr() -> ModuleType:
    try:
        import zarr
    except ImportError:
        raise ImageError("OME-Zarr needs more packages: pip install 'nelu-cli[dask]'") from None
    return zarr
