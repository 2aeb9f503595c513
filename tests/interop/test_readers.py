"""Which programs read which versions: what a check says of programs, asked of the programs themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import raw
from run_command import verb

import pnc_vol

VERSIONS = (1, 2, 5)
READ = {"scipy": (1, 2), "netcdf4": VERSIONS, "pnetcdf": VERSIONS, "gdal": (1, 2), "h5py": (), "h5netcdf": ()}
"""The versions that each program reads."""


def by_scipy(path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    with scipy_io.netcdf_file(path, mmap=False) as file:
        assert file.variables["a"][:].tolist() == [[0, 1, 2], [3, 4, 5]]


def by_netcdf4(path: Path) -> None:
    with pytest.importorskip("netCDF4").Dataset(path) as file:
        assert file["a"][:].tolist() == [[0, 1, 2], [3, 4, 5]]


def by_xarray(engine: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        xarray = pytest.importorskip("xarray")
        pytest.importorskip(engine if engine != "netcdf4" else "netCDF4")
        with xarray.open_dataset(path, engine=engine) as data:
            assert data["a"].values.tolist() == [[0, 1, 2], [3, 4, 5]]

    return read


def by_h5py(path: Path) -> None:
    with pytest.importorskip("h5py").File(path):
        pass


PROGRAMS: list[tuple[str, str, Callable[[Path], None]]] = [
    ("scipy", "scipy", by_scipy),
    ("scipy", "xarray-scipy", by_xarray("scipy")),
    ("netcdf4", "netCDF4", by_netcdf4),
    ("netcdf4", "xarray", by_xarray("netcdf4")),
    ("netcdf4", "ncdump", lambda path: raw("ncdump", str(path))),
    ("pnetcdf", "ncvalidator", lambda path: raw("ncvalidator", "-q", str(path))),
    ("gdal", "gdalinfo", lambda path: raw("gdalinfo", "-stats", f"NETCDF:{path}:a")),
    ("h5py", "h5py", by_h5py),
    ("h5netcdf", "xarray-h5netcdf", by_xarray("h5netcdf")),
]


def written(path: Path, version: int) -> Path:
    with pnc_vol.File(path, "w", format=f"CDF-{version}") as f:
        f["a"] = np.arange(6, dtype="f4").reshape(2, 3)
    return path


@pytest.mark.parametrize(
    ("name", "read"),
    [
        # h5netcdf is installed for the services only: xarray would find one engine more in all other tests.
        pytest.param(name, read, id=program, marks=[pytest.mark.services] if name == "h5netcdf" else [])
        for name, program, read in PROGRAMS
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_programs_read_what_the_table_says(
    name: str, read: Callable[[Path], None], version: int, tmp_path: Path
) -> None:
    path = written(tmp_path / "a.nc", version)
    if version in READ[name]:
        read(path)
        assert pnc_vol.check(path, readers=[name]) == []
    else:
        with pytest.raises((OSError, ValueError, IndexError, TypeError, AssertionError)):
            read(path)
        assert {finding.field for finding in pnc_vol.check(path, readers=[name])} == {name}


def check(*arguments: Any) -> tuple[int, str]:
    done = verb("check", *arguments)
    return done.code, done.out + done.err


def test_check_says_what_to_change(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", 5)
    code, said = check("--for", "gdal", "--for", "netcdf4", path)
    assert code == 1
    assert "a.nc: valid, 0 errors" in said
    assert "for netcdf4: readable" in said
    assert "for gdal: gdal reads CDF-1 and CDF-2, and this file is CDF-5" in said
    assert "format='CDF-2'" in said
    command = said.partition("or use '")[2].partition("'")[0]
    assert command == "pnc-vol repack --format CDF-2 FILE NEW"
    new = tmp_path / "new.nc"
    verb(*command.split()[1:-2], path, new, code=0)
    assert check("-q", "--for", "gdal", "--for", "scipy", new) == (0, "")


def test_what_cdf2_cannot_hold_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with pnc_vol.File(path, "w") as f:
        f["n"], f["u"], f["ok"] = np.int64(1), np.arange(3, dtype="u2"), np.float32(1)
        f.attrs["count"] = 3
        f["ok"].attrs["big"] = np.uint64(1)
    code, said = check("--for", "scipy", path)
    assert code == 1
    assert "variable 'n': CDF-2 has no type int64" in said
    for what in ("variable 'u'", "global attribute 'count'", "attribute 'big' of variable 'ok'"):
        assert f"{what}: CDF-2 has no type" in said
    assert "repack" not in said
    assert "CDF-5'" not in said


def test_a_program_that_nobody_knows(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", 2)
    assert check("--for", "matlab", path)[0] == 2
    with pytest.raises(ValueError, match="unknown program 'matlab'; known are netcdf4"):
        pnc_vol.check(path, readers=["matlab"])


def test_the_table_of_the_docs_has_them_all(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/howto/other-programs.md").read_text()
    with pytest.raises(ValueError, match="known are") as told:
        pnc_vol.check(written(tmp_path / "a.nc", 2), readers=["matlab"])
    known = re.findall(r"[\w-]+", str(told.value).partition("known are ")[2])
    assert set(READ) <= set(known)
    assert [name for name in known if f"`{name}`" not in text] == []
