"""Pictures survive the way from file to file; what cannot be done is said in one line."""

import io
import os
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import skimage
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from nelu_cli import images
from nelu_cli.errors import ImageError
from nelu_cli.images import (
    EXTENSIONS,
    FORMATS,
    READABLE,
    Format,
    Header,
    Metadata,
    Picture,
    Source,
    format_for,
    probe,
    read,
    register,
    to_dtype,
    write,
)

Array = NDArray[Any]
SAMPLES = Path(skimage.__file__).parent / "data"


def noise(*shape: int, dtype: str = "uint8", seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return generator.normal(size=shape).astype(kind)
    info = np.iinfo(kind)
    return generator.integers(info.min, info.max, shape, dtype=kind, endpoint=True)


def encoded(picture: Picture, format: str) -> bytes:
    stream = io.BytesIO()
    write(picture, stream, format=format)
    return stream.getvalue()


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def assert_same(left: Picture, right: Picture) -> None:
    assert left.pixels.dtype == right.pixels.dtype
    assert np.array_equal(left.pixels, right.pixels)
    assert (left.alpha is None) == (right.alpha is None)
    if left.alpha is not None and right.alpha is not None:
        assert left.alpha.dtype == right.alpha.dtype
        assert np.array_equal(left.alpha, right.alpha)


# Round trips


LOSSLESS = [
    *(("PNG", depth, channels, alpha) for depth in ("uint8", "uint16") for channels in (1, 3)
      for alpha in (False, True)),
    *(("PPM", depth, channels, False) for depth in ("uint8", "uint16") for channels in (1, 3)),
    *(("BMP", "uint8", channels, False) for channels in (1, 3)),
    *(("WEBP", "uint8", 3, alpha) for alpha in (False, True)),
    *(("TIFF", depth, channels, alpha)
      for depth in ("uint8", "int8", "uint16", "int16", "uint32", "int32",
                    "float16", "float32", "float64")
      for channels in (1, 2, 3, 4, 5) for alpha in (False, True)),
]  # fmt: skip


@pytest.mark.parametrize(("format", "depth", "channels", "alpha"), LOSSLESS)
def test_lossless_formats_round_trip(format: str, depth: str, channels: int, alpha: bool) -> None:
    pixels = noise(11, 14, channels, dtype=depth)
    mask = noise(11, 14, dtype=depth, seed=1) if alpha else None
    picture = Picture(pixels, mask, format)
    data = encoded(picture, format)
    again = read(data)
    assert again.format == format
    assert_same(again, picture)
    assert probe(data) == Header(format, 14, 11, channels, np.dtype(depth), alpha=alpha)


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    format=st.sampled_from(["PNG", "PPM", "BMP", "TIFF"]),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_every_size_round_trips(
    height: int, width: int, format: str, channels: int, seed: int
) -> None:
    picture = Picture(noise(height, width, channels, seed=seed), None, format)
    assert_same(read(encoded(picture, format)), picture)


def test_pictures_larger_than_a_strip_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nelu_cli.images.picture._PIXELS_AT_ONCE", 100)
    picture = Picture(noise(41, 23, 3), noise(41, 23), "PNG")
    assert_same(read(encoded(picture, "WEBP")), picture)
    opaque = Picture(picture.pixels, None, "PNG")
    for format in ("BMP", "PPM", "PNG", "TIFF"):
        assert_same(read(encoded(opaque, format)), opaque)


@pytest.mark.parametrize("name", ["JPEG", "AVIF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_lossy_formats_come_close(name: str, channels: int) -> None:
    smooth = np.linspace(20, 230, 48 * 64 * channels).reshape(48, 64, channels).astype(np.uint8)
    again = read(encoded(Picture(smooth, None, "PNG"), name))
    difference = again.pixels.astype(int) - smooth
    assert np.abs(difference).max() <= 6
    assert again.metadata.lossy


def test_grey_jpeg_stays_grey() -> None:
    assert read(encoded(Picture(noise(20, 20, 1), None, "PNG"), "JPEG")).pixels.shape[-1] == 1


def test_heic_round_trips_with_metadata() -> None:
    pytest.importorskip("pillow_heif")
    smooth = np.linspace(20, 230, 48 * 64 * 3).reshape(48, 64, 3).astype(np.uint8)
    metadata = Metadata(icc=profile(), xmp=b"<x:xmpmeta/>")
    again = read(encoded(Picture(smooth, noise(48, 64), "PNG", metadata), "HEIF"))
    assert np.abs(again.pixels.astype(int) - smooth).max() <= 12
    assert again.alpha is not None
    assert (again.format, again.metadata.icc, again.metadata.xmp) == (
        "HEIF",
        metadata.icc,
        metadata.xmp,
    )


@pytest.mark.parametrize("depth", ["float16", "float32"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_exr_round_trips(depth: str, channels: int) -> None:
    pytest.importorskip("OpenEXR")
    for alpha in (None, noise(9, 8, dtype=depth)):
        pixels = noise(9, 8, channels, dtype=depth)
        again = read(encoded(Picture(pixels, alpha, "EXR"), "EXR"))
        if alpha is not None:  # stored multiplied by it
            pixels = (pixels * alpha[..., None].astype(np.float64)).astype(depth)
        assert_same(again, Picture(pixels, alpha, "EXR"))
        assert_same(read(encoded(again, "EXR")), again)


def profile() -> bytes:
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.mark.parametrize(
    "name",
    [
        "astronaut.png",
        "camera.png",
        "chessboard_GRAY.png",
        "color.png",
        "horse.png",
        "logo.png",
        "microaneurysms.png",
        "multipage.tif",
        "multipage_rgb.tif",
        "phantom.png",
        "text.png",
    ],
)
def test_real_files_round_trip(name: str, tmp_path: Path) -> None:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("not in this version of scikit-image")
    picture = read(path)
    target = tmp_path / name
    write(picture, target)
    assert_same(read(target), picture)
    assert probe(target) == probe(path)


@pytest.mark.parametrize("name", ["astronaut.png", "camera.png", "rocket.jpg", "logo.png"])
def test_pixels_are_what_pillow_reads(name: str) -> None:
    picture = read(SAMPLES / name)
    with Image.open(SAMPLES / name) as image:
        expected = np.asarray(image)
    stored = images.picture.join_alpha(picture)
    assert np.array_equal(stored.reshape(expected.shape), expected)


# The table of formats


def test_every_format_has_one_entry_with_names_of_its_own() -> None:
    names = [name for entry in FORMATS.values() for name in entry.extensions]
    assert len(names) == len(set(names))
    assert all(name == name.lower() and name.startswith(".") for name in names)
    assert READABLE.keys() == set(names)
    assert {
        name: entry.name for entry in FORMATS.values() if entry.write for name in entry.extensions
    } == EXTENSIONS


@pytest.fixture
def table() -> Iterator[None]:
    """Let a test add formats, and take them out again."""
    with patch.dict(FORMATS), patch.dict(EXTENSIONS), patch.dict(READABLE):
        yield


@pytest.mark.usefixtures("table")
def test_an_outside_format_can_be_added_for_reading_only(tmp_path: Path) -> None:
    """A kind of TIFF that only its name tells, and a folder: both before the formats of ours."""
    header = Header("RAW", 3, 2, 1, np.dtype("uint16"))
    picture = Picture(noise(2, 3, 1, dtype="uint16"), None, "RAW")

    def entry(name: str, suffix: str) -> Format:
        return Format(
            name=name,
            extensions=(suffix,),
            identify=lambda source: source.path is not None and source.path.suffix == suffix,
            probe=lambda source: header,
            read=lambda source: picture,
        )

    register(entry("RAW", ".nef"))
    register(entry("ZARR", ".zarr"))
    (tmp_path / "a.nef").write_bytes(encoded(Picture(noise(5, 5, 1), None, "TIFF"), "TIFF"))
    (tmp_path / "a.zarr").mkdir()
    for name in ("a.nef", "a.zarr"):
        assert probe(tmp_path / name) == header
        assert read(tmp_path / name) is picture
        assert name[1:] in READABLE
        assert name[1:] not in EXTENSIONS
        with pytest.raises(ImageError, match=r"(RAW|ZARR) cannot be written; choose PNG"):
            write(picture, tmp_path / f"out{name[1:]}")


# Particular kinds of files


def test_bilevel_png_reads_as_black_and_white_and_stays_one_bit(tmp_path: Path) -> None:
    data = saved(Image.fromarray(noise(9, 13)).convert("1"), "PNG")
    picture = read(data)
    assert set(np.unique(picture.pixels)) == {0, 255}
    again = encoded(picture, "PNG")
    assert again[24] == 1  # bits per sample
    assert_same(read(again), picture)


def test_bilevel_png_with_greys_becomes_eight_bits() -> None:
    picture = read(saved(Image.fromarray(noise(9, 13)).convert("1"), "PNG"))
    grey = Picture(picture.pixels // 2, None, "PNG", picture.metadata)
    again = encoded(grey, "PNG")
    assert again[24] == 8
    assert_same(read(again), grey)


@pytest.mark.parametrize("format", ["PPM", "BMP", "TIFF"])
def test_bilevel_files_of_other_formats_round_trip(format: str) -> None:
    image = Image.fromarray(noise(9, 13)).convert("1")
    picture = read(saved(image, format))
    assert picture.metadata.bilevel
    assert np.array_equal(picture.pixels[..., 0], np.asarray(image) * np.uint8(255))
    again = encoded(picture, format)
    with Image.open(io.BytesIO(again)) as reread:
        assert reread.mode == "1"
        assert np.array_equal(np.asarray(reread), np.asarray(image))


@pytest.mark.parametrize("bits", [2, 4])
def test_png_of_few_bits_is_spread_to_eight(bits: int) -> None:
    top = (1 << bits) - 1
    ramp = np.arange(top + 1, dtype=np.uint8) * np.uint8(255 // top)
    picture = read(saved(Image.fromarray(ramp[None]), "PNG", bits=bits))
    assert np.array_equal(picture.pixels[0, :, 0], ramp)


def test_palette_becomes_rgb() -> None:
    image = Image.fromarray(noise(9, 13, 3)).quantize(17)
    for format in ("PNG", "BMP", "GIF", "TIFF"):
        picture = read(saved(image, format))
        assert np.array_equal(picture.pixels, np.asarray(image.convert("RGB")))
        assert picture.alpha is None


def test_palette_with_transparency_becomes_rgb_and_alpha() -> None:
    image = Image.fromarray(noise(9, 13, 3)).quantize(17)
    for transparency in (3, bytes([255, 0, 128, 7])):
        data = saved(image, "PNG", transparency=transparency)
        picture = read(data)
        with Image.open(io.BytesIO(data)) as reread:
            expected = np.asarray(reread.convert("RGBA"))
        assert picture.alpha is not None
        assert np.array_equal(picture.pixels, expected[..., :3])
        assert np.array_equal(picture.alpha, expected[..., 3])
        assert_same(read(encoded(picture, "PNG")), picture)


def test_transparent_colour_becomes_alpha() -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    picture = read(saved(Image.fromarray(grey), "PNG", transparency=5))
    assert picture.alpha is not None
    assert np.array_equal(picture.alpha, np.where(grey == 5, 0, 255))


def test_interlaced_png_is_read(tmp_path: Path) -> None:
    """A 1 x 1 Adam7 file, made by hand."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 1))
    data += chunk(b"IDAT", zlib.compress(b"\0\x2a")) + chunk(b"IEND", b"")
    assert read(data).pixels.tolist() == [[[42]]]


def test_cmyk_jpeg_keeps_its_inks() -> None:
    image = Image.new("CMYK", (16, 16), (200, 100, 50, 10))
    picture = read(saved(image, "JPEG", quality=100))
    assert picture.pixels.shape == (16, 16, 4)
    assert picture.alpha is None
    assert np.abs(picture.pixels.astype(int) - (200, 100, 50, 10)).max() <= 2
    again = read(encoded(picture, "JPEG"))
    assert np.abs(again.pixels.astype(int) - picture.pixels).max() <= 2
    assert_same(read(encoded(picture, "TIFF")), picture)
    with Image.open(io.BytesIO(encoded(picture, "TIFF"))) as reread:
        assert reread.mode == "CMYK"


def test_cmyk_becomes_rgb_only_when_asked() -> None:
    picture = read(saved(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "JPEG", quality=100))
    stream = io.BytesIO()
    with pytest.raises(ImageError, match="PNG cannot hold CMYK; choose TIFF or JPEG"):
        write(picture, stream, format="PNG")
    write(picture, stream, format="PNG", allow_depth_loss=True)
    red = read(stream.getvalue()).pixels.astype(int)
    assert np.abs(red - (255, 0, 0)).max() <= 3


@pytest.mark.parametrize("maxval", [1, 15, 100, 1023, 4095])
@pytest.mark.parametrize("kind", [5, 6])
def test_netpbm_of_any_maximum_round_trips(maxval: int, kind: int) -> None:
    shape = (5, 7, 1 if kind == 5 else 3)
    values = np.random.default_rng(0).integers(0, maxval, shape, endpoint=True)
    values[0, 0], values[0, 1] = 0, maxval
    stored = values.astype(">u2" if maxval > 255 else np.uint8)
    data = b"P%d # comment\n7\n5 # another\n%d\n" % (kind, maxval) + stored.tobytes()
    picture = read(data)
    assert picture.pixels.max() == picture.white == maxval
    assert picture.pixels.dtype == (np.uint16 if maxval > 255 else np.uint8)
    again = encoded(picture, "PPM")
    assert again == b"P%d\n7 5\n%d\n" % (kind, maxval) + stored.tobytes()
    white = 65535 if maxval > 255 else 255
    assert np.array_equal(read(encoded(picture, "PNG")).pixels, np.rint(values * (white / maxval)))


def test_netpbm_text_forms_are_read() -> None:
    assert read(b"P1\n3 2\n1 0 1\n010").pixels[..., 0].tolist() == [[0, 255, 0], [255, 0, 255]]
    assert read(b"P2 2 1 255 7 # seven\n 8").pixels[..., 0].tolist() == [[7, 8]]
    assert read(b"P3 1 1 65535 1 2 65535").pixels.tolist() == [[[1, 2, 65535]]]


@pytest.mark.parametrize("kind", [b"P2", b"P5"])
@pytest.mark.parametrize("maxval", [15, 255, 256])
def test_netpbm_values_above_the_largest_are_damaged(kind: bytes, maxval: int) -> None:
    if kind == b"P5":
        if maxval == 255:
            return  # no byte is above it
        data = bytes([9, 16]) if maxval < 256 else bytes([0, 9, 1, 1])
    else:
        data = b"9 %d" % (maxval + 1)
    message = rf"damaged PPM file \(the value {maxval + 1} is above the largest one, {maxval}\)"
    with pytest.raises(ImageError, match=message):
        read(kind + b" 2 1 %d\n" % maxval + data)


def test_netpbm_text_of_something_else_is_damaged() -> None:
    for text in (b"1 -2", b"1 x", b"1 2.5"):
        with pytest.raises(ImageError, match=r"damaged PPM file \(something that is no number\)"):
            read(b"P2 2 1 255\n" + text)


def test_grey_avif_stays_grey() -> None:
    import imagecodecs

    smooth = np.linspace(20, 230, 48 * 64).reshape(48, 64, 1).astype(np.uint8)
    deep = bytes(imagecodecs.avif_encode(smooth[..., 0].astype(np.uint16) * 4, bitspersample=10))
    for data in (encoded(Picture(smooth, None, "PNG"), "AVIF"), deep):
        assert read(data).pixels.shape == (48, 64, 1)
        assert probe(data).channels == 1


def test_exr_of_alpha_alone_is_a_picture() -> None:
    module = pytest.importorskip("OpenEXR")
    values = noise(9, 8, dtype="float32")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alpha.exr"
        module.File({"compression": module.ZIP_COMPRESSION}, {"A": values}).write(str(path))
        assert probe(path) == Header("EXR", 8, 9, 1, np.dtype("float32"))
        picture = read(path)
        assert_same(picture, Picture(values[..., None], None, "EXR"))
        assert_same(read(encoded(picture, "EXR")), picture)


@pytest.mark.usefixtures("table")
def test_reading_leaves_the_filters_of_warnings_alone() -> None:
    """They belong to the whole process: another thread may restore them at any time."""
    before, during = list(warnings.filters), []

    def look(source: Source) -> Header:
        during.append(list(warnings.filters))
        return png.probe(source)

    data = encoded(Picture(noise(3, 4, 1), None, "PNG"), "PNG")
    png = FORMATS["PNG"]
    register(replace(png, probe=look))
    read(data)
    assert during == [before]


@pytest.mark.parametrize("bits", [10, 12])
def test_deep_avif_keeps_its_depth(bits: int) -> None:
    import imagecodecs

    values = np.random.default_rng(0).integers(0, 2**bits, (16, 16, 3)).astype(np.uint16)
    values[0, 0], values[0, 1] = 0, 2**bits - 1
    data = bytes(imagecodecs.avif_encode(values, level=100, bitspersample=bits))
    decoded = imagecodecs.avif_decode(data)
    picture = read(data)
    assert picture.pixels.dtype == np.uint16
    assert picture.white == 2**bits - 1
    assert np.array_equal(picture.pixels, decoded)
    assert probe(data).dtype == np.uint16
    in_full = read(encoded(picture, "PNG")).pixels
    assert np.array_equal(in_full, np.rint(decoded * (65535 / (2**bits - 1))))


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    picture = Picture(noise(5, 6, 3), None, "PNG")
    path = tmp_path / "misnamed.jpg"
    path.write_bytes(encoded(picture, "PNG"))
    assert read(path).format == "PNG"
    assert_same(read(path), picture)


def test_webp_stays_lossless_only_if_it_was() -> None:
    pixels = np.asarray(Image.fromarray(noise(16, 16, 3)).resize((64, 64)))
    lossless = read(saved(Image.fromarray(pixels), "WEBP", lossless=True))
    lossy = read(saved(Image.fromarray(pixels), "WEBP", quality=50))
    assert not lossless.metadata.lossy
    assert b"VP8L" in encoded(lossless, "WEBP")
    assert lossy.metadata.lossy
    assert b"VP8 " in encoded(lossy, "WEBP")


# Depth and other limits of formats


def test_white_follows_the_depth() -> None:
    depths = ("uint8", "uint16", "int16", "float32")
    whites = [Picture(noise(1, 1, 1, dtype=depth), None, "TIFF").white for depth in depths]
    assert whites == [255, 65535, 32767, 1]


@pytest.mark.parametrize(
    ("depth", "format", "message"),
    [
        ("uint16", "JPEG", "JPEG cannot hold 16-bit samples; choose PNG or TIFF, or allow"),
        ("uint16", "WEBP", "WEBP cannot hold 16-bit samples; choose PNG or TIFF, or allow"),
        ("float32", "PNG", "PNG cannot hold 32-bit floating-point samples; choose TIFF, or allow"),
        ("int16", "PNG", "PNG cannot hold 16-bit signed samples; choose TIFF, or allow"),
        ("uint32", "PPM", "PPM cannot hold 32-bit samples; choose TIFF, or allow"),
        ("uint8", "EXR", "EXR cannot hold 8-bit samples; choose TIFF, or allow"),
    ],
)
def test_depth_is_not_lost_unasked(depth: str, format: str, message: str) -> None:
    picture = Picture(noise(4, 4, 3, dtype=depth), None, "TIFF")
    with pytest.raises(ImageError, match=f"standard output: {message} the loss of depth"):
        write(picture, io.BytesIO(), format=format)


@pytest.mark.parametrize(
    ("values", "format", "expected"),
    [
        (np.array([0, 32896, 65535], np.uint16), "BMP", [0, 128, 255]),
        (np.array([-1.0, 0.5, 1.0, 7.0], np.float32), "PNG", [0, 32768, 65535, 65535]),
        (np.array([-5, 0, 32767], np.int16), "PPM", [0, 0, 65535]),
        (np.array([-5, 0, 127], np.int8), "PNG", [0, 0, 255]),
    ],
)
def test_depth_can_be_given_up(values: Array, format: str, expected: list[int]) -> None:
    stream = io.BytesIO()
    picture = Picture(values.reshape(1, -1, 1), None, "TIFF")
    write(picture, stream, format=format, allow_depth_loss=True)
    assert read(stream.getvalue()).pixels.ravel().tolist() == expected


@pytest.mark.parametrize("format", ["JPEG", "PPM", "BMP"])
def test_transparency_is_not_lost_unasked(format: str) -> None:
    picture = Picture(noise(4, 4, 3), noise(4, 4), "PNG")
    message = f"{format} cannot hold transparency; choose PNG or TIFF, or allow the loss of it"
    with pytest.raises(ImageError, match=message):
        write(picture, io.BytesIO(), format=format)


def test_opaque_alpha_is_dropped_where_there_is_no_place_for_it() -> None:
    picture = Picture(noise(4, 4, 3), np.full((4, 4), 255, np.uint8), "PNG")
    assert_same(read(encoded(picture, "PPM")), Picture(picture.pixels, None, "PPM"))


def test_transparent_parts_are_laid_on_white_when_asked() -> None:
    pixels = np.array([[[10], [10], [10]]], np.uint8)
    alpha = np.array([[255, 0, 51]], np.uint8)
    stream = io.BytesIO()
    write(Picture(pixels, alpha, "PNG"), stream, format="PPM", allow_depth_loss=True)
    assert read(stream.getvalue()).pixels.ravel().tolist() == [10, 255, 206]


def test_stacks_and_odd_channels_go_into_tiff_only() -> None:
    stack = Picture(noise(3, 4, 5, 1), None, "TIFF")
    with pytest.raises(ImageError, match="PNG holds one picture, not 3; choose TIFF"):
        write(stack, io.BytesIO(), format="PNG", allow_depth_loss=True)
    with pytest.raises(ImageError, match="PNG cannot hold 5 channels; choose TIFF"):
        write(Picture(noise(4, 4, 5), None, "TIFF"), io.BytesIO(), format="PNG")


def test_grey_with_alpha_becomes_rgb_where_there_is_no_grey() -> None:
    picture = Picture(noise(4, 4, 1), noise(4, 4), "PNG")
    again = read(encoded(picture, "WEBP"))
    assert np.array_equal(again.pixels, np.repeat(picture.pixels, 3, axis=-1))
    assert again.alpha is not None
    assert picture.alpha is not None
    assert np.array_equal(again.alpha, picture.alpha)


def test_a_format_too_small_for_the_picture_is_an_error(tmp_path: Path) -> None:
    wide = Picture(np.zeros((1, 70_000, 1), np.uint8), None, "PNG")
    with pytest.raises(ImageError, match=r"wide\.webp: WEBP holds at most 16383 pixels a side"):
        write(wide, tmp_path / "wide.webp")
    with pytest.raises(ImageError, match=r"wide\.jpg: JPEG holds at most 65500 pixels a side"):
        write(wide, tmp_path / "wide.jpg")
    assert os.listdir(tmp_path) == []


# Rounding and clamping


def test_to_dtype_rounds_and_clamps() -> None:
    values = np.array([-3.0, 0.4, 0.6, 254.6, 300, np.inf, -np.inf, np.nan])
    assert to_dtype(values, np.uint8).tolist() == [0, 0, 1, 255, 255, 255, 0, 0]
    assert to_dtype(values.astype(np.float32), np.int16)[:5].tolist() == [-3, 0, 1, 255, 300]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "uint32", "int32", "uint64"])
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_to_dtype_never_wraps_around(dtype: str, real: str) -> None:
    info = np.iinfo(dtype)
    result = to_dtype(np.array([1e30, -1e30, info.max, info.min], real), dtype)
    assert result.dtype == dtype
    assert result[0] > info.max * 0.999
    assert result[1] == info.min
    assert result[2] > info.max * 0.999
    assert result[3] == info.min


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_to_dtype_is_the_identity_on_whole_numbers(values: list[int]) -> None:
    assert to_dtype(np.array(values, np.float32), np.uint16).tolist() == values


def test_to_dtype_lets_floats_pass() -> None:
    values = np.array([-1.5, 7.25], np.float64)
    assert to_dtype(values, np.float32).tolist() == [-1.5, 7.25]
    assert to_dtype(values, np.float64) is values


def test_to_dtype_leaves_its_input_alone() -> None:
    values = np.array([1.6, np.nan])
    to_dtype(values, np.uint8)
    assert values[0] == 1.6
    assert np.isnan(values[1])


def test_pictures_check_their_shapes() -> None:
    with pytest.raises(ValueError, match=r"pixels must be"):
        Picture(noise(3, 4), None, "PNG")
    with pytest.raises(ValueError, match="does not fit"):
        Picture(noise(3, 4, 1), noise(4, 3), "PNG")


# Errors of reading


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing.png"
    with pytest.raises(ImageError, match=r"^.*missing\.png: No such file or directory$"):
        read(path)


def test_a_folder_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="Is a directory"):
        read(tmp_path)


def test_empty_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"^standard input: the file is empty$"):
        read(b"")
    path = tmp_path / "notes.png"
    path.write_text("not a picture")
    with pytest.raises(ImageError, match=r"notes\.png: not a picture in a format that can be read"):
        read(path)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "PPM", "AVIF"])
def test_truncated_files_are_damaged(format: str) -> None:
    data = encoded(Picture(noise(40, 50, 3), None, "PNG"), format)
    with pytest.raises(ImageError, match=f"^standard input: damaged {format} file "):
        read(data[: len(data) // 2])


def test_zero_size_is_damaged() -> None:
    with pytest.raises(ImageError, match=r"damaged PPM file \(no pixels\)"):
        read(b"P5 0 5 255\n")


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "AVIF"])
def test_animations_are_refused(format: str, tmp_path: Path) -> None:
    frames = [Image.fromarray(noise(16, 16, 3, seed=seed)) for seed in range(3)]
    path = tmp_path / "cat.gif"
    path.write_bytes(saved(frames[0], format, save_all=True, append_images=frames[1:]))
    assert probe(path).animated
    message = r"cat\.gif: animated images are not supported; extract a frame first$"
    with pytest.raises(ImageError, match=message):
        read(path)


def test_a_still_gif_is_read_but_not_written(tmp_path: Path) -> None:
    picture = read(saved(Image.fromarray(noise(8, 8)), "GIF"))
    assert picture.format == "GIF"
    with pytest.raises(ImageError, match=r"out\.gif: GIF cannot be written; choose PNG"):
        write(picture, tmp_path / "out.gif")
    with pytest.raises(ImageError, match="standard output: GIF cannot be written; choose PNG"):
        write(picture, io.BytesIO())


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "PPM", "AVIF"])
def test_too_many_pixels_are_refused(format: str) -> None:
    data = encoded(Picture(noise(20, 30, 3), None, "PNG"), format)
    assert read(data, max_pixels=600).pixels.shape == (20, 30, 3)
    message = r"^standard input: 30 x 20 pixels exceed the limit of 599; raise the limit"
    with pytest.raises(ImageError, match=message):
        read(data, max_pixels=599)


def test_a_bomb_is_refused_from_its_header() -> None:
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header
    data += struct.pack(">I", zlib.crc32(b"IHDR" + header)) + struct.pack(">I", 10) + b"IDAT"
    with pytest.raises(ImageError, match="damaged PNG file"):
        read(data + b"x" * 14)
    with pytest.raises(ImageError, match="damaged PPM file"):
        read(b"P6 30000 30000 255\n")


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "BMP", "PPM", "AVIF"])
def test_the_limit_of_pillow_neither_matters_nor_changes(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WebP, of at most 16383 pixels a side, never reaches the limit that Pillow has by default."""
    data = encoded(Picture(noise(20, 30, 3), None, "PNG"), format)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert read(data).pixels.shape == (20, 30, 3)
    assert Image.MAX_IMAGE_PIXELS == 10


@pytest.mark.parametrize(
    ("module", "data", "message"),
    [
        ("pillow_heif", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", r"pip install 'nelu-cli\[heic\]'"),
        ("OpenEXR", b"v/1\x01\x02\0\0\0", r"pip install 'nelu-cli\[exr\]'"),
    ],
)
def test_missing_extras_are_named(
    module: str, data: bytes, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImageError, match=message):
        read(data)
    picture = Picture(noise(4, 4, 3, dtype="uint8" if "heif" in module else "float32"), None, "PNG")
    with pytest.raises(ImageError, match=message):
        write(picture, tmp_path / ("out.heic" if "heif" in module else "out.exr"))
    assert os.listdir(tmp_path) == []


def test_missing_avif_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Picture(noise(8, 8, 3), None, "PNG")
    data = encoded(picture, "AVIF")
    monkeypatch.setattr("PIL.AvifImagePlugin.SUPPORTED", False)
    for act in (lambda: read(data), lambda: encoded(picture, "AVIF")):
        with pytest.raises(ImageError, match="this build of Pillow has no AVIF; choose another"):
            act()
    monkeypatch.delattr("PIL.AvifImagePlugin")
    monkeypatch.setitem(sys.modules, "PIL.AvifImagePlugin", None)
    with pytest.raises(ImageError, match="AVIF needs a newer Pillow: pip install --upgrade pillow"):
        read(data)


# Writing to paths


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.PNG", "PNG"),
        ("a.jpeg", "JPEG"),
        ("a.b.tif", "TIFF"),
        ("a.pgm", "PPM"),
        ("a.heic", "HEIF"),
    ],
)
def test_extensions_name_formats(name: str, format: str) -> None:
    assert format_for(Path(name)) == format


def test_unknown_extensions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"a\.xyz: no known picture extension; use one of \.png"):
        write(Picture(noise(2, 2, 1), None, "PNG"), tmp_path / "a.xyz")


def test_a_given_format_overrules_the_extension(tmp_path: Path) -> None:
    write(Picture(noise(2, 2, 1), None, "PNG"), tmp_path / "a.xyz", format="PPM")
    assert (tmp_path / "a.xyz").read_bytes().startswith(b"P5")


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(ImageError, match="standard output: XYZ cannot be written; choose PNG"):
        write(Picture(noise(2, 2, 1), None, "PNG"), io.BytesIO(), format="XYZ")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.png"
    target.write_bytes(b"old")

    def fail(*_: object, **__: object) -> bytes:
        raise RuntimeError("encoder broke")

    monkeypatch.setattr("imagecodecs.png_encode", fail)
    with pytest.raises(ImageError, match=r"out\.png: cannot be written as PNG \(encoder broke\)"):
        write(Picture(noise(2, 2, 1), None, "PNG"), target)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.png"]


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("imagecodecs.png_encode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(Picture(noise(2, 2, 1), None, "PNG"), tmp_path / "out.png")
    assert os.listdir(tmp_path) == []


def test_a_missing_target_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"out\.png: No such file or directory"):
        write(Picture(noise(2, 2, 1), None, "PNG"), tmp_path / "missing" / "out.png")


def test_an_empty_picture_is_not_written() -> None:
    with pytest.raises(ImageError, match="an empty picture cannot be written"):
        write(Picture(np.zeros((0, 4, 1), np.uint8), None, "PNG"), io.BytesIO())


@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP", "JPEG", "BMP", "PPM", "AVIF"])
def test_writing_to_a_pipe_works(format: str) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.content += bytes(data)
            return len(data)

    pipe = Pipe()
    write(Picture(noise(6, 5, 3), None, "PNG"), pipe, format=format)  # type: ignore[arg-type]
    assert read(pipe.content).pixels.shape == (6, 5, 3)


def test_nothing_reaches_stderr_and_torch_stays_away(tmp_path: Path) -> None:
    """Damaged files make tifffile and imagecodecs log, which must not show."""
    tiff = bytearray(encoded(Picture(noise(20, 20, 3), None, "PNG"), "TIFF"))
    tiff[-40:] = b"\xff" * 40
    png = encoded(Picture(noise(20, 20, 3), None, "PNG", Metadata(icc=b"no profile")), "PNG")
    (tmp_path / "1.tif").write_bytes(tiff)
    (tmp_path / "2.png").write_bytes(png)
    program = (
        "import sys, pathlib\n"
        "from nelu_cli.images import read\n"
        "from nelu_cli.errors import ImageError\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir():\n"
        "    try:\n        read(path)\n"
        "    except ImageError as error:\n        pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=True
    )
    assert result.stderr == b""


@pytest.mark.parametrize("header", [b"P4 9 2\n", b"P5 3 2 255\n", b"P6 1 2 255\n"])
def test_several_ppm_pictures_in_a_row_are_refused(header: bytes) -> None:
    one = header + b"\0" * (4 if header[1:2] == b"4" else 6)
    assert read(one + b"\n").pixels.size
    with pytest.raises(ImageError, match="it holds several pictures; split them"):
        read(one + one)
