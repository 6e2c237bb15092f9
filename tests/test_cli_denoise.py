"""``nelu denoise`` and ``nelu info`` as a person uses them."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from nelu_cli import checkpoints, images
from nelu_cli.cli import run
from nelu_cli.cli.plain import plain
from nelu_cli.cli.reporting import progress, stderr_console
from nelu_cli.cli.values import parse_bytes, parse_count
from nelu_cli.errors import UsageError
from nelu_cli.files import job as file_job
from nelu_cli.files.records import Outcome
from nelu_cli.runtime import pipeline as denoising
from nelu_cli.runtime.arrays import denoise
from nelu_cli.runtime.models import load_model

PROJECT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def bundled(small_models: Path) -> Path:
    return small_models


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder of its own."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@dataclass
class Ran:
    status: int
    out: str
    err: str


Nelu = Callable[..., Ran]


@pytest.fixture
def nelu(capsys: pytest.CaptureFixture[str]) -> Nelu:
    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        status = run(list(arguments))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return call


def noisy(height: int = 21, width: int = 34, channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    random = np.random.default_rng(seed)
    values = np.linspace(60, 190, width)[:, None] + 20 * random.standard_normal(
        (height, width, channels)
    )
    return np.clip(values, 0, 255).astype(np.uint8)


def put(path: str | Path, **shape: int) -> Path:
    """Write a small noisy picture."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noisy(**shape).squeeze()).save(path)
    return path


def load(path: str | Path) -> NDArray[Any]:
    return images.read(Path(path)).pixels


def tree(folder: str | Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file())


# One picture


def test_one_file_to_a_file(nelu: Nelu) -> None:
    put("in.png")
    ran = nelu("denoise", "in.png", "out.png")
    assert ran.status == 0
    assert ran.out == ""
    assert ran.err.startswith("in.png → out.png: 34×21 RGB uint8, deep-color, noise ")
    assert ran.err.endswith(" s\n")
    assert ran.err.count("\n") == 1
    expected = denoise(noisy(), load_model("deep-color"))
    np.testing.assert_array_equal(load("out.png"), expected)


def test_grey_pictures_get_the_grey_model(nelu: Nelu) -> None:
    put("in.png", channels=1)
    ran = nelu("denoise", "in.png", "out.png")
    assert "34×21 grey uint8, deep-gray," in ran.err
    expected = denoise(noisy(channels=1), load_model("deep-gray"))
    np.testing.assert_array_equal(load("out.png"), expected)


def test_a_file_goes_into_an_existing_folder_and_a_missing_parent_is_made(nelu: Nelu) -> None:
    put("in.png")
    Path("out").mkdir()
    assert nelu("denoise", "in.png", "out").status == 0
    assert nelu("denoise", "in.png", "new/").status == 0
    assert nelu("denoise", "in.png", "far/away/x.png").status == 0
    assert tree(".") == ["far/away/x.png", "in.png", "new/in.png", "out/in.png"]


def test_alpha_is_untouched(nelu: Nelu) -> None:
    rgba = noisy(channels=4)
    Image.fromarray(rgba).save("in.png")
    assert nelu("denoise", "in.png", "out.png").status == 0
    result = images.read(Path("out.png"))
    assert result.alpha is not None
    np.testing.assert_array_equal(result.alpha, rgba[..., 3])
    assert (result.pixels != rgba[..., :3]).any()


@pytest.mark.parametrize("name", ["in.png", "in.jpg", "in.tif"])
def test_strength_0_copies_the_file(nelu: Nelu, name: str) -> None:
    put(name)
    output = f"out{Path(name).suffix}"
    assert nelu("denoise", "--strength", "0", name, output).status == 0
    assert Path(output).read_bytes() == Path(name).read_bytes()
    assert nelu("denoise", "--strength", "0", name, "other.bmp").status == 0
    np.testing.assert_array_equal(load("other.bmp"), load(name))


def test_strength_0_runs_no_network(nelu: Nelu, monkeypatch: pytest.MonkeyPatch) -> None:
    put("in.png")
    refuse = Mock(side_effect=AssertionError)
    monkeypatch.setattr("nelu_cli.networks.DeepAutoencoder.forward", refuse)
    ran = nelu("denoise", "--strength", "0", "in.png", "out.png")
    assert ran.status == 0
    assert ran.err.startswith("in.png → out.png: 34×21 RGB uint8, copied, ")
    ran = nelu("denoise", "--dry-run", "--strength", "0", "in.png", "new.png")
    assert ran.err == "in.png → new.png: would copy 34×21 RGB uint8\n"
    np.testing.assert_array_equal(denoise(noisy(), strength=0), noisy())


def test_strength_quality_and_model_are_passed_on(nelu: Nelu, bundled: Path) -> None:
    put("in.png")
    grey = str(bundled / "deep-gray.safetensors")
    options = ["--strength", "0.5", "--quality", "best", "--model", grey, "--threads", "1"]
    assert nelu("denoise", *options, "in.png", "out.png").status == 0
    expected = denoise(noisy(), load_model("deep-gray"), strength=0.5, quality="best")
    np.testing.assert_array_equal(load("out.png"), expected)


def test_quality_fast_is_normal_with_a_note(nelu: Nelu) -> None:
    put("in.png")
    assert nelu("denoise", "in.png", "normal.png").status == 0
    ran = nelu("denoise", "-q", "--quality", "fast", "in.png", "fast.png")
    assert ran.status == 0
    assert ran.err == "nelu: note: --quality fast is the same as normal and will go\n"
    np.testing.assert_array_equal(load("fast.png"), load("normal.png"))


def test_small_memory_gives_the_same_picture(nelu: Nelu) -> None:
    put("in.png", height=130, width=150)
    assert nelu("denoise", "in.png", "whole.png").status == 0
    assert nelu("denoise", "--memory", "700k", "in.png", "tiled.png").status == 0
    difference = load("whole.png").astype(int) - load("tiled.png")
    assert np.abs(difference).max() <= 1


def test_strip_drops_metadata_and_the_default_keeps_it(nelu: Nelu) -> None:
    Image.fromarray(noisy()).save("in.png", dpi=(300, 300))
    assert nelu("denoise", "in.png", "kept.png").status == 0
    assert nelu("denoise", "--strip", "in.png", "stripped.png").status == 0
    assert images.read(Path("kept.png")).metadata.dpi == pytest.approx((300, 300), abs=0.1)
    assert images.read(Path("stripped.png")).metadata.dpi is None


def test_fractions_brightness_and_colour_can_be_chosen(nelu: Nelu) -> None:
    put("in.png")
    assert nelu("denoise", "--dtype", "float32", "in.png", "out.tif").status == 0
    np.testing.assert_array_equal(load("out.tif"), denoise(noisy(), dtype="float32"))
    assert nelu("denoise", "--luma", "0.5", "--chroma", "0.9", "in.png", "some.png").status == 0
    np.testing.assert_array_equal(load("some.png"), denoise(noisy(), luma=0.5, chroma=0.9))
    assert nelu("denoise", "--luma", "0", "--chroma", "0", "in.png", "none.png").status == 0
    assert Path("none.png").read_bytes() == Path("in.png").read_bytes()


def test_a_thing_worth_knowing_is_said_once_for_all_files(nelu: Nelu) -> None:
    counts = np.random.default_rng(0).poisson(2, (60, 60, 1)).astype(np.uint16)
    for name in ("a.tif", "b.tif", "c.tif"):
        images.write(images.Picture(counts, None, "TIFF"), Path(name))
    ran = nelu("denoise", "a.tif", "b.tif", "c.tif", "out")
    assert ran.status == 0
    note = (
        "nelu: note: a.tif: the noise is below two levels of uint16: dithered, so that means stay"
    )
    assert ran.err.count("nelu: note: ") == 2
    assert note in ran.err
    assert note.replace("a.tif", "also b.tif, c.tif") in ran.err
    assert re.search(r"a\.tif: 60×60 grey uint16, deep-gray, noise \d\.\d+ \(0\.0/255\)", ran.err)
    lines = nelu("denoise", "--force", "--json", "a.tif", "b.tif", "out").out.splitlines()
    assert all(len(json.loads(line)["notes"]) == 1 for line in lines)


# Formats


def test_format_by_name_and_by_option(nelu: Nelu) -> None:
    put("in.png")
    assert nelu("denoise", "in.png", "out.webp").status == 0
    assert nelu("denoise", "--format", "jpg", "in.png", "out").status == 0
    assert images.read(Path("out.webp")).format == "WEBP"
    assert images.read(Path("out")).format == "JPEG"
    ran = nelu("denoise", "--format", "tiff", "in.png", "folder/")
    assert ran.status == 0
    assert images.read(Path("folder/in.tif")).format == "TIFF"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["in.png", "out"], 1, "out: neither a folder nor a name with an extension"),
        (["in.png", "out.xyz"], 1, "out.xyz: no known picture extension"),
        (["in.png", "out.gif"], 1, "out.gif: GIF cannot be written; choose PNG"),
        (["--format", "gif", "in.png", "out"], 2, "--format gif: cannot be written"),
        (["--format", "png", "in.png", "o.jpg"], 1, "o.jpg: the name says JPEG, --format says PNG"),
        (["deep.tif", "out.jpg"], 1, "out.jpg: JPEG cannot hold 16-bit samples"),
        (["missing.png", "out.png"], 1, "missing.png: no such file or folder"),
        (["z*.png", "out"], 1, "z*.png: no file matches this pattern"),
        (["empty", "out"], 1, "empty: no pictures in this folder"),
        (["text.png", "out.png"], 1, "text.png: not a picture"),
        (["cut.png", "out.png"], 1, "cut.png: damaged PNG file"),
        (["nothing.png", "out.png"], 1, "nothing.png: the file is empty"),
        (["--nan", "refuse", "nan.tif", "o.tif"], 1, "nan.tif: 2 of 64 pixel values are not"),
        (["--chroma", "1", "grey.png", "o.png"], 1, "grey.png: chroma is for colour pictures"),
        (["--dtype", "float32", "in.png", "o.png"], 1, "PNG cannot hold 32-bit floating-point"),
        (["--max-pixels", "100", "in.png", "out.png"], 1, "in.png: 34 x 21 pixels exceed"),
        (["--memory", "10k", "in.png", "out.png"], 1, "in.png: too little working memory"),
        (["--memory", "lots", "in.png", "out.png"], 2, "--memory 'lots' is no size"),
        (["--max-pixels", "0", "in.png", "out.png"], 2, "--max-pixels '0' is no size"),
        (["--model", "nosuch", "in.png", "out.png"], 1, "nosuch: neither a file nor a bundled"),
        (["--model", "deep-color", "grey.png", "out.png"], 1, "grey.png: model deep-color needs 3"),
        (["--strength", "2", "in.png", "out.png"], 2, "--strength"),
        (["--quality", "great", "in.png", "out.png"], 2, "'great': choose normal or best"),
        (["--force", "--skip-existing", "in.png", "out.png"], 2, "exclude each other"),
        (["in.png", "grey.png", "cut.png"], 2, "cut.png: several pictures need a folder"),
        (["-", "in.png", "out"], 2, "takes exactly one picture"),
        (["in.png", "grey.png", "-"], 2, "takes exactly one picture"),
        (["empty", "-"], 2, "empty: a folder cannot go to standard output"),
        (["-", "empty"], 2, "empty: a picture from standard input needs a file name"),
        (["--json", "in.png", "-"], 2, "cannot both go to standard output"),
        (["--noise-map", "m.png", "in.png", "grey.png", "out"], 2, "exactly one picture"),
        (["--noise-map", "m.jpg", "in.png", "out.png"], 2, "m.jpg: a noise map is a PNG file"),
        (["--noise-map", "grey.png", "in.png", "out.png"], 1, "grey.png: exists already"),
        (["--noise-map", "./out.png", "in.png", "out.png"], 2, "out.png: the noise map needs a"),
        (["--noise-map", "in.png", "--force", "in.png", "out.png"], 2, "needs a name of its own"),
        (["seen.png", "out.jpg"], 1, "out.jpg: JPEG cannot hold transparency"),
        (["wide.png", "out.webp"], 1, "out.webp: WEBP holds at most 16383 pixels a side"),
        ([f"{'n' * 300}.png", "out.png"], 1, "n.png: File name too long"),
        (["--memory", "9" * 400, "in.png", "out.png"], 2, "is no size"),
        (["--device", "mps", "in.png", "grey.png", "out"], 2, "device mps is not available"),
        ([], 2, "Missing argument"),
        (["a*.png"], 2, "a*.png: say where the results of a pattern go"),
        (["in.png", "grey.png", "new.png"], 2, "new.png: several pictures need a folder to go to"),
        (["empty"], 1, "empty: no pictures in this folder"),
        (["in.png", "nowhere.png"], 1, "nowhere.png: is a link that leads nowhere"),
    ],
)
def test_what_goes_wrong_is_one_line_and_nothing_is_written(
    nelu: Nelu, arguments: list[str], status: int, message: str
) -> None:
    put("in.png")
    put("grey.png", channels=1)
    Path("cut.png").write_bytes(Path("in.png").read_bytes()[:300])
    Path("text.png").write_text("no picture at all")
    Path("nothing.png").touch()
    Image.new("L", (16400, 1)).save("wide.png")
    transparent = Image.new("RGBA", (4, 4), (9, 9, 9, 255))  # but for the last pixel
    transparent.putpixel((3, 3), (9, 9, 9, 0))
    transparent.save("seen.png")
    Path("empty").mkdir()
    Path("nowhere.png").symlink_to("missing/file.png")
    bad = np.zeros((8, 8, 1), np.float32)
    bad[0, 0], bad[1, 1] = np.nan, np.inf
    images.write(images.Picture(bad, None, "TIFF"), Path("nan.tif"))
    images.write(images.Picture(noisy().astype(np.uint16), None, "TIFF"), Path("deep.tif"))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    ran = nelu("denoise", *arguments)
    assert ran.status == status
    assert ran.out == ""
    assert ran.err.startswith("nelu: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_what_is_left_of_a_damaged_file_can_be_had(nelu: Nelu) -> None:
    stack = np.stack([noisy(channels=1, seed=seed) for seed in range(3)])
    images.write(images.Picture(stack, None, "TIFF"), Path("whole.tif"))
    content = Path("whole.tif").read_bytes()
    Path("cut.tif").write_bytes(content[: len(content) * 2 // 3])
    ran = nelu("denoise", "cut.tif", "out.tif")
    assert ran.status == 1
    assert not Path("out.tif").exists()
    ran = nelu("denoise", "--salvage", "cut.tif", "out.tif")
    assert ran.status == 0, ran.err
    assert "nelu: note: cut.tif: " in ran.err


@pytest.mark.parametrize("dry", [False, True])
def test_missing_pages_of_a_stack_that_is_done_page_by_page_are_told(nelu: Nelu, dry: bool) -> None:
    with tifffile.TiffWriter("whole.tif") as file:
        for height in (20, 16, 20):
            pixels = noisy(channels=1)[:height, :, 0]
            file.write(pixels, photometric="minisblack", contiguous=False, metadata=None)
    with tifffile.TiffFile("whole.tif") as file:
        last = file.pages[2].offset
    Path("cut.tif").write_bytes(Path("whole.tif").read_bytes()[: last + 2])
    assert nelu("denoise", "cut.tif", "out.tif").status == 1
    ran = nelu("denoise", "--salvage", *["--dry-run"] * dry, "cut.tif", "out.tif")
    assert ran.status == 0, ran.err
    assert "nelu: note: cut.tif: pages after page 2 are missing\n" in ran.err


def test_depth_loss_can_be_allowed(nelu: Nelu) -> None:
    images.write(images.Picture(noisy().astype(np.uint16) * 257, None, "TIFF"), Path("deep.tif"))
    assert nelu("denoise", "--allow-depth-loss", "deep.tif", "out.jpg").status == 0
    assert load("out.jpg").dtype == np.uint8


def test_without_any_weights_the_error_is_said_once(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: tmp_path / "nowhere")
    put("a.png")
    put("b.png")
    ran = nelu("denoise", "a.png", "b.png", "out")
    assert ran.status == 1
    assert ran.err == "nelu: no weights are bundled for grey pictures; name a file of weights\n"


def test_a_dry_run_refuses_what_the_run_refuses(nelu: Nelu) -> None:
    frames = [Image.fromarray(noisy(seed=seed)) for seed in (0, 1)]
    frames[0].save("moving.webp", save_all=True, append_images=frames[1:])
    images.write(images.Picture(noisy().astype(np.uint16), None, "TIFF"), Path("deep.tif"))
    put("whole.png")
    Path("cut.png").write_bytes(Path("whole.png").read_bytes()[:300])
    put("grey.png", channels=1)
    for arguments in (
        ["moving.webp", "out.webp"],
        ["deep.tif", "out.jpg"],
        ["cut.png", "out.png"],
        ["--model", "deep-color", "grey.png", "out.png"],
    ):
        dry, real = nelu("denoise", "--dry-run", *arguments), nelu("denoise", *arguments)
        assert (dry.status, dry.err) == (real.status, real.err)
        assert real.status == 1


# Existing files


def test_existing_files_are_refused(nelu: Nelu) -> None:
    put("in.png")
    Path("out.png").write_text("precious")
    ran = nelu("denoise", "in.png", "out.png")
    assert ran.status == 1
    assert ran.err == (
        "nelu: out.png: exists already; --force replaces it, --skip-existing leaves it\n"
    )
    assert Path("out.png").read_text() == "precious"


def test_skip_existing_leaves_them(nelu: Nelu) -> None:
    put("in.png")
    Path("out.png").write_text("precious")
    ran = nelu("denoise", "--skip-existing", "in.png", "out.png")
    assert (ran.status, ran.err) == (0, "in.png → out.png: skipped, exists already\n")
    assert Path("out.png").read_text() == "precious"


def test_force_replaces_them_also_in_place(nelu: Nelu) -> None:
    put("in.png")
    Path("out.png").write_text("worthless")
    assert nelu("denoise", "--force", "in.png", "out.png").status == 0
    assert nelu("denoise", "in.png", "in.png").status == 1
    assert nelu("denoise", "--force", "in.png", "in.png").status == 0
    np.testing.assert_array_equal(load("in.png"), load("out.png"))
    assert tree(".") == ["in.png", "out.png"]


def test_a_folder_in_place(nelu: Nelu) -> None:
    put("photos/a.png")
    put("photos/sub/b.png", seed=1)
    before = [load("photos/a.png"), load("photos/sub/b.png")]
    assert nelu("denoise", "photos", "photos").status == 1
    assert nelu("denoise", "--force", "photos", "photos").status == 0
    assert tree("photos") == ["a.png", "sub/b.png"]
    assert (load("photos/a.png") != before[0]).any()
    assert (load("photos/sub/b.png") != before[1]).any()


def test_a_folder_with_a_pictures_name_is_not_replaced(nelu: Nelu) -> None:
    put("a.png")
    Path("out/a.png").mkdir(parents=True)
    ran = nelu("denoise", "--force", "a.png", "out/")
    assert ran.status == 1
    assert "is a folder, where a picture should be written" in ran.err


# Batches


def test_a_folder_keeps_its_tree(nelu: Nelu) -> None:
    for name in ("a.png", "deep/er/b.jpg", "deep/c.TIF"):
        put(f"photos/{name}")
    for name in ("notes.txt", ".hidden.png", ".cache/d.png"):
        path = Path("photos", name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("no picture")
    ran = nelu("denoise", "photos/", "out")
    assert ran.status == 0
    assert tree("out") == ["a.png", "deep/c.TIF", "deep/er/b.jpg"]
    assert ran.err.endswith("\n3 done; left out: 1 .txt\n")


def test_several_folders_keep_their_names(nelu: Nelu) -> None:
    put("one/a.png")
    put("two/a.png")
    put("b.png")
    assert nelu("denoise", "one", "two/", "b.png", "out").status == 0
    assert tree("out") == ["b.png", "one/a.png", "two/a.png"]


def test_patterns_that_the_shell_left_are_expanded(nelu: Nelu) -> None:
    for name in ("a1.png", "a2.png", "sub/a3.png", "[x].png"):
        put(name)
    assert nelu("denoise", "a?.png", "out").status == 0
    assert tree("out") == ["a1.png", "a2.png"]
    assert nelu("denoise", "**/a*.png", "deep").status == 2  # out/a1.png and a1.png clash
    assert nelu("denoise", "sub/**/*.png", "deep").status == 0
    assert tree("deep") == ["a3.png"]
    assert nelu("denoise", "[x].png", "odd.png").status == 0


def test_the_output_folder_is_not_an_input(nelu: Nelu) -> None:
    put("a.png")
    assert nelu("denoise", ".", "out").status == 0
    put("b.png")
    ran = nelu("denoise", "--skip-existing", ".", "out")
    assert ran.status == 0
    assert tree(".") == ["a.png", "b.png", "out/a.png", "out/b.png"]
    assert ran.err.endswith("1 done, 1 skipped\n")


def test_an_input_given_twice_is_done_once(nelu: Nelu) -> None:
    put("a.png")
    ran = nelu("denoise", "a.png", "./a.png", "out")
    assert ran.status == 0
    assert ran.err.count("deep-color") == 1


def test_two_inputs_for_one_output_are_refused_before_anything_is_written(nelu: Nelu) -> None:
    put("x/a.png")
    put("y/a.png")
    put("b.png")
    ran = nelu("denoise", "b.png", "x/a.png", "y/a.png", "out")
    assert ran.status == 2
    assert "x/a.png and y/a.png would both become out/a.png; nothing was written" in ran.err
    assert not Path("out").exists()
    put("z/c.jpg")
    put("z/c.png")
    ran = nelu("denoise", "--format", "png", "z", "out")
    assert ran.status == 2
    assert ran.err.endswith("nothing was written; rename one\n")


def test_folders_that_cannot_be_opened_are_told_of(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("in/a.png")
    Path("in/closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> Any:
        if os.path.basename(path) == "closed":
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    ran = nelu("denoise", "in", "out")
    assert ran.status == 1
    assert "nelu: in/closed: Permission denied\n" in ran.err
    assert "1 done, 1 failed" in ran.err


@pytest.mark.parametrize("small", [True, False])
def test_small_pictures_are_read_ahead_and_large_ones_are_not(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """While the first picture is cleaned the second is read, if two fit into memory."""
    for name in ("a.png", "b.png", "c.png"):
        put(f"in/{name}")
    second_is_read = threading.Event()
    seen: list[str] = []
    inner_read, inner_denoise = images.read, denoising.denoise_pixels

    def read(source: Path, **options: Any) -> Any:
        seen.append(f"read {source.name}")
        if source.name == "b.png":
            second_is_read.set()
        return inner_read(source, **options)

    def clean(*arguments: Any, **options: Any) -> Any:
        if small:
            assert second_is_read.wait(60)
        seen.append("clean")
        return inner_denoise(*arguments, **options)

    monkeypatch.setattr(images, "read", read)
    monkeypatch.setattr(file_job, "denoise_pixels", clean)
    if not small:
        monkeypatch.setattr(file_job, "SMALL", 0)
    assert nelu("denoise", "in", "out").status == 0
    assert tree("out") == ["a.png", "b.png", "c.png"]
    if not small:
        assert seen == ["read a.png", "clean", "read b.png", "clean", "read c.png", "clean"]


def test_a_bad_file_does_not_stop_the_batch(nelu: Nelu) -> None:
    put("a.png")
    Path("b.png").write_text("no picture")
    put("c.png")
    Path("out").mkdir()
    put("out/d.png")
    put("d.png")
    ran = nelu("denoise", "a.png", "b.png", "missing.png", "c.png", "d.png", "out/")
    assert ran.status == 1
    assert tree("out") == ["a.png", "c.png", "d.png"]
    assert ran.err.splitlines()[0] == "nelu: missing.png: no such file or folder"
    assert "nelu: b.png: not a picture" in ran.err
    assert ran.err.endswith("\n2 done, 3 failed\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_line(nelu: Nelu) -> None:
    put("a.png")
    Path("out").mkdir(mode=0o500)
    ran = nelu("denoise", "a.png", "out")
    assert (ran.status, ran.err) == (1, "nelu: out/a.png: Permission denied\n")


def test_a_parent_that_is_a_file_is_one_line(nelu: Nelu) -> None:
    put("a.png")
    ran = nelu("denoise", "a.png", "a.png/b/c.png")
    assert ran.status == 1
    assert ran.err.startswith("nelu: a.png/b: ")
    assert ran.err.count("\n") == 1


def test_dry_run_writes_nothing(nelu: Nelu) -> None:
    put("photos/a.png", channels=1)
    put("photos/b.png")
    Path("photos/c.png").write_text("no picture")
    ran = nelu("denoise", "--dry-run", "photos", "out")
    assert ran.status == 1
    assert ran.err.splitlines() == [
        "photos/a.png → out/a.png: would clean 34×21 grey uint8 with deep-gray",
        "photos/b.png → out/b.png: would clean 34×21 RGB uint8 with deep-color",
        *[line for line in ran.err.splitlines() if line.startswith("nelu: photos/c.png: not a")],
        "2 to do, 1 failed",
    ]
    assert not Path("out").exists()


def test_quiet_says_only_what_went_wrong(nelu: Nelu) -> None:
    put("a.png")
    assert nelu("denoise", "--quiet", "a.png", "out/") == Ran(0, "", "")
    ran = nelu("denoise", "--quiet", "a.png", "b.png", "out/")
    assert len(ran.err.splitlines()) == 2


def test_quiet_does_not_measure_noise_that_nobody_reads(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.png")
    measure = Mock(return_value=3.0)
    monkeypatch.setattr("nelu_cli.files.job.estimate_noise", measure)
    assert nelu("denoise", "--quiet", "a.png", "b.png").status == 0
    measure.assert_not_called()
    assert json.loads(nelu("denoise", "--quiet", "--json", "a.png", "c.png").out)["noise"] == 3


def test_json_lines(nelu: Nelu) -> None:
    put("a.png")
    put("out/b.png")
    put("b.png")
    Path("c.png").write_text("no picture")
    arguments = ["denoise", "--json", "--skip-existing", "a.png", "b.png", "c.png", "d.png", "out"]
    ran = nelu(*arguments)
    assert ran.status == 1
    records = [json.loads(line) for line in ran.out.splitlines()]
    assert [record["status"] for record in records] == ["failed", "done", "skipped", "failed"]
    missing, done, skipped, failed = records
    error = "d.png: no such file or folder"
    assert missing == {"input": "d.png", "status": "failed", "error": error}
    assert done.pop("seconds") > 0
    assert done.pop("noise") == pytest.approx(done.pop("noise_in_pixel_values"), abs=1e-3)
    assert done == {
        "input": "a.png",
        "output": "out/a.png",
        "status": "done",
        "format": "PNG",
        "width": 34,
        "height": 21,
        "pages": 1,
        "channels": 3,
        "alpha": False,
        "dtype": "uint8",
        "model": "deep-color",
        "precision": "float32",
        "quality": "normal",
        "strength": 1.0,
    }
    assert skipped == {"input": "b.png", "output": "out/b.png", "status": "skipped"}
    assert failed["input"] == "c.png"
    assert failed["error"].startswith("c.png: not a picture")


def test_the_outcome_owns_the_exit_status() -> None:
    assert Outcome(done=2, skipped=1).exit_code == 0
    assert Outcome(done=2, failed=1).exit_code == 1
    assert Outcome(failed=1, stopped_by=2).exit_code == 130
    assert Outcome(stopped_by=15).exit_code == 143
    assert str(Outcome(done=2, failed=1, total=5, stopped_by=2)) == (
        "interrupted: 2 done, 1 failed, 2 not reached"
    )


# The first minute


def test_a_single_name_gets_its_result_beside_it(nelu: Nelu) -> None:
    put("sub/photo.jpg")
    assert nelu("denoise", "sub/photo.jpg").status == 0
    assert tree(".") == ["sub/photo-denoised.jpg", "sub/photo.jpg"]
    ran = nelu("denoise", "sub/photo.jpg")
    assert ran.status == 1
    assert "sub/photo-denoised.jpg: exists already" in ran.err
    assert nelu("denoise", "--format", "png", "sub/photo.jpg").status == 0
    assert tree("sub") == ["photo-denoised.jpg", "photo-denoised.png", "photo.jpg"]
    put("in/photo.jpg")
    for name in ("in", "in/"):
        assert nelu("denoise", "--force", name).status == 0
        assert tree("in-denoised") == ["photo.jpg"]


def test_a_single_dash_is_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    output = pipe(monkeypatch, put("in.png").read_bytes())
    assert run(["denoise", "-"]) == 0
    assert images.read(output.getvalue()).format == "PNG"


def test_what_is_left_out_of_a_folder_is_named(nelu: Nelu) -> None:
    put("in/a.png")
    put("in/b.gif")
    put("in/sub/c.gif")
    Path("in/notes.txt").write_text("no picture")
    Path("in/readme").write_text("no picture")
    Path("in/d.PSD").write_text("layers")
    Path("in/gone.png").symlink_to("nowhere.png")
    os.mkfifo("in/pipe.png")
    Path("in/device.png").symlink_to("/dev/null")
    put("elsewhere/e.png")
    Path("in/linked").symlink_to("../elsewhere")
    Path("in/f.\x1b[31m").write_text("no picture")
    summary = (
        "1 done; left out: 1 .\\x1b[31m, 1 .txt, 2 GIF, 1 PSD, 1 broken link, 1 linked folder, "
        "2 no regular file, 1 unknown"
    )
    ran = nelu("denoise", "in", "out")
    assert ran.status == 0
    assert ran.err.splitlines()[-1] == summary
    assert nelu("info", "in").err == f"{summary}\n"
    lines = nelu("denoise", "--json", "--force", "in", "out").out.splitlines()
    records = [json.loads(line) for line in lines]
    left = {record["input"]: record["kind"] for record in records if record["status"] != "done"}
    assert left["in/sub/c.gif"] == "GIF"
    assert all(record["status"] in ("done", "left out") for record in records)
    ran = nelu("denoise", "in/sub", "new")
    assert ran.status == 1
    assert "in/sub: no pictures that can be done in this folder, only 1 GIF\n" in ran.err


@pytest.mark.parametrize(
    "name", ["\x1b[31mred.png", "two\nlines.png", "c1\x9b.png", "turn\u202e.png"]
)
def test_names_do_not_reach_the_terminal_as_they_are(nelu: Nelu, name: str) -> None:
    put(name)
    for ran in (
        nelu("denoise", name, "out.png"),
        nelu("denoise", name, name),
        nelu("info", name),
        nelu("compare", name, f"no{name}", "page.html"),
        nelu("watch", f"no{name}", "out"),
    ):
        for text in (ran.out, ran.err):
            assert not {"\x1b", "\x9b", "\u202e"} & set(text)
            assert "\nlines" not in text
    assert nelu("denoise", "in.png", ":smile:.png").err.startswith("nelu: in.png: no such file")
    put(":smile:.png")
    assert ":smile:.png → " in nelu("denoise", ":smile:.png", "s.png").err


def test_plain_text_stays_as_it_is() -> None:
    assert plain("Grüße → 512×512 ✓ 日本 🙂") == "Grüße → 512×512 ✓ 日本 🙂"
    assert plain("a\x1b[0m\r\n\udcff\u2028") == "a\\x1b[0m\\r\\n\\udcff\\u2028"
    assert plain("a\nb\t") == "a\\nb\\t"


def test_the_second_of_two_processes_does_not_replace_the_result_of_the_first(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("in.png")
    inner = denoising.denoise_pixels

    def slow(*arguments: Any, **options: Any) -> Any:
        Path("out.png").write_text("of the other process")
        return inner(*arguments, **options)

    monkeypatch.setattr(file_job, "denoise_pixels", slow)
    ran = nelu("denoise", "in.png", "out.png")
    assert (ran.status, ran.err) == (1, "nelu: out.png: has appeared meanwhile\n")
    assert Path("out.png").read_text() == "of the other process"
    assert tree(".") == ["in.png", "out.png"]


# Noise


def test_noise_map_is_a_picture(nelu: Nelu) -> None:
    put("in.png", height=60, width=90)
    assert nelu("denoise", "--noise-map", "maps/map.png", "in.png", "out.png").status == 0
    with Image.open("maps/map.png") as drawn:
        assert drawn.format == "PNG"
        assert min(drawn.size) > 200
    images.write(images.Picture(noisy().astype(np.float32), None, "TIFF"), Path("f.tif"))
    ran = nelu("denoise", "--force", "--noise-map", "maps/map.png", "f.tif", "out.tif")
    assert ran.status == 0
    assert "/255" not in ran.err  # floats have no such scale


def test_info_tells_what_a_file_holds(nelu: Nelu) -> None:
    Image.fromarray(noisy()).save("a.jpg", dpi=(72, 72))
    put("b.png", channels=1)
    ran = nelu("info", "a.jpg", "b.png")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[:2] == ["a.jpg", "  JPEG, 34×21 RGB uint8"]
    assert "dots per inch: [72.0, 72.0]" in lines[2]
    assert lines[3].startswith("  noise ")
    assert lines[3].endswith("/255 (by deep-color in float32)")
    assert lines[4:7] == ["b.png", "  PNG, 34×21 grey uint8", "  no metadata"]
    assert tree(".") == ["a.jpg", "b.png"]


def test_info_as_json_with_a_bad_file(nelu: Nelu) -> None:
    put("a.png")
    Path("b.png").write_text("no picture")
    frames = [Image.fromarray(noisy(seed=seed)) for seed in (0, 1)]
    frames[0].save("c.gif", save_all=True, append_images=frames[1:])
    ran = nelu("info", "--json", "a.png", "b.png", "c.gif", "d.png")
    assert ran.status == 1
    first, animated, missing, bad = (json.loads(line) for line in ran.out.splitlines())
    assert (missing["input"], missing["status"]) == ("d.png", "failed")
    assert (bad["input"], bad["status"]) == ("b.png", "failed")
    assert bad["error"].startswith("b.png: not a picture")
    assert first["format"] == "PNG"
    assert first["noise"] > 0
    assert animated["animated"] is True
    assert len(ran.err.splitlines()) == 2


def test_info_without_weights_says_the_rest(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put("a.png")
    monkeypatch.setattr(checkpoints, "_bundled_folder", lambda: tmp_path / "nowhere")
    ran = nelu("info", "a.png")
    assert ran.status == 0
    assert ran.out.endswith("  noise not measured: no weights are bundled\n")
    assert nelu("info", "--model", "nosuch", "a.png").status == 1
    assert nelu("info", "-", "a.png").status == 2


# Pipes, terminals, interruption


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> BytesIO:
    """Put ``content`` on standard input; return what standard output will receive."""
    output = BytesIO()
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(content)))
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(output))
    return output


def test_pipes(nelu: Nelu, monkeypatch: pytest.MonkeyPatch) -> None:
    put("in.png")
    assert nelu("denoise", "in.png", "out.png").status == 0
    for arguments, format in ((["-", "-"], "PNG"), (["--format", "jpeg", "in.png", "-"], "JPEG")):
        output = pipe(monkeypatch, Path("in.png").read_bytes())
        assert run(["denoise", *arguments]) == 0
        assert images.read(output.getvalue()).format == format
        if format == "PNG":
            np.testing.assert_array_equal(images.read(output.getvalue()).pixels, load("out.png"))
    pipe(monkeypatch, Path("in.png").read_bytes())
    assert run(["denoise", "-", "piped.png"]) == 0
    np.testing.assert_array_equal(load("piped.png"), load("out.png"))
    output = pipe(monkeypatch, Path("in.png").read_bytes())
    assert run(["info", "--json", "-"]) == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_named_pipes_are_read_and_written(nelu: Nelu) -> None:
    """As a shell makes them for <(…), and /dev/stdout."""
    put("in.png")
    assert nelu("denoise", "in.png", "out.png").status == 0
    os.mkfifo("from")
    os.mkfifo("to.png")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(Path("from").write_bytes, Path("in.png").read_bytes())
        received = pool.submit(Path("to.png").read_bytes)
        assert nelu("denoise", "from", "to.png").status == 0
    assert received.result() == Path("out.png").read_bytes()


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\nhalf"])
def test_rubbish_from_a_pipe(
    content: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = pipe(monkeypatch, content)
    assert run(["denoise", "-", "-"]) == 1
    assert output.getvalue() == b""
    assert capsys.readouterr().err.startswith("nelu: standard input: ")


def test_strength_0_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    content = put("in.jpg").read_bytes()
    output = pipe(monkeypatch, content)
    assert run(["denoise", "--strength", "0", "-", "-"]) == 0
    assert output.getvalue() == content


def test_an_animated_gif_is_refused_on_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(noisy()[..., 0]).save("in.gif")
    pipe(monkeypatch, Path("in.gif").read_bytes())
    assert run(["denoise", "-", "-"]) == 1
    assert "GIF cannot be written; choose another with --format" in capsys.readouterr().err


def test_terminals_are_no_pictures(nelu: Nelu, monkeypatch: pytest.MonkeyPatch) -> None:
    put("in.png")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    ran = nelu("denoise", "in.png", "-")
    assert (ran.status, "not written to a terminal" in ran.err) == (2, True)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO()))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    ran = nelu("denoise", "-", "out.png")
    assert (ran.status, "standard input is a terminal" in ran.err) == (2, True)


def test_the_bar_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", 2) as advance:
        advance()
        advance(1, "nearly done")
    assert capsys.readouterr() == ("", "")


def test_the_bar_shows_on_a_terminal_and_leaves_stdout_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(Console, "is_terminal", True)
    console = stderr_console()
    with progress("working", 2, console=console) as advance:
        advance()
        print("a result")
    captured = capsys.readouterr()
    assert captured.out == "a result\n"
    assert "working" in captured.err
    assert "50%" in captured.err
    with progress("hidden", 2, console=console, quiet=True):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("kill", "moment"),
    [
        (signal.SIGINT, 0.0),
        (signal.SIGINT, 0.5),
        (signal.SIGTERM, 0.1),
        (signal.SIGHUP, 0.1),
        (signal.SIGKILL, 0.3),
    ],
)
def test_interruption_leaves_the_old_file_or_the_new_one(
    kill: signal.Signals, moment: float, bundled: Path
) -> None:
    """Stop it for real: ``moment`` seconds after the first tile, or at once."""
    put("in.png", height=900, width=700)
    Path("out.png").write_bytes(Path("in.png").read_bytes())
    script = (
        "import signal, sys; from nelu_cli.runtime import pipeline; from nelu_cli.cli import main\n"
        "for number in (signal.SIGINT, signal.SIGHUP):  # though ours may be ignored\n"
        "    signal.signal(number, signal.SIG_DFL)\n"
        "inner = pipeline.stream_tiles\n"
        "def slow(fn, *rest):\n"
        "    def one(tile):\n"
        "        import time; print('tile', flush=True); time.sleep(0.2); return fn(tile)\n"
        "    inner(one, *rest)\n"
        "pipeline.stream_tiles = slow\n"
        "main()"
    )
    model = str(bundled / "deep-gray.safetensors")
    arguments = ["denoise", "--force", "--model", model, "--memory", "8M", "in.png", "out.png"]
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "tile\n"
        time.sleep(moment)
        process.send_signal(kill)
        _, err = process.communicate()
    if kill is not signal.SIGKILL:
        assert process.returncode == 128 + kill
        assert "Traceback" not in err
        assert err == "interrupted: 1 not reached\n"
        assert tree(".") == ["in.png", "out.png"]
    assert load("out.png").shape == (900, 700, 3)  # whole, old or new
    np.testing.assert_array_equal(load("out.png"), load("in.png"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_modules_are_imported_is_one_line(number: signal.Signals) -> None:
    """And so it is when the import makes something else of it."""
    early = (
        "import os, signal, sys\n"
        "_, module, number, *sys.argv[1:] = sys.argv\n"
        "signal.signal(int(number), signal.SIG_DFL)\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == module:\n"
        "            try:\n"
        "                os.kill(os.getpid(), int(number))\n"
        "            except KeyboardInterrupt:\n"
        "                raise ImportError('half a module')\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from nelu_cli.__main__ import main\n"
        "main()"
    )
    put("in.png")
    for module in ("typer", "torch"):
        done = subprocess.run(
            [sys.executable, "-c", early, module, str(int(number)), "denoise", "in.png", "o.png"],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (128 + number, "nelu: interrupted\n")


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_interruption_while_writing_leaves_no_litter(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    put("in.png")
    put("out/in.png", seed=9)
    before = Path("out/in.png").read_bytes()

    def interrupted(descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", interrupted)
    ran = nelu("denoise", "--force", "in.png", "out")
    if failure is KeyboardInterrupt:
        assert (ran.status, ran.err) == (130, "interrupted: 1 not reached\n")
    else:
        assert (ran.status, ran.err) == (1, "nelu: out/in.png: No space left on device\n")
    assert tree(".") == ["in.png", "out/in.png"]
    assert Path("out/in.png").read_bytes() == before


# Sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("1GiB", 1 << 30), ("1.5k", 1536), ("3 mb", 3 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text, "--memory") == size


def test_counts() -> None:
    assert parse_count("500M", "--max-pixels") == 500_000_000
    assert parse_count("1G", "--max-pixels") == 10**9
    for text in ("", "-1", "G", "1GiB", "1e9"):
        with pytest.raises(UsageError, match="is no size"):
            parse_count(text, "--max-pixels")
