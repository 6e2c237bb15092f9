"""Clusters: files a second on 1 and 2 workers, a large OME-Zarr image, what 1000 machines need.

    python -m benchmarks.cluster                                 # all, about 5 minutes
    python -m benchmarks.cluster --only image --gb 20 --folder DISK

1. ``files``: synthetic grey PNGs through ``denoise_files_on`` on a LocalCluster of 1 and of 2
   worker processes, one thread for each task; the models are loaded before. Efficiency is the rate
   of 2 workers over twice that of 1.
2. ``tasks``: how many that do nothing a scheduler gets done in a second.
3. ``image``: an OME-Zarr of uint16 made chunk by chunk (waves and Poisson noise, chunks of
   1×1024×1024, two levels), then ``nelu denoise in.ome.zarr out.ome.zarr`` in a process of its own:
   seconds, and the peak of its memory. Up to ``--beside`` gigabytes, the same pixels as TIFF, too.
4. On paper: bytes that are read and written for each pixel of the image, and from the rates above
   what that means for 1000 machines.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import parser, picture, show
from nelu_cli.cluster.blocks import SIDE
from nelu_cli.files.plan import Job
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models, load_model

CHUNK = 1024
MODEL = "deep-gray"
DIFFERENT = 8  # chunks that are not alike


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
        models = Models(MODEL)
        list(denoise_files_on(client, jobs[: 4 * workers], settings, models, threads=1))  # warm
        start = time.perf_counter()
        records = list(denoise_files_on(client, jobs, settings, models, threads=1))
        seconds = time.perf_counter() - start
    assert all(record.status == "done" for record in records)
    return count / seconds


def make_volume(path: Path, gigabytes: float, side: int) -> int:
    """Write an OME-Zarr image of about that size, chunk by chunk; return its pixels."""
    import zarr

    side = min(side, max(64, round((gigabytes * 1e9 / 2) ** 0.5)))
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
            pool = _noisy_chunks(chunks[1])
            for count, (plane, top, left) in enumerate(
                np.ndindex(planes, -(-side // chunks[1]), -(-side // chunks[1]))
            ):
                rows, cols = (
                    slice(chunks[1] * k, min(side, chunks[1] * (k + 1))) for k in (top, left)
                )
                size = rows.stop - rows.start, cols.stop - cols.start
                array[plane, rows, cols] = pool[count % DIFFERENT][: size[0], : size[1]]
    axes = [{"name": name, "type": "space"} for name in "zyx"]
    image: Any = {"axes": axes, "datasets": scales}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [image]}
    return int(planes * side**2)


def _noisy_chunks(side: int) -> list[NDArray[np.uint16]]:
    """Waves that go on from chunk to chunk, with Poisson noise."""
    rng = np.random.default_rng(0)
    turns = 2 * np.pi * np.arange(side) / side
    light = 200 + 150 * np.sin(4 * turns) * np.sin(3 * turns)[:, None]
    return [rng.poisson(light).astype(np.uint16) for _ in range(DIFFERENT)]


def make_tiff(path: Path, volume: Path) -> None:
    """The planes of an OME-Zarr image as the pages of a TIFF."""
    import zarr

    array = zarr.open_array(volume / "0", mode="r")
    with tifffile.TiffWriter(path) as writer:
        for plane in range(array.shape[0]):
            writer.write(np.asarray(array[plane]), contiguous=False)


@dataclass(frozen=True)
class Taken:
    """What a command took."""

    seconds: float
    peak: int  # bytes of memory


def denoise(source: Path, target: Path) -> Taken:
    """Time and peak memory of ``nelu denoise`` in a process of its own."""
    command = [sys.executable, "-m", "nelu_cli", "denoise", "--quiet", "--model", MODEL]
    start = time.perf_counter()
    process = subprocess.Popen([*command, str(source), str(target)])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"nelu denoise ended with status {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Taken(time.perf_counter() - start, usage.ru_maxrss * unit)


def check_space(folder: Path, gigabytes: float, *, tiff: bool) -> None:
    """Stop now, in one line, if the disk is too small: in and out, each 5/4 with its pyramid."""
    needed = gigabytes * (2.5 + 2 * tiff) + 0.1
    free = shutil.disk_usage(folder).free / 1e9
    if free < needed:
        raise SystemExit(
            f"{folder}: {free:.1f} GB free, an image of {gigabytes:g} GB needs {needed:.1f}; "
            "name another place with --folder, or a smaller --gb"
        )


def large_image(gigabytes: float, folder: Path, side: int, beside: float) -> list[dict[str, Any]]:
    """What an OME-Zarr image of that size takes, and, if it is not too large, as TIFF."""
    tiff = gigabytes <= beside
    check_space(folder, gigabytes, tiff=tiff)
    source = folder / "in.ome.zarr"
    pixels = make_volume(source, gigabytes, side)
    zarr = denoise(source, folder / "out.ome.zarr")
    rows = [
        {"what": "large image, gigabytes", "value": 2 * pixels / 1e9},
        {"what": "large image, seconds", "value": zarr.seconds},
        {"what": "large image, peak memory in MiB", "value": zarr.peak / 2**20},
    ]
    if tiff:
        make_tiff(folder / "in.tif", source)
        same = denoise(folder / "in.tif", folder / "out.tif")
        rows += [
            {"what": "the same as TIFF, seconds", "value": same.seconds},
            {"what": "the same as TIFF, peak memory in MiB", "value": same.peak / 2**20},
            {"what": "OME-Zarr, in times of the TIFF", "value": zarr.seconds / same.seconds},
        ]
    return rows


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
    halo = load_model(MODEL, device="cpu", precision="float32").network.halo
    # First: Dask tells the processes that are started after its workers to use one thread.
    if "image" in chosen.only:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            rows += large_image(chosen.gb, Path(folder), chosen.plane, chosen.beside)
    if "files" in chosen.only:
        rates = {n: files_per_second(n, chosen.files, chosen.side) for n in (1, 2)}
        for workers, rate in rates.items():
            rows.append({"what": f"files a second, workers: {workers}", "value": rate})
        rows.append({"what": "efficiency of 2 workers", "value": rates[2] / (2 * rates[1])})
    if "tasks" in chosen.only:
        tasks = tasks_per_second(chosen.tasks)
        rows.append({"what": "tasks a second that do nothing", "value": tasks})
    moved = bytes_per_pixel(SIDE, halo, 2)
    rows.append({"what": "bytes moved for a pixel (uint16), at most", "value": moved})
    if "files" in chosen.only:
        per_core = rates[1] * chosen.side**2
        paper = estimate(chosen.machines, chosen.cores, per_core, halo)
        name = f"{chosen.machines} machines of {chosen.cores} cores"
        rows.append({"what": f"{name}: Mpx a second", "value": paper.pixels_per_second / 1e6})
        rows.append({"what": f"{name}: tasks a second", "value": paper.tasks_per_second})
        storage = paper.bytes_per_second / 1e9
        rows.append({"what": f"{name}: storage, GB a second", "value": storage})
    return rows


def main() -> None:
    options = parser(__doc__)
    parts = ("files", "tasks", "image")
    options.add_argument("--only", nargs="+", choices=parts, default=parts, help="what to measure")
    options.add_argument("--files", type=int, default=200, help="pictures of the folder")
    options.add_argument("--side", type=int, default=512, help="of these pictures")
    options.add_argument("--gb", type=float, default=0.2, help="gigabytes of the large image")
    options.add_argument("--plane", type=int, default=4096, help="pixels a side of its planes")
    options.add_argument("--beside", type=float, default=1.0, help="gigabytes, at most, of a TIFF")
    options.add_argument("--folder", type=Path, help="where to make it")
    options.add_argument("--tasks", type=int, default=5000)
    options.add_argument("--machines", type=int, default=1000, help="of the estimate")
    options.add_argument("--cores", type=int, default=32, help="of each")
    chosen = options.parse_args()
    show("clusters", run(chosen), chosen.json, {"what": "", "value": ",.2f"})


if __name__ == "__main__":
    main()
