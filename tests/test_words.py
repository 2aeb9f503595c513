"""Names are the field's terms: words that readers stumbled over do not come back, and no two classes have one name.

The words are those of the table in `docs/develop/style.md`. Sources are parsed, and not imported.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pnc_vol"
STYLE = ROOT / "docs" / "develop" / "style.md"

# The reason why a second class has the name of another one. A new class gets a name of its own.
SAME_NAME = {
    "Capabilities": "what a driver declares, and what a store declares: both are public names of their interfaces",
    "Ranks": "the protocol in `drivers`, which may not import `ranks`, and the class that fulfils it",
}

NAMED_IN: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Name: ("id",),
    ast.Attribute: ("attr",),
    ast.arg: ("arg",),
    ast.keyword: ("arg",),
    ast.FunctionDef: ("name",),
    ast.ClassDef: ("name",),
    ast.ExceptHandler: ("name",),
    ast.alias: ("name", "asname"),
    ast.ImportFrom: ("module",),
    ast.Global: ("names",),
    ast.Nonlocal: ("names",),
    ast.MatchAs: ("name",),
    ast.MatchStar: ("name",),
    ast.MatchMapping: ("rest",),
}


@cache
def words() -> list[tuple[str, ...]]:
    """Return the words of the table, each as its parts between underscores."""
    table = STYLE.read_text().partition("## Words that must not come back")[2]
    found = re.findall(r"^\| ([a-z_]+) \| .*`.*\|$", table, re.MULTILINE)
    return [tuple(word.split("_")) for word in found]


def parts(identifier: str) -> list[str]:
    """Split an identifier at underscores and capitals."""
    found = re.findall(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+", identifier)
    return [part.lower() for part in found]


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield all identifiers of a module as often as they stand there, those of attributes and keywords included."""
    for node in ast.walk(tree):
        for field in NAMED_IN.get(type(node), ()):
            text = getattr(node, field)
            if isinstance(text, list):
                yield from text
            elif text is not None:
                yield from text.split(".")


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def is_bad(identifier: str) -> bool:
    """Whether a word of the table is part of an identifier."""
    split = parts(identifier)
    return any(tuple(split[i : i + len(word)]) == word for word in words() for i in range(len(split)))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def bad_names() -> dict[str, Counter[str]]:
    """Count the identifiers of each room that have a word of the table."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path, tree in modules().items():
        for name in identifiers(tree):
            if is_bad(name):
                found[room_of(path)][name] += 1
    return found


@pytest.mark.parametrize("room", sorted({room_of(path) for path in PACKAGE.rglob("*.py")}))
def test_no_name_has_a_word_that_readers_stumbled_over(room: str) -> None:
    found = bad_names().get(room, Counter())
    assert not found, f"{STYLE.name} says what to write instead of {dict(found)}"


def test_modules_and_folders_have_none_of_the_words() -> None:
    names = {part.removesuffix(".py") for path in modules() for part in path.relative_to(PACKAGE).parts}
    wrong = {name for name in names if is_bad(name)}
    assert not wrong, f"{STYLE.name} says what to write instead of {wrong}"


def test_the_table_of_words_is_read() -> None:
    assert ("told",) in words()
    assert ("let", "go") in words()
    assert parts("_told_by") == ["told", "by"]
    assert parts("NodeMates") == ["node", "mates"]
    assert parts("MPIFile2") == ["mpi", "file2"]
    assert parts("_CALLS_AFAR") == ["calls", "afar"]


def test_no_two_classes_have_one_name() -> None:
    classes: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path.relative_to(PACKAGE).as_posix())
    several = {name: sorted(where) for name, where in classes.items() if len(where) > 1}
    new = {name: where for name, where in several.items() if name not in SAME_NAME or len(where) > 2}
    assert not new, f"classes of one name: {new}"
    assert not SAME_NAME.keys() - several.keys(), "take the names that are single now out of SAME_NAME"


QUESTIONS = {"Whether", "What", "Where", "How", "Which", "Why", "Who"}
NOUNS = QUESTIONS | {"The", "A", "An", "All", "Bytes", "True", "Those"}
"""Words with which a phrase begins that has no verb; of a function that returns something they are the value alone."""
PROPERTIES = {"property", "cached_property", "setter", "overload"}


def first_word(node: ast.AsyncFunctionDef | ast.FunctionDef | ast.Module) -> str:
    """Return the first word of a docstring; "" if there is none."""
    return (ast.get_docstring(node) or "").partition(" ")[0].rstrip(",.:;")


@pytest.mark.parametrize("room", sorted({room_of(path) for path in PACKAGE.rglob("*.py")}))
def test_first_lines_have_a_verb(room: str) -> None:
    """A module's head is a sentence and a function's an imperative; a property names its value, a class what it is."""
    wrong = []
    for path, tree in modules().items():
        if room_of(path) != room:
            continue
        if first_word(tree) in QUESTIONS | {"From"}:
            wrong.append(f"{path.name}: {first_word(tree)}")
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("test_"):
                marks = {re.split(r"[.(]", ast.unparse(mark))[-1] for mark in node.decorator_list}
                void = node.returns is None or ast.unparse(node.returns) in ("None", "NoReturn")
                if not marks & PROPERTIES and first_word(node) in (QUESTIONS if void else NOUNS):
                    wrong.append(f"{path.name}: {node.name}: {first_word(node)}")
    assert not wrong, f"{STYLE.name} says how a first line begins"
