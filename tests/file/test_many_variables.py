"""Files of many variables: what is done for each of them is little, whatever the others are."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from counted_work import calls_of, note_copies

import pnc_vol
from pnc_vol.errors import DefinitionError

ROW = np.arange(10, dtype="f4")


def with_climate(f: Any, count: int) -> None:
    """Record variables with named axes, of which some have coordinate variables, as climate models write them."""
    for name, n in (("time", None), ("lev", 3), ("x", 5)):
        f.create_dimension(name, n)
    f.create_dataset("time", (1,), "f8", maxshape=(None,), dims=("time",))
    f.create_dataset("lev", (3,), "f8", dims=("lev",))
    for i in range(count):
        ds = f.create_dataset(f"v{i}", (1, 3, 5), "f8", maxshape=(None, 3, 5), dims=("time", "lev", "x"))
        ds.attrs["units"] = "K"
        ds.attrs["long_name"] = f"variable {i}"
        ds.attrs["missing"] = np.float32(1e20)


# ------------------------------------------------------------------------------------------- definitions


def test_the_calls_of_a_definition() -> None:
    with pnc_vol.File("definitions.nc", "w", driver="memory") as f:
        f.create_dataset("a", data=ROW)
        assert calls_of(lambda: f.create_dataset("b", data=ROW)) <= 14
        f.create_dataset("list", data=[1.5, 2.5])
        assert calls_of(lambda: f.create_dataset("another", data=[1.5, 2.5])) <= 16
        f.create_dataset("c", (10,), "f4")
        assert calls_of(lambda: f.create_dataset("d", (10,), "f4")) <= 9
        assert calls_of(lambda: f.create_dataset("e", (10,), np.dtype("f4"))) <= 11


def test_the_calls_of_a_definition_with_named_axes_and_records() -> None:
    with pnc_vol.File("named.nc", "w", driver="memory") as f:
        with_climate(f, 1)
        options: Any = {"maxshape": (None, 3, 5), "dims": ("time", "lev", "x")}
        # of these the axes with scales take twelve
        assert calls_of(lambda: f.create_dataset("w", (1, 3, 5), "f8", **options)) <= 24
        # what is None was not given
        options |= dict.fromkeys(("fillvalue", "chunks", "compression", "shuffle", "track_order", "decomposition"))
        assert calls_of(lambda: f.create_dataset("u", (1, 3, 5), "f8", **options)) <= 26
        assert f["u"].chunks == f["w"].chunks
        with pytest.raises(TypeError, match="unexpected keyword argument 'fillvalu'"):
            f.create_dataset("x2", (1,), "f8", fillvalu=None)
        assert f.create_dataset("array", (2,), "f8", fillvalue=np.array([7.0])).fillvalue == 7


@pytest.mark.parametrize("value", ["a text that no other variable has", 7, 0.5, np.float32(2.5), np.int16(3)])
def test_the_calls_of_an_attribute(value: Any) -> None:
    with pnc_vol.File("attribute.nc", "w", driver="memory") as f:
        x, y = f.create_dataset("x", data=ROW), f.create_dataset("y", data=ROW)
        x.attrs["a"] = value
        if type(value) is str:
            value = value[:-1]
        assert calls_of(lambda: y.attrs.__setitem__("a", value)) <= 14
        assert type(y.attrs["a"]) is type(x.attrs["a"])
        assert y.attrs["a"] == value


def test_the_calls_of_a_header_for_each_variable(tmp_path: pathlib.Path) -> None:
    found = []
    for count in (50, 150):
        with pnc_vol.File(tmp_path / "climate.nc", "w") as f:
            with_climate(f, count)
            found.append(calls_of(f.flush))
    assert (found[1] - found[0]) / 100 <= 9


def test_names_of_axes_are_judged_by_the_dimensions_of_their_time() -> None:
    with pnc_vol.File("axes.nc", "w", driver="memory") as f:
        for name in ("a", "b"):
            f.create_dataset(name, (3,), "f4", dims=("x",))
        f.create_dimension("y", 4)
        with pytest.raises(DefinitionError, match="has length 4"):
            f.create_dataset("c", (3,), "f4", dims=("y",))
        with pytest.raises(TypeError, match="a name for each axis"):
            f.create_dataset("d", (3,), "f4", dims=(["x"],))
        assert sorted(f) == ["a", "b"]


def test_a_header_that_outgrows_its_region_makes_no_dataset(tmp_path: pathlib.Path) -> None:
    """All data move then; the dataset with the new attribute was made, and the first one, as the opening makes it."""
    path = tmp_path / "packed.nc"
    with pnc_vol.File(path, "w") as f:
        for i in range(50):
            f.create_dataset(f"v{i}", data=ROW + i).attrs["units"] = "K"
    with pnc_vol.File(path, "r+") as f:
        before = f["v7"].id.get_offset()
        f["v7"].attrs["new"] = "a text that needs room in the header"
        f.create_group("g")
        f.flush()
        assert f["v7"].id.get_offset() > before
        entries: Any = dict.values(f.id.handle.session.defs.tree.datasets)
        assert sum(type(entry) is tuple for entry in entries) == 48
    with pnc_vol.File(path) as f:
        assert all((f[f"v{i}"][:] == ROW + i).all() for i in range(50))
        assert next(iter(f)) == "g"


# ------------------------------------------------------------------------------------------------- reads


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "many.nc"
    with pnc_vol.File(made, "w") as f:
        for i in range(300):
            f.create_dataset(f"v{i}", data=ROW + i)
        f.create_dataset("d", data=np.arange(4.0))
        f.create_dataset("r", data=np.arange(6).reshape(3, 2), maxshape=(None, 2))
    return made


def test_a_first_read_makes_what_it_needs_and_no_more(path: pathlib.Path) -> None:
    with pnc_vol.File(path) as f:
        f["v1"][:]
        assert calls_of(lambda: f["v2"]) <= 7
        ds = f["v3"]
        assert calls_of(lambda: ds[:]) <= 11
        assert calls_of(lambda: ds[:]) <= 8


def test_posted_reads_of_many_variables_are_one_read(path: pathlib.Path) -> None:
    def counted(f: Any, count: int) -> tuple[int, int]:
        out = np.zeros((count, 10), "f4")
        requests = [f[f"v{i}"].iget(slice(None), out[i]) for i in range(count)]
        others = [f["d"].iget(slice(None)), f["r"].iget(1), f["r"].iget(2)]
        before = f.statistics()["driver"]["posix.read_calls"]
        calls = calls_of(f.flush)
        assert (out == ROW + np.arange(count)[:, None]).all()
        assert others[0].array.tolist() == [0, 1, 2, 3]
        assert [other.array.tolist() for other in others[1:]] == [[2, 3], [4, 5]]
        assert all(request.status == "done" for request in requests)
        return calls, f.statistics()["driver"]["posix.read_calls"] - before

    with pnc_vol.File(path) as f:
        counted(f, 300)
        few, many = counted(f, 100), counted(f, 300)
    # one read for each of the three types, which may be two calls
    assert many[1] <= few[1] <= 6
    assert (many[0] - few[0]) / 200 <= 8


@pytest.mark.parametrize("count", [3, 40])
def test_posted_reads_of_what_is_not_there_are_told_apart(tmp_path: pathlib.Path, count: int) -> None:
    with pnc_vol.File(tmp_path / "apart.nc", "w") as f:
        x = f.create_dataset("x", (count, 2), "f4", maxshape=(None, 2), fillvalue=7)
        x[: count - 1] = 1
        f.flush()
        f.create_dataset("y", data=np.arange(3, dtype="f4"))
        x[0] = 5
        requests = [x.iget(i) for i in range(count)] + [f["y"].iget(slice(1, 3))]
        f.flush()
        found = [request.array.tolist() for request in requests]
    assert found == [[5, 5], *[[1, 1]] * (count - 2), [7, 7], [1, 2]]


# ------------------------------------------------------------------------------------------------ writes


def test_first_posts_to_many_variables_are_copied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with pnc_vol.File("first.nc", "w", driver="memory") as f:
        sets = [f.create_dataset(f"v{i}", (10,), "f4") for i in range(300)]
        copied = note_copies(monkeypatch)
        for i, ds in enumerate(sets):
            ds[:] = ROW + i
        f.flush()
        # 64 KiB with their rows at a time
        assert len(copied) <= 5
        assert all((ds[:] == ROW + i).all() for i, ds in enumerate(sets))
        # a list of runs is in the way of rows of its variable
        wide = f.create_dataset("wide", (4096,), "f4")
        wide.iput_many(np.arange(0, 4096, 2)[:, None], np.ones((2048, 1), int), np.ones(2048, "f4"))
        sets[0][:] = ROW
        wide[:10] = ROW
        f.flush()
        assert wide[:12].tolist() == [*range(10), 1, 0]
        assert (sets[0][:] == ROW).all()
