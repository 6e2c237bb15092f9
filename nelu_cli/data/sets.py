"""Sets of pictures.

A set is a folder of pictures. Its name is looked up in the data folder given, then in the folder
of the environment variable NELU_DATA, then in the user's cache, where ``nelu data fetch`` puts it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nelu_cli import images
from nelu_cli.data import downloads
from nelu_cli.errors import DatasetError, ImageError
from nelu_cli.images.picture import rescale

SAMPLES = "samples"
"""Photographs that come with scikit-image: something to try with, not a benchmark."""
NOISY, CLEAN = "_real", "_mean"
"""How the names of a pair end: one shot, and the mean of many."""
_SAMPLE_FILES = ("astronaut.png", "camera.png", "chelsea.png", "coffee.png", "motorcycle_left.png")


@dataclass(frozen=True)
class ImageSet:
    """A named set of picture files, in the order of their names."""

    name: str
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class Pair:
    """A noisy photograph and its clean counterpart."""

    name: str
    noisy: Path
    clean: Path


def pairs_of(images: ImageSet) -> tuple[Pair, ...]:
    """The pairs ``NAME_real`` and ``NAME_mean`` of a set; none if it has no such names."""
    by_stem = {path.with_suffix("").as_posix(): path for path in images.paths}
    return tuple(
        Pair(path.stem.removesuffix(NOISY), path, by_stem[stem.removesuffix(NOISY) + CLEAN])
        for stem, path in by_stem.items()
        if stem.endswith(NOISY) and stem.removesuffix(NOISY) + CLEAN in by_stem
    )


def matched_pairs(noisy: ImageSet, clean: ImageSet) -> tuple[Pair, ...]:
    """Pairs of two folders whose files have the same names, but for their extensions."""
    by_stem = {path.stem: path for path in clean.paths}
    alone = [path.name for path in noisy.paths if path.stem not in by_stem]
    if alone:
        raise DatasetError(
            f"{noisy.paths[0].parent}: {len(alone)} of {len(noisy.paths)} pictures have no "
            f"counterpart of the same name in {clean.paths[0].parent}, {alone[0]} for one"
        )
    return tuple(Pair(path.stem, path, by_stem[path.stem]) for path in noisy.paths)


def cache_dir() -> Path:
    """Where downloaded sets are kept: NELU_CACHE, else the user's cache folder."""
    if folder := os.environ.get("NELU_CACHE"):
        return Path(folder)
    import platformdirs

    return platformdirs.user_cache_path("nelu") / "data"


def find(name: str, data_dir: Path | None = None) -> ImageSet:
    """Find a set by its name, or by the path of a folder (walked recursively).

    What begins with a dot, such as ``./bsd68``, is a path only.
    """
    if name == SAMPLES:
        return _samples()
    roots = [data_dir] if data_dir else []
    if environment := os.environ.get("NELU_DATA"):
        roots.append(Path(environment))
    roots.append(cache_dir())
    named = [] if name.startswith(".") else [root / name for root in roots]
    empty: Path | None = None
    for folder in [*named, Path(name)]:
        if folder.is_dir():
            paths = tuple(sorted(p for p in folder.rglob("*") if _is_picture(p, folder)))
            if paths:
                return ImageSet(Path(os.path.abspath(folder)).name or name, paths)
            empty = empty or folder
    if empty and name not in downloads.CATALOGUE:
        raise DatasetError(f"{empty}: no pictures in this folder")
    if public := downloads.CATALOGUE.get(name):
        raise DatasetError(
            f"{name}: not on this machine; run `nelu data fetch {name}`, or put the files of "
            f"{public.source} into {roots[0] / name} by hand"
        )
    places = ", ".join(map(str, roots))
    raise DatasetError(
        f"{name}: no such dataset in {places}, and no such folder; see `nelu data list`"
    )


def _is_picture(path: Path, folder: Path) -> bool:
    """Whether a file in the folder is a picture and neither it nor a folder around it is hidden."""
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix.lower() in images.EXTENSIONS and not hidden and path.is_file()


def _samples() -> ImageSet:
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    paths = tuple(folder / name for name in _SAMPLE_FILES if (folder / name).is_file())
    if not paths:
        raise DatasetError(f"{folder}: this scikit-image comes without its sample pictures")
    return ImageSet(SAMPLES, paths)


def load_pixels(path: Path, channels: int) -> NDArray[np.uint8]:
    """8-bit pixels (H, W, channels); one channel of a colour picture is its Rec. 601 luma.

    Greater depths are rounded to 8 bits, white staying white (floats count as 0–1); alpha is
    dropped; of a stack, the first picture is taken.
    """
    try:
        picture = images.read(path)
    except ImageError as error:
        raise DatasetError(str(error)) from error
    stored = picture.pixels if picture.pixels.ndim == 3 else picture.pixels[0]
    if stored.dtype.kind == "f" and np.mean(stored > 1) > 0.5:
        raise DatasetError(
            f"{path}: floating-point values should be within 0–1; rescale them first"
        )
    if stored.dtype in (np.uint16, np.int16) and 0 < stored.max() < picture.white / 8:
        raise DatasetError(f"{path}: its values use less than an eighth of 16 bits; rescale them")
    height, width, bands = stored.shape
    mode = "CMYK" if picture.metadata.cmyk else {1: "L", 3: "RGB"}.get(bands)
    if mode is None:
        raise DatasetError(f"{path}: has {bands} channels; a dataset needs grey or colour pictures")
    shallow = rescale(stored, np.uint8, picture.white)
    image = Image.frombytes(mode, (width, height), shallow.tobytes())
    pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(height, width, channels)


def load_clean(path: Path, channels: int) -> NDArray[np.float32]:
    """A clean picture (H, W, channels) as float32 in 0–1."""
    return load_pixels(path, channels).astype(np.float32) / np.float32(255)
