"""Nothing is lost in silence: what a file lacks, or a format cannot keep, is an error or a note."""

import contextlib
import io
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from nelu_cli.errors import ImageError
from nelu_cli.images import Metadata, Picture, probe, read, write
from nelu_cli.images.access import reported

Array = NDArray[Any]
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def noise(*shape: int, top: int = 255) -> Array:
    kind = np.uint8 if top < 256 else np.uint16
    return np.random.default_rng(0).integers(0, top, shape, endpoint=True).astype(kind)


def smooth(height: int, width: int, *, top: int = 255) -> Array:
    """A picture with something to see in every place."""
    rows, columns, colours = np.ogrid[:height, :width, :3]
    values = 0.5 + 0.4 * np.sin(rows / 9 + colours) * np.cos(columns / 7)
    return (values * top).astype(np.uint8 if top < 256 else np.uint16)


def saved(pixels: Array, format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(stream, format, **options)
    return stream.getvalue()


def encoded(picture: Picture, format: str) -> bytes:
    write(picture, stream := io.BytesIO(), format=format)
    return stream.getvalue()


# JPEG


JPEGS = [
    {"quality": 90, "subsampling": 0},
    {"quality": 90, "subsampling": 2},
    {"quality": 50, "restart_marker_blocks": 3},
    {"quality": 90, "progressive": True},
]


@pytest.mark.parametrize("options", JPEGS)
@pytest.mark.parametrize("grey", [False, True])
def test_a_jpeg_cut_and_ended_is_an_error(options: dict[str, Any], grey: bool) -> None:
    pixels = smooth(96, 120)
    data = saved(pixels[..., 0] if grey else pixels, "JPEG", **options)
    assert not read(data).notes
    start = data.index(b"\xff\xda")
    for share in (0.1, 0.5, 0.9):
        cut = data[: int(start + 20 + share * (len(data) - start - 40))]
        for damaged in (cut, cut + b"\xff\xd9"):
            with pytest.raises(ImageError, match=r"damaged JPEG file \(truncated"):
                read(damaged)
        picture = read(cut, salvage=True)
        assert picture.pixels.shape == read(data).pixels.shape
        assert picture.notes
        assert picture.notes[0].startswith("truncated")


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_jpeg_cut_within_its_last_block_is_an_error(mode: str) -> None:
    """The decoder fills the rest of a block with whatever; no row is grey then."""
    image = Image.fromarray(noise(24, 33, 3)).convert(mode)
    image.save(stream := io.BytesIO(), "JPEG", quality=95)
    data = stream.getvalue()
    whole = read(data).pixels
    for cut in range(3, 30):
        with contextlib.suppress(ImageError):
            assert np.array_equal(read(data[:-cut] + b"\xff\xd9").pixels, whole), cut


@pytest.mark.parametrize(("seed", "quality"), [(104, 100), (160, 100), (241, 75), (248, 100)])
def test_other_bits_for_those_cut_off_may_mean_the_same_pixels(seed: int, quality: int) -> None:
    """In the last scan of a progressive file, a code for many empty blocks is as short as any."""
    steps = np.random.default_rng(seed).normal(0, 1, (17 + seed % 24, 17 + seed % 16))
    walk = np.clip(128 + steps.cumsum(0).cumsum(1) * (1 + seed % 5), 0, 255).astype(np.uint8)
    data = saved(walk, "JPEG", quality=quality, progressive=True)
    whole = read(data).pixels
    for cut in range(3, 9):
        with contextlib.suppress(ImageError):
            damaged = data[:-cut].removesuffix(b"\xff") + b"\xff\xd9"
            assert np.array_equal(read(damaged).pixels, whole), cut


def test_a_lossless_jpeg_is_read_whole_or_not_at_all() -> None:
    pixels = noise(24, 33)
    data = bytes(imagecodecs.jpeg8_encode(pixels, lossless=True))
    assert np.array_equal(read(data).pixels[..., 0], pixels)
    for cut in (3, 10, 200):
        with pytest.raises(ImageError, match=r"damaged JPEG file \(truncated"):
            read(data[:-cut] + b"\xff\xd9")


def test_the_last_number_of_a_text_may_be_cut() -> None:
    assert read(b"P2 2 1 255 7 14\n").notes == ()
    cut = read(b"P2 2 1 255 7 1")
    assert cut.notes == ("it ends with a number and no line end; the number may be cut off",)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("top", [255, 65535])
def test_narrow_pictures_can_be_png(width: int, channels: int, top: int) -> None:
    for height in (1, 2, 3, 50, 30_000):
        pixels = noise(height, width, channels, top=top)
        assert np.array_equal(read(encoded(Picture(pixels, None, "PNG"), "PNG")).pixels, pixels)


def test_the_rows_that_a_jpeg_lacks_are_counted() -> None:
    data = saved(noise(160, 64), "JPEG", quality=90)
    picture = read(data[: len(data) // 2] + b"\xff\xd9", salvage=True)
    (note,) = picture.notes
    rows = int(note.split()[7])
    assert note == f"truncated: its last rows are missing; about {rows} of 160 rows are grey"
    assert 60 <= rows <= 90
    there = 160 - rows - 8  # a row of blocks may be there in part
    assert np.array_equal(picture.pixels[:there], read(data).pixels[:there])


@pytest.mark.parametrize("options", JPEGS)
@pytest.mark.parametrize("value", [127, 128])
def test_a_grey_end_of_a_jpeg_is_no_damage(options: dict[str, Any], value: int) -> None:
    pixels = smooth(96, 120)
    pixels[40:] = value
    for picture in (pixels, pixels[..., 0], np.full_like(pixels, value)):
        assert not read(saved(picture, "JPEG", **options)).notes


def mpo(count: int, kind: int, **options: Any) -> bytes:
    """A JPEG of several pictures, the later ones of a kind."""
    stream = io.BytesIO()
    frames = [Image.fromarray(noise(32, 32, 3)) for _ in range(count)]
    frames[0].save(stream, "MPO", save_all=True, append_images=frames[1:], **options)
    data = bytearray(stream.getvalue())
    place = data.rindex(b"\0\0\3\0", 0, data.index(b"MPF\0") + 100)  # the list: 16 bytes each
    for number in range(1, count):
        struct.pack_into("<I", data, place + 16 * number, kind)
    return bytes(data)


def test_several_pictures_in_a_jpeg_are_not_dropped_unasked() -> None:
    data = mpo(3, 0x020003)
    with pytest.raises(ImageError, match="it holds 3 pictures; extract them, or salvage the first"):
        read(data)
    assert read(data, salvage=True).notes == ("2 of 3 pictures are left out",)


def test_a_preview_in_a_jpeg_is_left_out_with_a_word() -> None:
    assert read(mpo(2, 0x010001)).notes == ("a preview beside the picture is left out",)


def test_a_gain_map_in_a_jpeg_is_left_out_with_a_word() -> None:
    data = mpo(2, 0, xmp=b'<x hdrgm:Version="1.0"/>')
    assert read(data).notes == ("its gain map for bright displays is left out",)


# PNG


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def test_the_limit_of_pixels_counts_for_what_the_decoder_uses() -> None:
    """Two headers: the decoder takes the first, the limit was that of the last."""
    data = saved(np.zeros((3000, 3000), np.uint8), "PNG")
    small = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
    for place in (33, len(data) - 12):
        with pytest.raises(ImageError, match=r"damaged PNG file \(two headers\)"):
            read(data[:place] + small + data[place:], max_pixels=100)


@pytest.mark.parametrize("pixels", [noise(60, 50), noise(60, 50, 3), noise(60, 50, 4)])
def test_the_rows_of_a_truncated_png_can_be_salvaged(pixels: Array) -> None:
    data = saved(pixels, "PNG")
    for share in (0.3, 0.8):
        cut = data[: int(share * len(data))]
        with pytest.raises(ImageError, match="damaged PNG file"):
            read(cut)
        picture = read(cut, salvage=True)
        (note,) = picture.notes
        missing = int(note.split()[0])
        assert note == f"{missing} of 60 rows are missing and black"
        rest = picture.pixels[: 60 - missing].squeeze()
        assert np.array_equal(rest, pixels.reshape(60, 50, -1)[: 60 - missing, :, :3].squeeze())
        assert not picture.pixels[60 - missing :].any()
        assert 0.2 < missing / 60 / (1 - share) < 1.3


# Others


def test_truncated_ppm_and_bmp_can_be_salvaged() -> None:
    for format in ("PPM", "BMP"):
        data = saved(noise(40, 40, 3), format)
        picture = read(data[: len(data) // 2], salvage=True)
        assert picture.notes == ("50 % of it are missing",)
        there = slice(0, 19) if format == "PPM" else slice(-19, None)
        assert np.array_equal(picture.pixels[there], noise(40, 40, 3)[there])
        assert not read(data, salvage=True).notes


def test_further_pictures_of_a_ppm_can_be_left_out() -> None:
    assert read(b"P5 1 1 255\nxP5 1 1 255\nx", salvage=True).notes == (
        "only the first of several pictures is taken",
    )


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "AVIF"])
def test_of_an_animation_the_first_frame_can_be_salvaged(format: str) -> None:
    frames = [Image.fromarray(noise(16, 16, 3) // (1 + index)) for index in range(3)]
    stream = io.BytesIO()
    frames[0].save(stream, format, save_all=True, append_images=frames[1:])
    picture = read(stream.getvalue(), salvage=True)
    assert picture.notes == ("only the first frame of an animation is taken",)
    assert picture.pixels.shape == (16, 16, 3)


def test_several_pictures_in_a_heic_are_not_dropped_unasked() -> None:
    module = pytest.importorskip("pillow_heif")
    file = module.from_bytes(mode="RGB", size=(64, 64), data=smooth(64, 64).tobytes())
    file.add_frombytes(mode="RGB", size=(32, 32), data=smooth(32, 32).tobytes())
    file.save(stream := io.BytesIO())
    with pytest.raises(ImageError, match="it holds 2 pictures; extract them, or salvage the main"):
        read(stream.getvalue())
    picture = read(stream.getvalue(), salvage=True)
    assert picture.pixels.shape == (64, 64, 3)
    assert picture.notes == ("1 of 2 pictures are left out",)


def test_a_damaged_exr_says_nothing_on_standard_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """There a picture or JSON may be expected."""
    module = pytest.importorskip("OpenEXR")
    planes = {"Y": noise(64, 64).astype(np.float32)}
    path = tmp_path / "a.exr"
    module.File({"compression": module.ZIP_COMPRESSION}, planes).write(str(path))
    data = bytearray(path.read_bytes())
    data[-2000:-1000] = bytes(1000)
    with pytest.raises(ImageError, match=r"damaged EXR file \(Exception raised reading pixel data"):
        read(bytes(data))
    assert not capfd.readouterr().out


def test_a_short_write_of_numpy_is_a_full_disk() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no device that is always full")
    with (
        pytest.raises(ImageError, match=r"a\.tif: No space left on device"),
        reported("a.tif", "cannot be written"),
        full.open("wb", buffering=0) as stream,
    ):
        np.zeros(1 << 20, np.uint8).tofile(stream)


def test_one_bit_that_becomes_eight_is_said() -> None:
    picture = read(saved(noise(9, 13) > 99, "PNG"))
    assert write(picture, io.BytesIO()) == ()
    grey = replace(picture, pixels=picture.pixels // 2)
    assert write(grey, io.BytesIO()) == ("it had one bit per pixel and has eight now",)


# 10 and 12 bits


@pytest.mark.parametrize("bits", [10, 12])
@pytest.mark.parametrize("kind", ["grey", "colour", "alpha"])
@pytest.mark.parametrize("format", ["AVIF", "HEIF"])
def test_ten_and_twelve_bits_stay_so_with_their_metadata(format: str, kind: str, bits: int) -> None:
    if format == "HEIF":
        pytest.importorskip("pillow_heif")
    top = 2**bits - 1
    pixels = smooth(48, 64, top=top)[..., : 1 if kind == "grey" else 3]
    exif = Image.Exif()
    exif[271], exif[274] = "Maker", 6
    metadata = Metadata(
        icc=PROFILE, exif=exif.tobytes().removeprefix(b"Exif\0\0"), xmp=b"<x/>", white=top
    )
    alpha = pixels[..., 0] if kind == "alpha" else None
    data = encoded(Picture(pixels, alpha, format, metadata), format)
    again = read(data)
    if format == "HEIF":  # turned by its decoder
        pixels = np.rot90(pixels, -1)
    assert again.white == top
    assert again.pixels.dtype == np.uint16
    assert again.pixels.shape == pixels.shape
    assert np.abs(again.pixels.astype(int) - pixels).mean() < top / 300
    assert (again.alpha is not None) == (kind == "alpha")
    assert again.metadata.icc == PROFILE
    assert again.metadata.xmp == b"<x/>"
    assert again.metadata.orientation == (1 if format == "HEIF" else 6)
    assert b"Maker" in (again.metadata.exif or b"")
    assert probe(data).dtype == np.uint16
    brighter = replace(again, pixels=again.pixels + np.uint16(top))
    assert read(encoded(brighter, format)).pixels.max() <= top
    in_tiff = read(encoded(again, "TIFF"))
    assert in_tiff.white == top
    assert np.array_equal(in_tiff.pixels, again.pixels)


def test_deep_avif_with_alpha_reads_what_another_program_wrote() -> None:
    samples = noise(16, 20, 4, top=1023)
    picture = read(bytes(imagecodecs.avif_encode(samples, level=100, bitspersample=10)))
    assert np.array_equal(picture.pixels, samples[..., :3])
    assert np.array_equal(np.asarray(picture.alpha), samples[..., 3])
