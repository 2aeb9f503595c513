"""A flush that is killed, or that fails, leaves every dataset of the file as it was or as it should become.

Each case changes a file that is on disk. It is stopped at each call that changes the file, and each of its writes fails
for good; then a new process's view of the file is the old content or the new one.
"""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import netCDF4
import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import PncVolWarning
from pnc_vol.format.encode import header_size
from pnc_vol.format.model import Dim, Header, Var
from pnc_vol.format.moving import needs_move, overwrites
from pnc_vol.format.placing import grow, place
from pnc_vol.format.sizes import inner_bytes, is_record, record_size
from pnc_vol.system import REAL
from pnc_vol.testing.faults import CHANGING, FaultSystem, Stopped, StopSystem, TraceSystem


@pytest.fixture
def path() -> Iterator[pathlib.Path]:
    """In memory where that is possible: hundreds of durable flushes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield pathlib.Path(folder, "x.nc")


Change = Callable[[pnc_vol.File], None]
ROW = pnc_vol.vlen_dtype(np.dtype("i4"))


def first(f: pnc_vol.File) -> None:
    """Datasets of all kinds, flushed."""
    rows = f.create_dataset("rows", (3,), dtype=ROW, maxshape=(9,))
    for i, row in enumerate(([1, 2, 3], [4], [5, 6])):
        rows[i] = row
    f.create_dataset("grid", data=np.full((6, 4), 4, "i4"), maxshape=(10, 10))
    f.create_dataset("words", data=["a", "b", "c"], dtype=pnc_vol.string_dtype())
    f["plain"] = np.arange(8.0)


def with_records(f: pnc_vol.File) -> None:
    first(f)
    f.create_dataset("time", data=[1, 2, 3, 4], maxshape=(None,))
    f.create_dataset("wind", data=np.ones((4, 3)), maxshape=(None, 3))


def ragged(f: pnc_vol.File) -> None:
    f["rows"][1] = [*f["rows"][1], 31]


def resized(f: pnc_vol.File) -> None:
    f["grid"].resize((3, 4))


def resized_twice(f: pnc_vol.File) -> None:
    f["grid"].resize((3, 9))
    f["rows"].resize((5,))


def widened(f: pnc_vol.File) -> None:
    f["words"][1] = "a much longer string"


def replaced(f: pnc_vol.File) -> None:
    values = f["plain"][:] + 50
    del f["plain"]
    f["plain"] = values


def all_replaced(f: pnc_vol.File) -> None:
    for name in list(f):
        del f[name]
    f["one"] = np.full(200, 7, "i2")


def outgrown(f: pnc_vol.File) -> None:
    """A header that is longer than what lies before the deleted variable."""
    del f["rows"]
    f.attrs["long"] = np.arange(4000)


def records_replaced(f: pnc_vol.File) -> None:
    del f["wind"]
    f.create_dataset("rain", data=np.full((4, 3), 9.0), maxshape=(None, 3))


def records_to_fixed(f: pnc_vol.File) -> None:
    del f["wind"], f["time"]
    f["flat"] = np.full(30, 3.5)


def shrunk(f: pnc_vol.File) -> None:
    f["time"].resize(1, axis=0)


def shrunk_and_regrown(f: pnc_vol.File) -> None:
    f["time"].resize(1, axis=0)
    f["time"].resize(3, axis=0)
    f["time"][2] = 77


CASES: list[tuple[Change, list[Change]]] = [
    (first, [ragged]),
    (first, [resized, ragged, resized_twice]),
    (first, [replaced, replaced]),
    (first, [outgrown]),
    (with_records, [records_replaced]),
    (with_records, [shrunk]),
    (with_records, [shrunk_and_regrown]),
]
MORE: list[tuple[Change, list[Change]]] = [
    (first, [ragged, ragged]),
    (first, [resized, resized_twice]),
    (first, [widened]),
    (first, [replaced]),
    (first, [all_replaced]),
    (with_records, [ragged]),
    (with_records, [resized]),
    (with_records, [replaced]),
    (with_records, [records_to_fixed]),
]


def content(path: pathlib.Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PncVolWarning)
        with pnc_vol.File(path) as f:
            return {name: [np.asarray(row).tolist() for row in f[name][:]] for name in f}


def begin(path: pathlib.Path, make: Change, steps: list[Change], system: Any = REAL) -> pnc_vol.File:
    """The file with all but the last step flushed."""
    f = pnc_vol.File(path, "w", system=system)
    make(f)
    f.flush(durable=True)
    for step in steps[:-1]:
        step(f)
        f.flush(durable=True)
    return f


def bury(f: pnc_vol.File, system: StopSystem) -> None:
    f.id.handle.session.closed = True
    system.bury()


def named(case: tuple[Change, list[Change]]) -> str:
    return "-".join(step.__name__ for step in (case[0], *case[1]))


every_case = pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=named(case)) for case in CASES]
    + [pytest.param(case, id=named(case), marks=pytest.mark.nightly) for case in MORE],
)


def both(path: pathlib.Path, make: Change, steps: list[Change]) -> tuple[dict[str, Any], dict[str, Any]]:
    f = begin(path, make, steps)
    before = content(path)
    steps[-1](f)
    f.close()
    return before, content(path)


@every_case
def test_a_kill_leaves_the_old_content_or_the_new_one(path: pathlib.Path, case: tuple[Change, list[Change]]) -> None:
    before, after = both(path, *case)
    assert before != after
    seen = []
    for stop_at in range(1, 100):
        system = StopSystem(stop_at=0, calls=CHANGING - {"open"})
        f = begin(path, *case, system=system)
        system.stop_at = system.count + stop_at
        try:
            case[1][-1](f)
            f.flush(durable=True)
        except Stopped:
            bury(f, system)
        else:
            assert stop_at > 3
            f.close()
        found = content(path)
        assert found in (before, after), f"stopped at call {stop_at}"
        seen.append(found == after)
        if not system.fired:
            break
        with pnc_vol.File(path, "r+") as f:
            case[1][-1](f) if found == before else None
        assert content(path) == after
    assert seen == sorted(seen)
    assert seen[0] is False


@every_case
def test_a_failure_leaves_the_old_content_or_the_new_one(path: pathlib.Path, case: tuple[Change, list[Change]]) -> None:
    before, after = both(path, *case)
    for fail_at in range(1, 100):
        system = FaultSystem(fail_at=0, errno=errno.EIO, mode="forever")
        f = begin(path, *case, system=system)
        system.fail_at = system.count + fail_at
        failed = False
        try:
            case[1][-1](f)
            f.flush(durable=True)
        except OSError:
            failed = True
            assert content(path) in (before, after), f"failed at write {fail_at}"
        assert failed == system.fired
        system.heal()
        f.close()
        assert content(path) == after
        if not failed:
            break


@every_case
def test_a_close_that_fails_leaves_the_old_content_or_the_new_one(
    path: pathlib.Path, case: tuple[Change, list[Change]]
) -> None:
    before, after = both(path, *case)
    for fail_at in range(1, 100):
        system = FaultSystem(fail_at=0, errno=errno.ENOSPC, mode="forever")
        f = begin(path, *case, system=system)
        system.fail_at = system.count + fail_at
        case[1][-1](f)
        try:
            f.close()
        except OSError:
            assert content(path) in (before, after), f"failed at write {fail_at}"
        else:
            break


# ------------------------------------------------------------------------------------- records that come back


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
    for stop_at in range(1, 100):
        with pnc_vol.File(path, "w", header_reserve=4096) as f:
            f.create_dataset("x", data=[1, 2, 3, 4], maxshape=(None,))
            f.create_dataset("y", data=[1, 2, 3, 4], maxshape=(None,))
        system = StopSystem(stop_at=0)
        f = pnc_vol.File(path, "r+", system=system)
        f["x"].resize(1, axis=0)
        system.stop_at = system.count + stop_at
        try:
            f.flush()
        except Stopped:
            bury(f, system)
        else:
            f.close()
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


# ----------------------------------------------------------------------------------------------- placing


def headers() -> Iterator[tuple[Header, Header, list[int | None]]]:
    """Files that lose some variables and get others."""
    random = np.random.default_rng(8)
    for _ in range(300):
        dims = (Dim("t", 0), Dim("x", 3), Dim("y", 50))
        old = place(
            Header(5, int(random.integers(0, 3)), dims, (), tuple(_vars(random, "o"))),
            header_extent=int(random.integers(0, 900)),
        )
        kept = [i for i in range(len(old.vars)) if random.random() < 0.6]
        fresh = list(_vars(random, "n"))
        new = Header(5, old.numrecs, dims, (), (*(old.vars[i] for i in kept), *fresh))
        origin: list[int | None] = [*kept, *[None] * len(fresh)]
        yield old, new, origin


def _vars(random: Any, prefix: str) -> Iterator[Var]:
    for i in range(int(random.integers(0, 5))):
        ids = [(1,), (2,), (0, 1), (0, 2)][int(random.integers(0, 4))]
        yield Var(f"{prefix}{i}", ids, (), int(random.choice([1, 4, 6])))


def test_what_is_said_to_overwrite_nothing_does_not() -> None:
    def bytes_of(header: Header, chosen: list[int], records: int) -> set[int]:
        found: set[int] = set()
        for i in chosen:
            var = header.vars[i]
            n = inner_bytes(header, var)
            steps = range(records) if is_record(header, var) else range(1)
            for r in steps:
                found.update(range(var.begin + r * record_size(header), var.begin + r * record_size(header) + n))
        return found

    in_place = 0
    for old, wanted, origin in headers():
        new = grow(old, wanted, origin)
        if not old.vars or needs_move(old, new, origin) or overwrites(old, new, origin):
            continue
        in_place += 1
        live = bytes_of(old, list(range(len(old.vars))), old.numrecs)
        fresh = bytes_of(new, [i for i, source in enumerate(origin) if source is None], old.numrecs + 2)
        assert not live & fresh
        assert not live & set(range(header_size(new)))
    assert in_place > 100


def test_a_copy_with_the_same_header_as_before_has_a_header(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("rows", (2,), dtype=ROW)
        for number in range(3):
            f["rows"][0] = np.full(5, number, "i4")
            f.flush()
            assert content(path)["rows"] == [[number] * 5, []]


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
    with pytest.warns(PncVolWarning, match="are missing at the end"):
        f = pnc_vol.File(path, "r+", system=system)
    with f:
        f.attrs["note"] = "n" * 9000
        f.flush()
        assert f["a"][:].tolist() == [0, 1, 2, 3]
        assert f["b"][:7].tolist() == [1, 1, 1, 1, 1, 0, 0]
    assert sum(call.nbytes for call in system.log if call.name.startswith("pwrite")) < 40_000
