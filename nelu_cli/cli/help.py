"""Help as people read it: options in groups, types in words; plain text, which is fast.

An option's group is its ``rich_help_panel``, the name that Typer has for it.
"""

import re
from typing import Any

from typer.core import TyperCommand

_WORDS = {"str": "TEXT", "path": "PATH", "int": "NUMBER", "float": "NUMBER"}
_TYPE = re.compile(r" <([^<>]+)>")
_RANGES = (
    (re.compile(r"([\d.]+)<=x<=([\d.]+)"), r"\1 to \2"),
    (re.compile(r"x>=([\d.]+)"), r"\1 or more"),
)


class PlainCommand(TyperCommand):
    """A command whose help has a section for each group of options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name, text = record
                is_argument = parameter.param_type_name == "argument"
                usual = "Arguments" if is_argument else "Options"
                section = getattr(parameter, "rich_help_panel", None) or usual
                named = _TYPE.sub("" if is_argument else _in_words, name)
                sections.setdefault(section, []).append((named, _with_ranges(text)))
        last = sections.pop("Options", [])  # with --help; after the groups
        for section, records in [*sections.items(), *([("Options", last)] if last else [])]:
            with formatter.section(section):
                formatter.write_dl(records)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [self.options_metavar] if self.options_metavar else []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = parameter.metavar or (parameter.name or "").upper()
                if parameter.nargs != 1 and "..." not in name:
                    name += "..."
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces


def _in_words(match: re.Match[str]) -> str:
    """What Typer calls <list[str]> or <int range>, as a person would."""
    kind = match[1].removesuffix(" range").removeprefix("list[").removesuffix("]")
    return " " + _WORDS.get(kind, kind)


def _with_ranges(text: str) -> str:
    for pattern, words in _RANGES:
        text = pattern.sub(words, text)
    return text
