"""TIFF files that are written page by page."""

from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import tifffile

from nelu_cli.images import exif
from nelu_cli.images import tiff_tags as tags
from nelu_cli.images.picture import (
    Array,
    PageTags,
    Picture,
    TiffLayout,
    is_bilevel,
    join_alpha,
    row_slices,
    to_dtype,
)

_CLASSIC_LIMIT = 3_000_000_000  # bytes of pixels; beyond 4 GiB offsets need 64 bits


class PageWriter:
    """Writes pictures into a TIFF, one page after the other, each with its layout and tags."""

    def __init__(self, stream: BinaryIO, first: Picture, nbytes: int) -> None:
        """Begin a file.

        Args:
            stream: where to; must be seekable and readable.
            first: the first page, whose layout decides on byte order and size of offsets.
            nbytes: about how many bytes the pixels of all pages take.
        """
        layout = first.metadata.tiff or tags.default_layout(first)
        self._stream = stream
        self._order = layout.byteorder
        self._big = layout.bigtiff or nbytes > _CLASSIC_LIMIT
        self._file = tifffile.TiffWriter(stream, bigtiff=self._big, byteorder=self._order)
        self._children: exif.Directory | None = None

    def add(self, picture: Picture) -> None:
        """Append a page, and the smaller versions of it that its original had."""
        layout = picture.metadata.tiff or tags.default_layout(picture)
        own = layout.pages[0] if layout.pages and layout.byteorder == self._order else PageTags()
        first = self._children is None
        if first:
            self._children = own.tags
        self._write(picture, layout, own.tags, levels=len(own.levels), first=first)
        for size in (*own.levels, *own.thumbnails):
            self._write(_reduced(picture, size), layout, exif.Directory(()), reduced=True)

    def close(self) -> None:
        """Write what remains: the directories that tags of the first page point to."""
        self._file.close()
        if self._children is not None and self._children.children:
            tags.append_children(self._stream, self._children, self._order, big=self._big)

    def _write(
        self,
        picture: Picture,
        layout: TiffLayout,
        directory: exif.Directory,
        *,
        levels: int = 0,
        first: bool = False,
        reduced: bool = False,
    ) -> None:
        lut, white = picture.metadata.lut, picture.metadata.white
        channels = picture.pixels.shape[-1]
        photometric = layout.photometric
        if photometric in (tags.PALETTE, tags.YCBCR) and not lut:
            photometric = tags.RGB
        if channels < tags.COLOURS.get(photometric, 1):
            photometric = tags.BLACK_IS_ZERO
        extra = channels - tags.COLOURS.get(photometric, 1)
        extrasamples = [0] * extra + [layout.extrasample or 2] * (picture.alpha is not None)
        resolution, unit = tags.resolution(directory, self._order) or (None, None)
        data = _encode(picture, layout, self._order)
        self._file.write(
            data,
            photometric=photometric,
            planarconfig=None if data.ndim == 2 else "separate" if layout.planar else "contig",
            bitspersample=white.bit_length() if white else None,
            extrasamples=extrasamples or None,
            colormap=np.frombuffer(lut, np.uint16).reshape(3, -1) if lut else None,
            tile=layout.tile,
            rowsperstrip=layout.rows_per_strip,
            compression=tags.NONE if white else layout.compression,
            predictor=None if white else _predictor(layout, data.dtype),
            subfiletype=1 if reduced else None,
            subifds=levels or None,
            resolution=resolution,
            resolutionunit=unit,
            metadata=None,
            software=False,
            extratags=tags.extratags(directory, self._order, first=first, big=self._big),
        )


def _encode(picture: Picture, layout: TiffLayout, order: str) -> Array:
    """The samples of a page as tifffile wants them: (H, W), (H, W, S) or planar (S, H, W)."""
    if layout.photometric == tags.WHITE_IS_ZERO and picture.pixels.dtype.kind == "u":
        white = picture.pixels.dtype.type(picture.white)
        picture = replace(picture, pixels=white - picture.pixels)
    samples = join_alpha(picture)
    if picture.metadata.white and order == ">":
        samples = samples.byteswap()  # tifffile packs them in the wrong order otherwise
    if samples.shape[-1] == 1:
        return samples[..., 0] > 0 if is_bilevel(picture) else samples[..., 0]
    return np.moveaxis(samples, -1, 0) if layout.planar else samples


def _predictor(layout: TiffLayout, dtype: np.dtype[Any]) -> int | None:
    if layout.predictor == 1 or layout.compression not in tags.PREDICTABLE or dtype.kind == "b":
        return None
    return 3 if dtype.kind == "f" else 2


def _reduced(picture: Picture, size: tuple[int, int]) -> Picture:
    """A smaller version, each pixel the mean of those that it stands for."""
    alpha = None if picture.alpha is None else _means(picture.alpha[..., None], size)[..., 0]
    return replace(picture, pixels=_means(picture.pixels, size), alpha=alpha)


def _means(pixels: Array, size: tuple[int, int]) -> Array:
    """(h, w, C) means over the boxes of a grid that covers (H, W, C) pixels."""
    rows, columns = (
        np.arange(parts) * whole // parts for parts, whole in zip(size, pixels.shape, strict=False)
    )
    ends = np.append(rows[1:], len(pixels))
    across = np.diff(np.append(columns, pixels.shape[1]))[:, None]
    result = np.empty((*size, pixels.shape[-1]), pixels.dtype)
    for part in row_slices((size[0], *pixels.shape[1:])):
        start, stop = rows[part.start], ends[part.stop - 1]
        sums = np.add.reduceat(pixels[start:stop], rows[part] - start, axis=0, dtype=np.float64)
        sums = np.add.reduceat(sums, columns, axis=1)
        down = (ends[part] - rows[part])[:, None, None]
        result[part] = to_dtype(sums / (down * across), pixels.dtype)
    return result
