"""``nelu denoise`` for OME-Zarr images."""

import contextlib
import os
from functools import partial

from nelu_cli.cli.reporting import progress
from nelu_cli.cli.request import Request
from nelu_cli.errors import UsageError
from nelu_cli.stopping import stopped_by


def denoise_zarr(request: Request, plane: str) -> int:
    """Denoise one image, of whose axes two make a picture; return the exit status."""
    from nelu_cli.cluster.places import is_url
    from nelu_cli.cluster.scheduler import alike_everywhere, blocks_on, connected, tasks_at_once
    from nelu_cli.cluster.volumes import denoise_volume, one_after_the_other

    settings, models, teller = request.settings, request.models, request.teller
    source, target = request.inputs[0].rstrip("/"), request.output.rstrip("/")
    if len(request.inputs) > 1:
        raise UsageError("an OME-Zarr image is denoised by itself; give one input")
    if not target.lower().endswith(".zarr"):
        raise UsageError(
            f"{request.output}: an OME-Zarr image becomes another; let its name end in .zarr"
        )
    if source == target or os.path.realpath(source) == os.path.realpath(target):
        raise UsageError(f"{request.output}: the result needs a name of its own")
    if settings.dry_run:
        raise UsageError(
            "--dry-run is for files; an OME-Zarr image can be stopped and gone on with"
        )
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(progress(source, 1, quiet=request.hidden))
        shown = 0.0

        def step(done: int, total: int) -> None:
            nonlocal shown
            advance(done / total - shown, f"{source} {done}/{total}")
            shown = done / total

        run, at_once = one_after_the_other, 1
        if request.dask is not None:
            client = stack.enter_context(connected(request.dask))
            run = partial(blocks_on, client, threads=request.threads)
            at_once = tasks_at_once(client)
            models = alike_everywhere(models)
        try:
            record = denoise_volume(
                source,
                target,
                plane=plane,
                options=settings.options,
                models=models,
                force=settings.force,
                skip_existing=settings.skip_existing,
                run=run,
                at_once=at_once,
                progress=step,
            )
        except KeyboardInterrupt as stop:
            teller.outcome.stopped_by = stopped_by(stop)
            rest = target if is_url(target) else f"{target}.part"
            teller.console.print(f"interrupted; the same command goes on from {rest}")
            return teller.outcome.exit_code
    teller.add(record)
    return teller.outcome.exit_code
