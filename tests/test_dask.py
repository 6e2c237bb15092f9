"""Files and blocks on a real Dask cluster: two worker processes, one that dies, none at all."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster
from PIL import Image
from zarr_images import load, save, scene

from nelu_cli.cluster import blocks, scheduler, volumes
from nelu_cli.cluster.blocks import Block
from nelu_cli.cluster.scheduler import alike_everywhere, blocks_on, connected, denoise_files_on
from nelu_cli.cluster.volumes import Volume
from nelu_cli.cluster.weights import Weights, weights_of
from nelu_cli.errors import ClusterError, UsageError
from nelu_cli.files.plan import Job
from nelu_cli.files.queue import denoise_files
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models, load_model
from nelu_cli.runtime.options import Options

Nelu = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.filterwarnings("default")  # distributed's own affairs


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as connected_to:
        yield connected_to


def pictures(folder: Path, count: int, size: tuple[int, int] = (24, 32)) -> list[Path]:
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = [folder / f"{number:03}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(path)
    return paths


def jobs_to(paths: list[Path], folder: Path) -> list[Job]:
    return [Job(path, folder / path.name) for path in paths]


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_files_come_out_as_in_one_process_bit_for_bit(client: Client, tmp_path: Path) -> None:
    paths = pictures(tmp_path / "in", 6, (70, 90))
    (tmp_path / "in" / "bad.png").write_bytes(b"no picture")
    paths.append(tmp_path / "in" / "bad.png")
    models = Models(precision="float32")
    here = list(denoise_files(jobs_to(paths, tmp_path / "here"), models=models))
    there = list(denoise_files_on(client, jobs_to(paths, tmp_path / "there"), Settings()))
    assert [record.status for record in here] == ["done"] * 6 + ["failed"]
    by_input = {record.input: record for record in there}
    for record in here:
        twin = by_input.pop(record.input)
        assert (twin.status, twin.error) == (record.status, record.error)
    assert not by_input
    for path in paths[:-1]:
        first, second = ((tmp_path / side / path.name).read_bytes() for side in ("here", "there"))
        assert first == second


def test_existing_results_are_refused_or_skipped(client: Client, tmp_path: Path) -> None:
    paths = pictures(tmp_path / "in", 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "000.png").write_bytes(b"mine")
    jobs = jobs_to(paths, tmp_path / "out")
    status = {r.input[-7:]: r.status for r in denoise_files_on(client, jobs, Settings())}
    assert status == {"000.png": "failed", "001.png": "done"}
    again = Settings(skip_existing=True)
    assert [r.status for r in denoise_files_on(client, jobs, again)] == ["skipped"] * 2
    assert (tmp_path / "out" / "000.png").read_bytes() == b"mine"


def test_a_worker_that_dies_loses_nothing(tmp_path: Path) -> None:
    paths = pictures(tmp_path / "in", 200)
    jobs = jobs_to(paths, tmp_path / "out")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        records = denoise_files_on(client, jobs, Settings(noise_level=False))
        found = [next(records) for _ in range(30)]
        victim = next(iter(cluster.workers.values()))
        os.kill(victim.process.pid, signal.SIGKILL)
        (tmp_path / "out" / f".199.png.{'a' * 16}.tmp").touch()  # as if it was just writing
        found += list(records)
    assert [record.status for record in found] == ["done"] * 200
    assert len({record.input for record in found}) == 200
    results = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in results] == [path.name for path in paths]  # and nothing else
    for path in results:
        Image.open(path).load()


@pytest.mark.usefixtures("one_thread")
def test_blocks_come_out_as_in_one_process_bit_for_bit(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SIDE", 64)
    source = save(tmp_path / "in.zarr", scene(2, 130, 150), "cyx", (1, 64, 64))
    volumes.denoise_volume(source, tmp_path / "here.zarr")
    volumes.denoise_volume(source, tmp_path / "there.zarr", run=partial(blocks_on, client))
    for level in "01":
        first, second = (load(tmp_path / f"{side}.zarr", level) for side in ("here", "there"))
        assert np.array_equal(first, second)


def test_a_worker_that_dies_loses_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SIDE", 64)
    source = save(tmp_path / "in.zarr", scene(200, 256), "yx", (64, 64))
    volumes.denoise_volume(source, tmp_path / "whole.zarr")
    done: list[str] = []
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def run(volume: Volume, waiting: Sequence[Block]) -> Iterator[Block]:
            for block in blocks_on(client, volume, waiting):
                done.append(block.name)
                if len(done) == 3:
                    victim = next(iter(cluster.workers.values()))
                    os.kill(victim.process.pid, signal.SIGKILL)
                yield block

        record = volumes.denoise_volume(source, tmp_path / "out.zarr", run=run)
    assert record.status == "done"
    assert len(set(done)) == len(done) == 16 + 4
    for level in "01":
        found, whole = (load(tmp_path / f"{name}.zarr", level) for name in ("out", "whole"))
        assert np.abs(found.astype(int) - whole).max() <= 1


def test_tasks_share_the_cores_of_a_machine_and_keep_to_their_share_of_memory(
    client: Client,
) -> None:
    def look(share: Any) -> tuple[int, int, int]:
        share.take()
        return torch.get_num_threads(), scheduler._memory(1 << 60), scheduler._memory(1000)

    share = scheduler._Share.of(client, threads=None)
    assert share.tasks == scheduler.tasks_at_once(client) == 2
    threads, most, little = client.submit(look, share).result()
    worker = next(iter(client.scheduler_info()["workers"].values()))
    assert threads == max(1, CPU_COUNT // 2)
    assert most == worker["memory_limit"] // 2
    assert little == 1000
    assert scheduler._memory(5) == 5  # not on a worker
    alone, asked = scheduler._Share(1, None), scheduler._Share(1, 3)
    assert client.submit(look, alone).result()[0] == CPU_COUNT
    assert client.submit(look, asked).result()[0] == 3


def test_a_cluster_of_our_own_has_no_more_workers_than_tasks() -> None:
    assert scheduler._local_workers(None) == CPU_COUNT
    assert scheduler._local_workers(10**6) == CPU_COUNT
    assert scheduler._local_workers(1) == scheduler._local_workers(0) == 1


def test_models_are_loaded_once_a_worker(client: Client) -> None:
    def same() -> bool:
        weights = Weights("deep-gray", "cpu", "float32")
        return weights.model() is Weights("deep-gray", "cpu", "float32").model()

    assert client.submit(same).result()


def test_weights_travel_by_their_absolute_path_and_with_all_that_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.safetensors").touch()
    models = Models("own.safetensors", "cpu", "auto", shifts=4)
    there = Weights(str(tmp_path / "own.safetensors"), "cpu", "auto", 4)
    assert weights_of(models) == there
    assert weights_of(alike_everywhere(models)) == replace(there, precision="float32")
    chosen = Models(precision="bfloat16")
    assert weights_of(alike_everywhere(chosen)) == Weights(None, precision="bfloat16")
    assert weights_of(Models(load_model("deep-gray", device="cpu"))).name == "deep-gray"


# nelu denoise --dask


def test_the_command_works_on_a_cluster_by_its_address_or_file(
    nelu: Nelu, cluster: LocalCluster, tmp_path: Path
) -> None:
    pictures(tmp_path / "in", 3)
    address = cluster.scheduler_address
    command = ("denoise", tmp_path / "in", tmp_path / "out", "--dask")
    status, out, err = nelu(*command, address)
    assert (status, out) == (0, "")
    assert err.splitlines()[-1] == "3 done"
    assert len(err.splitlines()) == 4
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}), "utf-8")
    status, _, err = nelu(*command, file, "--skip-existing")
    assert (status, err.splitlines()[-1]) == (0, "3 skipped")


def test_the_command_can_have_a_cluster_of_its_own(nelu: Nelu, tmp_path: Path) -> None:
    source = save(tmp_path / "in.zarr", scene(64, 64), "yx", (64, 64))
    assert nelu("denoise", source, tmp_path / "out.zarr", "--dask", "local", "-q") == (0, "", "")
    assert load(tmp_path / "out.zarr").shape == (64, 64)


def test_nobody_there_is_one_line(nelu: Nelu, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(scheduler, "_PATIENCE", 1)
    (path,) = pictures(tmp_path / "in", 1)
    status, out, err = nelu(
        "denoise", path, tmp_path / "a.png", "--dask", "tcp://127.0.0.1:9", "-q"
    )
    assert (status, out) == (1, "")
    assert err == "nelu: tcp://127.0.0.1:9: no Dask scheduler answers there\n"
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, _, err = nelu("denoise", path, tmp_path / "a.png", "--dask", "local", "-q")
    assert status == 1
    assert err == "nelu: --dask needs more packages: pip install 'nelu-cli[dask]'\n"


def test_pipes_are_refused(client: Client, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--dask needs files, not standard input or output$"):
        list(denoise_files_on(client, [Job(None, tmp_path / "a.png")], Settings()))


def test_a_noise_map_is_not_dropped_without_a_word(client: Client, tmp_path: Path) -> None:
    job = Job(tmp_path / "a.png", tmp_path / "b.png", tmp_path / "map.png")
    with pytest.raises(UsageError, match=r"^--noise-map is for this machine; leave it out, or"):
        list(denoise_files_on(client, [job], Settings()))


def test_a_scheduler_that_dies_is_one_line_and_a_second_run_finishes(
    nelu: Nelu, tmp_path: Path
) -> None:
    paths = pictures(tmp_path / "in", 60, (120, 160))
    jobs = jobs_to(paths, tmp_path / "out")
    file = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    running = subprocess.Popen(
        [
            *(
                sys.executable,
                "-m",
                "distributed.cli.dask_scheduler",
                "--host",
                "tcp://127.0.0.1:0",
            ),
            *("--no-dashboard", "--scheduler-file", str(file)),
        ],
        **quiet,  # type: ignore[call-overload]
    )
    while not file.exists():
        assert running.poll() is None
        time.sleep(0.1)
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1"),
            *("--no-nanny", "--no-dashboard", "--death-timeout", "20"),
            *("--scheduler-file", str(file)),
        ],
        **quiet,  # type: ignore[call-overload]
    )
    try:
        with connected(str(file)) as client:
            records = denoise_files_on(client, jobs, Settings())
            first = [next(records) for _ in range(3)]
            running.kill()
            with pytest.raises(
                ClusterError, match=r"^the Dask scheduler is gone; what is finished"
            ):
                list(records)
    finally:
        for process in (worker, running):
            process.kill()
            process.wait()
    assert [record.status for record in first] == ["done"] * 3
    settings = replace(Settings(), skip_existing=True, options=Options())
    status = [record.status for record in denoise_files(jobs, settings)]
    assert len(status) == 60
    assert set(status) == {"done", "skipped"}
