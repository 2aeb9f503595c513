"""Files with ``layout="hdf5blob"``: written at the close, read as one; the C program's files, refusals, damages."""

from __future__ import annotations

import io
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import virtual_ranks
from e3sm_reference import CANONICAL, FOLDER, HDF5_BLOBS, NETCDF_BLOBS, content

import pnc_vol
from pnc_vol.errors import FormatError, NotYetError
from pnc_vol.testing.faults import CHANGING, FaultSystem
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAMS = Path(__file__).parents[2] / "mpi"
on_ranks = pytest.mark.skipif(bool(missing()), reason=missing())


def write(path: Path, **options: Any) -> None:
    with pnc_vol.File(path, "w", layout="hdf5blob", **options) as f:
        f.attrs["title"] = "one"
        x = f.create_dataset("g/x", (4, 6), "f8")
        x[1:3] = np.arange(12.0).reshape(2, 6)
        f.flush()
        t = f.create_dataset("t", (0, 5), "i4", maxshape=(None, 5), fillvalue=-9)
        t.resize(3, 0)
        t[1] = np.arange(5)
        f["s"] = 7


def check(path: Path) -> None:
    expected = np.zeros((4, 6))
    expected[1:3] = np.arange(12).reshape(2, 6)
    with pnc_vol.File(path) as f:
        assert f.attrs["title"] == "one"
        np.testing.assert_array_equal(f["g/x"][...], expected)
        np.testing.assert_array_equal(f["g/x"][1:4:2, 2:5], expected[1:4:2, 2:5])
        np.testing.assert_array_equal(f["t"][...], [[-9] * 5, range(5), [-9] * 5])
        assert f["s"][()] == 7


def test_it_is_found_by_the_name_of_the_set_and_of_a_subfile(tmp_path: Path) -> None:
    write(tmp_path / "out.h5")
    assert os.listdir(tmp_path) == ["out.h5.0000"]
    check(tmp_path / "out.h5")
    check(tmp_path / "out.h5.0000")


def test_before_the_close_nothing_has_the_name_and_what_was_flushed_stays_of_a_file_that_was_given_up(
    tmp_path: Path,
) -> None:
    """As of every file that gets its name at the close: the temporary file, of NetCDF blobs, has what was flushed."""
    for flushed in (False, True):
        f = pnc_vol.File(tmp_path / "out.h5", "w", layout="hdf5blob")
        f["x"] = np.arange(10)
        if flushed:
            f.flush()
        assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            f.id.handle.session.abort("given up")
        assert len(os.listdir(tmp_path)) == flushed
    (left,) = tmp_path.iterdir()
    pnc_vol.File(left, "r+", layout="canonical").close()
    left.rename(tmp_path / "out.nc.0000")
    with pnc_vol.File(tmp_path / "out.nc") as f:
        assert f["x"][...].tolist() == list(range(10))


def test_a_flush_keeps_values_and_completes_requests(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "out.h5", "w", layout="hdf5blob") as f:
        x = f.create_dataset("x", (100_000,), "f8")
        mine = np.arange(100_000.0)
        request = x.iput(slice(None), mine)
        f.flush()
        assert request.status == "done"
        mine[:] = -1
        assert x[77] == 77.0
        x[50_000:] = 0
    with pnc_vol.File(tmp_path / "out.h5") as f:
        np.testing.assert_array_equal(f["x"][...], np.where(np.arange(100_000) < 50_000, np.arange(100_000), 0))


def test_a_second_write_replaces_the_set(tmp_path: Path) -> None:
    write(tmp_path / "out.h5")
    write(tmp_path / "out.h5")
    check(tmp_path / "out.h5")
    with pytest.raises(FileExistsError):
        pnc_vol.File(tmp_path / "out.h5", "w-", layout="hdf5blob")


@pytest.mark.parametrize("mode", ["a", "r+"])
def test_it_is_not_changed_once_it_is_written(tmp_path: Path, mode: str) -> None:
    write(tmp_path / "out.h5")
    with pytest.raises(NotYetError, match="HDF5 blobs are written once, when the file is closed"):
        pnc_vol.File(tmp_path / "out.h5", mode)
    check(tmp_path / "out.h5")


@pytest.mark.parametrize("given", [{"burst_buf": True}, {"durable": True}, {"hints": {"e10_cache_path": "."}}])
def test_a_log_a_cache_and_durable_flushes_are_those_of_every_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("out.h5"), **given)
    assert os.listdir() == ["out.h5.0000"]
    check(Path("out.h5"))
    with pytest.raises(FileNotFoundError):
        pnc_vol.File("none/out.h5", "w", layout="hdf5blob", **given)


def test_what_another_rank_flushed_is_read_before_the_close(tmp_path: Path) -> None:
    def job(comm: Any) -> None:
        with pnc_vol.File(tmp_path / "out.h5", "w", layout="hdf5blob", comm=comm, driver="posix", subfiles=2) as f:
            x = f.create_dataset("x", (4,), "i8")
            x[2 * comm.rank : 2 * comm.rank + 2] = comm.rank + 1
            f.flush(durable=True)
            assert x[...].tolist() == [1, 1, 2, 2]

    virtual_ranks.run(2, job)
    with pnc_vol.File(tmp_path / "out.h5") as f:
        assert f["x"][...].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("subfiles", [1, 2])
def test_a_close_that_cannot_write_the_hdf5_files_is_tried_again(tmp_path: Path, subfiles: int) -> None:
    """At every call of the system that the close makes: what was flushed is readable until the second close."""
    for at in range(1, 200):
        system = FaultSystem(fail_at=0, calls=CHANGING)
        path = tmp_path / f"{at}.h5"

        def job(comm: Any, system: Any = system, at: int = at, path: Path = path) -> bool:
            mine = {"system": system} if comm.rank == subfiles - 1 else {}
            f = pnc_vol.File(
                path, "w", layout="hdf5blob", comm=comm, driver="posix", subfiles=subfiles, locking=False, **mine
            )
            x = f.create_dataset("x", (4,), "i8")
            x[2 * comm.rank : 2 * comm.rank + 2] = comm.rank + 1
            f.flush()
            if mine:
                system.count, system.fail_at = 0, at
            try:
                f.close()
            except OSError:
                assert x[...].tolist() == [1, 1, 2, 2]
                f.close()
                return True
            return False

        failed = virtual_ranks.run(2, job)
        assert len(set(failed)) == 1
        with pnc_vol.File(path) as f:
            assert f["x"][...].tolist() == [1, 1, 2, 2]
        assert sorted(name for name in os.listdir(tmp_path) if str(at) in name) == [
            f"{at}.h5.{n:04d}" for n in range(subfiles)
        ]
        if not system.fired:
            break
        for name in os.listdir(tmp_path):
            os.unlink(tmp_path / name)
    assert at > 5


# ------------------------------------------------------------------------------------- the C program's files


@pytest.fixture
def c_set(tmp_path: Path) -> Path:
    for name in HDF5_BLOBS:
        (tmp_path / name).write_bytes(content(name))
    return tmp_path / HDF5_BLOBS[0].rpartition(".")[0]


def test_the_view_of_the_c_programs_blobs_is_its_canonical_file(c_set: Path, tmp_path: Path) -> None:
    (tmp_path / "canonical.nc").write_bytes(content(CANONICAL))
    with pnc_vol.File(c_set) as f, pnc_vol.File(tmp_path / "canonical.nc") as known:
        assert sorted(f) == sorted(known)
        for name in known:
            np.testing.assert_array_equal(f[name][...], known[name][...], err_msg=name)
            assert sorted(f[name].attrs) == sorted(known[name].attrs)


def test_its_replay_has_the_values_of_the_canonical_file(c_set: Path, tmp_path: Path) -> None:
    (tmp_path / "canonical.nc").write_bytes(content(CANONICAL))
    report = pnc_vol.replay(c_set, output=tmp_path / "one.nc")
    assert report.whole
    assert (report.subfiles, report.nprocs) == (2, 16)
    with pnc_vol.File(tmp_path / "one.nc") as f, pnc_vol.File(tmp_path / "canonical.nc") as known:
        for name in known:
            assert f[name][...].tobytes() == known[name][...].tobytes(), name


def test_a_subfile_that_is_missing_or_of_another_set_is_named(c_set: Path, tmp_path: Path) -> None:
    second = tmp_path / HDF5_BLOBS[1]
    second.unlink()
    with pytest.raises(FormatError, match=f"the set has 2 subfiles, and {second} is missing"):
        pnc_vol.File(c_set)
    write(tmp_path / "other.h5")
    shutil.copy(tmp_path / "other.h5.0000", second)
    with pytest.raises(FormatError, match="it does not belong to this set of subfiles"):
        pnc_vol.File(c_set)
    second.write_bytes(content(NETCDF_BLOBS[1]))
    with pytest.raises(FormatError, match="h5py cannot read this as an HDF5 blob file"):
        pnc_vol.File(c_set)
    second.write_bytes(content(HDF5_BLOBS[1])[:-8])
    with pytest.raises(FormatError, match=r"h5py cannot read this as an HDF5 blob file: .*truncated file"):
        pnc_vol.File(c_set)


def test_blobs_that_hold_the_same_elements_are_refused(c_set: Path, tmp_path: Path) -> None:
    shutil.copy(tmp_path / HDF5_BLOBS[0], tmp_path / HDF5_BLOBS[1])
    with pnc_vol.File(c_set) as f, pytest.raises(FormatError, match="both have element"):
        f["lat"][...]


@on_ranks
@pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} is missing")
def test_what_ranks_write_equals_the_c_program_byte_for_byte(tmp_path: Path) -> None:
    """But for the values of variables that are not partitioned, of which C writes another rank's to subfile 1."""
    (tmp_path / "canonical.nc").write_bytes(content(CANONICAL))
    out = tmp_path / "h1.h5"
    maps = FOLDER.parent / "map_f_case_16p.nc"
    program = PROGRAMS / "ranks_e3sm_blob.py"
    nodes = {"MPIR_CVAR_NUM_CLIQUES": "2"}
    run_mpi(16, program, out, maps, tmp_path / "canonical.nc", "hdf5blob", env=nodes, timeout=200)
    for node, name in enumerate(HDF5_BLOBS):
        with h5py.File(f"{out}.{node:04d}") as ours, h5py.File(io.BytesIO(content(name))) as theirs:
            assert ours["header_blob"][()].tobytes() == theirs["header_blob"][()].tobytes()
            a, b = ours["data_blob"][()], theirs["data_blob"][()]
        assert a.size == b.size
        assert np.array_equal(a, b) == (node == 0)
    for name in HDF5_BLOBS:
        (tmp_path / name).write_bytes(content(name))
    with pnc_vol.File(out) as ours, pnc_vol.File(tmp_path / HDF5_BLOBS[0].rpartition(".")[0]) as theirs:
        assert list(ours) == list(theirs)
        for name, values in theirs.items():
            assert ours[name][...].tobytes() == values[...].tobytes(), name
