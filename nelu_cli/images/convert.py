"""The conversion of a picture that a format cannot hold as it is."""

from dataclasses import replace

import numpy as np
from PIL import Image

from nelu_cli.images.format import Format
from nelu_cli.images.formats import FORMATS
from nelu_cli.images.picture import Picture, Refusal, is_bilevel, rescale, row_slices, upright


def check_size(picture: Picture, format: str) -> None:
    """Refuse a picture that is too long for the format."""
    most = FORMATS[format].longest_side
    if max(picture.pixels.shape[-3:-1]) > most:
        raise Refusal(f"{format} holds at most {most} pixels a side; choose PNG or TIFF")


def developed(
    picture: Picture, format: str = "TIFF", colour: str = "srgb", *, corner: bool = False
) -> Picture:
    """The picture in colours, if it is still one of a camera's sensor and the format wants more.

    Args:
        picture: any.
        format: that it is for; decides between 16 and 8 bits.
        colour: the colour space: srgb, p3, adobe or linear.
        corner: only one pixel, to find out what would come.
    """
    undeveloped, limits = picture.metadata.undeveloped, FORMATS[format]
    if undeveloped is None or "undeveloped" in limits.metadata:
        return picture
    deep = not limits.depths or "uint16" in limits.depths
    if corner:
        return undeveloped.corner(deep=deep)
    return undeveloped.develop(picture, deep=deep, colour=colour)


def fit(picture: Picture, format: str, *, allow_loss: bool) -> Picture:
    """The picture as the format can hold it, with notes about what changed on the way.

    Colours become multiplied by alpha, or divided by it, as the format wants them. A fully opaque
    alpha channel is dropped without asking where there is no place for it, and so are metadata.

    Args:
        picture: to be written.
        format: the name of its format.
        allow_loss: reduce depth, white staying white (floats count as 0–1), make CMYK RGB by
            Pillow's simple formula, and lay transparent parts on white.

    Raises:
        Refusal: the format cannot hold the picture; says what it cannot hold.
    """
    limits = FORMATS[format]
    check_size(picture, format)
    if picture.pixels.size == 0:
        raise Refusal("an empty picture cannot be written")
    if picture.pixels.ndim == 4 and limits.writer is None:
        raise Refusal(f"{format} holds one picture, not {len(picture.pixels)}; choose TIFF")
    if "exif" not in limits.metadata:
        picture = upright(picture)
    if picture.metadata.lut and "lut" not in limits.metadata:
        picture = _looked_up(picture)
    if picture.metadata.cmyk and not limits.inks:
        if not allow_loss:
            raise Refusal(f"{format} cannot hold CMYK; choose TIFF or JPEG")
        picture = _without_inks(picture)
    channels = picture.pixels.shape[-1]
    if limits.channels and channels not in limits.channels and not picture.metadata.cmyk:
        raise Refusal(f"{format} cannot hold {channels} channels; choose TIFF")
    if limits.premultiplied is not None:
        picture = _multiplied_by_alpha(picture, wanted=limits.premultiplied)
    if picture.alpha is not None and not limits.alpha:
        picture = _without_alpha(picture, format, allow_loss=allow_loss)
    if picture.metadata.bilevel and not (limits.bilevel and is_bilevel(picture)):
        picture = picture.noted("it had one bit per pixel and has eight now")
    return _fit_metadata(_fit_depth(picture, limits, allow_loss=allow_loss), limits)


def _fit_depth(picture: Picture, limits: Format, *, allow_loss: bool) -> Picture:
    """Convert samples to a depth that the format holds, white staying white."""
    white, dtype = picture.metadata.white, picture.pixels.dtype
    if white is not None and limits.whites(white):
        pixels = np.minimum(picture.pixels, dtype.type(white))
        return replace(picture, pixels=pixels)
    target = str(dtype)
    if limits.depths and target not in limits.depths:
        if not allow_loss:
            other = "PNG or TIFF" if target == "uint16" else "TIFF"
            raise Refusal(
                f"{limits.name} cannot hold {_describe(picture)}; "
                f"choose {other}, or allow the loss of depth"
            )
        target = limits.depths[-1] if dtype.itemsize > 1 else limits.depths[0]
    if target == dtype and white is None:
        return picture
    picture = picture.converted(lambda array: rescale(array, target, white))
    return replace(picture, metadata=replace(picture.metadata, white=None))


_METADATA = {
    "icc": "the colour profile",
    "exif": "EXIF",
    "xmp": "XMP",
    "dpi": "the resolution",
    "photoshop": "IPTC captions",
    "png": "PNG texts and gamma",
}


def _fit_metadata(picture: Picture, limits: Format) -> Picture:
    """Leave out the metadata that the format has no place for, and say so."""
    metadata = picture.metadata
    lost = [
        text
        for name, text in _METADATA.items()
        if name not in limits.metadata and getattr(metadata, name)
    ]
    if metadata.tiff and metadata.tiff.other_tags and "tiff" not in limits.metadata:
        lost.append("other TIFF tags")
    if metadata.dpi and max(metadata.dpi) > limits.highest_dpi:
        lost.append(f"{max(metadata.dpi):.0f} dots per inch")
        metadata = replace(metadata, dpi=None)
    if lost:
        picture = picture.noted(f"{limits.name} has no place for {', '.join(lost)}; left out")
    return replace(picture, metadata=metadata)


def _describe(picture: Picture) -> str:
    dtype, white = picture.pixels.dtype, picture.metadata.white
    kind = {"u": "", "i": "signed ", "f": "floating-point "}[dtype.kind]
    return f"{white.bit_length() if white else 8 * dtype.itemsize}-bit {kind}samples"


def _looked_up(picture: Picture) -> Picture:
    """The colours that a look-up table gives pixel values, 8 bits each."""
    assert picture.metadata.lut is not None
    table = np.frombuffer(picture.metadata.lut, np.uint16).reshape(3, -1).T
    table = (table >> 8 if table.max() > 255 else table).astype(np.uint8)
    metadata = replace(picture.metadata, lut=None)
    pixels = table[np.minimum(picture.pixels[..., 0], len(table) - 1)]
    return replace(picture, pixels=pixels, metadata=metadata)


def _without_inks(picture: Picture) -> Picture:
    """CMYK to RGB: each colour is what its ink and black leave of white."""
    if picture.alpha is not None:
        raise Refusal("CMYK with alpha cannot be converted; choose TIFF")
    inks = rescale(picture.pixels, np.uint8, picture.white)
    pixels = np.empty((*inks.shape[:2], 3), np.uint8)
    for rows in row_slices(inks.shape):
        part = np.ascontiguousarray(inks[rows])
        image = Image.frombytes("CMYK", (part.shape[1], part.shape[0]), part.tobytes())
        pixels[rows] = np.asarray(image.convert("RGB"))
    metadata = replace(picture.metadata, cmyk=False, icc=None, jpeg=None, tiff=None, white=None)
    return replace(picture, pixels=pixels, metadata=metadata)


def _multiplied_by_alpha(picture: Picture, *, wanted: bool) -> Picture:
    """The picture with its colours multiplied by alpha, or not, as wanted."""
    alpha, white, dtype = picture.alpha, picture.white, picture.pixels.dtype
    if alpha is None or picture.metadata.premultiplied == wanted or np.all(alpha == white):
        return picture
    pixels = np.empty_like(picture.pixels)
    for rows in row_slices(pixels.shape):
        opacity = np.broadcast_to(alpha[rows][..., None] / white, pixels[rows].shape)
        if wanted:
            colours = picture.pixels[rows] * opacity
        else:
            colours = np.zeros(opacity.shape)  # where nothing is to be seen
            np.divide(picture.pixels[rows], opacity, out=colours, where=opacity > 0)
        pixels[rows] = np.rint(colours).clip(0, white) if dtype.kind in "iu" else colours
    return replace(picture, pixels=pixels)


def _without_alpha(picture: Picture, format: str, *, allow_loss: bool) -> Picture:
    alpha, white = picture.alpha, picture.white
    assert alpha is not None
    if np.all(alpha == white):
        return replace(picture, alpha=None)
    if not allow_loss:
        raise Refusal(
            f"{format} cannot hold transparency; choose PNG or TIFF, or allow the loss of it"
        )
    pixels = np.empty_like(picture.pixels)
    for rows in row_slices(pixels.shape):
        opacity = alpha[rows][..., None] / white
        blend = picture.pixels[rows] * opacity + white * (1 - opacity)
        pixels[rows] = np.rint(blend) if pixels.dtype.kind in "iu" else blend
    return replace(picture, pixels=pixels, alpha=None)
