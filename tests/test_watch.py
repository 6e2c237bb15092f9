"""``nelu watch``: complete files only, once each, also after a restart."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.files.watch import Folder, watch_folder
from nelu_cli.runtime.models import Models

Nelu = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[1]
FAST = 0.1


def picture(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 32), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path, clock: Clock) -> Folder:
    (tmp_path / "in").mkdir()
    return Folder(tmp_path / "in", tmp_path / "in" / "out", Settings().rename, 2.0, clock)


def names(folder: Folder) -> list[str]:
    return [job.source_name.removeprefix(f"{folder.source}/") for job in folder.complete()]


def test_a_file_is_complete_when_it_has_not_changed_for_a_while(
    folder: Folder, clock: Clock
) -> None:
    path = picture(folder.source / "a.png")
    folder.notice(path)
    clock.now = 1.9
    assert names(folder) == []
    with path.open("ab") as file:
        file.write(b"more")  # still being written
    clock.now = 3.8
    assert names(folder) == []
    clock.now = 5.7
    assert names(folder) == []
    clock.now = 5.9
    assert names(folder) == ["a.png"]


def test_what_is_no_new_picture_is_left_alone(folder: Folder, clock: Clock) -> None:
    for name in (".hidden.png", ".cache/a.png", "out/result.png", "done.png"):
        folder.notice(picture(folder.source / name))
    picture(folder.target / "done.png")
    (folder.source / "text.txt").write_text("no picture")
    (folder.source / "empty.png").touch()
    folder.look()
    folder.notice(folder.source / "gone.png")
    folder.notice(picture(folder.source / "deep" / "new.png"))
    clock.now = 9
    assert names(folder) == ["deep/new.png"]


def test_a_file_that_failed_is_tried_again_when_it_changes(folder: Folder, clock: Clock) -> None:
    path = folder.source / "a.png"
    path.write_bytes(b"half of it")
    folder.notice(path)
    clock.now = 2
    (job,) = folder.complete()
    folder.finish(Record(job.source_name, job.target_name, "failed", error="damaged"))
    folder.look()
    clock.now = 9
    assert names(folder) == []
    picture(path)
    folder.notice(path)
    clock.now = 11
    assert names(folder) == ["a.png"]


def until(records: Iterator[Record], *names: str) -> dict[str, str]:
    """How it went with files, once there is a record of each of ``names``."""
    found: dict[str, str] = {}
    for record in records:
        name = Path(record.input).name
        assert name not in found, "twice"
        found[name] = record.status
        if found.keys() >= set(names):
            break
    return found


def test_old_and_new_pictures_are_cleaned_and_a_restart_does_nothing_twice(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    picture(source / "old.png")
    settings, models, stop = Settings(skip_existing=True), Models(), threading.Event()
    guard = threading.Timer(120, stop.set)  # rather a failure than a wait without end
    guard.start()
    records = watch_folder(source, target, settings, models, settle=FAST, stop=stop)
    assert until(records, "old.png") == {"old.png": "done"}
    picture(source / "deep" / "new.png")
    assert until(records, "new.png") == {"new.png": "done"}
    (source / "bad.png").write_bytes(b"never a picture")
    picture(source / "newer.png")
    assert until(records, "newer.png")["newer.png"] == "done"
    assert (target / "deep" / "new.png").is_file()
    assert not (target / "bad.png").exists()

    picture(source / "later.png")
    again = watch_folder(source, target, settings, models, settle=FAST, stop=stop)
    found = until(again, "later.png")
    assert found.pop("later.png") == "done"
    assert found.keys() <= {"bad.png"}
    stop.set()
    assert list(records) == []
    guard.cancel()


def test_the_command_watches_until_ctrl_c(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    command = [sys.executable, "-m", "nelu_cli", "watch", str(source), str(target)]
    process = subprocess.Popen(
        [*command, "--settle", "0.2", "--format", "tiff"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    assert process.stderr.readline() == f"watching {source}; Ctrl-C ends it\n"
    picture(source / "a.png")
    line = process.stderr.readline()
    assert line.startswith(f"{source / 'a.png'} → {target / 'a.tif'}: 32×24 grey uint8")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_watch_refuses_in_one_line(
    nelu: Nelu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = tmp_path / "in", picture(tmp_path / "a.png")
    folder.mkdir()
    cases = {
        (tmp_path / "none", tmp_path / "out"): f"{tmp_path / 'none'}: no such folder",
        (folder, file): f"{file}: a folder is needed, this is a file",
        (folder, folder): f"{folder}: the results need a folder of their own",
    }
    for arguments, message in cases.items():
        status, out, err = nelu("watch", *arguments, "-q")
        assert (status, out, err) == (2, "", f"nelu: {message}\n")
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    status, _, err = nelu("watch", folder, tmp_path / "out", "-q")
    assert status == 2
    assert err == "nelu: watching needs one more package: pip install 'nelu-cli[watch]'\n"


def test_what_is_left_out_of_each_file_is_told(
    nelu: Nelu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [Record(name, name, "done", notes=("a part is missing",)) for name in ("a", "b")]
    monkeypatch.setattr("nelu_cli.files.watch.watch_folder", lambda *_, **__: iter(records))
    status, _, err = nelu("watch", str(tmp_path), str(tmp_path / "out"))
    assert status == 0
    told = [line for line in err.splitlines() if "note" in line]
    assert told == ["nelu: note: a: a part is missing", "nelu: note: b: a part is missing"]


def test_time_is_not_measured_by_the_wall() -> None:
    assert Folder(Path(), Path("out"), Settings().rename, 1).clock is time.monotonic
