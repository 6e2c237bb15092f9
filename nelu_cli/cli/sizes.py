"""Values as people write them: sizes (512M, 2G, 1GiB) and words."""

import re
import sys
from typing import TYPE_CHECKING

from nelu_cli.errors import UsageError

if TYPE_CHECKING:
    from nelu_cli.runtime.options import Quality


def parse_bytes(text: str, option: str) -> int:
    """``512M``, ``2G``, ``1GiB`` as bytes; units are powers of 1024."""
    return _parse(text, option, 1024, "i?b?")


def parse_count(text: str, option: str) -> int:
    """``500M``, ``1G`` as a count; units are powers of 1000."""
    return _parse(text, option, 1000, "")


def parse_quality(word: str) -> "Quality":
    """``normal`` or ``best``; ``fast``, which was the same as normal, for one more version."""
    if word == "fast":
        print("nelu: note: --quality fast is the same as normal and will go", file=sys.stderr)
        return "normal"
    if word == "best":
        return "best"
    if word == "normal":
        return "normal"
    raise UsageError(f"--quality {word!r}: choose normal or best")


def _parse(text: str, option: str, base: int, ending: str) -> int:
    match = re.fullmatch(rf"(\d{{1,15}}(?:\.\d+)?) ?([kmgt]?){ending}", text.strip().lower())
    size = 0 if match is None else int(float(match[1]) * base ** " kmgt".index(match[2] or " "))
    if size < 1:
        raise UsageError(f"{option} {text!r} is no size; write it as 512M or 2G")
    return size
