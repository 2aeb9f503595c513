"""Options that do not go together are refused at the opening, as the page says, before anything is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import pnc_vol
from pnc_vol.file.combinations import REFUSED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "combinations.md"


def test_the_page_is_the_table() -> None:
    """Each line, without the values in the texts."""
    lines = [line for line in PAGE.read_text().splitlines() if "Error`" in line and line.startswith("|")]
    wanted = []
    for one in REFUSED:
        text = re.sub(r" ?\{layout!r\}|-?\{version\}|\{layout!r\}", "", one.text)
        wanted.append(f"| {one.one} | {one.other} | `{one.error.__name__}` | {text} |")
    assert lines == wanted


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"layout": "hdf5blob", "burst_buf": True}, pnc_vol.DefinitionError, "cannot have a burst-buffer log"),
        ({"layout": "hdf5blob", "store": "log"}, pnc_vol.DefinitionError, "cannot have a burst-buffer log"),
        ({"layout": "hdf5blob", "durable": True}, pnc_vol.DefinitionError, "cannot have durable=True"),
        ({"layout": "hdf5blob", "format": "CDF-2"}, ValueError, "64-bit maps, which CDF-2 cannot hold"),
        ({"layout": "blob", "format": "CDF-1"}, ValueError, "64-bit maps, which CDF-1 cannot hold"),
    ],
)
@pytest.mark.parametrize("mode", ["w", "a", "x"])
def test_what_is_refused(tmp_path: Path, mode: str, given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pnc_vol.File(tmp_path / "x.nc", mode, **given)
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_opened_as_what_it_is(tmp_path: Path) -> None:
    """The environment may ask for a layout for all files of a program."""
    pnc_vol.File(tmp_path / "x.nc", "w").close()
    with pnc_vol.File(tmp_path / "x.nc", "r+", hints={"pnc_layout": "canonical"}, durable=True, burst_buf=True) as f:
        f["x"] = 1
