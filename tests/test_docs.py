"""The commands of the pages under docs/ do what they say.

A block of code that follows the line ``<!-- run -->`` is run: ``nelu`` commands of ``sh`` blocks,
``python`` blocks as a whole, one page in one folder that holds the picture ``noisy.png``.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from PIL import Image

from nelu_cli.cli import run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
TEXTS = sorted([*PAGES, *ROOT.glob("*.md"), *ROOT.glob("[!.]*/[A-Z]*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^<!-- run -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a small noisy picture, to work in."""
    Image.open(DOCS / "noisy.png").crop((40, 40, 200, 160)).save(tmp_path / "noisy.png")
    shutil.copytree(tmp_path, tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("default")  # those of Dask and Zarr are theirs
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_commands_of_a_page_work(page: Path, folder: Path) -> None:
    blocks = BLOCK.findall(page.read_text("utf-8"))
    assert blocks, "a page without a command that is tested"
    for language, text in blocks:
        if language == "python":
            exec(compile(text, f"{page.name}", "exec"), {"__name__": page.stem})
            continue
        assert language == "sh"
        for line in text.splitlines():
            name, *arguments = shlex.split(line, comments=True)
            assert name == "nelu"
            assert run(arguments) == 0, line


@pytest.mark.parametrize("page", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_or_a_heading_of_it(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith("https://"):
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if heading:
            assert heading in anchors(target), link


def anchors(page: Path) -> set[str]:
    """The names that headings have in links, as hosts of Markdown make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
