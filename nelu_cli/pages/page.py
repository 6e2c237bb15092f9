"""The page itself: one HTML file with everything inside, and nothing from elsewhere.

Every text from outside is escaped. Should one get through all the same, it does nothing: the
page's content security policy allows the one script and the one style sheet whose hashes it names,
and images that are part of the page.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from nelu_cli.atomic import atomic_file
from nelu_cli.pages.entry import SCALE, Entry, Looks, View

PAGE_BYTES = 19_000_000  # of all the images together; the text comes on top
_MOST_FOR_ONE = 6_000_000  # bytes
_ZOOMS = (("fit", "Fit"), ("1", "100 %"), ("2", "200 %"), ("4", "400 %"))


def picture_budget(pictures: int) -> int:
    """How many bytes the images of one of so many pictures may take."""
    return min(_MOST_FOR_ONE, PAGE_BYTES // max(1, pictures))


def write_page(path: Path, title: str, entries: Sequence[Entry]) -> None:
    """Write the page, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with atomic_file(path) as handle:
        for part in render(title, entries):
            handle.write(part.encode("utf-8", "backslashreplace"))


def render(title: str, entries: Sequence[Entry]) -> Iterator[str]:
    """The page, part by part."""
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    shown = [(number, entry, entry.looks) for number, entry in enumerate(entries, 1) if entry.looks]
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#pictures">To the pictures</a>\n<h1>{_text(title)}</h1>\n'
        "<noscript><p>The slider and the zoom need JavaScript, which is turned off here.</p>"
        "</noscript>\n"
    )
    yield from _table(entries)
    yield '<main id="pictures">\n'
    if shown:
        yield (
            '<p class="help">Drag across a picture, or move its slider, to see before and after. '
            "Double-click, Ctrl and the wheel, or the keys +, − and 0 zoom. "
            "The arrow keys scroll an enlarged picture.</p>\n"
        )
    for each in shown:
        yield from _article(*each)
    yield f"</main>\n<script>{script}</script>\n</body>\n</html>\n"


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    failed = sum(bool(entry.problem) for entry in entries)
    seen = sum(entry.looks is not None for entry in entries)
    counts = f"{len(entries)} picture{'s' if len(entries) != 1 else ''}, {seen} shown below"
    columns = [
        (title, cells)
        for title, cells in (
            ("Size", [entry.picture for entry in entries]),
            ("Noise", [entry.noise for entry in entries]),
            ("Model", [entry.model for entry in entries]),
            ("Seconds", [_seconds(entry) for entry in entries]),
        )
        if any(cells)
    ]
    heads = "".join(f'<th scope="col">{title}</th>' for title, _ in columns)
    yield (
        '<div class="table" tabindex="0" role="region" aria-label="Table of all files">\n<table>\n'
        f"<caption>{counts}{f', {failed} not done' if failed else ''}</caption>\n"
        '<thead><tr><th scope="col">Picture</th><th scope="col">File</th>'
        f"{heads}</tr></thead>\n<tbody>\n"
    )
    for row, entry in enumerate(entries):
        name, image = _text(entry.name), ""
        if entry.looks is not None:
            name = f'<a href="#picture-{row + 1}">{name}</a>'
            image = f'<img class="thumbnail" src="{entry.looks.thumbnail}" alt="">'
        if entry.result:
            name += f'<br><span class="result">→ {_text(entry.result)}</span>'
        if entry.problem:
            rest = f'<td colspan="{len(columns)}" class="problem">{_text(entry.problem)}</td>'
        else:
            rest = "".join(f"<td>{_text(cells[row])}</td>" for _, cells in columns)
        yield f'<tr><td>{image}</td><th scope="row">{name}</th>{rest}</tr>\n'
    yield "</tbody>\n</table>\n</div>\n"


def _seconds(entry: Entry) -> str:
    return "" if entry.seconds is None else f"{entry.seconds:.1f}"


def _article(number: int, entry: Entry, looks: Looks) -> Iterator[str]:
    """One picture with its controls."""
    label = f"picture-{number}"
    facts = [entry.picture, entry.noise, entry.model, looks.note]
    yield (
        f'<article id="{label}" aria-labelledby="{label}-name">\n'
        f'<h2 id="{label}-name">{_text(entry.name)}</h2>\n'
        f'<p class="facts">{_text(", ".join(filter(None, facts)))}</p>\n<div class="controls">\n'
    )
    places = [(str(index), view.name) for index, view in enumerate(looks.views)]
    yield _choice(f"{label}-place", "place", "Place", places)
    kinds = [
        ("compare", "Before and after"),
        ("removed", f"Removed noise, ×{looks.amplified}"),
        ("map", "Noise map"),
    ]
    yield _choice(f"{label}-kind", "kind", "Show", kinds)
    yield _choice(f"{label}-zoom", "zoom", "Zoom", _ZOOMS)
    yield (
        f'<label class="split">Divide at <input type="range" class="slider" min="0" max="100" '
        f'value="50" aria-label="How much of {_text(entry.name)} shows the state before">'
        "</label>\n</div>\n"
        f'<div class="pane" tabindex="0" role="region" aria-label="{_text(entry.name)}, enlarged">'
        '<div class="stage">\n'
    )
    for index, view in enumerate(looks.views):
        yield from _view(index, view, entry.name)
    first = looks.views[0]
    yield (
        f'<figure class="view" data-kind="map" data-caption="Deviation of what was removed, '
        'over the whole picture" hidden>'
        f'<img class="map" src="{looks.noise_map}" width="{first.width}" height="{first.height}" '
        f'draggable="false" alt="How much was removed, place by place"></figure>\n'
        '<div class="divider"></div>\n</div></div>\n'
        f'<p class="caption" aria-live="polite">{_text(first.name)}: {_text(first.caption)}</p>\n'
        '<p class="scale" hidden>0 <span class="bar"></span> '
        f"{looks.strongest:.1f} of 255, and more</p>\n</article>\n"
    )


def _view(index: int, view: View, name: str) -> Iterator[str]:
    size = f'width="{view.width}" height="{view.height}" draggable="false" decoding="async"'
    hidden = " hidden" if index else ""
    caption = f"{_text(view.name)}: {_text(view.caption)}"
    yield (
        f'<figure class="view pair" data-place="{index}" data-kind="compare" '
        f'data-caption="{caption}"{hidden}>'
        f'<img class="before" src="{view.before}" {size} alt="{_text(name)} before">'
        f'<img class="after" src="{view.after}" {size} alt="{_text(name)} after"></figure>\n'
        f'<figure class="view" data-place="{index}" data-kind="removed" '
        f'data-caption="{caption}" hidden>'
        f'<img src="{view.removed}" {size} alt="The noise removed from {_text(name)}"></figure>\n'
    )


def _choice(name: str, use: str, legend: str, options: Sequence[tuple[str, str]]) -> str:
    buttons = "".join(
        f'<label><input type="radio" name="{name}" data-use="{use}" value="{value}"'
        f"{' checked' if not index else ''}> {_text(text)}</label>"
        for index, (value, text) in enumerate(options)
    )
    return f'<fieldset class="{use}"><legend>{legend}</legend>{buttons}</fieldset>\n'


def _text(text: str) -> str:
    """Text for an element or an attribute; control characters become visible."""
    return escape(
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def _resource(name: str) -> str:
    text = (resources.files("nelu_cli.pages") / name).read_text("utf-8")
    stops = ", ".join(f"rgb({red}, {green}, {blue})" for red, green, blue in SCALE)
    return text.replace("SCALE_STOPS", stops)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
