"""docs/maths.md names the test of every formula; each of them exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_the_mathematics_names_exists() -> None:
    text = (ROOT / "docs/maths.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py")]
    there = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.M)}
    assert len(named) > 30
    assert named <= there, named - there


def test_every_section_of_the_mathematics_but_the_problem_has_a_test() -> None:
    text = (ROOT / "docs/maths.md").read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    assert len(sections) == 11
    assert all("→ `test_" in section for section in sections)
