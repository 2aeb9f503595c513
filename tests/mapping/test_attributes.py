"""Attributes: h5py itself is the oracle, for what is made, what is refused and what comes back from the file."""

from __future__ import annotations

import io
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pnc_vol
from pnc_vol.format.model import Attr
from pnc_vol.mapping.attributes import Attributes

ENUM = h5py.enum_dtype({"R": 0, "G": 1}, "i1")
E = h5py.Empty
TEXT = h5py.string_dtype()
ROWS = pnc_vol.vlen_dtype("i4")
NESTED = np.dtype([("v", ROWS), ("s", TEXT), ("c", [("f", ">f8"), ("t", "S1", (2,))])], align=True)


def objects(*values: Any) -> np.ndarray:
    return np.array(values, dtype=object)


class Strange:
    """What no library has a type for."""


PLAIN: list[Any] = [
    "hi", "é", "", b"hi", b"", b"\xff\xfe", np.bytes_(b"hi"), np.bytes_(b""), np.bytes_(b"a\0b"), np.str_("hi"),
    ["a", "bb"], [b"a", b"bb"], ("x",), [["a", "b"], ["c", "d"]], [b"\xff"], ["a, b", "", ", "], "a\0b", b"a\0",
    ["a\0b"], np.array(["a", "b"]), np.array("hi"), np.array([b"a", b"bb"]), np.array(b"hi"), np.array([b"", b""]),
    np.array("hi", object), objects("a", "bb"), objects(b"a", "b"), objects(1, "b"), objects(), [np.str_("a")],
    [np.bytes_(b"a"), np.bytes_(b"bcd")], "\udcff", ["a", ["b"]], [1, "a"], [None], None, {}, Strange(), True,
    [True, False], np.array([True]), 1, 1.5, 1j, [1, 2], [[1, 2], [3, 4]], (1, 2.5), range(3), [], [5], np.int8(1),
    np.float16(1), np.complex64(1j), np.array(1, ">i4"), np.array([1, 2], ">i4"), np.array([1.5], ">f2"),
    np.array([1j, 2], ">c8"), 2**63, 2**64, -(2**63) - 1, float("nan"), np.zeros(0), np.zeros((2, 0), "i2"),
    np.zeros((1, 1)), np.array([], "S3"), np.array([0, 1], ENUM), np.array(1, ENUM), np.datetime64("2020-01-01"),
    E("f8"), E("S3"), E(bool), E(ENUM), E(TEXT), E("c8"), np.void(b""), np.zeros(2, []),
    np.zeros(2, [("a", "V0"), ("b", "i4")]),
]  # fmt: skip
AS_TYPE: list[tuple[Any, Any]] = [
    ("hi", "S5"), ("hi", "S1"), (b"hi", TEXT), (["a", "bb"], "S3"), ("é", "S5"), ("é", h5py.string_dtype("ascii")),
    ("hi", h5py.string_dtype("ascii")), (np.arange(3), TEXT), ([], TEXT), ([], "i4"), (3, "S3"), (5, "i2"),
    ([1, 2], "f4"), (300, "i1"), (1.5, "i4"), (2, bool), (1j, "f4"), ("hi", "f4"), ("3", "f4"), ([0, 5], ENUM),
    ([1, 2], ">i2"),
]  # fmt: skip
AS_SHAPE: list[tuple[Any, Any]] = [
    ([1, 2], (2, 1)), ([1, 2], (3,)), (5, 1), (5, (1,)), ("hi", (1,)), (["a"], ()), (5, (2,)), (E("f4"), (1,)),
]  # fmt: skip
CASES = [
    *((value, {}) for value in PLAIN),
    *((value, {"dtype": dtype}) for value, dtype in AS_TYPE),
    *((value, {"shape": shape}) for value, shape in AS_SHAPE),
]


def told(dtype: np.dtype) -> dict[str, Any]:
    """The metadata of a type; h5py keeps the type of rows as it was given."""
    found = dict(dtype.metadata or {})
    return found | {"vlen": np.dtype(found["vlen"])} if "vlen" in found else found


def reopened(value: Any, **how: Any) -> Any:
    """An attribute of a file that was closed and opened again, in a file that stays open with it."""
    target = io.BytesIO()
    with pnc_vol.File(target, "w") as f:
        f.attrs.create("a", value, **how)
        before, defined = f.attrs["a"], f.attrs.get_id("a")
    with pnc_vol.File(target) as f:
        found, info = f.attrs["a"], f.attrs.get_id("a")
    assert repr(found) == repr(before)
    assert (info.dtype, info.shape, told(info.dtype)) == (defined.dtype, defined.shape, told(defined.dtype))
    return found, info


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("value", "how"), CASES, ids=lambda x: repr(x)[:40].replace("\0", "0"))
def test_as_h5py(value: Any, how: dict[str, Any]) -> None:
    with h5py.File("oracle", "w", driver="core", backing_store=False) as file:
        try:
            file.attrs.create("a", value, **how)
        except Exception as error:
            with pytest.raises(type(error)):
                reopened(value, **how)
            return
        theirs, stored = file.attrs["a"], file.attrs.get_id("a")
        ours, info = reopened(value, **how)
        assert (info.dtype, info.shape) == (stored.dtype, stored.shape)
        assert dict(info.dtype.metadata or {}) == dict(stored.dtype.metadata or {})
    if isinstance(theirs, h5py.Empty):
        assert ours == theirs
    else:
        assert type(ours) is type(theirs)
        assert repr(ours) == repr(theirs)


@given(
    hnp.arrays(
        st.sampled_from(["i1", "<i2", ">i4", "u8", "f4", ">f8", "?", "c8", ">c16", "f2", "S4"]).map(np.dtype),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    ),
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1),
)
@settings(max_examples=100, deadline=None)
def test_arrays_and_texts_come_back(array: np.ndarray, texts: list[str]) -> None:
    found, info = reopened(array)
    np.testing.assert_array_equal(found, array)
    assert (info.dtype, info.shape) == (array.dtype, array.shape)
    assert reopened(texts)[0].tolist() == texts


def test_wide_fixed_strings_come_back() -> None:
    found, info = reopened(np.array([b"x", b"yy"], "S100000"))
    assert (found.tolist(), info.dtype) == ([b"x", b"yy"], np.dtype("S100000"))


def test_foreign_text_is_str(tmp_path: Any) -> None:
    with netCDF4.Dataset(tmp_path / "x.nc", "w", format="NETCDF3_CLASSIC") as data:
        data.units, data.empty, data.latin = "K\0\0", "", "\xe9Z"
    (tmp_path / "x.nc").write_bytes((tmp_path / "x.nc").read_bytes().replace("\xe9Z".encode(), b"\xe9\0\0"))
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert dict(f.attrs) == {"units": "K", "empty": "", "latin": "\udce9"}


LITERAL: list[tuple[Any, Any]] = [
    (np.longdouble(1) / 3, None),
    (np.void(b"abc"), None),
    (np.ones(2, "i4,f4"), None),
    (np.clongdouble(1j), None),
    (pnc_vol.Reference("/a"), None),
    ([pnc_vol.Reference("/b")], None),
    (objects(np.arange(3), np.arange(0)), ROWS),
    ([(np.arange(2), "x", (1.5, [b"a", b"b"]))], NESTED),
    (np.zeros((2, 3), NESTED), NESTED),
    (np.arange(6).reshape(2, 3), "(3,)i2"),
    (objects(objects("a", "b"), objects("c")), pnc_vol.vlen_dtype(pnc_vol.string_dtype())),
    (np.array(["2020-01-01", "NaT"], "M8[s]"), pnc_vol.opaque_dtype("M8[s]")),
    ([1 + 2j, 3], np.clongdouble),
]


@pytest.mark.parametrize(("value", "dtype"), LITERAL, ids=repr)
def test_what_netcdf_has_no_type_for_comes_back(value: Any, dtype: Any) -> None:
    found, info = reopened(value, **({} if dtype is None else {"dtype": dtype}))
    if dtype is None:
        assert info.shape == np.shape(value)
        assert repr(found) == repr(value[()] if isinstance(value, np.generic) else np.array(value, info.dtype)[()])
    else:
        assert info.dtype == np.dtype(dtype)


@pytest.mark.parametrize("text", ["", "[1", "[1,2,3]", "{}", "null", '["a","b"]', "[[1,2],[3,4]]", "1e999"])
def test_text_that_is_no_value_of_the_type_is_shown_as_text(tmp_path: Any, text: str) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f.attrs["x"] = np.array((1234567890, 0.015625), "i4,f4")
    with netCDF4.Dataset(path) as data:
        stored = data.x
    lie = text.ljust(len(stored))
    content = path.read_bytes()
    assert content.count(stored.encode()) == 1
    path.write_bytes(content.replace(stored.encode(), lie.encode()))
    with pnc_vol.File(path) as f, pytest.warns(pnc_vol.PncVolWarning, match="attribute 'x'"):
        assert f.attrs["x"] == lie


@pytest.mark.parametrize("value", [np.zeros(2, "i4,f4"), np.zeros(2, "V3"), np.ones(2, "g"), np.ones(2)], ids=repr)
def test_an_array_that_was_assigned_stays_the_users(value: np.ndarray) -> None:
    with pnc_vol.File("x", "w", driver="memory") as f:
        f.attrs["a"] = value
        before = repr(f.attrs["a"])
        value[0] = value[1]
        value[:] = np.zeros((), value.dtype)
        assert repr(f.attrs["a"]) == before


@pytest.mark.parametrize("value", [255.5, np.float64(255.5), np.array([255.5, -0.5])])
def test_a_float_is_cut_to_an_integer_type_as_that_of_a_dataset_is(value: Any) -> None:
    with pnc_vol.File("x", "w", driver="memory") as f:
        f.attrs.create("a", value, dtype="u1")
        assert np.array_equal(f.attrs["a"], f.create_dataset("x", data=value, dtype="u1")[()])
        for wrong in (256, -1.0, float("nan")):
            with pytest.raises(ValueError, match="cannot be stored as uint8: out of its range"):
                f.attrs.create("a", wrong, dtype="u1")


def test_attributes_that_many_objects_share_are_changed_for_one_alone(tmp_path: Any) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        for name in "pqr":
            f[name] = [1.0, 2.0]
            f[name].attrs["a"], f[name].attrs["n"] = "K", 0.5
    with pnc_vol.File(path, "r+") as f:
        assert [f[name].attrs["a"] for name in "pqr"] == ["K"] * 3
        f["q"].attrs["a"] = "m"
        f["r"].attrs["a"] = [1, 2]
        del f["r"].attrs["n"]
        for _ in range(2):
            assert [dict(f[name].attrs) for name in "pq"] == [{"a": "K", "n": 0.5}, {"a": "m", "n": 0.5}]
            assert (list(f["r"].attrs), f["r"].attrs["a"].tolist()) == (["a"], [1, 2])
            f.flush()


def test_attributes_that_claim_one_name_are_all_there() -> None:
    """One of which the name in the file is another one's true name was shown nowhere, and lost with a change."""
    listed = tuple(Attr(name, 2, 1, name.encode()) for name in ("x", "b", "y"))
    found = Attributes(listed, renamed={"x": "y", "b": "z", "y": "z"})
    assert found.raw == listed
    assert list(found) == ["y", "z", "y_2"]
    found.put_plainly("new", "K")
    assert found.raw[:3] == listed
