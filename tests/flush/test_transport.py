"""Which way ranks write follows from what they agreed on; who writes for others from where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from virtual_ranks import run

import pnc_vol


class Told(NamedTuple):
    """What a rank says of a flush: its plan, which way it went, and the bytes that the rank wrote itself."""

    plan: str
    choice: dict[str, Any]
    written: int


def flushed(path: Path, ranks: int, nodes: int, runs: int, each: int, **options: Any) -> list[Told]:
    """Let each rank post as many runs of `each` bytes, of which none touches another one."""

    def job(comm: Any) -> Told:
        with pnc_vol.File(path, "w", driver="posix", comm=comm, **options) as f:
            x = f.create_dataset("x", (ranks, runs, 2 * each), "u1")
            f.flush()
            x[comm.rank, :, :each] = comm.rank
            plan, before = str(f.plan()), f.statistics()["driver"]["posix.write_bytes"]
            f.flush()
            told = f.statistics()
            assert told["transport"] == told["write_choice"]["transport"] == told["last_flush"]["transport"]
            return Told(plan, told["write_choice"], told["driver"]["posix.write_bytes"] - before)

    told = run(ranks, job, nodes=nodes)
    with pnc_vol.File(path) as f:
        assert (f["x"][:, :, :each] == [[[rank]] for rank in range(ranks)]).all()
        assert not f["x"][:, :, each:].any()
    return told


@pytest.mark.parametrize(
    ("nodes", "runs", "each", "way"),
    [
        (1, 1, 10, "independent"),
        (1, 100, 8, "independent"),
        (1, 600, 8, "aggregate"),
        (1, 520, 16384, "independent"),
        (2, 1, 10, "independent"),
        (2, 100, 8, "aggregate"),
        (2, 20, 65536, "independent"),
    ],
)
def test_small_and_many_goes_together(tmp_path: Path, nodes: int, runs: int, each: int, way: str) -> None:
    told = flushed(tmp_path / "x.nc", 4, nodes, runs, each)
    assert {one.choice["transport"] for one in told} == {way}
    assert way == "aggregate" or all(one.written == runs * each for one in told)


@pytest.mark.parametrize(
    ("options", "way", "why"),
    [
        ({"transport": "aggregate"}, "aggregate", "asked for"),
        ({"transport": "collective"}, "independent", "no collective calls"),
        ({"transport": "independent"}, "independent", "asked for"),
        ({"hints": {"pnc_transport": "aggregate"}}, "aggregate", "asked for"),
        ({"hints": {"romio_cb_write": "enable"}}, "independent", "no collective calls"),
        ({"hints": {"romio_cb_write": "disable"}}, "independent", "asked for"),
        ({"hints": {"romio_cb_write": "automatic"}}, "independent", "up to 3 runs"),
        ({"hints": {"nc_num_aggrs_per_node": "2"}}, "aggregate", "asked for"),
        ({"transport": "independent", "hints": {"nc_num_aggrs_per_node": "2"}}, "independent", "asked for"),
        ({"transport": "aggregate", "ordered": True}, "independent", "ordered"),
    ],
)
def test_a_way_that_is_asked_for_is_taken_and_the_plan_says_why(
    tmp_path: Path, options: dict[str, Any], way: str, why: str
) -> None:
    """Collective calls are those of MPI-IO, which this driver has not; `tests/mpi` has them."""
    told = flushed(tmp_path / "x.nc", 2, 1, 3, 8, **options)[0]
    assert told.choice["transport"] == way
    assert why in told.choice["why"]
    (line,) = (line for line in told.plan.splitlines() if line.startswith(("transport: ", "transport on one node: ")))
    assert f" {way}: " in line
    assert why in line


@pytest.mark.parametrize(
    ("ranks", "nodes", "hints", "writing"),
    [
        (4, 1, {}, [0, 2]),
        (4, 1, {"nc_num_aggrs_per_node": "1"}, [0]),
        (4, 1, {"nc_num_aggrs_per_node": "9"}, [0, 1, 2, 3]),
        (4, 2, {}, [0, 1, 2, 3]),
        (4, 2, {"nc_num_aggrs_per_node": "1"}, [0, 2]),
        (8, 2, {}, [0, 2, 4, 6]),
        (8, 2, {"cb_nodes": "3"}, [0, 2, 4]),
        (6, 3, {"cb_nodes": "2"}, [0, 2]),
        (8, 2, {"cb_nodes": "3", "nc_num_aggrs_per_node": "2"}, [0, 2, 4]),
    ],
)
def test_ranks_that_write_for_others(
    tmp_path: Path, ranks: int, nodes: int, hints: dict[str, str], writing: list[int]
) -> None:
    hints = {"striping_unit": "4096", **hints}
    told = flushed(tmp_path / "x.nc", ranks, nodes, 1000, 100, hints=hints, transport="aggregate")
    assert [rank for rank, one in enumerate(told) if one.written] == writing
    assert told[0].choice["aggregators"] == len(writing)


def test_a_plan_waits_for_nobody(tmp_path: Path) -> None:
    """Where the ranks are is not asked before the flush; the next plan knows it."""

    def job(comm: Any) -> list[list[str]]:
        with pnc_vol.File(tmp_path / "x.nc", "w", driver="posix", comm=comm) as f:
            x = f.create_dataset("x", (4, 600, 16), "u1")
            f.flush()
            told = []
            for _ in range(2):
                x[comm.rank, :, :8] = 1
                told.append([line for line in str(f.plan()).splitlines() if line.startswith(("transport", "aggreg"))])
                f.flush()
            return told

    before, after = run(4, job, nodes=2)[0]
    assert [line[: line.index(":")] for line in before] == ["transport on one node", "transport on several nodes"]
    many = "ranks work together if there are more than 512 runs of less than 16384 bytes"
    assert before[0].endswith(f": aggregate: a rank has up to 600 runs, 8 bytes on average; {many}")
    assert after[0].startswith("transport: aggregate: ")
    assert after[1:] == ["aggregators: 4 of 4 ranks, on 2 nodes"]


def test_reads_are_chosen_as_writes_but_by_their_own_hint(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", (4, 600, 16), "u1")

    def job(comm: Any, **options: Any) -> tuple[Any, Any]:
        with pnc_vol.File(path, driver="posix", comm=comm, **options) as f:
            with f["x"].collective:
                f["x"][comm.rank, :, :8]
            return f.statistics()["read_choice"], f.statistics()["write_choice"]

    for hints, way, why in (
        ({}, "aggregate", "600 runs, 8 bytes"),
        ({"romio_cb_read": "disable"}, "independent", "asked for"),
        ({"romio_cb_write": "disable"}, "aggregate", "600 runs"),
    ):
        read, written = run(4, lambda comm, hints=hints: job(comm, hints=hints))[0]
        assert read["transport"] == way
        assert why in read["why"]
        assert written is None
