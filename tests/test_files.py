"""Files as a library: one job, a queue of them, and what is told about each."""

import ast
import contextlib
import fcntl
import json
import os
from dataclasses import FrozenInstanceError
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import nelu_cli.files
from nelu_cli import images
from nelu_cli.cli import run
from nelu_cli.errors import ImageError, UsageError
from nelu_cli.files.job import denoise_file
from nelu_cli.files.plan import Job, plan_jobs
from nelu_cli.files.queue import Named, denoise_files
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models, load_model
from nelu_cli.runtime.options import Options


@pytest.fixture(autouse=True)
def here(small_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def noisy(channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    random = np.random.default_rng(seed)
    return (128 + 20 * random.standard_normal((21, 34, channels))).astype(np.uint8)


def put(name: str, channels: int = 3, seed: int = 0) -> Path:
    Image.fromarray(noisy(channels, seed).squeeze()).save(name)
    return Path(name)


def test_files_know_no_terminal() -> None:
    for path in Path(nelu_cli.files.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"typer", "rich"}, path


def test_a_file_from_python_is_a_file_from_the_command_line() -> None:
    put("in.png")
    record = denoise_file("in.png", "python.png", settings=Settings(Options(strength=0.5)))
    assert run(["denoise", "-q", "--strength", "0.5", "in.png", "command.png"]) == 0
    assert Path("python.png").read_bytes() == Path("command.png").read_bytes()
    assert (record.status, record.model, record.strength) == ("done", "deep-color", 0.5)
    assert record.noise is not None


def test_a_record_is_frozen_and_becomes_json() -> None:
    put("in.png", channels=1)
    record = denoise_file(Path("in.png"), Path("out.png"), load_model("deep-gray"))
    written = json.loads(json.dumps(record.to_json()))
    assert written["width"] == 34
    assert written["model"] == "deep-gray"
    assert "error" not in written
    with pytest.raises(FrozenInstanceError):
        record.status = "failed"  # type: ignore[misc]


def test_progress_and_a_noise_map_from_python() -> None:
    put("in.png")
    steps: list[tuple[int, int]] = []
    denoise_file("in.png", "out.png", noise_map="map.png", progress=lambda *at: steps.append(at))
    assert steps == [(50, 100), (1, 1)]  # the network is run twice
    assert images.read(Path("map.png")).format == "PNG"


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("none.png", "out.png", "none.png: No such file or directory"),
        ("in.png", "out.xyz", "out.xyz: no known picture extension"),
        ("in.png", "in.png", "in.png: exists already"),
        ("in.png", "in.png/x/out.png", "in.png/x: "),
    ],
)
def test_what_goes_wrong_is_raised(source: str, target: str, message: str) -> None:
    put("in.png")
    with pytest.raises(ImageError, match=message):
        denoise_file(source, target)


def test_settings_are_checked() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        Settings(force=True, skip_existing=True)
    with pytest.raises(UsageError, match="GIF cannot be written"):
        Settings(format="GIF")
    with pytest.raises(UsageError, match="outside 0 to 1"):
        Options(strength=1.5)
    with pytest.raises(UsageError, match="not enough"):
        Options(memory=0)


def jobs(*names: str) -> list[Job]:
    return [Job(Path(name), Path("out", name)) for name in names]


def test_a_queue_tells_of_every_file_in_order() -> None:
    for seed, name in enumerate(("a.png", "b.png", "d.png")):
        put(name, seed=seed)
    Path("c.png").write_text("no picture")
    seen: list[tuple[str, int, int]] = []
    records = list(
        denoise_files(
            jobs("a.png", "b.png", "c.png", "d.png"),
            progress=lambda job, done, total: seen.append((job.source_name, done, total)),
        )
    )
    assert [record.input for record in records] == ["a.png", "b.png", "c.png", "d.png"]
    assert [record.status for record in records] == ["done", "done", "failed", "done"]
    assert seen == [
        ("a.png", 0, 1),
        ("a.png", 1, 1),
        ("b.png", 0, 1),
        ("b.png", 1, 1),
        ("c.png", 0, 1),
        ("d.png", 0, 1),
        ("d.png", 1, 1),
    ]
    assert records[2].error is not None
    for record in records:
        if record.status == "done":
            denoise_file(record.input, f"alone-{record.input}")
            alone = Path(f"alone-{record.input}").read_bytes()
            assert Path("out", record.input).read_bytes() == alone


def test_an_interrupted_queue_still_tells_what_is_decided() -> None:
    """Also of failures; and nothing more is begun."""
    put("b.png")
    put("c.png")
    Path("a.png").write_text("no picture")

    def interrupt(job: Named, done: int, total: int) -> None:
        if job.source_name == "b.png":
            raise KeyboardInterrupt

    queue = denoise_files(jobs("a.png", "b.png", "c.png"), progress=interrupt)
    record = next(queue)
    assert (record.input, record.status) == ("a.png", "failed")
    with pytest.raises(KeyboardInterrupt):
        next(queue)
    assert not Path("out").exists()


def test_an_interruption_of_the_reader_can_be_thrown_in() -> None:
    """What is told as done is what is there."""
    names = ["a.png", "b.png", "c.png", "d.png"]
    for seed, name in enumerate(names):
        put(name, seed=seed)
    queue = denoise_files(jobs(*names))
    told = [next(queue).input]
    with contextlib.suppress(KeyboardInterrupt):
        told.append(queue.throw(KeyboardInterrupt()).input)
    with pytest.raises((KeyboardInterrupt, StopIteration)):
        next(queue)
    assert sorted(path.name for path in Path("out").iterdir()) == told
    assert told in (["a.png"], ["a.png", "b.png"])


def test_litter_of_a_dead_writer_is_removed() -> None:
    put("in.png")
    Path("out").mkdir()
    litter = Path("out/.old.png.0123456789abcdef.tmp")
    alive = Path("out/.new.png.fedcba9876543210.tmp")
    other = Path("out/.notes.tmp")
    for path in (litter, alive, other):
        path.write_text("half")
        os.utime(path, (0, 0))
    with alive.open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        denoise_file("in.png", "out/a.png")
        assert sorted(path.name for path in Path("out").iterdir()) == [
            alive.name,
            other.name,
            "a.png",
        ]
    assert [
        record.status for record in denoise_files([Job(Path("in.png"), Path("out/b.png"))])
    ] == ["done"]
    assert not alive.exists()


def test_a_stack_is_done_picture_by_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their number, at most one is in memory; the result is that of each alone."""
    stack = np.stack([noisy(1, seed) for seed in range(5)])
    images.write(images.Picture(stack, None, "TIFF"), Path("in.tif"))
    denoise_file("in.tif", "whole.tif")
    steps: list[tuple[int, int]] = []
    settings = Settings(max_pixels=21 * 34)  # of one picture
    with monkeypatch.context() as patch:
        patch.setattr("nelu_cli.files.job.SMALL", 0)
        patch.setattr("nelu_cli.images.read", Mock(side_effect=AssertionError))
        record = denoise_file(
            "in.tif", "out.tif", settings=settings, progress=lambda *at: steps.append(at)
        )
    assert (record.status, record.header and record.header.pages) == ("done", 5)
    assert record.noise is not None
    assert steps == [(k, 5) for k in range(1, 6)]
    result = images.read(Path("out.tif")).pixels
    np.testing.assert_array_equal(result, images.read(Path("whole.tif")).pixels)
    with pytest.raises(ImageError, match="exceed the limit"):
        denoise_file("in.tif", "no.tif", settings=Settings(max_pixels=700))
    assert not Path("no.tif").exists()


def test_a_stack_of_12_bits_becomes_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = np.stack([noisy(1, seed).astype(np.uint16) << 4 for seed in range(3)])
    deep = images.Metadata(white=4095)
    images.write(images.Picture(stack, None, "TIFF", deep), Path("in.tif"))
    settings = Settings(options=Options(dtype="float32"))
    denoise_file("in.tif", "whole.tif", settings=settings)
    monkeypatch.setattr("nelu_cli.files.job.SMALL", 0)
    denoise_file("in.tif", "out.tif", settings=settings)
    assert Path("out.tif").read_bytes() == Path("whole.tif").read_bytes()
    assert images.read(Path("out.tif")).pixels.dtype == np.float32


def test_a_stack_done_picture_by_picture_has_a_noise_map(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = np.stack([noisy(1, seed) for seed in range(3)])
    images.write(images.Picture(stack, None, "TIFF"), Path("in.tif"))
    drawn: list[NDArray[np.float64]] = []

    def draw(deviation: NDArray[np.float64], picture: images.Picture) -> bytes:
        drawn.append(deviation)
        return b"map"

    for module in ("job", "stack"):
        monkeypatch.setattr(f"nelu_cli.files.{module}.draw_noise_map", draw)
    denoise_file("in.tif", "whole.tif", noise_map="whole.png")
    monkeypatch.setattr("nelu_cli.files.job.SMALL", 0)
    with monkeypatch.context() as patch:
        patch.setattr("nelu_cli.images.read", Mock(side_effect=AssertionError))
        record = denoise_file("in.tif", "out.tif", noise_map="maps/map.png")
    assert record.noise is not None
    assert Path("maps/map.png").read_bytes() == b"map"
    assert Path("out.tif").read_bytes() == Path("whole.tif").read_bytes()
    np.testing.assert_allclose(drawn[1], drawn[0], rtol=0.2)  # of equal noise in all pictures
    with images.write_pages(Path("sizes.tif"), format="TIFF") as add:
        for page in (noisy(1, 0), noisy(1, 2)[:9]):
            add(images.Picture(page, None, "TIFF"))
    with pytest.raises(ImageError, match="picture 2: differs in size from the first; a noise map"):
        denoise_file("sizes.tif", "no.tif", noise_map="no.png")
    assert not Path("no.tif").exists()
    assert not Path("no.png").exists()


@pytest.mark.parametrize("target", ["out.png", "out.tif", "out.pbm", "out.bmp"])
def test_one_bit_is_kept_where_asked(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    ink = noisy(1)[..., 0] > 128
    Image.fromarray(ink).save("in.png")
    assert run(["denoise", "--dtype", "bilevel", "in.png", target]) == 0
    assert "eight" not in capsys.readouterr().err
    with Image.open(target) as found:
        assert found.mode == "1"
        assert 0 < np.asarray(found).mean() < 1
    assert run(["denoise", "in.png", f"8-{target}"]) == 0
    assert "it had one bit per pixel and has eight now" in capsys.readouterr().err
    with Image.open(target) as one, Image.open(f"8-{target}") as eight:
        np.testing.assert_array_equal(np.asarray(one), np.asarray(eight.convert("L")) >= 127.5)


def test_one_bit_of_stacks_and_of_what_cannot_have_it() -> None:
    stack = np.stack([noisy(1, seed) for seed in range(3)])
    images.write(images.Picture(stack, None, "TIFF"), Path("in.tif"))
    settings = Settings(bilevel=True)
    denoise_file("in.tif", "out.tif", settings=settings)
    result = images.read(Path("out.tif"))
    assert result.metadata.bilevel
    assert result.pixels.shape == stack.shape
    put("colour.png")
    refusals = {
        ("colour.png", "out.png"): "one bit per pixel is for grey pictures without transparency",
    }
    put("grey.png", channels=1)
    refusals["grey.png", "out.jpg"] = (
        "out.jpg: JPEG cannot hold one bit per pixel; choose PNG, TIFF, PBM or BMP"
    )
    for (source, target), message in refusals.items():
        with pytest.raises(ImageError, match=message):
            denoise_file(source, target, settings=settings)
        assert not Path(target).exists()


def test_hard_links_keep_the_old_picture() -> None:
    """A file cannot be replaced whole under several names; --help says so."""
    before = put("in.png").read_bytes()
    os.link("in.png", "other.png")
    denoise_file("in.png", "in.png", settings=Settings(force=True))
    assert Path("other.png").read_bytes() == before != Path("in.png").read_bytes()


def test_pictures_of_one_file_may_differ() -> None:
    pages = [noisy(1, 0), noisy(3, 1), noisy(1, 2)[:9]]
    with images.write_pages(Path("in.tif"), format="TIFF") as add:
        for page in pages:
            add(images.Picture(page, None, "TIFF"))
    record = denoise_file("in.tif", "out.tif", settings=Settings(dry_run=True))
    assert (record.status, record.model) == ("planned", "deep-gray")
    record = denoise_file("in.tif", "out.tif")
    assert record.status == "done"
    with images.open_pages(Path("out.tif")) as found:
        for before, after in zip(pages, found, strict=True):
            assert after.pixels.shape == before.shape
            assert (after.pixels != before).any()


def test_a_plan_is_made_before_anything_is_written() -> None:
    put("a.png")
    put("b.png", channels=1)
    plan = plan_jobs(["a.png", "b.png", "none.png"], "out", [".png"])
    assert [record.input for record in plan.problems] == ["none.png"]
    assert plan.total == 3
    records = list(denoise_files(plan.jobs, Settings(dry_run=True), Models()))
    assert [(record.status, record.model) for record in records] == [
        ("planned", "deep-color"),
        ("planned", "deep-gray"),
    ]
    assert not Path("out").exists()
