"""``nelu denoise`` for pictures at URLs."""

import contextlib
from typing import TYPE_CHECKING

from nelu_cli.errors import UsageError

if TYPE_CHECKING:
    from nelu_cli.cli.reporting import Report
    from nelu_cli.files.settings import Settings
    from nelu_cli.runtime.models import Models


def denoise_urls(
    inputs: list[str],
    output: str,
    settings: "Settings",
    teller: "Report",
    models: "Models",
    *,
    dask: str | None,
    threads: int | None,
    hidden: bool,
) -> int:
    """Denoise a picture or a folder from or to a URL; return the exit status."""
    from nelu_cli.cli.reporting import file_progress
    from nelu_cli.cluster.scheduler import connected, transfer_all_on
    from nelu_cli.cluster.transfers import plan_transfers, transfer_all
    from nelu_cli.files.formats import PICTURES

    if settings.dry_run:
        raise UsageError("--dry-run is for files of this machine")
    transfers, others = plan_transfers(inputs, output, PICTURES, settings.rename)
    teller.outcome.total = len(transfers) + len(others.problems)
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(
            file_progress(len(transfers), console=teller.console, quiet=hidden)
        )
        for record in (*others.problems, *others.left_out):
            teller.add(record)
        if dask is None:
            records = transfer_all(transfers, settings, models, bar)
        else:
            client = stack.enter_context(connected(dask, len(transfers)))
            records = transfer_all_on(client, transfers, settings, models, bar, threads=threads)
        teller.add_all(records)
    teller.summarize()
    return teller.outcome.exit_code
