"""``nelu denoise``: pictures in, clean pictures out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nelu_cli.cli.options import Device, JsonLines, MaxPixels, ModelName, Quiet, Threads
from nelu_cli.cli.values import parse_bytes, parse_count, parse_quality
from nelu_cli.errors import UsageError
from nelu_cli.files.plan import STDIO
from nelu_cli.words import Colour, Nan, Precision

if TYPE_CHECKING:
    from nelu_cli.runtime.models import Models


def denoise(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT... [OUTPUT]",
            help="Pictures, folders (with all that is in them) or patterns; - is standard input. "
            "The last name is where the result goes: a file for one picture, a folder for several; "
            "- is standard output. With a single name, photo.jpg becomes photo-denoised.jpg.",
        ),
    ],
    model: ModelName = None,
    strength: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="How much of the noise to take out. 0 leaves the picture as it is; "
            "less than 1 leaves some grain.",
        ),
    ] = 1.0,
    luma: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="How much of the noise in brightness, times the strength. Less leaves some grain.",
        ),
    ] = 1.0,
    chroma: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="How much of the noise in colour, times the strength; for colour pictures. "
            "Default: 1.",
        ),
    ] = None,
    quality: Annotated[
        str,
        typer.Option(
            metavar="normal|best",
            help="normal looks at the picture once; best looks at it flipped and turned too and "
            "takes the mean of the eight: a little better, eight times slower.",
        ),
    ] = "normal",
    shifts: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Average over N shifts of the model's grid, one pass each. Three pictures of "
            "set12, σ = 25: 2, 4 and 8 shifts gained deep-gray 0.02, 0.04 and 0.05 dB. The paper "
            "models take all 64 in one pass by default; fewer cost them (16: 1.4 dB).",
        ),
    ] = None,
    noise_map: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            help="Also draw how noisy the picture was, place by place (one picture only).",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="PAGE.html",
            help="Also make a page to look at: before and after of every picture.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="png|jpeg|tiff|...",
            help="File format of the result. Default: by its name, else as the input.",
        ),
    ] = None,
    color: Annotated[
        Colour,
        typer.Option(help="The colour space that RAW files are developed to."),
    ] = "srgb",
    dtype: Annotated[
        Literal["float32", "bilevel"] | None,
        typer.Option(
            help="Type of the result: float32 keeps fractions, of photon counts for example (TIFF "
            "and OpenEXR can hold them); bilevel is black and white, one bit per pixel, of scanned "
            "text for example. Default: as the input, but 8 bits for one."
        ),
    ] = None,
    nan: Annotated[
        Nan,
        typer.Option(
            help="Pixels without a value (NaN, infinity): keep leaves them as they are and cleans "
            "around them, refuse refuses the picture."
        ),
    ] = "keep",
    strip: Annotated[
        bool,
        typer.Option("--strip", help="Leave out metadata, but for the colour profile."),
    ] = False,
    allow_depth_loss: Annotated[
        bool,
        typer.Option(
            "--allow-depth-loss",
            help="Write even if the format keeps fewer bits (16-bit to JPEG, say).",
        ),
    ] = False,
    salvage: Annotated[
        bool,
        typer.Option(
            "--salvage",
            help="Of damaged files, or those that hold more than can be kept, take what there is, "
            "and say what is missing.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            "-f",
            help="Replace existing files, also the input itself. Further hard links to a file keep "
            "what was in it.",
        ),
    ] = False,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Leave out pictures whose result exists.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be done; write nothing.")
    ] = False,
    device: Device = "auto",
    precision: Annotated[
        Precision,
        typer.Option(
            help="What to compute in. auto takes bfloat16 where the processor is faster in it and "
            "nobody could see it."
        ),
    ] = "auto",
    threads: Threads = None,
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Ceiling for the working memory beside the pictures themselves, as 512M or 2G; "
            "large pictures are done in pieces that fit, without seams.",
        ),
    ] = "1G",
    max_pixels: MaxPixels = "1G",
    plane: Annotated[
        str,
        typer.Option(
            metavar="AXES", help="Of OME-Zarr images: the two axes that make a picture, as zx."
        ),
    ] = "yx",
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS|FILE|local",
            help="Let a Dask cluster do it: its scheduler's address or file, or one of our own.",
        ),
    ] = None,
    quiet: Quiet = False,
    json_lines: JsonLines = False,
) -> int:
    """Clean noisy pictures. Nobody has to say how noisy they are.

    nelu denoise photo.jpg

    nelu denoise noisy.png clean.png

    nelu denoise photos/ clean/ --report page.html

    cat noisy.png | nelu denoise - - > clean.png

    Depth, transparency and metadata are kept. Existing files are not replaced unless you say so.
    """
    from nelu_cli.cli.large import denoise_zarr
    from nelu_cli.cli.page import PageReport, check_report
    from nelu_cli.cli.remote import denoise_urls
    from nelu_cli.cli.reporting import Report
    from nelu_cli.cli.request import Request
    from nelu_cli.cluster.ome import is_zarr
    from nelu_cli.cluster.places import is_url, place
    from nelu_cli.cluster.scheduler import denoise_files_on
    from nelu_cli.files.formats import PICTURES
    from nelu_cli.files.plan import default_output, plan_jobs
    from nelu_cli.files.queue import denoise_files
    from nelu_cli.files.settings import Settings, format_named
    from nelu_cli.runtime.options import Options

    settings = Settings(
        options=Options(
            strength=strength,
            luma=luma,
            chroma=chroma,
            dtype=None if dtype == "bilevel" else dtype,
            nan=nan,
            quality=parse_quality(quality),
            memory=parse_bytes(memory, "--memory"),
        ),
        max_pixels=parse_count(max_pixels, "--max-pixels"),
        format=None if format is None else format_named(format),
        salvage=salvage,
        strip=strip,
        allow_depth_loss=allow_depth_loss,
        force=force,
        skip_existing=skip_existing,
        dry_run=dry_run,
        noise_level=json_lines or not quiet,
        bilevel=dtype == "bilevel",
        colour=color,
    )
    inputs, output = files[:-1] or files, files[-1]
    if len(files) == 1:
        if is_url(output):
            raise UsageError(f"{output}: say where the result goes; name it last")
        output = default_output(output, settings.rename)
    _check_streams(inputs, output, dry_run=dry_run, json_lines=json_lines)

    def request(total: int, page: PageReport | None = None) -> Request:
        return Request(
            inputs,
            output,
            settings,
            _prepare(model, device, precision, threads, shifts),
            Report(quiet=quiet, json_lines=json_lines, total=total, page=page),
            hidden=quiet or dry_run or (json_lines and sys.stdout.isatty()),
            dask=dask,
            threads=threads,
        )

    if any(is_zarr(place(name)) for name in inputs if name != STDIO):
        if settings.bilevel or noise_map is not None or report is not None:
            raise UsageError(
                "--dtype bilevel, --noise-map and --report are for picture files, not for OME-Zarr"
            )
        return denoise_zarr(request(total=1), plane)
    if any(is_url(name) for name in files):
        _refuse_with_urls(noise_map, report, STDIO in files)
        return denoise_urls(request(total=0))
    plan = plan_jobs(inputs, output, PICTURES, settings.rename)
    if noise_map is not None:
        plan = plan.with_noise_map(noise_map, force=force)
    page = None
    if report is not None:
        check_report(report, plan.jobs, force=force)
        page = None if dry_run else PageReport(report, len(plan.jobs), settings.max_pixels)
    asked = request(plan.total, page)
    return asked.tell_all(
        plan,
        len(plan.jobs),
        lambda bar: denoise_files(plan.jobs, settings, asked.models, bar),
        lambda client, bar: denoise_files_on(
            client, plan.jobs, settings, asked.models, bar, threads=threads
        ),
    )


def _refuse_with_urls(noise_map: Path | None, report: Path | None, stdio: bool) -> None:
    """What is for files of this machine alone."""
    if noise_map is not None or report is not None or stdio:
        raise UsageError("--noise-map, --report and - are for files of this machine, not for URLs")


def _check_streams(inputs: list[str], output: str, *, dry_run: bool, json_lines: bool) -> None:
    """Refuse pictures from and to a terminal, and two things on standard output."""
    if output == STDIO and not dry_run:
        if json_lines:
            raise UsageError("--json and the picture cannot both go to standard output")
        if sys.stdout.isatty():
            raise UsageError("a picture is not written to a terminal; name a file or use a pipe")
    if STDIO in inputs and sys.stdin.isatty():
        raise UsageError("standard input is a terminal; pipe a picture in or name a file")


def _prepare(
    model: str | None,
    device: str,
    precision: Precision,
    threads: int | None,
    shifts: int | None,
) -> "Models":
    """The models to choose from; raise now what would otherwise be said of every picture."""
    import torch

    from nelu_cli.runtime.allocator import keep_freed_memory
    from nelu_cli.runtime.models import Models

    if threads is not None:
        torch.set_num_threads(threads)
    keep_freed_memory()
    models = Models(model, device, precision, shifts)
    models.check()
    return models
