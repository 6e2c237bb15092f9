"""Files appear whole or not at all."""

import os
import stat
import threading
from pathlib import Path

import pytest

from nelu_cli.atomic import atomic_file, sweep


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


def test_a_private_file_is_never_open_to_others(tmp_path: Path) -> None:
    target = tmp_path / "private.bin"
    target.write_bytes(b"old")
    target.chmod(0o600)
    with atomic_file(target) as handle:
        (temporary,) = set(os.listdir(tmp_path)) - {"private.bin"}
        assert stat.S_IMODE((tmp_path / temporary).stat().st_mode) == 0o600
        handle.write(b"new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_extended_attributes_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "tagged.bin"
    target.write_bytes(b"old")
    try:
        os.setxattr(target, "user.comment", b"holiday")
    except OSError:
        pytest.skip("no extended attributes here")
    with atomic_file(target) as handle:
        handle.write(b"new")
    assert os.getxattr(target, "user.comment") == b"holiday"


def test_another_hard_link_keeps_the_old_content(tmp_path: Path) -> None:
    target, other = tmp_path / "a.bin", tmp_path / "b.bin"
    target.write_bytes(b"old")
    os.link(target, other)
    with atomic_file(target) as handle:
        handle.write(b"new")
    assert (target.read_bytes(), other.read_bytes()) == (b"new", b"old")


def test_a_file_that_appears_meanwhile_wins(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"

    def write() -> None:
        with atomic_file(target, replace=False) as handle:
            target.write_bytes(b"theirs")
            handle.write(b"ours")

    with pytest.raises(FileExistsError, match="has appeared meanwhile"):
        write()
    assert target.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_without_links_the_name_is_taken_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for name in ("a.bin", "b.bin"):
        with atomic_file(tmp_path / name, replace=False) as handle:
            handle.write(b"new")
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "b.bin"]


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError, match="leads nowhere"), atomic_file(tmp_path / "link"):
        pass
    assert os.listdir(tmp_path) == ["link"]


def test_only_old_litter_that_nobody_holds_is_swept(tmp_path: Path) -> None:
    young, old = (tmp_path / f".x.{digit * 16}.tmp" for digit in "ab")
    for path in (young, old):
        path.touch()
    os.utime(old, (0, 0))
    with atomic_file(tmp_path / "busy") as handle:
        (busy,) = (path for path in tmp_path.iterdir() if path not in (young, old))
        os.utime(busy, (0, 0))
        sweep(tmp_path)
        assert {young, busy} == set(tmp_path.iterdir())
        sweep(tmp_path, finished=["other"])
        assert {young, busy} == set(tmp_path.iterdir())
        sweep(tmp_path, finished=["x", "busy"])  # of a finished file it is litter at once
        assert {busy} == set(tmp_path.iterdir())
        handle.write(b"done")
    sweep(tmp_path / "nowhere")
    assert (tmp_path / "busy").read_bytes() == b"done"
