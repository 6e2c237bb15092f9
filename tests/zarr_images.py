"""OME-Zarr images for the tests of several modules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

Values = NDArray[Any]


def scene(*shape: int, dtype: str = "uint16", seed: int = 0) -> Values:
    rng = np.random.default_rng(seed)
    across = 3000 + 2000 * np.sin(np.arange(shape[-1]) / 15)
    values = across + rng.normal(0, 300, shape)
    return values.astype(dtype) if dtype != "float32" else (values / 5000).astype(dtype)


def save(
    path: Path,
    values: Values,
    axes: str,
    chunks: tuple[int, ...],
    version: str = "0.5",
    factors: Sequence[int] = (1, 2),
) -> Path:
    """An OME-Zarr image with a pyramid in the plane."""
    old = version == "0.4"
    group = zarr.open_group(path, mode="w", zarr_format=2 if old else 3)
    datasets = []
    for level, factor in enumerate(factors):
        plane = (slice(None, None, factor),) * 2
        small = values[(..., *plane)]
        more: dict[str, Any] = {} if old else {"dimension_names": list(axes)}
        array = group.create_array(
            str(level), shape=small.shape, chunks=chunks, dtype=small.dtype, **more
        )
        array[...] = small
        scale = [1.0] * (values.ndim - 2) + [float(factor)] * 2
        transformations = [{"type": "scale", "scale": scale}]
        datasets.append({"path": str(level), "coordinateTransformations": transformations})
    kinds = {"t": "time", "c": "channel"}
    described: Any = [{"name": axis, "type": kinds.get(axis, "space")} for axis in axes]
    image: Any = {"name": "cells", "axes": described, "datasets": datasets}
    if old:
        group.attrs["multiscales"] = [{"version": "0.4", **image}]
        group.attrs["mine"] = {"microscope": "ours"}
    else:
        group.attrs["ome"] = {"version": version, "multiscales": [image]}
        group.attrs["mine"] = {"microscope": "ours"}
    return path


def load(path: Path, level: str = "0") -> Values:
    array = zarr.open_array(path / level, mode="r")
    return np.asarray(array[...])
