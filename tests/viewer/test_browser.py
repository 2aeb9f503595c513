"""The page in a real browser: the tree appears, values are drawn, and a wrong token shows nothing.

What a picture shows is asked by roles and labels; of its pixels only that they differ.
"""

from __future__ import annotations

import io
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
def address(air: Path) -> Iterator[str]:
    """Where ``pnc-vol view`` shows the file."""
    start = [sys.executable, "-m", "pnc_vol.cli", "view", str(air), "--no-browser"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield running.stdout.readline().strip()
        running.terminate()


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
    pixels = np.asarray(Image.open(io.BytesIO(figure.locator("canvas").first.screenshot())).convert("RGB"))
    middle = pixels[pixels.shape[0] // 4 : -pixels.shape[0] // 4, pixels.shape[1] // 4 : -pixels.shape[1] // 4]
    assert len(np.unique(middle.reshape(-1, 3), axis=0)) > 50
    # a program adds a record: the page says so, and shows it
    with pnc_vol.File(air, "r+") as f:
        f["T"].resize((3, 3, 19, 36))
        f["T"][2] = 250.0
    page.get_by_role("button", name="The file has changed").click()
    page.get_by_text("0:2", exact=True).first.wait_for()
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
