"""A file that is opened to be changed: its header stays as it is but for what changes, and so does the work."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from counted_work import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import assert_valid

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


def mark_a_text(f: Any) -> None:
    f["text"].attrs["levels"] = np.zeros((2, 2))


def add_a_variable(f: Any) -> None:
    f.create_dataset("new", data=np.arange(4.0)).attrs["units"] = "K"


ACTS = [change_units, change_that_of_the_file, add_an_array, name_a_scale, add_a_group, mark_a_text, change_nothing]


@pytest.mark.parametrize("act", [*ACTS, add_a_variable])
def test_no_other_variable_is_looked_at(tmp_path: pathlib.Path, act: Act) -> None:
    """As many calls in a file of 30 variables and in one of 300, when it is open.

    For a new variable the whole header was made, 0.7 s of 100,000.
    """
    found = []
    for count in (30, 300):
        path = written(tmp_path / f"{count}.nc", count)
        with pnc_vol.File(path, "r+", header_reserve=4096) as f:
            f.attrs["first"] = "moves all, as the file has no room for it"
        with pnc_vol.File(path, "r+") as f:
            found.append(calls_of(lambda f=f: (act(f), f.flush())))
    few, many = found
    assert many <= few + 10, found


VARIABLES: dict[str, Callable[[Any], object]] = {
    "shared": lambda f: f.create_dataset("n", data=np.zeros((4, 4))),
    "scalar": lambda f: f.create_dataset("n", data=3),
    "another length": lambda f: f.create_dataset("n", data=np.zeros(9, "i1")),
    "two": lambda f: (f.create_dataset("n", data=np.zeros(9)), f.create_dataset("m", data=np.zeros((9, 4), "i2"))),
    "text": lambda f: f.create_dataset("n", data="another text"),
    "texts": lambda f: f.create_dataset("n", data=["of", "words"]),
    "flag": lambda f: f.create_dataset("n", data=True),
    "complex": lambda f: f.create_dataset("n", data=np.zeros(3, "c8")),
    "filled": lambda f: f.create_dataset("n", (4,), "f4", fillvalue=2),
    "dim_7": lambda f: (f.create_dataset("dim_7", data=np.zeros(3)), f.create_dataset("n", data=np.zeros(7))),
    "named": lambda f: f.create_dataset("n", data=np.zeros((4, 2)), dims=("x", "other")),
    "scale": lambda f: f.create_dataset("n", data=np.zeros(4), dims=("n",)),
    "in a group": lambda f: f.create_dataset("g/n", data=np.zeros(4)),
    "beside attributes": lambda f: (f.create_dataset("n", data=np.zeros(4)), f["v3"].attrs.update(n=1)),
    "of a string": lambda f: f["text"].attrs.update(levels=np.zeros((2, 2))),
    "of a record": lambda f: (f["v3"].resize(3, axis=0), f["v4"].attrs.update(n=1)),
    "of a scale": lambda f: f["x"].attrs.update(n=1),
}


@pytest.mark.parametrize("act", VARIABLES.values(), ids=VARIABLES)
def test_what_changes_in_a_file_that_was_read_is_what_is_made_anew(tmp_path: pathlib.Path, act: Act) -> None:
    """The same bytes as when something else changes in the same flush, for which the whole header is made."""
    made = []
    for anew in (False, True):
        path = written(tmp_path / f"{anew}.nc", 6)
        with pnc_vol.File(path, "r+", header_reserve=4096) as f:
            f.attrs["first"] = "moves all, as the file has no room for it"
        with pnc_vol.File(path, "r+") as f:
            act(f)
            if anew:
                f.create_dataset("brief", (3,), "f4")
                del f["brief"]
            f.flush()
            f["v2"].attrs["later"] = 1
            f.create_dataset("late", data=np.full(4, 8, "f4"))
        made.append(path.read_bytes())
        assert_valid(path)
    assert made[0] == made[1]


steps = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["new", "attribute", "array", "of the file", "delete", "group", "record", "grow all"]),
            st.integers(0, 5),
        ),
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(steps, st.booleans())
def test_any_changes_in_one_flush_are_what_is_made_anew(acts: list[list[tuple[str, int]]], reopened: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for anew in (False, True):
            path = written(pathlib.Path(folder, f"{anew}.nc"), 6)
            with ExitStack() as stack:
                f = stack.enter_context(pnc_vol.File(path, "r+", header_reserve=8192))
                f.attrs["first"] = "moves all, as the file has no room for it"
                if reopened:
                    f.close()
                    f = stack.enter_context(pnc_vol.File(path, "r+"))
                for number, flush in enumerate(acts):
                    for k, (act, i) in enumerate(flush):
                        change(f, act, f"v{i}", f"{number}_{k}")
                    if anew:
                        f.create_dataset("brief", (3,), "f4")
                        del f["brief"]
                    f.flush()
            made.append(path.read_bytes())
        assert made[0] == made[1]
        assert_valid(path)


def change(f: Any, act: str, name: str, new: str) -> None:
    """Do one of the acts of `steps` to a dataset, if it is there, or with a new name."""
    if act == "new":
        f.create_dataset(f"plain{new}", data=np.arange(4.0 + len(f) % 2))
    elif act == "of the file":
        f.attrs[f"a{new}"] = new
    elif act == "group":
        f.create_group(f"g{new}")
    elif act == "grow all":
        add_records(f) if all(len(f[one]) == 2 for one in f if one[0] == "v") else None
    elif act == "delete":
        others = [one for one in f if one.startswith("plain")]
        if others:
            del f[others[len(new) % len(others)]]
    elif name in f:
        if act == "record":
            f[name].resize(len(f[name]) + 1, axis=0)
            f[name][-1] = 5
        else:
            f[name].attrs[f"a{new}"] = new if act == "attribute" else np.zeros((2, 2))


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
