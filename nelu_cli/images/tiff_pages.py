"""The pages of a TIFF, decoded one by one, so that a stack need not fit into memory."""

import contextlib
import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import tifffile

from nelu_cli.images import exif, jpeg_scans
from nelu_cli.images import tiff_tags as tags
from nelu_cli.images.format import Source
from nelu_cli.images.picture import Array, Header, Metadata, PageTags, Picture, Refusal, TiffLayout
from nelu_cli.images.segment_sizes import WHOLE_FILES, misfit

_SUPPORTED = (tags.WHITE_IS_ZERO, tags.BLACK_IS_ZERO, tags.PALETTE, *tags.COLOURS)
_JPEG = (7, 34892)  # compressions whose segments are whole JPEGs
_LOSSY = (6, *_JPEG, 50001)  # and old-style JPEG, WebP
_BUFFER_BYTES = 16 << 20  # of compressed data read ahead; tifffile would take 256 MiB
_HIGHEST_RATIO = 1 << 16  # of pixels to file in bytes, reached by empty pictures only
_MOST_LEVELS = 32  # of a pyramid


class TiffPages:
    """A TIFF as a list of pages, each with its own size, kind and tags.

    A page is a directory of the file that is no reduced version of another one; or a plane of the
    only directory, as ImageJ and MetaMorph write large stacks. Pages have the order of the file,
    which is that of their tags. The order of a description (OME) may be another; it is copied and
    stays true this way.

    Attributes:
        notes: what is missing in a damaged file, if it is to be salvaged.
    """

    def __init__(self, source: Source) -> None:
        """Read the table of pages.

        Raises:
            ValueError: it is damaged, unless the source is to be salvaged.
        """
        self.notes: list[str] = []
        self._salvage = source.salvage
        places, cut = tags.places(source.stream)
        if not places:
            raise ValueError("no pages")
        if cut:
            self._damaged(f"pages after page {len(places)} are missing")
        main = [number for number, place in enumerate(places) if not place.reduced]
        self._numbers = main or [0]
        self._places = places
        self._stream = source.stream
        self._stream.seek(0)
        self._file = tifffile.TiffFile(self._stream, _multifile=False)
        self._budget = exif.Budget(self._file.filehandle.size)
        self._last: tuple[int, Any, Array] | None = None
        self._planes = self._count_planes()
        self._of_file = tuple(self.notes)  # the others are notes of pages

    def close(self) -> None:
        """Let go of the file; the source's stream stays open."""
        self._file.close()

    def __len__(self) -> int:
        return self._planes if len(self._numbers) == 1 else len(self._numbers) * self._planes

    def header(self, index: int) -> Header:
        """What a page says; whether the others are like the first."""
        page = self._page(index // self._planes)
        dtype = np.dtype(page.dtype)
        channels = page.samplesperpixel - _has_alpha(page)
        if page.photometric == tags.PALETTE and not self._lut(page):
            channels, dtype = 3, np.dtype(np.uint8)
        elif page.bitspersample <= 8 and dtype.kind in "ub":
            dtype = np.dtype(np.uint8)
        return Header(
            "TIFF",
            page.imagewidth,
            page.imagelength,
            channels,
            dtype,
            alpha=_has_alpha(page),
            pages=len(self),
            coded=page.tilewidth * page.tilelength if page.is_tiled else 0,
            equal=len({self._places[number].kind for number in self._numbers}) == 1,
        )

    def __getitem__(self, index: int) -> Picture:
        """Decode one page.

        Raises:
            ValueError: it is damaged.
            Refusal: it is of a kind that is not supported.
        """
        number, plane = divmod(index, self._planes)
        page = self._page(number)
        told = len(self.notes)
        samples = self._samples(number, plane)
        tags_of_page = PageTags() if plane else self._tags(number, page)
        metadata = self._metadata(page, tags_of_page)
        pixels = _decode(samples, page, metadata.lut)
        alpha = None
        if _has_alpha(page):
            pixels, alpha = pixels[..., :-1], pixels[..., -1]
        notes = (*(() if index else self._of_file), *self.notes[told:])
        return Picture(pixels, alpha, "TIFF", metadata, notes)

    def whole(self) -> Picture:
        """All pages as one picture.

        Raises:
            Refusal: they differ in size or kind.
        """
        first = self[0]
        assert first.metadata.tiff is not None
        if len(self) > 1:
            pixels = np.empty((len(self), *first.pixels.shape), first.pixels.dtype)
            alpha = None if first.alpha is None else np.empty(pixels.shape[:-1], pixels.dtype)
            known = list(first.metadata.tiff.pages)
            for index in range(len(self)):
                page = self[index] if index else first
                if _kind(page) != _kind(first):
                    raise Refusal("its pages differ in size or kind; split them into files first")
                pixels[index] = page.pixels
                if alpha is not None:
                    alpha[index] = page.alpha
                if index and page.metadata.tiff is not None:
                    known += page.metadata.tiff.pages
            layout = replace(first.metadata.tiff, axes=self._axes(), pages=tuple(known))
            metadata = replace(first.metadata, tiff=layout)
            first = replace(first, pixels=pixels, alpha=alpha, metadata=metadata)
        return replace(first, notes=tuple(self.notes))

    def _damaged(self, problem: str) -> None:
        if not self._salvage:
            raise ValueError(problem)
        self.notes.append(problem)

    def _axes(self) -> str:
        with contextlib.suppress(Exception):  # a description that makes no sense
            return str(self._file.series[0].axes)
        return ""

    def _page(self, number: int) -> Any:
        """The description of a page, if its kind is supported."""
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        page: Any = self._file.pages[self._numbers[number]]
        if page.photometric not in _SUPPORTED:
            name = getattr(page.photometric, "name", page.photometric)
            raise Refusal(f"TIFF colour type {name} is not supported; convert it to RGB first")
        if page.dtype is None:
            raise Refusal(f"TIFF samples of {page.bitspersample} bits are not supported")
        if page.dtype.kind not in "uifb":
            raise Refusal(f"TIFF samples of type {page.dtype} are not supported")
        if page.nbytes > self._file.filehandle.size * _HIGHEST_RATIO:
            raise ValueError("truncated")  # before memory is reserved
        return page

    def _count_planes(self) -> int:
        """How many planes a directory holds: one, the depth of a volume, or a whole stack."""
        page = self._page(0)
        if len(self._numbers) > 1:
            return max(1, int(page.imagedepth))
        size = page.imagewidth * page.imagelength * page.samplesperpixel
        planes = max(1, math.prod(self._file.series[0].shape) // max(1, int(size)))
        said = (self._file.imagej_metadata or {}).get("images", 1)
        if isinstance(said, int) and planes == 1 < said and page.is_contiguous and page.is_final:
            room = self._file.filehandle.size - int(page.dataoffsets[0])
            planes = max(1, min(said, room // max(1, int(page.nbytes))))
            self._damaged(f"{said - planes} of {said} pages are missing")
        return planes

    def _samples(self, number: int, plane: int) -> Array:
        """The samples (H, W, S) of a plane of a directory."""
        page = self._page(number)
        if self._planes == max(1, page.imagedepth):
            if self._last is None or self._last[0] != number:
                self._last = number, page, self._volume(number, page)
            volume = self._last[2]
        elif page.is_contiguous and page.imagedepth == 1 and page.predictor == page.fillorder == 1:
            dtype = page.dtype.newbyteorder(self._file.byteorder)
            self._stream.seek(page.dataoffsets[0] + plane * page.nbytes)
            content = self._stream.read(page.nbytes)
            volume, plane = np.frombuffer(bytearray(content), dtype).reshape(page.shaped), 0
        else:
            if self._last is None:
                whole = self._file.series[0].asarray(buffersize=_BUFFER_BYTES)
                self._last = number, page, whole.reshape(-1, *page.shaped)
            volume, plane = self._last[2][plane // page.imagedepth], plane % page.imagedepth
        separate, _, height, width, together = volume.shape
        return np.moveaxis(volume[:, plane], 0, -2).reshape(height, width, separate * together)

    def _volume(self, number: int, page: Any) -> Array:
        """The samples of a directory: (separate samples, depth, height, width, samples)."""
        lost = self._lost_segments(page)
        if not lost and not self._salvage:
            return np.asarray(page.asarray(squeeze=False, buffersize=_BUFFER_BYTES))
        kind = "tiles" if page.is_tiled else "strips of rows"
        if not self._salvage:
            raise ValueError(
                f"truncated: {len(lost)} of {math.prod(page.chunked)} {kind} are missing "
                f"on page {number + 1}"
            )
        result = np.zeros(page.shaped, page.dtype.newbyteorder(self._file.byteorder))
        if page.is_contiguous:
            self._stream.seek(page.dataoffsets[0])
            content = self._stream.read(page.nbytes)
            result.view(np.uint8).reshape(-1)[: len(content)] = np.frombuffer(content, np.uint8)
            if len(content) < page.nbytes:
                share = math.ceil(100 * (1 - len(content) / page.nbytes))
                self.notes.append(f"page {number + 1}: {share} % are missing and black")
            return result
        for index in range(math.prod(page.chunked)):
            try:
                if index not in lost:
                    self._put_segment(result, page, index)
            except Exception:  # decoders raise anything
                lost.add(index)
        if lost:
            self.notes.append(
                f"page {number + 1}: {len(lost)} of {math.prod(page.chunked)} {kind} are missing "
                "and black"
            )
        return result

    def _put_segment(self, result: Array, page: Any, index: int) -> None:
        content = self._segment(page, index)
        segment, place, _ = page.decode(content, index, jpegtables=page.jpegtables)
        sample, depth, row, column, _ = place
        target = result[sample, depth:, row:, column:][tuple(slice(n) for n in segment.shape)]
        target[:] = segment[tuple(slice(n) for n in target.shape)]

    def _lost_segments(self, page: Any) -> set[int]:
        """The strips or tiles of a page that the file does not hold, or not to their ends."""
        size = self._file.filehandle.size
        offsets, counts = page.dataoffsets, page.databytecounts
        expected = math.prod(page.chunked)
        if page.is_contiguous:
            there = bool(offsets) and 0 < offsets[0] <= size - page.nbytes
            return set() if there else set(range(expected))
        there_all = {
            index
            for index, (offset, count) in enumerate(zip(offsets, counts, strict=False))
            if offset and count and offset + count <= size
        }
        if page.compression in WHOLE_FILES:
            there_all -= {index for index in there_all if self._misfits(page, index)}
        if page.compression in _JPEG:
            there_all = {
                index for index in there_all if jpeg_scans.is_whole(self._jpeg(page, index))
            }
        return set(range(expected)) - there_all

    def _misfits(self, page: Any, index: int) -> bool:
        """Whether a strip or tile holds a larger picture than fits; strips may end with a block."""
        rows = -(-min(page.rowsperstrip, page.imagelength) // 16) * 16
        room = (page.tilelength, page.tilewidth) if page.is_tiled else (rows, page.imagewidth)
        problem = misfit(self._segment(page, index), *room)
        if problem and not self._salvage:
            raise ValueError(problem)
        return problem is not None

    def _segment(self, page: Any, index: int) -> bytes:
        self._stream.seek(page.dataoffsets[index])
        return self._stream.read(page.databytecounts[index])

    def _jpeg(self, page: Any, index: int) -> bytes:
        """A strip or tile with the tables that all of them share."""
        content = self._segment(page, index)
        tables = page.jpegtables or b"\xff\xd8" + jpeg_scans.END
        return bytes(tables[: -len(jpeg_scans.END)] + content[2:])

    def _tags(self, number: int, page: Any) -> PageTags:
        """The tags of a directory that do not describe its pixels, and its reduced versions."""
        place = self._numbers[number]
        order, big = self._file.byteorder, self._file.is_bigtiff
        found = tags.directory(self._stream, self._places[place].offset, order, big, self._budget)
        if self._budget.problem:
            self._damaged(self._budget.problem)
            self._budget.problem = None
        thumbnails = []
        for after in self._places[place + 1 :]:
            if not after.reduced:
                break
            thumbnails.append(after.size)
        levels = []
        with contextlib.suppress(Exception):  # directories that are damaged
            levels = [
                (level.imagelength, level.imagewidth)
                for level in list(page.pages or ())[:_MOST_LEVELS]
                if level.is_reduced
            ]
        return PageTags(found, self._versions(page, levels), self._versions(page, thumbnails))

    def _versions(self, page: Any, sizes: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Those of the sizes that a smaller version of a page may have; labels have others."""
        height, width = page.imagelength, page.imagewidth
        kept = []
        for h, w in sizes[:_MOST_LEVELS]:
            alike = abs(h * width - w * height) <= 2 * max(height, width)
            if 0 < h <= height and 0 < w <= width and alike:
                kept.append((h, w))
            else:
                self.notes.append(f"a smaller picture of another kind ({w} x {h}) is left out")
        return tuple(kept)

    def _lut(self, page: Any) -> bytes | None:
        """The colours of a palette, if its indices are brightnesses: a look-up table.

        They are in files of microscopes, and where brighter colours have higher indices.
        """
        if page.photometric != tags.PALETTE:
            return None
        if page.colormap is None:
            raise ValueError("palette missing")
        colours = np.asarray(page.colormap, np.uint16)  # (3, entries)
        luma = np.array([0.299, 0.587, 0.114]) @ colours
        rising = bool(np.all(np.diff(luma) >= 0)) and luma[-1] > luma[0]
        science = self._file.is_imagej or self._file.is_ome
        return colours.tobytes() if science or rising else None

    def _metadata(self, page: Any, own: PageTags) -> Metadata:
        order: Literal["<", ">"] = ">" if self._file.byteorder == ">" else "<"
        first = own.tags
        camera = replace(first.only(exif.MAIN_TAGS), children=first.children)
        compression = int(page.compression)
        rows = None if page.is_tiled else page.rowsperstrip
        tile = (page.tilelength, page.tilewidth) if page.is_tiled else (1, 1)
        return Metadata(
            icc=first.get(exif.ICC),
            exif=exif.pack(camera, order),
            xmp=first.get(exif.XMP),
            photoshop=first.get(exif.PHOTOSHOP),
            dpi=tags.dpi(first, order),
            bilevel=page.bitspersample == 1 and page.samplesperpixel == 1,
            cmyk=page.photometric == tags.CMYK,
            lossy=compression in _LOSSY,
            white=_white(page),
            lut=self._lut(page),
            tiff=TiffLayout(
                axes=page.axes,
                byteorder=order,
                bigtiff=self._file.is_bigtiff,
                photometric=int(page.photometric),
                planar=page.planarconfig == 2 and page.samplesperpixel > 1,
                extrasample=int(page.extrasamples[-1]) if page.extrasamples else 0,
                compression=compression if compression in tags.LOSSLESS else tags.ADOBE_DEFLATE,
                predictor=int(page.predictor),
                tile=tile if tile[0] % 16 == tile[1] % 16 == 0 else None,
                rows_per_strip=rows if rows and rows < page.imagelength else None,
                pages=(own,),
            ),
        )


def _kind(picture: Picture) -> tuple[Any, ...]:
    """What pages of one stack have in common."""
    data = picture.metadata
    alike = data.bilevel, data.cmyk, data.white, data.lut
    return picture.pixels.shape, picture.pixels.dtype, picture.alpha is None, *alike


def _has_alpha(page: Any) -> bool:
    """Whether the last sample is declared as alpha."""
    return (
        page.photometric != tags.PALETTE
        and page.samplesperpixel > tags.COLOURS.get(page.photometric, 1)
        and tuple(page.extrasamples)[-1:] in ((1,), (2,))
    )


def _white(page: Any) -> int | None:
    """The value of white of samples that have fewer bits than their dtype, but at least 8."""
    bits = page.bitspersample
    fewer = page.dtype.kind == "u" and 8 < bits < 8 * page.dtype.itemsize
    return (1 << bits) - 1 if fewer and page.photometric != tags.PALETTE else None


def _decode(samples: Array, page: Any, lut: bytes | None) -> Array:
    """Palette to RGB, few bits to eight, white-is-zero to black-is-zero, native byte order."""
    if page.photometric == tags.PALETTE:
        if lut is None:
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
    if page.photometric == tags.WHITE_IS_ZERO and samples.dtype.kind == "u":
        samples = samples.copy()
        inks = samples[..., :-1] if _has_alpha(page) else samples
        np.subtract(_white(page) or np.iinfo(samples.dtype).max, inks, out=inks)
    return samples
