"""What there is to say about each file, and about all of them together."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nelu_cli.images import Header
    from nelu_cli.runtime.choice import NoiseCharacter

Status = Literal["done", "skipped", "planned", "failed", "left out"]
Json = Mapping[str, object]


@dataclass(frozen=True)
class Record:
    """How it went with one file. What does not apply, or is not known, is ``None``."""

    input: str
    output: str | None
    status: Status
    header: "Header | None" = None
    model: str | None = None  # none if nothing had to be computed
    precision: str | None = None
    quality: str | None = None
    strength: float | None = None
    noise: float | None = None  # on the 0–255 scale, 255 standing for white
    noise_in_pixel_values: float | None = None
    character: "NoiseCharacter | None" = None  # of the noise, by which the model was chosen
    seconds: float | None = None
    error: str | None = None
    kind: str | None = None  # of a file that was left out: GIF, PDF, .txt
    notes: tuple[str, ...] = ()  # what a person should know

    def with_noise(self, noise: float, white: float) -> "Record":
        """The same with the noise, in pixel values, of a picture whose white has such a value."""
        if not math.isfinite(noise):  # there was nothing to measure it by
            return self
        on_255 = round(noise * 255 / white, 3)
        return replace(self, noise=on_255, noise_in_pixel_values=noise)

    def to_json(self) -> Json:
        """What is known, ready to be written as JSON."""
        header = {} if self.header is None else header_json(self.header)
        entry = {
            "input": self.input,
            "output": self.output,
            "status": self.status,
            **header,
            "model": self.model,
            "precision": self.precision,
            "quality": self.quality,
            "strength": self.strength,
            "noise": self.noise,
            "noise_in_pixel_values": self.noise_in_pixel_values,
            **character_json(self.character),
            "seconds": self.seconds,
            "error": self.error,
            "kind": self.kind,
            "notes": list(self.notes) or None,
        }
        return {key: value for key, value in entry.items() if value is not None}


def character_json(character: "NoiseCharacter | None") -> Json:
    """How the noise is correlated, ready to be written as JSON."""
    if character is None:
        return {}
    return {
        "noise_kind": character.kind,
        "noise_correlation": character.correlation,
        "noise_reach": character.reach,
        "noise_white_share": character.white_share,
        "noise_white_correlation": character.white_correlation,
        "noise_one_colour": character.one_colour,
    }


def header_json(header: "Header") -> Json:
    """What a file's header says, ready to be written as JSON."""
    return {
        "format": header.format,
        "width": header.width,
        "height": header.height,
        "pages": header.pages,
        "channels": header.channels,
        "alpha": header.alpha,
        "dtype": str(header.dtype),
    }


@dataclass
class Outcome:
    """How a batch went: the counts and the exit status that follows from them."""

    done: int = 0
    skipped: int = 0
    failed: int = 0
    planned: int = 0  # by a dry run
    left_out: Counter[str] = field(default_factory=Counter)  # files that are no job, by kind
    stopped_by: int | None = None  # the number of a signal
    total: int = field(default=0, kw_only=True)

    def count(self, record: Record) -> None:
        """One more file."""
        match record.status:
            case "left out":
                self.left_out[record.kind or "unknown"] += 1
            case "done":
                self.done += 1
            case "skipped":
                self.skipped += 1
            case "failed":
                self.failed += 1
            case "planned":
                self.planned += 1

    @property
    def exit_code(self) -> int:
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        return 1 if self.failed else 0

    def __str__(self) -> str:
        left = self.total - self.done - self.skipped - self.failed - self.planned
        counts = {
            "to do": self.planned,
            "done": self.done,
            "skipped": self.skipped,
            "failed": self.failed,
            "not reached": left,
        }
        text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if self.left_out:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.left_out.items()))
            text = f"{text}; left out: {kinds}"
        return text if self.stopped_by is None else f"interrupted: {text}"
