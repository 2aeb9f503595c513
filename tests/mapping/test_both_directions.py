"""What a user defines comes back from the file: nothing is lost, nothing foreign is refused, no marker is trusted."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import everything
import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import assert_valid, tool

import pnc_vol as h5py

# ------------------------------------------------------------------------------------------- random files

NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "a_b", "A", "x", "dim_3", "record", "strlen_2", "_pfnc_complex", "a b ", ".x", "é", "e\u0301",
         "pnc_vol_hdf5"]
    ),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=5),
    st.integers(250, 400).map(lambda n: "n" * n),
).filter(lambda name: name not in (".", ".."))  # fmt: skip
DTYPES = st.sampled_from(
    ["i1", "u1", "<i4", ">i4", "i8", "u8", "f4", "f8", ">f8", "f2", ">f2", "?", "c8", "c16", ">c8", "S1", "S3",
     h5py.string_dtype(), h5py.string_dtype("ascii"), h5py.string_dtype("utf-8", 4),
     h5py.enum_dtype({"a b": 0, "é": 3}, "i1"), h5py.enum_dtype({"R": -5}, ">i4"), h5py.enum_dtype({})]
)  # fmt: skip
VALUES = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4),
    st.sampled_from([b"", b"\xff", 1, True, 1.5, 2j, [], [[1, 2]], [1], ["a", "b, c"], [b"x"], [["p"], ["qq"]]]),
    st.sampled_from(
        [np.bytes_(b"a\0b"), np.array([b"a", b""], "S3"), np.array([True]), np.zeros((2, 0), ">i2"), np.float16(1),
         np.array([1, 0], h5py.enum_dtype({"a": 0, "b": 1})), h5py.Empty("f4"), h5py.Empty(h5py.string_dtype()),
         h5py.Empty("S7"), np.array(float("nan"))]
    ),
)  # fmt: skip
ATTR_NAMES = NAMES | st.sampled_from(["dtype", "_Encoding", "flag_values", "a/b", "units", "A_units"])
LABELS = st.sampled_from(["", "", "x", "a", "dim_3", "record", "_pfnc_complex", "a/b"])


@st.composite
def definitions(draw: st.DrawFn, f: Any) -> None:
    """Define groups, datasets, scales, labels and attributes in an open file."""
    groups, nodes = [f["/"]], []
    for _ in range(draw(st.integers(0, 8))):
        parent, name = draw(st.sampled_from(groups)), draw(NAMES)
        if name in parent:
            continue
        if draw(st.integers(0, 3)) == 0:
            groups.append(parent.create_group(name))
            continue
        dtype, shape = draw(DTYPES), draw(st.none() | st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple))
        if shape is None:
            nodes.append(parent.create_dataset(name, data=h5py.Empty(dtype)))
            continue
        limits = (None, *shape[1:]) if shape and draw(st.booleans()) else None
        fill = draw(st.sampled_from([None, 1])) if np.dtype(dtype).kind in "iuf" else None
        nodes.append(parent.create_dataset(name, shape, dtype, maxshape=limits, fillvalue=fill))
    scales = [node for node in nodes if node.shape and draw(st.booleans())]
    for scale in scales:
        scale.make_scale(draw(st.sampled_from(["", "s", "a"])))
    for node in nodes:
        for axis in node.dims if node.shape else ():
            axis.label = draw(LABELS)
            for scale in draw(st.lists(st.sampled_from(scales or [None]), unique_by=id, max_size=2)):
                if scale is not None and node not in scales:
                    axis.attach_scale(scale)
    for owner in (*groups, *nodes):
        for name, value in draw(st.lists(st.tuples(ATTR_NAMES, VALUES), max_size=3)):
            owner.attrs[name] = value


def portrait(f: Any) -> Any:
    """All that a user sees, but the attribute that a fill value becomes in the file."""

    def without(told: Any) -> Any:
        if isinstance(told, dict):
            return {name: without(value) for name, value in told.items() if name != "_FillValue"}
        return [without(each) for each in told] if isinstance(told, (list, tuple)) else told

    return {name: without(told) for name, told in everything.seen(f)}


def assert_same_after_closing(path: Path, before: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with h5py.File(path) as f:
            assert portrait(f) == before
    assert h5py.check(path) == []


@given(data=st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_defined_comes_back(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with h5py.File(path, "w", header_reserve=1 << 15) as f:
        data.draw(definitions(f))
        before = portrait(f)
    assert_same_after_closing(path, before)
    packed = []
    for _ in range(2):
        # defined anew and undone; the first time attributes may come in another order, then all bytes stay
        for change in (lambda f: f.create_group("/" + "new" * 9), lambda f: f.__delitem__("/" + "new" * 9)):
            with h5py.File(path, "r+") as f:
                change(f)
        assert_same_after_closing(path, before)
        h5py.repack(path, tmp_path / "packed.nc", overwrite=True)
        packed.append((tmp_path / "packed.nc").read_bytes())
    assert packed[0] == packed[1]
    with h5py.File(path, "r+") as f:
        names: list[str] = []
        f.visititems(lambda name, one: names.append(name) if isinstance(one, h5py.Dataset) else None)
        for name in names:
            change = data.draw(st.integers(0, 5))
            if change == 0:
                del f[name]
            elif change == 1 and "moved" not in f:
                f.move(name, "moved")
            elif change == 2 and f[name].shape:
                f[name].dims[0].label = data.draw(st.sampled_from(["", "y", "x"]))
            elif change == 3 and f[name].shape and not any(len(dim) for dim in f[name].dims):
                f[name].make_scale("now")
        before = portrait(f)
    assert_same_after_closing(path, before)
    h5py.repack(path, tmp_path / "packed.nc", overwrite=True)  # what was deleted leaves room behind
    assert_valid(tmp_path / "packed.nc")


# ------------------------------------------------------------------------------------------ foreign files


def test_a_plain_file_stays_plain(tmp_path: Path) -> None:
    """Rule one: what NetCDF can say needs nothing of ours, and a rewritten foreign header is that header."""
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as data:
        for name, size in {"time": None, "lat": 2, "lon": 3, "nchar": 8, "unused": 9, "_pfnc_complex": 2}.items():
            data.createDimension(name, size)
        data.title = "test"
        data.createVariable("time", "f8", ("time",)).units = "s"
        data.createVariable("lat", "f4", ("lat",))
        data.createVariable("t", "f4", ("time", "lat", "lon"), fill_value=np.nan)[:] = np.zeros((4, 2, 3))
        data.createVariable("name", "S1", ("lat", "nchar")).setncattr("_Encoding", "utf-8")
        data.createVariable("flag", "i1", ("lon",)).setncattr("dtype", "bool")
        data.createVariable("z", "f8", ("lon", "_pfnc_complex"))[:] = 0
        data.createVariable("letter", "S1", ())
        data.createVariable("letters", "S1", ("time",))
    header = tool("ncdump", "-h", path)
    with h5py.File(path, "r+") as f:
        t = f["t"]
        assert (t.shape, t.maxshape, list(t.attrs)) == ((4, 2, 3), (None, 2, 3), ["DIMENSION_LIST", "_FillValue"])
        assert np.isnan(t.fillvalue)
        assert f["time"].is_scale
        assert [dim.keys() for dim in t.dims] == [["time"], ["lat"], []]
        assert [dim.label for dim in t.dims] == ["", "", "lon"]
        kinds = {name: (f[name].dtype.str, f[name].shape) for name in ("name", "flag", "z", "letter", "letters")}
        f.attrs["new"] = 1
        f.flush()
        del f.attrs["new"]
    assert kinds == {
        "name": ("|O", (2,)), "flag": ("|b1", (3,)), "z": (np.dtype("c16").str, (3,)), "letter": ("|S1", ()),
        "letters": ("|S1", (4,)),
    }  # fmt: skip
    assert tool("ncdump", "-h", path) == header


FILLED: dict[str, tuple[Any, Any, Any]] = {
    "bool": (bool, False, True),
    "enum": (h5py.enum_dtype({"A": 0, "B": 1}), 1, 0),
    "text": ("S3", b"zzz", b"zaz"),
    "words": (h5py.string_dtype(), "z", "a"),
    "complex": ("c8", 0, 5j),
    "opaque": ("V2", np.void(b"aa"), np.void(b"ab")),
}
"""Types whose fill value is no `_FillValue`: the type, the fill value, and another value."""


@pytest.mark.parametrize("kind", FILLED)
def test_no_value_is_masked_by_a_fill_value_of_another(tmp_path: Path, kind: str) -> None:
    dtype, fill, value = FILLED[kind]
    with h5py.File(tmp_path / "x.nc", "w") as f:
        f.create_dataset("x", (3,), dtype, fillvalue=fill)[1] = value
        written = f["x"][:].tolist()
    with netCDF4.Dataset(tmp_path / "x.nc", auto_complex=True) as data:
        assert not np.ma.getmaskarray(data["x"][:]).any()
        assert "_FillValue" not in data["x"].ncattrs()
    with h5py.File(tmp_path / "x.nc") as f:
        assert f["x"][:].tolist() == written
        assert f["x"].fillvalue == f["x"][0]
    xarray = pytest.importorskip("xarray")
    if kind in ("bool", "enum"):
        for engine in ("netcdf4", "pnc_vol"):
            with xarray.open_dataset(tmp_path / "x.nc", engine=engine) as ds:
                assert ds["x"].values.tolist() == written


@pytest.mark.parametrize("separator", ["_", ".", "__"])
def test_names_that_meet_get_suffixes_and_come_back(tmp_path: Path, separator: str) -> None:
    names = ["A/B", f"A{separator}B", f"A{separator}B{separator}2"]
    with h5py.File(tmp_path / "x.nc", "w", separator=separator, track_order=True) as f:
        for number, name in enumerate(names):
            f[name] = number
    with netCDF4.Dataset(tmp_path / "x.nc") as data:
        assert next(iter(data.variables)) == names[1]
        assert len(set(data.variables)) == 3
    with h5py.File(tmp_path / "x.nc") as f:
        assert [int(f[name][()]) for name in names] == [0, 1, 2]


def test_groups_are_made_as_deep_as_they_can_be_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.nc", "w") as f:
        group, depth = f["/"], 0
        with pytest.raises(h5py.DefinitionError, match="flatter"):
            while depth < 5000:
                group, depth = group.create_group("a"), depth + 1
        assert depth > 900
        group["x"] = 7
        path = group["x"].name
    with h5py.File(tmp_path / "x.nc") as f:
        assert f[path][()] == 7


# --------------------------------------------------------------------------------------------- false markers
