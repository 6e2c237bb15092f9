"""``nelu info``: what a picture file holds, and how noisy it is."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nelu_cli.cli.options import Device, JsonLines, MaxPixels, ModelName
from nelu_cli.cli.values import parse_count
from nelu_cli.errors import ImageError, UsageError
from nelu_cli.files.plan import STDIO, collect
from nelu_cli.files.records import Record
from nelu_cli.words import Precision

if TYPE_CHECKING:
    from nelu_cli.files.inspection import Inspection


def info(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Pictures, folders or patterns; - is standard input."),
    ],
    model: ModelName = None,
    device: Device = "auto",
    precision: Annotated[
        Precision,
        typer.Option(help="What to compute in. auto takes what is faster here."),
    ] = "auto",
    max_pixels: MaxPixels = "1G",
    json_lines: JsonLines = False,
) -> int:
    """Say what pictures hold: format, size, depth, metadata, noise. Writes nothing.

    The noise level is on the 0–255 scale; of large pictures it is measured on a sample.
    """
    from nelu_cli.cli.reporting import Report, stdout_console
    from nelu_cli.files.formats import PICTURES
    from nelu_cli.files.inspection import inspect_file
    from nelu_cli.runtime.models import Models

    limit = parse_count(max_pixels, "--max-pixels")
    if STDIO in files and len(files) > 1:
        raise UsageError("standard input (-) cannot be mixed with files")
    names: list[Path | None] = [None]
    problems: list[Record] = []
    if files != [STDIO]:
        found, problems = collect(files, PICTURES)
        names = [item.path for item in found]
    models = Models(model, device, precision)
    failed = [problem for problem in problems if problem.status == "failed"]
    report = Report(quiet=False, json_lines=json_lines, total=len(names) + len(failed))
    for name in names:
        try:
            seen = inspect_file(name, models, max_pixels=limit)
        except ImageError as error:
            source = STDIO if name is None else str(name)
            problems.append(Record(source, None, "failed", error=str(error)))
            continue
        report.outcome.done += 1
        if json_lines:
            print(json.dumps(seen.to_json()), flush=True)
        else:
            for line in _describe(seen):
                stdout_console().print(line)
    for problem in problems:
        report.add(problem)
    if report.outcome.left_out and report.outcome.done:
        report.console.print(str(report.outcome))
    return report.outcome.exit_code


def _describe(seen: "Inspection") -> list[str]:
    """A few lines for a person."""
    from nelu_cli.cli.reporting import noise_text, picture_text

    lines = [seen.input, f"  {seen.header.format}, {picture_text(seen.header)}"]
    if seen.metadata is None:
        lines.append("  animated: cannot be denoised; extract a frame first")
        return lines
    labels = {
        "profile": "colour profile: {}",
        "exif_bytes": "EXIF: {} bytes",
        "orientation": "orientation: {}",
        "xmp_bytes": "XMP: {} bytes",
        "dpi": "dots per inch: {}",
        "axes": "TIFF axes: {}",
        "bilevel": "one bit per pixel in the file",
        "cmyk": "inks: CMYK",
        "lossy": "compressed with losses",
    }
    said = [labels[key].format(value) for key, value in seen.metadata.items()]
    lines.append(f"  {', '.join(said) or 'no metadata'}")
    if seen.noise is not None and seen.noise_in_pixel_values is not None:
        noise = noise_text(seen.noise, seen.noise_in_pixel_values, str(seen.header.dtype))
        if seen.character is not None:
            noise = f"{seen.character.kind} {noise}"
            if seen.character.reach:
                far = seen.character.reach
                noise += f", correlated over {far} pixel{'s' if far > 1 else ''}"
            if seen.character.coupled:
                noise += ", alike in the channels"
        lines.append(f"  {noise} (by {seen.model} in {seen.precision})")
    else:
        lines.append("  noise not measured: no weights are bundled")
    return lines
