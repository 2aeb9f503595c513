"""``pnc-vol profile``: phases on timelines of real runs, their sums, and a picture."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.bench.throttled import ThrottledSystem
from pnc_vol.cli.profile import PHASES, Span, spans_of, summed
from pnc_vol.testing.mpi import missing, run_mpi


def span(phase: str, rank: int = 0, number: int = 0, start: float = 0.0, seconds: float = 1.0, thread: int = 0) -> Span:
    return Span(phase, rank, thread, number, start, seconds, 0)


def test_threads_add_up_and_a_write_is_without_what_lies_in_it() -> None:
    spans = [
        span("write", start=10, seconds=5),
        span("copy to cache", start=11, seconds=3),
        span("copy to cache", start=20, seconds=7),
        span("sync write", thread=1, seconds=2),
        span("sync write", thread=2, seconds=4),
        span("sync write", rank=1, number=1, thread=1, seconds=8),
    ]
    sums = summed(spans)
    assert sums["write"] == {(0, 0): 2}
    assert sums["copy to cache"] == {(0, 0): 10}
    assert sums["sync write"] == {(0, 0): 6, (1, 1): 8}
    assert list(sums) == list(PHASES)


@pytest.mark.parametrize("wrong", [{}, [], {"traceEvents": [], "otherData": {}}, {"otherData": {"began": "x"}}])
def test_what_is_no_timeline_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="no timeline"):
        spans_of(wrong)


def test_a_run_with_a_cache_shows_its_threads(tmp_path: Path) -> None:
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
    timeline = json.loads((tmp_path / "run.json").read_text())
    sums = summed(spans_of(timeline))
    assert sum(sums["sync write"].values()) > 0.04
    assert sum(sums["copy to cache"].values()) > 0
    assert {number for _, number in sums["copy to cache"]} >= {0, 1}
    named = {(one["tid"], one["args"]["name"]) for one in timeline["traceEvents"] if one["name"] == "thread_name"}
    assert {(0, "program"), (1, "sync thread 1")} <= named
    assert all({"name", "ph", "pid"} <= set(one) for one in timeline["traceEvents"]), "as the format has it"


PROGRAM = """
import sys
import pnc_vol
from mpi4py import MPI
comm, folder = MPI.COMM_WORLD, sys.argv[1]
with pnc_vol.File(f"{folder}/x.nc", "w", comm=comm, driver=f"trace(file='{folder}/run.json') | mpio") as f:
    x = f.create_dataset("x", (comm.size, 1000), "f8")
    for i in range(3):
        x[comm.rank] = i
        f.flush()
"""


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_ranks_are_summed_printed_and_drawn(tmp_path: Path, verb: Any) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "program.py").write_text(PROGRAM)
    run_mpi(2, tmp_path / "program.py", tmp_path)
    files = [str(tmp_path / f"run.{rank}.json") for rank in range(2)]
    table, picture = tmp_path / "sums.csv", tmp_path / "picture.png"
    out = verb("profile", *files, "--rounds", "--csv", table, "--plot", picture, code=0).out
    assert out.startswith("2 ranks, ")
    assert "non-hidden sync" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["rank"] for row in rows if row["phase"] == "exchange"} == {"0", "1"}
    assert {row["round"] for row in rows if row["phase"] == "write"} >= {"0", "1", "2"}
    assert picture.read_bytes()[1:4] == b"PNG"


def test_a_file_that_is_no_timeline_is_one_line(tmp_path: Path, verb: Any) -> None:
    (tmp_path / "a.json").write_text("{}")
    for name in ("a.json", "none.json"):
        assert len(verb("profile", tmp_path / name, code=2).err.strip().splitlines()) == 1
