"""``nelu denoise`` for OME-Zarr images."""

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING

from nelu_cli.errors import UsageError
from nelu_cli.stopping import stopped_by

if TYPE_CHECKING:
    from nelu_cli.cli.reporting import Report
    from nelu_cli.files.settings import Settings
    from nelu_cli.runtime.precision import Precision


def denoise_zarr(
    inputs: list[str],
    output: str,
    settings: "Settings",
    teller: "Report",
    *,
    plane: str,
    model: str | None,
    device: str,
    precision: "Precision",
    dask: str | None,
    hidden: bool,
) -> int:
    """Denoise one image; return the exit status."""
    from nelu_cli.cli.reporting import progress
    from nelu_cli.cluster.places import is_url
    from nelu_cli.cluster.scheduler import blocks_on, connected
    from nelu_cli.cluster.volumes import denoise_volume, one_after_the_other

    source, target = inputs[0].rstrip("/"), output.rstrip("/")
    if len(inputs) > 1:
        raise UsageError("an OME-Zarr image is denoised by itself; give one input")
    if not target.lower().endswith(".zarr"):
        raise UsageError(f"{output}: an OME-Zarr image becomes another; let its name end in .zarr")
    if source == target or os.path.realpath(source) == os.path.realpath(target):
        raise UsageError(f"{output}: the result needs a name of its own")
    if settings.dry_run:
        raise UsageError(
            "--dry-run is for files; an OME-Zarr image can be stopped and gone on with"
        )
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(progress(source, 1, quiet=hidden))
        shown = 0.0

        def step(done: int, total: int) -> None:
            nonlocal shown
            advance(done / total - shown, f"{source} {done}/{total}")
            shown = done / total

        run = one_after_the_other
        if dask is not None:
            run = partial(blocks_on, stack.enter_context(connected(dask)))
        try:
            record = denoise_volume(
                source,
                target,
                plane=plane,
                options=settings.options,
                model=model,
                device=device,
                precision=precision,
                force=settings.force,
                skip_existing=settings.skip_existing,
                run=run,
                progress=step,
            )
        except KeyboardInterrupt as stop:
            teller.outcome.stopped_by = stopped_by(stop)
            rest = target if is_url(target) else f"{target}.part"
            teller.console.print(f"interrupted; the same command goes on from {rest}")
            return teller.outcome.exit_code
    teller.add(record)
    return teller.outcome.exit_code
