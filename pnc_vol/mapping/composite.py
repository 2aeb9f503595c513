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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pnc_vol.errors import ConversionError, RangeError
from pnc_vol.format.convert import Overflow, converted, may_overflow
from pnc_vol.mapping.dtypes import Dtype, check_string_dtype, element_for, metadata_of, string_dtype
from pnc_vol.mapping.encoding import encode, numbers
from pnc_vol.mapping.references import Reference, RegionReference

if TYPE_CHECKING:
    from pnc_vol.mapping.tree import DatasetNode

__all__ = ["Part", "add_parts", "conform", "is_ragged", "parts_of", "ragged_base", "references", "rows_of"]

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
    if isinstance(values, np.ndarray) and values.dtype.names is not None:
        raise ConversionError(f"No conversion path for dtype: {values.dtype!r} to {dt!r}")
    plain = np.dtype(dt.str) if dt.metadata else dt
    if isinstance(values, (list, tuple)) and plain.kind in "iuf":
        values = _as_array(values, plain, numbers)
    if isinstance(values, (np.ndarray, np.generic)) and _may_not_fit(values.dtype, plain):
        return converted(np.asarray(values), plain, on_overflow)
    return _as_array(values, plain)


def _may_not_fit(source: Dtype, target: Dtype) -> bool:
    return source.kind in "biufc" and target.kind in "biufc" and may_overflow(source, target)


def _as_array(values: Any, dt: Dtype, make: Callable[[Any, Dtype], NDArray[Any]] = np.asarray) -> NDArray[Any]:
    try:
        return make(values, dt)
    except RangeError:
        raise
    except OverflowError as problem:
        raise RangeError(f"a value does not fit {dt}: {problem}; store a wider type") from None
    except (TypeError, ValueError) as problem:
        raise ConversionError(f"No conversion path to {dt!r}: {problem}") from None


def _conform_compound(values: Any, dt: Dtype, on_overflow: Overflow) -> NDArray[Any]:
    assert dt.names is not None
    given: dict[str, Any]
    source: Any = values if isinstance(values, (np.ndarray, np.generic)) else _as_array(values, _loose(dt))
    own = source.dtype.names
    number = source.dtype.kind in "biuf" and not dt.hasobject
    if not (number or own) or (isinstance(source, np.void) and len(own) != len(dt.names)):
        source = _as_array(source, _loose(dt))
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
        return _rows([_row(item, base, on_overflow) for item in values], (len(values),))
    if array.ndim > 1:
        flat = array.reshape(-1, array.shape[-1])
        return _rows(list(flat), array.shape[:-1])
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
