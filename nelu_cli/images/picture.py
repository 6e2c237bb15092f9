"""A picture in memory: its pixels as the file had them, and what else the file carried."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nelu_cli.images import exif

Array = NDArray[Any]

PNG_COLOURS = (b"cHRM", b"gAMA", b"sRGB", b"cICP", b"mDCV", b"cLLI")
"""The chunks of a PNG that say what colours its values mean."""
_PIXELS_AT_ONCE = 1 << 18  # of a float picture: about what fits into a cache


class Refusal(ValueError):
    """A file that is understood but not supported; its message lacks only the file's name."""


@dataclass(frozen=True)
class Header:
    """What a file says about its picture before any pixel is decoded."""

    format: str
    width: int
    height: int
    channels: int
    dtype: np.dtype[Any]
    alpha: bool = False
    pages: int = 1
    animated: bool = False
    equal: bool = True  # whether all pages have this size and kind
    coded: int = 0  # pixels of the largest picture within, if the decoder cuts or scales it


@dataclass(frozen=True)
class JpegLayout:
    """How a JPEG was compressed, so that it can be compressed in the same way again."""

    tables: tuple[tuple[int, ...], ...]  # quantization, in the order of the components
    subsampling: int  # 0 is 4:4:4, 1 is 4:2:2, 2 is 4:2:0
    progressive: bool = False
    comment: bytes = b""
    segments: bytes = b""  # whole markers to repeat: extended XMP


@dataclass(frozen=True)
class PageTags:
    """The tags of a TIFF page that describe no pixels, and the sizes of its smaller versions.

    Attributes:
        tags: as they are in the file.
        levels: heights and widths of the levels of a pyramid, in directories below the page.
        thumbnails: those of smaller versions in directories after the page.
    """

    tags: exif.Directory = field(default_factory=lambda: exif.Directory(()))
    levels: tuple[tuple[int, int], ...] = ()
    thumbnails: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TiffLayout:
    """How a TIFF was laid out, and what each of its pages carried besides pixels."""

    axes: str
    byteorder: Literal["<", ">"]
    bigtiff: bool
    photometric: int
    planar: bool
    extrasample: int  # meaning of the alpha sample: 1 premultiplied, 2 not
    compression: int
    predictor: int
    tile: tuple[int, int] | None
    rows_per_strip: int | None
    pages: tuple[PageTags, ...] = ()

    @property
    def other_tags(self) -> bool:
        """Whether there are tags that other formats have no place for."""
        known = {*exif.MAIN_TAGS, exif.ICC, exif.XMP, exif.PHOTOSHOP, *exif.RESOLUTION}
        return any(page.tags.without(known).entries for page in self.pages)


@dataclass(frozen=True)
class ExrLayout:
    """The channels of an OpenEXR file in the order of the samples, and its header."""

    names: tuple[str, ...]
    header: Mapping[str, Any]


class Undeveloped(Protocol):
    """The values of a camera's sensor, from which a picture is yet to be made."""

    @property
    def drowned(self) -> bool:
        """Whether the noise is so strong that it is better taken out before developing."""
        ...

    def develop(self, picture: "Picture", *, deep: bool, colour: str) -> "Picture":
        """The picture in colours, in 16 bits or in 8."""

    def corner(self, *, deep: bool) -> "Picture":
        """One pixel of such a picture."""

    def write(self, picture: "Picture", stream: BinaryIO) -> None:
        """Write the values themselves, as a DNG."""


@dataclass(frozen=True)
class Metadata:
    """Everything besides the pixels that should survive from file to file."""

    icc: bytes | None = None
    exif: bytes | None = None  # a TIFF structure, without the "Exif" prefix of JPEG
    xmp: bytes | None = None
    photoshop: bytes | None = None  # its image resources, IPTC captions among them
    dpi: tuple[float, float] | None = None
    bilevel: bool = False  # one bit per pixel, read as 0 and 255
    cmyk: bool = False  # the four channels are inks
    lossy: bool = False  # the file had been compressed with losses
    white: int | None = None  # the value of white, if it is not the largest of the dtype
    lut: bytes | None = None  # red, green, blue (3, entries) in 16 bits for each pixel value
    png: tuple[tuple[bytes, bytes], ...] = ()  # further chunks: text, gamma, chromaticities
    jpeg: JpegLayout | None = None
    tiff: TiffLayout | None = None
    exr: ExrLayout | None = None
    undeveloped: Undeveloped | None = None  # the pixels are not a picture yet, but planes of this

    @property
    def orientation(self) -> int:
        """EXIF orientation, 1 (upright) to 8."""
        return exif.orientation(self.exif) if self.exif else 1

    @property
    def premultiplied(self) -> bool:
        """Whether colours are stored multiplied by alpha: in OpenEXR always, in TIFF at times."""
        return self.exr is not None or (self.tiff is not None and self.tiff.extrasample == 1)

    def encoding(self) -> "Metadata":
        """Only what tells how to encode the pixels and what colours their values mean."""
        exr, jpeg, tiff = self.exr, self.jpeg, self.tiff
        if exr is not None:
            kept = {key: value for key, value in exr.header.items() if key == "chromaticities"}
            exr = replace(exr, header=kept)
        if jpeg is not None:
            jpeg = replace(jpeg, comment=b"", segments=b"")
        if tiff is not None:
            pages = (replace(page, tags=page.tags.only({exif.ICC})) for page in tiff.pages)
            tiff = replace(tiff, pages=tuple(pages))
        return Metadata(
            icc=self.icc,
            bilevel=self.bilevel,
            cmyk=self.cmyk,
            lossy=self.lossy,
            white=self.white,
            lut=self.lut,
            png=tuple(chunk for chunk in self.png if chunk[0] in PNG_COLOURS),
            jpeg=jpeg,
            tiff=tiff,
            exr=exr,
            undeveloped=self.undeveloped,
        )


@dataclass(frozen=True)
class Picture:
    """An image, or a stack of equal images, with the file's own depth and channels.

    One channel is grey, three are red, green and blue; any other number are independent
    channels. Pixels are as stored: an EXIF orientation is not applied but kept in the metadata.
    """

    pixels: Array  # (H, W, C), or (N, H, W, C) for a stack
    alpha: Array | None  # (H, W) or (N, H, W), of the same dtype
    format: str  # the name of an entry of the table of formats
    metadata: Metadata = field(default_factory=Metadata)
    notes: tuple[str, ...] = ()  # what was left out or changed on the way, in words

    def __post_init__(self) -> None:
        if self.pixels.ndim not in (3, 4):
            raise ValueError(f"pixels must be (H, W, C) or (N, H, W, C), not {self.pixels.shape}")
        if self.alpha is not None and self.alpha.shape != self.pixels.shape[:-1]:
            raise ValueError(f"alpha {self.alpha.shape} does not fit pixels {self.pixels.shape}")

    @property
    def white(self) -> float:
        """The pixel value that means 1.0."""
        return self.metadata.white or white_of(self.pixels.dtype)

    def converted(self, convert: Callable[[Array], Array]) -> "Picture":
        """The picture with pixels and alpha converted alike."""
        alpha = None if self.alpha is None else convert(self.alpha)
        return replace(self, pixels=convert(self.pixels), alpha=alpha)

    def noted(self, note: str) -> "Picture":
        """The picture with one more note."""
        return replace(self, notes=(*self.notes, note))


def white_of(dtype: np.dtype[Any]) -> float:
    """The value that means 1.0, unless something else is said."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


def to_dtype(array: Array, dtype: DTypeLike) -> Array:
    """Round and clamp real values to an integer dtype; to a float dtype, cast only.

    This is the one place where pixel values are rounded and clamped. NaN becomes 0.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu" or array.dtype == dtype:
        return array.astype(dtype, copy=False)
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    info = np.iinfo(dtype)
    rounded = np.rint(array)
    np.nan_to_num(rounded, copy=False, posinf=np.inf, neginf=-np.inf)
    highest = rounded.dtype.type(info.max)
    if int(highest) > info.max:  # 2**32 - 1 is no float32, for example
        highest = np.nextafter(highest, rounded.dtype.type(0))
    return np.clip(rounded, info.min, highest, out=rounded).astype(dtype)


def rescale(array: Array, dtype: DTypeLike, white: float | None = None) -> Array:
    """Convert between depths so that black stays black and white stays white.

    Args:
        array: pixel values.
        dtype: of the result.
        white: the value of white in ``array``; by default the largest of its dtype, 1 for floats.
    """
    dtype = np.dtype(dtype)
    white = white or white_of(array.dtype)
    if array.dtype == dtype and white == white_of(dtype):
        return array
    scale = white_of(dtype) / white
    result = np.empty(array.shape, dtype)
    for rows in row_slices(array.shape):
        values = array[rows].astype(np.float64) * scale
        if dtype.kind == "u":
            np.maximum(values, 0, out=values)
        result[rows] = to_dtype(values, dtype)
    return result


def row_slices(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of the first axis that hold about a quarter of a megapixel each."""
    rows = max(1, _PIXELS_AT_ONCE // max(1, int(np.prod(shape[1:3]))))
    for start in range(0, shape[0], rows):
        yield slice(start, min(start + rows, shape[0]))


def split_alpha(samples: Array) -> tuple[Array, Array | None]:
    """Views of colour and alpha in (..., 1 to 4) samples, of which the 2nd or 4th is alpha."""
    if samples.shape[-1] in (2, 4):
        return samples[..., :-1], samples[..., -1]
    return samples, None


def join_alpha(picture: Picture) -> Array:
    """Samples with alpha last: (..., C) or (..., C + 1)."""
    if picture.alpha is None:
        return picture.pixels
    return np.concatenate([picture.pixels, picture.alpha[..., None]], axis=-1)


def is_bilevel(picture: Picture) -> bool:
    """Whether a picture that had one bit per pixel still has only black and white."""
    pixels = picture.pixels
    bilevel = picture.metadata.bilevel and picture.alpha is None and pixels.shape[-1] == 1
    return bilevel and bool(np.all((pixels == 0) | (pixels == 255)))


def to_bilevel(picture: Picture) -> Picture:
    """Every pixel black or white, whichever is nearer, to be written with one bit.

    Raises:
        Refusal: the picture has colours or transparency.
    """
    if picture.alpha is not None or picture.pixels.shape[-1] != 1:
        raise Refusal("one bit per pixel is for grey pictures without transparency")
    light = picture.pixels >= picture.white / 2
    metadata = replace(picture.metadata, bilevel=True, white=None)
    return replace(picture, pixels=np.where(light, 255, 0).astype(np.uint8), metadata=metadata)


def upright(picture: Picture) -> Picture:
    """Apply the EXIF orientation to pixels and alpha; the EXIF data are then out of date."""
    orientation = picture.metadata.orientation
    if orientation == 1:
        return picture
    axis = picture.pixels.ndim - 3  # of the rows, in pixels and alpha alike
    picture = picture.converted(lambda array: _turn(array, orientation, axis))
    dpi = picture.metadata.dpi
    if dpi is None or orientation <= 4:
        return picture
    return replace(picture, metadata=replace(picture.metadata, dpi=dpi[::-1]))


def _turn(array: Array, orientation: int, rows: int) -> Array:
    """Undo an EXIF orientation: 5 to 8 swap rows and columns first, then some axes flip."""
    if orientation > 4:
        array = np.swapaxes(array, rows, rows + 1)
    if orientation in (3, 4, 7, 8):
        array = np.flip(array, rows)
    if orientation in (2, 3, 6, 7):
        array = np.flip(array, rows + 1)
    return array
