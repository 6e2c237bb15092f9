"""The widget for napari, in a process of its own: Qt stays out of all other tests."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nelu_cli.viewer.steps import axes_of_layer

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("dimensions", "colour", "axes"),
    [(2, False, "YX"), (3, True, "YXS"), (3, False, "AYX"), (5, True, "ABYXS")],
)
def test_rows_and_columns_are_the_last_two_axes(dimensions: int, colour: bool, axes: str) -> None:
    assert axes_of_layer(dimensions, colour=colour) == axes


def test_the_widget_works_in_a_viewer_without_a_display() -> None:
    qt = run("-c", "from qtpy.QtWidgets import QApplication; QApplication([])")
    if qt.returncode:
        reason = (qt.stderr.strip().splitlines() or ["it died"])[-1]
        pytest.skip(f"Qt does not start here, so the widget is not tested: {reason}")
    options = ("-o", "addopts=", "-W", "ignore", "-q", "-p", "no:cacheprovider")
    done = run("-m", "pytest", *options, "tests/napari_harness.py")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_the_package_tells_napari_of_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (place,) = project["entry-points"]["napari.manifest"].values()
    module, _, file = place.partition(":")
    folder = ROOT.joinpath(*module.split("."))
    assert (folder / file).is_file()
    assert f"name: {project['name']}\n" in (folder / file).read_text("utf-8")
