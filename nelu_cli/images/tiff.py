"""TIFF through tifffile: any depth, channels, compression; stacks page by page with their tags.

Each page's tags that do not describe how pixels are stored are copied as they are. So ImageJ and
OME descriptions, pixel sizes, GeoTIFF tags and the like survive without being understood.
Thumbnails and the levels of pyramids are made anew from the page that they belong to.

CMYK pages keep their four inks as independent channels. A palette becomes RGB, but a look-up table
of a microscope's picture stays one. Samples of fewer than 8 bits are spread to 0–255; those of 9
to 15 bits keep their values, and their white.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import BinaryIO

from nelu_cli.images.format import Format, Source, starts_with
from nelu_cli.images.picture import Header, Picture
from nelu_cli.images.tiff_pages import TiffPages
from nelu_cli.images.tiff_writer import PageWriter

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # or it would write to stderr


def _pages(source: Source) -> contextlib.closing[TiffPages]:
    return contextlib.closing(TiffPages(source))


def _probe(source: Source) -> Header:
    with _pages(source) as pages:
        return pages.header(0)


def _read(source: Source) -> Picture:
    with _pages(source) as pages:
        return pages.whole()


def _write(picture: Picture, stream: BinaryIO) -> None:
    with contextlib.closing(PageWriter(stream, picture, picture.pixels.nbytes)) as writer:
        for page in _split(picture):
            writer.add(page)


def _split(picture: Picture) -> Iterator[Picture]:
    """The pages of a stack, each with its own tags."""
    if picture.pixels.ndim == 3:
        yield picture
        return
    layout = picture.metadata.tiff
    for index in range(len(picture.pixels)):
        page = picture.converted(itemgetter(index))
        own = layout and replace(layout, pages=layout.pages[index : index + 1])
        yield replace(page, metadata=replace(picture.metadata, tiff=own))


FORMAT = Format(
    name="TIFF",
    extensions=(".tif", ".tiff"),
    identify=starts_with(b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    probe=_probe,
    read=_read,
    write=_write,
    pages=_pages,
    writer=PageWriter,
    depths=(),
    channels=(),
    premultiplied=None,
    metadata=("icc", "exif", "xmp", "dpi", "photoshop", "tiff", "lut"),
    whites=lambda white: white & (white + 1) == 0,  # as many bits as it takes
    inks=True,
    bilevel=True,
)
