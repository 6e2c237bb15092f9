"""Metadata survive from format to format, or are stripped; orientation counts exactly once."""

import io
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, IptcImagePlugin, PngImagePlugin

from nelu_cli.errors import ImageError
from nelu_cli.images import Metadata, Picture, exif, read, write

Array = NDArray[Any]

WITH_EXIF = ["PNG", "JPEG", "TIFF", "WEBP", "AVIF"]
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
XMP = b'<?xpacket begin=""?><x:xmpmeta xmlns:x="adobe:ns:meta/"/><?xpacket end="w"?>'


def exif_block(orientation: int = 1) -> bytes:
    """A camera's EXIF: main directory, EXIF and GPS directories."""
    exif = Image.Exif()
    exif[271] = "Maker"
    exif[274] = orientation
    exif[306] = "2024:01:02 03:04:05"
    exif.get_ifd(34665)[33434] = 0.01  # exposure time
    exif.get_ifd(34665)[36867] = "2024:01:02 03:04:05"
    exif.get_ifd(34853)[1] = "N"
    exif.get_ifd(34853)[2] = (51.0, 28.0, 38.0)
    return exif.tobytes().removeprefix(b"Exif\0\0")


def picture_with(orientation: int = 1, dtype: str = "uint8", channels: int = 3) -> Picture:
    ramp = np.linspace(10, np.iinfo(dtype).max - 10, 24 * 32 * channels)
    pixels = ramp.reshape(24, 32, channels).astype(dtype)
    metadata = Metadata(icc=PROFILE, exif=exif_block(orientation), xmp=XMP, dpi=(300.0, 150.0))
    return Picture(pixels, None, "PNG", metadata)


def written(picture: Picture, format: str, *, strip: bool = False) -> bytes:
    stream = io.BytesIO()
    write(picture, stream, format=format, strip=strip)
    return stream.getvalue()


def pillow(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


@pytest.mark.parametrize("first", WITH_EXIF)
@pytest.mark.parametrize("second", WITH_EXIF)
def test_metadata_survive_two_files(first: str, second: str) -> None:
    """From anything to the first format, from there to the second, then read by Pillow."""
    metadata = read(written(read(written(picture_with(6), first)), second)).metadata
    assert metadata.icc == PROFILE
    assert metadata.xmp == XMP
    assert metadata.orientation == 6
    data = written(read(written(picture_with(6), first)), second)
    exif = Image.open(io.BytesIO(data)).getexif()
    assert exif[271] == "Maker"
    assert exif[274] == 6
    assert exif.get_ifd(34665)[36867] == "2024:01:02 03:04:05"
    assert float(exif.get_ifd(34665)[33434]) == pytest.approx(0.01)
    assert exif.get_ifd(34853)[1] == "N"
    assert [float(part) for part in exif.get_ifd(34853)[2]] == [51, 28, 38]


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "BMP"])
def test_resolution_survives(format: str) -> None:
    again = read(written(picture_with(), format)).metadata.dpi
    assert again == pytest.approx((300, 150), abs=0.02)
    assert pillow(written(picture_with(), format)).info["dpi"] == pytest.approx(
        (300, 150), abs=0.02
    )


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_png_of_every_depth_carries_metadata(dtype: str, channels: int) -> None:
    picture = picture_with(3, dtype, channels)
    again = read(written(picture, "PNG"))
    assert np.array_equal(again.pixels, picture.pixels)
    assert replace(again.metadata, dpi=None) == replace(picture.metadata, dpi=None)
    image = pillow(written(picture, "PNG"))
    assert image.info["icc_profile"] == PROFILE
    assert image.getexif()[274] == 3
    assert image.info["xmp"] == XMP


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "WEBP", "AVIF", "BMP", "PPM"])
def test_strip_leaves_pixels_and_their_colours_only(format: str) -> None:
    picture = read(written(picture_with(), format))
    stream = io.BytesIO()
    notes = write(picture, stream, strip=True)
    data = stream.getvalue()
    metadata = read(data).metadata
    assert (metadata.exif, metadata.xmp, metadata.png) == (None, None, ())
    assert metadata.icc == picture.metadata.icc == (None if format in ("BMP", "PPM") else PROFILE)
    assert notes == (("the colour profile is kept",) if metadata.icc else ())
    assert metadata.dpi in (None, pytest.approx((96, 96), abs=0.1))  # BMP always has one
    assert b"Maker" not in data
    assert b"xmpmeta" not in data


def test_a_stripped_stack_keeps_its_profile() -> None:
    stack = replace(picture_with(), pixels=np.zeros((3, 4, 5, 3), np.uint8))
    tiff = read(written(stack, "TIFF"))
    assert read(written(tiff, "TIFF", strip=True)).metadata.icc == PROFILE
    assert read(written(tiff, "TIFF", strip=True)).metadata.exif is None


@pytest.mark.parametrize(
    ("format", "note"),
    [
        ("PPM", "PPM has no place for the colour profile, EXIF, XMP, the resolution; left out"),
        ("BMP", "BMP has no place for the colour profile, EXIF, XMP; left out"),
        ("WEBP", "WEBP has no place for the resolution; left out"),
        ("PNG", None),
        ("TIFF", None),
    ],
)
def test_metadata_left_out_are_named(format: str, note: str | None) -> None:
    assert write(picture_with(), io.BytesIO(), format=format) == ((note,) if note else ())


def test_tiff_tags_left_out_are_named() -> None:
    stream = io.BytesIO()
    tifffile.imwrite(stream, picture_with().pixels, extratags=[(51234, "s", 0, "x", True)])
    notes = write(read(stream.getvalue()), io.BytesIO(), format="PNG")
    assert notes == ("PNG has no place for other TIFF tags; left out",)


@pytest.mark.parametrize("dpi", [65_535.0, 65_536.0, 100_000.0])
def test_a_resolution_too_high_for_jpeg_is_left_out_with_a_word(dpi: float) -> None:
    picture = replace(picture_with(), metadata=Metadata(dpi=(dpi, 300)))
    stream = io.BytesIO()
    notes = write(picture, stream, format="JPEG")
    if dpi <= 65_535:
        assert (notes, read(stream.getvalue()).metadata.dpi) == ((), (dpi, 300))
    else:
        assert notes == (f"JPEG has no place for {dpi:.0f} dots per inch; left out",)
        assert read(stream.getvalue()).metadata.dpi is None


def test_strip_keeps_the_way_of_compressing() -> None:
    picture = read(written(replace(picture_with(), metadata=Metadata()), "JPEG"))
    again = read(written(picture, "JPEG", strip=True))
    assert picture.metadata.jpeg == again.metadata.jpeg


# Orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
def test_viewers_turn_the_output_as_they_turned_the_input(orientation: int, format: str) -> None:
    picture = picture_with(orientation)
    expected = ImageOps.exif_transpose(pillow(written(picture, "PNG")))
    again = ImageOps.exif_transpose(pillow(written(picture, format)))
    assert np.array_equal(np.asarray(again), np.asarray(expected))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("format", "strip"), [("PNG", True), ("TIFF", True), ("PPM", False)])
def test_pixels_are_turned_when_the_tag_goes(orientation: int, format: str, strip: bool) -> None:
    picture = picture_with(orientation)
    expected = ImageOps.exif_transpose(pillow(written(picture, "PNG")))
    again = read(written(picture, format, strip=strip))
    assert again.metadata.orientation == 1
    assert np.array_equal(again.pixels, np.asarray(expected))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_heic_is_turned_by_its_decoder(orientation: int) -> None:
    pytest.importorskip("pillow_heif")
    picture = picture_with(orientation)
    expected = ImageOps.exif_transpose(pillow(written(picture, "PNG")))
    again = read(written(picture, "HEIF"))
    assert again.metadata.orientation == 1
    assert again.metadata.exif
    assert again.pixels.shape == np.asarray(expected).shape
    assert np.abs(again.pixels.astype(int) - np.asarray(expected)).mean() < 3


def test_alpha_and_resolution_turn_with_the_pixels() -> None:
    picture = picture_with(6)
    picture = replace(picture, alpha=picture.pixels[..., 0])
    again = read(written(picture, "PNG", strip=True))
    assert again.alpha is not None
    assert np.array_equal(again.alpha, again.pixels[..., 0])
    opaque = replace(picture, alpha=None)
    assert read(written(opaque, "BMP")).metadata.dpi == pytest.approx((150, 300), abs=0.02)


def test_stacks_turn_page_by_page() -> None:
    single = picture_with(8)
    stack = replace(single, pixels=np.stack([single.pixels, single.pixels[::-1]]))
    again = read(written(stack, "TIFF", strip=True))
    for page, pixels in zip(again.pixels, stack.pixels, strict=True):
        expected = read(written(replace(single, pixels=pixels), "PNG", strip=True))
        assert np.array_equal(page, expected.pixels)


@pytest.mark.parametrize("block", [b"", b"II*\0", b"MM\0*\0\0\0\x08\xff\xff", b"nonsense" * 9])
def test_damaged_exif_counts_as_upright(block: bytes) -> None:
    picture = replace(picture_with(), metadata=Metadata(exif=block))
    assert picture.metadata.orientation == 1
    for format in WITH_EXIF:
        assert read(written(picture, format)).metadata.orientation == 1


def test_exif_that_points_to_itself_ends() -> None:
    entry = struct.pack("<HHII", 34665, 4, 1, 8)
    block = b"II*\0" + struct.pack("<IH", 8, 1) + entry + b"\0" * 4
    assert Metadata(exif=block).orientation == 1


def test_big_endian_exif_is_understood() -> None:
    entry = struct.pack(">HHIHH", 274, 3, 1, 5, 0)
    block = b"MM\0*" + struct.pack(">IH", 8, 1) + entry + b"\0" * 4
    picture = replace(picture_with(), metadata=Metadata(exif=block))
    assert picture.metadata.orientation == 5
    assert Image.open(io.BytesIO(written(picture, "TIFF"))).getexif()[274] == 5


def test_a_grey_profile_does_not_follow_into_rgb() -> None:
    profile = PROFILE[:16] + b"GRAY" + PROFILE[20:]
    picture = replace(picture_with(channels=1), metadata=Metadata(icc=profile))
    assert read(written(picture, "JPEG")).metadata.icc == profile
    assert read(written(picture, "WEBP")).metadata.icc is None


# PNG


def test_png_text_and_gamma_survive() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("Author", "Somebody")
    info.add_text("Comment", "long " * 50, zip=True)
    info.add_itxt("Title", "Schönes Bild", "de")
    info.add(b"gAMA", struct.pack(">I", 45455))
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "PNG", pnginfo=info)
    picture = read(stream.getvalue())
    image = pillow(written(picture, "PNG"))
    assert isinstance(image, PngImagePlugin.PngImageFile)
    assert image.text["Author"] == "Somebody"
    assert image.text["Comment"] == "long " * 50
    assert image.text["Title"] == "Schönes Bild"
    assert image.info["gamma"] == pytest.approx(0.45455)
    left = read(written(picture, "PNG", strip=True)).metadata.png
    assert left == ((b"gAMA", struct.pack(">I", 45455)),)  # or the picture would look different


def test_png_chunks_after_the_pixels_are_found() -> None:
    data = written(Picture(np.zeros((2, 2, 1), np.uint8), None, "PNG"), "PNG")
    block = exif_block(7)
    chunk = struct.pack(">I", len(block)) + b"eXIf" + block
    chunk += struct.pack(">I", zlib.crc32(b"eXIf" + block))
    assert read(data[:-12] + chunk + data[-12:]).metadata.orientation == 7


def test_damaged_png_profile_is_left_out() -> None:
    data = written(Picture(np.zeros((2, 2, 1), np.uint8), None, "PNG"), "PNG")
    body = b"iCCPname\0\0" + b"no zlib stream"
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    assert read(data[:33] + chunk + data[33:]).metadata.icc is None


# JPEG


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("quality", [40, 85])
def test_jpeg_tables_and_subsampling_are_used_again(subsampling: int, quality: int) -> None:
    stream = io.BytesIO()
    image = Image.fromarray(picture_with().pixels)
    image.save(stream, "JPEG", quality=quality, subsampling=subsampling, progressive=True)
    before: Any = pillow(stream.getvalue())
    after: Any = pillow(written(read(stream.getvalue()), "JPEG"))
    assert before.quantization == after.quantization
    assert before.layer == after.layer
    assert after.info["progressive"]


def test_jpeg_of_other_pictures_has_quality_95_and_full_colour() -> None:
    image: Any = pillow(written(picture_with(), "JPEG"))
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG", quality=95, subsampling=0)
    expected: Any = pillow(stream.getvalue())
    assert image.quantization == expected.quantization
    assert image.layer == expected.layer


def test_jpeg_comment_and_iptc_survive() -> None:
    record = b"\x1c\x02\x78\x00\x05Hello"  # IPTC caption
    resource = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(record)) + record
    segment = b"Photoshop 3.0\0" + resource
    stream = io.BytesIO()
    extra = b"\xff\xed" + struct.pack(">H", len(segment) + 2) + segment
    Image.new("RGB", (8, 8)).save(stream, "JPEG", comment=b"hello", extra=extra)
    image: Any = pillow(written(read(stream.getvalue()), "JPEG"))
    assert image.info["comment"] == b"hello"
    tiff = written(read(stream.getvalue()), "TIFF")
    again: Any = pillow(written(read(written(read(tiff), "TIFF")), "JPEG"))
    assert read(tiff).metadata.photoshop == resource
    for result in (image, again):
        info = IptcImagePlugin.getiptcinfo(result)
        assert info is not None
        assert info[(2, 120)] == b"Hello"
    stripped = io.BytesIO()
    write(read(tiff), stripped, format="JPEG", strip=True)
    assert b"Hello" not in stripped.getvalue()


def test_ratings_and_keywords_survive_between_jpeg_and_tiff() -> None:
    tags = Image.Exif()
    tags[18246] = 4  # rating
    tags[40094] = "night".encode("utf-16-le")  # Windows' keywords
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "JPEG", exif=tags)
    tiff = written(read(stream.getvalue()), "TIFF")
    for result in (pillow(tiff), pillow(written(read(tiff), "JPEG"))):
        found = result.getexif()
        assert found[18246] == 4
        assert bytes(found[40094]) == "night".encode("utf-16-le")


def test_metadata_too_long_for_jpeg_are_an_error(tmp_path: Path) -> None:
    picture = replace(picture_with(), metadata=Metadata(xmp=b"x" * 70_000))
    message = (
        r"out\.jpg: JPEG cannot hold 70000 bytes of XMP; "
        "strip the metadata or choose PNG or TIFF"
    )
    with pytest.raises(ImageError, match=message):
        write(picture, tmp_path / "out.jpg")
    write(picture, tmp_path / "out.jpg", strip=True)
    write(picture, tmp_path / "out.png")
    assert read(tmp_path / "out.png").metadata.xmp == picture.metadata.xmp


def test_an_exif_block_cannot_keep_its_reader_busy() -> None:
    """Directories whose entries all point back at them: followed once for each kind of pointer."""
    pointers = 200
    entry = struct.pack("<HHII", exif.EXIF, 4, 1, 8)
    block = b"II*\0" + struct.pack("<IH", 8, pointers) + entry * pointers + b"\0" * 4
    directory, _ = exif.unpack(block)
    for _ in range(3):
        (child,) = directory.children
        directory = child[1]
    assert not directory.children


def test_exif_values_that_share_their_bytes_cannot_fill_the_memory() -> None:
    size = 4 << 20
    entries = b"".join(struct.pack("<HHII", 40000 + n, 7, size, 8) for n in range(100))
    block = b"II*\0" + struct.pack("<IH", 8, 100) + entries + b"\0" * (4 + size)
    directory, _ = exif.unpack(block)
    assert sum(len(entry.data) for entry in directory.entries) <= 64 << 20
