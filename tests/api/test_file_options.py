"""The options of `File`, as type checkers and editors see them."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from run_command import verb

import pnc_vol

OF_DRIVERS = {"backing_store", "block_size", "fileobj"}
SCRIPT = """
import pnc_vol

pnc_vol.File("a.nc", "w", buffer_size=1 << 20, publish="close", burst_buf=True, recover="any-file")
pnc_vol.File("a.nc", "w", bufer_size=1 << 20)
pnc_vol.File("a.nc", "w", publish="never")
pnc_vol.File("a.nc", "w", burst_buf="yes")
rows: int = pnc_vol.File("a.nc")["x"].shape[0]
"""


def _for_type_checkers() -> list[str]:
    """The fields of ``FileOptions``, which no program loads."""
    source = Path(inspect.getfile(pnc_vol.File)).read_text()
    (found,) = (node for node in ast.walk(ast.parse(source)) if getattr(node, "name", "") == "FileOptions")
    return [ast.unparse(item.target) for item in ast.iter_child_nodes(found) if isinstance(item, ast.AnnAssign)]


def test_all_options_are_there(tmp_path: Path) -> None:
    # `format` sets the version; others are parameters of their own
    explicit = {*inspect.signature(pnc_vol.File).parameters, "version"}
    told = json.loads(verb("doctor", "--json", tmp_path, code=0).out)["options"].keys()
    assert {*_for_type_checkers()} - OF_DRIVERS >= told - explicit | {"format", "hints_file"}


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed (pnc-vol[lint])")
def test_a_type_checker_finds_wrong_options(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(script)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = sorted({int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line})
    assert lines == [5, 6, 7], done.stdout + done.stderr
