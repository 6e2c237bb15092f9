"""Pictures of an evaluation or a training: curves of PSNR, and comparisons of one image.

matplotlib is imported inside the functions, without pyplot: no global state, no display.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nelu_cli.atomic import atomic_file
from nelu_cli.errors import UsageError
from nelu_cli.evaluation import NOISY, Comparison, Results, level_text
from nelu_cli.noise.filters import FloatImage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

FORMATS = (".png", ".svg", ".pdf")
PATCH = 96  # side of the detail in a comparison
_HEAT = "inferno"  # warmer and lighter: larger error
_DPI = 150
_NO_DATE: Mapping[str, dict[str, Any]] = {  # so that equal figures are equal files
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def check_figure_path(path: Path) -> None:
    """Refuse what :func:`psnr_curves` cannot write, before any work is done."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: a figure can be written as {', '.join(FORMATS)}")


def psnr_curves(results: Results, path: Path) -> None:
    """Draw mean PSNR over σ, one curve a row, bars for the standard error; .png, .svg or .pdf."""
    check_figure_path(path)
    figure = blank(7.5, 4.8)
    axes = figure.subplots()
    sigmas = sorted(sigma for sigma in results.sigmas if sigma is not None)
    if not sigmas:
        raise UsageError(f"{path}: PSNR over σ needs noise of known levels, not real pairs")
    curves: list[Any] = []
    for number, method in enumerate(results.methods):
        means = [results.psnr(method, sigma) for sigma in sigmas]
        curve = axes.errorbar(
            sigmas,
            [mean.value for mean in means],
            yerr=np.nan_to_num([mean.error for mean in means]),
            label=f"{method} ({results.methods[method]})",
            color="0.6" if method == NOISY else f"C{(number - 1) % 10}",
            linestyle=":" if method == NOISY else "-",
            marker="o",
            markersize=4,
            capsize=2,
        )
        curves.append(curve)
    for row, marker in zip(results.published, "^s", strict=False):
        levels = sorted(row.psnr)
        curves += axes.plot(
            levels,
            [row.psnr[level] for level in levels],
            label=f"{row.name} (published, {row.dataset})",
            color="black",
            linestyle="--",
            linewidth=1,
            marker=marker,
            markersize=4,
        )
    axes.set_xlabel("σ of the noise (0–255 scale)")
    axes.set_ylabel("PSNR (dB), mean ± standard error")
    colour = "colour" if results.channels == 3 else "grey"
    title = f"{results.dataset} ({len(results.images)} × {colour}), {results.noise} noise"
    axes.set_title(title, fontsize=11)
    axes.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
    axes.grid(alpha=0.3)
    axes.legend(
        handles=curves, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False
    )
    save(figure, path)


def training_curve(
    losses: Mapping[int, float], validated: Mapping[int, Mapping[str, float]], path: Path
) -> None:
    """Draw loss and validation PSNR (of each level) over the steps of a training run."""
    figure = blank(7.5, 4.8)
    loss_axes, psnr_axes = figure.subplots(2, 1, sharex=True)
    loss_axes.plot([*losses], [*losses.values()], "C7")
    if all(loss > 0 for loss in losses.values()):
        loss_axes.set_yscale("log")
    loss_axes.set_ylabel("loss, running mean")
    for level in dict.fromkeys(level for levels in validated.values() for level in levels):
        values = [levels.get(level, math.nan) for levels in validated.values()]
        name = f"σ = {level}" if level.isdigit() else level
        psnr_axes.plot([*validated], values, marker="o", markersize=3, label=name)
    if validated:
        psnr_axes.legend(fontsize=9)
    psnr_axes.set_ylabel("validation PSNR (dB)")
    psnr_axes.set_xlabel("step")
    for axes in (loss_axes, psnr_axes):
        axes.grid(alpha=0.3)
    save(figure, path)


def save_comparison(comparison: Comparison, folder: Path) -> None:
    """Write one image at one level: every picture, its heat map of errors, and all side by side.

    ``folder/IMAGE/clean.png`` and, in ``folder/IMAGE/sigma15/``: ``noisy.png``, ``METHOD.png``,
    ``METHOD-error.png`` and ``comparison.png``. Heat maps show the absolute error of a pixel
    (mean over channels) on one scale for all methods, from 0 to the 99.5th percentile of the
    worst estimate.
    """
    image = folder / _file_name(comparison.image)
    level = image / level_text(comparison.sigma255).replace("σ ", "sigma")
    level.mkdir(parents=True, exist_ok=True)
    shown, errors, scale = _judged(comparison)
    _save_pixels(comparison.clean, image / "clean.png")
    for name, picture in shown.items():
        _save_pixels(picture, level / f"{_file_name(name)}.png")
        _save_pixels(_heat(errors[name], scale), level / f"{_file_name(name)}-error.png")
    figure = blank(2.0 * (len(shown) + 2), 4.6)
    draw_comparison(figure, comparison)
    save(figure, level / "comparison.png")


def draw_comparison(figure: "Figure | SubFigure", comparison: Comparison) -> None:
    """The paper's qualitative figure: image, detail, and the detail as each method left it."""
    shown, errors, scale = _judged(comparison)
    rows, columns = detail(comparison.clean)
    grid = figure.subplots(2, len(shown) + 2)
    whole = grid[0, 0]
    _show(whole, comparison.clean, "clean")
    whole.add_patch(_frame(rows, columns))
    _show(grid[0, 1], comparison.clean[rows, columns], "detail")
    grid[1, 0].axis("off")
    grid[1, 1].axis("off")
    heat = None
    for column, (name, picture) in enumerate(shown.items(), start=2):
        title = f"noisy, {level_text(comparison.sigma255)}" if name == NOISY else name
        _show(grid[0, column], picture[rows, columns], title)
        grid[0, column].set_xlabel(f"{comparison.psnr[name]:.2f} dB", fontsize=9)
        heat = grid[1, column].imshow(errors[name][rows, columns], cmap=_HEAT, vmin=0, vmax=scale)
        grid[1, column].set_xticks([])
        grid[1, column].set_yticks([])
    assert heat is not None  # the noisy image is always shown
    bar = grid[1, 1].inset_axes((0.8, 0, 0.1, 1))
    figure.colorbar(heat, cax=bar, label="absolute error", ticklocation="left")
    figure.suptitle(f"{comparison.image} (PSNR of the whole image)", fontsize=10)


def detail(image: FloatImage, side: int = PATCH) -> tuple[slice, slice]:
    """The square with the most structure: the greatest sum of absolute differences."""
    grey = image.mean(axis=-1, dtype=np.float64)
    change = np.zeros_like(grey)
    change[1:] += np.abs(np.diff(grey, axis=0))
    change[:, 1:] += np.abs(np.diff(grey, axis=1))
    height, width = min(side, grey.shape[0]), min(side, grey.shape[1])
    total = np.pad(change, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    sums = (
        total[height:, width:]
        - total[:-height, width:]
        - total[height:, :-width]
        + total[:-height, :-width]
    )
    top, left = np.unravel_index(np.argmax(sums), sums.shape)
    return slice(int(top), int(top) + height), slice(int(left), int(left) + width)


def _judged(
    comparison: Comparison,
) -> tuple[dict[str, FloatImage], dict[str, FloatImage], float]:
    """All pictures by their names, their absolute errors, and the error at the end of the scale."""
    shown = {NOISY: comparison.noisy, **comparison.estimates}
    errors = {
        name: np.abs(comparison.clean - picture).mean(axis=-1) for name, picture in shown.items()
    }
    counted = comparison.estimates or errors  # without any method the noisy image sets the scale
    scale = max(*(float(np.quantile(errors[name], 0.995)) for name in counted), 1 / 255)
    return shown, errors, scale


def _heat(error: FloatImage, scale: float) -> FloatImage:
    from matplotlib import colormaps

    colours: FloatImage = colormaps[_HEAT](np.clip(error / scale, 0, 1))[..., :3]
    return colours


def _frame(rows: slice, columns: slice) -> Any:
    from matplotlib.patches import Rectangle

    corner = (columns.start - 0.5, rows.start - 0.5)
    width, height = columns.stop - columns.start, rows.stop - rows.start
    return Rectangle(corner, width, height, fill=False, edgecolor="red", linewidth=1.5)


def _show(axes: "Axes", picture: FloatImage, title: str) -> None:
    axes.imshow(_eight_bits(picture), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def blank(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def save(figure: "Figure", path: Path) -> None:
    """Write a figure whole or not at all, the same file for the same figure."""
    kind = path.suffix.lower()
    with atomic_file(path) as file:
        figure.savefig(file, format=kind[1:], bbox_inches="tight", metadata=_NO_DATE[kind])


def _eight_bits(picture: FloatImage) -> npt.NDArray[np.uint8]:
    """(H, W) or (H, W, 3) for a picture of one or three channels in 0..1."""
    pixels = np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def _save_pixels(picture: FloatImage, path: Path) -> None:
    from PIL import Image

    with atomic_file(path) as file:
        Image.fromarray(_eight_bits(picture)).save(file, format="PNG")


def _file_name(name: str) -> str:
    """A name that is safe as that of a file or folder, whatever a row or image is called."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "_"
