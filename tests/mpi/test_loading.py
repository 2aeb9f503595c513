"""What ordinary work with a file of several ranks needs is loaded by its opening (`pnc_vol/file/opening.py`).

A rank that has no descriptor or no memory left would otherwise fail alone to load a module where others wait for it.
Each case is a job of its own, because nothing tells that a module would have been loaded that is there already.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = pathlib.Path(__file__).with_name("ranks_loading.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def later(folder: pathlib.Path, case: str, nodes: int) -> list[str]:
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
    told = run_mpi(2, PROGRAM, folder, case, timeout=60, env=env).stdout.splitlines()
    assert [line.split()[0] for line in told] == ["0", "1"], told
    return sorted({name for line in told for name in line.split()[1:]})


NIGHTLY = ("posix", "collective", "aggregate", "ordered", "durable", "shared log", "coherent", "two subfiles")


@pytest.mark.parametrize(
    ("nodes", "cases"),
    [
        (2, ["mpio", "mpio, r+", "mpio, r"]),
        (1, ["posix drain"]),
        (2, ["log", "log, r+"]),
        (2, ["cache", "cache, r"]),
        (1, ["blob", "blob, r+"]),
        *[pytest.param(nodes, [case], marks=pytest.mark.nightly) for nodes in (1, 2) for case in NIGHTLY],
    ],
    ids=str,
)
def test_ordinary_work_loads_no_module(tmp_path: pathlib.Path, cases: Sequence[str], nodes: int) -> None:
    assert {case: found for case in cases if (found := later(tmp_path, case, nodes))} == {}
