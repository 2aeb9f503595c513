"""Deferred close: when a guarded file is really closed, that nobody sees old data, and what becomes of errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import ClosedFileError, DeferredCloseError
from pnc_vol.file import deferred
from pnc_vol.testing.driver_suite import Wrapper, register
from pnc_vol.testing.faults import FaultSystem, TraceSystem
from pnc_vol.testing.mpi import missing, run_mpi


@pytest.fixture(autouse=True)
def guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.json").write_text('{"Guardnames": "step"}')
    monkeypatch.setenv("PNC_VOL_HINTS_FILE", "h.json")
    yield
    monkeypatch.undo()
    pnc_vol.finalize()


def held() -> list[str]:
    return [os.path.basename(session.disk.path) for session in deferred._held]


def write(name: str, value: float = 1.0, **options: Any) -> None:
    with pnc_vol.File(name, "w", **options) as f:
        f["x"] = np.full(10, value)


def test_close_returns_after_a_flush_and_the_next_guarded_file_closes_it() -> None:
    f = pnc_vol.File("step1.nc", "w")
    x = f.create_dataset("x", data=[1, 2, 3])
    f.close()
    assert not f
    assert not x
    with pytest.raises(ClosedFileError):
        f.flush()
    assert held() == ["step1.nc"]
    with open("step1.nc", "rb") as file:
        assert file.read(4) == b"CDF\5", "the data are in the file after the flush"
    write("other.nc")
    assert held() == ["step1.nc"], "other.nc is no guarded file"
    with pnc_vol.File("step2.nc", "w") as g:
        assert held() == []
        g["x"] = 1
    assert held() == ["step2.nc"]
    f.close()
    assert held() == ["step2.nc"], "a second close of a handle does nothing"


def test_reading_a_guarded_file_defers_nothing_but_closes_what_waits() -> None:
    write("step1.nc")
    write("step2.nc")
    with pnc_vol.File("step1.nc") as f:
        assert held() == []
        assert f["x"][0] == 1
    assert held() == []


@pytest.mark.parametrize("mode", ["r", "r+", "a", "w"])
def test_opening_the_path_closes_first(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("step1.nc", 5.0)
    monkeypatch.setenv("PNC_VOL_HINTS_FILE", "")
    os.link("step1.nc", "alias.nc")
    assert held() == ["step1.nc"]
    with pnc_vol.File("alias.nc" if mode == "r" else "step1.nc", mode) as f:
        assert held() == []
        assert list(f) == ([] if mode == "w" else ["x"])
        if mode != "w":
            assert f["x"][:].tolist() == [5.0] * 10
    with pytest.raises(FileExistsError):
        pnc_vol.File("step1.nc", "x")


def test_two_handles_are_deferred_when_the_last_one_goes() -> None:
    f = pnc_vol.File("step1.nc", "w")
    g = pnc_vol.File("step1.nc", "r+")
    f.close()
    assert held() == []
    g["x"] = 1
    g.close()
    assert held() == ["step1.nc"]


def test_several_guarded_files_are_closed_in_the_order_in_which_they_were_given_up() -> None:
    before = pnc_vol.finalize()  # of all files that this process had
    system = TraceSystem()
    f, g = (pnc_vol.File(name, "w", system=system) for name in ("step1.nc", "step2.nc"))
    g.close()
    f.close()
    system.log.clear()
    assert held() == ["step2.nc", "step1.nc"]
    times = pnc_vol.finalize()
    closed = [os.path.basename(call.path) for call in system.matching(name="close")]
    assert list(dict.fromkeys(closed)) == ["step2.nc", "step1.nc"]
    assert held() == []
    opening, closing = times.open - before.open, times.close - before.close
    assert opening > 0
    assert closing > 0
    assert times.run - before.run > opening + closing
    assert str(times).splitlines()[0] == "open,write,close,run"
    assert pnc_vol.finalize().close == times.close, "there is nothing left to be closed"


def test_tools_that_write_the_path_close_it(monkeypatch: pytest.MonkeyPatch) -> None:
    write("step1.nc")
    monkeypatch.setenv("PNC_VOL_HINTS_FILE", "")
    pnc_vol.repack("step1.nc")
    assert held() == []
    with pnc_vol.File("step1.nc") as f:
        assert f["x"][0] == 1


class Late(Wrapper):
    """Brings something to the file when it is closed, which can fail."""

    name = "late"
    fails = False

    def close(self) -> None:
        super().close()
        if Late.fails:
            raise OSError(5, "Input/output error")


@pytest.mark.parametrize("how", ["guarded", "path", "finalize"])
def test_what_fails_later_is_raised_where_the_file_is_closed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register("late", Late)
    write("step1.nc", driver="late | posix")
    monkeypatch.setattr(Late, "fails", True)
    call = {
        "guarded": lambda: pnc_vol.File("step2.nc", "w"),
        "path": lambda: pnc_vol.File("step1.nc", "r"),
        "finalize": pnc_vol.finalize,
    }[how]
    with pytest.raises(DeferredCloseError, match=r"step1\.nc.*Input/output error") as caught:
        call()
    assert caught.value.errno == 5
    assert [os.path.basename(path) for path in caught.value.paths] == ["step1.nc"]
    assert not os.path.exists("step2.nc")
    assert held() == []
    write("step2.nc")
    with pnc_vol.File("step1.nc") as f:
        assert f["x"][0] == 1


def test_a_flush_that_fails_at_the_close_is_raised_at_once() -> None:
    system = FaultSystem(fail_at=0, errno=28, mode="forever")
    f = pnc_vol.File("step1.nc", "w", system=system)
    f["x"] = np.ones(1000)
    system.count, system.fail_at = 0, 1
    with pytest.raises(OSError, match="No space left"):
        f.close()
    assert held() == []
    assert not f


def alone(how: str) -> None:
    """What a process does with a guarded file before its end."""
    Late.fails = how == "fails"
    register("late", Late)
    with pnc_vol.File("step1.nc", "w", driver="late | posix") as f:
        f["x"] = [1, 2]
    if how == "fork":
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
    if how == "raises":
        raise KeyError("the program's own")


@pytest.mark.parametrize("how", ["leaves", "raises", "fork", "fails"])
def test_the_exit_closes_and_names_what_failed(how: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, __file__, how], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == (1 if how == "raises" else 0)
    assert ("DeferredCloseError" in done.stderr) == (how == "fails"), done.stderr
    assert ("step1.nc" in done.stderr) == (how == "fails")
    assert ("the program's own" in done.stderr) == (how == "raises")
    with pnc_vol.File("step1.nc") as f:
        assert f["x"][:].tolist() == [1, 2]


# -------------------------------------------------------------------------------------------------- ranks


def share(name: str, comm: Any, **options: Any) -> None:
    with pnc_vol.File(name, "w", comm=comm, **options) as f:
        f.create_dataset("x", (comm.size,), "f8")[comm.rank] = comm.rank


def together(comm: Any) -> None:
    """What ranks do with guarded files; what each of them saw is printed."""
    told: dict[str, Any] = {}
    share("step1.nc", comm)
    told["after close"] = held()
    share("step2.nc", comm)
    told["after the next"] = held()
    with pnc_vol.File("step2.nc", "r", comm=comm) as f:
        told["read"] = f["x"][:].tolist()
    told["after reading"] = held()
    share("step3.nc", comm)
    if comm.rank == 1:
        with pnc_vol.File("step3.nc") as f:
            told["alone"] = f["x"][:].tolist()
    if comm.rank == 0:
        try:
            pnc_vol.File("step3.nc", "r+")
        except Exception as error:
            told["alone, writing"] = str(error)
    comm.Barrier()
    pnc_vol.finalize(comm)
    # a file that each rank has by itself, and all open together
    for one in range(comm.size):
        if comm.rank == one:
            with pnc_vol.File("step4.nc", "w") as f:
                f["x"] = [one]
            if one < comm.size - 1:
                pnc_vol.finalize()
        comm.Barrier()
    with pnc_vol.File("step4.nc", "r", comm=comm) as f:
        told["of one rank"] = f["x"][:].tolist()
    told["times"] = list(pnc_vol.finalize(comm))
    told["at the end"] = held()
    everyone = comm.gather(told)
    if comm.rank == 0:
        print(json.dumps(everyone))


def leave(how: str, comm: Any) -> None:
    """Ranks that end with a guarded file, one of them otherwise than the others."""
    share("step1.nc", comm, collective_timeout=3)
    share("plain.nc", comm)
    if how == "raises" and comm.rank == 1:
        raise KeyError("one rank's own")
    if how == "open":
        f = pnc_vol.File("plain.nc", "r+", comm=comm, collective_timeout=60)
        if comm.rank == 1:
            raise KeyError("one rank's own")
        f.flush()
    if how == "dies" and comm.rank == 1:
        time.sleep(0.2)
        os._exit(3)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_ranks_close_together(tmp_path: Path) -> None:
    everyone = json.loads(run_mpi(3, __file__, "together", tmp_path).stdout)
    for told in everyone:
        assert told["after close"] == ["step1.nc"]
        assert told["after the next"] == ["step2.nc"]
        assert told["read"] == [0, 1, 2]
        assert told["after reading"] == []
        assert told["of one rank"] == [2]
        assert told["at the end"] == []
        assert told["times"] == everyone[0]["times"]
    assert everyone[1]["alone"] == [0, 1, 2]
    assert "call pnc_vol.finalize() on all first" in everyone[0]["alone, writing"]


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("how", ["leaves", "raises", "open", "dies"])
def test_ranks_that_leave_do_not_hang(how: str, tmp_path: Path) -> None:
    done = run_mpi(3, __file__, how, tmp_path, check=False, timeout=50)
    assert (done.returncode == 0) == (how == "leaves"), done.stderr
    with pnc_vol.File("step1.nc") as f:
        assert f["x"][:].tolist() == [0, 1, 2]


if __name__ == "__main__":
    if sys.argv[2:]:
        from mpi4py import MPI

        os.chdir(sys.argv[2])
        if sys.argv[1] == "together":
            together(MPI.COMM_WORLD)
        else:
            leave(sys.argv[1], MPI.COMM_WORLD)
    else:
        alone(sys.argv[1])
