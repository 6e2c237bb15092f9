"""``nelu eval``: measure denoisers on a set of images."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nelu_cli.cli.completion import complete_baselines, complete_models, complete_sets
from nelu_cli.cli.options import DataDir, Device, Threads
from nelu_cli.cli.values import parse_quality
from nelu_cli.errors import NeluError, UsageError
from nelu_cli.words import NoiseKind, Precision, Quality

if TYPE_CHECKING:
    from rich.console import Console

    from nelu_cli.data.sets import ImageSet, Pair
    from nelu_cli.evaluation import Level, Method, Results
    from nelu_cli.runtime.models import Models


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
    noise: Annotated[NoiseKind, typer.Option(help="Kind of noise.")] = "white",
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
            "as the code that the paper builds on has it. --json and --csv have both.",
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
        Precision,
        typer.Option(help="What models compute in; auto as nelu denoise does by default."),
    ] = "float32",
) -> None:
    """Measure models: PSNR and SSIM, added or real noise.

    The noise is drawn from the seed, the file name and σ: the same command gives the same digits.
    """
    from nelu_cli import evaluation
    from nelu_cli.atomic import write_whole
    from nelu_cli.cli import reporting
    from nelu_cli.cli.eval_tables import print_results
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
    wanted_quality = parse_quality(quality)
    methods: list[Method] = []
    if model != ["none"]:
        import torch

        from nelu_cli.runtime.models import Models

        if threads is not None:
            torch.set_num_threads(threads)
        models = Models(None, device, precision, shifts)
        methods, channels = _models(model, models, wanted_quality, channels)
    channels = channels or _channels_of(images.paths)
    methods += baselines
    notes = reporting.stderr_console()
    _warn_of_other_files(images, notes)
    available = len(images.paths) if real is None else len(real[1])
    used = min(available, limit or available)

    with (
        reporting.progress("evaluating", used * len(levels) * len(methods)) as advance,
        _os_errors_in_one_line(),
    ):
        save = None
        if save_images is not None:
            save = partial(figures.save_comparison, folder=save_images)
        if real is not None:
            results = evaluation.evaluate_pairs(
                images.name,
                real[1],
                methods,
                channels=channels,
                limit=limit,
                progress=advance,
                save=save,
            )
        else:
            results = evaluation.evaluate(
                images,
                methods,
                sigma_levels,
                channels=channels,
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
            write_whole(csv, results.to_csv().encode())
        if plot is not None:
            figures.psnr_curves(results, plot)
    if as_json:
        typer.echo(results.to_json(), nl=False)
    else:
        print_results(results, not no_clip, available, reporting.stdout_console())


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
    names: list[str] | None, models: "Models", quality: Quality, channels: int | None
) -> tuple[list["Method"], int | None]:
    """The models as methods, and the channels that they are evaluated with."""
    from nelu_cli.evaluation import chosen_method, model_method

    if not names:
        return [chosen_method(models, quality=quality)], channels
    wanted = list(dict.fromkeys(names))
    loaded = [models.load(name) for name in wanted]
    kinds = {model.channels for model in loaded}
    if channels is None and len(kinds) > 1:
        raise UsageError(
            "grey and colour models do not share a table; "
            "--channels 3 runs the grey ones channel by channel"
        )
    if channels == 1 and 3 in kinds:
        colour = next(model.name for model in loaded if model.channels == 3)
        raise UsageError(f"{colour}: a colour model cannot be evaluated with --channels 1")
    short = [model.name for model in loaded]
    rows = [
        model.name if short.count(model.name) == 1 else name
        for model, name in zip(loaded, wanted, strict=True)
    ]
    if models.precision != "float32":
        rows = [f"{row}, {models.precision}" for row in rows]
    return [
        model_method(row, model, quality=quality) for row, model in zip(rows, loaded, strict=True)
    ], channels or max(kinds)


def _channels_of(paths: Sequence[Path]) -> int:
    """3 if every picture is in colour, else 1."""
    from nelu_cli.images import probe

    return 3 if all(probe(path).channels == 3 for path in paths) else 1


@contextmanager
def _os_errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NeluError(f"{error.filename}: cannot be written ({error.strerror})") from error


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
