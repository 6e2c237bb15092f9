"""Files appear whole or not at all."""

import os
import stat
import threading
from pathlib import Path

import pytest

from nelu_cli.atomic import atomic_file


def test_writes_the_whole_content_and_nothing_else(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "out.bin") as handle:
        handle.write(b"world")
        handle.seek(0)
        handle.write(b"W")
    assert (tmp_path / "out.bin").read_bytes() == b"World"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_the_old_file_stays_until_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    with atomic_file(target) as handle:
        handle.write(b"new")
        handle.flush()
        assert target.read_bytes() == b"old"
        (temporary,) = set(os.listdir(tmp_path)) - {"out.bin"}
        assert temporary.startswith(".")
        assert "out.bin" in temporary
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_failure_keeps_the_old_file_and_leaves_no_litter(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")

    def fail_halfway() -> None:
        with atomic_file(target) as handle:
            handle.write(b"half")
            raise failure

    with pytest.raises(failure):
        fail_halfway()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError), atomic_file(tmp_path / "folder") as handle:
        handle.write(b"content")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "missing" / "out.bin"):
        pass


def test_a_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    with atomic_file(tmp_path / "out.bin"):
        pass
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "out.bin")}
    assert len(modes) == 1


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    target.touch()
    target.chmod(0o640)
    with atomic_file(target) as handle:
        handle.write(b"new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with atomic_file(tmp_path / "link") as handle:
        handle.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_very_long_names_work(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    with atomic_file(target) as handle:
        handle.write(b"new")
    assert target.read_bytes() == b"new"


def test_a_pipe_receives_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    with atomic_file(pipe) as handle:
        handle.write(b"half")
        handle.seek(0)
        handle.write(b"whole")
    reader.join()
    assert received == [b"whole"]
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]
