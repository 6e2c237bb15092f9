"""The page to look at, without a browser: what is on it, how large it is, what is refused."""

import base64
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from nelu_cli.images import Metadata, Picture
from nelu_cli.images.picture import Refusal
from nelu_cli.pages import Entry, look_at, picture_budget, render, write_page
from nelu_cli.pages.display import pair_of
from nelu_cli.pages.places import busiest_and_flattest

Nelu = Callable[..., tuple[int, str, str]]
NASTY = "<script>alert('1')</script>\"&\n.png"


def scene(height: int = 96, width: int = 128, channels: int = 3, seed: int = 0) -> Picture:
    """A smooth picture with noise."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(40, 200, width)[None, :, None] + rng.normal(0, 12, (height, width, channels))
    return Picture(np.rint(ramp).clip(0, 255).astype(np.uint8), None, "PNG")


def cleaned(picture: Picture) -> Picture:
    """Each pixel replaced by the mean of its column."""
    mean = picture.pixels.mean(0, keepdims=True)
    pixels = np.broadcast_to(mean, picture.pixels.shape).astype(picture.pixels.dtype)
    return Picture(pixels, None, picture.format, picture.metadata)


def decoded(address: str) -> NDArray[np.uint8]:
    kind, content = address.split(",")
    assert kind in ("data:image/png;base64", "data:image/jpeg;base64")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


class Page(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.said += data


# What is shown


def test_a_picture_that_fits_is_shown_whole_and_without_losses() -> None:
    before = scene()
    after = cleaned(before)
    (view,) = look_at(before, after, 10**6).views
    assert np.array_equal(decoded(view.before), before.pixels)
    assert np.array_equal(decoded(view.after), after.pixels)


def test_the_removed_noise_is_the_difference_amplified() -> None:
    before = scene(channels=1)
    after = cleaned(before)
    looks = look_at(before, after, 10**6)
    difference = before.pixels[..., 0].astype(int) - after.pixels[..., 0]
    expected = (128 + looks.amplified * difference).clip(0, 255)
    assert np.array_equal(decoded(looks.views[0].removed), expected)
    assert looks.amplified == 2  # 12 levels are brought to about 28


def test_the_noise_map_is_bright_where_more_was_removed() -> None:
    pixels = np.full((96, 128, 1), 100, np.uint8)
    before = Picture(pixels.copy(), None, "PNG")
    pixels[:, :64] -= 8
    looks = look_at(before, Picture(pixels, None, "PNG"), 10**6)
    noise_map = decoded(looks.noise_map).astype(int)
    assert noise_map[:, :8, 1].min() > 200  # yellow
    assert noise_map[:, 8:, 1].max() < 10  # violet
    assert looks.strongest == pytest.approx(8, rel=1e-5)


@pytest.mark.parametrize("budget", [40_000, 120_000, 400_000, 2_000_000])
def test_the_images_of_a_large_picture_fit_into_the_budget(budget: int) -> None:
    before = scene(1300, 1900)
    looks = look_at(before, cleaned(before), budget)
    names = ["Overview", "Busiest place", "Flattest place"]
    assert [view.name for view in looks.views] == (names if budget > 40_000 else names[:1])
    images = [image for view in looks.views for image in (view.before, view.after, view.removed)]
    assert sum(map(len, [*images, looks.thumbnail, looks.noise_map])) <= budget


def test_fifty_pictures_stay_below_twenty_megabytes() -> None:
    before = scene(400, 600)
    looks = look_at(before, cleaned(before), picture_budget(50))
    entries = [Entry(f"{number}.png", looks=looks) for number in range(50)]
    assert sum(len(part.encode()) for part in render("fifty", entries)) < 20_000_000


def test_depths_are_compared_by_their_white() -> None:
    before = scene(channels=1)
    deep = Picture(before.pixels.astype(np.uint16) * 257, None, "PNG")
    looks = look_at(before, deep, 10**6)
    assert np.array_equal(decoded(looks.views[0].before), decoded(looks.views[0].after))
    assert np.all(decoded(looks.views[0].removed) == 128)


def test_dim_pictures_are_stretched_and_the_page_says_so() -> None:
    pixels = np.linspace(200, 1400, 64 * 64).reshape(64, 64, 1).astype(np.uint16)
    picture = Picture(pixels, None, "TIFF")
    looks = look_at(picture, picture, 10**6)
    shown = decoded(looks.views[0].before)
    assert (shown.min(), shown.max()) == (0, 255)
    assert looks.note == "values from 201 to 1398 are shown as black to white"


def test_a_stack_shows_its_middle_page_and_says_so() -> None:
    pixels = np.full((5, 32, 32, 1), 90, np.uint8)
    pixels[2] = 120
    picture = Picture(pixels, None, "TIFF")
    looks = look_at(picture, picture, 10**6)
    assert np.all(decoded(looks.views[0].before) == 120)
    assert looks.note == "page 3 of 5 is shown"


def test_an_orientation_is_applied() -> None:
    turned = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # 6: turn right
    before = scene(20, 50)
    picture = Picture(before.pixels, None, "JPEG", Metadata(exif=turned))
    (view,) = look_at(picture, picture, 10**6).views
    assert (view.width, view.height) == (20, 50)


@pytest.mark.parametrize("value", [0, 7, 255])
def test_equal_flat_pictures_have_looks_too(value: int) -> None:
    picture = Picture(np.full((1, 1, 1), value, np.uint8), None, "PNG")
    assert np.all(decoded(look_at(picture, picture, 10**6).views[0].removed) == 128)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((96, 129, 3), "is 129×96, 3 channels, the other picture 128×96, 3 channels"),
        ((96, 128, 1), "is 128×96, 1 channels, the other picture 128×96, 3 channels"),
        ((2, 96, 128, 3), "is 128×96, 2 pages, 3 channels, the other picture 128×96, 3 channels"),
    ],
)
def test_pictures_that_do_not_belong_together_are_refused(
    shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(Refusal, match=f"^{re.escape(message)}$"):
        pair_of(scene(), Picture(np.zeros(shape, np.uint8), None, "PNG"))


def test_the_busiest_and_the_flattest_place_are_found() -> None:
    pixels = np.full((320, 480, 1), 128, np.uint8)
    pixels[::2] += 4  # some detail everywhere,
    pixels[32:96, 320:384] = np.arange(64)[None, :, None] % 2 * 200  # much here,
    pixels[200:290, 100:190] = 128  # none there
    pixels[:, 420:] = 255  # nor where all is white, which is no place to judge noise
    busy, flat = busiest_and_flattest(pixels, 64)
    assert busy == (slice(32, 96), slice(320, 384))
    assert flat == (slice(208, 272), slice(112, 176))


# The page


def test_names_and_facts_are_escaped() -> None:
    looks = look_at(scene(), cleaned(scene()), 10**6)
    entries = [
        Entry(NASTY, result=NASTY, picture=NASTY, noise=NASTY, model=NASTY, looks=looks),
        Entry(NASTY, problem=NASTY),
    ]
    page = Page("".join(render(NASTY, entries)))
    assert page.tags.count("script") == 1
    assert "alert" not in "".join(name for name, _ in page.attributes)
    assert "<script>alert('1')</script>\"&\\n.png" in page.said


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    looks = look_at(scene(), cleaned(scene()), 10**6)
    page = Page("".join(render("page", [Entry("a.png", looks=looks)])))
    links = [value or "" for name, value in page.attributes if name in ("src", "href", "srcset")]
    assert links
    assert all(link.startswith(("data:image/", "#")) for link in links)
    assert "http:" not in page.said
    assert "https:" not in page.said
    assert "@import" not in page.said


def test_only_the_page_s_own_script_and_style_may_run() -> None:
    text = "".join(render("page", [Entry("a.png", problem="damaged")]))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "unsafe" not in policy[1]
    assert len(re.findall("'sha256-[^']{44}'", policy[1])) == 2


def test_every_image_has_a_text_and_every_control_a_name() -> None:
    looks = look_at(scene(), cleaned(scene()), 10**6)
    text = "".join(render("page", [Entry("a.png", looks=looks)]))
    assert len(re.findall(r"<img ", text)) == len(re.findall(r" alt=\"", text))
    assert '<html lang="en">' in text
    assert 'aria-label="How much of a.png shows the state before"' in text


def test_empty_columns_are_left_out() -> None:
    text = "".join(render("page", [Entry("a.png", picture="1×1 grey uint8", seconds=0.25)]))
    assert re.findall(r'<th scope="col">(\w+)', text) == ["Picture", "File", "Size", "Seconds"]


def test_a_name_that_is_no_text_can_be_written(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", "page", [Entry("\udcff.png", problem="damaged")])
    assert "\\udcff.png" in (tmp_path / "page.html").read_text("utf-8")


# nelu compare


def save(picture: Picture, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture.pixels).save(path)
    return path


def test_two_pictures_become_a_page(nelu: Nelu, tmp_path: Path) -> None:
    before = save(scene(), tmp_path / "noisy.png")
    after = save(cleaned(scene()), tmp_path / "clean.png")
    status, out, err = nelu("compare", before, after, tmp_path / "new" / "page.html")
    assert (status, out) == (0, "")
    assert err.startswith(f"{tmp_path / 'new' / 'page.html'}: 1 of 1 pictures, 0.")
    page = Page((tmp_path / "new" / "page.html").read_text("utf-8"))
    assert "noisy.png" in page.said
    assert "128×96 RGB uint8" in page.said
    noise = re.search(r"noise ([\d.]+)/255", page.said)
    assert noise
    assert float(noise[1]) == pytest.approx(12, rel=0.15)


def test_folders_are_compared_name_by_name_and_what_is_left_over_is_named(
    nelu: Nelu, tmp_path: Path
) -> None:
    for name in ("a.png", "deep/b.png", "alone.png"):
        save(scene(), tmp_path / "in" / name)
    save(cleaned(scene()), tmp_path / "out" / "a.png")
    save(cleaned(scene()), tmp_path / "out" / "deep" / "b.tif")
    save(cleaned(scene()), tmp_path / "out" / "other.png")
    page = tmp_path / "page.html"
    status, _, err = nelu("compare", tmp_path / "in", tmp_path / "out", page)
    assert status == 1
    assert err.splitlines() == [
        f"nelu: {tmp_path / 'in' / 'alone.png'}: nothing of that name in {tmp_path / 'out'}",
        f"nelu: {tmp_path / 'out' / 'other.png'}: nothing of that name in {tmp_path / 'in'}",
        f"{page}: 2 of 4 pictures, {page.stat().st_size / 1e6:.1f} MB",
    ]
    said = Page(page.read_text("utf-8")).said
    assert "4 pictures, 2 shown below, 2 not done" in said
    assert "b.tif" in said


def test_compare_refuses_in_one_line(nelu: Nelu, tmp_path: Path) -> None:
    picture = save(scene(), tmp_path / "a.png")
    small = save(scene(20, 30), tmp_path / "small.png")
    page = tmp_path / "page.html"
    page.write_text("mine")
    (tmp_path / "folder.html").mkdir()
    new = tmp_path / "new.html"
    cases = {
        (picture, picture, page): (1, f"{page}: exists already; --force replaces it"),
        (picture, picture, tmp_path / "page.png"): (
            2,
            f"{tmp_path / 'page.png'}: a page is an HTML file; let its name end in .html",
        ),
        (picture, picture, tmp_path / "folder.html"): (
            1,
            f"{tmp_path / 'folder.html'}: is a folder, where a page should be written",
        ),
        (picture, tmp_path, new): (
            2,
            f"{picture} and {tmp_path}: give two pictures or two folders",
        ),
        (page, picture, page, "--force"): (2, f"{page}: the page needs a name of its own"),
        (picture, small, new): (
            1,
            f"{small}: is 30×20, 3 channels, the other picture 128×96, 3 channels\n"
            f"nelu: {new}: not written, there is nothing to show",
        ),
        (picture, tmp_path / "none.png", new): (
            1,
            f"{tmp_path / 'none.png'}: No such file or directory\n"
            f"nelu: {new}: not written, there is nothing to show",
        ),
    }
    for arguments, (expected, message) in cases.items():
        status, out, err = nelu("compare", *arguments)
        assert (status, out, err) == (expected, "", f"nelu: {message}\n")
    assert page.read_text() == "mine"
    assert not new.exists()
    assert nelu("compare", picture, picture, page, "--force", "--quiet") == (0, "", "")
    assert page.read_text("utf-8").startswith("<!doctype html>")


# nelu denoise --report


def test_denoise_reports_on_a_page(nelu: Nelu, tmp_path: Path) -> None:
    for name in ("a.png", "deep/b.png", "old.png"):
        save(scene(48, 64), tmp_path / "in" / name)
    (tmp_path / "in" / "bad.png").write_bytes(b"no picture")
    save(scene(48, 64), tmp_path / "out" / "old.png")
    page = tmp_path / "page.html"
    arguments = ("denoise", tmp_path / "in", tmp_path / "out", "--skip-existing", "--report", page)
    status, out, err = nelu(*arguments, "--dry-run")
    assert status == 1
    assert not page.exists()
    status, out, err = nelu(*arguments)
    assert (status, out) == (1, "")
    size = page.stat().st_size
    assert err.splitlines()[-1] == f"{page}: 3 of 4 pictures, {size / 1e6:.1f} MB"
    text = page.read_text("utf-8")
    said = Page(text).said
    for part in ("64×48 RGB uint8", "deep-color", "noise ", "existed already", "not a picture"):
        assert part in said
    assert re.findall(r'<th scope="col">(\w+)', text) == [
        *("Picture", "File", "Size", "Noise", "Model", "Seconds")
    ]
    status, _, err = nelu(*arguments)
    assert status == 1
    assert err == f"nelu: {page}: exists already; --force replaces it\n"


def test_a_report_needs_both_states(nelu: Nelu, tmp_path: Path) -> None:
    picture, page = save(scene(), tmp_path / "a.png"), tmp_path / "page.html"
    assert nelu("denoise", picture, picture, "--force", "--report", page) == (
        2,
        "",
        f"nelu: {picture}: --report needs it before and after; keep both\n",
    )
    assert nelu("denoise", picture, "-", "--report", page) == (
        2,
        "",
        "nelu: --report needs files, not standard input or output\n",
    )
    assert not page.exists()
