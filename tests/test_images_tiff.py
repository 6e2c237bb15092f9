"""TIFF: stacks, microscopy, layouts; what a page says about itself is kept."""

import io
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import skimage
import tifffile
from numpy.typing import NDArray
from PIL import Image

from nelu_cli.errors import ImageError
from nelu_cli.images import Header, Picture, probe, read, write

Array = NDArray[Any]
SAMPLES = Path(skimage.__file__).parent / "data"


def noise(*shape: int, dtype: str = "uint16") -> Array:
    generator = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return generator.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def made(pixels: Array, **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, **{"photometric": "minisblack", **options})
    return stream.getvalue()


def again(data: bytes, *, strip: bool = False) -> bytes:
    """Read and write."""
    stream = io.BytesIO()
    write(read(data), stream, strip=strip)
    return stream.getvalue()


def test_a_page_has_no_stack_axis_and_several_have() -> None:
    assert read(made(noise(5, 6))).pixels.shape == (5, 6, 1)
    assert read(made(noise(4, 5, 6))).pixels.shape == (4, 5, 6, 1)
    assert read(made(noise(4, 5, 6, 3), photometric="rgb")).pixels.shape == (4, 5, 6, 3)
    assert probe(made(noise(4, 5, 6))) == Header("TIFF", 6, 5, 1, np.dtype("uint16"), pages=4)


@pytest.mark.parametrize("compression", [None, "lzw", "zlib", "zstd", "packbits"])
@pytest.mark.parametrize("predictor", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_compression_is_kept(compression: str | None, predictor: bool, dtype: str) -> None:
    if predictor and compression in (None, "packbits"):
        pytest.skip("no predictor there")
    pixels = noise(20, 30, 3, dtype=dtype)
    data = made(pixels, photometric="rgb", compression=compression, predictor=predictor)
    assert np.array_equal(read(data).pixels, pixels)
    with tifffile.TiffFile(io.BytesIO(again(data))) as file:
        assert np.array_equal(file.asarray(), pixels)
        with tifffile.TiffFile(io.BytesIO(data)) as original:
            assert file.pages.first.compression == original.pages.first.compression
            assert file.pages.first.predictor == original.pages.first.predictor


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("tile", [None, (16, 32)])
def test_layout_is_kept(
    byteorder: Literal["<", ">"], bigtiff: bool, planar: str, tile: tuple[int, int] | None
) -> None:
    shape = (40, 50, 3) if planar == "contig" else (3, 40, 50)
    pixels = noise(*shape)
    data = made(
        pixels,
        photometric="rgb",
        planarconfig=planar,
        byteorder=byteorder,
        bigtiff=bigtiff,
        tile=tile,
    )
    picture = read(data)
    assert picture.pixels.dtype.isnative
    expected = pixels if planar == "contig" else np.moveaxis(pixels, 0, -1)
    assert np.array_equal(picture.pixels, expected)
    with tifffile.TiffFile(io.BytesIO(again(data))) as file:
        page = file.pages.first
        assert np.array_equal(file.asarray(), pixels)
        assert (file.byteorder, file.is_bigtiff) == (byteorder, bigtiff)
        assert page.planarconfig == (1 if planar == "contig" else 2)
        assert page.tile == tile


def test_float_values_of_any_range_are_kept() -> None:
    pixels = np.array([[-1e30, -0.0, 60000.5], [np.inf, np.nan, 1e-30]], np.float32)
    assert np.array_equal(read(again(made(pixels))).pixels[..., 0], pixels, equal_nan=True)


def test_white_is_zero_reads_as_black_is_zero_and_is_written_back() -> None:
    stored = noise(5, 6, dtype="uint8")
    data = made(stored, photometric="miniswhite")
    assert np.array_equal(read(data).pixels[..., 0], 255 - stored)
    with tifffile.TiffFile(io.BytesIO(again(data))) as file:
        assert file.pages.first.photometric == 0
        assert np.array_equal(file.asarray(), stored)


def test_alpha_is_what_the_file_declares() -> None:
    pixels = noise(5, 6, 4, dtype="uint8")
    for kind in ("assocalpha", "unassalpha"):
        data = made(pixels, photometric="rgb", extrasamples=[kind])
        picture = read(data)
        assert picture.pixels.shape == (5, 6, 3)
        assert picture.alpha is not None
        assert np.array_equal(picture.alpha, pixels[..., 3])
        with tifffile.TiffFile(io.BytesIO(again(data))) as file:
            assert np.array_equal(file.asarray(), pixels)
            assert file.pages.first.extrasamples == (1 if kind == "assocalpha" else 2,)
    undeclared = read(made(pixels, photometric="rgb", extrasamples=["unspecified"]))
    assert undeclared.alpha is None
    assert undeclared.pixels.shape == (5, 6, 4)


def test_premultiplied_colours_are_divided_where_alpha_is_not_multiplied_in() -> None:
    stored = np.array([[[100, 50, 128], [0, 0, 0], [7, 255, 255]]], np.uint8)  # grey, grey, alpha
    samples = stored[..., [0, 0, 0, 2]]
    data = made(samples, photometric="rgb", extrasamples=["assocalpha"], metadata=None)
    straight = np.array([199, 0, 7])

    def saved(format: str, **options: Any) -> Picture:
        stream = io.BytesIO()
        write(read(data), stream, format=format, **options)
        return read(stream.getvalue())

    assert np.array_equal(saved("TIFF").pixels[0, :, 0], samples[0, :, 0])
    assert np.array_equal(saved("PNG").pixels[0, :, 0], straight)
    on_white = saved("BMP", allow_depth_loss=True).pixels[0, :, 0]
    assert np.array_equal(on_white, [100 + 127, 255, 7])


def test_independent_channels_stay_independent() -> None:
    pixels = noise(5, 6, 7)
    data = made(pixels, planarconfig="contig")
    assert np.array_equal(read(data).pixels, pixels)
    assert np.array_equal(tifffile.imread(io.BytesIO(again(data))), pixels)


def test_imagej_hyperstacks_keep_axes_and_pixel_size() -> None:
    pixels = noise(2, 3, 4, 8, 9)
    data = made(
        pixels,
        imagej=True,
        resolution=(2.5, 2.5),
        metadata={
            "axes": "TZCYX",
            "spacing": 3.947,
            "unit": "um",
            "finterval": 0.5,
            "fps": 2.0,
            "Labels": [str(index) for index in range(24)],
            "Info": "a note",
        },
    )
    picture = read(data)
    assert picture.pixels.shape == (24, 8, 9, 1)
    assert picture.metadata.tiff is not None
    assert picture.metadata.tiff.axes == "TZCYX"
    with tifffile.TiffFile(io.BytesIO(again(data))) as file:
        assert file.is_imagej
        assert file.series[0].axes == "TZCYX"
        assert np.array_equal(file.asarray(), pixels)
        with tifffile.TiffFile(io.BytesIO(data)) as original:
            assert file.imagej_metadata == original.imagej_metadata
            for name in ("XResolution", "YResolution", "ResolutionUnit", "ImageDescription"):
                tags = [each.pages.first.tags[name].value for each in (file, original)]
                assert tags[0] == tags[1]


def test_ome_keeps_axes_and_physical_size() -> None:
    pixels = noise(2, 3, 4, 8, 9)
    data = made(
        pixels,
        ome=True,
        metadata={
            "axes": "TCZYX",
            "PhysicalSizeX": 0.29,
            "PhysicalSizeXUnit": "µm",
            "Channel": {"Name": ["DAPI", "GFP", "RFP"]},
        },
    )
    with tifffile.TiffFile(io.BytesIO(again(data))) as file:
        assert file.is_ome
        assert file.series[0].axes == "TCZYX"
        assert np.array_equal(file.asarray(), pixels)
        with tifffile.TiffFile(io.BytesIO(data)) as original:
            assert file.ome_metadata == original.ome_metadata


def ome(channels: int, places: str) -> str:
    """A description of a picture of 9×8 pixels whose planes lie at ``places``."""
    named = "".join(f'<Channel ID="Channel:0:{c}" SamplesPerPixel="1"/>' for c in range(channels))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">'
        '<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" SizeX="9" SizeY="8" '
        f'SizeZ="1" SizeT="1" SizeC="{channels}">{named}{places}</Pixels></Image></OME>'
    )


@pytest.mark.parametrize(
    "description",
    [
        ome(2, '<TiffData IFD="1" FirstC="0"/><TiffData IFD="0" FirstC="1"/>'),  # out of order
        ome(3, '<TiffData IFD="0" FirstC="1"/><TiffData IFD="1" FirstC="2"/>'),  # one is missing
        ome(1, '<TiffData IFD="0" FirstC="0"/>'),  # one is not mentioned
    ],
)
def test_ome_planes_stay_where_their_description_says(description: str) -> None:
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        for index, page in enumerate(noise(2, 8, 9)):
            text = description if index == 0 else "second"
            writer.write(page, photometric="minisblack", description=text, metadata=None)
    data = stream.getvalue()
    assert probe(data).pages == 2
    assert read(data).pixels.shape == (2, 8, 9, 1)
    result = again(data)
    for key in ([0, 1], None):  # page by page, and as the description orders them
        before, after = (tifffile.imread(io.BytesIO(file), key=key) for file in (data, result))
        assert np.array_equal(before, after)
    with tifffile.TiffFile(io.BytesIO(result)) as file:
        assert file.ome_metadata == description


def test_a_metamorph_stack_becomes_pages_that_every_reader_finds() -> None:
    """One directory, three planes behind each other; its tags say so and are left behind."""
    planes = noise(3, 8, 9)
    times = [(z + 1, 1, 2450000, 1000 * z, 2450000, 1000 * z) for z in range(3)]
    data = made(
        planes[0],
        metadata=None,
        byteorder="<",
        extratags=[
            (33628, 4, 3, b"\0" * 12, True),
            (33629, 5, 9, sum(times, ()), True),
        ],
    )
    count = struct.pack("<HHI", 33629, 5, 9)  # MetaMorph counts planes, not ratios
    data = data.replace(count, count[:4] + struct.pack("<I", 3)) + planes[1:].tobytes()
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        assert file.is_stk
    assert probe(data).pages == 3
    with tifffile.TiffFile(io.BytesIO(again(data))) as file:
        assert np.array_equal(file.asarray(), planes)


def test_ratios_are_kept_however_often_a_picture_is_saved() -> None:
    tags = [
        (286, 5, 1, (12345, 1000), True),
        (318, 5, 2, (3127, 10000, 3290, 10000), True),
        (37380, 10, 1, (-1, 3), True),
    ]
    data = again(again(made(noise(8, 9), extratags=tags, metadata=None)))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        for code, _, count, value, _ in tags:
            tag = file.pages.first.tags[code]
            assert (tag.count, tag.value) == (count, value)


def test_tags_of_every_page_are_kept() -> None:
    stream = io.BytesIO()
    pixels = noise(3, 8, 9)
    with tifffile.TiffWriter(stream) as file:
        for index, page in enumerate(pixels):
            file.write(
                page,
                photometric="minisblack",
                description=f"page {index}",
                metadata=None,
                contiguous=False,
                extratags=[(51234, "s", 0, f"private {index}", True)],
            )
    with tifffile.TiffFile(io.BytesIO(again(stream.getvalue()))) as after:
        pages = [page for page in after.pages if isinstance(page, tifffile.TiffPage)]
        assert [page.tags[270].value for page in pages] == [f"page {i}" for i in range(3)]
        assert [page.tags[51234].value for page in pages] == [f"private {i}" for i in range(3)]
        assert np.array_equal(after.asarray(), pixels)


@pytest.mark.parametrize("value", [(0, 0), (300, 0), (0, 1)])
def test_nonsense_resolution_is_no_obstacle(value: tuple[int, int]) -> None:
    data = bytearray(made(noise(8, 9), metadata=None, resolution=((4321, 7), (4321, 7))))
    at = data.index(struct.pack("<II", 4321, 7))
    struct.pack_into("<II", data, at, *value)
    assert read(bytes(data)).metadata.dpi is None
    assert read(again(bytes(data))).metadata.dpi is None


def test_geotiff_tags_are_kept() -> None:
    tags = [
        (33550, "d", 3, (10.0, 10.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 4000000.0, 0.0), True),
        (34735, "H", 4, (1, 1, 0, 0), True),
    ]
    data = again(made(noise(8, 9), extratags=tags, metadata=None))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        for code, _, _, value, _ in tags:
            assert file.pages.first.tags[code].value == value


def test_strip_drops_tags_but_not_the_layout() -> None:
    data = made(
        noise(3, 8, 9), compression="lzw", description="secret", software="S", metadata=None
    )
    stripped = again(data, strip=True)
    assert b"secret" not in stripped
    with tifffile.TiffFile(io.BytesIO(stripped)) as file:
        assert file.pages.first.compression == 5
        assert 305 not in file.pages.first.tags
        assert len(file.pages) == 3


@pytest.mark.parametrize("bits", [2, 4])
def test_few_bits_are_spread_to_eight(bits: int) -> None:
    top = (1 << bits) - 1
    values = (np.arange(64, dtype=np.uint8) % (top + 1)).reshape(4, 16)
    packed = np.zeros((4, 16 * bits // 8), np.uint8)
    for column in range(16):
        shift = 8 - bits - (column * bits) % 8
        packed[:, column * bits // 8] |= values[:, column] << shift
    tags = [(256, 16), (257, 4), (258, bits), (259, 1), (262, 1), (273, 128), (277, 1), (278, 4)]
    tags.append((279, packed.size))
    table = b"".join(struct.pack("<HHIHH", code, 3, 1, value, 0) for code, value in tags)
    header = b"II*\0" + struct.pack("<IH", 8, len(tags)) + table
    data = header.ljust(128, b"\0") + packed.tobytes()
    assert np.array_equal(read(data).pixels[..., 0], values * (255 // top))


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("planar", [None, "contig", "separate"])
def test_twelve_bits_keep_their_values_and_their_white(
    byteorder: Literal["<", ">"], planar: str | None
) -> None:
    pixels = noise(6, 8, 1 if planar is None else 3) >> 4
    pixels[0, 0], pixels[0, 1] = 0, 4095
    stream = io.BytesIO()
    photometric = "minisblack" if planar is None else "rgb"
    data = made(pixels.squeeze(), bitspersample=12, photometric=photometric)
    picture = read(data)
    assert picture.pixels.dtype == np.uint16
    assert np.array_equal(picture.pixels, pixels)
    assert picture.white == 4095
    assert picture.metadata.tiff is not None
    layout = replace(
        picture.metadata.tiff, byteorder=byteorder, planar=planar == "separate", pages=()
    )
    picture = replace(picture, metadata=replace(picture.metadata, tiff=layout))
    write(replace(picture, pixels=np.where(pixels == 4095, 5000, pixels).astype("u2")), stream)
    back = read(stream.getvalue())
    assert (back.white, back.metadata.tiff and back.metadata.tiff.byteorder) == (4095, byteorder)
    assert np.array_equal(back.pixels, pixels)  # what exceeds white is white
    for format, white in (("PNG", 65535), ("JPEG", 255)):
        write(picture, stream := io.BytesIO(), format=format, allow_depth_loss=True)
        converted = read(stream.getvalue())
        if format == "PNG":
            assert np.array_equal(converted.pixels, np.rint(pixels * (white / 4095)))
        else:
            assert abs(converted.pixels.mean() - pixels.mean() * white / 4095) < 3


def test_white_is_zero_inverts_colours_only_and_within_their_bits() -> None:
    stored = noise(5, 6, 2, dtype="uint8")
    data = made(
        stored, photometric="miniswhite", extrasamples=["unassalpha"], planarconfig="contig"
    )
    picture = read(data)
    assert picture.alpha is not None
    assert np.array_equal(picture.alpha, stored[..., 1])
    assert np.array_equal(picture.pixels[..., 0], 255 - stored[..., 0])
    assert np.array_equal(tifffile.imread(io.BytesIO(again(data))), stored)
    twelve = noise(5, 6) >> 4
    data = made(twelve, photometric="miniswhite", bitspersample=12)
    assert np.array_equal(read(data).pixels[..., 0], 4095 - twelve)
    assert np.array_equal(tifffile.imread(io.BytesIO(again(data))), twelve)


def test_palette_becomes_rgb() -> None:
    colours = noise(3, 256)
    indices = noise(5, 6, dtype="uint8")
    picture = read(made(indices, photometric="palette", colormap=colours))
    assert np.array_equal(picture.pixels, (colours >> 8).T[indices])
    stream = io.BytesIO()
    write(picture, stream)
    assert np.array_equal(read(stream.getvalue()).pixels, picture.pixels)


def test_cmyk_keeps_its_inks() -> None:
    pixels = noise(5, 6, 4, dtype="uint8")
    data = made(pixels, photometric="separated")
    picture = read(data)
    assert picture.metadata.cmyk
    assert np.array_equal(picture.pixels, pixels)
    with tifffile.TiffFile(io.BytesIO(again(data))) as file:
        assert file.pages.first.photometric == 5
        assert np.array_equal(file.asarray(), pixels)


def test_jpeg_in_tiff_is_read_and_written_without_loss() -> None:
    pixels = np.asarray(Image.fromarray(noise(4, 4, 3, dtype="uint8")).resize((32, 32)))
    picture = read(made(pixels, photometric="rgb", compression="jpeg"))
    stream = io.BytesIO()
    write(picture, stream)
    assert np.array_equal(read(stream.getvalue()).pixels, picture.pixels)
    assert picture.metadata.lossy


def test_pages_of_different_size_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mixed.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(noise(8, 9), photometric="minisblack", metadata=None)
        file.write(noise(5, 5), photometric="minisblack", metadata=None)
    message = r"mixed\.tif: its pages differ in size or kind; split them into files first"
    with pytest.raises(ImageError, match=message):
        read(path)


def test_raw_sensor_data_and_complex_samples_are_refused() -> None:
    with pytest.raises(
        ImageError, match="TIFF colour type CFA is not supported; convert it to RGB"
    ):
        read(made(noise(8, 8), photometric="cfa"))
    with pytest.raises(ImageError, match="TIFF samples of type complex64 are not supported"):
        read(made(np.ones((4, 4), np.complex64)))


def test_a_circular_chain_of_pages_is_damaged() -> None:
    data = bytearray(made(noise(4, 4), metadata=None))
    (offset,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, offset)
    struct.pack_into("<I", data, offset + 2 + 12 * count, offset)
    with pytest.raises(ImageError, match=r"damaged TIFF file \(its chain of pages is circular\)"):
        read(bytes(data))


def test_a_bomb_is_refused_from_its_header() -> None:
    data = bytearray(made(noise(4, 4), metadata=None, compression="zlib"))
    (offset,) = struct.unpack_from("<I", data, 4)
    for tag in range(struct.unpack_from("<H", data, offset)[0]):
        at = offset + 2 + 12 * tag
        if struct.unpack_from("<H", data, at)[0] in (256, 257):  # width, height
            struct.pack_into("<I", data, at + 8, 30_000)
    with pytest.raises(ImageError, match=r"damaged TIFF file \(truncated\)"):
        read(bytes(data))


def test_an_empty_picture_may_be_very_small_on_disk() -> None:
    data = made(np.zeros((2000, 3000), np.uint8), compression="zstd", metadata=None)
    assert read(data).pixels.shape == (2000, 3000, 1)


def test_all_pages_count_for_the_limit() -> None:
    data = made(noise(5, 10, 10))
    message = "10 x 10 x 5 pages pixels exceed the limit of 499"
    with pytest.raises(ImageError, match=message):
        read(data, max_pixels=499)
    assert len(read(data, max_pixels=500).pixels) == 5


def test_a_stack_made_in_memory_can_be_written(tmp_path: Path) -> None:
    picture = Picture(noise(3, 5, 6, 3, dtype="uint8"), noise(3, 5, 6, dtype="uint8"), "TIFF")
    write(picture, tmp_path / "stack.tif")
    result = read(tmp_path / "stack.tif")
    assert np.array_equal(result.pixels, picture.pixels)
    assert result.alpha is not None
    assert picture.alpha is not None
    assert np.array_equal(result.alpha, picture.alpha)


def test_a_changed_stack_keeps_its_tags() -> None:
    picture = read(made(noise(3, 8, 9), imagej=True, metadata={"axes": "ZYX", "spacing": 2.0}))
    stream = io.BytesIO()
    write(replace(picture, pixels=picture.pixels // 2), stream)
    with tifffile.TiffFile(io.BytesIO(stream.getvalue())) as file:
        assert file.imagej_metadata is not None
        assert file.imagej_metadata["spacing"] == 2.0
        assert np.array_equal(file.asarray(), picture.pixels[..., 0] // 2)


def test_samples_of_scikit_image() -> None:
    assert read(SAMPLES / "multipage.tif").pixels.shape == (2, 15, 10, 1)
    assert read(SAMPLES / "multipage_rgb.tif").pixels.shape == (2, 10, 10, 3)
