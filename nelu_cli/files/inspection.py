"""What a picture file holds, and how noisy it is."""

import io
import math
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import ImageCms

from nelu_cli import images
from nelu_cli.errors import CheckpointError, ImageError
from nelu_cli.files import formats as _formats  # noqa: F401 (RAW files can be read, too)
from nelu_cli.files.plan import STDIO, read_once
from nelu_cli.files.records import Json, character_json, header_json
from nelu_cli.images import MAX_PIXELS, Header, Metadata
from nelu_cli.runtime.choice import NoiseCharacter, choose_model
from nelu_cli.runtime.models import Models
from nelu_cli.runtime.noise_level import estimate_noise


@dataclass(frozen=True)
class Inspection:
    """What there is to say about a file that is only looked at."""

    input: str
    header: Header
    metadata: Json | None = None  # by name; none of an animation, which is not read
    noise: float | None = None  # on the 0–255 scale
    noise_in_pixel_values: float | None = None
    character: NoiseCharacter | None = None  # of the noise
    model: str | None = None  # that measured the noise
    precision: str | None = None  # in which it did

    def to_json(self) -> Json:
        """What is known, ready to be written as JSON."""
        entry = {
            "input": self.input,
            **header_json(self.header),
            "animated": self.header.animated,
            "metadata": self.metadata,
            "noise": self.noise,
            "noise_in_pixel_values": self.noise_in_pixel_values,
            **character_json(self.character),
            "model": self.model,
            "precision": self.precision,
        }
        return {key: value for key, value in entry.items() if value is not None}


def inspect_file(path: Path | None, models: Models, *, max_pixels: int = MAX_PIXELS) -> Inspection:
    """Read a file (``None``: standard input) and measure its noise, on a sample if it is large.

    Without any weights the noise stays unknown, unless a model was asked for.
    """
    name = STDIO if path is None else str(path)
    source = read_once(path)
    header = images.probe(source, max_pixels=max_pixels)
    if header.animated:
        return Inspection(name, header)
    picture = images.read(source, max_pixels=max_pixels)
    found = Inspection(name, header, _summary(picture.metadata))
    try:
        choice = choose_model(picture.pixels, models)
    except CheckpointError:
        if models.asked is not None:
            raise
        return found
    try:
        noise = estimate_noise(picture.pixels, choice.model)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    if not math.isfinite(noise):  # nothing to measure it by
        return found
    on_255 = round(noise * 255 / picture.white, 3)
    return replace(
        found,
        noise=on_255,
        noise_in_pixel_values=noise,
        character=choice.character,
        model=choice.model.name,
        precision=choice.model.precision,
    )


def _summary(metadata: Metadata) -> Json:
    """What there is besides the pixels."""
    summary: dict[str, object] = {
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
    if icc is None:
        return None
    try:
        return ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(icc))).strip()
    except (ImageCms.PyCMSError, OSError, ValueError):
        return f"unreadable ({len(icc)} bytes)"
