"""Files that appear whole or not at all."""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

_NAME_BYTES = 200  # of the target's name in the temporary's: file systems allow 255 in all
_LITTER = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)}
_SETTLED = 60  # seconds after which a temporary file that nobody holds is litter


@contextlib.contextmanager
def atomic_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Yield a binary, seekable handle whose content becomes ``path`` when the block ends.

    The content goes to a hidden temporary file beside the target, is synced to disk, and takes
    the target's name in one step. At every moment the name means either the old file or the
    whole new one. If the block raises anything, Ctrl-C included, the temporary file is removed.

    The new file has the permissions and, where the system lets it, the owner and the extended
    attributes of the one it replaces, from the first byte on. Further hard links to the old file
    keep the old content: a file cannot be replaced whole under several names. A symbolic link is
    followed, as in an ordinary write, unless it leads nowhere. What is no regular file
    (``/dev/stdout``, a named pipe) cannot be replaced; it receives the whole content at the end of
    the block.

    Args:
        path: the target.
        replace: whether it may exist. If not, and another process makes it meanwhile, that one
            wins.

    Raises:
        OSError: the folder is missing or read-only, the disk is full, the target is a folder...
    """
    old = _status(path)
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(path, "wb") as device, tempfile.TemporaryFile() as content:
            yield content
            content.seek(0)
            shutil.copyfileobj(content, device)
        return
    if old is None and path.is_symlink():
        raise FileExistsError(errno.EEXIST, "is a link that leads nowhere", str(path))
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{_shortened(target.name)}.{secrets.token_hex(8)}.tmp")

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, 0o666 if old is None else 0o600)

    try:
        with open(temporary, "x+b", opener=create) as handle:
            descriptor = handle.fileno()
            _hold(descriptor)
            if old is not None:
                _imitate(descriptor, temporary, target, old)
            yield handle
            handle.flush()
            os.fsync(descriptor)
            if sys.platform != "win32":  # under its own name before the lock is gone
                _name(temporary, target, replace=replace)
        if sys.platform == "win32":
            _name(temporary, target, replace=replace)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            error.filename = str(path)  # the system does not say which file has no room
        raise
    _sync_folder(target.parent)


def write_whole(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file in one step, see :func:`atomic_file`."""
    with atomic_file(path, replace=replace) as handle:
        handle.write(content)


def sweep(folder: Path, finished: Collection[str] = ()) -> None:
    """Remove temporary files of ours whose writers are gone: killed, or cut off from power.

    Args:
        finished: names of files that nobody writes any more. Temporary files of theirs are litter
            at once; others only after a while, for their writers may be about to lock them.
    """
    names = {_shortened(name) for name in finished}
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            litter = _LITTER.fullmatch(entry.name)
            if litter and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_litter(Path(entry.path), 0 if litter[1] in names else _SETTLED)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a folder for this process until the block ends.

    Raises:
        BlockingIOError: another one keeps it.
    """
    if sys.platform == "win32":  # has no such locks
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # nor have some network drives
            pass
        yield
    finally:
        os.close(descriptor)


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_NAME_BYTES])


def _name(temporary: Path, target: Path, *, replace: bool) -> None:
    """Give the file its name, in one step."""
    if replace:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "has appeared meanwhile", str(target)) from None
    except OSError:  # a file system without links
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.replace(temporary, target)
        return
    temporary.unlink()


def _hold(descriptor: int) -> None:
    """Show that somebody is writing, for as long as the file is open."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_litter(path: Path, settled: float) -> None:
    if sys.platform == "win32" or time.time() - path.stat().st_mtime < settled:
        return
    with open(path, "rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if its writer is alive
        path.unlink()


def _imitate(descriptor: int, temporary: Path, target: Path, old: os.stat_result) -> None:
    """Take over permissions; owner and extended attributes where the system lets us."""
    if hasattr(os, "fchown") and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    else:
        os.chmod(temporary, stat.S_IMODE(old.st_mode))
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for attribute in os.listxattr(target):
                os.setxattr(temporary, attribute, os.getxattr(target, attribute))


def _status(path: Path) -> os.stat_result | None:
    """What is known of an existing file."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the system can (Windows cannot open a folder)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
