"""Conversion to and from the bytes of a file, against numpy, value by value where values may not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pnc_vol.errors import DefinitionError, RangeError
from pnc_vol.format import convert
from pnc_vol.format.convert import from_file, swap_in_place, to_file

FILE = [">i1", ">i2", ">i4", ">i8", ">u1", ">u2", ">u4", ">u8", ">f4", ">f8"]
MEMORY = ["?", "i1", "<i2", ">i2", "i4", "i8", "u1", "u2", ">u4", "u8", "f2", "f4", ">f4", "f8"]
EDGES = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, 65535, 65536]
EDGES += [s * 2**b + d for b in (31, 32, 53, 63, 64) for s in (1, -1) for d in (-1, 0, 1)]


def raw(n: int, dtype: str) -> np.ndarray:
    return np.zeros(n * np.dtype(dtype).itemsize, np.uint8)


def fits(value: object, dtype: np.dtype) -> bool:
    """The rule, for one value: truncated, it is in the type's range; a finite float stays finite."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return not math.isfinite(value) or math.isfinite(float(np.float64(value).astype(dtype)))  # type: ignore[arg-type]
    if isinstance(value, float) and not math.isfinite(value):
        return False
    info = np.iinfo(dtype)
    return info.min <= math.trunc(value) <= info.max  # type: ignore[call-overload]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = np.dtype(draw(st.sampled_from(MEMORY)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        numbers = st.sampled_from([n for n in EDGES if info.min <= n <= info.max]) | st.integers(info.min, info.max)
    elif dtype.kind == "f":
        numbers = st.floats(width=8 * dtype.itemsize) | st.sampled_from([0.0, -0.5, 1.5, 100.0, -100.0])
    else:
        numbers = st.booleans()
    small = draw(st.booleans())
    values = draw(hnp.arrays(dtype, shape, elements=st.integers(0, 1) if small else numbers))
    if values.ndim and draw(st.booleans()):
        values = values[::-1]
    if draw(st.booleans()):
        values = values.T
    return np.asfortranarray(values) if draw(st.booleans()) else values


@given(arrays(), st.sampled_from(FILE), st.sampled_from([1, 16, 1 << 20]))
def test_to_file_is_numpy_where_values_fit(values: np.ndarray, name: str, block: int) -> None:
    dtype = np.dtype(name)
    out = np.empty(values.size * dtype.itemsize + 1, np.uint8)[1:]
    bad = [index for index in np.ndindex(*values.shape) if not fits(values[index].item(), dtype)]
    before = convert.BLOCK
    convert.BLOCK = block
    try:
        if bad:
            with pytest.raises(RangeError, match="here: ") as error:
                to_file(values, dtype, out, what="here")
            if values.ndim:
                assert f"at index {bad[0]} " in str(error.value)
            return
        to_file(values, dtype, out, what="here")
    finally:
        convert.BLOCK = before
    assert out.tobytes() == values.astype(dtype).tobytes()


@given(arrays(), st.sampled_from(FILE))
def test_clipping_stores_the_nearest_value(values: np.ndarray, name: str) -> None:
    dtype = np.dtype(name)
    out = raw(values.size, name)
    to_file(values, dtype, out, on_overflow="clip")
    got = out.view(dtype).reshape(values.shape)
    for index in np.ndindex(*values.shape):
        value = values[index].item()
        if fits(value, dtype):
            with np.errstate(over="ignore"):
                assert got[index].tobytes() == values[index].astype(dtype).tobytes()
        elif dtype.kind == "f":
            assert got[index] == math.copysign(math.inf, value)
        elif value != value:
            assert got[index] == 0
        else:
            assert got[index] == (np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min)


@given(
    hnp.arrays(hnp.integer_dtypes(endianness=">") | hnp.floating_dtypes(endianness=">"), hnp.array_shapes(max_side=4))
)
def test_from_file_is_numpy(values: np.ndarray) -> None:
    data = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:]
    out = np.zeros((*values.shape, 2), "f8")[..., 0].T
    from_file(np.frombuffer(b"\0" + values.T.tobytes(), np.uint8)[1:], values.dtype, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, values.T.astype("f8"))
    same = np.empty(values.shape, values.dtype.newbyteorder("<"))
    from_file(data, values.dtype, same)
    np.testing.assert_array_equal(same, values)


@given(st.sampled_from([1, 2, 4, 8]), st.binary(max_size=64))
def test_swap_in_place_is_its_own_inverse(size: int, data: bytes) -> None:
    data = data[: len(data) // size * size]
    buffer = np.frombuffer(b"\0" + data, np.uint8).copy()[1:]
    swap_in_place(buffer, size)
    assert buffer.tobytes() == np.frombuffer(data, f">u{size}").astype(f"=u{size}").tobytes()
    swap_in_place(buffer, size)
    assert buffer.tobytes() == data


@pytest.mark.parametrize("dtype", [">c8", ">c16"])
def test_complex_numbers_pass_part_by_part(dtype: str) -> None:
    values = np.array([1 + 2j, 3 - 4j, complex(math.nan, math.inf)], "c16")
    out = raw(3, dtype)
    to_file(values, np.dtype(dtype), out)
    assert out.tobytes() == values.astype(dtype).tobytes()
    back = np.empty(3, "c16")
    from_file(out, np.dtype(dtype), back)
    np.testing.assert_array_equal(back, values)
    with pytest.raises(RangeError):
        to_file(np.array([1e300 + 0j]), np.dtype(">c8"), raw(1, ">c8"))
    with pytest.raises(DefinitionError, match="does not convert"):
        to_file(values, np.dtype(">f8"), raw(3, ">f8"))


def test_bytes_pass_if_they_are_not_too_long() -> None:
    out = raw(3, "S4")
    to_file(np.array([b"a", b"bcd", b""]), np.dtype("S4"), out)
    assert out.tobytes() == b"a\0\0\0bcd\0\0\0\0\0"
    wide = np.array([b"a", b"bcd"], "S10")
    to_file(wide, np.dtype("S4"), out[:8])
    assert out[:8].tobytes() == b"a\0\0\0bcd\0"
    with pytest.raises(RangeError, match=r"b'bcdef' at index \(1,\) has 5 bytes"):
        to_file(np.array([b"a", b"bcdef"]), np.dtype("S4"), out[:8])
    with pytest.raises(DefinitionError, match="does not convert"):
        to_file(np.array(["text"]), np.dtype("S4"), out[:4])


def test_errors_say_value_place_and_range() -> None:
    values = np.zeros((700, 600))
    values[650, 7] = -129.5
    with pytest.raises(RangeError, match=r"v: -129.5 at index \(650, 7\) does not fit int8, which holds -128 to 127"):
        to_file(values, np.dtype("i1"), raw(values.size, "i1"), what="v")
    with pytest.raises(RangeError, match=r"1e\+39 does not fit float32, which holds -3.40282e\+38 to 3.40282e\+38"):
        to_file(np.array(1e39), np.dtype(">f4"), raw(1, ">f4"))


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="do not make"):
        to_file(np.zeros(3), np.dtype(">f8"), raw(2, ">f8"))
    with pytest.raises(ValueError, match="are not"):
        from_file(raw(2, ">f8"), np.dtype(">f8"), np.zeros(3))
