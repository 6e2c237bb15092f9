"""RAW files through LibRaw (the optional package rawpy)."""

import contextlib
import io
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Literal

import numpy as np
from PIL import Image

from nelu_cli.images import Header, Metadata, Picture, exif
from nelu_cli.images.format import Source, optional_package
from nelu_cli.images.picture import Refusal
from nelu_cli.raw.colour import SPACES, colour_named, profile
from nelu_cli.raw.dng import CAMERA_TAGS, COLOUR_TAGS, MAKER_NOTE, Sensor, colour_tags, is_dng
from nelu_cli.raw.mosaic import Mosaic

_ORIENTATIONS = {0: 1, 3: 3, 5: 8, 6: 6}  # EXIF's by LibRaw's
_TIFF_LIKE = (b"II*\0", b"MM\0*", b"IIRO", b"IIRS", b"MMOR", b"IIU\0")
Tags = tuple[exif.Directory, Literal["<", ">"]]  # with their byte order
_rawpy = partial(optional_package, "rawpy", "RAW files need", "raw")


def knows(source: Source) -> bool:
    """Whether LibRaw takes this for a RAW file, which it also tells by no more than a size."""
    try:
        with _opened(source):
            return True
    except (Refusal, ValueError):
        return False


def probe(source: Source) -> Header:
    """Size and kind, without reading the values."""
    with _opened(source) as raw:
        sizes = raw.sizes
        width, height = sizes.width, sizes.height
        if sizes.flip in (5, 6):
            width, height = height, width
        coded = sizes.raw_width * sizes.raw_height  # with the borders, which may be wide
        return Header(_format(source), width, height, 3, np.dtype(np.uint16), coded=coded)


def read(source: Source) -> Picture:
    """The mosaic as four planes with white noise; of other sensors, the developed picture."""
    with _opened(source) as raw:
        notes = _missing(source, raw)
        if not _is_bayer(raw):
            picture = _developed(raw, deep=True, colour="srgb", camera=_camera(source, raw))
            return replace(picture, notes=notes)
        colours = raw.raw_colors_visible[:2, :2].ravel()
        black = raw.black_level_per_channel
        directory, order = _camera(source, raw)
        sensor = Sensor(
            cell=tuple(1 if colour == 3 else int(colour) for colour in colours),
            black=tuple(float(black[colour]) for colour in colours),
            white=float(raw.white_level),
            orientation=_ORIENTATIONS.get(raw.sizes.flip, 1),
            tags=_with_colour(source, raw, directory, order),
            order=order,
        )
        values = raw.raw_image_visible.copy()
    return replace(Mosaic(values, sensor, develop).picture(_format(source)), notes=notes)


def _missing(source: Source, raw: Any) -> tuple[str, ...]:
    """A note of the rows that a file is too short for, which LibRaw leaves 0 without a word.

    A sensor has noise, around a black level of its own: no row of it is 0 throughout.
    """
    values = raw.raw_image_visible
    empty = ~values.reshape(len(values), -1).any(axis=1)
    if empty.all():
        raise ValueError("truncated: it has no values")
    lost = int(np.argmin(empty[::-1]))
    if lost == 0 or min(raw.black_level_per_channel[:3]) == 0:  # then darkness may be 0
        return ()
    if not source.salvage:
        raise ValueError("truncated: its last rows are missing")
    return (f"truncated: {lost} of {len(values)} rows are missing",)


def develop(content: bytes, deep: bool, colour: str) -> Picture:
    """A picture in colours of a DNG that nelu wrote: upright, with profile and EXIF."""
    with _opened(Source(None, io.BytesIO(content), content[:64])) as raw:
        return _developed(raw, deep=deep, colour=colour, camera=_tiff_tags(io.BytesIO(content)))


def _developed(raw: Any, *, deep: bool, colour: str, camera: Tags) -> Picture:
    """The camera's white balance and colours; no automatic brightness, so that a series agrees."""
    rawpy = _rawpy()
    space = SPACES[colour_named(colour)]
    pixels = raw.postprocess(
        use_camera_wb=True,
        no_auto_bright=True,
        adjust_maximum_thr=0.0,
        output_bps=16 if deep else 8,
        output_color=getattr(rawpy.ColorSpace, space.libraw),
        gamma=(space.power, space.toe),
    )
    tags, order = camera
    kept = exif.Directory(
        tags.only(CAMERA_TAGS).entries,
        tuple((code, child.without({MAKER_NOTE})) for code, child in tags.children),
    )
    metadata = Metadata(icc=profile(space), exif=exif.pack(kept, order))
    return Picture(pixels, None, "RAW", metadata)


def _is_bayer(raw: Any) -> bool:
    """Whether every 2×2 cell has one red, two green and one blue pixel."""
    if raw.raw_type != _rawpy().RawType.Flat or raw.num_colors != 3:
        return False
    pattern = raw.raw_pattern
    if pattern is None or pattern.shape != (2, 2):
        return False
    return sorted(1 if colour == 3 else colour for colour in pattern.ravel()) == [0, 1, 1, 2]


def _camera(source: Source, raw: Any) -> Tags:
    """What the file says of camera, lens, time and place; no maker's notes, which point anywhere.

    Most RAW files are TIFFs in disguise. In the others, the preview is a JPEG with its own EXIF.
    """
    if source.start.startswith(_TIFF_LIKE):
        return _tiff_tags(source.stream)
    try:
        preview = raw.extract_thumb()
        if preview.format == _rawpy().ThumbFormat.JPEG:
            block = Image.open(io.BytesIO(preview.data)).info.get("exif", b"")
            return exif.unpack(block.removeprefix(b"Exif\0\0"))
    except (_rawpy().LibRawError, OSError, ValueError):
        pass
    return exif.Directory(()), "<"


def _tiff_tags(stream: BinaryIO) -> Tags:
    stream.seek(0)
    start = stream.read(8)
    order: Literal["<", ">"] = ">" if start[:2] == b"MM" else "<"
    try:
        (offset,) = struct.unpack_from(f"{order}I", start, 4)
        budget = exif.Budget(stream.seek(0, 2))
        return exif.parse(stream, offset, order, budget=budget), order
    except (struct.error, OSError, ValueError, OverflowError):
        return exif.Directory(()), order


def _with_colour(
    source: Source, raw: Any, directory: exif.Directory, order: Literal["<", ">"]
) -> exif.Directory:
    """Tags for a DNG: the colours that a DNG had, or those that LibRaw knows of the camera."""
    camera = directory.only(CAMERA_TAGS)
    colours = directory.only(COLOUR_TAGS)
    if not (is_dng(source.start, source.stream) and colours.entries):
        make, model = (_string(directory.get(code)) for code in (271, 272))
        name = f"{make} {model}".strip() or "unknown camera"
        matrix = np.asarray(raw.rgb_xyz_matrix, np.float64)[:3]
        balance = [gain or 1.0 for gain in raw.camera_whitebalance[:3]]
        colours = colour_tags(matrix, balance, name, order)
    return exif.Directory((*colours.entries, *camera.entries), directory.children)


def _string(data: bytes | None) -> str:
    return (data or b"").split(b"\0")[0].decode("ascii", "replace").strip()


def _format(source: Source) -> str:
    return "DNG" if is_dng(source.start, source.stream) else "RAW"


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[Any]:
    """The file, opened by LibRaw; what it finds wrong, then or later, is said in words."""
    rawpy = _rawpy()
    try:
        name = io.BytesIO(source.whole()) if source.path is None else str(source.path)
        with rawpy.imread(name) as raw:
            yield raw
    except rawpy.LibRawFileUnsupportedError:
        raise Refusal("LibRaw does not know this kind of RAW file") from None
    except rawpy.LibRawError as error:  # whose text may be bytes
        (text,) = error.args or ("",)
        raise ValueError(text.decode() if isinstance(text, bytes) else str(text)) from error
