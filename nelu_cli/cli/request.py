"""What ``nelu denoise`` was asked to do, be it with files, URLs or an OME-Zarr image."""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nelu_cli.cli.reporting import Report, file_progress

if TYPE_CHECKING:
    from nelu_cli.files.plan import Plan
    from nelu_cli.files.queue import FileProgress
    from nelu_cli.files.records import Record
    from nelu_cli.files.settings import Settings
    from nelu_cli.runtime.models import Models


@dataclass(frozen=True)
class Request:
    """The same for every kind of input."""

    inputs: list[str]
    output: str
    settings: "Settings"
    models: "Models"
    teller: Report
    hidden: bool
    """Whether no progress is shown."""
    dask: str | None
    """Where a cluster is that does the work; none: it is done here."""
    threads: int | None

    def tell_all(
        self,
        others: "Plan",
        count: int,
        here: Callable[["FileProgress"], Generator["Record"]],
        on_cluster: Callable[[Any, "FileProgress"], Generator["Record"]],
    ) -> int:
        """Do ``count`` files and tell of each, and of ``others``; return the exit status."""
        from nelu_cli.cluster.scheduler import connected

        teller = self.teller
        with contextlib.ExitStack() as stack:
            bar = stack.enter_context(
                file_progress(count, console=teller.console, quiet=self.hidden)
            )
            for record in (*others.problems, *others.left_out):
                teller.add(record)
            if self.dask is None or self.settings.dry_run:
                records = here(bar)
            else:
                records = on_cluster(stack.enter_context(connected(self.dask, count)), bar)
            teller.add_all(records)
        teller.summarize()
        return teller.outcome.exit_code
