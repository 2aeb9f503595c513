"""A file that is opened to be changed: its header stays as it is but for what changes, and so does the work."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counted_work import calls_of

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

Act = Callable[[Any], object]


def written(path: pathlib.Path, count: int) -> pathlib.Path:
    with pnc_vol.File(path, "w") as f:
        f.attrs["title"] = "a title"
        f.create_dataset("x", data=np.arange(4.0), dims=("x",))
        for i in range(count):
            ds = f.create_dataset(f"v{i}", (2, 4), "f4", maxshape=(None, 4), dims=("time", "x"))
            ds[...] = i
            ds.attrs["units"] = "K"
            ds.attrs["long_name"] = f"variable {i}"
        f.create_dataset("filled", (4,), "f4", fillvalue=7).attrs["units"] = "K"
        f["text"] = "a text"
        f["flag"] = True
    return path


def change_units(f: Any) -> None:
    f["v3"].attrs["units"] = "C"


def add_an_array(f: Any) -> None:
    f["filled"].attrs["levels"] = np.arange(3)


def change_that_of_the_file(f: Any) -> None:
    f.attrs["history"] = "changed"


def name_a_scale(f: Any) -> None:
    f["x"].attrs["units"] = "m"


def add_records(f: Any) -> None:
    for name in [name for name in f if name[0] == "v"]:
        f[name].resize(3, axis=0)
        f[name][2] = 9


def add_a_group(f: Any) -> None:
    f.create_group("g/inner").attrs["title"] = "a group"


def change_nothing(f: Any) -> None:
    pass


@pytest.mark.parametrize(
    "act", [change_units, change_that_of_the_file, add_an_array, name_a_scale, add_a_group, change_nothing]
)
def test_no_other_variable_is_looked_at(tmp_path: pathlib.Path, act: Act) -> None:
    """As many calls in a file of 30 variables and in one of 300, when it is open."""
    found = []
    for count in (30, 300):
        path = written(tmp_path / f"{count}.nc", count)
        with pnc_vol.File(path, "r+", header_reserve=4096) as f:
            f.attrs["first"] = "moves all, as the file has no room for it"
        with pnc_vol.File(path, "r+") as f:
            found.append(calls_of(lambda f=f: (act(f), f.flush())))
    few, many = found
    assert many <= few + 10, found


def test_a_header_that_is_not_as_this_library_makes_it_is_made_anew(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "foreign.nc"
    with pnc_vol.File(path, "w", format="CDF-1") as f:
        f["a"], f["b"] = np.zeros(3, "i1"), np.zeros(3, "i2")
    content = path.read_bytes()
    # the size of the first variable without its padding, as some programs write it
    at = content.index(b"\0\0\0\1a") + 8 + 4 + 4 + 8 + 4
    assert content[at : at + 4] == b"\0\0\0\4"
    path.write_bytes(content[:at] + b"\0\0\0\3" + content[at + 4 :])
    with pnc_vol.File(path, "r+") as f:
        f["b"].attrs["units"] = "K"
    content = path.read_bytes()
    assert content[at : at + 4] == b"\0\0\0\4"
    with pnc_vol.File(path) as f:
        assert (f["a"][:].tolist(), f["b"].attrs["units"]) == ([0] * 3, "K")


def test_a_record_is_added_by_eight_bytes_of_the_header(tmp_path: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(written(tmp_path / "x.nc", 10), "r+", system=system) as f:
        add_records(f)
        f.flush()
        assert [(call.offset, call.nbytes) for call in system.matching(name="pwrite")][1:] == [(4, 8)]
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["v3"][:, 0].tolist() == [3, 3, 9]
