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
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).parents[1] / "mpi" / "ranks_e3sm_blob.py"
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


def parts(path: Path) -> dict[str, Any]:
    """The variables of a subfile, without the ends of the rows of `offsets` and `lengths`, of which C says nothing."""
    with pnc_vol.File(f"{path}.0000", layout="canonical") as f:
        found = {name: var[...] for name, var in f.items()}
    for name, values in found.items():
        k, _, part = name.partition(".")
        if part in ("offsets", "lengths") and k[1:].isdigit():
            values[np.arange(values.shape[1]) >= found[f"{k}.nreqs"][:, None]] = 0
    return {name: values.tobytes() for name, values in found.items()}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_our_subfile_is_that_of_the_c_program(tmp_path: Path, case: str, ranks: int) -> None:
    """Of one rank the maps D1 and D2 of the F case have the same runs, and are one map here."""
    needed("e3sm_io")
    _, theirs, ours = written(tmp_path, case, ranks)
    a, b = (Path(f"{path}.0000").read_bytes() for path in (ours, theirs))
    with pnc_vol.File(f"{theirs}.0000", layout="canonical") as f:
        first = min(var.id.get_offset() or 1 << 40 for var in f.values())
    assert a[:first] == b[:first]
    assert len(a) == len(b)
    assert parts(ours) == parts(theirs)


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
