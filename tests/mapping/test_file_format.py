"""The specification shows files as `ncdump -h` prints them: the examples are made here and compared.

After a change of the mapping, ``python tests/mapping/test_file_format.py`` writes the examples into the document anew.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pnc_vol.format.decode import decode
from pnc_vol.format.encode import encode
from pnc_vol.format.placing import place
from pnc_vol.format.sizes import data_end
from pnc_vol.mapping.attributes import make_attribute
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.flatten import numrecs_of, to_header
from pnc_vol.mapping.links import External, Hard, Soft
from pnc_vol.mapping.special import Empty, enum_dtype, string_dtype, vlen_dtype
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.mapping.unflatten import from_header

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "file-format.md"
BLOCK = re.compile(r"<!-- example: ([a-z]+) -->\n```\n(.*?)```\n", re.S)


def add(tree: Tree, path: str, dtype: Any, shape: Any, **knobs: Any) -> DatasetNode:
    group = tree.root
    *steps, name = path.split("/")
    for step in steps:
        group = group.children.get(step) or tree.add_group(group, step)  # type: ignore[assignment]
    return tree.add_dataset(group, name, element=element_for(dtype, width=5), shape=shape, **knobs)


def plain(tree: Tree) -> None:
    time = add(tree, "time", "f8", (4,), maxshape=(None,))
    lat = add(tree, "lat", "f4", (2,))
    time.scale, lat.scale = "time", "lat"
    t = add(tree, "temp", "f4", (4, 2, 3), maxshape=(None, 2, 3), fillvalue=np.array(-1, ">f4").tobytes())
    t.axes[0].scales, t.axes[1].scales, t.axes[2].label = [time], [lat], "lon"
    t.attrs["units"] = make_attribute("K")
    t.attrs["valid_range"] = make_attribute(np.array([0, 400], "f4"))
    add(tree, "plain", "i8", (3,))


def groups(tree: Tree) -> None:
    add(tree, "A/B", "i4", (2,))
    add(tree, "A_B", "i4", (2,))
    tree.add_group(tree.root, "empty")
    tree.root.children["A"].attrs["units"] = make_attribute("m")
    tree.root.attrs["title"] = make_attribute("groups")


def types(tree: Tree) -> None:
    add(tree, "flag", bool, (2,))
    add(tree, "colour", enum_dtype({"RED": 0, "DARK GREEN": 1}, "i1"), (2,))
    add(tree, "z", "c8", (2,))
    add(tree, "half", "f2", (2,))
    add(tree, "big", ">i4", (2,))
    add(tree, "fixed", "S3", (2,))
    add(tree, "utf8", string_dtype("utf-8", 4), (2,))
    add(tree, "text", string_dtype(), (2,))


def composite(tree: Tree) -> None:
    obs = add(tree, "obs", [("lat", "f4"), ("name", "S3")], (2,))
    obs.attrs["title"] = make_attribute("a compound")
    tracks = add(tree, "tracks", vlen_dtype("i4"), (2,))
    tree.add_part(tracks, "values", element_for("i4"), (5,))


def links(tree: Tree) -> None:
    x = add(tree, "A/x", "f4", (2,))
    tree.add_link(tree.root, "soft", Soft("/A/x"))
    tree.add_link(tree.root, "elsewhere", External("other.nc", "/y"))
    tree.add_link(tree.root, "again", Hard(x))


def attributes(tree: Tree) -> None:
    attrs = tree.root.attrs
    for name, value in {
        "scalar": 1,
        "one": [1],
        "matrix": [[1, 2], [3, 4]],
        "names": ["a", "bc"],
        "fixed": np.bytes_(b"abc"),
        "yes": True,
        "z": 1 + 2j,
        "nothing": Empty("f4"),
        "a/b": "slash",
    }.items():
        attrs[name] = make_attribute(value)


def shapes(tree: Tree) -> None:
    add(tree, "long", "f4", (5,), maxshape=(None,))
    add(tree, "short", "f4", (3,), maxshape=(None,))
    add(tree, "none", "f4", (4, 0))
    add(tree, "null", "f4", None)
    x = add(tree, "x", "f4", (2,))
    y = add(tree, "y", "f4", (2,))
    x.scale, y.scale = "x", "other"
    signal = add(tree, "signal", "f4", (2,))
    signal.axes[0].scales, signal.axes[0].label = [x, y], "x"


EXAMPLES: dict[str, Callable[[Tree], None]] = {
    function.__name__: function for function in (plain, groups, links, types, composite, attributes, shapes)
}


def file_of(tree: Tree) -> bytes:
    header = place(replace(to_header(tree).header, numrecs=numrecs_of(tree)))
    data = encode(header)
    return data.ljust(data_end(header), b"\0")


def dumped(name: str, folder: Path) -> str:
    tree = Tree()
    EXAMPLES[name](tree)
    path = folder / f"{name}.nc"
    path.write_bytes(file_of(tree))
    for tool in ("ncvalidator", "ncdump"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (Debian: netcdf-bin, pnetcdf-bin)")
    subprocess.run(["ncvalidator", "-q", str(path)], check=True, capture_output=True)
    return subprocess.run(["ncdump", "-h", str(path)], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_document_shows_what_is_written(name: str, tmp_path: Path) -> None:
    shown = dict(BLOCK.findall(DOCUMENT.read_text()))
    assert set(shown) == set(EXAMPLES)
    assert shown[name] == dumped(name, tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_bytes_give_the_tree_back(name: str) -> None:
    tree = Tree()
    EXAMPLES[name](tree)
    data = file_of(tree)
    header = decode(data, file_size=len(data)).header
    again = from_header(header)
    assert again.findings == []
    assert file_of(again) == data


def test_every_key_is_in_the_document() -> None:
    """What the code writes is specified: the keys are collected from the examples' markers and the sources."""
    text = DOCUMENT.read_text()
    sources = Path(to_header.__code__.co_filename).parent
    keys = {
        key
        for source in sources.glob("*.py")
        for key in re.findall(r'(?:marker|markers|about)\["(\w+)"\]', source.read_text())
    }
    assert keys >= {"path", "shape", "len", "scale", "labels", "attrs", "groups", "fill", "own", "lengths"}
    missing = {key for key in keys if f"`{key}`" not in text}
    assert not missing


def test_other_libraries_read_the_types(tmp_path: Path) -> None:
    netcdf4 = pytest.importorskip("netCDF4")
    xarray = pytest.importorskip("xarray")
    tree = Tree()
    types(tree)
    path = tmp_path / "types.nc"
    path.write_bytes(file_of(tree))
    with netcdf4.Dataset(path, auto_complex=True) as file:
        assert file["z"].dtype == np.complex64
        assert file["z"].shape == (2,)
    with xarray.open_dataset(path, engine="netcdf4") as file:
        assert file["flag"].dtype == bool
        assert file["text"].shape == (2,)
        assert h5py.check_string_dtype(element_for(string_dtype()).dtype) is not None


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
