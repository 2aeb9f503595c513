"""Values to the bytes of a file and back, against numpy, value by value where values may not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pnc_vol
from pnc_vol.errors import ConversionError, RangeError

FILE = ["i1", ">i2", "<i4", ">i8", "u1", ">u2", "<u4", ">u8", ">f4", "<f8"]
MEMORY = ["?", "i1", "<i2", ">i2", "i4", "i8", "u1", "u2", ">u4", "u8", "f2", "f4", ">f4", "f8"]
EDGES = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, 65535, 65536]
EDGES += [s * 2**b + d for b in (31, 32, 53, 63, 64) for s in (1, -1) for d in (-1, 0, 1)]


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
    values = draw(hnp.arrays(dtype, shape, elements=st.integers(0, 1) if draw(st.booleans()) else numbers))
    if values.ndim and draw(st.booleans()):
        values = values[::-1]
    if draw(st.booleans()):
        values = values.T
    return np.asfortranarray(values) if draw(st.booleans()) else values


@settings(deadline=None)
@given(arrays(), st.sampled_from(FILE), st.booleans())
def test_values_are_numpys_where_they_fit(values: np.ndarray, name: str, uncopied: bool) -> None:
    dtype = np.dtype(name)
    bad = [index for index in np.ndindex(*values.shape) if not fits(values[index].item(), dtype)]
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", values.shape, dtype)

        def put() -> None:
            x.iput(..., values).wait() if uncopied else x.__setitem__(..., values)

        if bad:
            with pytest.raises(RangeError, match="x: ") as error:
                put()
            assert not values.ndim or f"at index {bad[0]} " in str(error.value)
            f.cancel()
            return
        put()
        f.flush()
        with np.errstate(over="ignore"):
            wanted = values.astype(dtype)
        np.testing.assert_array_equal(x[...], wanted)
        for other in ("f8", "f4"):
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(x.astype(other)[...], wanted.astype(other))
        out = np.zeros((*values.shape, 2), "f8")[..., 0]
        x.read_direct(out)
        np.testing.assert_array_equal(out, wanted.astype("f8"))


@settings(deadline=None)
@given(arrays(), st.sampled_from(FILE))
def test_clipping_takes_the_nearest_value_of_the_type(values: np.ndarray, name: str) -> None:
    dtype = np.dtype(name)
    with pnc_vol.File("x.nc", "w", driver="memory", on_overflow="clip") as f:
        x = f.create_dataset("x", values.shape, dtype)
        x[...] = values
        found = x[...]
    for index in np.ndindex(*values.shape):
        value, got = values[index].item(), found[index].item()
        if fits(value, dtype):
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(got, np.asarray(value).astype(dtype))
        elif dtype.kind == "f":
            assert got == math.copysign(float(np.finfo(dtype).max), value)
        elif value == value:
            info = np.iinfo(dtype)
            assert got == (info.max if value > 0 else info.min)


@pytest.mark.parametrize("dtype", [">c8", "<c16"])
def test_complex_numbers_pass_part_by_part(dtype: str) -> None:
    values = np.array([1 + 2j, 3 - 4j, complex(math.nan, math.inf)], "c16")
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (3,), dtype)
        x[...] = values
        np.testing.assert_array_equal(x[...], values.astype(dtype))
        with pytest.raises(RangeError):
            f.create_dataset("small", data=np.array([1e300 + 0j]), dtype=">c8")
        with pytest.raises((ConversionError, TypeError)):
            f.create_dataset("real", (3,), "f8")[...] = values


def test_errors_say_value_place_and_range() -> None:
    values = np.zeros((700, 600))
    values[650, 7] = -129.5
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        with pytest.raises(RangeError, match=r"-129.5 at index \(650, 7\) does not fit int8, which holds -128 to 127"):
            f.create_dataset("v", (700, 600), "i1")[...] = values
        with pytest.raises(RangeError, match=r"1e\+39 .*not fit float32, which holds -3.40282e\+38 to 3.40282e\+38"):
            f.create_dataset("w", (), "f4")[...] = 1e39
