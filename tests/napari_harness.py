"""The widget in a real viewer, by napari's own fixtures. ``test_napari.py`` runs this file."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import dask.array as da
import numpy as np
import pytest
import torch
from napari.qt.threading import WorkerBase
from npe2 import DynamicPlugin, PluginManifest
from numpy.typing import NDArray

from nelu_cli import checkpoints, denoise
from nelu_cli.viewer import steps
from nelu_cli.viewer.widget import DenoiseWidget

MANIFEST = Path(checkpoints.__file__).parent / "viewer" / "napari.yaml"
Viewers = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("small_models")


@pytest.fixture(autouse=True)
def a_graphics_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qt without a display has no OpenGL; nothing is drawn, but napari asks what it can do."""
    for module in ("image", "base"):
        where = f"napari._vispy.layers.{module}"
        monkeypatch.setattr(f"{where}.get_max_texture_sizes", lambda: (4096, 2048))
    monkeypatch.setattr("napari._vispy.layers.image.get_gl_extensions", lambda: "texture_float")
    monkeypatch.setattr("napari._vispy.canvas.get_max_texture_sizes", lambda: (4096, 2048))


def noisy(*shape: int) -> NDArray[np.uint8]:
    return (128 + 20 * np.random.default_rng(0).standard_normal(shape)).astype(np.uint8)


def press(widget: DenoiseWidget, qtbot: Any) -> None:
    widget.start.native.click()
    qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
    WorkerBase.await_workers(10_000)  # its thread still knows the viewer


def test_the_manifest_leads_to_the_widget(make_napari_viewer: Viewers, npe2pm: Any) -> None:
    manifest = PluginManifest.from_file(MANIFEST)
    with DynamicPlugin(manifest.name, manifest=manifest, plugin_manager=npe2pm):
        _, widget = make_napari_viewer().window.add_plugin_dock_widget("nelu-cli", "Denoise")
    assert isinstance(widget, DenoiseWidget)


@pytest.mark.parametrize(
    ("shape", "colour", "axes"),
    [((60, 70), False, "YX"), ((60, 70, 3), True, "YXS"), ((2, 3, 60, 70), False, "TZYX")],
)
def test_a_layer_becomes_a_clean_layer(
    make_napari_viewer: Viewers, qtbot: Any, shape: tuple[int, ...], colour: bool, axes: str
) -> None:
    viewer = make_napari_viewer()
    pixels = noisy(*shape)
    scale = (2.0,) * (len(shape) - colour)
    source = viewer.add_image(pixels, name="cells", rgb=colour, scale=scale, opacity=0.5)
    source.metadata["microscope"] = "ours"
    widget = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(widget)
    assert widget.layer.value is source
    widget.strength.value = 0.5
    press(widget, qtbot)
    found = viewer.layers["cells denoised"]
    np.testing.assert_array_equal(found.data, denoise(pixels, axes=axes, strength=0.5))
    np.testing.assert_array_equal(source.data, pixels)
    assert tuple(found.scale) == scale
    assert (found.opacity, found.metadata["microscope"]) == (0.5, "ours")
    assert (widget.bar.value, widget.start.text) == (100, "Denoise")
    assert widget.said.value == "done: cells denoised"


def test_a_result_is_replaced_and_other_layers_are_not(
    make_napari_viewer: Viewers, qtbot: Any
) -> None:
    viewer = make_napari_viewer()
    pixels = noisy(60, 70)
    viewer.add_image(pixels, name="cells")
    mine = viewer.add_image(np.zeros((60, 70)), name="mine")
    widget = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(widget)
    widget.layer.value = viewer.layers["cells"]
    widget.model.value = "deep-gray"
    press(widget, qtbot)
    widget.strength.value = 0.25
    press(widget, qtbot)
    assert [layer.name for layer in viewer.layers] == ["cells", "mine", "cells denoised"]
    expected = denoise(pixels, "deep-gray", strength=0.25)
    np.testing.assert_array_equal(viewer.layers["cells denoised"].data, expected)
    widget.result.value = "mine"
    press(widget, qtbot)
    assert not mine.data.any()
    assert len(viewer.layers) == 4


def test_a_lazy_layer_stays_lazy(make_napari_viewer: Viewers, qtbot: Any) -> None:
    viewer = make_napari_viewer()
    pixels = noisy(3, 90, 100)
    viewer.add_image(da.from_array(pixels, (1, 64, 64)), name="large")
    widget = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(widget)
    press(widget, qtbot)
    found = viewer.layers["large denoised"].data
    assert isinstance(found, da.Array)
    difference = np.abs(np.asarray(found[1]).astype(int) - denoise(pixels)[1])
    assert difference.max() <= 1


def test_a_pyramid_is_cleaned_at_its_finest(make_napari_viewer: Viewers, qtbot: Any) -> None:
    viewer = make_napari_viewer()
    pixels = noisy(60, 70)
    viewer.add_image([pixels, pixels[::2, ::2]], name="levels", multiscale=True)
    widget = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(widget)
    press(widget, qtbot)
    np.testing.assert_array_equal(viewer.layers["levels denoised"].data, denoise(pixels))


def test_what_goes_wrong_is_said_in_the_widget(make_napari_viewer: Viewers, qtbot: Any) -> None:
    viewer = make_napari_viewer()
    widget = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(widget)
    widget.start.native.click()
    assert widget.said.value == "there is no image layer; open a picture first"
    viewer.add_image(noisy(60, 70), name="grey")
    widget.model.value = "deep-color"
    press(widget, qtbot)
    assert widget.said.value.startswith("model deep-color needs 3 channels, the picture has 1")
    assert (len(viewer.layers), widget.start.text) == (1, "Denoise")


def test_it_can_be_stopped(
    make_napari_viewer: Viewers, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = make_napari_viewer()
    widget = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(widget)

    def patient(*args: Any, progress: Callable[[int, int], None], **options: Any) -> None:
        widget._stop.wait(60)
        progress(1, 2)

    monkeypatch.setattr(steps, "denoise", patient)
    viewer.add_image(noisy(60, 70))
    widget.start.native.click()
    assert widget.start.text == "Stop"
    press(widget, qtbot)
    assert (widget.said.value, len(viewer.layers)) == ("stopped", 1)


def test_the_share_that_is_done_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = noisy(4, 60, 70)
    torch.set_num_threads(1)
    told = list(steps.denoise_in_steps(pixels, "AYX", None, 1.0, Event()))
    assert told == sorted(told)
    assert (len(told) >= 4, told[-1]) == (True, 1.0)
