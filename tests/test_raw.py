"""RAW files: the mathematics of a sensor's noise, the mosaic, developing, DNG."""

import io
import os
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rawpy
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageCms

from nelu_cli import images
from nelu_cli.errors import ImageError
from nelu_cli.files.formats import PICTURES
from nelu_cli.images import Picture, Source, exif
from nelu_cli.images.convert import developed
from nelu_cli.raw.anscombe import SensorNoise, destabilise, stabilise
from nelu_cli.raw.colour import SPACES, profile
from nelu_cli.raw.dng import Sensor, colour_tags, write_dng
from nelu_cli.raw.formats import CAMERA
from nelu_cli.raw.mosaic import _box_mean
from nelu_cli.raw.noise_model import estimate_sensor_noise
from nelu_cli.raw.synthetic import Camera, make_dng
from nelu_cli.words import Colour

Nelu = Callable[..., tuple[int, str, str]]
Pixels = NDArray[np.uint8]


def scene(height: int = 160, width: int = 224) -> Pixels:
    """A smooth picture in colours, with one edge."""
    down, across = np.mgrid[:height, :width] / 60.0
    red = 120 + 70 * np.sin(across)
    green = 110 + 60 * np.sin(down + 1) + 20 * (across > 2)
    blue = 100 + 60 * np.sin(across + down)
    pixels: Pixels = np.rint(np.stack([red, green, blue], -1)).astype(np.uint8)
    return pixels


def psnr(found: NDArray[np.generic], truth: NDArray[np.generic], white: float) -> float:
    difference = found.astype(np.float64) - truth.astype(np.float64)
    return float(20 * np.log10(white / np.sqrt(np.mean(difference**2))))


def read(content: bytes) -> Picture:
    return images.read(content)


# The noise of a sensor


@pytest.mark.parametrize("spread", [0.0, 1.0, 9.0, 49.0, 100.0, 1e6])
@pytest.mark.parametrize("photons", [0.0, 0.5, 3.0, 20.0, 119.0, 121.0, 20_000.0])
def test_the_mean_of_the_transform_leads_back_to_the_signal(spread: float, photons: float) -> None:
    noise = SensorNoise(gain=2.5, variance=spread * 2.5**2)
    rng = np.random.default_rng(0)
    count = 200_000
    values = rng.poisson(photons, count) + rng.normal(0, spread**0.5, count)
    z = stabilise((2.5 * values).astype(np.float32), noise)
    if photons + spread > 3:
        assert z.std() == pytest.approx(1, abs=0.05)
    (found,) = destabilise(np.array([z.mean(dtype=np.float64)], np.float32), noise)
    chance = 2.5 * ((photons + spread) / count) ** 0.5
    assert found == pytest.approx(2.5 * photons, abs=5 * chance + 1e-3 * noise.deviation(0) + 0.01)


def test_the_inverse_rises_without_a_step() -> None:
    z = np.linspace(0, 80, 20_001, dtype=np.float32)
    for spread in (0.0, 2.0, 49.9, 50.1):
        signal = destabilise(z, SensorNoise(1.0, spread))
        steps = np.diff(signal)
        assert steps.min() >= -1e-4
        assert steps.max() < 0.2


@pytest.mark.parametrize(("gain", "read_noise"), [(2.0, 3.0), (20.0, 3.0), (70.0, 2.0)])
def test_gain_and_read_noise_are_found_in_the_picture(gain: float, read_noise: float) -> None:
    rng = np.random.default_rng(0)
    light = np.linspace(0, 12_000, 512)[None, :, None] * np.ones((384, 1, 4)) / gain
    values = gain * (rng.poisson(light) + rng.normal(0, read_noise, light.shape))
    found = estimate_sensor_noise(np.rint(values).astype(np.float32), 16_000)
    assert found.gain == pytest.approx(gain, rel=0.05)
    truth = SensorNoise(gain, (gain * read_noise) ** 2)
    for signal in (100, 1000, 10_000):
        assert found.deviation(signal) == pytest.approx(truth.deviation(signal), rel=0.05)


def test_texture_in_most_of_a_picture_is_not_taken_for_noise() -> None:
    """It only adds, so that the bins below the line count in full."""
    rng, truth = np.random.default_rng(0), SensorNoise(20.0, 60.0**2)
    light = np.linspace(0, 12_000, 512)[None, :, None] * np.ones((384, 1, 4))
    light[:, 102:] *= 1 + 0.05 * rng.standard_normal((384, 410, 4))
    values = 20.0 * (rng.poisson(np.maximum(light, 0) / 20) + rng.normal(0, 3, light.shape))
    found = estimate_sensor_noise(np.rint(values).astype(np.float32), 16_000)
    assert found.deviation(2880) == pytest.approx(truth.deviation(2880), rel=0.1)


@pytest.mark.parametrize("value", [0, 700, 16_383])
def test_pictures_without_noise_have_a_noise_model_too(value: int) -> None:
    found = estimate_sensor_noise(np.full((64, 64, 4), value, np.float32), 16_383)
    assert found.gain > 0
    assert 0 < found.variance < 1


def test_box_means_are_means() -> None:
    field = np.random.default_rng(0).random((7, 9, 2)).astype(np.float32)
    np.testing.assert_allclose(_box_mean(field, 5)[0 + 2, 1], field[0:5, 0:4].mean((0, 1)), 1e-6)
    np.testing.assert_allclose(_box_mean(field, 3)[3, 0], field[2:5, 0:2].mean((0, 1)), 1e-6)


# Reading and developing


def test_a_dng_says_to_libraw_what_it_was_made_of() -> None:
    camera = Camera(cell=(1, 2, 0, 1))
    with rawpy.imread(io.BytesIO(make_dng(scene(), camera))) as raw:
        assert raw.raw_image_visible.shape == (160, 224)
        colours = raw.raw_colors_visible[:2, :2].ravel()
        assert [1 if colour == 3 else colour for colour in colours] == [1, 2, 0, 1]
        assert raw.black_level_per_channel == [512] * 4
        assert raw.white_level == 16383
        assert raw.camera_whitebalance[:3] == pytest.approx([2, 1, 1.5], rel=1e-3)


def test_the_limit_of_pixels_counts_the_borders_of_a_sensor() -> None:
    """LibRaw makes room for all of it, however little the file says is the picture."""
    colours = colour_tags(np.eye(3), [1, 1, 1], "Synthetic camera", "<").entries
    area = exif.Entry(50829, 4, 4, struct.pack("<4I", 20, 30, 84, 126))  # top, left, bottom, right
    stream = io.BytesIO()
    tags = exif.Directory((*colours, area))
    sensor = Sensor((0, 1, 1, 2), (0,) * 4, 4095, orientation=1, tags=tags, order="<")
    write_dng(stream, np.full((160, 224), 900, np.uint16), sensor)
    header = images.probe(stream.getvalue(), max_pixels=160 * 224)
    assert (header.height, header.width) == (64, 96)
    with pytest.raises(ImageError, match="35,840 pixels, of which 96 x 64 are shown, exceed"):
        images.probe(stream.getvalue(), max_pixels=160 * 224 - 1)


def test_a_clean_mosaic_is_developed_to_the_picture_it_was_made_from() -> None:
    picture = developed(read(make_dng(scene())))
    assert picture.pixels.dtype == np.uint16
    assert psnr(picture.pixels / 257, scene(), 255) > 38


@pytest.mark.parametrize("shape", [(160, 224), (161, 225), (33, 32)])
def test_unchanged_planes_are_developed_as_the_file_itself(shape: tuple[int, int]) -> None:
    content = make_dng(scene(*shape), iso=3200)
    picture = read(content)
    assert picture.pixels.shape == (-(-shape[0] // 2), -(-shape[1] // 2), 4)
    with rawpy.imread(io.BytesIO(content)) as raw:
        expected = raw.postprocess(
            use_camera_wb=True,
            no_auto_bright=True,
            adjust_maximum_thr=0.0,
            output_bps=16,
            gamma=(2.4, 12.92),
        )
    found = developed(picture).pixels
    assert found.shape == (*shape, 3)
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 40  # of 65535: rounded levels


def test_planes_have_white_noise_of_one_strength() -> None:
    flat = np.repeat(np.arange(30, 250, 20, dtype=np.uint8), 64)
    pixels = np.broadcast_to(flat[None, :, None], (256, len(flat), 3))
    planes = read(make_dng(pixels, iso=6400)).pixels
    spreads = [planes[:, left : left + 32].std((0, 1)) for left in range(0, planes.shape[1], 32)]
    assert np.max(spreads) < 1.15 * np.min(spreads)


def test_a_texture_beyond_the_noise_is_given_back() -> None:
    rng = np.random.default_rng(0)
    pixels = scene(256, 256)
    pixels[96:160, 96:160] = rng.integers(60, 200, (64, 64, 3))  # as fine as can be
    picture = read(make_dng(pixels, iso=800))
    truth = developed(read(make_dng(pixels))).pixels[96:160, 96:160]
    flat = picture.pixels.copy()
    flat[48:80, 48:80] = flat[48:80, 48:80].mean((0, 1))  # a network that takes it for noise
    cleaned = Picture(flat, None, picture.format, picture.metadata)
    found = developed(cleaned).pixels[96:160, 96:160]
    assert psnr(np.broadcast_to(truth.mean((0, 1)), truth.shape), truth, 65535) < 18
    assert psnr(found, truth, 65535) > 27


def test_a_linear_dng_is_developed_and_then_denoised(nelu: Nelu, tmp_path: Path) -> None:
    path = tmp_path / "linear.dng"
    values = scene().astype(np.uint16) * 200
    tags: list[tuple[int | str, int | str, int | None, object, bool]] = [
        (50706, "B", 4, (1, 4, 0, 0), True),
        (50708, "s", 0, "Linear", True),
        (50717, "H", 3, (65535,) * 3, True),
        (50721, 10, 9, tuple(n for v in np.eye(3).ravel() for n in (int(v), 1)), True),
        (50728, 5, 3, (1, 1, 1, 1, 1, 1), True),
    ]
    tifffile.imwrite(path, values, photometric=34892, metadata=None, extratags=tags)
    picture = images.read(path)
    assert picture.metadata.undeveloped is None
    assert picture.pixels.shape == (160, 224, 3)
    assert nelu("denoise", path, tmp_path / "out.tif", "-q") == (0, "", "")
    status, _, err = nelu("denoise", path, tmp_path / "out.dng", "-q")
    assert status == 1
    assert err == (
        f"nelu: {tmp_path / 'out.dng'}: only the picture of a camera's sensor can become a DNG; "
        "choose TIFF\n"
    )


@pytest.mark.parametrize("colour", SPACES)
def test_every_colour_space_shows_the_same_colours(colour: Colour) -> None:
    picture = developed(read(make_dng(scene())), "TIFF", colour)
    truth = developed(read(make_dng(scene()))).pixels / 257
    assert picture.metadata.icc == profile(SPACES[colour])
    own = ImageCms.ImageCmsProfile(io.BytesIO(picture.metadata.icc or b""))
    assert ImageCms.getProfileDescription(own).strip() == SPACES[colour].title
    shown = Image.fromarray(np.rint(picture.pixels / 257).astype(np.uint8))
    srgb = ImageCms.createProfile("sRGB")
    converted = ImageCms.profileToProfile(shown, own, srgb)
    assert converted is not None
    least = 28 if colour == "linear" else 45  # 8 bits of light are coarse in the dark
    assert psnr(np.asarray(converted), truth, 255) > least


def test_camera_files_are_told_from_tiff_by_bytes_or_name() -> None:
    def is_camera(start: bytes, name: str | None) -> bool:
        path = None if name is None else Path(name)
        return CAMERA.identify(Source(path, io.BytesIO(start), start))

    assert is_camera(b"II*\0\x10\0\0\0CR\x02\0", None)
    assert is_camera(b"\0\0\0\x18ftypcrx \0\0\0\x01", None)
    assert is_camera(b"FUJIFILMCCD-RAW 0201", None)
    assert is_camera(b"IIRO\x08\0\0\0", None)
    assert is_camera(b"IIU\0\x08\0\0\0", None)
    assert is_camera(b"MM\0*\0\0\0\x08", "DSC_0001.NEF")
    assert not is_camera(b"MM\0*\0\0\0\x08", "scan.tif")
    assert not is_camera(b"\xff\xd8\xff\xe0", "DSC_0001.NEF")
    assert {".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".dng"} <= PICTURES


# nelu denoise


def exif_of(path: Path) -> dict[str, object]:
    """The main tags and those of EXIF, by tifffile, which opens DNG too."""
    with tifffile.TiffFile(path) as file:
        tags = {tag.code: tag.value for tag in file.pages.first.tags}
    camera = dict(tags.get(exif.EXIF, {}))
    return {"make": tags.get(271), "ISO": camera.get("ISOSpeedRatings")}


@pytest.mark.parametrize(
    ("iso", "asked", "used", "gain"),
    [
        (3200, None, "photo-color", 4),  # developed first
        (25600, None, "deep-gray", 8),  # on the mosaic
        (3200, "deep-gray", "deep-gray", 6),
        (25600, "photo-color", "photo-color", 4),
    ],
)
def test_a_raw_file_becomes_a_clean_16_bit_tiff(
    nelu: Nelu, tmp_path: Path, iso: int, asked: str | None, used: str, gain: float
) -> None:
    source, target = tmp_path / "in.dng", tmp_path / "out.tif"
    source.write_bytes(make_dng(scene(), iso=iso, orientation=6))
    status, out, err = nelu("denoise", source, target, *(["--model", asked] if asked else []))
    assert (status, out) == (0, "")
    assert err.startswith(f"{source} → {target}: 160×224 RGB uint16, {used}, ")
    picture = images.read(target)
    assert picture.pixels.shape == (224, 160, 3)  # turned once
    assert picture.metadata.orientation == 1
    assert picture.metadata.icc == profile(SPACES["srgb"])
    truth = developed(read(make_dng(scene(), orientation=6))).pixels
    noisy = developed(images.read(source)).pixels
    assert psnr(picture.pixels, truth, 65535) > psnr(noisy, truth, 65535) + gain
    assert exif_of(target)["ISO"] == iso


def test_a_dng_stays_a_dng_with_less_noise(nelu: Nelu, tmp_path: Path) -> None:
    source, target = tmp_path / "in.dng", tmp_path / "out.dng"
    camera = Camera(cell=(2, 1, 1, 0), black=240, white=4095)  # 12 bits
    source.write_bytes(make_dng(scene(), camera, iso=6400, orientation=8))
    assert nelu("denoise", source, target, "-q") == (0, "", "")
    with rawpy.imread(str(source)) as before, rawpy.imread(str(target)) as after:
        assert after.sizes == before.sizes
        patterns = [raw.raw_colors_visible[:2, :2].tolist() for raw in (before, after)]
        assert patterns[0] == patterns[1]
        assert after.camera_whitebalance == before.camera_whitebalance
        assert np.array_equal(after.color_matrix, before.color_matrix)
        assert after.white_level == 16 * 4095
        assert after.black_level_per_channel == [16 * 240] * 4
        assert len(np.unique(after.raw_image_visible)) > 4096  # more levels than before
        with pytest.raises(rawpy.LibRawNoThumbnailError):
            after.extract_thumb()  # which would show the noise
        truth = read(make_dng(scene(), camera, orientation=8))
        clean = developed(truth).pixels.astype(np.float64)
        noisy, found = (developed(images.read(path)).pixels for path in (source, target))
    assert np.abs(found.mean((0, 1)) - clean.mean((0, 1))).max() < 0.01 * 65535
    assert psnr(found, clean, 65535) > psnr(noisy, clean, 65535) + 8
    assert exif_of(target)["ISO"] == 6400
    assert exif_of(target)["make"] == "Synthetic"


def test_a_jpeg_needs_no_leave_to_be_developed_in_8_bits(nelu: Nelu, tmp_path: Path) -> None:
    (tmp_path / "in.dng").write_bytes(make_dng(scene(), iso=800))
    target = tmp_path / "out.jpg"
    assert nelu("denoise", tmp_path / "in.dng", target, "--color", "p3", "-q") == (0, "", "")
    picture = images.read(target)
    assert picture.pixels.dtype == np.uint8
    assert picture.metadata.icc == profile(SPACES["p3"])


def test_a_folder_of_raw_files_works_as_one_of_jpegs(nelu: Nelu, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    content = make_dng(scene(48, 64), iso=800)
    (folder / "a.dng").write_bytes(content)
    (folder / "deep" / "B.NEF").write_bytes(content)
    Image.fromarray(scene(48, 64)).save(folder / "c.jpg")
    assert nelu("denoise", folder, tmp_path / "out", "-q") == (0, "", "")
    found = sorted(p.relative_to(tmp_path / "out").as_posix() for p in _files(tmp_path / "out"))
    assert found == ["a.dng", "c.jpg", "deep/B.tif"]
    assert nelu("denoise", folder, tmp_path / "jpegs", "--format", "jpeg", "-q") == (0, "", "")
    found = sorted(p.relative_to(tmp_path / "jpegs").as_posix() for p in _files(tmp_path / "jpegs"))
    assert found == ["a.jpg", "c.jpg", "deep/B.jpg"]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_strength_0_develops_and_changes_nothing_else(nelu: Nelu, tmp_path: Path) -> None:
    source, target = tmp_path / "in.dng", tmp_path / "out.tif"
    source.write_bytes(make_dng(scene(), iso=6400))
    assert nelu("denoise", source, target, "--strength", "0", "-q") == (0, "", "")
    assert np.array_equal(images.read(target).pixels, developed(images.read(source)).pixels)


def test_strip_leaves_only_the_profile(nelu: Nelu, tmp_path: Path) -> None:
    (tmp_path / "in.dng").write_bytes(make_dng(scene(), iso=800))
    target = tmp_path / "out.tif"
    assert nelu("denoise", tmp_path / "in.dng", target, "--strip", "-q") == (0, "", "")
    assert exif_of(target)["ISO"] is None
    assert images.read(target).metadata.icc is not None


def test_info_and_compare_know_raw_files(nelu: Nelu, tmp_path: Path) -> None:
    source = tmp_path / "in.dng"
    source.write_bytes(make_dng(scene(), iso=6400))
    status, out, err = nelu("info", source)
    assert (status, err) == (0, "")
    assert re.search(r"DNG, 224×160 RGB uint16\n.*\n  noise \d+\.\d", out)
    Image.fromarray(scene()).save(tmp_path / "clean.png")
    page = tmp_path / "page.html"
    assert nelu("compare", source, tmp_path / "clean.png", page, "-q") == (0, "", "")
    assert "in.dng" in page.read_text("utf-8")


# What is refused


def test_without_rawpy_there_is_one_line(
    nelu: Nelu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.dng"
    source.write_bytes(make_dng(scene(32, 32)))
    monkeypatch.setitem(sys.modules, "rawpy", None)
    status, _, err = nelu("denoise", source, tmp_path / "out.tif", "-q")
    assert status == 1
    assert err == (
        f"nelu: {source}: RAW files need one more package: pip install 'nelu-cli[raw]'\n"
    )


def test_an_ordinary_picture_cannot_become_a_dng(nelu: Nelu, tmp_path: Path) -> None:
    Image.fromarray(scene(32, 32)).save(tmp_path / "a.png")
    status, _, err = nelu("denoise", tmp_path / "a.png", tmp_path / "a.dng", "-q")
    assert status == 1
    assert err == (
        f"nelu: {tmp_path / 'a.dng'}: only the picture of a camera's sensor can become a DNG; "
        "choose TIFF\n"
    )
    assert not (tmp_path / "a.dng").exists()


def test_a_damaged_file_is_one_line(nelu: Nelu, tmp_path: Path) -> None:
    source = tmp_path / "in.dng"
    content = make_dng(scene())
    for damaged in (content[: len(content) // 2], content[:400], b"II*\0" + b"\xff" * 300):
        source.write_bytes(damaged)
        status, _, err = nelu("denoise", source, tmp_path / "out.tif", "-f", "-q")
        if status:
            assert err.startswith(f"nelu: {source}: ")
            assert err.count("\n") == 1
    other = tmp_path / "in.nef"
    other.write_bytes(b"II*\0\x08\0\0\0\0\0\0\0\0\0" + bytes(100))
    status, _, err = nelu("denoise", other, tmp_path / "out.tif", "-f", "-q")
    assert status == 1
    assert err == f"nelu: {other}: LibRaw does not know this kind of RAW file\n"


def test_what_libraw_says_of_a_file_is_words(nelu: Nelu, tmp_path: Path) -> None:
    source = tmp_path / "in.dng"
    source.write_bytes(make_dng(scene())[:-20_000])
    status, _, err = nelu("denoise", source, tmp_path / "out.tif", "-q")
    assert status == 1
    assert err == f"nelu: {source}: damaged DNG file (Input/output error)\n"


def test_rows_that_are_missing_are_not_taken_for_darkness(nelu: Nelu, tmp_path: Path) -> None:
    source, target = tmp_path / "in.dng", tmp_path / "out.tif"
    content = make_dng(scene())
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        (start,), (count,) = file.pages.first.dataoffsets, file.pages.first.databytecounts
        rows = file.pages.first.shape[0]
    kept = content[: start + count // 2]
    source.write_bytes(kept + bytes(start + count - len(kept)) + content[start + count :])
    status, _, err = nelu("denoise", source, target, "-q")
    assert status == 1
    assert err == f"nelu: {source}: damaged DNG file (truncated: its last rows are missing)\n"
    status, _, err = nelu("denoise", source, target, "--salvage")
    assert status == 0
    assert f"truncated: {rows // 2} of {rows} rows are missing" in err
    source.write_bytes(content[:start] + bytes(count) + content[start + count :])
    status, _, err = nelu("denoise", source, target, "--salvage", "-f", "-q")
    assert status == 1
    assert err == f"nelu: {source}: damaged DNG file (truncated: it has no values)\n"


def test_files_without_a_signature_are_known_by_their_size(nelu: Nelu, tmp_path: Path) -> None:
    """A Kodak C330 writes nothing but values."""
    source = tmp_path / "in.raw"
    source.write_bytes(np.random.default_rng(0).integers(60, 90, 2_247_168, np.uint8).tobytes())
    status, out, err = nelu("denoise", source, tmp_path / "out.tif", "--dry-run")
    assert (status, out) == (0, "")
    assert "1216×912 RGB uint16" in err
    other = tmp_path / "other.raw"
    other.write_bytes(bytes(range(256)) * 10)
    status, _, err = nelu("denoise", other, tmp_path / "out.tif", "-q")
    assert status == 1
    assert err.startswith(f"nelu: {other}: not a picture in a format that can be read")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(other, "PNG")
    assert nelu("denoise", other, tmp_path / "out.png", "-q")[0] == 0


REAL = Path(os.environ.get("NELU_RAW", "raw-samples"))


@pytest.mark.skipif(not REAL.is_dir(), reason="no RAW files of cameras: name a folder in NELU_RAW")
def test_real_raw_files_come_out_with_their_own_colours(nelu: Nelu, tmp_path: Path) -> None:
    for path in sorted(p for p in REAL.iterdir() if p.suffix.lower() in CAMERA.extensions):
        picture = images.read(path)
        with rawpy.imread(str(path)) as raw:
            expected = raw.postprocess(
                use_camera_wb=True,
                no_auto_bright=True,
                adjust_maximum_thr=0.0,
                output_bps=16,
                gamma=(2.4, 12.92),
            )
        found = developed(picture).pixels
        assert found.shape == expected.shape, path
        assert psnr(found, expected, 65535) > 40, path
        assert nelu("denoise", path, tmp_path / f"{path.name}.dng", "-q") == (0, "", ""), path
