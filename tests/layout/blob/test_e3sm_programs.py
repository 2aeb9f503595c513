"""E3SM-IO's own programs beside ours, where they are on PATH: they write the same subfiles, and take ours.

With `nightly`: no package that the tests install brings them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e3sm_reference import FOLDER

import pnc_vol
from pnc_vol.format.decode import decode
from pnc_vol.format.model import Header
from pnc_vol.layout.blob.maps import MAP_VARIABLES
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).parents[2] / "mpi" / "ranks_e3sm_blob.py"
DATA = FOLDER.parent
CASES = {"f": ("map_f_case_16p.nc", "f_h1.json", "_h1"), "g": ("map_g_case_16p.nc", "g_hist.json", "")}

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(bool(missing()), reason=missing())]


def needed(*programs: str) -> None:
    for name in programs:
        if shutil.which(name) is None:
            pytest.skip(f"{name}, a program of E3SM-IO, is not on PATH")
    if not DATA.exists():
        pytest.skip(f"{DATA}: the maps of E3SM-IO are not part of the project")


def run(ranks: int, *words: Any) -> None:
    """A program of E3SM-IO on several ranks of the MPI library that comes with the tests."""
    command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), *map(str, words)]
    subprocess.run(command, check=True, timeout=250, capture_output=True)


def written(folder: Path, case: str, ranks: int) -> tuple[Path, Path, Path]:
    """What C writes: its canonical file and its blobs; and our blobs, with the definitions of the first."""
    maps, names, suffix = CASES[case]
    for layout in ("canonical", "blob"):
        run(ranks, "e3sm_io", "-a", "pnetcdf", "-x", layout, "-k", "-f", "1", "-o", folder / layout, DATA / maps)
    canonical, ours = folder / f"canonical{suffix}", folder / "ours"
    run_mpi(ranks, PROGRAM, ours, DATA / maps, canonical, "blob", DATA / names, timeout=250)
    return canonical, folder / f"blob{suffix}", ours


def without_tails(raw: bytes, header: Header) -> bytes:
    """A subfile without the ends of the rows of `offsets` and `lengths`, of which C says nothing."""
    made = bytearray(raw)
    for i, var in enumerate(header.vars):
        k, _, part = var.name.partition(".")
        if part in MAP_VARIABLES[3:] and k[1:].isdigit():
            nblobs, most = (header.dims[n].size for n in var.dims)
            nreqs = header.vars[i - MAP_VARIABLES.index(part)]
            counts = np.frombuffer(raw, ">i4", nblobs, nreqs.begin)
            for b, n in enumerate(counts.tolist()):
                made[var.begin + (b * most + n) * 4 : var.begin + (b + 1) * most * 4] = bytes((most - n) * 4)
    return bytes(made)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_our_subfile_is_that_of_the_c_program(tmp_path: Path, case: str, ranks: int) -> None:
    """Of one rank the maps D1 and D2 of the F case have the same runs, and are one map here."""
    needed("e3sm_io")
    _, theirs, ours = written(tmp_path, case, ranks)
    a, b = (Path(f"{path}.0000").read_bytes() for path in (ours, theirs))
    header = decode(b, file_size=len(b)).header
    assert decode(a, file_size=len(a)).header == header
    assert without_tails(a, header) == without_tails(b, header)


@pytest.mark.parametrize("case", CASES)
def test_the_stock_replay_tool_takes_our_subfile(tmp_path: Path, case: str) -> None:
    needed("e3sm_io", "pnetcdf_blob_replay")
    canonical, _, ours = written(tmp_path, case, 4)
    run(4, "pnetcdf_blob_replay", "-i", ours, "-o", tmp_path / "theirs.nc")
    assert pnc_vol.replay(ours, output=tmp_path / "one.nc").whole
    for name in ("theirs.nc", "one.nc"):
        with pnc_vol.File(tmp_path / name) as made, pnc_vol.File(canonical) as known:
            assert set(made) == set(known)
            for variable in known:
                assert made[variable][...].tobytes() == known[variable][...].tobytes(), (name, variable)
