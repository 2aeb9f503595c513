"""The specification shows files as `ncdump -h` prints them: the examples are made here and compared.

After a change of the mapping, ``python tests/mapping/test_file_format.py`` writes the examples into the document anew.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import assert_valid, tool

import pnc_vol as h5py

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "file-format.md"
BLOCK = re.compile(r"<!-- example: ([a-z]+) -->\n```\n(.*?)```\n", re.S)


def plain(f: Any) -> None:
    time, lat = f.create_dataset("time", (4,), "f8", maxshape=(None,)), f.create_dataset("lat", (2,), "f4")
    time.make_scale("time")
    lat.make_scale("lat")
    t = f.create_dataset("temp", (4, 2, 3), "f4", maxshape=(None, 2, 3), fillvalue=-1)
    t.dims[0].attach_scale(time)
    t.dims[1].attach_scale(lat)
    t.dims[2].label = "lon"
    t.attrs["units"] = "K"
    t.attrs["valid_range"] = np.array([0, 400], "f4")
    f.create_dataset("plain", (3,), "i8")


def groups(f: Any) -> None:
    f.create_dataset("A/B", (2,), "i4")
    f.create_dataset("A_B", (2,), "i4")
    f.create_group("empty")
    f["A"].attrs["units"] = "m"
    f.attrs["title"] = "groups"


def types(f: Any) -> None:
    for name, dtype in {
        "flag": "?", "colour": h5py.enum_dtype({"RED": 0, "DARK GREEN": 1}, "i1"), "z": "c8", "half": "f2",
        "big": ">i4", "fixed": "S3", "utf8": h5py.string_dtype("utf-8", 4),
    }.items():  # fmt: skip
        f.create_dataset(name, (2,), dtype)
    f["text"] = ["Kiel", "Malmo"]


def composite(f: Any) -> None:
    f.create_dataset("obs", (2,), [("lat", "f4"), ("name", "S3")]).attrs["title"] = "a compound"
    f.create_dataset("tracks", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2, 3, 4, 5]


def elsewhere(f: Any) -> None:
    f["x"] = np.arange(3, dtype="i4")
    layout = h5py.VirtualLayout((2, 3), "i4")
    layout[0], layout[1, :2] = h5py.VirtualSource(f["x"]), h5py.VirtualSource("other.nc", "/x", (9,))[1:4:2]
    f.create_virtual_dataset("both", layout, fillvalue=-1)
    f.create_dataset("raw", (4,), "<i2", external=[("values.bin", 16, 8)])


def links(f: Any) -> None:
    x = f.create_dataset("A/x", (2,), "f4")
    f["soft"] = h5py.SoftLink("/A/x")
    f["elsewhere"] = h5py.ExternalLink("other.nc", "/y")
    f["again"] = x


def attributes(f: Any) -> None:
    f.attrs.update({
        "scalar": 1, "one": [1], "matrix": [[1, 2], [3, 4]], "names": ["a", "bc"], "fixed": np.bytes_(b"abc"),
        "yes": True, "z": 1 + 2j, "nothing": h5py.Empty("f4"), "a/b": "slash",
    })  # fmt: skip


def shapes(f: Any) -> None:
    f.create_dataset("long", (5,), "f4", maxshape=(None,))
    f.create_dataset("short", (3,), "f4", maxshape=(None,))
    f.create_dataset("none", (4, 0), "f4")
    f["null"] = h5py.Empty("f4")
    x, y, signal = (f.create_dataset(name, (2,), "f4") for name in ("x", "y", "signal"))
    x.make_scale("x")
    y.make_scale("other")
    signal.dims[0].attach_scale(x)
    signal.dims[0].attach_scale(y)
    signal.dims[0].label = "x"


EXAMPLES: dict[str, Callable[[Any], None]] = {
    function.__name__: function for function in (plain, groups, links, types, composite, attributes, shapes, elsewhere)
}


def written(name: str, folder: Path) -> Path:
    with h5py.File(folder / f"{name}.nc", "w") as f:
        EXAMPLES[name](f)
    return folder / f"{name}.nc"


def dumped(name: str, folder: Path) -> str:
    path = written(name, folder)
    assert_valid(path)
    return tool("ncdump", "-h", path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_document_shows_what_is_written(name: str, tmp_path: Path) -> None:
    shown = dict(BLOCK.findall(DOCUMENT.read_text()))
    assert set(shown) == set(EXAMPLES)
    assert shown[name] == dumped(name, tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_that_is_written_again_is_the_same(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    content = path.read_bytes()
    assert h5py.check(path) == []
    for change in (lambda f: f.create_group("new"), lambda f: f.__delitem__("new")):
        with h5py.File(path, "r+") as f:
            change(f)
    h5py.repack(path, header_reserve=0)
    (tmp_path / "first.nc").write_bytes(content)
    h5py.repack(tmp_path / "first.nc", header_reserve=0)
    assert path.read_bytes() == (tmp_path / "first.nc").read_bytes()


def test_every_key_is_in_the_document() -> None:
    """What the code writes is specified: the keys are collected from the examples' markers and the sources."""
    text = DOCUMENT.read_text()
    sources = Path(h5py.__file__).parent / "mapping"
    keys = {
        key
        for source in sources.glob("*.py")
        for key in re.findall(r'(?:marker|markers|about|parts)\["(\w+)"\]', source.read_text())
    }
    assert keys >= {"path", "shape", "len", "scale", "labels", "attrs", "groups", "fill", "own", "lengths"}
    missing = {key for key in keys if f"`{key}`" not in text}
    assert not missing


def test_other_libraries_read_the_types(tmp_path: Path) -> None:
    netcdf4 = pytest.importorskip("netCDF4")
    xarray = pytest.importorskip("xarray")
    path = written("types", tmp_path)
    with netcdf4.Dataset(path, auto_complex=True) as file:
        assert file["z"].dtype == np.complex64
        assert file["z"].shape == (2,)
    with xarray.open_dataset(path, engine="netcdf4") as file:
        assert file["flag"].dtype == bool
        assert file["text"].shape == (2,)


def main() -> None:
    """Write the examples into the document."""
    with tempfile.TemporaryDirectory() as folder:
        text = BLOCK.sub(
            lambda found: f"<!-- example: {found[1]} -->\n```\n{dumped(found[1], Path(folder))}```\n",
            DOCUMENT.read_text(),
        )
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
