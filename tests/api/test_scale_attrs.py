"""`CLASS`, `NAME`, `REFERENCE_LIST` and `DIMENSION_LIST` among the attributes, against h5py."""

from __future__ import annotations

import pathlib
from typing import Any

import h5py as real_h5py
import netCDF4
import numpy as np
import pytest
from run_command import verb

import pnc_vol

BOTH = pytest.mark.parametrize("impl", [pnc_vol, real_h5py], ids=["pnc_vol", "h5py"])


def written(impl: Any, path: pathlib.Path) -> pathlib.Path:
    with impl.File(path, "w") as f:
        f["x"], f["y"], f["lone"], f["attached"] = [1.0, 2.0, 3.0], [4.0, 5.0], [1, 2], [1, 2, 3]
        f["x"].make_scale("place")
        f["y"].make_scale("y")
        f["lone"].make_scale("lone")
        f["x"].attrs["units"] = "m"
        d = f.create_dataset("g/d", (3, 2, 3), "f4")
        d.attrs["a"], d.attrs["z"] = 1, 2
        d.dims[0].attach_scale(f["x"])
        d.dims[2].attach_scale(f["x"])
        d.dims[2].attach_scale(f["attached"])
        e = f.create_dataset("e", (2,), "f4")
        e.dims[0].attach_scale(f["y"])
        f["plain"] = [1, 2]
    return path


def form(dtype: np.dtype[Any]) -> Any:
    """A type with its metadata, the class of references named alike."""
    if dtype.names is not None:
        return {name: (form(dtype[name]), dtype.fields[name][1]) for name in dtype.names}, dtype.itemsize  # type: ignore[index]
    metadata = dict(dtype.metadata or {})
    metadata.pop("h5py_encoding", None)
    return dtype.str, {key: getattr(value, "__name__", str(value)) for key, value in metadata.items()}


def followed(file: Any, value: Any) -> Any:
    """A value with names of objects for references."""
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [(file[ref].name, int(axis)) for ref, axis in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [[file[ref].name for ref in row] for row in value]
    return type(value).__name__, value, value.dtype


def looked_at(impl: Any, path: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with impl.File(path, "r") as f:
        for name in ("x", "y", "lone", "attached", "g/d", "e", "plain"):
            attrs = f[name].attrs
            found[name] = list(attrs), len(attrs), sorted(attrs.keys())
            for key in ("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST"):
                assert (key in attrs) == (key in list(attrs)) == (attrs.get(key) is not None)
                if key in attrs:
                    info = attrs.get_id(key)
                    found[f"{name}@{key}"] = followed(f, attrs[key]), info.shape, form(info.dtype)
                else:
                    with pytest.raises(KeyError):
                        attrs[key]
        assert "CLASS" not in f.attrs
        assert "CLASS" not in f["g"].attrs
    return found


def test_they_are_what_h5py_shows(tmp_path: pathlib.Path) -> None:
    ours = looked_at(pnc_vol, written(pnc_vol, tmp_path / "x.nc"))
    theirs = looked_at(real_h5py, written(real_h5py, tmp_path / "x.h5"))
    assert ours["g/d"][0] == ["DIMENSION_LIST", "a", "z"]
    assert ours == theirs


def test_nothing_is_stored(tmp_path: pathlib.Path) -> None:
    path = written(pnc_vol, tmp_path / "x.nc")
    with pnc_vol.File(path, "r+") as f:
        f["x"].attrs["more"] = 1
        assert list(f["x"].attrs) == ["CLASS", "NAME", "REFERENCE_LIST", "more", "units"]
    with netCDF4.Dataset(path) as data:
        names = {name for variable in data.variables.values() for name in variable.ncattrs()}
    assert names == {"a", "z", "units", "more", "pnc_vol_hdf5"}


@BOTH
def test_assigning_and_deleting_change_the_scales(impl: Any, tmp_path: pathlib.Path) -> None:
    with impl.File(written(impl, tmp_path / "x"), "r+") as f:
        d, x, y = f["g/d"], f["x"], f["y"]
        x.attrs.create("NAME", b"renamed", dtype="S8")
        assert d.dims[0].keys() == ["renamed"]
        del x.attrs["NAME"]
        assert d.dims[0].keys() == [""]
        assert "NAME" not in x.attrs
        del d.attrs["DIMENSION_LIST"]
        assert [len(dim) for dim in d.dims] == [0, 0, 0]
        assert "DIMENSION_LIST" not in d.attrs
        y.attrs["CLASS"] = "IMAGE"
        assert not y.is_scale
        assert y.attrs["CLASS"] == "IMAGE"
        f["lone"].attrs.clear()
        assert list(f["lone"].attrs) == []
        assert not f["lone"].is_scale
        with pytest.raises(KeyError):
            del f["lone"].attrs["CLASS"]


def test_a_scale_may_have_an_empty_name_or_none(tmp_path: pathlib.Path) -> None:
    shown = []
    for impl in (real_h5py, pnc_vol):
        with impl.File(tmp_path / impl.__name__, "w") as f:
            f["default"], f["empty"], f["attached"], f["named"], f["d"] = (np.arange(2.0) for _ in range(5))
            f["default"].make_scale()
            f["empty"].make_scale("")
            f["named"].make_scale("n")
            for name in ("attached", "default", "named"):
                f["d"].dims[0].attach_scale(f[name])
            f.copy("attached", "copied")
        with impl.File(tmp_path / impl.__name__) as f:
            names = {name: f[name].attrs.get("NAME") for name in f}
            shown.append((names, f["d"].dims[0].keys(), [f[name].is_scale for name in f], f["d"].dims[0][""].name))
    assert shown[0] == shown[1]
    assert shown[0][0] == {"d": None, "default": b"", "empty": b"", "attached": None, "copied": None, "named": b"n"}


def test_a_scale_is_made_by_its_attributes(tmp_path: pathlib.Path) -> None:
    """h5py writes a text of another padding than HDF5 asks for, so that it cannot do this without low-level calls."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"], f["y"], f["e"] = [1.0, 2.0], [3.0, 4.0], [0, 0]
        f["x"].attrs["NAME"], f["x"].attrs["CLASS"] = "first", "DIMENSION_SCALE"
        f["y"].attrs["CLASS"], f["y"].attrs["NAME"] = np.bytes_(b"DIMENSION_SCALE"), np.bytes_(b"second")
        for name in ("x", "y"):
            assert f[name].is_scale
            f["e"].dims[0].attach_scale(f[name])
        with pytest.raises(RuntimeError, match="detach them first"):
            f["e"].attrs["CLASS"] = "DIMENSION_SCALE"
    with pnc_vol.File(path) as f:
        assert f["e"].dims[0].keys() == ["first", "second"]
        assert list(f["x"].attrs) == ["CLASS", "NAME", "REFERENCE_LIST"]


@BOTH
def test_other_objects_may_have_attributes_of_these_names(impl: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    with impl.File(path, "w") as f:
        f["image"] = np.zeros((2, 2))
        for owner in (f, f["image"], f.create_group("g")):
            owner.attrs["CLASS"], owner.attrs["NAME"], owner.attrs["REFERENCE_LIST"] = "IMAGE", "a name", 3
            owner.attrs.modify("NAME", "another")
    with impl.File(path, "r+") as f:
        for owner in (f, f["image"], f["g"]):
            assert dict(owner.attrs) == {"CLASS": "IMAGE", "NAME": "another", "REFERENCE_LIST": 3}
            del owner.attrs["NAME"]
            assert list(owner.attrs) == ["CLASS", "REFERENCE_LIST"]


def test_attributes_are_copied_one_by_one(tmp_path: pathlib.Path) -> None:
    """``for name, value in a.attrs.items(): b.attrs[name] = value`` makes the same scales and attachments."""
    with pnc_vol.File(written(pnc_vol, tmp_path / "x.nc"), "r+") as f:
        f["x2"], f["d2"] = f["x"][...], f["g/d"][...]
        for source, target in (("x", "x2"), ("g/d", "d2")):
            for name, value in f[source].attrs.items():
                f[target].attrs[name] = value
        assert f["x2"].is_scale
        assert [dim.keys() for dim in f["d2"].dims] == [["place"], [], ["place", ""]]
        assert list(f["d2"].attrs) == list(f["g/d"].attrs)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x2"].attrs["NAME"] == b"place"
        assert [dim.keys() for dim in f["d2"].dims] == [["place"], [], ["place", ""]]


def test_a_coordinate_variable_of_another_program_shows_them(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("lat", 2)
        file.createVariable("lat", "f4", ("lat",)).CLASS = "of its own"
        file.createVariable("t", "f4", ("lat",)).units = "K"
    with pnc_vol.File(path, "r") as f:
        assert list(f["t"].attrs) == ["DIMENSION_LIST", "units"]
        assert f[f["t"].attrs["DIMENSION_LIST"][0][0]] == f["lat"]
        assert (f["lat"].attrs["CLASS"], f["lat"].attrs["NAME"]) == ("of its own", b"lat")
        assert list(f["lat"].attrs) == ["CLASS", "NAME", "REFERENCE_LIST"]


def test_with_tracked_order_and_read_only(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        x = f.create_dataset("x", data=[1.0], track_order=True)
        x.attrs["z"], x.attrs["a"] = 1, 2
        x.make_scale("x")
    with pnc_vol.File(path, "r") as f:
        assert list(f["x"].attrs) == ["CLASS", "NAME", "z", "a"]
        with pytest.raises(KeyError):
            del f["x"].attrs["NAME"]
        with pytest.raises(OSError):
            f["x"].attrs["NAME"] = "y"


def test_tools_do_not_show_or_compare_them(tmp_path: pathlib.Path) -> None:
    """They are no attributes of the file: what they say is shown as scales."""
    path = written(pnc_vol, tmp_path / "x.nc")
    out = verb("ls", "-v", path, code=0).out
    assert "@units" in out
    assert "CLASS" not in out
    assert "DIMENSION_LIST" not in out
    verb("convert", path, tmp_path / "x.h5", code=0)
    with real_h5py.File(tmp_path / "x.h5") as f:
        assert sorted(f["x"].attrs) == ["CLASS", "NAME", "REFERENCE_LIST", "units"]
        assert f["g/d"].dims[0].keys() == ["place"]
    verb("diff", path, tmp_path / "x.h5", code=0)
