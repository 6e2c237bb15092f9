"""The file that is written: may it be, can it hold the picture, and how it is written."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from nelu_cli import images
from nelu_cli.atomic import write_whole
from nelu_cli.errors import ImageError
from nelu_cli.files.settings import Settings
from nelu_cli.images import Picture, to_dtype
from nelu_cli.images.convert import check_size, developed, fit
from nelu_cli.images.picture import Refusal, to_bilevel


def is_to_be_skipped(target: Path | None, settings: Settings) -> bool:
    """Whether to skip a picture because its result exists; refuse to replace it unasked."""
    if target is None:
        return False
    if not target.exists():
        if target.is_symlink():
            raise ImageError(f"{target}: is a link that leads nowhere; remove it first")
        return False
    if target.is_dir():
        raise ImageError(f"{target}: is a folder, where a picture should be written")
    if settings.skip_existing:
        return True
    if not settings.force and target.is_file():
        raise ImageError(
            f"{target}: exists already; --force replaces it, --skip-existing leaves it"
        )
    return False


def check_fits(picture: Picture, format: str, name: str, settings: Settings) -> None:
    """Find out from one pixel, before the work, whether the format can hold such a picture."""
    alpha = picture.alpha
    corner = replace(
        picture,
        pixels=picture.pixels[..., :1, :1, :],
        alpha=None if alpha is None else np.full_like(alpha[..., :1, :1], alpha.min()),
    )
    corner = developed(corner, format, corner=True)
    try:
        check_size(picture, format)
        corner = as_asked(corner, settings)
        if settings.bilevel and not images.FORMATS[format].bilevel:
            raise Refusal(f"{format} cannot hold one bit per pixel; choose PNG, TIFF, PBM or BMP")
        fit(corner, format, allow_loss=settings.allow_depth_loss)
    except Refusal as error:
        raise ImageError(f"{name}: {error}") from error


def as_asked(picture: Picture, settings: Settings) -> Picture:
    """The same values in another type."""
    dtype = settings.options.dtype
    if settings.bilevel:
        return to_bilevel(picture)
    if dtype is None:
        return picture
    picture = picture.converted(lambda array: to_dtype(array, dtype))
    return replace(picture, metadata=replace(picture.metadata, white=None))


def write_picture(
    picture: Picture, target: Path | None, format: str, settings: Settings
) -> tuple[str, ...]:
    """Write it; tell what was left out or changed."""
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
    return images.write(
        picture,
        sys.stdout.buffer if target is None else target,
        format=format,
        strip=settings.strip,
        allow_depth_loss=settings.allow_depth_loss,
        colour=settings.colour,
        overwrite=settings.force,
    )


def write_bytes(content: bytes, target: Path | None, settings: Settings) -> None:
    """Write a file, or to standard output."""
    if target is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, content, replace=settings.force)
