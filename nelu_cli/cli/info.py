"""``nelu info``: what a picture file holds, and how noisy it is."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nelu_cli.cli.sizes import parse_count
from nelu_cli.errors import CheckpointError, ImageError, NeluError, UsageError
from nelu_cli.files.plan import STDIO, Outcome, collect, read_once

if TYPE_CHECKING:
    from nelu_cli.images import Metadata
    from nelu_cli.runtime.models import Models


def info(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Pictures, folders or patterns; - is standard input."),
    ],
    model: Annotated[
        str | None, typer.Option(metavar="NAME|PATH", help="Weights to measure the noise with.")
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")
    ] = "auto",
    max_pixels: Annotated[
        str, typer.Option(metavar="COUNT", help="Refuse larger pictures, as 500M.")
    ] = "1G",
    json_lines: Annotated[bool, typer.Option("--json", help="One line of JSON for each.")] = False,
) -> int:
    """Say what pictures hold: format, size, depth, metadata, noise. Writes nothing.

    The noise level is on the 0–255 scale; of large pictures it is measured on a sample.
    """
    from nelu_cli import images
    from nelu_cli.cli.reporting import stderr_console, stdout_console
    from nelu_cli.runtime.models import Models

    limit = parse_count(max_pixels, "--max-pixels")
    if STDIO in files and len(files) > 1:
        raise UsageError("standard input (-) cannot be mixed with files")
    names: list[Path | None] = [None]
    problems: list[NeluError] = []
    if files != [STDIO]:
        found, problems = collect(files, images.EXTENSIONS)
        names = [item.path for item in found]
    models = Models(model, device)
    outcome = Outcome(total=len(names) + len(problems))
    for name in names:
        try:
            record = _inspect(name, models, limit)
        except ImageError as error:
            problems.append(error)
            continue
        outcome.count("done")
        if json_lines:
            print(json.dumps(record), flush=True)
        else:
            stdout_console().print(_describe(record), markup=False)
    for problem in problems:
        outcome.count("failed")
        stderr_console().print(f"nelu: {problem}", markup=False, style="red")
    return outcome.exit_code


def _inspect(path: Path | None, models: "Models", max_pixels: int) -> dict[str, Any]:
    from nelu_cli import images
    from nelu_cli.cli.denoise_files import header_record, noise_record
    from nelu_cli.runtime.models import choose_model
    from nelu_cli.runtime.noise_level import estimate_noise

    name = STDIO if path is None else str(path)
    source = read_once(path)
    header = images.probe(source, max_pixels=max_pixels)
    record = {"input": name, **header_record(header), "animated": header.animated}
    if header.animated:
        return record
    picture = images.read(source, max_pixels=max_pixels)
    record["metadata"] = _metadata(picture.metadata)
    try:
        chosen = choose_model(picture.pixels, models)
    except CheckpointError:
        if models.name is not None:
            raise
        return record  # no weights at all: the rest is still worth saying
    try:
        noise = estimate_noise(picture.pixels, chosen)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    return {**record, **noise_record(noise, picture), "model": chosen.name}


def _metadata(metadata: "Metadata") -> dict[str, Any]:
    """What there is besides the pixels."""
    summary = {
        "profile": _profile_name(metadata.icc),
        "exif_bytes": len(metadata.exif) if metadata.exif else None,
        "orientation": metadata.orientation if metadata.exif else None,
        "xmp_bytes": len(metadata.xmp) if metadata.xmp else None,
        "dpi": [round(value, 2) for value in metadata.dpi] if metadata.dpi else None,
        "axes": metadata.tiff.axes if metadata.tiff else None,
        "bilevel": metadata.bilevel or None,
        "cmyk": metadata.cmyk or None,
        "lossy": metadata.lossy or None,
    }
    return {key: value for key, value in summary.items() if value is not None}


def _profile_name(icc: bytes | None) -> str | None:
    """The description inside a colour profile."""
    import io

    from PIL import ImageCms

    if icc is None:
        return None
    try:
        return ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(icc))).strip()
    except (ImageCms.PyCMSError, OSError, ValueError):
        return f"unreadable ({len(icc)} bytes)"


def _describe(record: dict[str, Any]) -> str:
    """A few lines for a person."""
    from nelu_cli.cli.denoise_files import noise_text, picture_text

    lines = [record["input"], f"  {record['format']}, {picture_text(record)}"]
    if record["animated"]:
        lines.append("  animated: cannot be denoised; extract a frame first")
        return "\n".join(lines)
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
    said = [labels[key].format(value) for key, value in record["metadata"].items()]
    lines.append(f"  {', '.join(said) or 'no metadata'}")
    if "model" in record:
        lines.append(f"  {noise_text(record)} (by {record['model']})")
    else:
        lines.append("  noise not measured: no weights are bundled")
    return "\n".join(lines)
