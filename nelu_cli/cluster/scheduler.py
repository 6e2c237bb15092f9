"""Files and blocks on a Dask cluster. Retries, spilling and the dashboard are Dask's."""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nelu_cli.atomic import sweep
from nelu_cli.cluster.blocks import Block
from nelu_cli.cluster.places import place
from nelu_cli.cluster.transfers import Transfer, carry_out, decided
from nelu_cli.cluster.volumes import Volume, do_block
from nelu_cli.cluster.weights import Weights, weights_of
from nelu_cli.errors import ClusterError, NeluError, UsageError
from nelu_cli.files.plan import Job
from nelu_cli.files.queue import FileProgress
from nelu_cli.files.records import Record
from nelu_cli.files.settings import Settings
from nelu_cli.runtime.models import Models

LOCAL = "local"
_PATIENCE = 10  # seconds to wait for a scheduler
_SHARE = 0.5  # of a worker's memory for its tasks together; the rest is for pixels and Python


@contextlib.contextmanager
def connected(address: str, tasks: int | None = None) -> Iterator[Any]:
    """A client of the scheduler at an address, of that of a scheduler file, or of one of our own.

    Args:
        tasks: how many there are, if that is known: one of our own has no more workers.

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
                    n_workers=_local_workers(tasks),
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


def _local_workers(tasks: int | None) -> int:
    from dask.system import CPU_COUNT

    return CPU_COUNT if tasks is None else max(1, min(CPU_COUNT, tasks))


def _quieten() -> None:
    """What goes wrong is said in one line, by us."""
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def alike_everywhere(models: Models) -> Models:
    """The same models in float32 unless a precision was asked for.

    Then it does not matter which machine did a file or a block.
    """
    if models.precision != "auto":
        return models
    return Models(models.asked, models.device, "float32", models.shifts)


def tasks_at_once(client: Any) -> int:
    """How many tasks a cluster does at the same time."""
    return max(1, sum(_threads_of_hosts(client).values()))


def _threads_of_hosts(client: Any) -> Counter[str]:
    """How many tasks each machine does at the same time, all of its workers together."""
    threads: Counter[str] = Counter()
    for worker in client.scheduler_info(n_workers=-1)["workers"].values():
        threads[worker["host"]] += worker["nthreads"]
    return threads


@dataclass(frozen=True)
class _Share:
    """How much of a machine a task may take."""

    tasks: int
    """That the machine does at the same time; of several machines, the busiest."""
    threads: int | None
    """Asked for."""

    @classmethod
    def of(cls, client: Any, threads: int | None) -> "_Share":
        return cls(max(_threads_of_hosts(client).values(), default=1), threads)

    def take(self) -> None:
        """On the worker: let torch use as many threads."""
        from dask.system import CPU_COUNT

        torch.set_num_threads(self.threads or max(1, CPU_COUNT // self.tasks))


def denoise_files_on(
    client: Any,
    jobs: Sequence[Job],
    settings: Settings,
    models: Models | None = None,
    progress: FileProgress | None = None,
    *,
    threads: int | None = None,
) -> Generator[Record]:
    """Denoise files on the workers of a cluster; yield a record of each as it is finished.

    All machines must see the files under the same names. Whether results exist is looked up before
    the work begins, since a file whose worker died may be there already when it is done again.

    Args:
        threads: of a task; by default the cores of a machine are shared among the tasks on it.

    Raises:
        ClusterError: the scheduler is gone; what it had finished is finished.
    """
    transfers = []
    for job in jobs:
        if job.source is None or job.target is None:
            raise UsageError("--dask needs files, not standard input or output")
        if job.noise_map is not None:
            raise UsageError("--noise-map is for this machine; leave it out, or --dask")
        transfers.append(Transfer(place(job.source), place(job.target)))
    models = Models() if models is None else models
    yield from transfer_all_on(client, transfers, settings, models, progress, threads=threads)


def transfer_all_on(
    client: Any,
    transfers: Sequence[Transfer],
    settings: Settings,
    models: Models,
    progress: FileProgress | None = None,
    *,
    threads: int | None = None,
) -> Generator[Record]:
    """The same for files that may be at URLs."""
    from distributed import as_completed

    waiting = []
    for transfer in transfers:
        finished = decided(transfer, settings)
        if finished is None:
            waiting.append(transfer)
        else:
            yield finished
    if not waiting:
        return
    task = partial(
        _denoise,
        settings=replace(settings, force=True, skip_existing=False),
        weights=weights_of(alike_everywhere(models)),
        share=_Share.of(client, threads),
    )
    futures = dict(zip(client.map(task, waiting, pure=False), waiting, strict=True))
    with _cancelled_at_the_end(client, futures):
        for future in as_completed(list(futures), raise_errors=False):
            transfer = futures[future]
            record = _result(client, future, transfer)
            del futures[future]
            if progress is not None:
                progress(transfer, 0, 1)
                progress(transfer, 1, 1)
            yield record
    _sweep_after(waiting)


def blocks_on(
    client: Any, volume: Volume, blocks: Sequence[Block], *, threads: int | None = None
) -> Iterator[Block]:
    """Do the blocks of an OME-Zarr image on the workers of a cluster."""
    from distributed import as_completed

    if not blocks:
        return
    task = partial(_do_block, volume, share=_Share.of(client, threads))
    futures = dict(zip(client.map(task, blocks, pure=False), blocks, strict=True))
    with _cancelled_at_the_end(client, futures):
        for future in as_completed(list(futures), raise_errors=False):
            _value(client, future, f"{volume.source}, block {futures[future].name}")
            yield futures.pop(future)


@contextlib.contextmanager
def _cancelled_at_the_end(client: Any, futures: dict[Any, Any]) -> Iterator[None]:
    """Tell the cluster not to do what is left, if anything is."""
    try:
        yield
    finally:
        if futures:
            with contextlib.suppress(Exception):
                client.cancel(list(futures))


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


def _denoise(transfer: Transfer, settings: Settings, weights: Weights, share: _Share) -> Record:
    share.take()
    settings = replace(
        settings, options=replace(settings.options, memory=_memory(settings.options.memory))
    )
    return carry_out(transfer, settings, weights.models())


def _sweep_after(transfers: Sequence[Transfer]) -> None:
    """Remove what workers that died while they wrote have left beside these results."""
    names = defaultdict(list)
    for target in (transfer.target for transfer in transfers if not transfer.target.remote):
        names[Path(target.address).parent].append(target.name)
    for folder, finished in names.items():
        sweep(folder, finished)


def _do_block(volume: Volume, block: Block, share: _Share) -> Block:
    share.take()
    options = replace(volume.options, memory=_memory(volume.options.memory))
    return do_block(replace(volume, options=options), block)


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
