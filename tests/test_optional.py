"""h5py is optional: everything but HDF5 files works without it, and what needs it says how to install it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]


def without_h5py(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A function of `without_h5py`, in a process of its own."""
    program = Path(__file__).with_name("without_h5py.py")
    return subprocess.run([sys.executable, program, *words], cwd=folder, capture_output=True, text=True, check=False)


def test_all_that_is_not_hdf5_works_without_h5py(tmp_path: Path) -> None:
    done = without_h5py(tmp_path, "all_but_hdf5")
    assert done.returncode == 0, done.stderr


def test_what_needs_h5py_says_how_to_install_it(tmp_path: Path) -> None:
    said = without_h5py(tmp_path, "what_needs_h5py").stdout.splitlines()
    assert len(said) == 3
    assert all(re.fullmatch(r'.*HDF5 file.* needs h5py: pip install "pnc-vol\[hdf5\]"', line) for line in said)
    assert not [path.name for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize("words", ["convert some.h5 out.nc", "ls some.h5", "demo here"])
def test_the_command_says_it_in_one_line(tmp_path: Path, words: str) -> None:
    (tmp_path / "some.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    done = without_h5py(tmp_path, "the_command", *words.split())
    assert done.returncode in (1, 2)
    assert re.fullmatch(r'pnc-vol: .* needs h5py: pip install "pnc-vol\[hdf5\]"\n', done.stderr)


def test_the_core_depends_on_numpy_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = re.compile(r"[\w.-]+")
    assert [name.match(one).group() for one in project["dependencies"]] == ["numpy"]  # type: ignore[union-attr]
    extras = project["optional-dependencies"]

    def brings(extra: str) -> set[str]:
        """The packages of an extra, those of the extras in it included."""
        found: set[str] = set()
        for one in extras[extra]:
            inner = re.fullmatch(r"pnc-vol\[(.*)\]", one)
            found |= set().union(*map(brings, inner[1].split(","))) if inner else {name.match(one).group()}  # type: ignore[union-attr]
        return found

    for extra in ("hdf5", "cli", "all", "test", "clients"):
        assert "h5py" in brings(extra), extra
    # the README's first command installs these, and runs the demo, which reads HDF5 files
    demo = re.search(r"^python3 -m venv .* demo$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert demo is not None
    wanted = re.search(r"install \"\.\[([\w,]+)\]\"", demo[0])
    assert wanted is not None
    assert "h5py" in set().union(*map(brings, wanted[1].split(",")))
