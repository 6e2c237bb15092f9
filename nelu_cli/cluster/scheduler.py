"""Files and blocks on a Dask cluster. Retries, spilling and the dashboard are Dask's."""

import contextlib
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from nelu_cli.cluster.places import place
from nelu_cli.cluster.transfers import Transfer, carry_out, decided
from nelu_cli.cluster.volumes import Block, Volume, do_block
from nelu_cli.errors import ClusterError, NeluError, UsageError
from nelu_cli.files.plan import Job
from nelu_cli.files.queue import FileProgress
from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models
from nelu_cli.runtime.precision import Precision

__all__ = ["LOCAL", "blocks_on", "connected", "denoise_files_on", "transfer_all_on"]

LOCAL = "local"
_PATIENCE = 10  # seconds to wait for a scheduler
_SHARE = 0.5  # of a worker's memory for its tasks together; the rest is for pixels and Python


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address, of that of a scheduler file, or of one of our own.

    Raises:
        ClusterError: Dask is not installed, or nobody answers.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ClusterError("--dask needs more packages: pip install 'nelu-cli[dask]'") from None
    with contextlib.ExitStack() as stack:
        _quieten()
        if address == LOCAL:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=os.cpu_count(),
                    threads_per_worker=1,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            )
            yield stack.enter_context(Client(cluster))
            return
        try:
            if Path(address).is_file():
                client = Client(scheduler_file=address, timeout=_PATIENCE)
            else:
                client = Client(address, timeout=_PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(f"{address}: no Dask scheduler answers there") from error
        stack.callback(client.close, timeout=2)
        yield client


def _quieten() -> None:
    """What goes wrong is said in one line, by us."""
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def denoise_files_on(
    client: Any,
    jobs: Sequence[Job],
    settings: Settings,
    *,
    model: str | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    progress: FileProgress | None = None,
) -> Generator[Record]:
    """Denoise files on the workers of a cluster; yield a record of each as it is finished.

    All machines must see the files under the same names. ``precision`` "auto" is float32 here, so
    that it does not matter which machine did a file. Whether results exist is looked up before
    the work begins, since a file whose worker died may be there already when it is done again.

    Raises:
        ClusterError: the scheduler is gone; what it had finished is finished.
    """
    transfers = []
    for job in jobs:
        if job.source is None or job.target is None:
            raise UsageError("--dask needs files, not standard input or output")
        transfers.append(Transfer(place(job.source), place(job.target)))
    models = Models(model, device, precision)
    yield from transfer_all_on(client, transfers, settings, models, progress)


def transfer_all_on(
    client: Any,
    transfers: Sequence[Transfer],
    settings: Settings,
    models: Models,
    progress: FileProgress | None = None,
) -> Generator[Record]:
    """The same for files that may be at URLs."""
    from distributed import as_completed

    # The workers may have another folder in front of them.
    model = None if models.asked is None else str(models.asked)
    model = str(Path(model).resolve()) if model is not None and Path(model).is_file() else model
    exactness: Precision = "float32" if models.precision == "auto" else models.precision
    again = replace(settings, force=True, skip_existing=False)
    futures: dict[Any, Transfer] = {}
    for transfer in transfers:
        finished = decided(transfer, settings)
        if finished is not None:
            yield finished
            continue
        task = client.submit(_denoise, transfer, again, model, models.device, exactness, pure=False)
        futures[task] = transfer
    waiting = set(futures)
    try:
        for task in as_completed(list(futures), raise_errors=False):
            waiting.discard(task)
            record = _result(client, task, futures[task])
            if progress is not None:
                progress(futures[task], 0, 1)
                progress(futures[task], 1, 1)
            yield record
    finally:
        if waiting:
            with contextlib.suppress(Exception):
                client.cancel(list(waiting))


def blocks_on(client: Any, volume: Volume, blocks: Sequence[Block]) -> Iterator[Block]:
    """Do the blocks of an OME-Zarr image on the workers of a cluster."""
    from distributed import as_completed

    tasks = {client.submit(_do_block, volume, block, pure=False): block for block in blocks}
    try:
        for task in as_completed(list(tasks), raise_errors=False):
            _value(client, task, f"{volume.source}, block {tasks[task].name}")
            yield tasks.pop(task)
    finally:
        if tasks:
            with contextlib.suppress(Exception):
                client.cancel(list(tasks))


def _result(client: Any, task: Any, job: Transfer) -> Record:
    """The record of a finished task."""
    try:
        value = _value(client, task, job.source_name)
    except ClusterError:
        raise
    except NeluError as error:
        return Record(job.source_name, job.target_name, "failed", error=str(error))
    assert isinstance(value, Record)
    return value


def _value(client: Any, task: Any, name: str) -> object:
    """What a task gave; raise what went wrong with it or with the cluster."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        return task.result(timeout=_PATIENCE)
    except NeluError:
        raise
    except KilledWorker as error:
        raise NeluError(f"{name}: workers died of it again and again; lower --memory") from error
    except (CancelledError, CommClosedError, TimeoutError, OSError) as error:
        raise ClusterError(
            "the Dask scheduler is gone; what is finished is there, "
            "run again with --skip-existing for the rest"
        ) from error


# On the workers


def _denoise(
    transfer: Transfer, settings: Settings, model: str | None, device: str, precision: Precision
) -> Record:
    _prepare_worker()
    settings = replace(
        settings, options=replace(settings.options, memory=_memory(settings.options.memory))
    )
    return carry_out(transfer, settings, _models(model, device, precision))


def _do_block(volume: Volume, block: Block) -> Block:
    _prepare_worker()
    options = replace(volume.options, memory=_memory(volume.options.memory))
    return do_block(replace(volume, options=options), block)


@cache
def _models(model: str | None, device: str, precision: Precision) -> Models:
    """Loaded once a worker."""
    return Models(model, device, precision)


def _prepare_worker() -> None:
    """A task has one thread: a worker runs as many tasks as it has threads."""
    torch.set_num_threads(1)


def _memory(asked: int) -> int:
    """The share of a task in its worker's memory, if that is less than what was asked for."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return asked
    limit = worker.memory_manager.memory_limit
    threads = worker.state.nthreads
    return min(asked, int(limit * _SHARE / threads)) if limit else asked
