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

BLOCKED = "import sys; sys.modules['h5py'] = None\n"
"""With None in its place the import of a module is an ImportError."""


def run(script: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCKED + script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_that_is_not_hdf5_works_without_h5py(tmp_path: Path) -> None:
    script = """
import numpy as np
import pnc_vol as h5py
for name in h5py.__all__:
    getattr(h5py, name)
with h5py.File("all.nc", "w") as f:
    f["numbers"] = np.arange(4)
    f.create_dataset("texts", data=["a", "bc"], dtype=h5py.string_dtype())
    g = f.create_group("g")
    g.attrs["units"], g.attrs["levels"] = "m", [1, 2]
    g["point"] = np.zeros(3, [("x", "i4"), ("y", "f8")])
    g["reference"], g["region"] = f["numbers"].ref, f["numbers"].regionref[1:3]
    f.create_dataset("enum", data=[0, 1], dtype=h5py.enum_dtype({"NO": 0, "YES": 1}))
    f.create_dataset("ragged", (2,), dtype=h5py.vlen_dtype("i4"))[0] = [1, 2]
    f["bool"], f["complex"], f["opaque"], f["soft"] = True, 1j, np.void(b"12"), h5py.SoftLink("/numbers")
    f["record"] = h5py.Empty("f4")
    f["x"] = [0.5, 1]
    f["x"].make_scale("x")
with h5py.File("all.nc") as f:
    assert f["numbers"][:].tolist() == f["soft"][:].tolist() == [0, 1, 2, 3]
    assert f["texts"].asstr()[:].tolist() == ["a", "bc"]
    assert dict(f["g"].attrs)["units"] == "m"
    assert f[f["g/reference"][()]] == f["numbers"]
    assert f["g/point"]["y"].tolist() == [0, 0, 0]
    assert f["ragged"][0].tolist() == [1, 2]
    assert h5py.check_enum_dtype(f["enum"].dtype) == {"NO": 0, "YES": 1}
assert h5py.check("all.nc") == []
assert h5py.repack("all.nc", "packed.nc").written
with h5py.patch():
    import h5py as patched
    assert patched.File is h5py.File
    from h5py import h5t
    assert patched.File("all.nc")["bool"][()]
from pnc_vol.convert.hdf5 import open_either
assert open_either("packed.nc")["x"].is_scale
print("done")
"""
    assert run(script, tmp_path) == "done\n"


def test_what_needs_h5py_says_how_to_install_it(tmp_path: Path) -> None:
    script = """
import pnc_vol
from pnc_vol.convert.hdf5 import convert, open_either
with pnc_vol.File("some.nc", "w") as f:
    f["x"] = 1
with open("some.h5", "wb") as raw:
    raw.write(b"\\x89HDF\\r\\n\\x1a\\n" + bytes(100))
for act in (
    lambda: convert("some.h5", "out.nc"),
    lambda: convert("some.nc", "out.h5"),
    lambda: open_either("some.h5"),
):
    try:
        act()
    except ImportError as error:
        assert isinstance(error, pnc_vol.MissingPackageError)
        print(error)
"""
    said = run(script, tmp_path).splitlines()
    assert len(said) == 3
    assert all(re.fullmatch(r'.*HDF5 file.* needs h5py: pip install "pnc-vol\[hdf5\]"', line) for line in said)
    assert not [path.name for path in tmp_path.iterdir() if "out" in path.name]


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    (tmp_path / "some.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    for arguments in (["convert", "some.h5", "out.nc"], ["ls", "some.h5"], ["demo", "here"]):
        script = f"sys.argv[1:] = {arguments!r}\nimport runpy\nrunpy.run_module('pnc_vol.cli', run_name='__main__')"
        done = subprocess.run([sys.executable, "-c", BLOCKED + script], cwd=tmp_path, capture_output=True, text=True)
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
    assert {"h5py", "typer", "rich"} <= set().union(*map(brings, wanted[1].split(",")))
