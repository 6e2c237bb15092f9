"""Kills at any moment: what a stopped `nelu denoise` leaves behind.

A process that has imported everything makes a copy of itself for each case; the copy runs the whole
command over a folder of small pictures, into another folder or in place, and is sent SIGKILL,
SIGTERM or SIGINT: every other time at a random moment, else as soon as the temporary file of one of
its outputs, drawn at random, is seen. Counts what must never happen:

- torn files: an output that is not byte for byte that of a run to the end;
- lost originals: an input that is neither what it was nor, in place, its whole result;
- litter: temporary files; those of SIGKILL only once a next run has swept the folder;
- tracebacks, and statuses other than 128 and the signal's number, or 0 of a run that was done.

``left by SIGKILL`` counts the temporary files that were open when a kill came: kills that hit the
writing itself. A case depends on ``--seed`` and its number; how far it gets, on the machine.
"""

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from benchmarks.common import parser, show
from nelu_cli import stopping
from nelu_cli.atomic import sweep

__all__ = ["examine", "main"]

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LITTER = ".*.tmp"


def make_pictures(folder: Path) -> None:
    """Small pictures of five kinds."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48), dtype=np.uint8)
    for name in ("a.png", "b.jpg", "c.webp", "d.bmp"):
        Image.fromarray(pixels).save(folder / name)
    tifffile.imwrite(folder / "e.tif", np.stack([pixels] * 3), photometric="minisblack")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def start(source: Path, target: Path, said: Path) -> int:
    """Run the command in a copy of this process; return its number."""
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stopping.end_at_once()  # as the command does while it imports
    process = os.fork()
    if process:
        for number, action in usual.items():
            signal.signal(number, action)
        return process
    status = 70
    try:
        with open(said, "wb") as file:
            os.dup2(file.fileno(), 2)
        stopping.raise_stopped()
        from nelu_cli.cli import run

        options = ["--model", "deep-gray", "--threads", "1", "--quiet", "--force"]
        status = run(["denoise", *options, str(source), str(target)])
        sys.stderr.flush()
    except BaseException as error:  # nothing of the harness goes on in the copy
        os.write(2, f"Traceback: {error!r}\n".encode())
    finally:
        os._exit(status)


def examine(
    source: Path, target: Path, originals: dict[str, bytes], results: dict[str, bytes]
) -> list[str]:
    """What is wrong with the files, litter apart."""
    wrong = []
    for name, content in originals.items():
        path = source / name
        found = path.read_bytes() if path.exists() else b""
        if found != content and (source != target or found != results[name]):
            wrong.append("lost originals")
    if source != target:
        outputs = contents(target).items()
        whole = (found == results.get(n) for n, found in outputs if not n.endswith(".tmp"))
        wrong += ["torn files" for each in whole if not each]
    return wrong


def case(number: int, chance: random.Random, folder: Path, longest: float) -> Counter[str]:
    """One run and its end."""
    originals, results = contents(folder / "pictures"), contents(folder / "results")
    source = folder / "in"
    shutil.copytree(folder / "pictures", source)
    target = source if number % 2 else folder / "out"
    kill = SIGNALS[number // 2 % len(SIGNALS)]
    said = folder / "said"
    process = start(source, target, said)
    if number // 6 % 2:
        await_writing(target, chance.randrange(len(originals)), longest)
    else:
        time.sleep(chance.uniform(0, longest))
    os.kill(process, kill)  # it is still ours, ended or not
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    counts = Counter({kill.name: 1, "finished before": status == 0})
    expected = -kill if kill == signal.SIGKILL else 128 + kill
    counts["wrong statuses"] += status not in (0, expected)
    if status not in (0, expected):
        print(number, kill.name, status, said.read_bytes(), file=sys.stderr)
    counts["tracebacks"] += b"Traceback" in said.read_bytes() if said.exists() else 0
    counts.update(examine(source, target, originals, results))
    left = (
        [*source.glob(LITTER), *target.glob(LITTER)] if target != source else [*source.glob(LITTER)]
    )
    if kill == signal.SIGKILL:
        counts["left by SIGKILL"] += len(left)
        for path in left:
            os.utime(path, (0, 0))  # as if time had passed
        sweep(target)
        left = [*target.glob(LITTER)]
    counts["litter"] += len(left)
    shutil.rmtree(source)
    shutil.rmtree(folder / "out", ignore_errors=True)
    return counts


def await_writing(target: Path, skip: int, longest: float) -> None:
    """Wait until a temporary file is there, but for the first ones."""
    seen: set[str] = set()
    end = time.monotonic() + 2 * longest
    while len(seen) <= skip and time.monotonic() < end:
        with contextlib.suppress(OSError):
            seen |= {path.name for path in target.glob(LITTER)}


def import_all() -> None:
    """Import all that the command needs, and compute nothing: threads are not copied."""
    import nelu_cli.cli
    import nelu_cli.files.queue
    import nelu_cli.runtime.allocator
    import nelu_cli.runtime.device  # noqa: F401


def main() -> None:
    """Parse, run, print; exit 1 if anything happened that must not."""
    arguments = parser(__doc__)
    arguments.add_argument("--count", type=int, default=100, help="how many kills")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pictures(folder / "pictures")
        import_all()
        took = []
        for _ in range(3):  # the results, and how long it takes
            began = time.monotonic()
            process = start(folder / "pictures", folder / "results", folder / "said")
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            if status:
                sys.exit(f"the command fails: {(folder / 'said').read_text()}")
            took.append(time.monotonic() - began)
        for number in range(options.count):
            chance = random.Random(f"{options.seed} {number}")
            counts += case(number, chance, folder, min(took))
    bad = ("torn files", "lost originals", "litter", "tracebacks", "wrong statuses")
    names = [*(each.name for each in SIGNALS), "finished before", "left by SIGKILL", *bad]
    row = {each: counts[each] for each in names}
    show(
        f"{options.count} kills, seed {options.seed}",
        [row],
        options.json,
        dict.fromkeys(names, "d"),
    )
    sys.exit(any(counts[each] for each in bad))


if __name__ == "__main__":
    main()
