"""``tools/performance.py``: what was measured comes into the tables of two pages, between their marks."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "tools/performance.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("performance", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(module, "TABLES", tmp_path / "tables.md")
    monkeypatch.setattr(module, "SUMMARY", [("do it", "small", "fast")])
    for state, ours in (("quiet", 2.0), ("loaded", 3.0)):
        (tmp_path / state).mkdir()
        results = [
            {"work": "2 x an attribute and a flush", "seconds": {"pnc_vol": [ours], "h5py": [1.0], "scipy": []}},
            {"work": "fast", "seconds": {"pnc_vol": [ours], "h5py": [5.0, 6.0, 40.0], "os.pwrite": [0.1]}},
        ]
        (tmp_path / state / "small.json").write_text(json.dumps({"results": results}))
    return module


def test_tables_are_replaced_and_text_is_kept(script: ModuleType, tmp_path: Path) -> None:
    marks = [f"<!-- measured: {name} -->\nold\n<!-- end -->\n" for name in ("small", "behind", "goals", "reads")]
    script.TABLES.write_text("before\n" + "between\n".join(marks) + "after\n")
    script.PAGE.write_text("<!-- measured: summary -->\nold\n<!-- end -->\nafter\n")
    script.write(tmp_path)
    page = script.TABLES.read_text()
    assert page.startswith("before\n")
    assert page.count("between\n") == 3
    assert page.endswith("<!-- measured: reads -->\nold\n<!-- end -->\nafter\n"), "it was not measured"
    assert page.count("old") == 1
    lines = page.splitlines()
    # seconds and ratios of both states, the best round in brackets; bold where a library is faster, not the machine
    assert "| 2 x an attribute and a flush | 2 (2) / 3 (3) | **0.50 (0.50) / 0.33 (0.33)** | - |" in lines
    assert "| fast | 2 (2) / 3 (3) | 3.00 (2.50) / 2.00 (1.67) | 0.05 (0.05) / 0.03 (0.03) |" in lines
    # the list of what is slower has the factor the other way round
    assert "| `small`: 2 x an attribute and a flush | 2 / 3 | h5py 2 / 3 |" in lines
    assert not any(line.startswith("| `small`: fast") for line in lines)
    assert "| `small`: 2 x an attribute and a flush | 1 x h5py | 2.00 / 3.00 | no |" in lines
    # the first page has a row of it, and a picture
    summary = script.PAGE.read_text().splitlines()
    assert summary[3:] == ["| do it | h5py (3.0 x) |  |  |", "<!-- end -->", "after"]
    assert (tmp_path / "performance-summary.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_drawn(script: ModuleType, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    script.picture({"fast": [{"seconds": {"pnc_vol": [2.0, 3.0], "h5py": [5.0], "scipy": []}}]}, "io")
    assert image.imread(tmp_path / "performance-io.png").shape[0] > 100


def test_the_summary_is_read_out_of_the_tables(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    lines = script.summary(script.TABLES.read_text())
    assert len(lines) == len(script.SUMMARY) + 2, "a work of the summary is in no table"
    found = script.PAGE.read_text().partition("<!-- measured: summary -->\n")[2].partition("\n<!-- end -->")[0]
    assert found.splitlines() == lines


def test_the_summary_says_which_libraries_are_faster(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SUMMARY", [("do it", "small", "it"), ("do more", "small", "not measured")])
    page = """<!-- measured: small -->
| work | pnc_vol, seconds | slow | alike | fast | none | os.pwrite |
|---|---|---|---|---|---|---|
| it | 2 (2) / 3 (3) | 12.3 (9) / 1 (1) | 0.9 (1) / 9 (9) | **0.25 (2) / 2 (2)** | - | 0.1 (0.1) / 0.1 (0.1) |
<!-- end -->"""
    assert script.summary(page)[2:] == ["| do it | slow (12 x) | alike | fast (4.0 x) |"]
