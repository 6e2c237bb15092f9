"""``nelu eval``: measure denoisers on a set of images."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nelu_cli.cli.completion import complete_baselines, complete_models, complete_sets
from nelu_cli.cli.options import DataDir, Device, Threads
from nelu_cli.cli.sizes import parse_quality
from nelu_cli.errors import NeluError, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from nelu_cli.data.sets import ImageSet, Pair
    from nelu_cli.evaluation import Comparison, Level, Mean, Method, Results
    from nelu_cli.runtime.options import Quality

    Rows = dict[tuple[str, str], dict[Level, Mean]]  # (name, note): means by noise level

Noise = Literal[
    "white",
    "poisson",
    "speckle",
    "uniform",
    "spatial",
    "camera",
    "correlated",
    "grain",
    "scan",
    "jpeg",
]


def evaluate(
    dataset: Annotated[
        str,
        typer.Option(
            metavar="NAME|FOLDER",
            autocompletion=complete_sets,
            help="Name of a set (see `nelu data list`), or a folder.",
        ),
    ] = "samples",
    sigmas: Annotated[
        str,
        typer.Option(metavar="LIST", help="Noise levels on the 0–255 scale, separated by commas."),
    ] = "15,25,50",
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|PATH",
            autocompletion=complete_models,
            help="Model or weights file; repeatable. Default: chosen for each picture, as by "
            "`nelu denoise`. `none`: no model.",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_baselines,
            help="Repeatable: wavelet, nlm, tv (blind: they estimate σ), wavelet-told, nlm-told, "
            "tv-told, bm3d (told the true σ).",
        ),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Add the two rows that the paper published for bsd68.")
    ] = False,
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER",
            autocompletion=complete_sets,
            help="Real noise: photographs NAME_real and their clean means NAME_mean, such as cc.",
        ),
    ] = None,
    noisy: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Real noise: photographs, with --clean."),
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Their clean counterparts, of the same names."),
    ] = None,
    noise: Annotated[Noise, typer.Option(help="Kind of noise.")] = "white",
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another draw of noise.")] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first so many images.")
    ] = None,
    channels: Annotated[
        int | None,
        typer.Option(min=1, max=3, help="1: grey, 3: colour. Default: as the models want it."),
    ] = None,
    quality: Annotated[
        str, typer.Option(metavar="normal|best", help="As in `nelu denoise`.")
    ] = "normal",
    shifts: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Average over N shifts of the model's grid, as in `nelu denoise`.",
        ),
    ] = None,
    no_clip: Annotated[
        bool,
        typer.Option(
            "--no-clip",
            help="PSNR of estimates as they are, not clipped to the range of the picture first; "
            "as the code that the paper builds on has it.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON instead of tables.")
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write PSNR and SSIM of every single image here."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw PSNR over σ here (.png, .svg or .pdf)."),
    ] = None,
    save_images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write all pictures and heat maps of their errors here."
        ),
    ] = None,
    data_dir: DataDir = None,
    threads: Threads = None,
    device: Device = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="What models compute in; auto as nelu denoise does by default."),
    ] = "float32",
) -> None:
    """Measure models: PSNR and SSIM, added or real noise.

    The noise is drawn from the seed, the file name and σ: the same command gives the same digits.
    """
    from nelu_cli import evaluation
    from nelu_cli.cli import reporting
    from nelu_cli.data import sets as datasets
    from nelu_cli.evaluation import figures

    sigma_levels = _levels(sigmas)
    levels: tuple[Level, ...] = sigma_levels
    if channels == 2:
        raise UsageError("--channels 2: choose 1 (grey) or 3 (colour)")
    if plot is not None:
        figures.check_figure_path(plot)
    for target in (csv, plot):
        if target is not None and not target.parent.is_dir():
            raise UsageError(f"{target}: there is no folder {target.parent}")
    baselines = [evaluation.baseline(name) for name in dict.fromkeys(baseline or ())]
    real = _real_pairs(pairs, noisy, clean, data_dir)
    if real is not None:
        if plot is not None or paper:
            raise UsageError("--plot and --paper are for noise of known levels, not for real pairs")
        images, levels = real[0], (None,)
    else:
        images = datasets.find(dataset, data_dir)
    models, kind = _models(
        images.paths, model, channels, parse_quality(quality), threads, device, precision, shifts
    )
    methods = [*models, *baselines]
    notes = reporting.stderr_console()
    _warn_of_other_files(images, notes)
    available = len(images.paths) if real is None else len(real[1])
    used = min(available, limit or available)

    with (
        reporting.progress("evaluating", used * len(levels) * len(methods)) as advance,
        _os_errors_in_one_line(),
    ):
        save = None if save_images is None else _saver(save_images)
        if real is not None:
            results = evaluation.evaluate_pairs(
                images.name,
                real[1],
                methods,
                channels=kind,
                limit=limit,
                progress=advance,
                save=save,
            )
        else:
            results = evaluation.evaluate(
                images,
                methods,
                sigma_levels,
                channels=kind,
                noise=noise,
                seed=seed,
                limit=limit,
                progress=advance,
                save=save,
            )
    if no_clip:
        results = results.not_clipped()
    if paper:
        results = dataclasses.replace(results, published=evaluation.paper_rows(sigma_levels))
        if reason := _paper_does_not_apply(results, whole=used == available):
            _warn(notes, f"the paper's rows do not compare: {reason}")
    with _os_errors_in_one_line():
        if csv is not None:
            _write_text(csv, results.to_csv())
        if plot is not None:
            figures.psnr_curves(results, plot)
    if as_json:
        typer.echo(results.to_json(), nl=False)
    else:
        _print_results(results, not no_clip, available, reporting.stdout_console())


def _real_pairs(
    pairs: str | None, noisy: Path | None, clean: Path | None, data_dir: Path | None
) -> tuple["ImageSet", tuple["Pair", ...]] | None:
    """The set and the pairs that --pairs, or --noisy and --clean, stand for."""
    from nelu_cli.data import sets as datasets

    if (noisy is None) != (clean is None) or (pairs is not None and noisy is not None):
        raise UsageError("real noise: give --pairs, or both --noisy and --clean")
    if noisy is not None and clean is not None:
        images = datasets.find(f"{noisy}")
        return images, datasets.matched_pairs(images, datasets.find(f"{clean}"))
    if pairs is None:
        return None
    images = datasets.find(pairs, data_dir)
    found = datasets.pairs_of(images)
    if not found:
        raise UsageError(f"--pairs {pairs}: no files NAME_real and NAME_mean in {images.name}")
    return images, found


def _warn_of_other_files(images: "ImageSet", notes: "Console") -> None:
    """A set with a public name should be that set, whole: else its numbers do not compare."""
    from nelu_cli.data import downloads

    if images.name in downloads.CATALOGUE:
        total = len(downloads.CATALOGUE[images.name].checksums)
        good = len(downloads.verified(images.name, images.paths[0].parent))
        if not good == len(images.paths) == total:
            _warn(
                notes,
                f"{images.name} should be {total} files; here are {len(images.paths)}, of which "
                f"{good} are the published ones: try `nelu data fetch {images.name}`",
            )


def _warn(notes: "Console", message: str) -> None:
    notes.print(f"nelu: warning: {message}")


def _levels(text: str) -> tuple[float, ...]:
    """ "15,50" -> (15.0, 50.0), each level once."""
    levels = []
    for item in text.split(","):
        try:
            level = float(item)
        except ValueError:
            level = math.nan
        if not 0 <= level < math.inf:
            raise UsageError(
                f"--sigmas: {item.strip()!r} is not a noise level; write numbers from 0 up, "
                "as 15,50,120"
            )
        levels.append(level)
    return tuple(dict.fromkeys(levels))


def _models(
    paths: Sequence[Path],
    names: list[str] | None,
    channels: int | None,
    quality: "Quality",
    threads: int | None,
    device: str,
    precision: Literal["auto", "float32", "bfloat16"],
    shifts: int | None,
) -> tuple[list["Method"], int]:
    """The models as methods, and the channels that they are evaluated with."""
    if names == ["none"]:
        return [], channels or _channels_of(paths)
    import torch

    from nelu_cli.evaluation import chosen_method, model_method
    from nelu_cli.runtime.models import Models, load_model

    if threads is not None:
        torch.set_num_threads(threads)
    if not names:
        chosen = chosen_method(Models(None, device, precision, shifts), quality=quality)
        return [chosen], channels or _channels_of(paths)
    wanted = list(dict.fromkeys(names))
    models = [
        load_model(name, device=device, precision=precision, shifts=shifts) for name in wanted
    ]
    kinds = {model.channels for model in models}
    if channels is None and len(kinds) > 1:
        raise UsageError(
            "grey and colour models do not share a table; "
            "--channels 3 runs the grey ones channel by channel"
        )
    if channels == 1 and 3 in kinds:
        colour = next(model.name for model in models if model.channels == 3)
        raise UsageError(f"{colour}: a colour model cannot be evaluated with --channels 1")
    short = [model.name for model in models]
    rows = [
        model.name if short.count(model.name) == 1 else name
        for model, name in zip(models, wanted, strict=True)
    ]
    if precision != "float32":
        rows = [f"{row}, {precision}" for row in rows]
    return [
        model_method(row, model, quality=quality) for row, model in zip(rows, models, strict=True)
    ], channels or max(kinds)


def _channels_of(paths: Sequence[Path]) -> int:
    """3 if every picture is in colour, else 1."""
    from nelu_cli.images import probe

    return 3 if all(probe(path).channels == 3 for path in paths) else 1


def _saver(folder: Path) -> Callable[["Comparison"], None]:
    from nelu_cli.evaluation.figures import save_comparison

    return lambda comparison: save_comparison(comparison, folder)


@contextmanager
def _os_errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NeluError(f"{error.filename}: cannot be written ({error.strerror})") from error


def _write_text(path: Path, text: str) -> None:
    from nelu_cli.atomic import atomic_file

    with atomic_file(path) as file:
        file.write(text.encode())


def _paper_does_not_apply(results: "Results", whole: bool) -> str:
    """Why the paper's rows cannot be set beside these results; empty if they can."""
    if results.dataset != "bsd68":
        return f"they are for bsd68, this is {results.dataset}"
    if not whole:
        return "they are means over all 68 images of bsd68"
    if results.noise != "white":
        return f"they are for white noise, this is {results.noise}"
    if results.channels != 1:
        return "they are for grey images"
    if not any(row.psnr for row in results.published):
        return "the paper has none of these noise levels, only 15, 25, 35, 50, 75, 90, 105, 120"
    return ""


def _print_results(results: "Results", clipped: bool, available: int, console: "Console") -> None:
    from nelu_cli.evaluation import Mean

    used = len(results.images)
    count = f"{used} images" if used == available else f"the first {used} of {available} images"
    colour = "colour" if results.channels == 3 else "grey"
    seed = "" if results.noise == "real" else f", seed {results.seed}"
    console.print(f"{results.dataset}: {count}, {colour}; {results.noise} noise{seed}")
    psnr = _rows(results, results.psnr)
    for row in results.published:
        psnr[row.name, "published"] = {s: Mean(v, math.nan) for s, v in row.psnr.items()}
    for title, digits, rows in (("PSNR, dB", 2, psnr), ("SSIM", 3, _rows(results, results.ssim))):
        table = _table(title, digits, rows, results.sigmas, console.width)
        console.print(table, soft_wrap=False)
    remarks = ["Bold: best of the column. ±: standard error of the mean over images."]
    if not clipped:
        remarks.append("PSNR of estimates as they are, not clipped to the range of the picture.")
    if results.dataset == "samples":
        remarks.append(
            "samples are a few photographs that come with scikit-image: a first look, no benchmark."
        )
    if results.published:
        remarks.append(
            "The paper's rows are as published: bsd68, trained on the Waterloo Exploration set at "
            "σ = 15."
        )
    for remark in remarks:
        console.print(remark, style="dim", soft_wrap=False)


def _rows(results: "Results", mean: Callable[[str, "Level"], "Mean"]) -> "Rows":
    return {
        (name, note): {sigma: mean(name, sigma) for sigma in results.sigmas}
        for name, note in results.methods.items()
    }


def _table(title: str, digits: int, rows: "Rows", sigmas: Sequence["Level"], width: int) -> "Table":
    """Rows are methods, columns noise levels; the errors go below the means if space is short."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from nelu_cli.evaluation import level_text

    names = max(len(f"{name} ({note})") for name, note in rows)
    narrow = names + len(sigmas) * len("  31.05 ±0.41") > width
    best = {
        sigma: max(round(row[sigma].value, digits) for row in rows.values() if sigma in row)
        for sigma in sigmas
    }

    def cell(main: str, extra: str, bold: bool = False) -> Text:
        text = Text(main, style="bold" if bold else "")
        if extra:
            text.append("\n" if narrow else " ").append(extra, style="not bold dim")
        return text

    def score(sigma: "Level", mean: "Mean | None") -> Text:
        if mean is None:
            return Text("–")
        error = "" if math.isnan(mean.error) else f"±{mean.error:.{digits}f}"
        number = f"{mean.value:5.{digits}f}"
        return cell(number, error, round(mean.value, digits) == best[sigma])

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(title)
    for sigma in sigmas:
        table.add_column(level_text(sigma), justify="right" if narrow else "left", no_wrap=True)
    for (name, note), row in rows.items():
        table.add_row(cell(name, f"({note})"), *(score(s, row.get(s)) for s in sigmas))
    return table
