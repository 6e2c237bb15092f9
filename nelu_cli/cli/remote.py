"""``nelu denoise`` for pictures at URLs."""

from nelu_cli.cli.request import Request
from nelu_cli.errors import UsageError


def denoise_urls(request: Request) -> int:
    """Denoise a picture or a folder from or to a URL; return the exit status."""
    from nelu_cli.cluster.scheduler import transfer_all_on
    from nelu_cli.cluster.transfers import plan_transfers, transfer_all
    from nelu_cli.files.formats import PICTURES

    settings, models, threads = request.settings, request.models, request.threads
    if settings.dry_run:
        raise UsageError("--dry-run is for files of this machine")
    transfers, others = plan_transfers(request.inputs, request.output, PICTURES, settings.rename)
    request.teller.outcome.total = len(transfers) + len(others.problems)
    return request.tell_all(
        others,
        len(transfers),
        lambda bar: transfer_all(transfers, settings, models, bar),
        lambda client, bar: transfer_all_on(
            client, transfers, settings, models, bar, threads=threads
        ),
    )
