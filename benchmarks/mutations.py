"""Damaged pictures of every format: what reading, writing and denoising make of them.

Takes small pictures of every kind, made and real, damages each case in one of many ways, and has a
process of its own read it, write it again or denoise it. Counts what must never happen:

- tracebacks: anything but a picture or one line of error, a crash of the process included;
- torn files: an output after a failure, an output that cannot be read, litter beside it;
- lost originals: the input is not what it was;
- silent losses: a file was cut off, and a picture that is not the whole one came out of it without
  a word.

A case depends on ``--seed`` and its number alone; ``--first`` starts at a number, ``--keep`` keeps
the files of the cases that went wrong.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import parser, show
from nelu_cli import images
from nelu_cli.errors import ImageError, NeluError
from nelu_cli.images import Metadata, Picture

__all__ = ["SEEDS", "main", "mutated"]

MAX_PIXELS = 10**6  # no input may ask for more memory than this costs
SECONDS = 120  # until a process is ended
ADDRESS_SPACE = 16 << 30  # bytes of a process
_ENDS = {".jpg": b"\xff\xd9", ".png": bytes.fromhex("0000000049454e44ae426082")}


# Pictures to damage


def noise(*shape: int) -> NDArray[np.uint8]:
    """Random pixels, always the same."""
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def written(pixels: NDArray[Any], format: str, alpha: NDArray[Any] | None = None) -> bytes:
    """A picture with all metadata, by our own writer."""
    exif = Image.Exif()
    exif[274] = 6
    exif[271] = "Maker"
    metadata = Metadata(icc=b"profile" * 9, exif=exif.tobytes()[6:], xmp=b"<xmp/>", dpi=(72, 72))
    stream = io.BytesIO()
    images.write(Picture(pixels, alpha, format, metadata), stream)
    return stream.getvalue()


def tiff(pixels: NDArray[Any], **options: Any) -> bytes:
    """A TIFF by tifffile; several pages in directories of their own."""
    kind = "rgb" if pixels.shape[-1] == 3 else "minisblack"
    stream = io.BytesIO()
    tifffile.imwrite(stream, pixels, **{"photometric": kind, **options})
    return stream.getvalue()


def pyramid() -> bytes:
    """A TIFF with levels below its page and a thumbnail after it."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as file:
        pixels = noise(64, 48)
        file.write(pixels, photometric="minisblack", subifds=1, metadata=None)
        for step in (2, 4):
            file.write(pixels[::step, ::step], photometric="minisblack", subfiletype=1)
    return stream.getvalue()


def pillow(pixels: NDArray[Any], format: str, mode: str, **options: Any) -> bytes:
    """A picture by Pillow."""
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, format, **options)
    return stream.getvalue()


SEEDS: dict[str, Callable[[], bytes]] = {
    "png-grey": lambda: written(noise(13, 17, 1), "PNG"),
    "png-rgba": lambda: written(noise(13, 17, 3), "PNG", noise(13, 17)),
    "png-16": lambda: written(noise(13, 17, 3).astype(np.uint16) * 257, "PNG"),
    "png-palette": lambda: pillow(noise(13, 17, 3), "PNG", "P"),
    "png-bilevel": lambda: pillow(noise(13, 17), "PNG", "1"),
    "jpeg-rgb": lambda: written(noise(24, 33, 3), "JPEG"),
    "jpeg-grey": lambda: written(noise(24, 33, 1), "JPEG"),
    "jpeg-cmyk": lambda: pillow(noise(24, 33, 3), "JPEG", "CMYK"),
    "jpeg-progressive": lambda: pillow(noise(24, 33, 3), "JPEG", "RGB", progressive=True),
    "tiff-plain": lambda: tiff(noise(13, 17)),
    "tiff-rgb": lambda: written(noise(13, 17, 3), "TIFF"),
    "tiff-lzw": lambda: tiff(noise(13, 17, 3), compression="lzw", predictor=True),
    "tiff-zstd": lambda: tiff(noise(3, 13, 17), compression="zstd"),
    "tiff-tiled": lambda: tiff(noise(33, 40, 3), compression="zlib", tile=(16, 16)),
    "tiff-float": lambda: tiff(noise(13, 17).astype(np.float32), byteorder=">"),
    "tiff-imagej": lambda: tiff(noise(4, 13, 17), imagej=True),
    "tiff-ome": lambda: tiff(noise(4, 13, 17), ome=True),
    "tiff-twelve": lambda: tiff(noise(13, 17).astype(np.uint16) * 16, bitspersample=12),
    "tiff-palette": lambda: pillow(noise(13, 17, 3), "TIFF", "P"),
    "tiff-jpeg": lambda: tiff(noise(32, 32, 3), compression="jpeg"),
    "tiff-pyramid": pyramid,
    "webp-lossless": lambda: written(noise(13, 17, 3), "WEBP", noise(13, 17)),
    "webp-lossy": lambda: pillow(noise(13, 17, 3), "WEBP", "RGB"),
    "ppm": lambda: written(noise(13, 17, 3), "PPM"),
    "pgm-16": lambda: written(noise(13, 17, 1).astype(np.uint16) * 200, "PPM"),
    "pgm-text": lambda: b"P2\n# text\n5 3\n15\n" + b" ".join(b"%d" % i for i in range(15)) + b"\n",
    "pbm": lambda: pillow(noise(13, 17), "PPM", "1"),
    "bmp": lambda: written(noise(13, 17, 3), "BMP"),
    "bmp-palette": lambda: pillow(noise(13, 17, 3), "BMP", "P"),
    "gif": lambda: pillow(noise(13, 17, 3), "GIF", "P"),
    "avif": lambda: written(noise(16, 16, 3), "AVIF"),
}
"""A small file of each kind that every installation can make."""


def extra_seeds() -> dict[str, Callable[[], bytes]]:
    """Those that need optional packages, if these are installed."""
    extra: dict[str, Callable[[], bytes]] = {}
    with contextlib.suppress(ImportError):
        import pillow_heif  # noqa: F401

        extra["heic"] = lambda: written(noise(64, 64, 3), "HEIF")
    with contextlib.suppress(ImportError):
        import OpenEXR  # noqa: F401

        extra["exr"] = lambda: written(noise(13, 17, 3).astype(np.float32) / 255, "EXR")
    return extra


def real_seeds(folder: Path, most: int = 300_000) -> dict[str, Callable[[], bytes]]:
    """Pictures of a folder that are small and sound."""
    found: dict[str, Callable[[], bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in images.READABLE and path.stat().st_size <= most:
            with contextlib.suppress(ImageError):
                images.read(path, max_pixels=MAX_PIXELS)
                found[path.name] = path.read_bytes
    return found


# Damage


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Flip bits, overwrite, repeat or drop a run of bytes, cut off the end."""
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        reach = len(content) if chance.random() < 0.5 else min(len(content), 200)
        start = chance.randrange(reach) if reach else 0
        run = chance.choice((1, 2, 4, 8, 30))
        match chance.randrange(6):
            case 0 | 1 if content:
                content[start] ^= 1 << chance.randrange(8)
            case 2:
                content[start : start + run] = chance.choice((b"\0", b"\xff", b"\x7f")) * run
            case 3:
                content[start : start + run] = chance.randbytes(run)
            case 4:
                source = chance.randrange(len(content) + 1)
                content[start:start] = content[source : source + run]
            case _:
                del content[start : (start + run if chance.random() < 0.7 else len(content))]
    return bytes(content)


def cut_off(data: bytes, suffix: str, chance: random.Random) -> bytes:
    """Drop the end, and perhaps put the mark of an end there, so that it looks whole."""
    shorter = data[: chance.randrange(1, max(2, len(data)))]
    return shorter + (_ENDS.get(suffix, b"") if chance.random() < 0.5 else b"")


# One case, in the process that works


@dataclass
class Outcome:
    """What came of a case."""

    kind: str
    number: int
    accepted: bool = False
    failures: list[str] = field(default_factory=list)
    message: str = ""
    digest: str = ""
    notes: int = 0
    seconds: float = 0.0
    peak: int = 0  # MiB


def digest(picture: Picture) -> str:
    """A fingerprint of pixels and alpha."""
    alpha = b"" if picture.alpha is None else picture.alpha.tobytes()
    content = f"{picture.pixels.shape} {picture.pixels.dtype}".encode()
    return hashlib.sha256(content + picture.pixels.tobytes() + alpha).hexdigest()


def work() -> None:
    """Take cases from standard input, one a line, and answer with a line each."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed does not mix with the answers
    for line in sys.stdin:
        source, target, denoise = json.loads(line)
        _reset_peak()
        start = time.process_time()
        answer: dict[str, Any] = {"accepted": False, "message": "", "traceback": False}
        try:
            answer |= _treat(Path(source), Path(target), denoise=denoise)
        except NeluError as error:
            answer["message"] = str(error)
            answer["traceback"] = "\n" in str(error)
        except BaseException as error:  # what must not happen
            answer |= {"message": f"{type(error).__name__}: {error}", "traceback": True}
        answer |= {"seconds": time.process_time() - start, "peak": _peak()}
        print(json.dumps(answer), file=answers, flush=True)


def _treat(source: Path, target: Path, *, denoise: bool) -> dict[str, Any]:
    if denoise:
        return _denoise(source, target)
    picture = images.read(source, max_pixels=MAX_PIXELS)
    images.write(picture, target, allow_depth_loss=True)
    return {"accepted": True, "digest": digest(picture), "notes": len(picture.notes)}


def _denoise(source: Path, target: Path) -> dict[str, Any]:
    """The whole command; what it read is found out beside it."""
    from nelu_cli.cli import run

    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        options = ["--allow-depth-loss", "--max-pixels", str(MAX_PIXELS)]
        status = run(["denoise", *options, str(source), str(target)])
    message = errors.getvalue().strip()
    answer = {
        "accepted": status == 0,
        "message": message,
        "traceback": "Traceback" in message or status not in (0, 1),
    }
    if status == 0:
        picture = images.read(source, max_pixels=MAX_PIXELS)
        answer |= {"digest": digest(picture), "notes": len(picture.notes)}
    return answer


def _reset_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak() -> int:
    """The most memory since the last reset, MiB; where Linux cannot tell, since the start."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) >> 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


class Worker:
    """A process that treats cases, started again when it dies."""

    def __init__(self) -> None:
        """Start it."""
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.mutations", "--worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, source: Path, target: Path, *, denoise: bool) -> dict[str, Any]:
        """Have a case treated."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps([str(source), str(target), denoise]).encode() + b"\n")
            stdin.flush()
        line = stdout.readline() if _ready(stdout) else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.close()
        why = self.process.returncode
        self._start()
        message = f"the process died ({why}) or took more than {SECONDS} s"
        return {"accepted": False, "message": message, "traceback": True, "seconds": 0, "peak": 0}

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def _ready(stream: IO[bytes]) -> bool:
    return bool(select.select([stream], [], [], SECONDS)[0])


# All cases


def suffix_of(data: bytes) -> str:
    """The extension for a file of this content."""
    format = images.probe(data).format
    return next(key for key, value in images.READABLE.items() if value == format)


def cases(
    seeds: dict[str, bytes], suffixes: dict[str, str], first: int, count: int, seed: int
) -> Iterator[tuple[int, str, bytes, bool]]:
    """Number, kind, content, and whether it was cut off."""
    kinds = list(seeds)
    for number in range(first, first + count):
        chance = random.Random(f"{seed} {number}")
        kind = kinds[number % len(kinds)]
        cut = chance.random() < 0.3
        damage = (
            cut_off(seeds[kind], suffixes[kind], chance) if cut else mutated(seeds[kind], chance)
        )
        yield number, kind, damage, cut


def judge(
    outcome: Outcome,
    answer: dict[str, Any],
    source: Path,
    target: Path,
    original: bytes,
    whole: str,
) -> None:
    """Fill in what a case came to; ``whole`` is the digest of the sound picture, if it was cut."""
    outcome.accepted = answer["accepted"]
    outcome.message = answer["message"]
    outcome.seconds, outcome.peak = answer["seconds"], answer["peak"]
    if answer["traceback"]:
        outcome.failures.append("traceback")
    if source.read_bytes() != original:
        outcome.failures.append("lost original")
    expected = {source.name, target.name} if outcome.accepted else {source.name}
    if {path.name for path in source.parent.iterdir()} != expected:
        outcome.failures.append("torn file")
    elif outcome.accepted:
        try:
            images.read(target)
        except ImageError:
            outcome.failures.append("torn file")
    if whole and outcome.accepted and not answer["notes"] and answer["digest"] != whole:
        outcome.failures.append("silent loss")


def run(options: argparse.Namespace) -> list[Outcome]:
    """All cases, one after the other."""
    made = {**SEEDS, **extra_seeds()}
    if options.real is not None:
        made |= real_seeds(options.real)
    seeds = {kind: make() for kind, make in made.items()}
    suffixes = {kind: suffix_of(data) for kind, data in seeds.items()}
    wholes = {kind: digest(images.read(data)) for kind, data in seeds.items()}
    outcomes = []
    worker = Worker()
    try:
        for number, kind, content, cut in cases(
            seeds, suffixes, options.first, options.count, options.seed
        ):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                source = folder / f"in{suffixes[kind]}"
                writable = suffixes[kind] in images.EXTENSIONS
                target = folder / f"out{suffixes[kind] if writable else '.png'}"
                source.write_bytes(content)
                chosen = random.Random(f"{options.seed} {number} denoise").randrange(
                    options.denoise or 1
                )
                denoise = options.denoise > 0 and chosen == 0
                outcome = Outcome(kind, number)
                answer = worker.ask(source, target, denoise=denoise)
                judge(outcome, answer, source, target, content, wholes[kind] if cut else "")
                outcomes.append(outcome)
                if outcome.failures and options.keep is not None:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, options.keep / f"{number}-{kind}{source.suffix}")
    finally:
        worker.close()
    return outcomes


def summary(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """A row for each kind of file, and one for all."""
    rows = []
    for kind in [*dict.fromkeys(outcome.kind for outcome in outcomes), "all"]:
        own = [outcome for outcome in outcomes if kind in (outcome.kind, "all")]
        counts = {
            name: sum(name[:-1] in outcome.failures for outcome in own)
            for name in ("tracebacks", "torn files", "lost originals")
        }
        rows.append(
            {
                "kind": kind,
                "cases": len(own),
                "accepted": sum(outcome.accepted for outcome in own),
                **counts,
                "silent losses": sum("silent loss" in outcome.failures for outcome in own),
                "peak, MiB": max(outcome.peak for outcome in own),
                "processor, s": max(outcome.seconds for outcome in own),
            }
        )
    return rows


def main() -> None:
    """Parse, run, print; exit 1 if anything happened that must not."""
    arguments = parser(__doc__)
    arguments.add_argument("--count", type=int, default=1000, help="how many cases")
    arguments.add_argument("--first", type=int, default=0, help="number of the first one")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--real", type=Path, help="a folder of pictures to damage as well")
    arguments.add_argument(
        "--denoise", type=int, default=20, help="denoise every so manieth case; 0: none"
    )
    arguments.add_argument("--keep", type=Path, help="where to put the cases that went wrong")
    arguments.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.worker:
        work()
        return
    outcomes = run(options)
    wrong = [outcome for outcome in outcomes if outcome.failures]
    formats = {
        "kind": "",
        "cases": "d",
        "accepted": "d",
        "tracebacks": "d",
        "torn files": "d",
        "lost originals": "d",
        "silent losses": "d",
        "peak, MiB": "d",
        "processor, s": ".1f",
    }
    show(
        f"{options.count} damaged files, seed {options.seed}",
        summary(outcomes),
        options.json,
        formats,
    )
    for outcome in wrong:
        print(json.dumps(asdict(outcome)), file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
