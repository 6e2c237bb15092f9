"""What a person can choose for files, besides what can be chosen for their pixels."""

from dataclasses import dataclass, field
from pathlib import Path

from nelu_cli import images
from nelu_cli.errors import ImageError, UsageError
from nelu_cli.files.formats import becomes
from nelu_cli.images import EXTENSIONS, MAX_PIXELS, READABLE
from nelu_cli.runtime.options import Options


@dataclass(frozen=True)
class Settings:
    """The same for all files of one command."""

    options: Options = field(default_factory=Options)
    max_pixels: int = MAX_PIXELS
    """Larger pictures are refused before they are read."""
    format: str | None = None
    """Of the results; by default as their names say, or as the inputs are."""
    salvage: bool = False
    """Of a damaged file, or one that holds more than can be kept, take what there is."""
    strip: bool = False
    """Leave out metadata."""
    allow_depth_loss: bool = False
    """Write even if the format keeps fewer bits."""
    force: bool = False
    """Replace existing files."""
    skip_existing: bool = False
    """Leave out pictures whose result exists."""
    dry_run: bool = False
    """Read and check everything, write nothing."""
    noise_level: bool = True
    """Whether anybody will read how noisy a picture was."""
    bilevel: bool = False
    """Write black and white, one bit per pixel."""
    colour: str = "srgb"
    """What RAW files are developed to: srgb, p3, adobe or linear."""

    def __post_init__(self) -> None:
        if self.force and self.skip_existing:
            raise UsageError("--force and --skip-existing exclude each other")
        if self.format is not None and self.format not in EXTENSIONS.values():
            raise UsageError(f"{self.format} cannot be written; choose one of {_known()}")

    def rename(self, name: Path) -> Path:
        """The name of a result in a folder: another extension if it is of another format."""
        own = READABLE.get(name.suffix.lower())
        format = self.format or (own and becomes(own))
        if format in (None, own):
            return name
        return name.with_suffix(next(key for key, value in EXTENSIONS.items() if value == format))

    def target_format(self, target: Path | None, source_format: str) -> str:
        """The format to write; refuse what cannot be written, and a name that says another one."""
        if target is None:
            format = self.format or becomes(source_format)
            if format not in EXTENSIONS.values():
                raise ImageError(f"{format} cannot be written; choose another with --format")
            return format
        if not target.suffix:
            if self.format is not None:
                return self.format
            raise ImageError(
                f"{target}: neither a folder nor a name with an extension; "
                "make the folder first, end its name with /, or give --format"
            )
        named = images.format_for(target)
        if self.format not in (None, named):
            raise ImageError(f"{target}: the name says {named}, --format says {self.format}")
        return named


def format_named(name: str) -> str:
    """The format that a person calls ``name``: png, jpg, TIFF, .webp."""
    bare = name.strip().lstrip(".")
    format = EXTENSIONS.get(f".{bare.lower()}", bare.upper())
    if format not in EXTENSIONS.values():
        raise UsageError(f"--format {name}: cannot be written; choose one of {_known()}")
    return format


def _known() -> str:
    return ", ".join(sorted(set(EXTENSIONS.values())))
