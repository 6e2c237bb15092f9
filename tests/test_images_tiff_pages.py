"""TIFF pages one by one: streamed equals whole, and what a file lacks is said."""

import contextlib
import io
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from nelu_cli.errors import ImageError
from nelu_cli.images import Picture, open_pages, probe, read, write, write_pages
from nelu_cli.images.picture import join_alpha

Array = NDArray[Any]


def noise(*shape: int, dtype: str = "uint16") -> Array:
    info = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    return generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def made(pixels: Array, **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, **{"photometric": "minisblack", **options})
    return stream.getvalue()


def pages_of(count: int, **options: Any) -> bytes:
    """A plain file of several directories, each followed by its pixels."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as file:
        for index in range(count):
            file.write(
                noise(20, 30) + index,
                photometric="minisblack",
                metadata=None,
                description=f"page {index}",
                **options,
            )
    return stream.getvalue()


def fire() -> Array:
    """A look-up table from black over red and yellow to white, as microscopes have them."""
    ramp = np.arange(256)
    rows = [np.clip(ramp * 3 - shift, 0, 255) for shift in (0, 255, 510)]
    return (np.stack(rows) * 257).astype(np.uint16)


def alpha_stack() -> bytes:
    picture = Picture(noise(3, 5, 6, 3, dtype="uint8"), noise(3, 5, 6, dtype="uint8"), "TIFF")
    write(picture, stream := io.BytesIO())
    return stream.getvalue()


def pyramid(*, subifds: bool, ome: bool = False) -> bytes:
    """Two pages of 64 x 48 pixels with two smaller versions each."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream, ome=ome) as file:
        for _ in range(1 if ome else 2):
            pixels = noise(2, 64, 48) if ome else noise(64, 48)
            file.write(
                pixels,
                photometric="minisblack",
                subifds=2 if subifds else None,
                metadata={"axes": "ZYX"} if ome else None,
                tile=(16, 16),
            )
            for step in (2, 4):
                file.write(
                    pixels[..., ::step, ::step],
                    photometric="minisblack",
                    subfiletype=1,
                    metadata=None,
                    tile=(16, 16),
                )
    return stream.getvalue()


STACKS: dict[str, Callable[[], bytes]] = {
    "one": lambda: made(noise(20, 30)),
    "plain": lambda: pages_of(5),
    "deflate": lambda: pages_of(5, compression="zlib", predictor=True),
    "tiled": lambda: pages_of(3, tile=(16, 16)),
    "rgb": lambda: made(noise(4, 5, 6, 3, dtype="uint8"), photometric="rgb"),
    "planar": lambda: made(noise(4, 3, 5, 6), photometric="rgb", planarconfig="separate"),
    "alpha": alpha_stack,
    "imagej": lambda: made(noise(2, 3, 8, 9), imagej=True, metadata={"axes": "TZYX"}),
    "ome": lambda: made(noise(2, 3, 8, 9), ome=True, metadata={"axes": "TCYX"}),
    "big-endian": lambda: made(noise(3, 8, 9), byteorder=">", metadata=None),
    "volume": lambda: made(noise(4, 16, 16), volumetric=True, tile=(4, 16, 16), metadata=None),
    "twelve": lambda: made(noise(3, 8, 9) >> 4, bitspersample=12),
    "white-is-zero": lambda: made(noise(3, 8, 9, dtype="uint8"), photometric="miniswhite"),
    "lut": lambda: made(noise(3, 8, 9, dtype="uint8"), photometric="palette", colormap=fire()),
    "sub-levels": lambda: pyramid(subifds=True),
    "levels": lambda: pyramid(subifds=False),
}


# Streamed equals whole


@pytest.mark.parametrize("name", STACKS)
def test_streamed_pages_are_those_of_the_whole(name: str) -> None:
    data = STACKS[name]()
    whole = read(data)
    with open_pages(data) as pages:
        assert len(pages) == probe(data).pages
        streamed = [join_alpha(page) for page in pages]
        again = [join_alpha(pages[index]) for index in reversed(range(len(pages)))]
    expected = join_alpha(whole).reshape(-1, *streamed[0].shape)
    assert np.array_equal(streamed, expected)
    assert np.array_equal(again[::-1], expected)


@pytest.mark.parametrize("name", STACKS)
def test_a_file_written_page_by_page_is_the_one_written_at_once(name: str, tmp_path: Path) -> None:
    data = STACKS[name]()
    write(read(data), tmp_path / "whole.tif")
    with open_pages(data) as pages, write_pages(tmp_path / "pages.tif") as add:
        for page in pages:
            assert add(page) == ()
    assert (tmp_path / "pages.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()
    write(read(tmp_path / "pages.tif"), tmp_path / "again.tif")
    assert (tmp_path / "again.tif").read_bytes() == (tmp_path / "whole.tif").read_bytes()


def test_a_stack_never_is_in_memory_as_a_whole(tmp_path: Path) -> None:
    page = noise(256, 256)
    for name, options in (("pages.tif", {"compression": "zlib"}), ("imagej.tif", {"imagej": True})):
        path = tmp_path / name
        tifffile.imwrite(path, np.stack([page] * 64), photometric="minisblack", **options)
        with open_pages(path) as pages, write_pages(tmp_path / "out.tif") as add:
            tracemalloc.start()
            for each in pages:
                add(each)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 16 * page.nbytes  # of 64
        assert read(tmp_path / "out.tif").pixels.shape == (64, 256, 256, 1)


def test_any_format_has_pages_and_takes_one(tmp_path: Path) -> None:
    picture = Picture(noise(5, 6, 3, dtype="uint8"), None, "PNG")
    write(picture, tmp_path / "a.png")
    with open_pages(tmp_path / "a.png") as pages, write_pages(tmp_path / "b.png") as add:
        (page,) = pages
        assert pages.header(0) == probe(tmp_path / "a.png")
        add(page)
        with pytest.raises(ImageError, match=r"b\.png: PNG holds one picture, not several; choose"):
            add(page)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_file_of_pages_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def interrupted() -> None:
        with write_pages(tmp_path / "out.tif") as add:
            add(Picture(noise(5, 6, 1), None, "TIFF"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with (
        pytest.raises(ImageError, match=r"out\.tif: a file without a picture is not written"),
        write_pages(tmp_path / "out.tif"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_pages_go_through_a_pipe() -> None:
    stream = io.BytesIO()
    with write_pages(stream) as add:
        for pixels in noise(3, 5, 6, 1):
            add(Picture(pixels, None, "TIFF"))
    assert np.array_equal(read(stream.getvalue()).pixels, noise(3, 5, 6, 1))


# Pages that differ


def mixed() -> Iterator[Array]:
    yield noise(8, 9)
    yield noise(5, 7, 3, dtype="uint8")
    yield noise(8, 9, dtype="uint8")


def test_pages_that_differ_are_done_one_by_one(tmp_path: Path) -> None:
    path, target = tmp_path / "mixed.tif", tmp_path / "out.tif"
    with tifffile.TiffWriter(path) as file:
        for pixels in mixed():
            kind = "rgb" if pixels.ndim == 3 else "minisblack"
            file.write(pixels, photometric=kind, metadata=None, description=str(pixels.shape))
    assert probe(path).pages == 3
    assert not probe(path).equal
    with open_pages(path) as pages, write_pages(target) as add:
        assert [pages.header(index).width for index in range(3)] == [9, 7, 9]
        for page in pages:
            add(page)
    with tifffile.TiffFile(target) as after:
        for written, pixels in zip(after.pages, mixed(), strict=True):
            assert np.array_equal(written.asarray(), pixels)
            assert isinstance(written, tifffile.TiffPage)
            assert written.description == str(pixels.shape)


def test_the_limit_counts_for_every_page(tmp_path: Path) -> None:
    path = tmp_path / "mixed.tif"
    with tifffile.TiffWriter(path) as file:
        for size in (8, 10):
            file.write(noise(size, size), photometric="minisblack", metadata=None)
    with open_pages(path, max_pixels=64) as pages:
        assert pages[0].pixels.shape == (8, 8, 1)
        with pytest.raises(ImageError, match=r"mixed\.tif: 10 x 10 pixels exceed the limit of 64"):
            pages[1]


# Truncated files


@pytest.mark.parametrize("name", ["plain", "deflate", "imagej", "ome", "rgb"])
def test_a_truncated_stack_is_an_error_and_can_be_salvaged(name: str) -> None:
    """At whatever place it is cut: an error, or nothing is missing; salvaged pages are right."""
    data = STACKS[name]()
    whole = read(data)
    salvaged = 0
    for end in range(8, len(data), max(1, len(data) // 60)):
        with contextlib.suppress(ImageError):
            picture = read(data[:end])
            assert np.array_equal(picture.pixels, whole.pixels)
            assert picture.metadata == whole.metadata
            continue
        try:
            picture = read(data[:end], salvage=True)
        except ImageError:
            continue
        assert picture.notes
        first = picture.pixels if picture.pixels.ndim == 3 else picture.pixels[0]
        salvaged += np.array_equal(first, whole.pixels[0])
    assert salvaged


def test_what_is_missing_is_named() -> None:
    data = pages_of(5)
    message = r"damaged TIFF file \(pages after page [1-4] are missing\)"
    with pytest.raises(ImageError, match=message):
        read(data[: len(data) * 3 // 5])
    picture = read(data[: len(data) * 3 // 5], salvage=True)
    assert picture.notes[0] == f"pages after page {len(picture.pixels)} are missing"
    assert np.array_equal(picture.pixels[0, ..., 0], noise(20, 30))


def test_planes_missing_from_an_imagej_stack_are_named() -> None:
    data = made(noise(6, 20, 30), imagej=True)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        start = file.pages.first.dataoffsets[0]
        (offset,) = struct.unpack_from("<I", data, 4)
    alone = bytearray(data[: start + 3 * 1200 + 600])  # three planes and a half, one directory
    (count,) = struct.unpack_from("<H", alone, offset)
    struct.pack_into("<I", alone, offset + 2 + 12 * count, 0)
    with pytest.raises(ImageError, match=r"damaged TIFF file \(3 of 6 pages are missing\)"):
        read(bytes(alone))
    picture = read(bytes(alone), salvage=True)
    assert picture.notes == ("3 of 6 pages are missing",)
    assert np.array_equal(picture.pixels[..., 0], noise(6, 20, 30)[:3])


def with_tag(data: bytes, code: int, change: Callable[[int], int], item: int = 0) -> bytes:
    """The file with one number of a tag of its first page changed."""
    content = bytearray(data)
    (offset,) = struct.unpack_from("<I", data, 4)
    for tag in range(struct.unpack_from("<H", data, offset)[0]):
        at = offset + 2 + 12 * tag
        number, kind, count = struct.unpack_from("<HHI", data, at)
        if number == code:
            form = {3: "<H", 4: "<I"}[kind]
            size = struct.calcsize(form)
            place = at + 8 if size * count <= 4 else struct.unpack_from("<I", data, at + 8)[0]
            place += item * size
            value = change(struct.unpack_from(form, content, place)[0])
            struct.pack_into(form, content, place, value)
    return bytes(content)


@pytest.mark.parametrize("code", [273, 279])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_strips_without_place_or_size_are_an_error(code: int, compression: str | None) -> None:
    data = made(noise(40, 30), rowsperstrip=10, compression=compression, metadata=None)
    damaged = with_tag(data, code, lambda old: 0, item=2)
    message = r"truncated: 1 of 4 strips of rows are missing on page 1"
    with pytest.raises(ImageError, match=message):
        read(damaged)
    picture = read(damaged, salvage=True)
    assert picture.notes == ("page 1: 1 of 4 strips of rows are missing and black",)
    expected = noise(40, 30)
    expected[20:30] = 0
    assert np.array_equal(picture.pixels[..., 0], expected)


def test_tiles_without_place_are_an_error() -> None:
    data = made(noise(40, 40), tile=(16, 16), compression="lzw", metadata=None)
    damaged = with_tag(data, 324, lambda old: 0, item=4)
    with pytest.raises(ImageError, match=r"truncated: 1 of 9 tiles are missing on page 1"):
        read(damaged)
    picture = read(damaged, salvage=True)
    expected = noise(40, 40)
    expected[16:32, 16:32] = 0
    assert np.array_equal(picture.pixels[..., 0], expected)


def test_a_damaged_strip_can_be_left_black() -> None:
    data = bytearray(made(noise(40, 30), rowsperstrip=10, compression="zlib", metadata=None))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        start = file.pages.first.dataoffsets[1]
    data[start : start + 40] = b"\xff" * 40
    with pytest.raises(ImageError, match="damaged TIFF file"):
        read(bytes(data))
    picture = read(bytes(data), salvage=True)
    assert picture.notes == ("page 1: 1 of 4 strips of rows are missing and black",)
    assert np.array_equal(picture.pixels[20:, :, 0], noise(40, 30)[20:])


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_picture_longer_than_its_data_is_an_error(compression: str | None) -> None:
    data = made(noise(40, 30), rowsperstrip=10, compression=compression, metadata=None)
    longer = with_tag(data, 257, lambda old: 50)
    with pytest.raises(ImageError, match="damaged TIFF file"):
        read(longer)
    picture = read(longer, salvage=True)
    assert picture.notes
    assert np.array_equal(picture.pixels[:40, :, 0], noise(40, 30))
    assert not picture.pixels[40:].any()


def test_jpeg_in_tiff_with_its_last_strip_cut_is_an_error() -> None:
    smooth = np.asarray(Image.fromarray(noise(6, 6, 3, dtype="uint8")).resize((64, 64)))
    data = made(smooth, photometric="rgb", compression="jpeg", rowsperstrip=16, metadata=None)
    cut = with_tag(data, 279, lambda old: old * 2 // 3, item=3)
    with pytest.raises(ImageError, match="truncated: 1 of 4 strips of rows are missing on page 1"):
        read(cut)
    assert np.array_equal(read(cut, salvage=True).pixels[:48], read(data).pixels[:48])


@pytest.mark.parametrize("lost", [6, 60])
def test_a_jpeg_strip_that_was_cut_and_ended_is_an_error(lost: int) -> None:
    smooth = np.asarray(Image.fromarray(noise(6, 6, 3, dtype="uint8")).resize((64, 64)))
    data = made(smooth, photometric="rgb", compression="jpeg", rowsperstrip=16, metadata=None)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages[0]
        assert isinstance(page, tifffile.TiffPage)
        end = page.dataoffsets[3] + page.databytecounts[3]
    ended = data[: end - lost - 2] + b"\xff\xd9" + data[end - lost :]
    cut = with_tag(ended, 279, lambda old: old - lost, item=3)
    with pytest.raises(ImageError, match="truncated: 1 of 4 strips of rows are missing on page 1"):
        read(cut)
    picture = read(cut, salvage=True)
    assert picture.notes == ("page 1: 1 of 4 strips of rows are missing and black",)
    assert np.array_equal(picture.pixels[:48], read(data).pixels[:48])


# Smaller versions and look-up tables


@pytest.mark.parametrize(("subifds", "ome"), [(True, False), (False, False), (True, True)])
def test_smaller_versions_are_made_anew(subifds: bool, ome: bool) -> None:
    picture = read(pyramid(subifds=subifds, ome=ome))
    flat = replace(picture, pixels=np.full_like(picture.pixels, 1000))
    flat.pixels[:, :2, :2] = 3000
    write(flat, stream := io.BytesIO())
    with tifffile.TiffFile(io.BytesIO(stream.getvalue())) as file:
        assert len(file.pages) == (2 if subifds else 6)
        first = file.pages[0]
        assert isinstance(first, tifffile.TiffPage)
        levels = list(first.pages or ()) if subifds else [file.pages[1], file.pages[2]]
        assert [level.shape for level in levels] == [(32, 24), (16, 12)]
        halved, quartered = (level.asarray() for level in levels)
        assert (halved[0, 0], halved[1, 1], quartered[0, 0]) == (3000, 1000, 1500)
        if ome:
            assert [level.shape for level in file.series[0].levels] == [
                (2, 64, 48),
                (2, 32, 24),
                (2, 16, 12),
            ]


def test_a_label_beside_the_picture_is_not_replaced_by_it() -> None:
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as file:
        file.write(noise(64, 48), photometric="minisblack", metadata=None)
        file.write(noise(30, 30), photometric="minisblack", subfiletype=1, metadata=None)
    picture = read(stream.getvalue())
    assert picture.notes == ("a smaller picture of another kind (30 x 30) is left out",)
    write(picture, again := io.BytesIO())
    with tifffile.TiffFile(io.BytesIO(again.getvalue())) as after:
        assert len(after.pages) == 1


@pytest.mark.parametrize("colours", [fire(), noise(3, 256)])
def test_a_microscopes_look_up_table_stays_one(colours: Array) -> None:
    pixels = noise(3, 8, 9, dtype="uint8")
    data = made(pixels, photometric="palette", colormap=colours, metadata=None)
    imagej = colours[0, 1] != fire()[0, 1]
    if imagej:  # there the order of the colours does not matter
        data = made(pixels, photometric="palette", colormap=colours, description="ImageJ=1.53t\n")
    picture = read(data)
    assert np.array_equal(picture.pixels[..., 0], pixels)
    assert probe(data).channels == 1
    write(picture, stream := io.BytesIO())
    with tifffile.TiffFile(io.BytesIO(stream.getvalue())) as file:
        assert file.pages.first.photometric == 3
        assert np.array_equal([each.asarray() for each in file.pages], pixels)
        assert np.array_equal(np.asarray(file.pages.first.colormap), colours)
    page = replace(picture, pixels=picture.pixels[0])
    write(page, stream := io.BytesIO(), format="PNG")
    assert np.array_equal(read(stream.getvalue()).pixels, (colours >> 8).T[pixels[0]])


# Tags


def test_tags_that_share_their_values_cannot_fill_the_memory(tmp_path: Path) -> None:
    """60 private tags a page, on 60 pages, all of which point at the same megabyte."""
    size, count = 1 << 20, 60
    blob = 8 + size
    content = b"II*\0" + struct.pack("<I", blob) + b"x" * size
    shape = [(256, 4), (257, 4), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (279, 16)]
    for page in range(count):
        start = len(content)
        entries = [struct.pack("<HHII", code, 4, 1, value) for code, value in shape]
        entries += [struct.pack("<HHII", 51000 + n, 7, size, 8) for n in range(count)]
        after = start + 2 + 12 * len(entries) + 4 if page < count - 1 else 0
        content += struct.pack("<H", len(entries)) + b"".join(entries) + struct.pack("<I", after)
    path = tmp_path / "bomb.tif"
    path.write_bytes(content)
    tracemalloc.start()
    assert probe(path).pages == count
    with pytest.raises(ImageError, match=r"its tags take more room than the whole file"):
        read(path)
    picture = read(path, salvage=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    assert picture.pixels.shape == (count, 4, 4, 1)
    assert "its tags take more room than the whole file; some are left out" in picture.notes


def test_tags_may_share_small_values() -> None:
    """Both resolutions of a page point at the same ratio."""
    data = made(noise(4, 4), metadata=None, resolution=((300, 1), (300, 1)))
    at = data.index(struct.pack("<HHI", 283, 5, 1)) + 8
    (across,) = struct.unpack_from("<I", data, data.index(struct.pack("<HHI", 282, 5, 1)) + 8)
    shared = data[:at] + struct.pack("<I", across) + data[at + 4 :]
    assert read(shared).metadata.dpi == (300, 300)
