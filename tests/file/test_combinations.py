"""Options that do not go together are refused at the opening, as the page says, before anything is made."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import options
import pytest
from virtual_ranks import run

import pnc_vol
from pnc_vol import plugins
from pnc_vol.file.combinations import REFUSED
from pnc_vol.layout.registry import register

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "combinations.md"
sys.path.append(str(ROOT / "examples" / "plugin_layout"))
from pnc_vol_rawfiles import RawFiles  # noqa: E402


def test_the_page_is_the_table() -> None:
    """Each line, without the values in the texts."""
    lines = [line for line in PAGE.read_text().splitlines() if "Error`" in line and line.startswith("|")]
    wanted = []
    for one in REFUSED:
        text = re.sub(r" ?\{layout!r\}|-?\{version\}|\{layout!r\}", "", one.text)
        wanted.append(f"| {one.one} | {one.other} | `{one.error.__name__}` | {text} |")
    assert lines == wanted


CASES: list[tuple[int, dict[str, Any]]] = [
    (0, {"layout": "rawfiles"}),
    (1, {"layout": "rawfiles", "burst_buf": True}),
    (1, {"layout": "rawfiles", "store": "log"}),
    (2, {"layout": "rawfiles", "hints": {"e10_cache_path": "."}}),
    (2, {"layout": "rawfiles", "driver": "cache(path=.) | posix"}),
    (3, {"layout": "hdf5blob", "format": "CDF-2"}),
    (3, {"layout": "blob", "format": "CDF-1"}),
    (4, {"layout": "rawfiles", "publish": "close"}),
]
"""By the line of the table, what an opening is given."""


@pytest.mark.parametrize("mode", ["w", "a", "x"])
@pytest.mark.parametrize(("line", "given"), CASES)
def test_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, line: int, given: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    register("rawfiles", RawFiles)
    refused = REFUSED[line]
    text = refused.text.format(layout=given["layout"], version=given.get("format", "")[-1:])

    def opened(comm: Any) -> str:
        with pytest.raises(refused.error, match=re.escape(text)) as caught:
            pnc_vol.File("x.nc", mode, **given, **({} if comm is None else {"comm": comm, "driver": "posix"}))
        return str(caught.value)

    # no more than is given is refused: one line of the table is about ranks
    told = run(2, opened) if line == 0 else [opened(None)]
    assert len(set(told)) == 1
    assert not list(tmp_path.iterdir())


def test_every_line_of_the_table_is_tried() -> None:
    assert {line for line, _ in CASES} == set(range(len(REFUSED)))


def test_a_file_that_exists_is_opened_as_what_it_is(tmp_path: Path) -> None:
    """The environment may ask for a layout for all files of a program."""
    pnc_vol.File(tmp_path / "x.nc", "w").close()
    with pnc_vol.File(tmp_path / "x.nc", "r+", hints={"pnc_layout": "canonical"}, durable=True, burst_buf=True) as f:
        f["x"] = 1


@pytest.mark.parametrize("asked", ["canonical", "rawfiles", "blob", "hdf5blob"])
@pytest.mark.parametrize("layout", ["canonical", "rawfiles", "blob", "hdf5blob"])
def test_a_file_that_is_there_is_opened_as_what_it_is(layout: str, asked: str, tmp_path: Path) -> None:
    with plugins.restored():
        options.load_plugins("rawfiles")
        path = tmp_path / "x.nc"
        with pnc_vol.File(path, "w", layout=layout) as f:
            f["x"] = [1, 2, 3]
        before = sorted(path.parent.iterdir())
        for mode in ("r", "r+", "a") if layout != "hdf5blob" else ("r",):
            with pnc_vol.File(path, mode, layout=asked) as f:
                assert f["x"][:].tolist() == [1, 2, 3]
                if mode != "r":
                    f["x"][...] = [1, 2, 3]
            assert sorted(path.parent.iterdir()) == before
        with pnc_vol.File(path) as f:
            assert f["x"][:].tolist() == [1, 2, 3]
