"""What a flush costs: the same numbers on real ranks, on emulated nodes, and on virtual ranks; and few of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from interrupts import PACKAGE
from scale_program import check, counted
from virtual_ranks import run

import pnc_vol
from pnc_vol.errors import DefinitionMismatchError
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_scale.py")


def simulated(path: Path, ranks: int, nodes: int) -> list[dict[str, dict[str, int]]]:
    def one(comm: Any) -> dict[str, dict[str, int]]:
        return counted(comm, comm.rank, comm.size, str(path))

    found = run(ranks, one, nodes=nodes)
    check(str(path), ranks)
    return found


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [(8, 4), *(pytest.param(ranks, 4, marks=pytest.mark.nightly) for ranks in (16, 32, 64))],
)
def test_virtual_ranks_count_what_real_ones_do(tmp_path: Path, ranks: int, nodes: int) -> None:
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
    job = run_mpi(ranks, PROGRAM, tmp_path / "real.nc", env=env, timeout=60 + 5 * ranks)
    # Names of one length: what ranks tell each other of the file is in the counts.
    command = [sys.executable, str(PROGRAM), str(tmp_path / "virt.nc"), str(ranks), str(nodes)]
    virtual = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert json.loads(job.stdout) == json.loads(virtual.stdout)
    assert (tmp_path / "real.nc").read_bytes() == (tmp_path / "virt.nc").read_bytes()


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (32, 2), pytest.param(512, 8, marks=pytest.mark.nightly)])
def test_a_flush_takes_few_steps_whatever_the_number_of_ranks(tmp_path: Path, ranks: int, nodes: int) -> None:
    levels = (ranks - 1).bit_length()
    for told in simulated(tmp_path / "a.nc", ranks, nodes):
        assert told["nothing"]["reductions"] == told["nothing"]["rounds"] == told["nothing again"]["rounds"] == 1
        assert told["nothing"]["messages"] == levels
        assert told["record"]["reductions"] <= 4
        assert told["record"]["messages"] <= 4 * levels
        assert told["record again"]["bytes_sent"] <= 4 * levels * 400


@pytest.mark.parametrize("ranks", [1000, *(pytest.param(n, marks=pytest.mark.nightly) for n in (5400, 21600))])
def test_agreement_grows_with_the_logarithm_of_the_ranks(tmp_path: Path, ranks: int) -> None:
    """The agreement that opens a flush, and the naming of two ranks whose definitions differ."""

    def program(comm: Any) -> tuple[dict[str, int], Counter[str], str]:
        with pnc_vol.File(tmp_path / "x.nc", "w", driver="posix", comm=comm) as f:
            f["x"] = 1
            f.flush()
            f.flush()
            agreed = f.statistics()["communication_of_flush"]
            odd = comm.rank in (7, ranks - 1)
            if odd:
                f["odd"] = 1
            before = Counter(comm.traffic.statistics()["communication"])
            with pytest.raises(DefinitionMismatchError) as caught:
                f.flush()
            named = Counter(comm.traffic.statistics()["communication"])
            named.subtract(before)
            if odd:
                del f["odd"]
        return agreed, named, str(caught.value)

    levels = (ranks - 1).bit_length()
    for agreed, named, text in run(ranks, program, nodes=-(-ranks // 64)):
        assert (agreed["reductions"], agreed["rounds"], agreed["messages"]) == (1, 1, levels)
        assert agreed["bytes_sent"] == 368 * levels
        assert named["reductions"] <= 6
        assert named["messages"] <= 14 * levels
        assert named["bytes_sent"] <= levels * 4096
        assert f"'odd': int64 of shape () along () on ranks 7, {ranks - 1}, not on ranks 0-6, 8-{ranks - 2}" in text


@pytest.mark.parametrize(
    ("kind", "reductions", "messages", "nbytes"), [("cache", 8, 10, 3000), ("blob", 6, 8, 8100)], ids=["cache", "blob"]
)
def test_caches_and_blobs_cost_what_grows_with_the_logarithm_of_the_ranks(
    tmp_path: Path, kind: str, reductions: int, messages: int, nbytes: int
) -> None:
    """A later record, written by all ranks; a cache also tells the range of each rank, 24 bytes, in a tree."""
    for ranks in (8, 32):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        hints = {"pnc_subfiles": "2"} if kind == "blob" else {"e10_cache_path": str(folder)}

        def program(comm: Any, path: Path = folder / "a.nc", hints: dict[str, str] = hints) -> dict[str, int]:
            layout = "blob" if kind == "blob" else None
            with pnc_vol.File(path, "w", driver="posix", comm=comm, layout=layout, hints=hints) as f:
                x = f.create_dataset("x", (3, 4 * comm.size), "f8", maxshape=(None, 4 * comm.size))
                for turn in range(3):
                    x[turn, 4 * comm.rank : 4 * comm.rank + 4] = turn
                    f.flush()
                told: dict[str, int] = f.statistics()["communication_of_flush"]
            return told

        levels = (ranks - 1).bit_length()
        for told in run(ranks, program, nodes=ranks // 4):
            assert told["reductions"] <= reductions
            assert told["messages"] <= messages * levels
            assert told["bytes_sent"] <= levels * (nbytes + (32 * ranks if kind == "cache" else 0))


def instructions(path: Path, ranks: int) -> tuple[int, int]:
    """Instructions of Python on the last rank, which posts nothing, while the file is opened, and in its second flush.

    Without those of waiting, which depend on who comes when.
    """
    counted = 0

    def instruction(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal counted
        counted += event == "opcode"
        return instruction

    def call(frame: FrameType, event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) or name.endswith("/ranks/waiting.py"):
            return None
        frame.f_trace_opcodes = True
        return instruction

    def program(comm: Any) -> tuple[int, int]:
        nonlocal counted
        posts, last = comm.rank % 4 == 0, comm.rank == comm.size - 1
        found = []
        # Python 3.12 tells of instructions where a frame asked for it before
        sys._getframe().f_trace_opcodes = last
        sys.settrace(call if last else None)
        with pnc_vol.File(path, "w", driver="posix", comm=comm, transport="aggregate") as f:
            if last:
                found.append(counted)
            x = f.create_dataset("x", (1000, comm.size), "f8")
            for turn in range(2):
                if posts:
                    x[:, comm.rank] = turn
                if last:
                    counted = 0
                f.flush()
            if last:
                found.append(counted)
        sys.settrace(None)
        return (found[0], found[1]) if last else (0, 0)

    found: tuple[int, int] = run(ranks, program, nodes=ranks // 4)[-1]
    return found


def test_python_work_of_a_rank_without_posts_does_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    few, many = (instructions(tmp_path / f"{ranks}.nc", ranks) for ranks in (8, 64))
    assert few[0] > 1000
    assert few[1] > 1000
    assert many[0] <= 1.02 * few[0]
    assert many[1] <= 1.02 * few[1]
