"""Pictures and OME-Zarr images at URLs, in a real S3 service of our own."""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
import s3fs
from distributed import Client, LocalCluster
from moto.server import ThreadedMotoServer
from numpy.typing import NDArray
from PIL import Image
from zarr_images import load, save, scene

from nelu_cli import denoise
from nelu_cli.cluster import blocks, weights
from nelu_cli.cluster.blocks import Block
from nelu_cli.cluster.ome import is_zarr
from nelu_cli.cluster.places import is_url, place
from nelu_cli.cluster.scheduler import blocks_on, transfer_all_on
from nelu_cli.cluster.transfers import plan_transfers
from nelu_cli.cluster.volumes import Volume, denoise_volume, one_after_the_other
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models

Nelu = Callable[..., tuple[int, str, str]]

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the services' own affairs
    pytest.mark.usefixtures("small_models"),
]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(
    service: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The URL of a bucket, and who may use it."""
    for name, value in {
        "AWS_ENDPOINT_URL": service,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    s3fs.S3FileSystem.clear_instance_cache()
    weights._loaded.cache_clear()
    name = f"b{abs(hash(request.node.name))}"
    boto3.client("s3").create_bucket(Bucket=name)
    yield f"s3://{name}"
    s3fs.S3FileSystem.clear_instance_cache()
    weights._loaded.cache_clear()


def noisy(seed: int = 0) -> NDArray[np.uint8]:
    values = 128 + 20 * np.random.default_rng(seed).standard_normal((40, 50))
    return values.astype(np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def pixels_at(address: str) -> NDArray[Any]:
    return np.asarray(Image.open(io.BytesIO(place(address).read())))


def upload(folder: Path, target: str) -> str:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            (place(target) / path.relative_to(folder).as_posix()).write(path.read_bytes())
    return target


def test_urls_are_told_from_paths() -> None:
    assert all(is_url(name) for name in ("s3://bucket/a", "memory://a", "https://host/a"))
    assert not any(is_url(name) for name in ("a.png", "/a", "C:/a", "C:\\a", "a/b:c", "-"))


# Pictures


def test_passwords_are_not_printed(nelu: Nelu, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for url in (
        "http://me:secret@127.0.0.1:1/a.png?key=secret",
        "s3://me:secret@bucket/a.png",
        "nosuch://me:secret@host/a.png",
    ):
        for names in ((url, "out.png"), ("--json", url, "out.png")):
            status, out, err = nelu("denoise", *names)
            assert status == 1
            assert err.startswith(f"nelu: {url.partition(':')[0]}://")
            assert "secret" not in out + err


def test_a_folder_of_other_kinds_at_a_url_is_named(nelu: Nelu, bucket: str) -> None:
    place(f"{bucket}/others/a.gif").write(b"GIF89a")
    status, _, err = nelu("denoise", f"{bucket}/others", f"{bucket}/out")
    assert status == 1
    assert "no pictures that can be done in this folder, only 1 GIF\n" in err


def test_a_folder_goes_from_url_to_url(nelu: Nelu, bucket: str) -> None:
    for number, name in enumerate(("a.png", "deep/b.png")):
        (place(bucket) / "in" / name).write(png(noisy(number)))
    (place(bucket) / "in/notes.txt").write(b"no picture")
    status, out, err = nelu("denoise", f"{bucket}/in", f"{bucket}/out/")
    assert (status, out) == (0, "")
    assert f"{bucket}/in/a.png → {bucket}/out/a.png: 50×40 grey uint8, deep-gray" in err
    assert ".txt" in err
    assert (place(bucket) / "out").files() == ["a.png", "deep/b.png"]
    for number, name in enumerate(("a.png", "deep/b.png")):
        np.testing.assert_array_equal(pixels_at(f"{bucket}/out/{name}"), denoise(noisy(number)))
    status, _, err = nelu("denoise", f"{bucket}/in", f"{bucket}/out", "--skip-existing")
    assert (status, err.count("skipped, exists already")) == (0, 2)
    status, _, err = nelu("denoise", f"{bucket}/in/a.png", f"{bucket}/out/a.png", "-q")
    assert (status, err) == (
        1,
        f"nelu: {bucket}/out/a.png: exists already; --force replaces it, "
        "--skip-existing leaves it\n",
    )


def test_one_side_may_be_here(nelu: Nelu, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(png(noisy()))
    assert nelu("denoise", tmp_path / "in", f"{bucket}/out", "-q") == (0, "", "")
    np.testing.assert_array_equal(pixels_at(f"{bucket}/out/a.png"), denoise(noisy()))
    target = tmp_path / "again.png"
    assert nelu("denoise", f"{bucket}/out/a.png", target, "--strength", "0", "-q") == (0, "", "")
    np.testing.assert_array_equal(np.asarray(Image.open(target)), denoise(noisy()))


@pytest.mark.parametrize(
    ("arguments", "expected", "message"),
    [
        (["{b}/none.png", "{b}/o.png"], 1, "{b}/none.png: no such file or folder"),
        (["{b}/damaged.png", "{b}/o.png"], 1, "{b}/damaged.png: "),
        (["{b}/empty", "{b}/o/"], 1, "{b}/empty: no pictures in this folder"),
        (["{b}/a.png", "{b}/b.png", "{b}/o/"], 2, "with URLs, give one input"),
        (["{b}/a.png"], 2, "{b}/a.png: say where the result goes; name it last"),
        (["{b}/a.png", "-"], 2, "--noise-map, --report and - are for files of this machine"),
        (["{b}/a.png", "{b}/o.png", "--dry-run"], 2, "--dry-run is for files of this machine"),
        (["gopher://a/a.png", "o.png"], 1, "gopher://a/a.png: no kind of URL that fsspec knows"),
    ],
)
def test_what_goes_wrong_is_one_line(
    nelu: Nelu, bucket: str, arguments: list[str], expected: int, message: str
) -> None:
    (place(bucket) / "damaged.png").write(b"\x89PNG\r\n\x1a\nnothing")
    (place(bucket) / "empty/.hidden").write(b"")
    status, out, err = nelu("denoise", *(text.format(b=bucket) for text in arguments), "-q")
    assert (status, out) == (expected, "")
    assert err.startswith(f"nelu: {message.format(b=bucket)}")
    assert err.count("\n") == 1
    assert not (place(bucket) / "o.png").exists()


@pytest.mark.parametrize("package", ["fsspec.core", "s3fs"])
def test_missing_packages_are_named(
    nelu: Nelu, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    known = import_module("fsspec.registry")._registry
    monkeypatch.delitem(known, "s3", raising=False)
    status, _, err = nelu("denoise", "s3://x/a.png", "s3://x/b.png", "-q")
    need = "s3://x/a.png: URLs need more packages: pip install 'nelu-cli[remote]'"
    assert (status, err) == (1, f"nelu: {need}\n")


# OME-Zarr


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_image_goes_from_url_to_url(
    nelu: Nelu, bucket: str, tmp_path: Path, version: str
) -> None:
    local = save(tmp_path / "in.zarr", scene(2, 70, 90), "cyx", (1, 32, 32), version)
    denoise_volume(local, tmp_path / "out.zarr")
    source = upload(local, f"{bucket}/in.ome.zarr")
    status, _, err = nelu("denoise", source, f"{bucket}/out.ome.zarr")
    assert status == 0, err
    found = place(f"{bucket}/out.ome.zarr")
    expected = {
        path.relative_to(tmp_path / "out.zarr").as_posix(): path.read_bytes()
        for path in (tmp_path / "out.zarr").rglob("*")
        if path.is_file()
    }
    assert {name: (found / name).read() for name in found.files()} == expected
    status, _, err = nelu("denoise", source, f"{bucket}/out.ome.zarr", "-q")
    assert (status, "exists already" in err) == (1, True)
    assert nelu("denoise", source, f"{bucket}/out.ome.zarr", "--force", "-q") == (0, "", "")
    assert nelu("denoise", source, tmp_path / "here.zarr", "-q") == (0, "", "")
    np.testing.assert_array_equal(load(tmp_path / "here.zarr"), load(tmp_path / "out.zarr"))


def test_an_unfinished_image_is_none_yet_and_is_gone_on_with(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SIDE", 32)
    local = save(tmp_path / "in.zarr", scene(64, 96), "yx", (32, 32), factors=(1,))
    source, target = upload(local, f"{bucket}/in.zarr"), f"{bucket}/out.zarr"
    done: list[Block] = []

    def stops_early(volume: Volume, blocks: Sequence[Block]) -> Iterator[Block]:
        done.extend(blocks[:2])
        yield from one_after_the_other(volume, blocks[:2])
        raise KeyboardInterrupt

    def counts(volume: Volume, blocks: Sequence[Block]) -> Iterator[Block]:
        done.extend(blocks)
        return one_after_the_other(volume, blocks)

    with pytest.raises(KeyboardInterrupt):
        denoise_volume(source, target, run=stops_early)
    assert not is_zarr(place(target))
    denoise_volume(source, target, run=counts)
    assert is_zarr(place(target))
    assert len({block.name for block in done}) == len(done) == 6
    assert not any(name.startswith(".nelu") for name in place(target).files())


# Dask


def test_workers_fetch_and_put_by_themselves(bucket: str, tmp_path: Path) -> None:
    for number in range(4):
        (place(bucket) / f"in/{number}.png").write(png(noisy(number)))
    local = save(tmp_path / "in.zarr", scene(40, 60), "yx", (32, 32), factors=(1,))
    source = upload(local, f"{bucket}/in.zarr")
    transfers, _ = plan_transfers([f"{bucket}/in"], f"{bucket}/out", {".png"})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        models = Models("deep-gray", "cpu", "float32")
        records = list(transfer_all_on(client, transfers, Settings(), models))
        assert [record.status for record in records] == ["done"] * 4
        denoise_volume(
            source,
            f"{bucket}/out.zarr",
            models=models,
            run=lambda volume, blocks: blocks_on(client, volume, blocks),
        )
    assert (place(bucket) / "out").files() == [f"{number}.png" for number in range(4)]
    assert is_zarr(place(f"{bucket}/out.zarr"))
