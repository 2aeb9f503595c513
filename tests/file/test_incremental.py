"""What a change of definitions costs follows from what changed."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
import virtual_ranks
from counted_work import all_calls_of as calls_of
from programs import assert_valid

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

Act = Callable[[Any, int], object]


def lines_of(act: Callable[[], object]) -> int:
    """Lines of Python that an act executes: each step of a loop counts."""
    count = 0

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def filled(path: pathlib.Path, objects: int) -> pnc_vol.File:
    """A file with as many variables, of which two have records, and as many attributes."""
    f = pnc_vol.File(path, "w", header_reserve=1 << 16)
    for i in range(objects):
        f.create_dataset(f"v{i}", (4,), "f4").attrs["units"] = "K"
        f.attrs[f"a{i}"] = i
    f.create_dataset("r", (0, 4), "f4", maxshape=(None, 4))
    f.create_dataset("s", (0, 4), "f4", maxshape=(None, 4), fillvalue=7)
    f.flush()
    return f


def change_an_attribute(f: Any, i: int) -> None:
    f.attrs["a1"] = 1000 + i
    f.flush()


def add_an_attribute(f: Any, i: int) -> None:
    f.attrs[f"new{i}"] = 1
    f.flush()


def add_one_to_the_last(f: Any, i: int) -> None:
    f["s"].attrs[f"new{i}"] = 1
    f.flush()


def add_an_array(f: Any, i: int) -> None:
    f.attrs[f"array{i}"] = np.arange(3, dtype="i2")
    f.flush()


def change_that_of_a_variable(f: Any, i: int) -> None:
    f["v3"].attrs["n"] = 1000 + i
    f.flush()


def post(f: Any, i: int) -> None:
    f["v3"][...] = i
    f.flush()


def add_a_row(f: Any, i: int) -> None:
    for name in "rs":
        f[name].resize(i + 1, axis=0)
    f["r"][i] = i
    f.flush()


def flush(f: Any, i: int) -> None:
    f.flush()


def add_a_variable(f: Any, i: int) -> None:
    f.create_dataset(f"new{i}", data=np.full(4, i, "f4")).attrs["units"] = "K"
    f.flush()


ACTS = [
    change_an_attribute,
    add_an_attribute,
    add_one_to_the_last,
    add_an_array,
    change_that_of_a_variable,
    post,
    add_a_row,
    flush,
]


@pytest.mark.parametrize("act", ACTS)
def test_no_loop_goes_over_what_did_not_change(tmp_path: pathlib.Path, act: Act) -> None:
    """The same lines are executed in a file of 100 variables and attributes and in one of 400."""
    found = []
    for objects in (100, 400):
        with filled(tmp_path / "x.nc", objects) as f:
            # the first ones find what is then known
            for i in range(3):
                act(f, i)
            found.append(min(lines_of(lambda i=i: act(f, i)) for i in range(3, 6)))
    few, many = found
    assert many <= few + 25, found


@pytest.mark.parametrize("owner", ["/", "g2"])
def test_an_attribute_in_a_file_with_groups_looks_at_no_dataset(tmp_path: pathlib.Path, owner: str) -> None:
    found = []
    for objects in (30, 300):
        with pnc_vol.File(tmp_path / "x.nc", "w", header_reserve=1 << 16) as f:
            for i in range(objects):
                f.create_dataset(f"g{i % 3}/v{i}", (4,), "f4").attrs["units"] = "K"
            for i in range(3):
                f[f"g{i}"].attrs["title"] = "a title"
            f.flush()

            def act(i: int, f: Any = f) -> None:
                f[owner].attrs["title"] = f"title {i}"
                f.flush()

            for i in range(3):
                act(i)
            found.append(min(lines_of(lambda i=i: act(i)) for i in range(3, 6)))
    few, many = found
    assert many <= few + 5, found


def test_a_new_variable_costs_its_own_encoding(tmp_path: pathlib.Path) -> None:
    """In a file without records: the same lines for 100 and 400 objects, and few bytes of the header are written."""
    found, system = [], TraceSystem()
    for objects in (100, 400):
        with pnc_vol.File(tmp_path / f"{objects}.nc", "w", header_reserve=1 << 16) as f:
            for i in range(objects):
                f.create_dataset(f"v{i}", (4,), "f4").attrs["units"] = "K"
        with pnc_vol.File(tmp_path / f"{objects}.nc", "r+", system=system) as f:
            for i in range(3):
                add_a_variable(f, i)
            system.log.clear()
            found.append(min(lines_of(lambda i=i: add_a_variable(f, i)) for i in range(3, 6)))
            header = [call for call in system.log if call.name == "pwrite" and call.path.endswith(".nc")]
            assert sum(call.nbytes for call in header) < 3 * 200
            assert f["new4"][0] == 4
    few, many = found
    assert many <= few + 25, found


def with_variables(path: pathlib.Path, objects: int) -> pathlib.Path:
    """A closed file of variables of two shapes, one of which has the name that a dimension would have got."""
    with pnc_vol.File(path, "w") as f:
        f["dim_7"] = np.zeros(3, "f4")
        for i in range(objects):
            f.create_dataset(f"v{i}", data=np.full(4 + i % 2, i, "f4")).attrs["units"] = "K"
        f["seven"] = np.zeros(7, "f4")
        f["wide"] = np.zeros((4, 9), "f4")
    return path


def test_a_deletion_makes_no_other_variable_anew(tmp_path: pathlib.Path) -> None:
    """Of each variable that stays the size alone is looked at, in one step of a loop; all was made anew in 95."""
    found = []
    for objects in (100, 400):
        with pnc_vol.File(with_variables(tmp_path / f"{objects}.nc", objects), "r+") as f:

            def act(i: int, f: Any = f) -> None:
                del f[f"v{10 + i}"]
                f.flush()

            act(0)
            found.append(min(lines_of(lambda i=i: act(i)) for i in range(1, 4)))
            assert sorted(f[f"v{i}"][0] for i in range(objects) if f"v{i}" in f) == [
                i for i in range(objects) if not 10 <= i < 14
            ]
    few, many = found
    assert many - few <= 2 * 300, found


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("gone", [["v5"], ["v5", "v2", "v9"], ["v0"], ["v0", "v1"], ["dim_7"], ["wide"], ["seven"]])
def test_what_a_deletion_leaves_is_what_is_made_anew(
    tmp_path: pathlib.Path, gone: list[str], *, reopened: bool, beside: bool
) -> None:
    """The same bytes as when something else changes in the same flush, for which the whole header is made; with and
    without attributes that change beside it."""
    made = []
    for anew in (False, True):
        path = with_variables(tmp_path / f"{anew}.nc", 12)
        if not reopened:
            path.unlink()
        with pnc_vol.File(path, "r+") if reopened else pnc_vol.File(path, "w") as f:
            if not reopened:
                for i in range(12):
                    f.create_dataset(f"v{i}", data=np.full(4 + i % 2, i, "f4"))
                f["dim_7"], f["seven"], f["wide"] = np.zeros(3, "f4"), np.zeros(7, "f4"), np.zeros((4, 9), "f4")
                f.flush()
            for name in gone:
                del f[name]
            if beside:
                f["v4"].attrs["beside"] = f.attrs["beside"] = 1
            if anew:
                f.create_dataset("brief", (3,), "f4")
                del f["brief"]
            f.flush()
            f["v3"].attrs["n"] = 3
            f.create_dataset("late", data=np.full(4, 8, "f4"))
            f.flush()
            assert f["v3"][0] == 3
            assert f["late"][0] == 8
        with pnc_vol.File(path) as f:
            assert not set(gone) & set(f)
            assert all(f[f"v{i}"][0] == i for i in range(12) if f"v{i}" in f)
        made.append(path.read_bytes())
    assert made[0] == made[1]


def test_the_calls_of_a_step(tmp_path: pathlib.Path) -> None:
    """What a program does in each step: an attribute, a row, a record, and a flush; the costs of the documentation."""
    with filled(tmp_path / "x.nc", 10) as f:
        r, row = f["r"], np.ones(4, "f4")
        for i in range(3):
            add_an_attribute(f, i)
            change_an_attribute(f, i)
            r.resize(i + 1, axis=0)
            r[i] = row
            f.flush()
        assert calls_of(lambda: r.resize(4, axis=0)) <= 10
        r[3] = row
        f.flush()
        assert calls_of(lambda: change_an_attribute(f, 9)) <= 295
        assert calls_of(lambda: add_an_attribute(f, 9)) <= 318
        assert calls_of(lambda: post(f, 9)) <= 195


def test_records_of_many_datasets_are_counted_together(tmp_path: pathlib.Path) -> None:
    """A record of each of 20 and 40 datasets: a flush plans and writes them as one piece, and the count once."""
    found, row = [], np.arange(16.0)
    for datasets in (1, 20, 40):
        system = TraceSystem()
        with pnc_vol.File(tmp_path / f"{datasets}.nc", "w", system=system) as f:
            made = [f.create_dataset(f"v{i}", (0, 16), "f8", maxshape=(None, 16)) for i in range(datasets)]

            def add(i: int, made: Any = made) -> None:
                for x in made:
                    x.resize(i + 1, axis=0)
                    x[i] = row

            for i in range(4):
                add(i)
                f.flush()
            add(4)
            system.log.clear()
            f.flush()
            first = system.log[0].offset - 4 * datasets * 128
            # the records, the count; nobody asks how long the file is
            assert [(call.name, call.nbytes) for call in system.log] == [("pwrite", datasets * 128), ("pwrite", 8)]
            add(5)
            found.append(calls_of(f.flush))
            # one that was not written: the file is made as long as its header says
            for x in made:
                x.resize(7, axis=0)
            if datasets > 1:
                made[0][6] = row
            system.log.clear()
            f.flush()
            assert [call.name for call in system.log].count("fstat") == 1
            assert (tmp_path / f"{datasets}.nc").stat().st_size == first + 7 * datasets * 128
    few, many, more = found
    # of each dataset: its record is looked at
    assert few <= 300
    assert many <= few + 75
    assert more - many <= 3 * 20


@pytest.mark.parametrize("tracked", [False, True])
def test_of_a_variable_whose_attributes_grow_nothing_is_described_again(tmp_path: pathlib.Path, tracked: bool) -> None:
    """Also where a marker follows them: the order of the attributes is kept."""
    with pnc_vol.File(tmp_path / "x.nc", "w", header_reserve=1 << 16) as f:
        x = f.create_dataset("x", data=np.arange(3.0), track_order=tracked)
        for i in range(100):
            x.attrs[f"a{i}"] = i
            f.flush()
        assert calls_of(lambda: (x.attrs.__setitem__("new", 1), f.flush())) <= 395
    with pnc_vol.File(tmp_path / "x.nc") as f:
        names = [*(f"a{i}" for i in range(100)), "new"]
        assert list(f["x"].attrs) == (names if tracked else sorted(names))


def test_many_attributes_are_not_compared(tmp_path: pathlib.Path) -> None:
    """Attributes that are added behind a thousand others: nothing that is there is encoded, or read as it was."""
    system, path = TraceSystem(), tmp_path / "x.nc"
    with pnc_vol.File(path, "w", system=system, header_reserve=1 << 17) as f:
        x = f.create_dataset("x", data=np.arange(3))
        for i in range(1000):
            x.attrs[f"a{i}"] = i
        f.flush()
        for i in range(1000, 1003):
            x.attrs[f"a{i}"] = i
            f.flush()
        system.log.clear()
        least = lines_of(lambda: x.attrs.__setitem__("a1003", 1)) + lines_of(f.flush)
        assert sum(call.nbytes for call in system.log if call.name == "pwrite") < 2048
        assert least < 1120, least


@pytest.mark.parametrize("new", [False, True], ids=["changed", "new"])
def test_between_two_changed_attributes_nothing_is_encoded(tmp_path: pathlib.Path, new: bool) -> None:
    """Of the file and of its last group, in one flush: those of the groups between them stay as they are."""
    system, path = TraceSystem(), tmp_path / "x.nc"
    with pnc_vol.File(path, "w", system=system, header_reserve=1 << 18) as f:
        for i in range(500):
            f.create_group(f"g{i:03}").attrs["a"] = i
        f.flush()
        for i in range(6):
            f.attrs[f"title{i if new else 0}"], f["g499"].attrs["a"] = i, -i
            system.log.clear()
            lines = lines_of(f.flush)
            assert lines < 7000, lines
            assert new or sum(call.nbytes for call in system.log if call.name == "pwrite") < 2048 or not i
    with pnc_vol.File(path) as f:
        assert [f[f"g{i:03}"].attrs["a"] for i in (0, 250, 498, 499)] == [0, 250, 498, -5]
        assert dict(f.attrs) == ({f"title{i}": i for i in range(6)} if new else {"title0": 5})


@pytest.mark.parametrize(
    ("act", "least", "most"),
    [(change_an_attribute, 1, 8), (add_a_row, 8, 8), (add_one_to_the_last, 60, 2000), (flush, 0, 0), (post, 0, 0)],
)
def test_only_the_bytes_of_the_header_that_differ_are_written(
    tmp_path: pathlib.Path, act: Act, least: int, most: int
) -> None:
    """In a file whose header has more than 20 KiB; a few bytes need no journal."""
    system, path = TraceSystem(), tmp_path / "x.nc"
    with filled(path, 300) as f:
        begin = f["v0"].id.get_offset()
        assert begin > 20_000
    with pnc_vol.File(path, "r+", system=system) as f:
        for i in range(2):
            act(f, i)
        system.log.clear()
        act(f, 2)
        writes = [call for call in system.log if call.name == "pwrite"]
        header = [call for call in writes if call.path != str(path) or call.offset < begin]
        written = sum(call.nbytes for call in header)
        assert least <= written <= most
        if most <= 8:
            assert not system.matching(name="unlink")


def test_records_of_a_lone_variable_have_no_padding_on_ranks_either(tmp_path: pathlib.Path) -> None:
    """Its size was counted to the end of the fixed variables, with padding, and ncvalidator refused the file."""
    path = tmp_path / "x.nc"

    def program(comm: Any) -> None:
        def opened(mode: str, comm: Any) -> pnc_vol.File:
            return pnc_vol.File(path, mode, driver="posix", comm=comm, durable=True, header_reserve=0)

        with opened("w", comm.group(0)) as f:
            f["a"] = np.ones(40)
            f.create_dataset("t", (0,), "i1", maxshape=(None,))
        with opened("r+", comm.group(0)) as f:
            f.flush()
            f["t"].resize(1, axis=0)

    virtual_ranks.run(2, program)
    assert_valid(path)
