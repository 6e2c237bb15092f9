"""The downloader against a real HTTP server on this machine, well and badly behaved."""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nelu_cli.data import downloads
from nelu_cli.data.downloads import CATALOGUE, Fetched, PublicSet, fetch, verified
from nelu_cli.errors import DatasetError, UsageError

FILES = {f"{i:02}.png": f"picture {i} ".encode() * 500 for i in range(5)}
TINY = PublicSet("tiny", "five files", "owner/repo", "c0ffee", "sets/Tiny")


class Server(ThreadingHTTPServer):
    """Serves FILES as TINY's repository; ``misbehave`` maps a file's name to what it does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.misbehave: dict[str, Callable[[Handler, bytes], None]] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that hang up are part of the tests


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        folder, _, file = self.path.rpartition("/")
        self.server.asked.append(file)
        if folder != "/owner/repo/c0ffee/sets/Tiny" or file not in FILES:
            self.send_error(404)
        elif file in self.server.misbehave:
            self.server.misbehave[file](self, FILES[file])
        else:
            self.reply(FILES[file])

    def reply(self, body: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def truncated(handler: Handler, body: bytes) -> None:
    handler.reply(body[:100], length=len(body))


def altered(handler: Handler, body: bytes) -> None:
    handler.reply(body[::-1])


def missing(handler: Handler, body: bytes) -> None:
    handler.send_error(404)


def overloaded(handler: Handler, body: bytes) -> None:
    handler.send_error(503)


def hanging_up(handler: Handler, body: bytes) -> None:
    handler.connection.close()


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = {name: hashlib.sha256(body).hexdigest() for name, body in FILES.items()}
    monkeypatch.setattr(downloads, "CATALOGUE", {"tiny": TINY})
    monkeypatch.setattr(downloads, "_checksums", lambda name: hashes)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("NELU_MIRROR", raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_fetch_brings_every_file_and_reports_each(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "tiny"
    seen: list[int] = []
    outcome = fetch("tiny", folder, mirror=server.address, progress=seen.append)
    assert contents(folder) == FILES
    assert outcome == Fetched(kept=0, new=5)
    assert seen == [0, 1, 1, 1, 1, 1]
    assert verified("tiny", folder) == frozenset(FILES)


def test_second_fetch_asks_for_nothing(server: Server, tmp_path: Path) -> None:
    fetch("tiny", tmp_path, mirror=server.address)
    server.asked.clear()
    assert fetch("tiny", tmp_path, mirror=server.address) == Fetched(kept=5, new=0)
    assert server.asked == []


def test_mirror_can_come_from_the_environment(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NELU_MIRROR", server.address + "/")
    assert fetch("tiny", tmp_path).new == 5


def test_damaged_file_on_disk_is_fetched_again(server: Server, tmp_path: Path) -> None:
    fetch("tiny", tmp_path, mirror=server.address)
    (tmp_path / "03.png").write_bytes(b"damaged")
    assert verified("tiny", tmp_path) == frozenset(FILES) - {"03.png"}
    server.asked.clear()
    assert fetch("tiny", tmp_path, mirror=server.address) == Fetched(kept=4, new=1)
    assert server.asked == ["03.png"]
    assert contents(tmp_path) == FILES


@pytest.mark.parametrize(
    ("behaviour", "attempts", "complaint"),
    [
        (truncated, 3, "broken off after 100 of 5000 bytes"),
        (altered, 1, "SHA-256 is "),
        (missing, 1, "the server answers 404 Not Found"),
        (overloaded, 3, "the server answers 503 Service Unavailable"),
        (hanging_up, 3, "broken off ("),
    ],
)
def test_bad_file_is_reported_not_kept_and_the_rest_resumed(
    server: Server,
    tmp_path: Path,
    behaviour: Callable[[Handler, bytes], None],
    attempts: int,
    complaint: str,
) -> None:
    server.misbehave["02.png"] = behaviour
    with pytest.raises(DatasetError, match=re.escape(complaint)) as caught:
        fetch("tiny", tmp_path, mirror=server.address, pauses=(0, 0))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"tiny: {server.address}/owner/repo/c0ffee/sets/Tiny/02.png: ")
    assert f"2 of 5 files are in {tmp_path}: run `nelu data fetch tiny` again to go on" in message
    assert f"put the files of {TINY.source} there by hand" in message
    assert server.asked.count("02.png") == attempts
    assert contents(tmp_path) == {name: FILES[name] for name in ("00.png", "01.png")}

    server.misbehave.clear()
    server.asked.clear()
    assert fetch("tiny", tmp_path, mirror=server.address) == Fetched(kept=2, new=3)
    assert server.asked == ["02.png", "03.png", "04.png"]
    assert contents(tmp_path) == FILES


def test_passing_fault_is_ridden_out(server: Server, tmp_path: Path) -> None:
    def once(handler: Handler, body: bytes) -> None:
        del server.misbehave["02.png"]
        truncated(handler, body)

    server.misbehave["02.png"] = once
    assert fetch("tiny", tmp_path, mirror=server.address, pauses=(0,)).new == 5
    assert server.asked.count("02.png") == 2


def test_interrupted_fetch_leaves_whole_files_and_is_resumed(
    server: Server, tmp_path: Path
) -> None:
    seen: list[int] = []

    def interrupt(files: int) -> None:
        seen.append(files)
        if sum(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("tiny", tmp_path, mirror=server.address, progress=interrupt)
    assert contents(tmp_path) == {name: FILES[name] for name in ("00.png", "01.png", "02.png")}
    assert fetch("tiny", tmp_path, mirror=server.address) == Fetched(kept=3, new=2)
    assert contents(tmp_path) == FILES


def test_dead_server_says_where_to_put_the_files(tmp_path: Path) -> None:
    with Server() as closed:
        address = closed.address
    with pytest.raises(DatasetError, match="cannot be reached") as caught:
        fetch("tiny", tmp_path / "tiny", mirror=address, pauses=())
    assert f"put the files of {TINY.source} there by hand" in str(caught.value)
    assert f"0 of 5 files are in {tmp_path / 'tiny'}" in str(caught.value)
    assert not (tmp_path / "tiny").exists()


def test_folder_that_cannot_be_made_is_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"^tiny: cannot write to .*file.* \("):
        fetch("tiny", tmp_path / "file" / "tiny", mirror=server.address)


@pytest.mark.parametrize("scheme", ["http", "ftp", "file", "data"])
def test_a_redirect_to_anything_but_https_is_refused(
    scheme: str, server: Server, tmp_path: Path
) -> None:
    place = (
        f"{scheme}://me:secret@127.0.0.1:{server.server_port}/owner/repo/c0ffee/sets/Tiny/03.png"
    )

    def lead_on(handler: Handler, body: bytes) -> None:
        handler.send_response(302)
        handler.send_header("Location", place)
        handler.end_headers()

    server.misbehave["02.png"] = lead_on
    with pytest.raises(DatasetError) as caught:
        fetch("tiny", tmp_path, mirror=server.address, pauses=())
    said = str(caught.value)
    assert "leads on to" in said
    assert "no https address" in said
    assert "secret" not in said
    assert server.asked == ["00.png", "01.png", "02.png"]
    assert contents(tmp_path) == {name: FILES[name] for name in ("00.png", "01.png")}


def test_a_redirect_to_https_is_followed(server: Server, tmp_path: Path) -> None:
    def lead_on(handler: Handler, body: bytes) -> None:
        handler.send_response(302)
        handler.send_header("Location", f"https://127.0.0.1:{server.server_port}/{body[:1].hex()}")
        handler.end_headers()

    server.misbehave["02.png"] = lead_on
    with pytest.raises(DatasetError, match=r"cannot be reached \(.*SSL"):  # it was tried
        fetch("tiny", tmp_path, mirror=server.address, pauses=())


@pytest.mark.parametrize("behaviour", [truncated, altered, missing, overloaded, hanging_up])
def test_passwords_are_sent_but_never_said(
    server: Server, tmp_path: Path, behaviour: Callable[[Handler, bytes], None]
) -> None:
    sent: list[str | None] = []

    def ask(handler: Handler, body: bytes) -> None:
        sent.append(handler.headers["Authorization"])
        behaviour(handler, body)

    server.misbehave["00.png"] = ask
    mirror = server.address.replace("//", "//me:top%20secret@")
    with pytest.raises(DatasetError) as caught:
        fetch("tiny", tmp_path, mirror=mirror, pauses=())
    assert sent == ["Basic bWU6dG9wIHNlY3JldA=="]
    assert "secret" not in str(caught.value)
    assert "me:" not in str(caught.value)
    assert server.address in str(caught.value)


@pytest.mark.parametrize("mirror", ["ftp://me:secret@host", "http://me:secret@", "//me:secret@h"])
def test_a_wrong_mirror_is_named_without_its_password(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not an http") as caught:
        fetch("tiny", tmp_path, mirror=mirror)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("mirror", ["http://localhost:1/ä", "http://.localhost:1/"])
def test_mirrors_that_cannot_be_asked_are_one_line(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(DatasetError, match="0 of 5 files are in"):
        fetch("tiny", tmp_path, mirror=mirror, pauses=())


@pytest.mark.parametrize("mirror", ["file:///etc", "ftp://host", "http://", "http://[", "nonsense"])
def test_only_http_mirrors_are_accepted(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(UsageError, match="is not an http:// or https:// address"):
        fetch("tiny", tmp_path, mirror=mirror)


@pytest.mark.parametrize("name", ["nosuch", "../tiny", ""])
def test_unknown_set_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match="not a public set that can be fetched; there are tiny"):
        fetch(name, tmp_path)


def test_catalogue_carries_the_hash_of_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    counts = {name: len(public.checksums) for name, public in CATALOGUE.items()}
    assert counts == {
        "set12": 12,
        "bsd68": 68,
        "cbsd68": 68,
        "kodak24": 24,
        "mcmaster": 18,
        "cc": 30,
        "polyu": 200,
        "cbsd432": 432,
    }
    for public in CATALOGUE.values():
        assert len(public.commit) == 40
        for file, digest in public.checksums.items():
            assert re.fullmatch(r"[0-9a-f]{64}", digest)
            assert Path(file).name == file  # a name, never a path: nothing can leave the folder


@pytest.mark.parametrize("line", ["0" * 64 + "  ../evil.png", "0" * 64 + "  a/b.png", "12  a.png"])
def test_checksum_file_with_a_path_or_garbage_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (tmp_path / "checksums").mkdir()
    (tmp_path / "checksums" / "bad.sha256").write_text(line + "\n")
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    with pytest.raises(DatasetError, match=r"bad\.sha256: malformed line"):
        downloads._checksums("bad")
