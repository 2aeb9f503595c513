"""A file is as long as its header says, where a process is left that can see to it."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
from typing import Any

import netCDF4
import pytest
from other_process import killed

import pnc_vol
from pnc_vol.testing.faults import CHANGING, FaultSystem, TraceSystem
from pnc_vol.testing.mpi import missing, run_mpi


def check_length(path: pathlib.Path) -> None:
    """It ends with the last record, and ncvalidator has nothing to say of it."""
    with netCDF4.Dataset(path) as nc:
        records, rest = len(nc["r"]) if "r" in nc.variables else 0, [*nc.variables]
    with pnc_vol.File(path) as f:
        ends = [f[name].id.get_offset() + f[name].nbytes for name in rest if name != "r"]
    # a lone record variable lies behind all others, which end at a multiple of four
    assert path.stat().st_size == -(-max(ends) // 4) * 4 + 8 * records
    subprocess.run(["ncvalidator", "-q", path], check=True)


def first(path: pathlib.Path, **options: Any) -> pnc_vol.File:
    f = pnc_vol.File(path, "w", **options)
    f["a"] = [1, 2, 3]
    f.create_dataset("r", data=[1, 2], maxshape=(None,))
    f.flush()
    return f


def more(f: pnc_vol.File) -> None:
    f["r"].resize(900, axis=0)
    f["r"][2:] = 7


@pytest.mark.parametrize("mode", ["r+", "a"])
@pytest.mark.parametrize("touch", [False, True])
def test_the_next_open_for_writing_cuts_what_a_killed_flush_wrote(path: pathlib.Path, mode: str, touch: bool) -> None:
    longer = 0

    def work(system: Any) -> None:
        with first(path, system=system) as f:
            more(f)

    # as each of the killed ones, in the place of a file that is there, which takes more calls
    first(path).close()
    trace = TraceSystem()
    with first(path, system=trace):
        begun = sum(call.name in CHANGING for call in trace.log)
    for stop_at in range(begun + 1, begun + 60):
        reached = killed(work, stop_at)
        before = path.stat().st_size
        with pnc_vol.File(path, mode) as f:
            records = len(f["r"])
            if touch:
                f["r"].resize(4, axis=0)
                assert f["r"][2:].tolist() == ([0, 0] if records == 2 else [7, 7])
        check_length(path)
        longer += records == 2 and before > path.stat().st_size
        with pnc_vol.File(path) as f:
            assert len(f["r"]) == (4 if touch else records)
            assert f["a"][:].tolist() == [1, 2, 3]
        if not reached:
            break
    assert longer


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_close_on_a_full_disk_leaves_the_length_of_the_header(path: pathlib.Path, fail_at: int) -> None:
    system = FaultSystem(fail_at=0, errno=errno.ENOSPC, mode="short-forever")
    f = first(path, system=system)
    more(f)
    system.fail_at = system.count + fail_at
    with pytest.raises(OSError):
        f.close()
    check_length(path)


def test_a_flush_that_failed_may_succeed_before_anything_is_cut(path: pathlib.Path) -> None:
    system = FaultSystem(fail_at=0, errno=errno.ENOSPC, mode="forever")
    f = first(path, system=system)
    more(f)
    system.fail_at = system.count + 1
    with pytest.raises(OSError):
        f.flush()
    system.heal()
    f.close()
    check_length(path)
    with pnc_vol.File(path) as f:
        assert f["r"][:].tolist() == [1, 2, *[7] * 898]


def test_what_others_put_behind_the_data_goes_too(path: pathlib.Path) -> None:
    first(path).close()
    with path.open("ab") as file:
        file.write(b"x" * 1000)
    before = path.stat().st_size
    with pnc_vol.File(path):
        pass
    assert path.stat().st_size == before
    with pnc_vol.File(path, "r+"):
        pass
    check_length(path)


def full(path: str) -> None:
    """What each of two ranks does on a disk that is full for both at the close."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    system = FaultSystem(fail_at=0, errno=errno.ENOSPC, mode="forever")
    f = pnc_vol.File(path, "w", comm=comm, system=system)
    a = f.create_dataset("a", (4,), "i4")
    if comm.rank == 0:
        a[:] = 5
    f.flush()
    b = f.create_dataset("b", (4000,), "f8")
    b[comm.rank * 2000 : comm.rank * 2000 + 2000] = comm.rank
    system.fail_at = system.count + 1 + comm.rank
    try:
        f.close()
    except OSError as error:
        print(f"raised {error.errno}\n", end="", flush=True)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_full_disk_on_all_ranks(path: pathlib.Path) -> None:
    done = run_mpi(2, __file__, path, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.count("raised 28") == 2
    check_length(path)
    with pnc_vol.File(path) as f:
        assert f["a"][:].tolist() == [5] * 4


if __name__ == "__main__":
    full(sys.argv[1])
