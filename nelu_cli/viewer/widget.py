"""The widget: a layer in, a model and a strength, a layer out."""

from collections.abc import Generator
from dataclasses import dataclass
from threading import Event
from typing import Any

from magicgui.widgets import (
    ComboBox,
    Container,
    FloatSlider,
    Label,
    LineEdit,
    ProgressBar,
    PushButton,
    create_widget,
)
from napari.layers import Image, Layer
from napari.qt.threading import GeneratorWorker, create_worker
from napari.viewer import Viewer

from nelu_cli import checkpoints
from nelu_cli.errors import NeluError
from nelu_cli.viewer.steps import Stopped, axes_of_layer, denoise_in_steps

AUTOMATIC = "automatic"
_OURS = "nelu"  # in the metadata of layers that were made here


class DenoiseWidget(Container[Any]):
    """Denoises an image layer in a thread of its own.

    The result is a new layer with all that the old one had (scale, colours, contrast). A result of
    the same name that was made before is replaced. Layers of Dask arrays stay lazy: what is looked
    at is computed.
    """

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.layer: Any = create_widget(annotation=Image, label="layer in")
        self.model = ComboBox(label="model", choices=[AUTOMATIC, *checkpoints.bundled()])
        self.strength = FloatSlider(label="strength", value=1.0, min=0.0, max=1.0, step=0.05)
        self.result = LineEdit(label="layer out", tooltip="empty: the name of the layer, denoised")
        self.start = PushButton(text="Denoise")
        self.bar = ProgressBar(label="progress", min=0, max=100, value=0)
        self.said = Label(value="")
        super().__init__(
            widgets=[
                *(self.layer, self.model, self.strength, self.result, self.start, self.bar),
                self.said,
            ]
        )
        self.worker: GeneratorWorker[Any, Any, Any] | None = None
        self._stop = Event()
        self.start.clicked.connect(self._clicked)

    def _clicked(self) -> None:
        if self.worker is not None:
            self._stop.set()
            return
        source = self.layer.value
        if source is None:
            self.said.value = "there is no image layer; open a picture first"
            return
        data = source.data[0] if source.multiscale else source.data
        axes = axes_of_layer(data.ndim, colour=source.rgb)
        model = None if self.model.value == AUTOMATIC else str(self.model.value)
        name = str(self.result.value) or f"{source.name} denoised"
        self._stop = Event()
        self.worker = create_worker(
            _steps, data, axes, model, float(self.strength.value), self._stop
        )
        self.worker.yielded.connect(self._advance)
        self.worker.returned.connect(lambda found: self._returned(found, source, name))
        self.worker.finished.connect(self._finished)
        self.bar.value, self.start.text, self.said.value = 0, "Stop", ""
        self.worker.start()

    def _advance(self, share: float) -> None:
        self.bar.value = round(100 * share)

    def _returned(self, found: Any, source: Image, name: str) -> None:
        if isinstance(found, _Failed):
            self.bar.value, self.said.value = 0, found.reason
        else:
            self._show(found, source, name)

    def _show(self, clean: Any, source: Image, name: str) -> None:
        self.bar.value = 100
        self.said.value = f"done: {name}"
        for layer in self.viewer.layers:
            if layer.name == name and _OURS in layer.metadata and layer.data.shape == clean.shape:
                layer.data = clean
                return
        _, settings, kind = source.as_layer_data_tuple()
        model = str(self.model.value)
        changed = {
            "name": name,
            "multiscale": False,
            "metadata": {**source.metadata, _OURS: {"model": model, "of": source.name}},
        }
        self.viewer.add_layer(Layer.create(clean, {**settings, **changed}, kind))

    def _finished(self) -> None:
        self.worker = None
        self.start.text = "Denoise"


@dataclass(frozen=True)
class _Failed:
    reason: str


def _steps(
    data: Any, axes: str, model: str | None, strength: float, stop: Event
) -> Generator[float, None, Any]:
    """The steps; what is to be said in the widget is returned, all else is for napari to show."""
    try:
        return (yield from denoise_in_steps(data, axes, model, strength, stop))
    except (NeluError, Stopped) as error:
        return _Failed(str(error))
