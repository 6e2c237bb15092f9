"""OME-Zarr: what an image says of itself, and a new one that is laid out as another."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from nelu_cli.cluster.places import Place
from nelu_cli.errors import ImageError

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


def is_zarr(path: Place) -> bool:
    """Whether a folder is a Zarr group or array."""
    if not path.remote:
        return any(os.path.isfile((path / name).address) for name in _METADATA[:4])
    return path.is_folder() and any((path / name).exists() for name in _METADATA[:4])


def read_multiscale(path: Place) -> Multiscale:
    """What the image at ``path`` says of itself, in OME-Zarr 0.4 or 0.5.

    Raises:
        ImageError: there is no such image.
    """
    with _reported(path):
        attributes: dict[str, Any] = dict(_zarr().open_group(_store(path), mode="r").attrs)
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


def array_in(path: Place, level: str, mode: str = "r") -> Any:
    """An array of a group; ``mode`` "r+" to write into it."""
    with _reported(path):
        return _zarr().open_array(_store(path / level), mode=mode)


def copy_layout(source: Place, target: Place, image: Multiscale) -> None:
    """Make all of a group that differs from ``source`` in that the image's arrays are still empty.

    Metadata, chunks and compression are the same, and what else is in the group, labels say, is
    copied. The metadata of the group itself are still missing: nobody takes it for an image.
    """
    for name in source.files():
        in_image = any(name.startswith(f"{level}/") for level in image.levels)
        if name not in _METADATA and (not in_image or name.rpartition("/")[2] in _METADATA):
            (target / name).write((source / name).read())


def name_it(source: Place, target: Place) -> None:
    """Make a group of what :func:`copy_layout` made, now that its arrays are filled."""
    for name in _METADATA:
        if (source / name).exists():
            (target / name).write((source / name).read())


def _store(path: Place) -> str | Path:
    return path.address if path.remote else Path(path.address)


@contextlib.contextmanager
def _reported(path: Place) -> Iterator[None]:
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
