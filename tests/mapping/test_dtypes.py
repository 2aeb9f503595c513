"""Elements and values: h5py's datasets are the oracle for what is stored and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from pnc_vol.errors import ConversionError, RangeError
from pnc_vol.format.convert import to_file
from pnc_vol.mapping import special
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.encoding import decode, encode
from pnc_vol.mapping.references import Reference
from pnc_vol.mapping.special import metadata_of

ENUM = h5py.enum_dtype({"R": 0, "G": 1}, "i1")
FIXED = h5py.string_dtype("ascii", 5)
FIXED8 = h5py.string_dtype("utf-8", 5)
DTYPES: list[Any] = [
    *("i1", "u1", "<i2", ">i2", "i4", ">i4", "u8", "f4", "f8", ">f8", "f2", ">f2", bool, "c8", "c16", ">c8"),
    *(
        "S1",
        "S5",
        FIXED,
        FIXED8,
        h5py.string_dtype(),
        h5py.string_dtype("ascii"),
        ENUM,
        h5py.enum_dtype({"a": 1}, ">i2"),
    ),
]
VALUES: list[Any] = [
    "hi",
    "é",
    "toolonger",
    b"hi",
    b"toolonger",
    b"h\0i",
    "h\0i",
    b"hi\0",
    b"\xff",
    "\udcff",
    "ééé",
    np.bytes_("x"),
    np.str_("x"),
    1,
    1.5,
    1j,
    True,
    None,
    2,
    -1,
    "1",
    ["a", "b"],
    [b"a", "b"],
    np.array(["a", "b"]),
    np.array(["a", 1], object),
    [1, 2],
    [0, 1],
    np.array([None, "a"], object),
    np.array("é"),
    bytearray(b"ab"),
    np.array(["toolonger", "é"]),
    np.array([1.0, 2.0]),
    np.array([0, 2], "i1"),
    np.array([0, 1], ">u8"),
    [None, None],
    [True, False],
    np.array([b"1", b"2"]),
]

WIDER_THAN_H5PY = {
    # converters that HDF5 lacks, where the meaning is clear
    "strings of one encoding or kind into fixed-length strings": lambda kind, value: (
        kind == "string" and isinstance(value, np.ndarray) and value.dtype.kind in "SO"
    ),
    "real or half numbers into complex": lambda kind, value: kind == "complex",
}


@pytest.fixture(scope="module")
def file() -> Iterator[h5py.File]:
    with h5py.File("oracle", "w", driver="core", backing_store=False) as opened:
        yield opened


def through_file(values: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    element = element_for(dtype)
    array = encode(values, element)
    if element.kind == "vlen_string":
        element = element.widened(array.dtype.itemsize)
    array = np.broadcast_to(array, shape)
    raw = np.empty(array.size * element.itemsize, np.uint8)
    to_file(array, element.file_dtype, raw)
    return decode(raw, element, shape)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_values_as_h5py(file: h5py.File, dtype: Any) -> None:
    for number, value in enumerate(VALUES):
        dataset = file.create_dataset(f"{len(file)}_{number}", (2,), dtype=dtype)
        theirs: Any = None
        try:
            dataset[()] = value
            theirs = dataset[()]
        except Exception as error:
            if any(allowed(element_for(dtype).kind, value) for allowed in WIDER_THAN_H5PY.values()):
                continue
            with pytest.raises((type(error), RangeError)):
                through_file(value, dtype, (2,))
            continue
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and "enum" in (dataset.dtype.metadata or {}):
            continue  # HDF5 clips and maps; numbers are checked by format.convert
        try:
            ours = through_file(value, dtype, (2,))
        except RangeError:
            continue  # HDF5 stores another value without a word
        assert repr(ours) == repr(theirs), value
        assert (ours.dtype, dict(ours.dtype.metadata or {})) == (theirs.dtype, dict(theirs.dtype.metadata or {}))
        assert element_for(dtype).dtype == dataset.dtype
        assert dict(element_for(dtype).dtype.metadata or {}) == dict(dataset.dtype.metadata or {})


@pytest.mark.parametrize("dtype", ["U5", "O", "M8[s]", "m8[s]", object, str, "S0", "S", np.dtype("U")], ids=repr)
def test_types_that_hdf5_lacks_are_refused_as_h5py_does(file: h5py.File, dtype: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        file.create_dataset(f"r{len(file)}", (2,), dtype=dtype)
    with pytest.raises(theirs.type):
        element_for(dtype)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("i4,f4", "composite"),
        (h5py.vlen_dtype("f8"), "composite"),
        (np.dtype((h5py.string_dtype(), (2,))), "composite"),
        (special.special_dtype(ref=Reference), "composite"),
        ("(2,)i4", "array"),
        ("V3", "opaque"),
        ("g", "longdouble"),
        ("G", "longdouble"),
        (h5py.opaque_dtype("M8[s]"), "datetime"),
        (h5py.opaque_dtype("i4"), "opaque"),
    ],
    ids=repr,
)
def test_kinds_of_what_netcdf_has_no_type_for(dtype: Any, kind: str) -> None:
    assert element_for(dtype).kind == kind


@pytest.mark.skipif(
    not hasattr(np, "dtypes") or not hasattr(np.dtypes, "StringDType"), reason="numpy 2 has StringDType"
)
def test_numpy_strings() -> None:
    values = np.array(["a", "éé"], np.dtypes.StringDType())
    assert element_for(values.dtype).dtype.metadata == {"vlen": str}
    assert through_file(values, h5py.string_dtype(), (2,)).tolist() == [b"a", "éé".encode()]


@given(
    hnp.arrays(
        hnp.scalar_dtypes().filter(lambda dt: dt.kind in "iufcb" and dt.itemsize <= 8), hnp.array_shapes(min_side=0)
    )
)
@settings(max_examples=100, deadline=None)
def test_numbers_are_not_copied_and_come_back(array: np.ndarray) -> None:
    element = element_for(array.dtype)
    turned = array.T
    coded = encode(turned, element)
    assert np.shares_memory(coded, array) or not array.size
    back = through_file(turned, array.dtype, turned.shape)
    np.testing.assert_array_equal(back, turned)
    assert back.dtype == array.dtype
    assert back.flags.writeable


def test_half_floats_beyond_their_range_are_refused() -> None:
    with pytest.raises(RangeError):
        encode(np.array([1e6]), element_for("f2"))


def test_a_widened_string() -> None:
    element = element_for(h5py.string_dtype(), width=3).widened(7)
    assert (element.itemsize, element.trailing, element.trailing_names) == (7, (7,), ("strlen_7",))
    assert element.widened(0).itemsize == 1
    assert metadata_of(element_for("S3").dtype) != metadata_of(element_for(h5py.string_dtype("utf-8", 3)).dtype)


def test_no_way_from_objects() -> None:
    with pytest.raises(ConversionError):
        encode(np.array([1, 2], object), element_for("i4"))


def test_what_float16_cannot_hold_is_infinity_without_a_warning() -> None:
    element = element_for("f2")
    stored = np.array([1e10, 1.5], element.file_dtype).view(np.uint8)
    assert decode(stored, element, (2,)).tolist() == [np.inf, 1.5]
