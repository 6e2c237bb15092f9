"""Values as people write them: sizes (512M, 2G, 1GiB), ranges, words."""

import re
import sys

from nelu_cli.errors import UsageError
from nelu_cli.words import Quality


def parse_bytes(text: str, option: str) -> int:
    """``512M``, ``2G``, ``1GiB`` as bytes; units are powers of 1024."""
    return _parse(text, option, 1024, "i?b?")


def parse_count(text: str, option: str) -> int:
    """``500M``, ``1G`` as a count; units are powers of 1000."""
    return _parse(text, option, 1000, "")


def parse_quality(word: str) -> Quality:
    """``normal`` or ``best``; ``fast``, which was the same as normal, for one more version."""
    if word == "fast":
        print("nelu: note: --quality fast is the same as normal and will go", file=sys.stderr)
        return "normal"
    if word == "best":
        return "best"
    if word == "normal":
        return "normal"
    raise UsageError(f"--quality {word!r}: choose normal or best")


def parse_range(text: str | None, option: str) -> tuple[float, float] | None:
    """``15`` or ``0-120``, as the two ends of a range."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?", text.strip())
    if not match:
        raise UsageError(f"{option} {text}: give a number such as 15, or a range such as 0-120")
    low = float(match[1])
    return low, float(match[2]) if match[2] else low


def parse_counts(text: str | None) -> tuple[int, ...] | None:
    """``48,80``, as whole numbers."""
    if text is None:
        return None
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise UsageError(f"{text}: give whole numbers separated by commas") from None


def _parse(text: str, option: str, base: int, ending: str) -> int:
    match = re.fullmatch(rf"(\d{{1,15}}(?:\.\d+)?) ?([kmgt]?){ending}", text.strip().lower())
    size = 0 if match is None else int(float(match[1]) * base ** " kmgt".index(match[2] or " "))
    if size < 1:
        raise UsageError(f"{option} {text!r} is no size; write it as 512M or 2G")
    return size
