"""``pnc-vol profile``: phases on timelines of real runs, their sums, and a picture."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import ThrottledSystem
from pnc_vol.testing.mpi import missing, run_mpi


def timeline(path: Path, *spans: tuple[str, int, int, float, float], rank: int = 0) -> Path:
    """Of one rank, as the driver writes it: phases with a thread, a round, a start and seconds."""
    events = [
        {"ph": "X", "name": phase, "tid": thread,
         "args": {"round": number, "start": start, "seconds": seconds, "nbytes": 0}}
        for phase, thread, number, start, seconds in spans
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events, "otherData": {"began": 0, "rank": rank}}))
    return path


def sums(verb: Any, *files: Path) -> dict[tuple[str, int, int], float]:
    """Seconds by phase, rank and round."""
    table = files[0].with_suffix(".csv")
    verb("profile", *files, "--csv", table, code=0)
    rows = csv.DictReader(table.read_text().splitlines())
    return {(row["phase"], int(row["rank"]), int(row["round"])): float(row["seconds"]) for row in rows}


def test_threads_add_up_and_a_write_is_without_what_lies_in_it(tmp_path: Path, verb: Any) -> None:
    one = timeline(
        tmp_path / "0.json", ("write", 0, 0, 10, 5), ("copy to cache", 0, 0, 11, 3), ("copy to cache", 0, 0, 20, 7),
        ("sync write", 1, 0, 0, 2), ("sync write", 2, 0, 0, 4),
    )  # fmt: skip
    other = timeline(tmp_path / "1.json", ("sync write", 1, 1, 0, 8), rank=1)
    assert sums(verb, one, other) == {
        ("write", 0, 0): 2, ("copy to cache", 0, 0): 10, ("sync write", 0, 0): 6, ("sync write", 1, 1): 8,
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [{}, [], {"traceEvents": [], "otherData": {}}, {"otherData": {"began": "x"}}])
def test_what_is_no_timeline_is_refused(tmp_path: Path, verb: Any, wrong: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps(wrong))
    told = verb("profile", tmp_path / "a.json", code=2).err.strip().splitlines()
    assert len(told) == 1
    assert "no timeline" in told[0]


def test_a_run_with_a_cache_shows_its_threads(tmp_path: Path, verb: Any) -> None:
    (tmp_path / "slow").mkdir()
    system = ThrottledSystem(tmp_path / "slow", bandwidth=20e6)
    stack = f"trace(file='{tmp_path / 'run.json'}') | cache | posix"
    with pnc_vol.File(
        tmp_path / "slow" / "x.nc", "w", driver=stack, system=system, hints={"e10_cache_path": str(tmp_path)}
    ) as f:  # fmt: skip
        x = f.create_dataset("x", (2, 100_000), "f8")
        for i in range(2):
            x[i] = np.arange(100_000.0)
            f.flush()
    found, written = sums(verb, tmp_path / "run.json"), json.loads((tmp_path / "run.json").read_text())
    assert sum(seconds for (phase, *_), seconds in found.items() if phase == "sync write") > 0.04
    assert sum(seconds for (phase, *_), seconds in found.items() if phase == "copy to cache") > 0
    assert {number for phase, _, number in found if phase == "copy to cache"} >= {0, 1}
    named = {(one["tid"], one["args"]["name"]) for one in written["traceEvents"] if one["name"] == "thread_name"}
    assert {(0, "program"), (1, "sync thread 1")} <= named
    assert all({"name", "ph", "pid"} <= set(one) for one in written["traceEvents"]), "as the format has it"


def three_rounds(folder: Path) -> None:
    """The program of the ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with pnc_vol.File(folder / "x.nc", "w", comm=comm, driver=f"trace(file='{folder}/run.json') | mpio") as f:
        x = f.create_dataset("x", (comm.size, 1000), "f8")
        for i in range(3):
            x[comm.rank] = i
            f.flush()


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_ranks_are_summed_printed_and_drawn(tmp_path: Path, verb: Any) -> None:
    pytest.importorskip("matplotlib")
    run_mpi(2, __file__, tmp_path)
    files = [str(tmp_path / f"run.{rank}.json") for rank in range(2)]
    table, picture = tmp_path / "sums.csv", tmp_path / "picture.png"
    out = verb("profile", *files, "--rounds", "--csv", table, "--plot", picture, code=0).out
    assert out.startswith("2 ranks, ")
    assert "non-hidden sync" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["rank"] for row in rows if row["phase"] == "exchange"} == {"0", "1"}
    assert {row["round"] for row in rows if row["phase"] == "write"} >= {"0", "1", "2"}
    assert picture.read_bytes()[1:4] == b"PNG"


if __name__ == "__main__":
    three_rounds(Path(sys.argv[1]))
