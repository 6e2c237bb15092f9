"""The page in a real browser: Chromium, without a window.

On Debian: ``apt-get install chromium chromium-driver``. Skipped where there is none.
"""

import shutil
from collections.abc import Iterator

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from nelu_cli.images import Picture
from nelu_cli.pages import Entry, look_at, write_page

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NASTY = '<script>document.title = "taken over"</script>.png'

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs a browser: apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    folder = tmp_path_factory.mktemp("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
        *("disable-background-networking", "disable-component-update", "disable-sync"),
        *("disable-dev-shm-usage", "window-size=1000,900", f"user-data-dir={folder / 'profile'}"),
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of two pictures, one with a dangerous name, and one that failed."""
    rng = np.random.default_rng(0)
    clean = np.full((150, 240, 3), 120, np.uint8)
    noisy = np.rint(clean + rng.normal(0, 20, clean.shape)).clip(0, 255).astype(np.uint8)
    large = Picture(rng.integers(0, 256, (400, 1700, 1), np.uint8), None, "PNG")
    small_looks = look_at(Picture(noisy, None, "PNG"), Picture(clean, None, "PNG"), 10**6)
    large_looks = look_at(large, large, 10**6)
    path = tmp_path_factory.mktemp("page") / "page.html"
    entries = [
        Entry(NASTY, result=NASTY, picture="240×150 RGB uint8", seconds=0.5, looks=small_looks),
        Entry("large.png", looks=large_looks),
        Entry(NASTY, problem=f"{NASTY}: damaged"),
    ]
    write_page(path, f"Page {NASTY}", entries)
    return path.as_uri()


@pytest.fixture
def page(browser: webdriver.Chrome, address: str) -> Iterator[webdriver.Chrome]:
    """The page, fresh; afterwards nothing may have been complained about."""
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def one(page: webdriver.Chrome, selector: str, picture: int = 1) -> WebElement:
    found: WebElement = page.find_element(By.CSS_SELECTOR, f"#picture-{picture} {selector}")
    return found


def choose(page: webdriver.Chrome, use: str, value: str, picture: int = 1) -> None:
    one(page, f'input[data-use="{use}"][value="{value}"]', picture).click()


def shown(page: webdriver.Chrome, picture: int = 1) -> list[WebElement]:
    """The images of a picture that are to be seen."""
    images = page.find_elements(By.CSS_SELECTOR, f"#picture-{picture} .view img")
    return [image for image in images if image.is_displayed()]


def width(page: webdriver.Chrome) -> int:
    size: float = shown(page)[0].rect["width"]
    return round(size)


def clip(page: webdriver.Chrome) -> float:
    """How many percent of the state after are cut away."""
    text: str = one(page, ".after").value_of_css_property("clip-path")
    return float(text.rstrip("%)").split()[-1])


def test_a_file_called_script_does_nothing(page: webdriver.Chrome) -> None:
    assert page.title == f"Page {NASTY}"
    assert one(page, "h2").text == NASTY
    assert len(page.find_elements(By.TAG_NAME, "script")) == 1
    assert [row.text for row in page.find_elements(By.CSS_SELECTOR, ".problem")] == [
        f"{NASTY}: damaged"
    ]


def test_all_images_are_there(page: webdriver.Chrome) -> None:
    sizes = page.execute_script(
        "return Promise.all([...document.images].map(async image =>"
        " { await image.decode(); return image.naturalWidth; }))"
    )
    assert len(sizes) == 2 + (3 + 1) + (9 + 1)
    assert all(size > 0 for size in sizes)


def test_the_slider_moves_with_the_keyboard(page: webdriver.Chrome) -> None:
    assert clip(page) == 50
    slider = one(page, ".slider")
    slider.send_keys(Keys.ARROW_RIGHT * 3)
    assert clip(page) == 53
    assert slider.get_attribute("aria-valuetext") == "before up to 53 percent"
    slider.send_keys(Keys.HOME)
    assert clip(page) == 0
    slider.send_keys(Keys.END)
    assert clip(page) == 100


def test_the_slider_moves_with_the_mouse(page: webdriver.Chrome) -> None:
    picture = one(page, ".pair")
    ActionChains(page).move_to_element(picture).click_and_hold().move_by_offset(
        60, 10
    ).release().perform()
    assert clip(page) == pytest.approx(75, abs=1)
    assert float(one(page, ".slider").get_attribute("value") or 0) == pytest.approx(75, abs=1)
    ActionChains(page).move_by_offset(-90, 0).perform()  # no button is pressed
    assert clip(page) == pytest.approx(75, abs=1)


def test_zoom_by_the_buttons(page: webdriver.Chrome) -> None:
    for value, expected in (("1", 240), ("2", 480), ("4", 960), ("fit", 240)):
        choose(page, "zoom", value)
        assert width(page) == expected
    choose(page, "zoom", "4")
    choose(page, "kind", "removed")
    assert width(page) == 960  # it stays as chosen


def test_zoom_by_the_keyboard_and_scroll(page: webdriver.Chrome) -> None:
    pane = one(page, ".pane")
    for key, expected in (("+", 240), ("+", 480), ("+", 960), ("+", 960), ("-", 480), ("0", 240)):
        pane.send_keys(key)
        assert width(page) == expected
    page.set_window_size(700, 700)
    pane.send_keys("+++")
    start = page.execute_script("return arguments[0].scrollLeft", pane)
    assert start > 0  # the middle is kept in the middle
    pane.send_keys(Keys.ARROW_RIGHT)
    moved = "return new Promise(done => setTimeout(() => done(arguments[0].scrollLeft), 400))"
    assert page.execute_script(moved, pane) > start
    page.set_window_size(1000, 900)


def test_zoom_by_the_mouse(page: webdriver.Chrome) -> None:
    picture = one(page, ".pair")
    for expected in (240, 480, 960, 240):
        ActionChains(page).double_click(picture).perform()
        assert width(page) == expected


def test_what_to_show_is_chosen(page: webdriver.Chrome) -> None:
    assert [image.get_attribute("alt") for image in shown(page)] == [
        f"{NASTY} before",
        f"{NASTY} after",
    ]
    choose(page, "kind", "removed")
    (removed,) = shown(page)
    assert removed.get_attribute("alt") == f"The noise removed from {NASTY}"
    assert not one(page, ".slider").is_enabled()
    assert not one(page, ".divider").is_displayed()
    choose(page, "kind", "map")
    (noise_map,) = shown(page)
    assert noise_map.get_attribute("alt") == "How much was removed, place by place"
    assert noise_map.rect["width"] == pytest.approx(240)
    assert one(page, ".scale").is_displayed()


def test_large_pictures_have_places_to_look_at(page: webdriver.Chrome) -> None:
    captions = []
    for value in "012":
        choose(page, "place", value, picture=2)
        assert len(shown(page, picture=2)) == 2
        captions.append(one(page, ".caption", picture=2).text)
    assert captions[0].startswith("Overview: 1700×400 pixels, scaled to ")
    assert captions[1].startswith("Busiest place: ")
    assert captions[2].startswith("Flattest place: ")
    assert len(shown(page)) == 2  # the other picture is left alone


def test_the_page_fits_a_narrow_screen(page: webdriver.Chrome) -> None:
    page.set_window_size(500, 900)
    wide = page.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide == 0
    page.set_window_size(1000, 900)


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_dark_and_light(page: webdriver.Chrome, scheme: str, dark: bool) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    colour = page.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    levels = [float(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3]]
    assert (max(levels) < 60) == dark
    assert (min(levels) > 200) != dark
