"""TIFF through tifffile: any depth, channels, compression; stacks page by page with their tags.

A file is taken as a list of equal pages, and each page's tags that do not describe how pixels
are stored are copied as they are. So ImageJ and OME descriptions, pixel sizes, GeoTIFF tags and
the like survive without being understood. Thumbnails and reduced pyramid levels are left out:
they show the picture before.

CMYK pages keep their four inks as independent channels. A palette becomes RGB. Samples of fewer
than 8 bits are spread to 0–255; those of 9 to 15 bits keep their values in 16-bit samples.
"""

import logging
import math
import struct
from typing import Any, BinaryIO, Literal

import numpy as np
import tifffile

from nelu_cli.images import exif
from nelu_cli.images.picture import (
    Array,
    Header,
    Metadata,
    Picture,
    Refusal,
    TiffLayout,
    join_alpha,
)

__all__ = ["probe", "read", "write"]

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # or it would write to stderr

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_COLOURS = {_RGB: 3, _YCBCR: 3, _CMYK: 4}
_SUPPORTED = (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR)
_NONE, _LZW, _ADOBE_DEFLATE, _DEFLATE, _PACKBITS, _ZSTD = 1, 5, 8, 32946, 32773, 50000
_LOSSLESS = (_NONE, _LZW, _ADOBE_DEFLATE, _DEFLATE, _PACKBITS, _ZSTD)
_LOSSY_CODECS = (6, 7, 34892, 50001)  # JPEG old and new, lossy DNG, WebP
_PREDICTABLE = (_LZW, _ADOBE_DEFLATE, _DEFLATE, _ZSTD)
_ICC, _XMP, _PHOTOSHOP, _SUBFILE_TYPE = 34675, 700, 34377, 254
_RATIONAL, _SIGNED_RATIONAL = 5, 10  # types of values
_X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT = 282, 283, 296
_STRUCTURE = {  # tags that say how pixels are stored: written afresh
    *(254, 255, 256, 257, 258, 259, 262, 263, 264, 265, 266, 273, 277, 278, 279, 280, 281, 284),
    *(288, 289, 290, 291, 292, 293, 301, 317, 320, 322, 323, 324, 325, 330, 332, 334, 336, 338),
    *(339, 340, 341, 342, 347, 400, 512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531),
    *(532, 559, 32995, 32996, 32997, 32998, 50674),
    *(33628, 33629, 33630, 33631),  # MetaMorph: where the planes of a stack in one piece lie
}
_EXIF_TAGS = {  # of the main directory: texts, orientation, rating, Windows' own
    *(270, 271, 272, 274, 305, 306, 315, 316, 18246, 18249, 33432),
    *(40091, 40092, 40093, 40094, 40095),
}
_POINTERS = {exif.EXIF: "ExifTag", exif.GPS: "GPSTag"}  # named, or tifffile leaves them out
_BUFFER_BYTES = 16 << 20  # of compressed data read ahead; tifffile would take 256 MiB
_HIGHEST_RATIO = 1 << 16  # of pixels to file in bytes, reached by empty pictures only
_UNEQUAL = "its pages differ in size or kind; split them into files first"
_CLASSIC_LIMIT = 4_000_000_000  # bytes, beyond which offsets need 64 bits


def probe(stream: BinaryIO) -> Header:
    """Read the header and the page table."""
    _page_offsets(stream)
    with _open(stream) as file:
        return _header(_main_series(file), len(_directories(file, stream)))


def read(stream: BinaryIO) -> Picture:
    """Decode every page; the samples after the colours are alpha if the file says so."""
    with _open(stream) as file:
        directories = _directories(file, stream)
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


def write(picture: Picture, stream: BinaryIO) -> None:
    """Encode page by page, as the layout of the original says or as deflated RGB or grey."""
    layout = picture.metadata.tiff or _default_layout(picture)
    stack = picture.pixels.ndim == 4
    big = layout.bigtiff or picture.pixels.nbytes > _CLASSIC_LIMIT
    count = len(picture.pixels) if stack else 1
    channels = picture.pixels.shape[-1]
    photometric = _RGB if layout.photometric in (_PALETTE, _YCBCR) else layout.photometric
    if channels < _COLOURS.get(photometric, 1):
        photometric = _BLACK_IS_ZERO
    extra = channels - _COLOURS.get(photometric, 1)
    extrasamples = [0] * extra + [layout.extrasample or 2] * (picture.alpha is not None)
    with tifffile.TiffWriter(stream, bigtiff=big, byteorder=layout.byteorder) as file:
        for index in range(count):
            samples = join_alpha(_page(picture, index) if stack else picture)
            data = _encode(samples, layout, bilevel=picture.metadata.bilevel)
            directory = layout.pages[index] if index < len(layout.pages) else None
            resolution, unit = _resolution(directory, layout.byteorder) or (None, None)
            file.write(
                data,
                photometric=photometric,
                planarconfig=_planarconfig(data, samples),
                extrasamples=extrasamples or None,
                tile=layout.tile,
                rowsperstrip=layout.rows_per_strip,
                compression=layout.compression,
                predictor=_predictor(layout, data.dtype),
                resolution=resolution,
                resolutionunit=unit,
                metadata=None,
                software=False,
                extratags=_extratags(directory, layout.byteorder, first=index == 0, big=big),
            )
    if layout.pages and layout.pages[0].children:
        _append_children(stream, layout.pages[0], layout.byteorder, big=big)


def _open(stream: BinaryIO) -> tifffile.TiffFile:
    stream.seek(0)
    return tifffile.TiffFile(stream, _multifile=False)


def _page_offsets(stream: BinaryIO) -> list[int]:
    """Where each page's directory starts; a chain that bites its tail would keep tifffile busy."""
    stream.seek(0)
    start = stream.read(16)
    order = ">" if start[:2] == b"MM" else "<"
    big = start[2:4] in (b"+\0", b"\0+")
    count_format, offset_format, entry = ("Q", "Q", 20) if big else ("H", "I", 12)
    (offset,) = struct.unpack_from(order + offset_format, start, 8 if big else 4)
    end = stream.seek(0, 2)
    offsets: dict[int, None] = {}
    while 0 < offset < end:
        if offset in offsets:
            raise ValueError("its chain of pages is circular")
        stream.seek(offset)
        size = struct.calcsize(count_format)
        (count,) = struct.unpack(order + count_format, stream.read(size))
        offsets[offset] = None
        stream.seek(min(offset + size + count * entry, end))
        following = stream.read(struct.calcsize(offset_format))
        offset = int.from_bytes(following, "little" if order == "<" else "big")
    return list(offsets)


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
        np.subtract(np.iinfo(samples.dtype).max, samples, out=samples)
    return samples


def _encode(samples: Array, layout: TiffLayout, *, bilevel: bool) -> Array:
    """The samples (H, W, S) as tifffile wants them: (H, W), (H, W, S) or planar (S, H, W)."""
    if layout.photometric == _WHITE_IS_ZERO and samples.dtype.kind == "u":
        samples = np.iinfo(samples.dtype).max - samples
    if samples.shape[-1] == 1:
        samples = samples[..., 0]
        if bilevel and np.all((samples == 0) | (samples == 255)):
            return samples > 0
        return samples
    return np.moveaxis(samples, -1, 0) if layout.planar else samples


def _page(picture: Picture, index: int) -> Picture:
    alpha = None if picture.alpha is None else picture.alpha[index]
    return Picture(picture.pixels[index], alpha, picture.format, picture.metadata)


def _planarconfig(data: Array, samples: Array) -> str | None:
    if data.ndim == 2:
        return None
    return "contig" if data.shape == samples.shape else "separate"


def _predictor(layout: TiffLayout, dtype: np.dtype[Any]) -> int | None:
    if layout.predictor == 1 or layout.compression not in _PREDICTABLE or dtype.kind == "b":
        return None
    return 3 if dtype.kind == "f" else 2


def _directories(file: tifffile.TiffFile, stream: BinaryIO) -> dict[int, exif.Directory]:
    """The tags of every page that is no reduced version of another, by its place in the file.

    There is one for a stack in one piece, as ImageJ and MetaMorph write it.
    """
    order, big = file.byteorder, file.is_bigtiff
    pages = [exif.parse(stream, offset, order, big=big) for offset in _page_offsets(stream)]
    return {
        index: page.without(_STRUCTURE)
        for index, page in enumerate(pages)
        if not _is_reduced(page, order)
    }


def _is_reduced(page: exif.Directory, order: str) -> bool:
    kind = page.get(_SUBFILE_TYPE)
    return bool(kind and int.from_bytes(kind, "little" if order == "<" else "big") & 1)


def _metadata(
    file: tifffile.TiffFile, page: Any, axes: str, directories: tuple[exif.Directory, ...]
) -> Metadata:
    order: Literal["<", ">"] = ">" if file.byteorder == ">" else "<"
    first = directories[0]
    camera = exif.Directory(
        tuple(entry for entry in first.entries if entry.code in _EXIF_TAGS), first.children
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
        compression=compression if compression in _LOSSLESS else _ADOBE_DEFLATE,
        predictor=int(page.predictor),
        tile=_tile(page),
        rows_per_strip=rows or None,
        pages=directories,
    )
    return Metadata(
        icc=first.get(_ICC),
        exif=exif.pack(camera, order),
        xmp=first.get(_XMP),
        photoshop=first.get(_PHOTOSHOP),
        dpi=_dpi(first, order),
        bilevel=page.bitspersample == 1 and page.samplesperpixel == 1,
        cmyk=page.photometric == _CMYK,
        lossy=compression in _LOSSY_CODECS,
        tiff=layout,
    )


def _tile(page: Any) -> tuple[int, int] | None:
    if not page.is_tiled or page.tilelength % 16 or page.tilewidth % 16:
        return None
    return page.tilelength, page.tilewidth


def _resolution(
    directory: exif.Directory | None, order: str
) -> tuple[tuple[tuple[int, int], tuple[int, int]], int] | None:
    """Pixels per unit across and down as ratios, and the unit: 1 none, 2 inch, 3 centimetre."""
    if directory is None:
        return None
    across, down = (directory.get(code) for code in (_X_RESOLUTION, _Y_RESOLUTION))
    unit = directory.get(_RESOLUTION_UNIT)
    if across is None or down is None or not len(across) == len(down) == 8:
        return None
    number = struct.unpack(f"{order}H", unit)[0] if unit and len(unit) == 2 else 2
    ratios = struct.unpack(f"{order}II", across), struct.unpack(f"{order}II", down)
    if ratios[0][1] == 0 or ratios[1][1] == 0:
        return None
    return ratios, number if number in (1, 2, 3) else 1


def _dpi(directory: exif.Directory, order: str) -> tuple[float, float] | None:
    """Pixels per inch, if the file speaks of inches or centimetres."""
    resolution = _resolution(directory, order)
    if resolution is None or resolution[1] == 1:
        return None
    scale = 2.54 if resolution[1] == 3 else 1.0
    across, down = (scale * top / bottom for top, bottom in resolution[0])
    return (across, down) if across and down else None


def _default_layout(picture: Picture) -> TiffLayout:
    """For a picture that comes from another format: its metadata as tags, deflate."""
    metadata = picture.metadata
    camera, order = exif.unpack(metadata.exif) if metadata.exif else (exif.Directory(()), "<")
    entries = [entry for entry in camera.entries if entry.code in _EXIF_TAGS]
    if metadata.dpi:
        for code, value in zip((_X_RESOLUTION, _Y_RESOLUTION), metadata.dpi, strict=True):
            ratio = struct.pack(f"{order}II", min(round(value * 1000), 2**32 - 1), 1000)
            entries.append(exif.Entry(code, 5, 1, ratio))
        entries.append(exif.Entry(_RESOLUTION_UNIT, 3, 1, struct.pack(f"{order}H", 2)))
    if metadata.xmp:
        entries.append(exif.Entry(_XMP, 1, len(metadata.xmp), metadata.xmp))
    if metadata.photoshop:
        entries.append(exif.Entry(_PHOTOSHOP, 1, len(metadata.photoshop), metadata.photoshop))
    if metadata.icc:
        entries.append(exif.Entry(_ICC, 7, len(metadata.icc), metadata.icc))
    channels = picture.pixels.shape[-1]
    photometric = _CMYK if metadata.cmyk else _RGB if channels == 3 else _BLACK_IS_ZERO
    return TiffLayout(
        axes="",
        byteorder=order,
        bigtiff=False,
        photometric=photometric,
        planar=False,
        extrasample=1 if metadata.premultiplied else 2,
        compression=_ADOBE_DEFLATE,
        predictor=2,
        tile=None,
        rows_per_strip=None,
        pages=(exif.Directory(tuple(entries), camera.children),),
    )


def _extratags(
    directory: exif.Directory | None, order: str, *, first: bool, big: bool
) -> list[tuple[int | str, int, int, bytes | int | tuple[int, ...], bool]]:
    """Tags for tifffile; those that point to further directories point nowhere yet."""
    if directory is None:
        return []
    tags: list[tuple[int | str, int, int, bytes | int | tuple[int, ...], bool]] = [
        (entry.code, entry.type, entry.count, _value(entry, order), True)
        for entry in directory.entries
        if entry.code not in (_X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT)
    ]
    if first:
        for code, _ in directory.children:
            if code in _POINTERS:
                tags.append((_POINTERS[code], 16 if big else 4, 1, 0, True))
    return tags


def _value(entry: exif.Entry, order: str) -> bytes | tuple[int, ...]:
    """As tifffile wants it: bytes, but the two numbers of ratios (it miscounts their bytes)."""
    if entry.type not in (_RATIONAL, _SIGNED_RATIONAL):
        return entry.data
    number = "I" if entry.type == _RATIONAL else "i"
    return struct.unpack(f"{order}{2 * entry.count}{number}", entry.data)


def _append_children(stream: BinaryIO, directory: exif.Directory, order: str, *, big: bool) -> None:
    """Write the directories that the first page's tags point to at the end, and the pointers."""
    pointers = _value_positions(stream, order, big=big)
    for code, child in directory.children:
        if code in _POINTERS:
            end = stream.seek(0, 2)
            stream.write(b"\0" * (end % 2))
            start = end + end % 2
            stream.write(exif.serialize(child, start, order, big=big))
            stream.seek(pointers[code])
            stream.write(struct.pack(f"{order}{'Q' if big else 'I'}", start))


def _value_positions(stream: BinaryIO, order: str, *, big: bool) -> dict[int, int]:
    """Where the value of each tag of the first page stands in the file."""
    offset = _page_offsets(stream)[0]
    head, entry, before_value = (8, 20, 12) if big else (2, 12, 8)
    stream.seek(offset)
    (count,) = struct.unpack(f"{order}{'Q' if big else 'H'}", stream.read(head))
    table = stream.read(count * entry)
    starts = range(0, len(table), entry)
    return {
        struct.unpack_from(f"{order}H", table, start)[0]: offset + head + start + before_value
        for start in starts
    }
