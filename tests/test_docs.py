"""Every code block of the README and the docs runs, and the tables name all that is there.

The blocks of a page run in order, in one empty folder, ``examples`` and ``tests`` in it:

* ``python``: executed, all blocks of a page in one namespace; with ``>>>`` as a doctest.
* ``shell``: run by bash.
* ``{dumps} NAME``: the program of `docs/dumps.py`: executed with pnc_vol as `h5py` and ``NAME.nc`` as `path`.
* ``text`` straight after one of these, under ``<!-- output -->``: what it must have printed.

A comment before a block may say ``<!-- file: name.py -->`` (saved under that name, not executed) or
``<!-- not run: why -->``, which stands for a need of the network alone. Blocks of other languages are not code of ours.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.metadata
import io
import logging
import os
import re
import runpy
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structure

import pnc_vol
from pnc_vol import errors
from pnc_vol.errors import PncVolWarning
from pnc_vol.settings import options

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
DEBIAN = {"ncdump": "netcdf-bin", "ncgen": "netcdf-bin", "nccopy": "netcdf-bin", "ncvalidator": "pnetcdf-bin"}
MPI = {"mpiexec"}


@dataclass
class Block:
    """A fenced block: its language, text, first line, and what the comment before it says."""

    language: str
    text: str
    line: int
    comment: str


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    lines = path.read_text().splitlines()
    at, comment = 0, ""
    while at < len(lines):
        line = lines[at]
        if (said := re.fullmatch(r"\s*<!-- (.*) -->", line)) is not None:
            comment = said[1]
        elif (fence := re.match(r"(`{3,}|:{3,})(.*)", line)) is not None:
            mark, language = fence[1], fence[2].strip()
            end = next(i for i in range(at + 1, len(lines)) if lines[i].startswith(mark))
            found.append(Block(language, "\n".join(lines[at + 1 : end]) + "\n", at + 2, comment))
            at, comment = end, ""
        elif line.strip():
            comment = ""
        at += 1
    return found


def run_python(block: Block, names: dict[str, Any], where: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        # Pages show what CDF cannot hold; the warning is part of what they show.
        warnings.simplefilter("ignore", PncVolWarning)
        if ">>>" in block.text:
            test = doctest.DocTestParser().get_doctest(block.text, names, where, where, block.line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
            report = io.StringIO()
            runner.run(test, out=report.write, clear_globs=False)
            names.update(test.globs)
            assert not runner.failures, report.getvalue()
        else:
            # Blank lines in front, so that a traceback names the line of the page.
            exec(compile("\n" * (block.line - 1) + block.text, where, "exec"), names)
    return printed.getvalue()


def run_shell(block: Block, folder: Path) -> str:
    beside = os.path.dirname(sys.executable)
    path = beside + os.pathsep + os.environ["PATH"]
    for word in re.findall(r"(?:^|[|&;]\s*)([\w-]+)", block.text, re.MULTILINE):
        if (word in DEBIAN or word in MPI) and shutil.which(word, path=path) is None:
            package = f"Debian: {DEBIAN[word]}" if word in DEBIAN else 'pip install "pnc-vol[mpi]"'
            pytest.skip(f"{word} is not installed ({package})")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ | {"PATH": path, "MPLBACKEND": "Agg", "COLUMNS": "120"},
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def loggers() -> Iterator[None]:
    """What a page sets of the package's loggers is for that page alone."""
    logger = logging.getLogger("pnc_vol")
    level, handlers = logger.level, logger.handlers[:]
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.mark.usefixtures("loggers")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("examples", "tests"):
        os.symlink(ROOT / folder, tmp_path / folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.comment == "output":
            assert printed is not None, f"{where}: output of nothing"
            assert printed.split() == block.text.split(), f"{where}: printed was\n{printed}"
            continue
        if block.comment.startswith("file: "):
            (tmp_path / block.comment[6:]).write_text(block.text)
            continue
        if block.comment.startswith("not run: "):
            assert re.search(r"network|pip install", block.comment + block.text), f"{where}: why is this not run?"
            continue
        try:
            if block.language == "python":
                printed = run_python(block, names, where)
            elif block.language.startswith("{dumps}"):
                run_python(block, {"h5py": pnc_vol, "path": f"{block.language.split()[1]}.nc"}, where)
            elif block.language in ("shell", "bash", "sh", "console"):
                printed = run_shell(block, tmp_path)
        except AssertionError as error:
            pytest.fail(f"{where}: {error}", pytrace=False)
        except Exception:
            pytest.fail(f"{where}:\n{traceback.format_exc()}", pytrace=False)


def test_blocks_are_found() -> None:
    found = [block.language for page in PAGES for block in blocks(page)]
    assert found.count("python") > 15
    assert found.count("shell") > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?s)```.*?```", "", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_is_no_list_of_links() -> None:
    """A newcomer chooses among twelve at most; docs/index.md has all pages."""
    assert len(re.findall(r"\]\(", (ROOT / "README.md").read_text())) <= 12


def _dumps() -> SimpleNamespace:
    pytest.importorskip("sphinx", reason="sphinx is not installed (pip install 'pnc-vol[docs]')")
    return SimpleNamespace(**runpy.run_path(str(DOCS / "dumps.py")))


@pytest.mark.parametrize("tools", [True, False], ids=["tools", "no-tools"])
def test_dumps_are_made_of_both_files(tools: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build shows what tools say; without them what ours say, and tells so."""
    pytest.importorskip("h5py", reason="h5py is not installed: it writes the HDF5 files")
    dumps = _dumps()
    if not tools:
        monkeypatch.setattr(dumps.shutil, "which", lambda name: None)
    found = {
        b.language.split()[1]: b.text for b in blocks(DOCS / "explain/mapping.md") if b.language.startswith("{dumps}")
    }
    assert len(found) >= 8
    for name in found if tools else ("sea",):
        hdf5, netcdf = dumps.both(name, found[name])
        assert name + ".h5" in hdf5.caption
        assert name + ".nc" in netcdf.caption
        assert netcdf.text.startswith(f"netcdf {name} {{")
        assert ("pnc_vol_hdf5" in netcdf.text) == (name not in ("sea", "waves"))
        assert ("not installed" in netcdf.caption) == (shutil.which("ncdump") is None or not tools)
        assert ("not installed" in hdf5.caption) == (shutil.which("h5dump") is None or not tools)
        assert hdf5.text.startswith("HDF5" if shutil.which("h5dump") and tools else "")
        assert hdf5.text


def test_every_page_is_in_the_table_of_contents() -> None:
    trees = [block for page in PAGES for block in blocks(page) if block.language.startswith("{toctree}")]
    listed = {line.strip() for block in trees for line in block.text.splitlines()}
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES[1:]} - {"index"}
    assert pages <= listed, f"not in docs/index.md: {sorted(pages - listed)}"


# ------------------------------------------------------------------------------------------------- tables


def first_cells(page: str) -> set[str]:
    """Names in code in the first column of the tables of a page."""
    text = (DOCS / page).read_text()
    return {word for row in re.findall(r"(?m)^\|([^|]*)\|", text) for word in re.findall(r"`([^`]+)`", row)}


def test_all_options_are_listed() -> None:
    named = first_cells("reference/options.md")
    assert {name for name in options.keyword_names() if name not in named} == set()
    assert set(options._HINT_NAMES) <= named


def test_all_public_names_are_in_the_reference() -> None:
    page = (DOCS / "reference/api.md").read_text()
    names = {name for name in dir(pnc_vol) if name not in errors.__all__}
    assert {name for name in names if not re.search(rf"pnc_vol\.{name}\b", page)} == set()


def test_all_errors_are_listed() -> None:
    assert set(errors.__all__) <= first_cells("reference/errors.md")


def test_each_line_about_the_cache_names_its_test() -> None:
    part = (DOCS / "explain/promises.md").read_text().partition("### With a node-local cache")[2].partition("\n\n*")[0]
    rows = [row.split("|")[-2] for row in part.splitlines() if row.startswith("| ")][1:]
    told = "".join((ROOT / "tests" / name).read_text() for name in ("mpi/ranks_cache.py", "cache/test_caches.py"))
    assert len(rows) >= 8
    for row in rows:
        named = re.findall(r"`(\w+)`", row)
        assert named
        assert [name for name in named if f"def {name}(" not in told] == []


def test_messages_that_the_docs_explain_are_there() -> None:
    """The first column of the table of troubles is what the sources say."""
    said = re.sub(r'"\s*f?"', "", "".join(path.read_text() for path in (ROOT / "pnc_vol").rglob("*.py")))
    table = (DOCS / "reference/burst-buffer.md").read_text().partition("| it says |")[2]
    messages = re.findall(r"(?m)^\| `([^`]+)` \|", table)
    assert len(messages) > 10
    for message in messages:
        for part in message.split(" ... "):
            assert part in said, f"nobody says {part!r}"


def test_every_module_is_on_the_map() -> None:
    text = (DOCS / "develop/layers.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "pnc_vol").rglob("*.py")} - {"pnc_vol"}
    rooms |= {path.stem for path in (ROOT / "pnc_vol").glob("*.py")} - {"__init__"}
    assert not [room for room in sorted(rooms) if f"`{room}" not in text]


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    drawn = structure.rooms_drawn(structure.Sources(ROOT))
    assert drawn in (ROOT / structure.PAGE).read_text(), "run: python tools/structure.py --write"


def test_files_that_the_architecture_names_are_there() -> None:
    named = re.findall(r"`(pnc_vol/[^`]+)`", (ROOT / structure.PAGE).read_text())
    assert len(named) > 4
    assert [path for path in named if not (ROOT / path).exists()] == []


def rows(text: str, heading: str) -> dict[str, str]:
    """The lines of the first table below a heading: what stands in the first cell, and the rest."""
    table = text.partition(f"\n## {heading}\n")[2].partition("|---|")[2].partition("\n\n")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): "|".join(cells[1:]) for cells in lines}


def test_every_promise_has_the_names_of_its_tests() -> None:
    promised = rows((DOCS / "explain/promises.md").read_text(), "In one table")
    held = rows((DOCS / "develop/tests.md").read_text(), "The tests of each promise")
    assert len(promised) > 15
    assert list(promised) == list(held), "docs/develop/tests.md lists the lines of that table, in their order"
    for line, cell in held.items():
        names = re.findall(r"`(tests/[^`]+)`", cell)
        assert names, f"{line!r}: no test is named"
        for name in names:
            path, _, function = name.partition("::")
            source = (ROOT / path).read_text()
            assert re.search(rf"(?m)^(def|class) {re.escape(function)}\b", source), f"{line!r}: there is no {name}"


def test_every_decision_has_a_date() -> None:
    headings = re.findall(r"(?m)^## (.*)$", (DOCS / "develop/decisions.md").read_text())
    assert headings
    assert all(re.match(r"\d{4}-\d\d-\d\d: .+", heading) for heading in headings)


# ------------------------------------------------------------------------------------- README and its commands


def setup_lines() -> list[str]:
    return [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("python3 -m venv")]


LABELLED = re.compile(r"(?m)^\((\w+)\)=\n## (\w+)$")


def test_labels_of_the_commands_stand_above_their_headings() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert len(LABELLED.findall(text)) > 10
    assert [found for found in LABELLED.findall(text) if found[0] != found[1]] == []
    verbs = {label for label, _ in LABELLED.findall(text)}
    assert set(re.findall(r"(?m)^\((\w+)\)=$", text)) == verbs


def test_the_readme_has_one_command_for_the_demo_and_one_for_the_tests() -> None:
    lines = setup_lines()
    assert [line.rsplit("/", 1)[-1] for line in lines] == ["pnc-vol demo", "pytest"]
    assert all(line.count(" && ") == 2 for line in lines)


def test_ci_runs_the_commands_of_the_readme() -> None:
    """`.ci/run` takes its commands out of the README; what it finds there must be what a reader finds."""
    script = (ROOT / ".ci/run").read_text()
    found = [
        subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.rstrip(
            "\n"
        )
        for command in re.findall(r"(?m)^\w+=\$\((grep .* README\.md)\)$", script)
    ]
    assert found == setup_lines()
    for step in ("ruff check", "ruff format --check", "mypy", "lint-imports", "sphinx-build -W"):
        assert f"/{step}" in script


def test_the_readme_is_short() -> None:
    assert 40 <= len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_the_extras_that_the_docs_name_exist() -> None:
    extras = importlib.metadata.metadata("pnc-vol").get_all("Provides-Extra") or []
    text = "".join(page.read_text() for page in PAGES)
    named = {extra for group in re.findall(r"(?:\.|pnc-vol)\[([a-z,]+)\]", text) for extra in group.split(",")}
    assert named <= set(extras)
