"""Files that we write as E3SM-IO's C program does, against its own, byte for byte."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

DATA = Path(__file__).parents[2] / "../shared/data/e3sm"
PROGRAM = Path(__file__).parents[1] / "mpi/ranks_e3sm_blob.py"
RANKS, NODES = 16, 2

pytestmark = pytest.mark.skipif(
    not (DATA / "reference").exists(), reason="files of E3SM-IO are not there (../shared/data/e3sm/reference)"
)


def unpacked(name: str, path: Path) -> Path:
    path.write_bytes(gzip.decompress((DATA / f"reference/{name}.gz").read_bytes()))
    return path


def test_the_view_of_the_c_programs_subfiles_is_its_canonical_file(tmp_path: Path) -> None:
    for node in range(NODES):
        unpacked(f"f_pnc_blob_h1.nc.{node:04d}", tmp_path / f"h1.nc.{node:04d}")
    with (
        pnc_vol.File(unpacked("f_pnc_canonical_h1.nc", tmp_path / "canonical.nc")) as known,
        pnc_vol.File(tmp_path / "h1.nc") as view,
    ):
        assert list(view) == list(known)
        assert dict(view.attrs) == dict(known.attrs)
        for name, old in known.items():
            np.testing.assert_array_equal(view[name][...], old[...], err_msg=name)
            assert list(view[name].attrs) == list(old.attrs)
        np.testing.assert_array_equal(view["U"][1, 3:40:5, 100:-7], known["U"][1, 3:40:5, 100:-7])


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_subfiles_of_the_f_case_are_those_of_the_c_program(tmp_path: Path) -> None:
    """They differ in the ends of the rows of offsets and lengths, which C leaves as they are in memory and we write as
    zeros, and in the values of variables that are not partitioned, of which C writes another rank's to each subfile.
    """
    canonical = unpacked("f_pnc_canonical_h1.nc", tmp_path / "canonical.nc")
    out = tmp_path / "h1.nc"
    nodes = {"MPIR_CVAR_NUM_CLIQUES": str(NODES)}
    run_mpi(RANKS, PROGRAM, out, DATA / "map_f_case_16p.nc", canonical, "blob", env=nodes, timeout=200)
    for node in range(NODES):
        theirs, ours = unpacked(f"f_pnc_blob_h1.nc.{node:04d}", tmp_path / "theirs"), Path(f"{out}.{node:04d}")
        with pnc_vol.File(theirs, layout="canonical") as known, pnc_vol.File(ours, layout="canonical") as made:
            first = min(var.id.get_offset() or 1 << 40 for var in known.values())
            assert ours.read_bytes()[:first] == theirs.read_bytes()[:first]
            assert ours.stat().st_size == theirs.stat().st_size
            for name, var in known.items():
                same = made[name][...] == var[...]
                if name.endswith((".offsets", ".lengths")):
                    nreqs = known[f"{name.partition('.')[0]}.nreqs"][:]
                    rest = np.arange(var.shape[1]) >= nreqs[:, None]
                    assert not made[name][...][rest].any()
                    same |= rest
                elif "decomposition_ID" not in var.attrs and "." not in name and node:
                    assert not same.all(), "C writes the number of rank 1"
                    continue
                assert same.all(), f"{name} of subfile {node}"
