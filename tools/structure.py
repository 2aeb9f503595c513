"""How the package is built, in figures: ``python tools/structure.py [TREE]`` prints them for a tree of sources.

====================  ============================================================================================
classes               instance attributes of each class: slots, fields of a dataclass, and what methods assign to
                      ``self``; those of base classes of the package included
in-function imports   import statements inside functions that name modules of the package
cycles                strongly connected modules when the imports inside functions, and `late` modules, count like all
                      others; imports for type checkers alone do not count
way                   calls from file to file of one act, by ``sys.setprofile``: the files visited; the *moves*, calls
                      of a function of another file of the package; and the *climbs*, moves to a module that imports,
                      directly or by others, the module that calls. A return is neither.
code lines            lines that hold code: no blank ones, no comments, no docstrings
functions             lines from the first statement after the docstring to the last one
====================  ============================================================================================

With ``--write`` the parts of ``docs/develop/architecture.md`` that are made from the sources are written anew.
It needs the standard library alone, and for the ways a Python that can run the package.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

PACKAGE = "pnc_vol"
HERE = pathlib.Path(__file__).resolve()
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

BEFORE = {
    "attributes of the session": "49",
    "classes with more than 15 attributes": "10",
    "most attributes of a class": "50 (`_Reading`)",
    "imports inside functions, of modules of the package": "163",
    "imports inside functions, of other packages": "74",
    "import cycles, with imports inside functions": "6 (14, 2, 2, 2, 11, 3 modules)",
    "of these across rooms": "0",
    "a read: files, moves, climbs": "9, 8, 1",
    "a post: files, moves, climbs": "6, 5, 0",
    "a flush of data: files, moves, climbs": "36, 92, 12",
    "a flush of definitions and data: files, moves, climbs": "51, 241, 18",
    "lines of code": "30,443",
    "lines with a comment": "641",
    "files": "259",
    "longest file": "450 (`extents/selection.py`)",
    "longest function": "72 (`each_variable`)",
}
"""The figures of the tree before it was rebuilt in rooms (2026-11-22), by this script."""

SETTINGS = {"pnc_vol.settings.options:Options"}
"""Classes that are not counted as large: frozen tables of what users may set. A field for each option is no state that
methods share, and to group the fields would give each option a second name."""

WAYS = (
    "a post",
    "a read",
    "a flush of data",
    "a flush of definitions and data",
    "an opening to read",
    "an opening to write",
    "an opening that creates",
)


class Sources:
    """The modules of a tree, parsed.

    modules : dict of dotted name to syntax tree; a package has the name of its folder.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.paths: dict[str, pathlib.Path] = {}
        for path in sorted((root / PACKAGE).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            self.paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.modules = {name: ast.parse(path.read_text(), str(path)) for name, path in self.paths.items()}
        # Each tree is walked once, not once for each figure.
        self.nodes = {name: list(ast.walk(tree)) for name, tree in self.modules.items()}

    # ------------------------------------------------------------------------------------------ imports

    def imported(self, module: str, node: ast.stmt) -> set[str]:
        """The modules of the package that an import statement names."""
        if isinstance(node, ast.Import):
            return {alias.name for alias in node.names if alias.name in self.modules}
        if not isinstance(node, ast.ImportFrom):
            return set()
        base = node.module or ""
        if node.level:
            here = module.split(".")
            if self.paths[module].name != "__init__.py":
                here = here[:-1]
            here = here[: len(here) - node.level + 1]
            base = ".".join([*here, base] if base else here)
        named = {f"{base}.{alias.name}" for alias in node.names}
        inner = {name for name in named if name in self.modules}
        return inner | ({base} if base in self.modules and inner != named else set())

    @cached_property
    def imports(self) -> list[tuple[str, str, set[str]]]:
        """Each import statement: its module, the function that it stands in (``""``: none), what it names of ours."""
        return [
            (module, function, self.imported(module, node))
            for module in self.modules
            for node, function in self.statements(module)
        ] + [
            (module, "", {ast.literal_eval(node.args[0])} & self.modules.keys())
            for module, nodes in self.nodes.items()
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "late"
            if module != f"{PACKAGE}.late"
        ]

    def statements(self, module: str) -> Iterator[tuple[ast.stmt, str]]:
        """Each import of a module, and the function that it stands in, ``""`` for none; not those for type checkers."""

        def walk(body: Iterable[ast.AST], function: str) -> Iterator[tuple[ast.stmt, str]]:
            for node in body:
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    yield node, function
                elif isinstance(node, FUNCTIONS):
                    yield from walk(node.body, f"{function}.{node.name}".lstrip("."))
                elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                    yield from walk(node.orelse, function)
                elif not isinstance(node, ast.expr):
                    yield from walk(ast.iter_child_nodes(node), function)

        yield from walk(self.modules[module].body, "")

    @cached_property
    def in_functions(self) -> list[tuple[str, str, str]]:
        """Module, function and what it imports of the package, one entry for each statement."""
        return [
            (module, function, ", ".join(sorted(names)))
            for module, function, names in self.imports
            if function and names
        ]

    @cached_property
    def foreign_in_functions(self) -> int:
        """Imports inside functions of what is not of the package."""
        return sum(1 for _, function, names in self.imports if function and not names)

    def graph(self, inside: bool = True) -> dict[str, set[str]]:
        """What each module imports of the package; `inside` functions too."""
        found: dict[str, set[str]] = {module: set() for module in self.modules}
        for module, function, names in self.imports:
            if inside or not function:
                found[module] |= names - {module}
        return found

    @cached_property
    def cycles(self) -> list[list[str]]:
        """Groups of modules that import one another, directly or by others."""
        graph = self.graph()
        reach = {name: reached(graph, name) for name in graph}
        groups: list[list[str]] = []
        for name in graph:
            if name in reach[name] and not any(name in group for group in groups):
                groups.append(sorted(other for other in reach[name] if name in reach[other]))
        return groups

    # ------------------------------------------------------------------------------------------ classes

    @cached_property
    def attributes(self) -> dict[str, set[str]]:
        """The instance attributes of each class, by ``module:Class``."""
        own: dict[str, set[str]] = {}
        bases: dict[str, list[str]] = {}
        for module, nodes in self.nodes.items():
            for node in nodes:
                if isinstance(node, ast.ClassDef):
                    own[f"{module}:{node.name}"] = assigned(node)
                    bases[f"{module}:{node.name}"] = [ast.unparse(base).split(".")[-1] for base in node.bases]
        places: dict[str, list[str]] = {}
        for key in own:
            places.setdefault(key.split(":")[1], []).append(key)

        def all_of(key: str, seen: frozenset[str] = frozenset()) -> set[str]:
            found = set(own[key])
            for base in bases[key]:
                candidates = places.get(base, [])
                if len(candidates) == 1 and candidates[0] not in seen | {key}:
                    found |= all_of(candidates[0], seen | {key})
            return found

        return {key: all_of(key) for key in own if key not in SETTINGS}

    # ------------------------------------------------------------------------------------------- sizes

    @cached_property
    def code_lines(self) -> int:
        return sum(code_lines(path.read_text()) for path in self.paths.values())

    @cached_property
    def comment_lines(self) -> int:
        return sum(
            1
            for path in self.paths.values()
            for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
            if token.type == tokenize.COMMENT
        )

    @cached_property
    def file_lines(self) -> dict[str, int]:
        return {
            path.relative_to(self.root).as_posix(): len(path.read_text().splitlines()) for path in self.paths.values()
        }

    @cached_property
    def function_lines(self) -> dict[str, int]:
        """The length of each function without its docstring, by ``module:function``."""
        return {
            f"{module}:{node.name}": (node.end_lineno or 0) - first_statement(node) + 1
            for module, nodes in self.nodes.items()
            for node in nodes
            if isinstance(node, FUNCTIONS)
        }


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """All that `start` imports, directly or by others; `start` itself if it is on a cycle."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(graph[name])
    return found


def assigned(node: ast.ClassDef) -> set[str]:
    """The instance attributes that a class body gives: slots, fields, and targets ``self.x`` in its methods."""
    found: set[str] = set()
    is_data = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    is_data |= any(ast.unparse(base).split(".")[-1] == "NamedTuple" for base in node.bases)
    for item in node.body:
        if isinstance(item, ast.Assign) and any(ast.unparse(target) == "__slots__" for target in item.targets):
            value = ast.literal_eval(item.value)
            found |= set([value] if isinstance(value, str) else value)
        if is_data and isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item.annotation):
            found.add(ast.unparse(item.target))
        if isinstance(item, FUNCTIONS) and item.args.args:
            if any(ast.unparse(decorator) in ("classmethod", "staticmethod") for decorator in item.decorator_list):
                continue
            this = item.args.args[0].arg
            for inner in ast.walk(item):
                stored = isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
                if stored and isinstance(inner.value, ast.Name) and inner.value.id == this:
                    found.add(inner.attr)
    # what a property sets under its own name is not stored there
    setters = {item.name for item in node.body if isinstance(item, FUNCTIONS) and item.decorator_list}
    return found - setters - {"__dict__", "__weakref__"}


def first_statement(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    return body[0].lineno


def code_lines(text: str) -> int:
    """The lines that hold code.

    >>> code_lines('"says"\\n\\n# why\\nx = 1\\n')
    1
    """
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for item in getattr(node, "body", None) or [] if not isinstance(node, (ast.Lambda, ast.IfExp)) else []:
            # a string that stands alone is a docstring, be it of a module, a function or an attribute
            if (
                isinstance(item, ast.Expr)
                and isinstance(item.value, ast.Constant)
                and isinstance(item.value.value, str)
            ):
                told |= set(range(item.lineno, (item.end_lineno or item.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - told)


# --------------------------------------------------------------------------------------------------- ways

PROGRAM = """
import json, os, sys
import numpy as np
import pnc_vol

root = os.path.dirname(os.path.dirname(os.path.abspath(pnc_vol.__file__))) + os.sep
calls = []

def note(frame, event, argument):
    called = frame.f_code.co_filename
    if event == "call" and called.startswith(root + "pnc_vol"):
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(root + "pnc_vol"):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != called:
            calls.append([caller.f_code.co_filename[len(root):], called[len(root):], frame.f_code.co_name])
        elif caller is None:
            calls.append([None, called[len(root):], frame.f_code.co_name])

found = {}

def watch(name, act):
    calls.clear()
    sys.setprofile(note)
    act()
    sys.setprofile(None)
    found[name] = list(calls)

def post(f):
    f["x"][2:5] = values

def define(f):
    f.create_dataset("y%d" % len(f), data=values)
    f["x"][2:5] = values

values = np.arange(3.0)
with pnc_vol.File(sys.argv[1], "w") as f:
    f["x"] = np.arange(100.0)
# the second time, so that imports and caches are no part of it
with pnc_vol.File(sys.argv[1], "r+") as f:
    x = f["x"]
    def put():
        x[2:5] = values
    def get():
        x[2:5]
    put(); f.flush(); get()
    watch("a read", get)
    watch("a post", put)
    watch("a flush of data", f.flush)
    define(f); f.flush(); define(f)
    watch("a flush of definitions and data", f.flush)

opened = []
def open_in(mode):
    opened.append(pnc_vol.File(sys.argv[1], mode))
for name, mode in ("an opening to read", "r"), ("an opening to write", "r+"), ("an opening that creates", "w"):
    open_in(mode)
    opened.pop().close()
    watch(name, lambda: open_in(mode))
    opened.pop().close()
json.dump(found, sys.stdout)
"""


def ways(root: pathlib.Path, folder: pathlib.Path, python: str = sys.executable) -> dict[str, list[list[Any]]]:
    """The calls from file to file of each act: caller (None: the program), callee, function.

    The file is small, the acts are done a second time: what is imported or cached at the first is no part of them.
    """
    done = subprocess.run(
        [python, "-c", PROGRAM, str(folder / "ways.nc")],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


class Way:
    """The moves of one act.

    files : list of str, in the order of the first visit.
    """

    def __init__(self, calls: list[list[Any]], sources: Sources) -> None:
        names = {path.relative_to(sources.root).as_posix(): name for name, path in sources.paths.items()}
        graph = sources.graph(inside=False)
        self.files = list(dict.fromkeys(callee for _, callee, _ in calls))
        self.moves = [(caller, callee, name) for caller, callee, name in calls if caller is not None]
        self.climbs = [move for move in self.moves if names[move[0]] in reached(graph, names[move[1]])]


# ------------------------------------------------------------------------------------------------ printing


def figures(root: pathlib.Path, folder: pathlib.Path, python: str = sys.executable) -> dict[str, str]:
    """The rows of the table of figures."""
    sources = Sources(root)
    many = {key: len(names) for key, names in sources.attributes.items() if len(names) > 15}
    largest = max(sources.attributes, key=lambda key: len(sources.attributes[key]))
    rooms = [group for group in sources.cycles if len({room_of(name) for name in group}) > 1]
    longest = max(sources.file_lines, key=sources.file_lines.__getitem__)
    function = max(sources.function_lines, key=sources.function_lines.__getitem__)
    session = next(names for key, names in sources.attributes.items() if key.endswith(":Session"))
    rows = {
        "attributes of the session": f"{len(session)}",
        "of its parts: definitions, disk, requests": ", ".join(
            str(len(names))
            for part in ("Definitions", "StoredFile", "Posted")
            for key, names in sources.attributes.items()
            if key.endswith(f":{part}") and (".file." in key or ".disk." in key)
        ),
        "classes with more than 15 attributes": f"{len(many)}",
        "most attributes of a class": f"{len(sources.attributes[largest])} (`{largest.split(':')[1]}`)",
        "imports inside functions, of modules of the package": f"{len(sources.in_functions)}",
        "imports inside functions, of other packages": f"{sources.foreign_in_functions}",
        "import cycles, with imports inside functions": f"{len(sources.cycles)}"
        + (f" ({', '.join(str(len(group)) for group in sources.cycles)} modules)" if sources.cycles else ""),
        "of these across rooms": f"{len(rooms)}",
    }
    for name, calls in ways(root, folder, python).items():
        way = Way(calls, sources)
        rows[f"{name}: files, moves, climbs"] = f"{len(way.files)}, {len(way.moves)}, {len(way.climbs)}"
    return rows | {
        "lines of code": f"{sources.code_lines:,}",
        "lines with a comment": f"{sources.comment_lines:,}",
        "files": f"{len(sources.paths)}",
        "longest file": f"{sources.file_lines[longest]} (`{longest.removeprefix(PACKAGE + '/')}`)",
        "longest function": f"{sources.function_lines[function]} (`{function.split(':')[1]}`)",
    }


def room_of(module: str) -> str:
    """The room of a module: the folder below the package, or the module itself.

    >>> room_of("pnc_vol.file.reads.contiguous"), room_of("pnc_vol.ranks.comm")
    ('file', 'comm')
    """
    return module.split(".")[1] if "." in module else module


# ----------------------------------------------------------------------------------------- the page of the docs

PAGE = "docs/develop/architecture.md"


def floors(root: pathlib.Path) -> list[list[str]]:
    """The rooms of each floor, the highest first, as the contract of import-linter has them."""
    text = (root / "pyproject.toml").read_text().partition('name = "floors"')[2].partition("]")[0]
    lines = re.findall(r'(?m)^  "([^"]+)",$', text)
    return [[name.removeprefix(f"{PACKAGE}.") for name in re.split(r" *[|:] *", line)] for line in lines]


def rooms_drawn(sources: Sources) -> str:
    """The picture: a box for each floor, and below it what each room of it imports."""
    uses: dict[str, set[str]] = {}
    for module, names in sources.graph().items():
        if module != PACKAGE:
            uses.setdefault(room_of(module), set()).update(room_of(name) for name in names if name != PACKAGE)
    lines = []
    order = floors(sources.root)
    wide = max(len("   ".join(names)) for names in order) + 4
    for at, names in enumerate(order):
        lines.append(("┌" if not at else "├") + "─" * wide + ("┐" if not at else "┤"))
        lines.append("│" + "   ".join(names).center(wide) + "│")
    lines += ["└" + "─" * wide + "┘", ""]
    place = [name for names in order for name in names]
    known = [name for name in place if name in uses]
    longest = max(map(len, known))
    for name in known:
        others = sorted(uses[name] - {name}, key=place.index)
        lines.append(f"{name:{longest}}  -> {', '.join(others) or 'nothing of the package'}")
    return "\n".join(lines)


def way_drawn(calls: list[list[Any]]) -> str:
    """The files of an act in the order of the first visit, indented by room, with the functions that are called."""
    called: dict[str, dict[str, None]] = {}
    for _, callee, name in calls:
        called.setdefault(callee.removeprefix(f"{PACKAGE}/"), {}).setdefault(name)
    longest = max(map(len, called))
    lines = []
    for callee, names in called.items():
        some = list(names)[:4]
        lines.append(f"{callee:{longest}}  {', '.join(some)}{', ...' if len(names) > 4 else ''}")
    return "\n".join(lines)


def parts(root: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """What is made from the sources, by the name that stands in the page."""
    sources = Sources(root)
    found = ways(root, folder)
    made = {name: f"```text\n{way_drawn(calls)}\n```" for name, calls in found.items()}
    made["rooms"] = f"```text\n{rooms_drawn(sources)}\n```"
    rows = "\n".join(f"| {name} | {BEFORE.get(name, '')} | {value} |" for name, value in figures(root, folder).items())
    made["figures"] = f"| | before | now |\n|---|---|---|\n{rows}"
    return made


def filled(text: str, made: dict[str, str]) -> str:
    """The page with the parts between its markers replaced."""
    for name, content in made.items():
        begin, end = f"<!-- made by tools/structure.py: {name} -->\n", "\n<!-- end -->"
        before, there, rest = text.partition(begin)
        if there:
            text = before + begin + content + end + rest.partition(end)[2]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Print figures of the structure of the package.")
    parser.add_argument("tree", nargs="?", type=pathlib.Path, default=HERE.parents[1], help="a tree of sources")
    parser.add_argument("--lists", action="store_true", help="also list large classes, imports, cycles and climbs")
    parser.add_argument("--write", action="store_true", help=f"write what is made from the sources into {PAGE}")
    args = parser.parse_args()
    root = args.tree.resolve()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        if args.write:
            page = root / PAGE
            page.write_text(filled(page.read_text(), parts(root, folder)))
            return
        for name, value in figures(root, folder).items():
            print(f"{name:58} {value}")
        if args.lists:
            for line in lists(root, folder):
                print(line)


def lists(root: pathlib.Path, folder: pathlib.Path) -> Iterator[str]:
    """What stands behind the figures."""
    sources = Sources(root)
    yield "\nclasses with more than 15 attributes"
    for key, names in sources.attributes.items():
        if len(names) > 15:
            yield f"  {len(names):3} {key}: {', '.join(sorted(names))}"
    yield "\nimports inside functions"
    for module, function, names in sources.in_functions:
        yield f"  {module}:{function}: {names}"
    yield "\ncycles"
    for group in sources.cycles:
        yield f"  {len(group)}: {', '.join(group)}"
    yield "\nlong files"
    for name, n in sources.file_lines.items():
        if n > 400:
            yield f"  {n} {name}"
    yield "\nlong functions"
    for name, n in sources.function_lines.items():
        if n > 60:
            yield f"  {n} {name}"
    for name, calls in ways(root, folder).items():
        way = Way(calls, sources)
        yield f"\n{name}: moves, climbs with *"
        for move in way.moves:
            yield f"  {'*' if move in way.climbs else ' '} {move[0]} -> {move[1]}:{move[2]}"


if __name__ == "__main__":
    main()
