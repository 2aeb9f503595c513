"""What a set of subfiles says of itself and what cannot be is refused by name: headers, maps, names that are taken.

Subfiles are made by two ranks and changed by netCDF4; `tests/blob/test_damaged_sets.py` has every damage of a set.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import virtual_ranks

import pnc_vol
from pnc_vol.errors import FormatError

RUNS = (([0, 4], [2, 1]), ([2], [2]))
"""What each rank owns of six elements; the last one is in no blob."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A set of one subfile with two blobs, one map, and a supplement."""

    def job(comm: Any) -> None:
        mine = pnc_vol.Decomposition.from_runs(*RUNS[comm.rank], (6,))
        with pnc_vol.File(tmp_path / "out.nc", "w", layout="blob", driver="posix", comm=comm, subfiles=1) as f:
            f.create_dataset("t", (2, 6), "f8", maxshape=(None, 6), decomposition=mine)
            f["s"] = 7
            f.flush()
            if comm.rank == 0:
                f["t"][0] = np.arange(6.0)

    virtual_ranks.run(2, job)
    return tmp_path / "out.nc"


class Parts:
    """The definitions of a subfile, to be changed."""

    def __init__(self, nc: Any) -> None:
        self.dims = {name: None if dim.isunlimited() else len(dim) for name, dim in nc.dimensions.items()}
        self.attrs = {name: nc.getncattr(name) for name in nc.ncattrs()}
        self.vars = {
            name: [name, var.dtype, list(var.dimensions), {key: var.getncattr(key) for key in var.ncattrs()}]
            for name, var in nc.variables.items()
        }


def rewritten(path: Path, change: Callable[[Parts], object]) -> None:
    """Make the only subfile of a set anew, with changed definitions."""
    subfile = Path(f"{path}.0000")
    with netCDF4.Dataset(subfile) as nc:
        parts = Parts(nc)
    change(parts)
    subfile.unlink()
    with netCDF4.Dataset(subfile, "w", format="NETCDF3_64BIT_DATA") as nc:
        nc.setncatts(parts.attrs)
        for name, size in parts.dims.items():
            nc.createDimension(name, size)
        for name, dtype, dims, attrs in parts.vars.values():
            nc.createVariable(name, dtype, dims, fill_value=False).setncatts(attrs)


def renamed(dim: str) -> Callable[[Parts], object]:
    def change(parts: Parts) -> None:
        parts.dims = {"other" if name == dim else name: size for name, size in parts.dims.items()}
        for var in parts.vars.values():
            var[2] = ["other" if name == dim else name for name in var[2]]

    return change


def of_file(**attrs: Any) -> Callable[[Parts], object]:
    return lambda parts: parts.attrs.update(attrs)


def of_var(called: str, at: int, value: Any) -> Callable[[Parts], object]:
    return lambda parts: parts.vars[called].__setitem__(at, value)


def attr_of(called: str, **attrs: Any) -> Callable[[Parts], object]:
    return lambda parts: parts.vars[called][3].update(attrs)


def i4(*values: int) -> Any:
    return np.array(values, "i4")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda parts: parts.attrs.pop("num_subfiles"), "attribute 'num_subfiles'"),
        (of_file(num_subfiles=i4(0)), "attribute 'num_subfiles'"),
        (of_file(num_decompositions=i4(4)), "attribute 'num_decompositions'"),
        (of_file(num_decompositions=i4(-1)), "attribute 'num_decompositions'"),
        (of_file(global_nprocs="x"), "attribute 'global_nprocs'"),
        (renamed("nblobs"), "dimension 'nblobs'"),
        (renamed("D1.nelems"), "dimension 'D1.nelems'"),
        (renamed("D1.max_nreqs"), "dimension 'D1.max_nreqs'"),
        (renamed("D1.supplement"), "dimension 'D1.supplement'"),
        (of_var("D1.blob_count", 0, "other"), "variable 2"),
        (of_var("D1.offsets", 2, ["nblobs"]), "the shape of the variable 'D1.offsets'"),
        (of_var("D1.lengths", 1, "f8"), "the type of the variable 'D1.lengths'"),
        (attr_of("D1.nreqs", global_dimids=i4(9)), "attribute 'global_dimids' of 'D1.nreqs'"),
        (attr_of("D1.nreqs", global_dimids=i4(0)), "attribute 'global_dimids' of 'D1.nreqs'"),
        (attr_of("t", global_dimids=i4(-1)), "attribute 'global_dimids' of 't'"),
        (attr_of("t", global_dimids=i4(0)), "attribute 'global_dimids' of 't'"),
        (attr_of("t", decomposition_ID=i4(2)), "attribute 'decomposition_ID' of 't'"),
        (attr_of("t", decomposition_ID=i4(1, 1)), "attribute 'decomposition_ID' of 't'"),
        (of_var("t", 2, ["nblobs"]), "the shape of the variable 't'"),
        (of_var("s", 2, ["nblobs"]), "the shape of the variable 's'"),
        (attr_of("t.supplement", supplement_of=i4(1)), "attribute 'supplement_of' of 't.supplement'"),
        (of_var("t.supplement", 1, "f4"), "attribute 'supplement_of' of 't.supplement'"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused_and_the_object_is_named(
    path: Path, change: Callable[[Parts], object], field: str
) -> None:
    rewritten(path, change)
    with pytest.raises(FormatError) as caught:
        pnc_vol.File(path, layout="blob")
    assert str(caught.value).startswith(f"{path}.0000: ")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "at", "value", "said"),
    [
        ("nreqs", 0, 3, r"nreqs\[0\] is 3"),
        ("nreqs", 1, -1, r"nreqs\[1\] is -1"),
        ("blob_start", 1, 4, r"blob_start\[1\] is 4"),
        ("blob_count", 1, 1, r"blob_count\[1\] is 1"),
        ("offsets", (0, 1), 6, r"offsets\[0\] is 6: run 1"),
        ("offsets", (1, 0), -1, r"offsets\[1\] is -1"),
        ("lengths", (0, 1), -1, r"lengths\[0\] is -1"),
        ("lengths", (0, 1), 2**31 - 1, r"offsets\[0\] is 4"),
    ],
)
def test_map_variables_that_contradict_each_other_are_refused(
    path: Path, name: str, at: Any, value: int, said: str
) -> None:
    with netCDF4.Dataset(f"{path}.0000", "r+") as nc:
        nc[f"D1.{name}"][at] = value
    with pytest.raises(FormatError, match=said) as caught, pnc_vol.File(path) as f:
        f["t"][...]
    assert str(caught.value).startswith(f"{path}.0000: D1.")


@pytest.mark.parametrize(
    "define",
    [
        lambda f: f.create_dimension("nblobs", 3),
        lambda f: f.create_dimension("D1.nelems", 3),
        lambda f: f.create_dataset("D1.offsets", (3,), "f8"),
        lambda f: f["t"].attrs.__setitem__("decomposition_ID", 1),
        lambda f: f.attrs.__setitem__("num_subfiles", 1),
    ],
)
def test_names_of_the_subfile_are_refused(path: Path, define: Callable[[Any], object]) -> None:
    with (
        pytest.raises(pnc_vol.DefinitionError, match="The blob layout needs the name of"),
        pnc_vol.File(path, "r+", separator="..") as f,
    ):
        define(f)
    assert not f


def test_elements_of_two_blobs_name_both(path: Path) -> None:
    with netCDF4.Dataset(f"{path}.0000", "r+") as nc:
        nc["D1.offsets"][1, 0] = 1
    both = "subfile 0000, blob 1 and subfile 0000, blob 0 both have element 1"
    with pytest.raises(FormatError) as caught, pnc_vol.File(path) as f:
        f["t"][...]
    assert str(caught.value) == f"{path}: D1: {both}; of 6 elements 4 are in blobs, 2 in none, 1 in several"


def test_offsets_beyond_int32_take_int64(tmp_path: Path) -> None:
    far = pnc_vol.Decomposition.from_runs([1 << 39], [5], (1 << 20, 1 << 20))
    with pnc_vol.File(tmp_path / "x.nc", "w", layout="blob") as f:
        f.create_dataset("v", (1 << 20, 1 << 20), "i1", decomposition=far)[1 << 19, :5] = 7
    with netCDF4.Dataset(tmp_path / "x.nc.0000") as nc:
        assert nc["D1.offsets"].dtype == "i8"
        assert nc["D1.offsets"][...].tolist() == [[1 << 39]]
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["v"][1 << 19, :7].tolist() == [7] * 5 + [0, 0]


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_set_without_its_first_subfile_is_not_told_as_a_file_that_never_was(tmp_path: Path, mode: str) -> None:
    def job(comm: Any) -> None:
        options = {"layout": "blob", "driver": "posix", "comm": comm, "subfiles": 2}
        with pnc_vol.File(tmp_path / "a[1].nc", "w", **options) as f:
            f.create_dataset("t", (2, 3), "f8")[comm.rank] = 1

    virtual_ranks.run(2, job)
    (tmp_path / "a[1].nc.0000").unlink()
    with pytest.raises(FileNotFoundError, match="the first file of this set of subfiles is missing"):
        pnc_vol.File(tmp_path / "a[1].nc", mode)
    assert not (tmp_path / "a[1].nc").exists()
    if mode != "a":
        with pytest.raises(FileNotFoundError, match="there is no such file"):
            pnc_vol.File(tmp_path / "a1.nc", mode)
