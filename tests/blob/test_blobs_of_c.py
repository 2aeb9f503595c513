"""The files of E3SM-IO's C program: both kinds of blobs are read and replayed, and equal its canonical file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e3sm_reference import CANONICAL, HDF5_BLOBS, NETCDF_BLOBS, content

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).parents[1] / "mpi/ranks_replay_set.py"
SETS = {"PnetCDF": NETCDF_BLOBS, "HDF5": HDF5_BLOBS}


@pytest.fixture(params=SETS)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The set of one kind, and beside it ``canonical.nc``."""
    if request.param == "HDF5":
        pytest.importorskip("h5py")
    for name in SETS[request.param]:
        (tmp_path / name).write_bytes(content(name))
    (tmp_path / "canonical.nc").write_bytes(content(CANONICAL))
    # with a gap before variables of 8 bytes that would begin at 4, as the canonical layout of pnc_vol has it
    pnc_vol.repack(tmp_path / "canonical.nc", tmp_path / "aligned.nc")
    return tmp_path / SETS[request.param][0][:-5]


def check_equal(found: Path, canonical: Path) -> None:
    """All of F is covered by its maps, so no element is left out."""
    with pnc_vol.File(found) as ours, pnc_vol.File(canonical) as theirs:
        assert list(ours) == list(theirs)
        assert list(ours.attrs) == list(theirs.attrs)
        for name in theirs:
            one: Any = ours[name]
            other: Any = theirs[name]
            assert (one.shape, one.dtype, one.maxshape) == (other.shape, other.dtype, other.maxshape), name
            assert list(one.attrs) == list(other.attrs), name
            np.testing.assert_array_equal(one[...], other[...], err_msg=name)


def test_the_view_equals_the_canonical_file(base: Path) -> None:
    check_equal(base, base.parent / "canonical.nc")
    with pnc_vol.File(f"{base}.0001") as f, pnc_vol.File(base.parent / "canonical.nc") as canonical:
        np.testing.assert_array_equal(f["U"][1, 3:70:7, 100:800:3], canonical["U"][1, 3:70:7, 100:800:3])


def test_a_replay_is_the_canonical_file_byte_for_byte(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.nc"
    report = pnc_vol.replay(base, output=out)
    assert report.whole
    assert [one.covered for one in report.maps] == [866, 866, 72 * 866]
    check_equal(out, tmp_path / "canonical.nc")
    assert out.read_bytes() == (tmp_path / "aligned.nc").read_bytes()
    if shutil.which("ncvalidator"):
        subprocess.run(["ncvalidator", "-q", out], check=True, timeout=60)


@pytest.mark.skipif(bool(missing()), reason=missing() or "")
@pytest.mark.parametrize("ranks", [2, 3])
def test_any_number_of_ranks_replays_what_16_wrote(base: Path, tmp_path: Path, ranks: int) -> None:
    out = tmp_path / "out.nc"
    run_mpi(ranks, PROGRAM, base, out)
    assert out.read_bytes() == (tmp_path / "aligned.nc").read_bytes()
