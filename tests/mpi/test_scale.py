"""What a flush costs: the same numbers on real ranks, on emulated nodes, and on virtual ranks; and few of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scale_program import check, counted

from pnc_vol.comm import Comm
from pnc_vol.testing.mpi import missing, run_mpi
from pnc_vol.testing.virtual_ranks import run

PROGRAM = Path(__file__).with_name("ranks_scale.py")


def simulated(path: Path, ranks: int, nodes: int, *, in_turn: bool = False) -> list[dict[str, dict[str, int]]]:
    def one(comm: Comm) -> dict[str, dict[str, int]]:
        return counted(comm, comm.rank, comm.size, str(path))

    found = run(ranks, one, nodes=nodes, in_turn=in_turn)
    check(str(path), ranks)
    return found


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [(8, 4), (16, 4), pytest.param(32, 4, marks=pytest.mark.nightly), pytest.param(64, 4, marks=pytest.mark.nightly)],
)
def test_virtual_ranks_count_what_real_ones_do(tmp_path: Path, ranks: int, nodes: int) -> None:
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
    job = run_mpi(ranks, PROGRAM, tmp_path / "real.nc", env=env, timeout=60 + 5 * ranks)
    virtual = simulated(tmp_path / "virtual.nc", ranks, nodes, in_turn=True)
    assert json.loads(job.stdout) == virtual
    assert (tmp_path / "real.nc").read_bytes() == (tmp_path / "virtual.nc").read_bytes()


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (32, 2), pytest.param(512, 8, marks=pytest.mark.nightly)])
def test_a_flush_takes_few_steps_whatever_the_number_of_ranks(tmp_path: Path, ranks: int, nodes: int) -> None:
    levels = (ranks - 1).bit_length()
    for told in simulated(tmp_path / "a.nc", ranks, nodes):
        assert told["nothing"]["reductions"] == told["nothing"]["rounds"] == told["nothing again"]["rounds"] == 1
        assert told["nothing"]["messages"] == levels
        assert told["record"]["reductions"] <= 4
        assert told["record"]["messages"] <= 4 * levels
        assert told["record again"]["bytes_sent"] <= 4 * levels * 400
