"""Attributes: h5py itself is the oracle, for what is made, what is refused and what comes back from the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pnc_vol.errors import ConversionError, RangeError
from pnc_vol.format.model import Attr
from pnc_vol.mapping.attribute_encoding import LITERAL
from pnc_vol.mapping.attributes import (
    Attribute,
    Attributes,
    decode_attribute,
    encode_attribute,
    make_attribute,
)
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.literals import to_text
from pnc_vol.mapping.references import Reference
from pnc_vol.mapping.special import metadata_of, opaque_dtype, special_dtype, string_dtype

ENUM = h5py.enum_dtype({"R": 0, "G": 1}, "i1")
E = h5py.Empty


def objects(*values: Any) -> np.ndarray:
    return np.array(values, dtype=object)


def same(a: Attribute, b: Attribute) -> bool:
    """True if type (with its metadata), shape and values are the same, NaN being equal to NaN."""
    if a.dtype != b.dtype or metadata_of(a.dtype) != metadata_of(b.dtype) or a.shape != b.shape:
        return False
    if a.value is None or b.value is None:
        return a.value is b.value
    if element_for(a.dtype).kind in LITERAL:
        return to_text(a.value, a.dtype) == to_text(b.value, b.dtype)
    return bool(np.array_equal(a.value, b.value, equal_nan=a.dtype.kind in "fc"))


ROWS = special_dtype(vlen=np.dtype("i4"))
NESTED = np.dtype([("v", ROWS), ("s", string_dtype()), ("c", [("f", ">f8"), ("t", "S1", (2,))])], align=True)


class Strange:
    """What no library has a type for."""

    def __repr__(self) -> str:
        return "Strange()"


VALUES: list[tuple[Any, dict[str, Any]]] = [
    *(
        (value, {})
        for value in (
            "hi",
            "é",
            "",
            b"hi",
            b"",
            b"\xff\xfe",
            np.bytes_(b"hi"),
            np.bytes_(b""),
            np.bytes_(b"a\0b"),
            np.str_("hi"),
            ["a", "bb"],
            [b"a", b"bb"],
            ("x",),
            [["a", "b"], ["c", "d"]],
            [b"\xff"],
            ["a, b", "", ", "],
            "a\0b",
            b"a\0",
            ["a\0b"],
            np.array(["a", "b"]),
            np.array("hi"),
            np.array([b"a", b"bb"]),
            np.array(b"hi"),
            np.array([b"", b""]),
            np.array("hi", object),
            objects("a", "bb"),
            objects(b"a", "b"),
            objects(1, "b"),
            objects(),
            [np.str_("a")],
            [np.bytes_(b"a"), np.bytes_(b"bcd")],
            "\udcff",
            ["a", ["b"]],
            [1, "a"],
            [None],
            None,
            {},
            Strange(),
            True,
            [True, False],
            np.array([True]),
            1,
            1.5,
            1j,
            [1, 2],
            [[1, 2], [3, 4]],
            (1, 2.5),
            range(3),
            [],
            [5],
            np.int8(1),
            np.float16(1),
            np.complex64(1j),
            np.array(1, ">i4"),
            np.array([1, 2], ">i4"),
            np.array([1.5], ">f2"),
            np.array([1j, 2], ">c8"),
            2**63,
            2**64,
            -(2**63) - 1,
            float("nan"),
            np.zeros(0),
            np.zeros((2, 0), "i2"),
            np.zeros((1, 1)),
            np.array([], "S3"),
            np.array([0, 1], ENUM),
            np.array(1, ENUM),
            np.datetime64("2020-01-01"),
            E("f8"),
            E("S3"),
            E(bool),
            E(ENUM),
            E(h5py.string_dtype()),
            E("c8"),
        )
    ),
    ("hi", {"dtype": "S5"}),
    ("hi", {"dtype": "S1"}),
    (b"hi", {"dtype": h5py.string_dtype()}),
    (["a", "bb"], {"dtype": "S3"}),
    ("é", {"dtype": "S5"}),
    ("é", {"dtype": h5py.string_dtype("ascii")}),
    ("hi", {"dtype": h5py.string_dtype("ascii")}),
    (np.arange(3), {"dtype": h5py.string_dtype()}),
    ([], {"dtype": h5py.string_dtype()}),
    ([], {"dtype": "i4"}),
    (3, {"dtype": "S3"}),
    (5, {"dtype": "i2"}),
    ([1, 2], {"dtype": "f4"}),
    (300, {"dtype": "i1"}),
    (1.5, {"dtype": "i4"}),
    (2, {"dtype": bool}),
    (1j, {"dtype": "f4"}),
    ("hi", {"dtype": "f4"}),
    ("3", {"dtype": "f4"}),
    ([0, 5], {"dtype": ENUM}),
    ([1, 2], {"dtype": ">i2"}),
    ([1, 2], {"shape": (2, 1)}),
    ([1, 2], {"shape": (3,)}),
    (5, {"shape": 1}),
    (5, {"shape": (1,)}),
    ("hi", {"shape": (1,)}),
    (["a"], {"shape": ()}),
    (5, {"shape": (2,)}),
    (E("f4"), {"shape": (1,)}),
]


@pytest.fixture
def group() -> Iterator[h5py.Group]:
    with h5py.File("oracle", "w", driver="core", backing_store=False) as file:
        yield file.create_group("g")


def through_file(attribute: Attribute, name: str = "a") -> Attribute:
    """The attribute as it is after a reopen: the marker goes through JSON."""
    attr, marker = encode_attribute(name, attribute)
    findings: list[str] = []
    back = decode_attribute(Attr(*attr), json.loads(json.dumps(marker)), findings)
    assert not findings
    assert attr.name == name
    return back


def seen(attribute: Attribute) -> Any:
    """What a user gets."""
    if attribute.value is None:
        return h5py.Empty(attribute.dtype)
    return attribute.value[()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("value", "knobs"), VALUES, ids=lambda x: repr(x)[:40].replace("\0", "0"))
def test_as_h5py(group: h5py.Group, value: Any, knobs: dict[str, Any]) -> None:
    try:
        group.attrs.create("a", value, **knobs)
    except Exception as error:
        with pytest.raises(type(error)):
            make_attribute(value, **knobs)
        return
    theirs, stored = group.attrs["a"], group.attrs.get_id("a")
    made = make_attribute(value, **knobs)
    back = through_file(made)
    assert same(back, made)
    assert (back.dtype, back.shape) == (stored.dtype, stored.shape)
    assert dict(back.dtype.metadata or {}) == dict(stored.dtype.metadata or {})
    ours = seen(back)
    assert type(ours) is type(theirs)
    if not isinstance(ours, h5py.Empty):
        assert repr(ours) == repr(theirs)


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(c) for c in ("i1", "<i2", ">i4", "u8", "f4", ">f8", "?", "c8", ">c16", "f2", "S4")]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    )
)
@settings(max_examples=200, deadline=None)
def test_arrays_come_back(array: np.ndarray) -> None:
    made = make_attribute(array)
    assert same(through_file(made), made)
    assert made.value is not None
    np.testing.assert_array_equal(made.value, array)


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
@settings(max_examples=200, deadline=None)
def test_texts_come_back(texts: list[str]) -> None:
    back = through_file(make_attribute(texts))
    assert back.value is not None
    assert back.value.tolist() == texts


def test_the_maker_does_not_keep_the_users_array() -> None:
    array = np.arange(3)
    made = make_attribute(array)
    array[:] = 9
    assert made.value is not None
    assert made.value.tolist() == [0, 1, 2]
    assert not made.value.flags.writeable


def test_foreign_text_is_str() -> None:
    assert decode_attribute(Attr("units", 2, 3, b"K\0\0")).value == "K"
    assert decode_attribute(Attr("empty", 2, 0, b"")).value == ""
    assert decode_attribute(Attr("latin", 2, 1, b"\xe9")).value == "\udce9"


def test_wide_fixed_strings_come_back_without_a_claim_that_is_not_paid_for() -> None:
    made = make_attribute(np.array([b"x", b"yy"], "S100000"))
    assert same(through_file(made), made)


@pytest.mark.parametrize(
    "value",
    [
        np.longdouble(1) / 3,
        np.void(b"abc"),
        np.ones(2, "i4,f4"),
        np.clongdouble(1j),
        Reference("/a"),
        [Reference("/b")],
    ],
    ids=repr,
)
def test_what_netcdf_has_no_type_for_is_text(value: Any) -> None:
    made = make_attribute(value)
    found = through_file(made)
    assert same(found, made)
    assert repr(found.value) == repr(made.value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (objects(np.arange(3), np.arange(0)), special_dtype(vlen=np.dtype("i4"))),
        ([(np.arange(2), "x", (1.5, [b"a", b"b"]))], NESTED),
        (np.zeros((2, 3), NESTED), NESTED),
        (np.arange(6).reshape(2, 3), "(3,)i2"),
        (objects(objects("a", "b"), objects("c")), special_dtype(vlen=string_dtype())),
        (np.array(["2020-01-01", "NaT"], "M8[s]"), opaque_dtype("M8[s]")),
        ([1 + 2j, 3], np.clongdouble),
    ],
    ids=repr,
)
def test_nested_values_come_back(value: Any, dtype: Any) -> None:
    made = make_attribute(value, dtype=dtype)
    found = through_file(made)
    assert same(found, made)
    assert repr(found.value) == repr(made.value)
    assert found.shape == made.shape


@pytest.mark.parametrize("text", ["", "[1", "[1,2,3]", "{}", "null", '["a","b"]', "[" * 5000, "[[1,2],[3,4]]", "1e999"])
def test_text_that_is_no_value_of_the_type_is_shown_as_text(text: str) -> None:
    attr, marker = encode_attribute("x", make_attribute(np.zeros((), "i4,f4")))
    bad = attr._replace(data=text.encode(), nelems=len(text))
    findings: list[str] = []
    assert decode_attribute(bad, marker, findings).value.item() == text
    assert findings


def test_values_beyond_the_type_are_refused() -> None:
    with pytest.raises(RangeError):
        make_attribute(np.array([300]), dtype="i1")
    with pytest.raises(ConversionError):
        make_attribute(np.array([1j]), dtype="f4")


def test_nothing_is_decoded_before_it_is_asked_for() -> None:
    bad = Attr("n", 4, 3, b"short")
    attrs = Attributes((Attr("units", 2, 1, b"K"), bad))
    assert list(attrs) == ["units", "n"]
    assert attrs.untouched == (Attr("units", 2, 1, b"K"), bad)
    assert seen(attrs["units"]) == "K"
    del attrs["n"]
    assert attrs.untouched == (Attr("units", 2, 1, b"K"),)
    attrs["m"] = make_attribute(1)
    attrs["units"] = make_attribute("s")
    assert [(name, seen(attrs[name])) for name in attrs] == [("units", "s"), ("m", 1)]
    with pytest.raises(KeyError):
        del attrs["n"]


def test_values_that_many_objects_share_are_shown_by_each_as_its_marker_says() -> None:
    raw = (Attr("a", 2, 1, b"K"), Attr("n", 6, 1, b"\0" * 8))
    plain, other = Attributes(raw), Attributes(raw)
    assert plain.plain("a") == other.plain("a") == "K"
    assert plain.plain("n") == 0.0
    marked = Attributes(raw, {"a": {"type": "string"}})
    assert marked.plain("a") is None
    assert marked.plain("n") == 0.0
    other.put_plainly("a", "m")
    assert (plain.plain("a"), other.plain("a"), other.plain("n")) == ("K", "m", 0.0)
    del other["a"]
    assert other.plain("a") is None
    other["a"] = make_attribute([1, 2])
    assert other.plain("a") is None
    assert plain.plain("a") == "K"
