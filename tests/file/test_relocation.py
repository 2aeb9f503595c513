"""What a flush lays out anew beside what is there: where it lies, what is written, and what does not come back.

Kills and failures of any other program are those of random ones (`tests/engine`).
"""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Any

import netCDF4
import numpy as np
import pytest
from other_process import killed

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

ROW = pnc_vol.vlen_dtype(np.dtype("i4"))


def rows(path: pathlib.Path) -> Any:
    with pnc_vol.File(path) as f:
        return f["x"][:].tolist()


@pytest.mark.parametrize("fill", [None, -1])
def test_records_that_were_drained_and_given_up_do_not_come_back(path: pathlib.Path, fill: int | None) -> None:
    with pnc_vol.File(path, "w", buffer_size=30_000) as f:
        x = f.create_dataset("x", (0, 900), "i1", maxshape=(None, 900), fillvalue=fill)
        big = f.create_dataset("big", (100, 1000), "f8")
        f.flush()
        x.resize(5, axis=0)
        x[:4] = 30
        big[...] = 1
        assert fill is not None or f.statistics()["drains"]
        x.resize(1, axis=0)
        f.flush()
        subprocess.run(["ncvalidator", "-q", path], check=True)
        x.resize(6, axis=0)
    with pnc_vol.File(path) as f:
        assert f["x"][:, 0].tolist() == [30] + [fill or 0] * 5


def test_records_that_a_killed_shrink_left_do_not_come_back(path: pathlib.Path) -> None:
    junk = False

    def shrink(system: Any) -> None:
        with pnc_vol.File(path, "r+", system=system) as f:
            f["x"].resize(1, axis=0)

    for stop_at in range(1, 100):
        with pnc_vol.File(path, "w", header_reserve=4096) as f:
            f.create_dataset("x", data=[1, 2, 3, 4], maxshape=(None,))
            f.create_dataset("y", data=[1, 2, 3, 4], maxshape=(None,))
        if not killed(shrink, stop_at):
            break
        if rows(path) == [1]:
            # the header is in place; whether the fill values of what was given up are only other programs see
            with netCDF4.Dataset(path) as nc:
                junk |= nc["x"][:].tolist() == [1, 2, 3, 4]
            with pnc_vol.File(path, "r+") as f:
                f["x"].resize(3, axis=0)
                f["x"][2] = 9
                assert f["x"][:].tolist() == [1, 0, 9]
            assert rows(path) == [1, 0, 9]
    assert junk


def test_a_dataset_that_grows_among_the_records_is_filled_once(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", (1,), "i4", maxshape=(None,))
        f.create_dataset("y", (50,), "i4", maxshape=(None,))
    with pnc_vol.File(path, "r+", driver="trace | posix") as f:
        f.flush()
        written = []
        for n in range(2, 6):
            before = f.statistics()["driver"].get("trace.write_bytes", 0)
            f["x"].resize(n, axis=0)
            f["x"][n - 1] = n
            f.flush()
            written.append(f.statistics()["driver"].get("trace.write_bytes", 0) - before)
    assert len(set(written[1:])) == 1
    assert rows(path) == [0, 2, 3, 4, 5]


def test_a_copy_with_the_same_header_as_before_has_a_header(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("rows", (2,), dtype=ROW)
        for number in range(3):
            f["rows"][0] = np.full(5, number, "i4")
            f.flush()
            with open(path, "rb") as disk, pnc_vol.File(disk) as other:
                assert [row.tolist() for row in other["rows"][:]] == [[number] * 5, []]


def test_a_replaced_variable_takes_turns_between_two_places(path: pathlib.Path) -> None:
    sizes = []
    with pnc_vol.File(path, "w") as f:
        f["a"] = np.arange(1000)
        f.create_dataset("rows", (2,), dtype=ROW)
        for i in range(6):
            f["rows"][0] = np.full(1000, i, "i4")
            f.flush()
            sizes.append(path.stat().st_size)
        assert "moves" not in f.statistics()
    assert max(sizes) < 25_000


def test_data_that_a_header_claims_and_the_file_lacks_are_not_copied(path: pathlib.Path) -> None:
    """A few bytes of a header can claim any length: the copy has what is there, and wrote all that was claimed."""
    with pnc_vol.File(path, "w") as f:
        f["a"] = np.arange(4)
        f.create_dataset("b", (1 << 29,), "u1", fillvalue=None)[:5] = 1
    os.truncate(path, 2000)
    system = TraceSystem()
    with pytest.warns(pnc_vol.PncVolWarning, match="are missing at the end"):
        f = pnc_vol.File(path, "r+", system=system)
    with f:
        f.attrs["note"] = "n" * 9000
        f.flush()
        assert f["a"][:].tolist() == [0, 1, 2, 3]
        assert f["b"][:7].tolist() == [1, 1, 1, 1, 1, 0, 0]
    assert sum(call.nbytes for call in system.log if call.name.startswith("pwrite")) < 40_000


def test_what_becomes_of_missing_data_is_said_when_a_file_is_opened_for_writing(path: pathlib.Path) -> None:
    """As with the NetCDF C library, for which they are zeros from the beginning."""
    with pnc_vol.File(path, "w", header_reserve=0) as f:
        f.create_dataset("a", (100,), "i4", fillvalue=7)[:] = 1
    os.truncate(path, os.path.getsize(path) - 8)
    with pytest.warns(pnc_vol.ShortFileWarning, match="read as the fill value .* and as 0 once data .* moved"):
        f = pnc_vol.File(path, "r+")
    with f:
        assert f["a"][-3:].tolist() == [1, 7, 7]
        f.attrs["note"] = "n" * 9000
    with pnc_vol.File(path) as f:
        assert f["a"][-3:].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("shape", "maxshape"), [((), ()), ((1,), (1,)), ((1, 1), (None, 1))], ids=["scalar", "one element", "one record"]
)
def test_a_string_that_grows_is_old_or_new(path: pathlib.Path, shape: tuple[int, ...], maxshape: Any) -> None:
    """The header that is there until the flush has ended would show the first characters of the new string."""

    def grow(system: Any) -> None:
        with pnc_vol.File(path, "r+", var_align=512, record_align=512, system=system) as f:
            f["s"][...] = "longer"

    found = []
    for stop_at in range(1, 100):
        with pnc_vol.File(path, "w", var_align=512, record_align=512) as f:
            f.create_dataset("s", shape, pnc_vol.string_dtype(), maxshape=maxshape)[...] = "old"
        stopped = killed(grow, stop_at)
        with pnc_vol.File(path) as f:
            found.append(np.ravel(f["s"][()])[0])
        if not stopped:
            break
    assert set(found) == {b"old", b"longer"}
    assert found[-1] == b"longer"
