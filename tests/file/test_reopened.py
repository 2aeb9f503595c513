"""A file that is opened to be changed: its header stays as it is but for what changes, and so does the work."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counted_work import calls_of

import pnc_vol
from pnc_vol.format import edits
from pnc_vol.format.encode import frame_of

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


def change_length(f: Any) -> None:
    f["v3"].attrs["units"] = "degrees"
    del f["v5"].attrs["long_name"]


def add_an_array(f: Any) -> None:
    f["filled"].attrs["levels"] = np.arange(3)


def change_that_of_the_file(f: Any) -> None:
    f.attrs["history"] = "changed"


def name_a_scale(f: Any) -> None:
    f["x"].attrs["units"] = "m"


def change_a_text(f: Any) -> None:
    f["text"].attrs["language"] = "en"
    f["flag"].attrs["valid"] = 1


def add_a_shape(f: Any) -> None:
    f["v3"].attrs["table"] = np.ones((2, 2))


def add_records(f: Any) -> None:
    for name in [name for name in f if name[0] == "v"]:
        f[name].resize(3, axis=0)
        f[name][2] = 9


def add_a_record_of_one(f: Any) -> None:
    f["v3"].resize(3, axis=0)
    f["v3"].attrs["units"] = "C"


def add_a_variable(f: Any) -> None:
    f["new"] = np.arange(3)


def add_a_group(f: Any) -> None:
    f.create_group("g/inner").attrs["title"] = "a group"


def change_nothing(f: Any) -> None:
    pass


ACTS = [
    change_units,
    change_length,
    add_an_array,
    change_that_of_the_file,
    name_a_scale,
    change_a_text,
    add_a_shape,
    add_records,
    add_a_record_of_one,
    add_a_variable,
    add_a_group,
    change_nothing,
]


@pytest.mark.parametrize("act", ACTS)
def test_the_file_is_as_if_all_had_been_made_anew(tmp_path: pathlib.Path, act: Act) -> None:
    found = []
    for anew in (False, True):
        with pnc_vol.File(written(tmp_path / f"{anew}.nc", 10), "r+") as f:
            tree, defs = f.id.node.tree, f.id.handle.session.defs
            assert defs.flat is not None
            if anew:
                tree.touch()
            act(f)
            f.flush()
            change_units(f)
            f.flush()
            nowhere = [-1] * len(defs.flat.header.vars)
            assert defs.flat.header.with_begins(nowhere) == defs.make_header().header
        found.append((tmp_path / f"{anew}.nc").read_bytes())
    assert found[0] == found[1]


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
            assert sum(isinstance(entry, tuple) for entry in dict.values(f.id.node.tree.datasets)) >= count - 2
    few, many = found
    assert many <= few + 10, found


def test_records_are_added_without_a_look_at_the_header(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that adds a record to a file and closes it: eight bytes of the header are written."""
    with pnc_vol.File(written(tmp_path / "x.nc", 10), "r+") as f:
        monkeypatch.setattr(edits, "encode", lambda *_, **__: pytest.fail("the header was encoded"))
        add_records(f)
    monkeypatch.undo()
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["v3"][:, 0].tolist() == [3, 3, 9]


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
        assert f.id.handle.session.defs.flat is None
        f["b"].attrs["units"] = "K"
    content = path.read_bytes()
    assert content[at : at + 4] == b"\0\0\0\4"
    with pnc_vol.File(path, "r+") as f:
        header = f.id.handle.session.disk.header
        frame = frame_of(header)
        del header.derived["frame"]
        made = frame_of(header)
        assert (frame.body, frame.attrs_at, frame.vars_at) == (made.body, made.attrs_at, made.vars_at)
        assert frame.begin_at.tolist() == made.begin_at.tolist()
