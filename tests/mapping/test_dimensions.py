"""Which dimensions axes without a name get, and that two axes of a variable never share one of these."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py as real_h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pnc_vol as h5py

netCDF4 = pytest.importorskip("netCDF4")

SHAPES = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6)


def dimensions(path: Path) -> dict[str, tuple[str, ...]]:
    with netCDF4.Dataset(path) as data:
        return {name: variable.dimensions for name, variable in data.variables.items()}


def made(path: Path, shapes: dict[str, tuple[int, ...]], **knobs: Any) -> Path:
    with h5py.File(path, "w") as f:
        for name, shape in shapes.items():
            f.create_dataset(name, shape, "i4", **knobs)
    return path


def test_squares_share_two_dimensions(tmp_path: Path) -> None:
    shapes = {"a": (3, 3), "b": (3,), "c": (3, 3), "cube": (3, 3, 3), "d": (2, 3, 2)}
    assert dimensions(made(tmp_path / "x.nc", shapes)) == {
        "a": ("dim_3", "dim_3_2"),
        "b": ("dim_3",),
        "c": ("dim_3", "dim_3_2"),
        "cube": ("dim_3", "dim_3_2", "dim_3_3"),
        "d": ("dim_2", "dim_3", "dim_2_2"),
    }
    with h5py.File(tmp_path / "x.nc") as f:
        assert [[dim.label for dim in f[name].dims] for name in shapes] == [[""] * len(s) for s in shapes.values()]


@given(shapes=SHAPES)
def test_they_are_shared_as_by_netcdf4(shapes: list[tuple[int, ...]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The netCDF-4 library makes up dimensions for an HDF5 file with the same datasets: the same up to their names."""
    folder = tmp_path_factory.mktemp("phony")
    named = {f"v{i}": shape for i, shape in enumerate(shapes)}
    with real_h5py.File(folder / "x.h5", "w") as f:
        for name, shape in named.items():
            f.create_dataset(name, shape, "i4")
    with netCDF4.Dataset(folder / "x.h5") as file:
        theirs = {name: file[name].dimensions for name in named}
    ours = dimensions(made(folder / "x.nc", named))
    pairs = {(a, b) for name in named for a, b in zip(ours[name], theirs[name], strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    assert all(len(set(names)) == len(names) for names in ours.values())


def test_xarray_has_nothing_to_warn_of(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    path = made(tmp_path / "x.nc", {"a": (3, 3), "b": (2, 3, 2)})
    with h5py.File(path, "r+") as f:
        f["a"][...] = np.arange(9).reshape(3, 3)
        f.create_dataset("arrays", (3,), "(3,3)f8")
        f.create_dataset("fields", (3,), [("x", "f4", (3, 3))])
        f.create_dataset("growing", (3, 3), "f4", maxshape=(None, None)).resize((4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xarray.open_dataset(path, engine="netcdf4") as data:
            assert data["a"].dims == ("dim_3", "dim_3_2")
            assert data["a"].sum("dim_3_2").values.tolist() == [3, 12, 21]
            data.load()


def test_a_new_length_does_not_bring_two_axes_together(tmp_path: Path) -> None:
    path = made(tmp_path / "x.nc", {"a": (3, 4)}, maxshape=(9, 9))
    for shape in ((4, 4), (4, 3), (3, 3), (5, 4)):
        with h5py.File(path, "r+") as f:
            f["a"].resize(shape)
        names = dimensions(path)["a"]
        assert len(set(names)) == 2
        # and no dimension is called after a length that it does not have
        assert [name.split("_")[1] for name in names] == [str(n) for n in shape]
        with h5py.File(path) as f:
            assert [dim.label for dim in f["a"].dims] == ["", ""]


def test_a_file_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as file:
        file.createDimension("dim_3", 3)
        file.createVariable("a", "i4", ("dim_3", "dim_3"))[:] = np.arange(9).reshape(3, 3)
    with h5py.File(path, "r+") as f:
        f["a"].attrs["units"] = "m"
        f.create_dataset("b", (3, 3), "i4")
    assert dimensions(path) == {"a": ("dim_3", "dim_3"), "b": ("dim_3", "dim_3_2")}


def test_labels_and_scales_say_which_dimension(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as f:
        f["x"] = [1.0, 2.0, 3.0]
        f["x"].make_scale("x")
        for name in ("covariance", "one", "labels", "label"):
            f.create_dataset(name, (3, 3), "i4")
        for axis in (0, 1):
            f["covariance"].dims[axis].attach_scale(f["x"])
            f["labels"].dims[axis].label = "y"
        f["one"].dims[1].attach_scale(f["x"])
        f["label"].dims[1].label = "dim_3"
    assert dimensions(path) == {
        "x": ("x",),
        "covariance": ("x", "x"),
        "one": ("dim_3", "x"),
        "labels": ("y", "y"),
        "label": ("dim_3_2", "dim_3"),
    }


def test_parts_and_hidden_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as f:
        f.create_dataset("arrays", (2,), "(2,2)i4")[...] = np.arange(8).reshape(2, 2, 2)
        f.create_dataset("fields", (3,), [("x", "f4", (3,)), ("s", "S3")])
        f.create_dataset("strings", (3, 3), "S3")
    assert dimensions(path) == {
        "arrays": ("dim_2", "array_2", "array_2_2"),
        "fields": (),
        "fields_x": ("dim_3", "array_3"),
        "fields_s": ("dim_3", "strlen_3"),
        "strings": ("dim_3", "dim_3_2", "strlen_3"),
    }
    with h5py.File(path, "r+") as f:
        f.attrs["changed"] = 1
    with h5py.File(path) as f:
        assert f["arrays"].shape == (2,)
        assert f["arrays"][1].tolist() == [[4, 5], [6, 7]]
        assert f["fields"].dtype["x"].shape == (3,)


FOREIGN: list[tuple[dict[str, int | None], dict[str, tuple[str, ...]], str]] = [
    ({"time": None, "n": 3}, {"y": ("time",), "time": ("n",)}, "time"),
    ({"time": None, "n": 3}, {"y": ("n",)}, "time"),
    ({"record": 3, "dim_2": 5}, {"y": ("record",), "z": ("dim_2",)}, "record_2"),
]


@pytest.mark.parametrize(("dims", "variables", "record"), FOREIGN)
def test_dimensions_of_other_programs_keep_their_names_when_records_come(
    dims: dict[str, int | None], variables: dict[str, tuple[str, ...]], record: str, tmp_path: Path
) -> None:
    path = tmp_path / "foreign.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as data:
        for name, size in dims.items():
            data.createDimension(name, size)
        for name, its in variables.items():
            data.createVariable(name, "i4", its)
    with h5py.File(path, "r+") as f:
        f.create_dataset("new", (1, 2), "f4", maxshape=(None, 2))
    found = dimensions(path)
    assert found == variables | {"new": (record, "dim_2_2" if "dim_2" in dims else "dim_2")}
