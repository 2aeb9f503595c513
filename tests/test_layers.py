"""The house as the docs describe it: floors, sizes, names, who reads the environment.

The door to the file system is held by `test_system.py`, what an import loads by `test_import.py`.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pnc_vol"
MODULES = sorted(PACKAGE.rglob("*.py"))

MOST_LINES = 450
LONGEST_FUNCTION = 80
VAGUE = {"utils", "util", "core", "common", "helpers", "helper", "misc", "tools"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for path in MODULES:
        name = name_of(path)
        if not folders or any(name.startswith(f"pnc_vol/{folder}") for folder in folders):
            yield name, ast.parse(path.read_text(), name)


def test_the_floors_hold() -> None:
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    if program is None:
        pytest.skip("import-linter is not installed (pip install import-linter)")
    told = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "0 broken" in told.stdout


def test_every_room_is_on_a_floor() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for room in {Path(path.relative_to(PACKAGE).parts[0]).stem for path in MODULES} - {
        "pnc_vol",
        "__init__",
    }:
        assert f"pnc_vol.{room}" in text, f"{room} stands in no contract of import-linter (pyproject.toml)"


def test_files_and_functions_are_short_enough_to_read() -> None:
    long_files = {name_of(path): n for path in MODULES if (n := len(path.read_text().splitlines())) > MOST_LINES}
    long_functions = {
        f"{name}:{node.name}": n
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (n := (node.end_lineno or 0) - _first_statement(node) + 1) > LONGEST_FUNCTION
    }
    assert not long_files, f"files of more than {MOST_LINES} lines: split them by idea"
    assert not long_functions, f"functions of more than {LONGEST_FUNCTION} lines, docstring not counted"


def _first_statement(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    return body[0].lineno


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [name_of(path) for path in MODULES if path.stem in VAGUE or path.parent.name in VAGUE]


def test_every_module_says_what_it_knows() -> None:
    for name, tree in trees():
        if tree.body:
            assert ast.get_docstring(tree), f"{name} has no docstring"


def test_only_options_reads_the_environment() -> None:
    readers = {
        name
        for name, tree in trees()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"))
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {a.name for a in node.names} & {"environ", "getenv"}
        )
    }
    # The launcher of MPI tests hands its own environment to the program that it starts, and asks it nothing.
    assert readers == {"pnc_vol/options.py", "pnc_vol/testing/mpi.py"}
