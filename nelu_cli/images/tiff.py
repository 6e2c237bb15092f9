"""TIFF through tifffile: any depth, channels, compression; stacks page by page with their tags.

A file is taken as a list of equal pages, and each page's tags that do not describe how pixels
are stored are copied as they are. So ImageJ and OME descriptions, pixel sizes, GeoTIFF tags and
the like survive without being understood. Thumbnails and reduced pyramid levels are left out:
they show the picture before.

CMYK pages keep their four inks as independent channels. A palette becomes RGB. Samples of fewer
than 8 bits are spread to 0–255; those of 9 to 15 bits keep their values, and their white.
"""

import logging
import math
from dataclasses import replace
from typing import Any, BinaryIO, Literal

import numpy as np
import tifffile

from nelu_cli.images import exif
from nelu_cli.images import tiff_tags as tags
from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import (
    Array,
    Header,
    Metadata,
    Picture,
    Refusal,
    TiffLayout,
    is_bilevel,
    join_alpha,
)

__all__ = ["FORMAT"]

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # or it would write to stderr

_WHITE_IS_ZERO, _PALETTE, _YCBCR = 0, 3, 6
_COLOURS = {tags.RGB: 3, _YCBCR: 3, tags.CMYK: 4}
_SUPPORTED = (_WHITE_IS_ZERO, tags.BLACK_IS_ZERO, tags.RGB, _PALETTE, tags.CMYK, _YCBCR)
_NONE, _LZW, _DEFLATE, _PACKBITS, _ZSTD = 1, 5, 32946, 32773, 50000
_LOSSLESS = (_NONE, _LZW, tags.ADOBE_DEFLATE, _DEFLATE, _PACKBITS, _ZSTD)
_LOSSY_CODECS = (6, 7, 34892, 50001)  # JPEG old and new, lossy DNG, WebP
_PREDICTABLE = (_LZW, tags.ADOBE_DEFLATE, _DEFLATE, _ZSTD)
_BUFFER_BYTES = 16 << 20  # of compressed data read ahead; tifffile would take 256 MiB
_HIGHEST_RATIO = 1 << 16  # of pixels to file in bytes, reached by empty pictures only
_UNEQUAL = "its pages differ in size or kind; split them into files first"
_CLASSIC_LIMIT = 4_000_000_000  # bytes, beyond which offsets need 64 bits


def _probe(source: Source) -> Header:
    """Read the header and the page table."""
    stream = source.stream
    tags.page_offsets(stream)
    with _open(stream) as file:
        return _header(_main_series(file), len(tags.directories(file, stream)))


def _read(source: Source) -> Picture:
    """Decode every page; the samples after the colours are alpha if the file says so."""
    stream = source.stream
    with _open(stream) as file:
        directories = tags.directories(file, stream)
        series = _main_series(file)
        page = series.keyframe
        if len(directories) > 1:
            samples = _pages_in_order(stream, list(directories))
        else:
            samples = series.asarray(buffersize=_BUFFER_BYTES)
        samples = samples.reshape(-1, *page.shape)  # pages first
        if "S" in page.axes:
            samples = np.moveaxis(samples, 1 + page.axes.index("S"), -1)
        else:
            samples = samples[..., None]
        samples = samples.reshape(-1, *samples.shape[-3:])
        metadata = _metadata(file, page, series.axes, tuple(directories.values()))
        samples = _decode(samples, page)
    if len(samples) == 1:
        samples = samples[0]
    if not _has_alpha(page):
        return Picture(samples, None, "TIFF", metadata)
    return Picture(samples[..., :-1], samples[..., -1], "TIFF", metadata)


def _write(picture: Picture, stream: BinaryIO) -> None:
    """Encode page by page, as the layout of the original says or as deflated RGB or grey."""
    layout = picture.metadata.tiff or tags.default_layout(picture)
    stack = picture.pixels.ndim == 4
    big = layout.bigtiff or picture.pixels.nbytes > _CLASSIC_LIMIT
    count = len(picture.pixels) if stack else 1
    channels = picture.pixels.shape[-1]
    photometric = tags.RGB if layout.photometric in (_PALETTE, _YCBCR) else layout.photometric
    if channels < _COLOURS.get(photometric, 1):
        photometric = tags.BLACK_IS_ZERO
    bits = None if picture.metadata.white is None else picture.metadata.white.bit_length()
    extra = channels - _COLOURS.get(photometric, 1)
    extrasamples = [0] * extra + [layout.extrasample or 2] * (picture.alpha is not None)
    with tifffile.TiffWriter(stream, bigtiff=big, byteorder=layout.byteorder) as file:
        for index in range(count):
            page = _page(picture, index) if stack else picture
            data = _encode(page, layout)
            directory = layout.pages[index] if index < len(layout.pages) else None
            resolution, unit = tags.resolution(directory, layout.byteorder) or (None, None)
            file.write(
                data,
                photometric=photometric,
                planarconfig=_planarconfig(data, layout),
                bitspersample=bits,
                extrasamples=extrasamples or None,
                tile=layout.tile,
                rowsperstrip=layout.rows_per_strip,
                compression=layout.compression if bits is None else _NONE,
                predictor=_predictor(layout, data.dtype) if bits is None else None,
                resolution=resolution,
                resolutionunit=unit,
                metadata=None,
                software=False,
                extratags=tags.extratags(directory, layout.byteorder, first=index == 0, big=big),
            )
    if layout.pages and layout.pages[0].children:
        tags.append_children(stream, layout.pages[0], layout.byteorder, big=big)


def _open(stream: BinaryIO) -> tifffile.TiffFile:
    stream.seek(0)
    return tifffile.TiffFile(stream, _multifile=False)


def _main_series(file: tifffile.TiffFile) -> tifffile.TiffPageSeries:
    """The one series of equal pages that the file holds besides reduced versions of itself."""
    if not file.series:
        raise ValueError("no pages")
    series = file.series[0]
    page = series.keyframe
    others = [other for other in file.series[1:] if not other.keyframe.is_reduced]
    if others:
        raise Refusal(_UNEQUAL)
    if page.photometric not in _SUPPORTED:
        name = getattr(page.photometric, "name", page.photometric)
        raise Refusal(f"TIFF colour type {name} is not supported; convert it to RGB first")
    if page.dtype is None:
        raise Refusal(f"TIFF samples of {page.bitspersample} bits are not supported")
    if page.dtype.kind not in "uifb":
        raise Refusal(f"TIFF samples of type {page.dtype} are not supported")
    if math.prod(series.shape) * page.dtype.itemsize > file.filehandle.size * _HIGHEST_RATIO:
        raise ValueError("truncated")  # before memory is reserved
    return series


def _pages_in_order(stream: BinaryIO, numbers: list[int]) -> Array:
    """The samples of pages as they stand in the file, which is the order of their tags.

    The order of a description (OME) may be another; it is copied and stays true this way.
    """
    with _open(stream) as file:  # anew, without the notion of a series
        kinds = {(file.pages[number].shape, file.pages[number].dtype) for number in numbers}
        if len(kinds) > 1:
            raise Refusal(_UNEQUAL)
        return np.asarray(file.asarray(key=numbers, buffersize=_BUFFER_BYTES))


def _header(series: tifffile.TiffPageSeries, directories: int) -> Header:
    page = series.keyframe
    samples = 1 if page.photometric == _PALETTE else page.samplesperpixel
    channels = 3 if page.photometric == _PALETTE else samples - _has_alpha(page)
    size = page.imagewidth * page.imagelength * page.samplesperpixel
    assert page.dtype is not None
    return Header(
        "TIFF",
        page.imagewidth,
        page.imagelength,
        channels,
        np.dtype(np.uint8) if page.bitspersample <= 8 and page.dtype.kind in "ub" else page.dtype,
        alpha=_has_alpha(page),
        pages=directories if directories > 1 else max(1, math.prod(series.shape) // max(1, size)),
    )


def _has_alpha(page: Any) -> bool:
    """Whether the last sample is declared as alpha."""
    colours = _COLOURS.get(page.photometric, 1)
    return (
        page.photometric != _PALETTE
        and page.samplesperpixel > colours
        and tuple(page.extrasamples)[-1:] in ((1,), (2,))
    )


def _decode(samples: Array, page: Any) -> Array:
    """Palette to RGB, few bits to eight, white-is-zero to black-is-zero, native byte order."""
    if page.photometric == _PALETTE:
        if page.colormap is None:
            raise ValueError("palette missing")
        colours = page.colormap.T  # (entries, 3), 16 bits
        if colours.max(initial=0) > 255:
            colours = colours >> 8
        samples = colours.astype(np.uint8)[samples[..., 0]]
    elif page.bitspersample < 8 and samples.dtype.kind in "ub":
        top = (1 << page.bitspersample) - 1
        spread = np.rint(np.arange(top + 1) * 255 / top).astype(np.uint8)
        samples = spread[samples.astype(np.uint8, copy=False)]
    if not samples.dtype.isnative:
        samples = samples.astype(samples.dtype.newbyteorder("="))
    if page.photometric == _WHITE_IS_ZERO and samples.dtype.kind == "u":
        inks = samples[..., :-1] if _has_alpha(page) else samples
        np.subtract(_white(page) or np.iinfo(samples.dtype).max, inks, out=inks)
    return samples


def _white(page: Any) -> int | None:
    """The value of white of samples that have fewer bits than their dtype, but at least 8."""
    bits = page.bitspersample
    fewer = page.dtype.kind == "u" and 8 < bits < 8 * page.dtype.itemsize
    return (1 << bits) - 1 if fewer else None


def _encode(picture: Picture, layout: TiffLayout) -> Array:
    """The samples of a page as tifffile wants them: (H, W), (H, W, S) or planar (S, H, W)."""
    if layout.photometric == _WHITE_IS_ZERO and picture.pixels.dtype.kind == "u":
        white = picture.pixels.dtype.type(picture.white)
        picture = replace(picture, pixels=white - picture.pixels)
    samples = join_alpha(picture)
    if picture.metadata.white and layout.byteorder == ">":
        samples = samples.byteswap()  # tifffile packs them in the wrong order otherwise
    if samples.shape[-1] == 1:
        return samples[..., 0] > 0 if is_bilevel(picture) else samples[..., 0]
    return np.moveaxis(samples, -1, 0) if layout.planar else samples


def _page(picture: Picture, index: int) -> Picture:
    alpha = None if picture.alpha is None else picture.alpha[index]
    return Picture(picture.pixels[index], alpha, picture.format, picture.metadata)


def _planarconfig(data: Array, layout: TiffLayout) -> str | None:
    if data.ndim == 2:
        return None
    return "separate" if layout.planar else "contig"


def _predictor(layout: TiffLayout, dtype: np.dtype[Any]) -> int | None:
    if layout.predictor == 1 or layout.compression not in _PREDICTABLE or dtype.kind == "b":
        return None
    return 3 if dtype.kind == "f" else 2


def _metadata(
    file: tifffile.TiffFile, page: Any, axes: str, directories: tuple[exif.Directory, ...]
) -> Metadata:
    order: Literal["<", ">"] = ">" if file.byteorder == ">" else "<"
    first = directories[0]
    camera = exif.Directory(
        tuple(entry for entry in first.entries if entry.code in exif.MAIN_TAGS), first.children
    )
    compression = int(page.compression)
    rows = page.rowsperstrip if not page.is_tiled and page.rowsperstrip < page.imagelength else None
    layout = TiffLayout(
        axes=axes,
        byteorder=order,
        bigtiff=file.is_bigtiff,
        photometric=int(page.photometric),
        planar=page.planarconfig == 2 and page.samplesperpixel > 1,
        extrasample=int(page.extrasamples[-1]) if page.extrasamples else 0,
        compression=compression if compression in _LOSSLESS else tags.ADOBE_DEFLATE,
        predictor=int(page.predictor),
        tile=_tile(page),
        rows_per_strip=rows or None,
        pages=directories,
    )
    return Metadata(
        icc=first.get(exif.ICC),
        exif=exif.pack(camera, order),
        xmp=first.get(exif.XMP),
        photoshop=first.get(exif.PHOTOSHOP),
        dpi=tags.dpi(first, order),
        bilevel=page.bitspersample == 1 and page.samplesperpixel == 1,
        cmyk=page.photometric == tags.CMYK,
        lossy=compression in _LOSSY_CODECS,
        white=_white(page),
        tiff=layout,
    )


def _tile(page: Any) -> tuple[int, int] | None:
    if not page.is_tiled or page.tilelength % 16 or page.tilewidth % 16:
        return None
    return page.tilelength, page.tilewidth


FORMAT = Format(
    name="TIFF",
    extensions=(".tif", ".tiff"),
    identify=starts_with(b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    probe=_probe,
    read=_read,
    write=_write,
    whites=lambda white: white & (white + 1) == 0,  # as many bits as it takes
    metadata=("icc", "exif", "xmp", "dpi", "photoshop", "tiff"),
    depths=(),
    channels=(),
    premultiplied=None,
    inks=True,
    stacks=True,
)
