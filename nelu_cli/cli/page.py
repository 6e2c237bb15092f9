"""The page of ``nelu compare`` and ``nelu denoise --report``: what goes onto it, and where to."""

from pathlib import Path
from typing import TYPE_CHECKING

from nelu_cli.errors import ImageError, NeluError, UsageError
from nelu_cli.files.records import Record

if TYPE_CHECKING:
    from nelu_cli.files.plan import Job
    from nelu_cli.pages import Entry, Looks


def check_page(page: Path, taken: list[Path], *, force: bool) -> None:
    """Refuse a page that would be no page, or replace something unasked."""
    if page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{page}: a page is an HTML file; let its name end in .html")
    if page.is_dir():
        raise ImageError(f"{page}: is a folder, where a page should be written")
    if any(page.exists() and path.exists() and page.samefile(path) for path in taken):
        raise UsageError(f"{page}: the page needs a name of its own")
    if page.exists() and not force:
        raise ImageError(f"{page}: exists already; --force replaces it")


def check_report(page: Path, jobs: list["Job"], *, force: bool) -> None:
    """Refuse a report on what cannot be read again, before any work."""
    check_page(
        page, [path for job in jobs for path in (job.source, job.target) if path], force=force
    )
    for job in jobs:
        if job.source is None or job.target is None:
            raise UsageError("--report needs files, not standard input or output")
        if job.target.exists() and job.source.exists() and job.target.samefile(job.source):
            raise UsageError(f"{job.source}: --report needs it before and after; keep both")


def looks_of(first: Path, second: Path, limit: int, budget: int) -> "Looks":
    """What there is to see of a picture before and after."""
    import nelu_cli.files.formats  # noqa: F401 (RAW files can be read, too)
    from nelu_cli import images
    from nelu_cli.images.convert import developed
    from nelu_cli.images.picture import Refusal
    from nelu_cli.pages import look_at

    before, after = (developed(images.read(path, max_pixels=limit)) for path in (first, second))
    try:
        return look_at(before, after, budget)
    except Refusal as error:
        raise ImageError(f"{second}: {error}") from error


class PageReport:
    """Collects what ``nelu denoise`` says of each file, with its looks; then writes the page."""

    def __init__(self, page: Path, pictures: int, max_pixels: int) -> None:
        from nelu_cli.pages import picture_budget

        self.page = page
        self.max_pixels = max_pixels
        self.budget = picture_budget(pictures)
        self.entries: list[Entry] = []

    def add(self, record: Record) -> None:
        """One more file: read it again, before and after."""
        from nelu_cli.cli.reporting import noise_text, picture_text
        from nelu_cli.pages import Entry

        problem, looks, noise = record.error or "", None, ""
        if record.status in ("done", "skipped") and record.output is not None:
            files = Path(record.input), Path(record.output)
            try:
                looks = looks_of(*files, self.max_pixels, self.budget)
            except NeluError as error:
                problem = str(error)
        header = record.header
        if header and record.noise is not None and record.noise_in_pixel_values is not None:
            noise = noise_text(record.noise, record.noise_in_pixel_values, str(header.dtype))
        self.entries.append(
            Entry(
                record.input,
                result=record.output or "",
                picture=picture_text(header) if header else "",
                noise=noise,
                model=record.model or ("existed already" if record.status == "skipped" else ""),
                seconds=record.seconds,
                problem=problem,
                looks=looks,
            )
        )

    def write(self) -> str:
        """Write the page; return a line about it."""
        return write_report(self.page, "Before and after", self.entries)


def write_report(page: Path, title: str, entries: list["Entry"]) -> str:
    """Write a page; return a line about it."""
    from nelu_cli.pages import write_page

    page.parent.mkdir(parents=True, exist_ok=True)
    write_page(page, title, entries)
    shown = sum(entry.looks is not None for entry in entries)
    return f"{page}: {shown} of {len(entries)} pictures, {page.stat().st_size / 1e6:.1f} MB"
