"""The picture of a noise map."""

import io
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nelu_cli.images import Picture
from nelu_cli.images.picture import upright


def draw_noise_map(deviation: NDArray[np.float64], picture: Picture) -> bytes:
    """Draw the noise level over a picture, (H, W) in pixel values, with a scale; a PNG file."""
    turned = upright(replace(picture, pixels=deviation[..., None], alpha=None)).pixels[..., 0]
    if picture.pixels.dtype.kind == "f":
        return _draw(turned, "noise σ in pixel values")
    return _draw(turned * 255 / picture.white, "noise σ on the 0–255 scale")


def _draw(deviation: NDArray[np.float64], label: str) -> bytes:
    from matplotlib.figure import Figure  # slow to import, and seldom needed

    height, width = deviation.shape
    scale = 9 / max(height, width)  # inches: the longer side of the map
    figure = Figure(
        figsize=(scale * width + 1.6, max(scale * height, 2) + 0.4), layout="constrained"
    )
    axes = figure.add_subplot()
    top = max(float(np.nanpercentile(deviation, 99.5)), 1e-12)
    drawn = axes.imshow(deviation, cmap="viridis", vmin=0, vmax=top, interpolation="nearest")
    axes.set_axis_off()
    figure.colorbar(drawn, ax=axes, label=label, extend="max", shrink=0.9)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
