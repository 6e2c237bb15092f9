"""OpenEXR through the optional OpenEXR package: half and single floats."""

import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import numpy as np

from nelu_cli.images.format import Format, Source, optional_package, starts_with
from nelu_cli.images.picture import ExrLayout, Header, Metadata, Picture, Refusal, join_alpha

_ONE_AT_A_TIME = threading.Lock()

_module = partial(optional_package, "OpenEXR", "OpenEXR needs", "exr")


def _probe(source: Source) -> Header:
    header = _load(source, header_only=True)[0]
    low, high = header["dataWindow"]
    names = [channel.name for channel in header["channels"]]
    alpha = "A" in names and len(names) > 1  # alone it is a picture
    return Header(
        "EXR",
        int(high[0]) - int(low[0]) + 1,
        int(high[1]) - int(low[1]) + 1,
        len(names) - alpha,
        _first_dtype(source.stream),
        alpha=alpha,
    )


def _read(source: Source) -> Picture:
    """Decode a picture of one part: RGB or luminance, with or without alpha, or any channels."""
    header, channels = _load(source, header_only=False)
    names = sorted(channels, key=lambda name: (name == "A", "RGB".find(name), name))
    planes = [np.asarray(channels[name].pixels) for name in names]
    if len({(plane.shape, plane.dtype) for plane in planes}) != 1 or planes[0].dtype.kind != "f":
        raise Refusal("OpenEXR channels of different sizes or types are not supported")
    kept = {name: value for name, value in header.items() if name != "channels"}
    metadata = Metadata(exr=ExrLayout(tuple(names), kept))
    alpha = planes.pop() if names[-1] == "A" and len(planes) > 1 else None
    return Picture(np.stack(planes, axis=-1), alpha, "EXR", metadata)


def _write(picture: Picture, stream: BinaryIO) -> None:
    """Encode as the original was, or with ZIP compression, which is lossless."""
    module = _module()
    samples = np.moveaxis(join_alpha(picture), -1, 0)
    layout = picture.metadata.exr
    names = layout.names if layout else _default_names(picture)
    planes = {name: np.ascontiguousarray(plane) for name, plane in zip(names, samples, strict=True)}
    header = {"compression": module.ZIP_COMPRESSION, "type": module.scanlineimage}
    if layout:
        header |= layout.header
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.exr"
        module.File(header, planes).write(str(path))
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream)


def _default_names(picture: Picture) -> tuple[str, ...]:
    count = picture.pixels.shape[-1]
    names = {1: ("Y",), 3: ("R", "G", "B")}.get(count, tuple(f"C{i:03}" for i in range(count)))
    return names if picture.alpha is None else (*names, "A")


def _load(source: Source, *, header_only: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and channels of the only part; the package wants a file of its own."""
    module = _module()
    source.stream.seek(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.exr"
        with path.open("wb") as file:
            shutil.copyfileobj(source.stream, file)
        with _overheard() as said:
            content = module.File(str(path), separate_channels=True, header_only=header_only)
        if said:
            raise ValueError("".join(said).removeprefix("Warning: "))
        if len(content.parts) > 1:
            raise Refusal("OpenEXR files of several parts are not supported; extract one first")
        return content.header(), content.channels()


class _Overheard:
    """Standard output, but for what one thread writes, which is kept."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._thread = stream, threading.get_ident()
        self.said: list[str] = []

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            return self._stream.write(text)
        self.said.append(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _overheard() -> Iterator[list[str]]:
    """The package prints what is wrong, also where a picture or JSON is to come."""
    with _ONE_AT_A_TIME:
        heard = _Overheard(sys.stdout)
        with contextlib.redirect_stdout(cast(TextIO, heard)):
            yield heard.said


def _first_dtype(stream: BinaryIO) -> np.dtype[Any]:
    """The type of the first channel, which the package tells only after decoding."""
    stream.seek(0)
    _, _, channels = stream.read(1 << 16).partition(b"channels\0chlist\0")
    kind = channels[4:].partition(b"\0")[2][:4]  # after the length and the first name
    return np.dtype({b"\0\0\0\0": np.uint32, b"\1\0\0\0": np.float16}.get(kind, np.float32))


FORMAT = Format(
    name="EXR",
    extensions=(".exr",),
    identify=starts_with(b"v/1\x01"),
    probe=_probe,
    read=_read,
    write=_write,
    depths=("float16", "float32"),
    channels=(),
    premultiplied=True,
    metadata=(),
)
