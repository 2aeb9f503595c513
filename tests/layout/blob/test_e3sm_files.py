"""Files that we write as E3SM-IO's C program does, against its own, byte for byte."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.format.decode import decode
from pnc_vol.format.sizes import inner_bytes, is_record, record_size
from pnc_vol.layout.blob import index
from pnc_vol.testing.mpi import missing, run_mpi

DATA = Path(__file__).parents[3] / "../shared/data/e3sm"
PROGRAM = Path(__file__).parents[2] / "mpi/ranks_e3sm_blob.py"
RANKS, NODES, RECORDS = 16, 2, 2

pytestmark = pytest.mark.skipif(
    not (DATA / "reference").exists(), reason="files of E3SM-IO are not there (../shared/data/e3sm/reference)"
)


def unpacked(name: str, path: Path) -> Path:
    path.write_bytes(gzip.decompress((DATA / f"reference/{name}.gz").read_bytes()))
    return path


@pytest.mark.parametrize("most", [None, 500], ids=["one index", "windows"])
def test_the_view_of_the_c_programs_subfiles_is_its_canonical_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    if most is not None:
        monkeypatch.setattr(index, "_MOST_RUNS", most)
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
        files = view.id.handle.session.disk.layout.files
        assert isinstance(files.lookup(3).index, index.BoundedIndex) == (most is not None)
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
        theirs = gzip.decompress((DATA / f"reference/f_pnc_blob_h1.nc.{node:04d}.gz").read_bytes())
        ours = Path(f"{out}.{node:04d}").read_bytes()
        told = decode(theirs, file_size=len(theirs))
        header = told.header
        assert ours[: told.nbytes] == theirs[: told.nbytes]
        assert len(ours) == len(theirs)
        a, b = np.frombuffer(ours, np.uint8), np.frombuffer(theirs, np.uint8)
        same = a == b
        for i, var in enumerate(header.vars):
            nbytes = inner_bytes(header, var)
            for record in range(RECORDS if is_record(header, var) else 1):
                at = var.begin + record * record_size(header)
                if i < 15 and i % 5 > 2:
                    nreqs = np.frombuffer(theirs, ">i4", RANKS // NODES, header.vars[i // 5 * 5].begin)
                    row = nbytes // 4 // nreqs.size
                    rest = np.repeat(np.arange(row) >= nreqs[:, None], 4)
                    assert not a[at : at + nbytes][rest].any()
                    same[at : at + nbytes] |= rest
                elif all(attr.name != "decomposition_ID" for attr in var.attrs) and i >= 15 and node:
                    assert not same[at : at + nbytes].all(), "C writes the number of rank 1"
                    same[at : at + nbytes] = True
        assert same.all(), f"byte {int(np.flatnonzero(~same)[0])} of subfile {node}"
