"""``nelu compare``: a page to look at, before and after side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nelu_cli.cli.options import MaxPixels, Quiet
from nelu_cli.cli.page import check_page, looks_of, write_report
from nelu_cli.cli.values import parse_count
from nelu_cli.errors import ImageError, NeluError, UsageError

if TYPE_CHECKING:
    from nelu_cli.images import Picture
    from nelu_cli.pages import Entry


def compare(
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="The noisy picture, or a folder of them.")
    ],
    after: Annotated[
        Path,
        typer.Argument(metavar="AFTER", help="The clean picture, or a folder with the same names."),
    ],
    page: Annotated[Path, typer.Argument(metavar="PAGE.html", help="The page to write.")],
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an existing page.")] = False,
    max_pixels: MaxPixels = "1G",
    quiet: Quiet = False,
) -> int:
    """Make a page to look at: before and after under a slider.

    nelu compare noisy.jpg clean.jpg page.html

    nelu compare photos/ clean/ page.html

    The page is one file that needs no network, with zoom, the removed noise and a noise map. Of
    large pictures it holds an overview, the busiest and the flattest place; a page of 50 pictures
    stays below 20 MB.
    """
    limit = parse_count(max_pixels, "--max-pixels")
    check_page(page, [before, after], force=force)

    from nelu_cli.cli.reporting import progress, stderr_console
    from nelu_cli.pages import Entry, picture_budget

    pairs, problems = _pairs(before, after)
    console = stderr_console()
    failed = [str(problem) for problem in problems]
    entries: list[Entry] = []
    budget = picture_budget(len(pairs))
    with progress("", len(pairs), console=console, quiet=quiet) as advance:
        for name, first, second in pairs:
            advance(0, name)
            try:
                entries.append(_compare(name, first, second, limit, budget))
            except NeluError as error:
                failed.append(str(error))
                entries.append(Entry(name, problem=str(error)))
            advance()
    entries += [Entry(str(problem).split(": ")[0], problem=str(problem)) for problem in problems]
    for message in failed:
        console.print(f"nelu: {message}", style="red")
    if not any(entry.looks for entry in entries):
        raise ImageError(f"{page}: not written, there is nothing to show")
    written = write_report(page, f"{before.name} and {after.name}", entries)
    if not quiet:
        console.print(written)
    return 1 if failed else 0


def _pairs(before: Path, after: Path) -> tuple[list[tuple[str, Path, Path]], list[NeluError]]:
    """Name and files of each pair; and what is left over in either folder.

    Files of folders belong together if they have the same name, or the same but for the extension.
    """
    from nelu_cli.files.formats import PICTURES
    from nelu_cli.files.plan import collect

    if before.is_dir() != after.is_dir() and before.exists() and after.exists():
        raise UsageError(f"{before} and {after}: give two pictures or two folders")
    if not before.is_dir():
        return [(before.name, before, after)], []
    problems: list[NeluError] = []
    found: list[dict[Path, Path]] = []
    for folder in (before, after):
        items, closed = collect([str(folder)], PICTURES)
        problems += [ImageError(str(record.error)) for record in closed]
        found.append({item.name: item.path for item in items})
    bare: dict[Path, Path] = {}
    for name, path in found[1].items():
        bare.setdefault(name.with_suffix(""), path)
    pairs: list[tuple[str, Path, Path]] = []
    for name, path in found[0].items():
        partner = found[1].get(name) or bare.get(name.with_suffix(""))
        if partner is None:
            problems.append(ImageError(f"{path}: nothing of that name in {after}"))
        else:
            pairs.append((str(name), path, partner))
    used = {partner for _, _, partner in pairs}
    problems += [
        ImageError(f"{path}: nothing of that name in {before}")
        for path in found[1].values()
        if path not in used
    ]
    return pairs, problems


def _compare(name: str, first: Path, second: Path, limit: int, budget: int) -> "Entry":
    from nelu_cli import images
    from nelu_cli.cli.reporting import picture_text
    from nelu_cli.pages import Entry

    looks = looks_of(first, second, limit, budget)
    header = images.probe(first, max_pixels=limit)
    noise = _noise(images.read(first, max_pixels=limit))
    return Entry(name, str(second), picture_text(header), noise, looks=looks)


def _noise(picture: "Picture") -> str:
    """How noisy the picture is, by the model that would clean it."""
    from nelu_cli.cli.reporting import noise_text
    from nelu_cli.runtime.choice import choose_model
    from nelu_cli.runtime.models import default_models
    from nelu_cli.runtime.noise_level import estimate_noise

    try:
        noise = estimate_noise(picture.pixels, choose_model(picture.pixels, default_models()).model)
    except NeluError:
        return ""
    return noise_text(noise * 255 / picture.white, noise, str(picture.pixels.dtype))
