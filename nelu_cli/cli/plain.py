"""Text from outside, made safe to print: file names, metadata, messages of other programs."""

import unicodedata

_UNSAFE = {"Cc", "Cs", "Zl", "Zp"}  # controls (ESC, newline, C1), lone surrogates, separators
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: object) -> str:
    """One line without anything that a terminal would obey, each such character as an escape."""
    return "".join(
        _escaped(character) if _is_unsafe(character) else character for character in str(text)
    )


def _is_unsafe(character: str) -> bool:
    return character in _TURNING or unicodedata.category(character) in _UNSAFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
