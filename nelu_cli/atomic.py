"""Files that appear whole or not at all."""

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_file"]

_NAME_BYTES = 200  # of the target's name in the temporary's: file systems allow 255 in all


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary, seekable handle whose content becomes ``path`` when the block ends.

    The content goes to a hidden temporary file beside the target, is synced to disk, and takes
    the target's name in one step. At every moment the name means either the old file or the
    whole new one. If the block raises anything, Ctrl-C included, the temporary file is removed.

    The new file has the permissions of the one it replaces, or those of any newly created file.
    A symbolic link is followed, as in an ordinary write. What is no regular file (``/dev/stdout``,
    a named pipe) cannot be replaced; it receives the whole content at the end of the block.

    Raises:
        OSError: the folder is missing or read-only, the disk is full, the target is a folder...
    """
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as device, tempfile.TemporaryFile() as content:
            yield content
            content.seek(0)
            shutil.copyfileobj(content, device)
        return
    target = Path(os.path.realpath(path))
    name = os.fsdecode(os.fsencode(target.name)[:_NAME_BYTES])
    temporary = target.with_name(f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x+b") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _mode(path: Path) -> int | None:
    """Type and permissions of an existing file."""
    try:
        return path.stat().st_mode
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
