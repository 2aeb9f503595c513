"""Files that claim far more than they hold: refused with the numbers, or read in bounded memory."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from other_process import fresh, status
from run_command import verb

import pnc_vol
from pnc_vol.convert.hdf5 import convert
from pnc_vol.errors import FormatError, LimitError, ShortFileError

pytestmark = pytest.mark.filterwarnings("ignore::pnc_vol.errors.PncVolWarning")
HUGE = 1 << 40


def header_alone(path: Path) -> Path:
    """A file is cut where its only variable begins."""
    with pnc_vol.File(path) as f:
        (name,) = f
        begin = f[name].id.get_offset()
    os.truncate(path, begin)
    return path


@pytest.fixture
def sparse_netcdf(tmp_path: Path) -> Path:
    with pnc_vol.File(tmp_path / "s.nc", "w", header_reserve=0) as f:
        f.create_dataset("x", (HUGE,), "f8")
    return header_alone(tmp_path / "s.nc")


@pytest.fixture
def sparse_hdf5(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "s.h5", "w") as f:
        f.create_dataset("chunked", (HUGE,), "f8", chunks=(1 << 16,), maxshape=(None,))
        f["chunked"][5] = 1.0
    return tmp_path / "s.h5"


@pytest.fixture
def limited() -> Any:
    """No file may become longer than 32 MiB: a failure here must not fill a disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_convert_refuses_what_is_not_there_or_does_not_fit(
    sparse_netcdf: Path, sparse_hdf5: Path, limited: Any
) -> None:
    for source in (sparse_netcdf, sparse_hdf5):
        target, claimed = source.with_suffix(".out"), 8 * HUGE
        with pytest.raises(LimitError, match="--allow-sparse") as told:
            convert(source, target)
        assert f"claims {claimed} bytes of values, and the file has {source.stat().st_size};" in str(told.value)
        with pytest.raises(OSError, match=f"{claimed} bytes of values are to be written, and .* are free") as caught:
            convert(source, target, allow_sparse=True)
        assert caught.value.errno == errno.ENOSPC
        assert not target.exists()


def test_a_sparse_file_is_converted_if_that_is_allowed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", (9, 1 << 20), "f8", chunks=(1, 1 << 12), fillvalue=3)[8, -1] = 1
    with pytest.raises(LimitError, match="'/x'"):
        convert(tmp_path / "a.h5", tmp_path / "a.nc")
    convert(tmp_path / "a.h5", tmp_path / "a.nc", allow_sparse=True)
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert f["x"][8, -2:].tolist() == [3, 1]


def test_honest_files_are_not_refused(tmp_path: Path) -> None:
    class Begun(Exception): ...

    def begun(*told: Any) -> None:
        raise Begun

    with h5py.File(tmp_path / "a.h5", "w") as f:
        # packed a thousand times, half written, and small but empty
        f.create_dataset("packed", data=np.zeros(12 << 20, "f8"), chunks=(1 << 20,), compression="gzip")
        f.create_dataset("later", (7 << 20,), "f8", chunks=(1 << 16,))
    with pytest.raises(Begun):
        convert(tmp_path / "a.h5", tmp_path / "a.nc", progress=begun)
    assert os.listdir(tmp_path) == ["a.h5"]
    (tmp_path / "a.h5").unlink()


def test_one_long_string_among_many(tmp_path: Path, limited: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as f:
        texts = f.create_dataset("t", (1000,), h5py.string_dtype())
        texts[:] = "short"
        texts[500] = "x" * (1 << 20)
    with pytest.raises(LimitError, match=r"/t have .* bytes; in NetCDF all get the width of the longest"):
        convert(tmp_path / "a.h5", tmp_path / "a.nc")
    assert not (tmp_path / "a.nc").exists()


@pytest.mark.parametrize(("name", "files", "code"), [("dump", 1, 1), ("diff", 2, 2)])
def test_dump_and_diff_end(name: str, files: int, code: int, sparse_netcdf: Path) -> None:
    assert f"claims {8 * HUGE} bytes" in verb(name, *[sparse_netcdf] * files, code=code).err
    verb(name, "-h", *[sparse_netcdf] * files, code=0)


# ------------------------------------------------------------------------------------------- rows, wide strings


def first_and_last(*paths: str) -> None:
    """In a process of its own, which may have little memory besides what its libraries take."""
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + (300 << 20), -1))
    for path in paths:
        with pnc_vol.File(path) as f:
            print(len(f["r"]), f["r"][0], f["r"][-1])


def ragged_claiming(path: Path, rows: int) -> None:
    """A file of a few hundred bytes whose header says that a dataset of varying length has so many rows."""
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", (1,), "i1")[0] = 1
        f.create_dataset("r", (0,), pnc_vol.vlen_dtype("i4"), maxshape=(None,))
    data = bytearray(path.read_bytes())
    data[4:12] = rows.to_bytes(8, "big")
    path.write_bytes(data.replace(b'"len":0', b'"lex":0'))


def test_rows_that_a_header_claims_take_no_memory(tmp_path: Path) -> None:
    claims = (80 << 20, 1 << 30)
    for rows in claims:
        ragged_claiming(tmp_path / f"{rows}.nc", rows)
    done = fresh(first_and_last, *(tmp_path / f"{rows}.nc" for rows in claims))
    assert done.stdout.splitlines() == [f"{rows} [] []" for rows in claims], done.stderr[-2000:]


def test_rows_that_are_written_are_compared_with_the_file(tmp_path: Path) -> None:
    ragged_claiming(tmp_path / "a.nc", 1 << 30)
    with pnc_vol.File(tmp_path / "a.nc", "r+") as f:
        assert f["r"].shape == (1 << 30,)
        with pytest.raises(FormatError, match="claims 1073741824 rows"):
            f["r"][5] = [1]
        assert f["r"][7].tolist() == []


def test_an_element_longer_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as data:
        data.createDimension("n", 2)
        data.createDimension("width", 16)
        data.createVariable("t", "S1", ("n", "width")).setncattr("_Encoding", "utf-8")
    short, long = (b"width\0\0\0" + size.to_bytes(8, "big") for size in (16, 1 << 30))
    header_alone(path).write_bytes(path.read_bytes().replace(short, long))
    with pnc_vol.File(path) as f:
        assert f["t"].shape == (2,)
        with pytest.raises(ShortFileError, match="an element has 1073741824 bytes"):
            f["t"][0]


# ------------------------------------------------------------------------------------------- more axes than arrays have


def test_a_variable_with_more_axes_than_arrays_have(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as data:
        for i in range(65):
            data.createDimension(f"d{i}", 1)
        data.createVariable("v", "f8", [f"d{i}" for i in range(65)])
    path.write_bytes(path.read_bytes()[:-8] + np.array(7, ">f8").tobytes())
    with pnc_vol.File(path, "r+") as f:
        ds = f["v"]
        assert ds[(0,) * 65] == 7
        assert ds[0].ndim == 64
        for use in (
            lambda: ds[...],
            lambda: ds[()],
            lambda: np.asarray(ds),
            lambda: ds.iget(()),
            lambda: ds.astype("f4")[()],
            lambda: ds.__setitem__(..., 1.0),
            lambda: ds.iput((), np.zeros(1)),
        ):
            with pytest.raises(ValueError, match="has 65 axes, and arrays have at most"):
                use()
