"""Public sets of test and training images: where they are, what they hash to, how to fetch them.

Every file is named, with its SHA-256, in ``checksums/NAME.sha256`` of this package, and comes
from a public Git repository at a fixed commit. So a set is the same on every machine, or it is
an error.
"""

import hashlib
import http.client
import importlib.resources
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from nelu_cli.atomic import write_whole
from nelu_cli.errors import DatasetError, UsageError

GITHUB = "https://raw.githubusercontent.com"
_TIMEOUT = 20.0  # seconds of silence, not of transfer
_MAX_BYTES = 64 << 20  # the largest file of any set has less than 1 MB
_CHECKSUM_LINE = re.compile(r"([0-9a-f]{64})  (\w[\w.-]*)")  # a plain file name, never a path


@dataclass(frozen=True)
class PublicSet:
    """A folder of images in a public repository at a fixed commit."""

    name: str
    about: str
    repository: str  # owner/name at GitHub
    commit: str
    folder: str
    licence: str = ""
    """What a person must know before using the files, if anything."""

    @property
    def checksums(self) -> Mapping[str, str]:
        """SHA-256 of every file, by file name."""
        return _checksums(self.name)

    @property
    def source(self) -> str:
        """Where a person finds the files."""
        return f"https://github.com/{self.repository}/tree/{self.commit}/{self.folder}"

    def url(self, file: str, mirror: str = GITHUB) -> str:
        return f"{mirror.rstrip('/')}/{self.repository}/{self.commit}/{self.folder}/{file}"


_CSCNET = ("drorsimon/CSCNet", "699d08501649979ef487c7e4b5b4a37d0a8ffdf7")
_FFDNET = ("cszn/FFDNet", "e787f46df2f374ff3591186706229cb9a0591fea")
_MCWNNM = (
    "csjunxu/MCWNNM-ICCV2017",
    "e6db69b01ff21e89461cc49893c89afb1a9a941c",
    "Real_ccnoise_denoised_part",
)
_POLYU = (
    "csjunxu/PolyU-Real-World-Noisy-Images-Dataset",
    "3af0f2646b267a00446fe4b7113a15e67bc80b4e",
    "CroppedImages",
)

CATALOGUE: Mapping[str, PublicSet] = {
    each.name: each
    for each in (
        PublicSet("set12", "12 classic grey test images", *_CSCNET, "datasets/Set12"),
        PublicSet("bsd68", "68 grey test images, the paper's", *_CSCNET, "datasets/BSD68"),
        PublicSet("cbsd68", "the same 68 in colour", *_FFDNET, "testsets/CBSD68"),
        PublicSet("kodak24", "24 colour photographs", *_FFDNET, "testsets/Kodak24"),
        PublicSet("mcmaster", "18 colour images", *_FFDNET, "testsets/McMaster"),
        PublicSet("cc", "15 real camera crops and their clean means", *_MCWNNM),
        PublicSet(
            "polyu",
            "100 real camera crops and their clean means",
            *_POLYU,
            licence="for non-commercial use only",
        ),
        PublicSet("cbsd432", "432 colour images for training", *_CSCNET, "datasets/CBSD432"),
    )
}


@dataclass(frozen=True)
class Fetched:
    """What a call of :func:`fetch` did: files that were already there, and new ones."""

    kept: int
    new: int


def verified(name: str, folder: Path) -> frozenset[str]:
    """Names of the files of a public set that are in ``folder`` with the right content."""
    return frozenset(
        file for file, digest in lookup(name).checksums.items() if _sha256(folder / file) == digest
    )


def fetch(
    name: str,
    folder: Path,
    *,
    mirror: str | None = None,
    progress: Callable[[int], None] | None = None,
    pauses: Sequence[float] = (0.5, 2.0),
) -> Fetched:
    """Bring every file of a public set into ``folder``, each checked against its SHA-256.

    Files that are there already and right are not fetched again, so an interrupted call is
    resumed by repeating it. A file gets its name only after its hash has been checked.

    Args:
        name: a key of :data:`CATALOGUE`.
        folder: created if need be.
        mirror: address that replaces ``https://raw.githubusercontent.com``; default: the
            environment variable ``NELU_MIRROR``, then that.
        progress: called with the number of files that have just been found or fetched.
        pauses: seconds to wait before each further attempt after a broken connection.

    Raises:
        DatasetError: unknown set, no network, damaged file: says how to go on.
        UsageError: the mirror is no http(s) address.
    """
    public = lookup(name)
    mirror = _checked(mirror or os.environ.get("NELU_MIRROR") or GITHUB)
    kept = verified(name, folder)
    missing = [file for file in public.checksums if file not in kept]
    advance = progress or (lambda files: None)
    advance(len(kept))
    try:
        for file in missing:
            content = _download(public.url(file, mirror), public.checksums[file], pauses)
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / file, content)
            advance(1)
    except _TransferError as error:
        raise DatasetError(
            f"{name}: {error}; {len(verified(name, folder))} of {len(public.checksums)} files are "
            f"in {folder}: run `nelu data fetch {name}` again to go on, or put the files of "
            f"{public.source} there by hand"
        ) from error
    except OSError as error:
        raise DatasetError(f"{name}: cannot write to {folder} ({error.strerror})") from error
    return Fetched(kept=len(kept), new=len(missing))


class _TransferError(Exception):
    """One file could not be had; the message names its address, without a password."""


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a server only to where nobody can listen or answer in its place."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme != "https":
            fp.close()
            shown = _shown(newurl)
            raise _TransferError(f"{req.full_url}: leads on to {shown}, which is no https address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _shown(address: str) -> str:
    """An address as it may be printed: whoever has a name and a password in it keeps them."""
    try:
        parts = urllib.parse.urlsplit(address)
        place = parts.netloc.rpartition("@")[2]
        query = "…" if parts.query else ""  # where tokens are
        return urllib.parse.urlunsplit((parts.scheme, place, parts.path, query, ""))
    except ValueError:
        return "an address that makes no sense"


def lookup(name: str) -> PublicSet:
    """The public set of that name, or an error that lists them."""
    try:
        return CATALOGUE[name]
    except KeyError:
        raise DatasetError(
            f"{name}: not a public set that can be fetched; there are {', '.join(CATALOGUE)}"
        ) from None


def _checked(mirror: str) -> str:
    try:
        parts = urllib.parse.urlsplit(mirror)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return mirror
    except ValueError:  # an impossible host or port
        pass
    raise UsageError(f"mirror {_shown(mirror)!r} is not an http:// or https:// address")


@cache
def _checksums(name: str) -> Mapping[str, str]:
    text = (importlib.resources.files("nelu_cli.data") / "checksums" / f"{name}.sha256").read_text()
    entries = {}
    for line in text.splitlines():
        match = _CHECKSUM_LINE.fullmatch(line)
        if match is None:
            raise DatasetError(f"{name}.sha256: malformed line {line!r}; reinstall nelu-cli")
        entries[match[2]] = match[1]
    return entries


def _sha256(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _request(url: str) -> urllib.request.Request:
    """Ask for an address; a name and a password in it go where a server looks for them."""
    parts = urllib.parse.urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(netloc=place)))
    if at:  # not sent on to another place, see add_unredirected_header
        plain = urllib.parse.unquote(user).encode()
        request.add_unredirected_header("Authorization", f"Basic {b64encode(plain).decode()}")
    return request


def _download(url: str, digest: str, pauses: Sequence[float]) -> bytes:
    """The content with that SHA-256, or _TransferError; broken connections are tried again."""
    shown = _shown(url)
    request = _request(url)
    opener = urllib.request.build_opener(_SafeRedirects)
    for pause in (*pauses, None):
        try:
            with opener.open(request, timeout=_TIMEOUT) as response:
                content: bytes = response.read(_MAX_BYTES)
                rest: int = response.length or 0
            if not rest:
                break
            failure = f"broken off after {len(content)} of {len(content) + rest} bytes"
        except urllib.error.HTTPError as error:
            reason = "and leads on to no https address" if error.code < 400 else error.reason
            failure = f"the server answers {error.code} {reason}"
            error.close()
            if error.code < 500 and error.code != 429:  # will not change by asking again
                raise _TransferError(f"{shown}: {failure}") from error
        except urllib.error.URLError as error:
            failure = f"cannot be reached ({error.reason})"
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            failure = f"broken off ({str(error) or type(error).__name__})"
        if pause is None:
            raise _TransferError(f"{shown}: {failure}")
        time.sleep(pause)
    actual = hashlib.sha256(content).hexdigest()
    if actual != digest:
        raise _TransferError(f"{shown}: SHA-256 is {actual[:12]}…, not {digest[:12]}…, so not kept")
    return content
