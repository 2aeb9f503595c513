"""The identity programs in blobs: the view of each set holds what the program's model says, which each job checks."""

from __future__ import annotations

import pathlib

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = pathlib.Path(__file__).with_name("ranks_identity.py")

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(300)]


@pytest.mark.parametrize(("ranks", "nodes", "subfiles"), [(1, 1, 0), (2, 2, 0), (3, 1, 2), (4, 3, 0)])
def test_programs_of_the_identity_test_read_back_in_blobs(
    tmp_path: pathlib.Path, ranks: int, nodes: int, subfiles: int
) -> None:
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes), "PNC_VOL_HINTS": f"pnc_layout=blob;pnc_subfiles={subfiles}"}
    run_mpi(ranks, PROGRAM, tmp_path, "mpio", "posix-ordered", env=env, timeout=240)
    found = {path.name.rpartition(".")[2] for path in (tmp_path / "mpio").iterdir()}
    assert found == {f"{number:04d}" for number in range(subfiles or nodes)}
