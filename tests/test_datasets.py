"""Sets are found where they should be, pictures of any depth are read, noise is what it says."""

from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from nelu_cli.data import downloads
from nelu_cli.data import sets as datasets
from nelu_cli.data.sets import find, load_clean, load_pixels
from nelu_cli.errors import DatasetError


def picture(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (3, 2), value).save(path)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path, Path]:
    """The folders that are searched, in order: --data-dir, NELU_DATA, the cache, here."""
    monkeypatch.setenv("NELU_DATA", str(tmp_path / "environment"))
    monkeypatch.setenv("NELU_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return (
        tmp_path / "option",
        tmp_path / "environment",
        tmp_path / "cache",
        tmp_path / "here",
    )


# ------------------------------------------------------------------ finding


def test_the_first_place_that_has_the_set_wins(places: tuple[Path, ...]) -> None:
    for place in reversed(places):
        expected = picture(place / "set" / "a.png")
        found = find("set", places[0])
        assert found.name == "set"
        assert [path.resolve() for path in found.paths] == [expected]


def test_without_an_option_or_a_variable_the_cache_is_searched(
    places: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NELU_DATA")
    expected = picture(places[2] / "set" / "a.png")
    assert find("set").paths == (expected,)


def test_the_cache_is_the_users_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NELU_CACHE", raising=False)
    assert "nelu" in datasets.cache_dir().parts
    monkeypatch.setenv("NELU_CACHE", "elsewhere")
    assert datasets.cache_dir() == Path("elsewhere")


def test_a_path_is_walked_in_order_and_only_pictures_count(places: tuple[Path, ...]) -> None:
    folder = places[3] / "mine"
    for name in ("b.PNG", "sub/deep/a.png", "a.tif", ".hidden.png"):
        picture(folder / name)
    (folder / "notes.txt").write_text("no picture")
    (folder / "folder.png").mkdir()
    for name in ("mine", "./mine", str(folder)):
        found = find(name)
        assert found.name == "mine"
        relative = [str(path.resolve().relative_to(folder)) for path in found.paths]
        assert relative == ["a.tif", "b.PNG", "sub/deep/a.png"]


def test_a_dot_means_here_and_has_a_name(places: tuple[Path, ...]) -> None:
    picture(places[1] / "other.png")  # NELU_DATA/. is not meant
    expected = picture(places[3] / "a.png")
    found = find(".")
    assert found.name == "here"
    assert [path.resolve() for path in found.paths] == [expected]


def test_an_empty_folder(places: tuple[Path, ...]) -> None:
    (places[3] / "empty").mkdir()
    with pytest.raises(DatasetError, match="empty: no pictures in this folder"):
        find("empty")


def test_an_unknown_name_says_where_was_looked(places: tuple[Path, ...]) -> None:
    with pytest.raises(DatasetError) as caught:
        find("holiday", places[0])
    message = str(caught.value)
    assert message.startswith("holiday: no such dataset in ")
    for place in places[:3]:
        assert str(place) in message
    assert "nelu data list" in message


@pytest.mark.parametrize("name", downloads.CATALOGUE)
def test_a_public_set_that_is_not_here_says_how_to_get_it(
    places: tuple[Path, ...], name: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        find(name, places[0])
    message = str(caught.value)
    assert message.startswith(f"{name}: not on this machine")
    assert f"`nelu data fetch {name}`" in message
    assert downloads.lookup(name).source in message
    assert str(places[0] / name) in message
    assert "\n" not in message


def test_samples_are_always_there(places: tuple[Path, ...]) -> None:
    samples = find("samples")
    assert samples.name == "samples"
    assert len(samples.paths) >= 3
    for path in samples.paths:
        assert min(load_pixels(path, 1).shape[:2]) >= 200


# ------------------------------------------------------------------ reading

DEEP = np.array([[0, 1, 128, 129, 257], [12345, 32768, 51400, 65534, 65535]], np.uint16)
SHALLOW = np.array([[0, 0, 0, 1, 1], [48, 128, 200, 255, 255]], np.uint8)  # DEEP / 257, rounded


@pytest.mark.parametrize("channels", [1, 3])
def test_8_bit_pixels_are_as_stored(tmp_path: Path, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    Image.fromarray(pixels.squeeze()).save(tmp_path / "a.png")
    np.testing.assert_array_equal(load_pixels(tmp_path / "a.png", channels), pixels)


def test_one_channel_of_colour_is_the_rec_601_luma(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    luma = pixels @ np.array([0.299, 0.587, 0.114])
    assert np.abs(load_pixels(tmp_path / "a.png", 1)[..., 0] - luma).max() <= 0.51


def test_grey_becomes_three_equal_channels(tmp_path: Path) -> None:
    pixels = load_pixels(picture(tmp_path / "a.png", 77), 3)
    np.testing.assert_array_equal(pixels, np.full((2, 3, 3), 77))


@pytest.mark.parametrize("extension", ["png", "tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_keep_black_white_and_all_between(
    tmp_path: Path, extension: str, channels: int
) -> None:
    deep = np.stack([DEEP, DEEP[::-1], DEEP[:, ::-1]][:channels], axis=-1)
    shallow = np.stack([SHALLOW, SHALLOW[::-1], SHALLOW[:, ::-1]][:channels], axis=-1)
    path = tmp_path / f"a.{extension}"
    if extension == "png":
        path.write_bytes(imagecodecs.png_encode(deep))
    else:
        tifffile.imwrite(path, deep.squeeze(), photometric="rgb" if channels == 3 else "minisblack")
    np.testing.assert_array_equal(load_pixels(path, channels), shallow)


def test_a_16_bit_picture_saved_by_pillow_does_not_saturate(tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / "a.png")
    np.testing.assert_array_equal(load_pixels(tmp_path / "a.png", 1)[..., 0], SHALLOW)


def test_floats_count_from_0_to_1(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.array([[-0.5, 0, 0.5, 1, 7]], np.float32))
    pixels = load_pixels(tmp_path / "a.tif", 1)
    np.testing.assert_array_equal(pixels[0, :, 0], [0, 0, 128, 255, 255])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([[0, 100, 2000, 4000]], np.float32), "should be within 0–1"),
        (np.array([[0, 100, 2000, 4095]], np.uint16), "less than an eighth of 16 bits"),
    ],
)
def test_scientific_ranges_are_not_flattened_to_8_bits(
    values: NDArray[Any], message: str, tmp_path: Path
) -> None:
    tifffile.imwrite(tmp_path / "a.tif", values)
    with pytest.raises(DatasetError, match=message):
        load_pixels(tmp_path / "a.tif", 1)


def test_hidden_folders_and_empty_ones_are_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NELU_DATA", str(tmp_path / "first"))
    monkeypatch.setenv("NELU_CACHE", str(tmp_path / "second"))
    for name in ("second/set12/a.png", "second/set12/.thumbs/b.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / name)
    (tmp_path / "first/set12").mkdir(parents=True)
    assert find("set12").paths == (tmp_path / "second/set12/a.png",)


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_alpha_is_dropped(tmp_path: Path, mode: str) -> None:
    values = (10, 128) if mode == "LA" else (10, 10, 10, 0)
    Image.new(mode, (4, 3), values).save(tmp_path / "a.png")
    for channels in (1, 3):
        np.testing.assert_array_equal(load_pixels(tmp_path / "a.png", channels), 10)


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    colours = np.array([[[255, 0, 0], [0, 0, 255]], [[0, 255, 0], [9, 9, 9]]], np.uint8)
    Image.fromarray(colours).quantize(4).save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == "P"
    np.testing.assert_array_equal(load_pixels(tmp_path / "a.png", 3), colours)


def test_black_and_white_is_0_and_255(tmp_path: Path) -> None:
    Image.new("1", (4, 3), 1).save(tmp_path / "a.png")
    np.testing.assert_array_equal(load_pixels(tmp_path / "a.png", 1), 255)


def test_inks_become_colours(tmp_path: Path) -> None:
    Image.new("CMYK", (8, 8), (0, 0, 0, 0)).save(tmp_path / "a.jpg", quality=100)
    np.testing.assert_array_equal(load_pixels(tmp_path / "a.jpg", 3), 255)


def test_of_a_stack_the_first_picture_is_taken(tmp_path: Path) -> None:
    stack = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    tifffile.imwrite(tmp_path / "a.tif", stack, photometric="minisblack")
    np.testing.assert_array_equal(load_pixels(tmp_path / "a.tif", 1)[..., 0], stack[0])


def test_other_numbers_of_channels_are_refused(tmp_path: Path) -> None:
    cube = np.zeros((5, 4, 6), np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", cube, photometric="minisblack", planarconfig="separate")
    with pytest.raises(DatasetError, match=r"a\.tif: has 5 channels; a dataset needs grey or"):
        load_pixels(tmp_path / "a.tif", 1)


@pytest.mark.parametrize("content", [b"", b"text", b"\x89PNG\r\n\x1a\n broken"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DatasetError, match=r"a\.png: "):
        load_pixels(tmp_path / "a.png", 1)


def test_a_clean_picture_is_float32_from_0_to_1(tmp_path: Path) -> None:
    clean = load_clean(picture(tmp_path / "a.png", 255), 1)
    assert clean.dtype == np.float32
    np.testing.assert_array_equal(clean, 1)


def test_real_pairs_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("b_real.png", "b_mean.png", "a_real.png", "a_mean.png", "c_real.png", "d.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    pairs = datasets.pairs_of(datasets.find(str(tmp_path)))
    assert [(p.name, p.noisy.name, p.clean.name) for p in pairs] == [
        ("a", "a_real.png", "a_mean.png"),
        ("b", "b_real.png", "b_mean.png"),
    ]
    assert datasets.pairs_of(datasets.ImageSet("none", ())) == ()
