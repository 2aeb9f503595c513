"""Some types take several variables: compounds, arrays of varying length, references.

Knows: which parts such a type has, how values are taken apart into the values of its parts. Does not know: files,
requests; `file.reads.composite_values` reads and writes the parts.

Rules
-----
1. A compound has a part for each field, with its dataset's shape. So other programs see columns with their own names
   and types, and ``ds["field"]`` reads one variable.
2. An array of varying length has the parts ``count`` and ``values``: CF's contiguous ragged array, in C order of the
   elements.
3. A reference is the path of its object, as text; a region reference has its selection as JSON besides.
4. An array type of anything but numbers has the part ``values``, with the axes of the array type behind its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pnc_vol.errors import ConversionError, DefinitionError, RangeError
from pnc_vol.format.model import CHAR, Attr
from pnc_vol.format.numeric import Overflow, converted, may_overflow
from pnc_vol.mapping.describe import describe, undescribe
from pnc_vol.mapping.dtypes import (
    Dtype,
    Reference,
    RegionReference,
    check_string_dtype,
    element_for,
    metadata_of,
    string_dtype,
)
from pnc_vol.mapping.encoding import decode, encode, from_fields, numbers
from pnc_vol.mapping.names import is_shape

if TYPE_CHECKING:
    from pnc_vol.mapping.tree import DatasetNode

__all__ = [
    "Part", "add_parts", "conform", "from_attr", "is_ragged", "literal", "parts_of", "ragged_base", "references",
    "rows_of", "to_attr",
]  # fmt: skip

_TEXT = string_dtype()


class Part(NamedTuple):
    """A part of a type: a variable of its own.

    name : str, of the field, or what the part is.
    dtype : dtype of its elements.
    inner : tuple of int, axes behind those of the dataset.
    """

    name: str
    dtype: Dtype
    inner: tuple[int, ...] = ()


def ragged_base(dt: Dtype) -> Dtype | None:
    """Return the type of the values of an array of varying length; None for any other type."""
    base = metadata_of(dt).get("vlen")
    # by identity: numpy says that float64 equals None
    return None if any(base is known for known in (None, str, bytes)) else np.dtype(base)


def is_ragged(dt: Dtype) -> bool:
    """Return True for arrays of varying length that are no strings."""
    return ragged_base(dt) is not None


def parts_of(dt: Dtype) -> list[Part]:
    """Return the parts of a type, in order.

    Examples
    --------
    >>> [part.name for part in parts_of(np.dtype([("x", "f4"), ("y", "f8")]))]
    ['x', 'y']
    """
    if dt.names is not None:
        assert dt.fields is not None
        return [Part(name, dt.fields[name][0]) for name in dt.names]
    if dt.subdtype is not None:
        return [Part("values", dt.subdtype[0], dt.subdtype[1])]
    reference = metadata_of(dt).get("ref")
    if reference is not None:
        found = [Part("path", _TEXT)]
        return [*found, Part("region", _TEXT)] if reference.__name__ == "RegionReference" else found
    return [Part("count", np.dtype("i8"))]


def add_parts(node: DatasetNode) -> None:
    """Give a new dataset that takes several variables its parts."""
    tree, dtype = node.tree, node.element.dtype
    assert node.shape is not None
    for name, kind, inner in parts_of(dtype):
        limits = None if node.maxshape is None else (*node.maxshape, *inner)
        part = tree.add_part(node, name, element_for(kind), (*node.shape, *inner), limits)
        part.axes[: len(node.axes)] = node.axes
    base = ragged_base(dtype)
    if base is not None:
        tree.add_part(node, "values", element_for(base), (0,))


# ------------------------------------------------------------------------------------------------ values


def conform(values: Any, dt: Dtype, on_overflow: Overflow = "raise") -> NDArray[Any]:
    """Return what the user gives, as an array of exactly `dt`; an array type adds its axes.

    Parameters
    ----------
    values : array-like
    dt : dtype of a dataset, an attribute or a field
    on_overflow : {"raise", "clip"}

    Raises
    ------
    ConversionError
        No way from the values to the type.
    RangeError
        A number does not fit.

    Examples
    --------
    >>> conform((1, 2.5), np.dtype([("a", "i4"), ("b", "f4")]))["b"].item()
    2.5
    """
    if dt.names is not None:
        return _conform_compound(values, dt, on_overflow)
    base = ragged_base(dt)
    if base is not None:
        return rows_of(values, base, on_overflow)
    reference = metadata_of(dt).get("ref")
    if reference is not None:
        return references(values, reference)
    if dt.subdtype is not None:
        inner, shape = dt.subdtype
        array = conform(values, inner, on_overflow)
        if array.shape == ():
            array = np.broadcast_to(array, shape)
        if array.shape[-len(shape) :] != shape:
            raise ConversionError(
                f"When writing to array types, last N dimensions must match (got {array.shape[-len(shape) :]}, "
                f"but should be {shape})"
            )
        return array
    if check_string_dtype(dt) is not None:
        if isinstance(values, np.ndarray) and values.dtype.kind == "O":
            # where nobody put a text yet, numpy has 0, or None
            unset = np.array(
                [item is None or (type(item) is int and not item) for item in values.ravel().tolist()], bool
            )
            if unset.any():
                values = np.where(unset.reshape(values.shape), "", values)
        coded = encode(values, element_for(dt))
        return coded.astype(object) if dt.kind == "O" else coded
    if isinstance(values, np.ndarray) and dt.kind == "c":
        values = from_fields(values, dt)
    if isinstance(values, np.ndarray) and values.dtype.names is not None:
        raise ConversionError(f"No conversion path for dtype: {values.dtype!r} to {dt!r}")
    plain = np.dtype(dt.str) if dt.metadata else dt
    if isinstance(values, (list, tuple)) and plain.kind in "iuf":
        values = _as_array(values, plain, on_overflow, numbers)
    if isinstance(values, (np.ndarray, np.generic)) and _may_not_fit(values.dtype, plain):
        return converted(np.asarray(values), plain, on_overflow)
    return _as_array(values, plain, on_overflow)


def _may_not_fit(source: Dtype, target: Dtype) -> bool:
    return source.kind in "biufc" and target.kind in "biufc" and may_overflow(source, target)


def _as_array(
    values: Any, dt: Dtype, on_overflow: Overflow, make: Callable[[Any, Dtype], NDArray[Any]] = np.asarray
) -> NDArray[Any]:
    try:
        # numpy makes infinity of a float that is too large, and warns
        with np.errstate(over="ignore" if on_overflow == "clip" else "raise"):
            return make(values, dt)
    except RangeError:
        raise
    except (OverflowError, FloatingPointError) as problem:
        raise RangeError(f"a value does not fit {dt}: {problem}; store a wider type") from None
    except (TypeError, ValueError) as problem:
        raise ConversionError(f"No conversion path to {dt!r}: {problem}") from None


def _conform_compound(values: Any, dt: Dtype, on_overflow: Overflow) -> NDArray[Any]:
    assert dt.names is not None
    given: dict[str, Any]
    source: Any = values if isinstance(values, (np.ndarray, np.generic)) else _as_array(values, _loose(dt), on_overflow)
    own = source.dtype.names
    number = source.dtype.kind in "biuf" and not dt.hasobject
    if not (number or own) or (isinstance(source, np.void) and len(own) != len(dt.names)):
        source = _as_array(source, _loose(dt), on_overflow)
        own = dt.names
    if own is None:
        given = {name: _for_each(source, dt[name].shape) for name in dt.names}
    elif isinstance(source, np.void):
        # of one element, numpy takes the fields in their order
        given = {name: source[other] for name, other in zip(dt.names, own, strict=True)}
    else:
        given = {name: source[name] for name in dt.names if name in own}
        if not given:
            raise ConversionError(f"No conversion path for dtype: {source.dtype!r} to {dt!r}: no field in common")
    made = np.zeros(source.shape, dt)
    for name, part in given.items():
        # not ``made[name] = ...``: of a scalar, numpy would store an array of no axes as an object
        np.copyto(made[name], conform(part, dt[name], on_overflow), casting="unsafe")
    return made


def _for_each(values: Any, inner: tuple[int, ...]) -> NDArray[Any]:
    """Return values with the axes of an array type behind their own, along which they are repeated."""
    return np.broadcast_to(values.reshape(values.shape + (1,) * len(inner)), values.shape + inner)


def _loose(dt: Dtype) -> Dtype:
    """Return the same fields, all that is special of type object, for numpy to take tuples apart."""
    assert dt.names is not None
    assert dt.fields is not None
    kinds: list[Any] = []
    for name in dt.names:
        kind = dt.fields[name][0]
        kinds.append((name, _loose(kind) if kind.names is not None else kind))
    return np.dtype(kinds)


def references(values: Any, kind: type) -> NDArray[Any]:
    """Return references as an array of objects.

    Raises
    ------
    TypeError
        One is of another kind, or of the real h5py, whose class passes for ours.
    """
    array = np.asarray(values, dtype=object)
    wanted = RegionReference if kind.__name__ == "RegionReference" else Reference
    # where nobody put a reference yet, numpy has 0, or None
    if not all(
        type(item) is wanted or item is None or (type(item) is int and not item) for item in array.ravel().tolist()
    ):
        raise ConversionError(
            f"Can't convert an object that is not a {wanted.__name__} of pnc_vol to a reference of this kind"
        )
    return array


def rows_of(values: Any, base: Dtype, on_overflow: Overflow = "raise") -> NDArray[Any]:
    """Return arrays of varying length as an array of objects, each a 1-D array of `base`.

    An array of `base` with one axis is one row, one with more axes has its rows along the last.

    Examples
    --------
    >>> rows_of([[1, 2], [3]], np.dtype("i8")).tolist()
    [array([1, 2]), array([3])]
    """
    if base.kind == "O":
        return _rows_of_objects(values, base, on_overflow)
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        return _rows([_row(item, base, on_overflow) for item in values.ravel().tolist()], values.shape)
    try:
        array = conform(values, base, on_overflow)
    except (ConversionError, ValueError, TypeError):
        if not hasattr(values, "__len__") or getattr(values, "shape", None) == ():
            # one value, and no list of rows
            raise
        return _rows([_row(item, base, on_overflow) for item in values], (len(values),))
    if array.ndim > 1:
        *outer, length = array.shape
        return _rows(list(array.reshape(prod(outer), length)), tuple(outer))
    return _rows([np.atleast_1d(array)], ())


def _rows_of_objects(values: Any, base: Dtype, on_overflow: Overflow) -> NDArray[Any]:
    """Return rows whose values are objects themselves: texts, references, rows."""
    array = values if isinstance(values, np.ndarray) and values.dtype.kind == "O" else np.array(values, dtype=object)
    leaves = (str, bytes) if check_string_dtype(base) is not None else (Reference,)
    flat = array.ravel().tolist()
    if array.ndim == 0:
        return _rows([_row(flat[0], base, on_overflow)], ())
    if flat and all(isinstance(item, leaves) for item in flat):
        rows = array.reshape(-1, array.shape[-1])
        return _rows([conform(row, base, on_overflow) for row in rows], array.shape[:-1])
    return _rows([_row(item, base, on_overflow) for item in flat], array.shape)


def _row(item: Any, base: Dtype, on_overflow: Overflow) -> NDArray[Any]:
    if item is None or (isinstance(item, int) and item == 0):
        # what numpy and HDF5 have where nobody put anything
        return np.empty(0, base)
    array = conform(item, base, on_overflow)
    if array.ndim == 0:
        array = array.reshape(1)
    if array.ndim > 1 and base.subdtype is None:
        raise ConversionError(f"an array of varying length has one axis, not {array.ndim}")
    return array.astype(base) if array.dtype != base and base.subdtype is None else array


def _rows(found: list[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    made = np.empty(len(found), dtype=object)
    for at, row in enumerate(found):
        made[at] = row
    return made.reshape(shape)


# ------------------------------------------------------------------------------------------------------------ literals
# Values of types that NetCDF attributes cannot have are JSON text: compounds, arrays of varying length, references.
#
# Knows: the marker of such an attribute. Does not know: names, owners, headers.
#
# Rules
# -----
# 1. A compound is a list of its fields' values, an array a list; numbers are JSON numbers (which round-trip exactly),
#    text is text. Bytes that are no text, long doubles and opaque data are hexadecimal, dates integers, references
#    ``[path]`` or ``[path, region]``.
# 2. What is read is not trusted: anything that does not fit is a `ValueError` or a `TypeError`, and what is allocated
#    is what the text itself takes.


def to_attr(
    name: str, dtype: Dtype, shape: tuple[int, ...] | None, value: NDArray[Any] | None
) -> tuple[Attr, dict[str, Any]]:
    """Do as `attributes.to_attr` does, for a value that is JSON text."""
    marker = {"type": "json", "dtype": describe(dtype)}
    if shape is None or value is None:
        return Attr(name, CHAR, 0, b""), {**marker, "null": True}
    if shape:
        marker["shape"] = list(shape)
    text = to_text(value, dtype).encode("utf-8", "surrogateescape")
    return Attr(name, CHAR, len(text), text), marker


def from_attr(attr: Attr, marker: Mapping[str, Any]) -> tuple[Dtype, tuple[int, ...] | None, NDArray[Any] | None]:
    """Do as `attributes.from_attr` does; whatever does not fit is a ValueError, or another error of
    `from_text`."""
    described = undescribe(marker.get("dtype"))
    if described is None or attr.type != CHAR:
        raise ValueError("dtype")
    dtype = element_for(described).dtype
    if marker.get("null") is True and not attr.nelems:
        return dtype, None, None
    shape = marker.get("shape", [])
    if not is_shape(shape):
        raise ValueError("shape")
    try:
        return dtype, tuple(shape), from_text(attr.data.decode("utf-8", "surrogateescape"), dtype, tuple(shape))
    except RecursionError:
        raise ValueError("depth") from None


def literal(value: Any, wanted: Dtype) -> NDArray[Any]:
    """Return what the user gives for an attribute, as an array of `wanted`.

    Raises
    ------
    TypeError, ValueError
        It does not convert; the last axes of an array type are not its own.
    """
    element = element_for(wanted)
    dtype = element.dtype
    if element.kind == "composite":
        return conform(value, dtype)
    array = np.asarray(value)
    inner = () if dtype.subdtype is None else dtype.subdtype[1]
    if inner and array.shape[array.ndim - len(inner) :] != inner:
        raise DefinitionError(f"array dtype shape {inner} is incompatible with data of shape {array.shape}")
    coded = encode(value, element)
    if coded.dtype.kind != "V":
        return coded.view(np.dtype(dtype.str))
    return decode(np.ascontiguousarray(coded).reshape(-1).view(np.uint8), element, coded.shape)


def to_text(values: NDArray[Any], dtype: Dtype) -> str:
    """Return an array of `dtype` as JSON.

    Parameters
    ----------
    values : ndarray, of `dtype`; of an array type, with its axes
    dtype : dtype

    Examples
    --------
    >>> to_text(np.array((1, 2.5), "i4,f4"), np.dtype("i4,f4"))
    '[1,2.5]'
    """
    inner = 0 if dtype.subdtype is None else len(dtype.subdtype[1])
    return json.dumps(_listed(values, dtype, values.ndim - inner), separators=(",", ":"), ensure_ascii=False)


def _listed(values: Any, dtype: Dtype, axes: int) -> Any:
    """Return the items of an array of so many axes; an item may be an array itself."""
    if axes <= 0:
        return _one(values, dtype)
    return [_listed(item, dtype, axes - 1) for item in values]


def _one(value: Any, dtype: Dtype) -> Any:
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if dtype.names is not None:
        assert dtype.fields is not None
        return [_one(value[name], dtype.fields[name][0]) for name in dtype.names]
    base = ragged_base(dtype)
    if base is not None:
        return [] if value is None or not isinstance(value, np.ndarray) else [_one(item, base) for item in value]
    if dtype.subdtype is not None:
        return _listed(value, dtype.subdtype[0], len(dtype.subdtype[1]))
    kind = metadata_of(dtype).get("ref")
    if kind is not None:
        value = references(value, kind).item()
        if not isinstance(value, Reference):
            return [""]
        return [value.path, value.region] if isinstance(value, RegionReference) else [value.path]
    if check_string_dtype(dtype) is not None:
        coded = value if isinstance(value, bytes) else (value or "").encode("utf-8", "surrogateescape")
        return coded.decode("utf-8", "surrogateescape")
    if metadata_of(dtype).get("h5py_opaque") and dtype.kind in "Mm":
        return int(np.asarray(value).astype(dtype.newbyteorder("=")).view("i8"))
    if dtype.kind == "V" or metadata_of(dtype).get("h5py_opaque") or (dtype.kind in "fc" and dtype.char in "gG"):
        return np.asarray(value, np.dtype(dtype.str)).tobytes().hex()
    if dtype.kind == "c":
        return [float(value.real), float(value.imag)]
    return value.item() if isinstance(value, np.generic) else value


def from_text(text: str, dtype: Dtype, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array of `dtype` and `shape` that `to_text` was given.

    Raises
    ------
    ValueError, TypeError, KeyError, OverflowError
        The text does not fit.
    """
    found = json.loads(text)
    flat: list[Any] = []
    _flatten(found, shape, flat)
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        made = np.empty((len(flat), *inner), base)
        for at, item in enumerate(flat):
            made[at] = _made(item, dtype)
        return made.reshape((*shape, *inner))
    made = np.zeros(len(flat), dtype)
    for at, item in enumerate(flat):
        made[at] = _made(item, dtype)
    return made.reshape(shape)


def _flatten(found: Any, shape: tuple[int, ...], flat: list[Any]) -> None:
    if not shape:
        flat.append(found)
        return
    if not isinstance(found, list) or len(found) != shape[0]:
        raise ValueError("shape")
    for item in found:
        _flatten(item, shape[1:], flat)


def _made(item: Any, dtype: Dtype) -> Any:
    if dtype.names is not None:
        assert dtype.fields is not None
        if not isinstance(item, list) or len(item) != len(dtype.names):
            raise ValueError("fields")
        # of one element: into a scalar, numpy would spread the values of a row
        made = np.zeros(1, dtype)
        for name, value in zip(dtype.names, item, strict=True):
            made[name][0] = _made(value, dtype.fields[name][0])
        return made[0]
    base = ragged_base(dtype)
    if base is not None:
        row = np.empty(len(item), base)
        for at, value in enumerate(item):
            row[at] = _made(value, base)
        return row
    if dtype.subdtype is not None:
        flat: list[Any] = []
        _flatten(item, dtype.subdtype[1], flat)
        inner = np.empty(len(flat), dtype.subdtype[0])
        for at, value in enumerate(flat):
            inner[at] = _made(value, dtype.subdtype[0])
        return inner.reshape(dtype.subdtype[1])
    return _scalar(item, dtype)


def _scalar(item: Any, dtype: Dtype) -> Any:
    if "ref" in metadata_of(dtype):
        path, *region = item
        if not isinstance(path, str) or not all(isinstance(part, str) for part in region) or len(region) > 1:
            raise ValueError("reference")
        return RegionReference(path, None, region[0]) if region else Reference(path)
    info = check_string_dtype(dtype)
    if info is not None:
        if not isinstance(item, str):
            raise ValueError("text")
        coded = item.encode("utf-8", "surrogateescape")
        if info.length is None:
            return coded
        if len(coded) > info.length:
            raise ValueError("text")
        return coded
    if metadata_of(dtype).get("h5py_opaque") and dtype.kind in "Mm":
        return np.array(item, "i8").view(dtype.newbyteorder("="))[()]
    if dtype.kind == "V" or metadata_of(dtype).get("h5py_opaque") or (dtype.kind in "fc" and dtype.char in "gG"):
        raw = bytes.fromhex(item)
        if len(raw) != dtype.itemsize:
            raise ValueError("bytes")
        return np.frombuffer(raw, np.dtype(dtype.str))[0]
    if dtype.kind == "c":
        real, imaginary = item
        return complex(real, imaginary)
    if not isinstance(item, (int, float, bool)):
        raise ValueError("number")
    return item
