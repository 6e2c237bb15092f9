"""Clusters: files a second on 1 and 2 workers, a large OME-Zarr image, what 1000 machines need.

    python -m benchmarks.cluster --gigabytes 20

1. Files: synthetic grey PNGs through ``denoise_files_on`` on a LocalCluster of 1 and of 2 worker
   processes with one thread each; the models are loaded before. Efficiency is the rate of 2 workers
   over twice that of 1.
2. A large image: an OME-Zarr of uint16 made plane by plane (waves and Poisson noise, chunks of
   1×1024×1024, two levels), then ``nelu denoise in.ome.zarr out.ome.zarr`` in a process of its own:
   seconds, and the peak of its memory.
3. Tasks: how many that do nothing a scheduler gets done in a second.
4. On paper: bytes that are read and written for each pixel of the image, and from the rates above
   what that means for 1000 machines.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.common import parser, picture, show
from nelu_cli.cluster.volumes import SIDE
from nelu_cli.files.plan import Job
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import load_model

PLANE = 4096  # pixels a side of the large image
CHUNK = 1024
MODEL = "deep-gray"


def files_per_second(workers: int, count: int, side: int) -> float:
    """The rate of a folder of pictures on so many workers of one thread."""
    from distributed import Client, LocalCluster

    from nelu_cli.cluster.scheduler import denoise_files_on

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        image = Image.fromarray(picture(side * side / 1e6, 1)[..., 0]).resize((side, side))
        jobs = []
        for number in range(count):
            path = Path(folder, f"{number:05}.png")
            image.save(path)
            jobs.append(Job(path, Path(folder, "out", path.name)))
        settings = Settings(force=True, noise_level=False)
        list(denoise_files_on(client, jobs[: 4 * workers], settings, model=MODEL))  # warm
        start = time.perf_counter()
        records = list(denoise_files_on(client, jobs, settings, model=MODEL))
        seconds = time.perf_counter() - start
    assert all(record.status == "done" for record in records)
    return count / seconds


def make_volume(path: Path, gigabytes: float) -> int:
    """Write an OME-Zarr image of about that size; return its pixels."""
    import zarr

    side = min(PLANE, max(64, round((gigabytes * 1e9 / 2) ** 0.5)))
    planes = max(1, round(gigabytes * 1e9 / 2 / side**2))
    chunks = (1, min(CHUNK, side), min(CHUNK, side))
    group = zarr.open_group(path, mode="w")
    scales = []
    for level, factor in enumerate((1, 2)):
        array = group.create_array(
            str(level),
            shape=(planes, -(-side // factor), -(-side // factor)),
            chunks=chunks,
            dtype="uint16",
        )
        scale = [1.0, float(factor), float(factor)]
        scales.append(
            {"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]}
        )
        if level == 0:
            rng = np.random.default_rng(0)
            light = 200 + 150 * np.sin(np.arange(side) / 40) * np.sin(np.arange(side) / 60)[:, None]
            for plane in range(planes):
                array[plane] = rng.poisson(light).astype(np.uint16)
    axes = [{"name": name, "type": "space"} for name in "zyx"]
    image: Any = {"axes": axes, "datasets": scales}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [image]}
    return int(planes * side**2)


@dataclass(frozen=True)
class Large:
    """What a large image took."""

    pixels: int
    seconds: float
    peak: int  # bytes of memory


def large_image(gigabytes: float, folder: Path) -> Large:
    """Time and peak memory of ``nelu denoise`` on an OME-Zarr image of that size."""
    source, target = folder / "in.ome.zarr", folder / "out.ome.zarr"
    pixels = make_volume(source, gigabytes)
    command = [sys.executable, "-m", "nelu_cli", "denoise", "--quiet", "--model", MODEL]
    start = time.perf_counter()
    process = subprocess.Popen([*command, str(source), str(target)])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"nelu denoise ended with status {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Large(pixels, time.perf_counter() - start, usage.ru_maxrss * unit)


def tasks_per_second(count: int) -> float:
    """How many tasks that do nothing a scheduler with 2 workers gets done."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(_nothing, range(100), pure=False))
        start = time.perf_counter()
        client.gather(client.map(_nothing, range(count), pure=False))
        return count / (time.perf_counter() - start)


def _nothing(number: int) -> int:
    return number


def bytes_per_pixel(side: int, halo: int, itemsize: int) -> float:
    """Uncompressed bytes read and written for a pixel of an image of two levels.

    A block of side² is read with its halo and written; then a level of a quarter of the pixels is
    made of it, which reads the clean pixels once more.
    """
    read = (side + 2 * halo) ** 2 / side**2
    return itemsize * (read + 1 + 1 + 1 / 4)


@dataclass(frozen=True)
class Estimate:
    """What many machines need, on paper."""

    pixels_per_second: float
    tasks_per_second: float
    bytes_per_second: float


def estimate(machines: int, cores: int, pixels_per_core: float, halo: int) -> Estimate:
    """Machines whose every core cleans so many pixels a second, in blocks of an OME-Zarr image."""
    pixels = machines * cores * pixels_per_core
    return Estimate(pixels, pixels / SIDE**2, pixels * bytes_per_pixel(SIDE, halo, 2))


def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    rates = {n: files_per_second(n, chosen.files, chosen.side) for n in (1, 2)}
    for workers, rate in rates.items():
        rows.append({"what": f"files a second, workers: {workers}", "value": rate})
    rows.append({"what": "efficiency of 2 workers", "value": rates[2] / (2 * rates[1])})
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        large = large_image(chosen.gigabytes, Path(folder))
    rows.append({"what": "large image, gigabytes", "value": 2 * large.pixels / 1e9})
    rows.append({"what": "large image, seconds", "value": large.seconds})
    rows.append({"what": "large image, peak memory in MiB", "value": large.peak / 2**20})
    tasks = tasks_per_second(chosen.tasks)
    rows.append({"what": "tasks a second that do nothing", "value": tasks})
    halo = load_model(MODEL, device="cpu", precision="float32").network.halo
    moved = bytes_per_pixel(SIDE, halo, 2)
    rows.append({"what": "bytes moved for a pixel (uint16)", "value": moved})
    per_core = rates[1] * chosen.side**2
    paper = estimate(chosen.machines, chosen.cores, per_core, halo)
    name = f"{chosen.machines} machines of {chosen.cores} cores"
    rows.append({"what": f"{name}: Mpx a second", "value": paper.pixels_per_second / 1e6})
    rows.append({"what": f"{name}: tasks a second", "value": paper.tasks_per_second})
    rows.append({"what": f"{name}: storage, GB a second", "value": paper.bytes_per_second / 1e9})
    return rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--files", type=int, default=200, help="pictures of the folder")
    options.add_argument("--side", type=int, default=512, help="of these pictures")
    options.add_argument("--gigabytes", type=float, default=1.0, help="of the large image")
    options.add_argument("--folder", type=Path, help="where to make it; twice its size is needed")
    options.add_argument("--tasks", type=int, default=5000)
    options.add_argument("--machines", type=int, default=1000, help="of the estimate")
    options.add_argument("--cores", type=int, default=32, help="of each")
    chosen = options.parse_args()
    show("clusters", run(chosen), chosen.json, {"what": "", "value": ",.2f"})


if __name__ == "__main__":
    main()
