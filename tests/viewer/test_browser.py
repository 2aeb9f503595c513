"""The page in a real browser: the tree appears, values are drawn, and a wrong token shows nothing.

What a picture shows is asked by roles and labels; of its pixels only that they differ.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-angle=swiftshader --enable-unsafe-swiftshader"
)
"""Nothing but the page over the network, and WebGL without a graphics card."""

PATIENCE = 60_000
"""Milliseconds; a picture drawn without a graphics card takes some."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Debian's chromium, with nothing kept of it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=shutil.which("chromium"),
            args=FLAGS.split(),
            viewport={"width": 1200, "height": 700},
        )
        context.set_default_timeout(PATIENCE)
        yield context
        context.close()


@pytest.fixture
def start() -> Iterator[Any]:
    """Show a file by ``pnc-vol view``; gives the address."""
    with contextlib.ExitStack() as ends:

        def begin(path: Path) -> str:
            words = [sys.executable, "-m", "pnc_vol.cli", "view", str(path), "--no-browser"]
            running = ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            ends.callback(running.terminate)
            assert running.stdout is not None
            return running.stdout.readline().strip()

        yield begin


@pytest.fixture
def address(air: Path, start: Any) -> str:
    """Where the file of air is shown."""
    return str(start(air))


def names_of_buttons(page: Any, axis: str) -> list[str]:
    """What the dimensions are called among which one is chosen for an axis."""
    return [str(name) for name in page.get_by_role("radiogroup", name=f"Dimension as {axis} axis").inner_text().split()]


def test_the_tree_a_map_and_records(browser: Any, address: str, air: Path) -> None:
    from PIL import Image

    page = browser.new_page()
    troubles: list[str] = []
    foreign: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda asked: foreign.append(asked.url) if not asked.url.startswith((address, "data:")) else 0)
    page.goto(address)
    for name in ("T", "p", "rain"):
        page.get_by_role("treeitem", name=name, exact=True).wait_for()
    page.get_by_role("treeitem", name="T", exact=True).click()
    page.get_by_role("tab", name="Heatmap").click()
    figure = page.get_by_role("figure", name="air temperature (K)")
    figure.wait_for()
    for label in ("lat (degrees_north)", "lon (degrees_east)"):
        page.get_by_text(label).wait_for()
    assert names_of_buttons(page, "x") == ["time", "lev", "lat", "lon"]
    for name in ("time", "lev"):
        page.get_by_role("slider", name=name, exact=True).wait_for()
    pixels = np.asarray(Image.open(io.BytesIO(figure.locator("canvas").first.screenshot())).convert("RGB"))
    middle = pixels[pixels.shape[0] // 4 : -pixels.shape[0] // 4, pixels.shape[1] // 4 : -pixels.shape[1] // 4]
    assert len(np.unique(middle.reshape(-1, 3), axis=0)) > 50
    page.get_by_role("tab", name="Matrix").click()
    page.get_by_role("slider", name="lev", exact=True).wait_for()
    assert names_of_buttons(page, "y") == ["time", "lev", "lat", "lon"]
    # a program adds a record: the page says so, and shows it
    with pnc_vol.File(air, "r+") as f:
        f["T"].resize((3, 3, 19, 36))
        f["T"][2] = 250.0
    page.get_by_role("button", name="The file has changed").click()
    page.get_by_text("0:2", exact=True).nth(1).wait_for()
    page.get_by_role("tab", name="Inspect").click()
    page.get_by_text("3 x 3 x 19 x 36").first.wait_for()
    page.get_by_role("tab", name="Display").click()
    page.get_by_role("treeitem", name="rain", exact=True).click()
    page.get_by_role("tab", name="Scatter").click()
    page.get_by_text("obs_lon (degrees_east)").wait_for()
    assert (troubles, foreign) == ([], [])
    page.close()


def test_a_wrong_token_shows_nothing(browser: Any, address: str) -> None:
    page = browser.new_page()
    reply = page.goto(f"{address[:-2]}/")
    assert reply.status == 403
    assert "token is wrong" in page.inner_text("body")
    assert page.get_by_role("treeitem").count() == 0
    page.close()


def test_fields_names_of_axes_and_long_names(browser: Any, start: Any, tmp_path: Path) -> None:
    long = "a_name_of_a_simulation_that_is_much_longer_than_the_tree_is_wide"
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["rows"] = np.array([(1, 2.5), (3, 4.5)], dtype=[("station", "i4"), ("height", "f8")])
        f["stars"] = np.array([(1, (2.5, 3.5))], dtype=[("number", "i4"), ("place", "f8", (2,))])
        f[f"{long}/{long}"] = np.arange(6.0).reshape(2, 3)
        f[f"{long}/{long}"].dims[0].label = "cell"
    page = browser.new_page()
    page.goto(start(tmp_path / "a.nc"))
    shown = page.get_by_role("treeitem", name=long, exact=True)
    shown.nth(1).wait_for()
    assert (
        shown.locator("span").evaluate_all("all => all.map((one) => one.scrollWidth <= one.clientWidth)") == [True] * 2
    )
    boxes = [each.bounding_box() for each in page.get_by_role("treeitem").all()]
    assert all(one["y"] + one["height"] <= other["y"] + 1 for one, other in itertools.pairwise(boxes))
    shown.nth(1).click()
    page.get_by_role("tab", name="Heatmap").wait_for()
    # what nobody named is counted
    assert names_of_buttons(page, "x") == ["cell", "D1"]
    page.get_by_role("treeitem", name="rows", exact=True).click()
    for field in ("station", "height"):
        page.get_by_text(field, exact=True).wait_for()
    page.get_by_role("treeitem", name="stars", exact=True).click()
    for field in ("number", "place[0]", "place[1]"):
        page.get_by_text(field, exact=True).wait_for()
    page.close()
