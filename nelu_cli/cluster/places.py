"""Folders and files anywhere: on this machine, or at a URL that fsspec knows (s3://, gs:// …).

Where a service is and who may use it is said in the usual way of each: environment, configuration
files, or ``FSSPEC_S3_ENDPOINT_URL`` and the like.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nelu_cli.errors import ImageError, NeluError

_WHO = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(?<=\S)\?[^\s]+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C: is a drive


def is_url(name: str) -> bool:
    """Whether this is no path of this machine."""
    return _URL.match(name) is not None


def without_secrets(text: str) -> str:
    """A text without the names, passwords and queries (where tokens are) of addresses in it."""
    return _QUERY.sub("?…", _WHO.sub("", text))


def place(name: "str | Path | Place") -> "Place":
    """The place of a name: a URL as it is, a path made absolute."""
    if isinstance(name, Place):
        return name
    text = str(name)
    return Place(text.rstrip("/") if is_url(text) else os.path.abspath(text))


@dataclass(frozen=True)
class Place:
    """A file or a folder; small, so that it can travel to other machines."""

    address: str
    """A URL, or an absolute path."""

    def __str__(self) -> str:
        """As it may be printed."""
        return without_secrets(self.address) if self.remote else self.address

    @property
    def remote(self) -> bool:
        return is_url(self.address)

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2] if self.remote else Path(self.address).name

    def __truediv__(self, name: str) -> "Place":
        return Place(f"{self.address}/{name}")

    def exists(self) -> bool:
        if not self.remote:
            return Path(self.address).exists()
        with self._service() as (fs, path):
            return bool(fs.exists(path))

    def is_folder(self) -> bool:
        if not self.remote:
            return Path(self.address).is_dir()
        with self._service() as (fs, path):
            return bool(fs.isdir(path))

    def files(self) -> list[str]:
        """The names of all files below, from here, sorted."""
        with self._service() as (fs, path):
            found = fs.find(path) if fs.exists(path) else []
            start = len(path.rstrip("/")) + 1
            return sorted(name[start:] for name in found)

    def read(self) -> bytes:
        with self._service() as (fs, path):
            content: bytes = fs.cat_file(path)
            return content

    def write(self, content: bytes) -> None:
        """Make this file; at most services it appears whole."""
        with self._service() as (fs, path):
            fs.makedirs(fs._parent(path), exist_ok=True)
            fs.pipe_file(path, content)

    def fetch(self, target: Path) -> None:
        """Copy this file to one of this machine."""
        with self._service() as (fs, path):
            fs.get_file(path, str(target))

    def put(self, source: Path) -> None:
        """Make this file a copy of one of this machine."""
        with self._service() as (fs, path):
            fs.makedirs(fs._parent(path), exist_ok=True)
            fs.put_file(str(source), path)

    def remove(self) -> None:
        """Remove a folder with all that is in it, if it is there."""
        if not self.remote:
            shutil.rmtree(self.address, ignore_errors=not Path(self.address).exists())
            return
        with self._service() as (fs, path):
            if fs.exists(path):
                fs.rm(path, recursive=True)

    @contextlib.contextmanager
    def _service(self) -> Iterator[tuple[Any, str]]:
        """What fsspec has for this place, and its name there; whatever goes wrong, in one line."""
        try:
            yield self._open()
        except NeluError:
            raise
        except FileNotFoundError as error:
            raise ImageError(f"{self}: no such file or folder") from error
        except Exception as error:
            said = without_secrets(str(error))
            for secret in filter(None, _WHO.findall(self.address)):
                said = said.replace(secret.rstrip("@"), "…")
            reason = " ".join(said.split())[:160] or type(error).__name__
            raise ImageError(f"{self}: cannot be reached ({reason})") from error

    def _open(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs

            fs, path = url_to_fs(self.address)
        except ImportError:
            raise ImageError(
                f"{self}: URLs need more packages: pip install 'nelu-cli[remote]'"
            ) from None
        except ValueError as error:
            raise ImageError(f"{self}: no kind of URL that fsspec knows") from error
        fs.invalidate_cache()  # others write, too
        return fs, str(path)
