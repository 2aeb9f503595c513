"""How the package is built: floors, rooms, sizes, names, who reads the environment. `structure` measures.

Calls of the file system are held by `test_system.py`, what an import loads by `test_import.py`.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structure

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pnc_vol"
MODULES = sorted(PACKAGE.rglob("*.py"))

# The limits are what has been reached: they are lowered with the tree, and not raised.
LONGEST_FUNCTION = 66
LATE_IMPORTS = 98
CYCLES_ACROSS_ROOMS = 0
CYCLES = 0
LARGE_CLASSES = 3  # the third is the record of an opening, a row of fields without methods that share them
FLUSH_MOVES = 43
FLUSH_CLIMBS = 0
DEFINING_MOVES = 133
POST_MOVES = 5
READ_MOVES = 9
OPENING_FILES = 52
OPENING_MOVES = 135
OPENING_CLIMBS = 0

# Rooms whose docstring does not name all their modules yet.
WITHOUT_A_TABLE: set[str] = {"extents", "file/reads", "mapping"}
VAGUE = {"utils", "util", "core", "common", "helpers", "helper", "misc", "tools"}


@pytest.fixture(scope="module")
def sources() -> structure.Sources:
    return structure.Sources(ROOT)


def trees(sources: structure.Sources) -> Iterator[tuple[str, ast.Module]]:
    for module, tree in sources.modules.items():
        yield name_of(sources.paths[module]), tree


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_floors_hold() -> None:
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    if program is None:
        pytest.skip("import-linter is not installed (pip install import-linter)")
    told = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "0 broken" in told.stdout


def test_every_room_is_on_a_floor() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for room in {Path(path.relative_to(PACKAGE).parts[0]).stem for path in MODULES} - {"pnc_vol", "__init__"}:
        assert f"pnc_vol.{room}" in text, f"{room} stands in no contract of import-linter (pyproject.toml)"


def test_functions_are_short_enough_to_read(sources: structure.Sources) -> None:
    long_functions = {name: n for name, n in sources.function_lines.items() if n > LONGEST_FUNCTION}
    assert not long_functions, f"functions of more than {LONGEST_FUNCTION} lines, docstring not counted"


def test_few_modules_are_loaded_late(sources: structure.Sources) -> None:
    """Inside functions, or by `late`: a path that is rarely taken, or a package that is optional."""
    late = [name for name, tree in trees(sources) for node in ast.walk(tree) if _is_late(node)]
    assert len(sources.in_functions) + len(late) <= LATE_IMPORTS, sources.in_functions


def _is_late(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "late"


def test_modules_do_not_import_one_another(sources: structure.Sources) -> None:
    across = [group for group in sources.cycles if len({structure.room_of(name) for name in group}) > 1]
    assert len(across) <= CYCLES_ACROSS_ROOMS, across
    assert len(sources.cycles) <= CYCLES, sources.cycles


def test_no_class_knows_everything(sources: structure.Sources) -> None:
    large = {key: len(names) for key, names in sources.attributes.items() if len(names) > 15}
    assert len(large) <= LARGE_CLASSES, large


def test_the_ways_are_short(sources: structure.Sources, tmp_path: Path) -> None:
    """A post, a read, a flush and an opening cross few files, and mostly downwards."""
    ways = {name: structure.Way(calls, sources) for name, calls in structure.ways(ROOT, tmp_path).items()}
    assert set(ways) == set(structure.WAYS)
    moves = {name: len(way.moves) for name, way in ways.items()}
    assert moves["a post"] <= POST_MOVES
    assert moves["a read"] <= READ_MOVES
    assert moves["a flush of data"] <= FLUSH_MOVES
    assert moves["a flush of definitions and data"] <= DEFINING_MOVES
    assert len(ways["a flush of data"].climbs) <= FLUSH_CLIMBS, ways["a flush of data"].climbs
    for name in ("an opening to read", "an opening to write", "an opening that creates"):
        assert len(ways[name].files) <= OPENING_FILES, (name, ways[name].files)
        assert moves[name] <= OPENING_MOVES, name
        assert len(ways[name].climbs) <= OPENING_CLIMBS, (name, ways[name].climbs)


def test_each_room_names_its_modules() -> None:
    for init in sorted(PACKAGE.rglob("*/__init__.py")):
        room = init.parent.relative_to(PACKAGE).as_posix()
        if room not in WITHOUT_A_TABLE:
            told = ast.get_docstring(ast.parse(init.read_text())) or ""
            modules = {path.stem for path in init.parent.glob("*.py")} - {"__init__", "__main__"}
            modules |= {path.parent.name for path in init.parent.glob("*/__init__.py")}
            missing = {name for name in modules if f"`{name}`" not in told and f"`{name}/`" not in told}
            assert not missing, f"the docstring of pnc_vol/{room} does not name {sorted(missing)}"
            # the first cell of a row names modules that are there
            named = set(re.findall(r"(?m)^`(\w+)/?`", told))
            assert named <= modules, (
                f"the docstring of pnc_vol/{room} names {sorted(named - modules)}, which are not there"
            )


def test_the_package_names_its_rooms() -> None:
    map_of_rooms = ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text())) or ""
    rooms = {Path(path.relative_to(PACKAGE).parts[0]).stem for path in MODULES} - {"__init__"}
    cells = re.findall(r"(?m)^(`\w+`(?:, `\w+`)*) ", map_of_rooms)
    named = {name for cell in cells for name in re.findall(r"\w+", cell)}
    assert named == rooms


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [name_of(path) for path in MODULES if path.stem in VAGUE or path.parent.name in VAGUE]


def test_every_module_says_what_it_knows(sources: structure.Sources) -> None:
    for name, tree in trees(sources):
        if tree.body:
            assert ast.get_docstring(tree), f"{name} has no docstring"


def test_only_options_reads_the_environment(sources: structure.Sources) -> None:
    readers = {
        name_of(sources.paths[module])
        for module, nodes in sources.nodes.items()
        for node in nodes
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"))
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {a.name for a in node.names} & {"environ", "getenv"}
        )
    }
    # The launcher of MPI tests hands its own environment to the program that it starts, and asks it nothing.
    assert readers == {"pnc_vol/settings/options.py", "pnc_vol/testing/mpi.py"}


def test_the_parts_of_an_open_file_change_by_their_own_methods(sources: structure.Sources) -> None:
    """No module assigns an attribute of a session or of one of its parts but the module of its class."""
    found = []
    for module, nodes in sources.nodes.items():
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
                owner = ast.unparse(node.value)
                if owner == "session" or owner.endswith((".defs", ".disk", ".posted")):
                    found.append(f"{sources.paths[module].relative_to(PACKAGE)}: {ast.unparse(node)}")
    assert found == []
