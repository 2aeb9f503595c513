"""`plan` checks the arguments of ``create_dataset`` by h5py's rules, and makes the plan of a dataset.

Fill values are encoded to the bytes of one element, and decoded, here, too; and `say_instead` explains why something
cannot be stored in a dataset or an attribute, and what to store instead.

Knows: mapping's elements and encodings, Python's and numpy's types. Does not know: paths, sessions, where the dataset
will be, which elements nobody wrote.

Rules
-----
1. `plan` checks everything and changes nothing; a dataset is made only when all of it is right.
2. The errors are the builtins that h5py raises for the same mistake.
3. Any axis may grow; only the first one, if it has no limit, does so without its data being laid out anew.
"""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.api.filters import OPTIONS, check_storage
from pnc_vol.errors import ConversionError, DefinitionError, NotYetError, did_you_mean
from pnc_vol.format import numeric
from pnc_vol.format.limits import check_length, check_type
from pnc_vol.format.numeric import Overflow
from pnc_vol.late import late
from pnc_vol.mapping import encoding
from pnc_vol.mapping.dtypes import RAW_KINDS, Element, check_string_dtype, element_for, is_empty
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    from pnc_vol.mapping import composite
else:
    composite = late("pnc_vol.mapping.composite")

__all__ = [
    "OURS", "DatasetPlan", "check_version", "checked_fill", "fill_bytes", "fill_of", "fill_parts", "fill_value",
    "plain", "plan", "say_instead",
]  # fmt: skip

Shape = tuple[int, ...]
MAX_RANK = 32
"""HDF5's limit, kept because `h5py` code relies on numpy arrays of the same rank."""


OURS = ("decomposition", "dims")
"""Keywords of ``create_dataset`` that h5py does not have."""


class DatasetPlan(NamedTuple):
    """A dataset that may be created.

    element, shape, maxshape, fillvalue : as in `DatasetNode`; the fill value of a compound is a structured scalar.
    ignored : dict, storage options to remember.
    data : ndarray of `shape`, or None, what to write.
    """

    element: Element
    shape: Shape | None
    maxshape: tuple[int | None, ...] | None
    fillvalue: Any
    ignored: dict[str, Any]
    data: npt.NDArray[Any] | None


def plan(shape: Any, dtype: Any, data: Any, options: Mapping[str, Any], on_overflow: Overflow = "raise") -> DatasetPlan:
    """Check the arguments of ``create_dataset``.

    Parameters
    ----------
    shape : int, sequence of int, or None to take the data's
    dtype : dtype-like or None to take the data's
    data : array-like, Empty or None
    options : the other keywords
    on_overflow : "raise" or "clip", for data of compounds

    Raises
    ------
    TypeError
        Nothing to go by, an unknown keyword, a type that HDF5 lacks.
    ValueError
        Shapes that do not fit each other.
    NotYetError
        A type or a storage that this version does not have.
    """
    if data is None and type(shape) is tuple and options.keys() <= {"maxshape"} and _is_simple(dtype):
        # A mistake, or what cannot be kept, is told, or done, as others are.
        with suppress(TypeError, ValueError):
            return _plan_alike(shape, dtype, options.get("maxshape"))
    try:
        return _plan(shape, dtype, data, options, on_overflow)
    except ConversionError as error:
        say_instead(error, "the data of a dataset", () if data is None else data, dtype)
        raise


def _is_simple(dtype: Any) -> bool:
    """Return whether a type is all that equal ones are: those with metadata are equal to those without."""
    return type(dtype) is str or (isinstance(dtype, np.dtype) and dtype.kind in "iufS" and dtype.metadata is None)


_LARGE = 1 << 32
"""Elements that a dataset may have in any file, whatever else is in it."""


@functools.lru_cache(maxsize=256, typed=True)
def _plan_alike(shape: Shape, dtype: Any, maxshape: tuple[int | None, ...] | None) -> DatasetPlan:
    """Return the plan of a dataset without data: programs make many datasets of a few kinds.

    Raises
    ------
    TypeError, ValueError
        A mistake, or so many elements that the file has to be asked whether it can hold them.
    """
    found = _plan(shape, dtype, None, {} if maxshape is None else {"maxshape": maxshape})
    if prod(n or 1 for n in found.shape or ()) > _LARGE:
        raise DefinitionError(f"{shape} elements may be too many")
    return found


def _plan(
    shape: Any, dtype: Any, data: Any, options: Mapping[str, Any], on_overflow: Overflow = "raise"
) -> DatasetPlan:
    _known(options)
    wanted = None if dtype is None else np.dtype(dtype)
    if data is None and shape is None:
        if wanted is None:
            raise TypeError("One of data, shape or dtype must be specified: a dataset of None would hold nothing")
        empty, array, element = True, None, element_for(wanted)
    elif is_empty(data):
        if shape is not None:
            raise TypeError("an Empty dataset has no shape; leave shape= out")
        empty, array, element = True, None, element_for(data.dtype if wanted is None else wanted)
    elif data is None:
        if wanted is None:
            warn_outside(
                "create_dataset without data or dtype makes float32, and will be refused one day; give dtype=",
                DeprecationWarning,
            )
        empty, array, element = False, None, element_for(np.dtype("f4") if wanted is None else wanted)
    else:
        empty = False
        array, element = _prepared(data, wanted, on_overflow)
    if shape is None and array is not None:
        shape = array.shape[: array.ndim - len(element.axes)]
    full = None if empty else _shape(shape, array)
    if array is not None and full is not None:
        inner = element.axes
        if prod(full) * prod(inner) != array.size:
            raise DefinitionError(
                f"Shape tuple is incompatible with data: {full} was asked, the data has {array.shape}"
            )
        array = array.reshape((*full, *inner))
    limits = _maxshape(options.get("maxshape"), full)
    ignored = check_storage(full, limits, element.dtype, options)
    fill: Any = options.get("fillvalue")
    if fill is not None:
        if element.kind != "composite":
            element, fill = fill_bytes(fill, element)
        else:
            fill = checked_fill(fill, element)
    return DatasetPlan(element, full, limits, fill, ignored, array)


def plain(shape: Any, dtype: Any, data: Any, maxshape: Any = None) -> tuple[DatasetPlan | None, Any]:
    """Return the plan of a dataset of numbers without more options, where it is plain to see, and its data; else None.

    Parameters
    ----------
    shape, dtype, data, maxshape
        As in ``create_dataset``: the data, or type and shape.

    Returns
    -------
    DatasetPlan or None
    data : ndarray, if there is a plan and data were given
    """
    if data is not None:
        if shape is not None or dtype is not None:
            return None, data
        data = _as_numbers(data)
        if type(data) is not np.ndarray:
            return None, data
        shape, dtype = data.shape, data.dtype
        if dtype.kind not in "iuf" or dtype.metadata is not None:
            return None, data
    elif type(shape) is not tuple or not _is_simple(dtype):
        return None, data
    try:
        found = _plan_alike(shape, dtype, maxshape)
    except (TypeError, ValueError):
        # a mistake, which is told as others are
        return None, data
    element = found[0]
    if element.kind != "number" or found[1] is None or (data is not None and element.dtype != dtype):
        return None, data
    return found, data


def _as_numbers(data: Any) -> Any:
    """Return a number of Python, or a list that begins with one, as the array that it becomes; anything else as it
    is."""
    first = data[0] if type(data) is list and data else data
    if type(first) is not float and type(first) is not int:
        return data
    try:
        return np.asarray(data)
    except (ValueError, OverflowError):
        # no array, which is told as others are
        return data


def check_version(path: str, element: Element, shape: Shape | None, version: int) -> None:
    """Refuse at once what the file's version cannot hold: at a flush it would stop everything else.

    Parameters
    ----------
    path : str, for the text
    version : {1, 2, 5}

    Raises
    ------
    ValueError
        The type, or the length of an axis.
    """
    if version != 5:
        check_type(f"dataset {path!r}", element.nc_type, version)
        for axis, length in enumerate(shape or ()):
            check_length(f"dataset {path!r}, axis {axis},", length, version)


def _known(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in OPTIONS and name not in ("maxshape", "fillvalue"):
            near = did_you_mean(name, OPTIONS, ("shape", "dtype", "data", "maxshape", "fillvalue", *OURS))
            raise TypeError(f"create_dataset() got an unexpected keyword argument {name!r}{near}")


def _prepared(data: Any, wanted: np.dtype[Any] | None, on_overflow: Overflow) -> tuple[npt.NDArray[Any], Element]:
    """Return the data as an array that can be encoded, and the element that holds it."""
    if wanted is None:
        array, wanted = encoding.guessed(data)
        element = element_for(wanted)
    else:
        element = element_for(wanted)
        if element.kind == "composite":
            array = composite.conform(data, element.dtype, on_overflow)
        elif isinstance(data, np.ndarray):
            array = data
        elif element.is_string:
            array = encoding.encode(data, element)
        elif element.kind in RAW_KINDS:
            array = np.asarray(data, dtype=np.dtype(element.dtype.base.str))
        elif element.kind == "bool":
            array = np.asarray(data, dtype=bool)
        else:
            array = encoding.numbers(data, wanted)
    if element.kind == "complex":
        array = encoding.from_fields(array, element.dtype)
    if element.kind == "vlen_string":
        # wide enough from the start, so that the first flush needs not lay it out anew
        array = encoding.encode(array, element)
        element = element.widened(array.dtype.itemsize)
    elif element.kind in RAW_KINDS or element.kind == "composite":
        pass
    elif array.dtype.kind not in "biufc" and not element.is_string:
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {element.dtype!r}")
    return array, element


def _shape(shape: Any, array: npt.NDArray[Any] | None) -> Shape:
    if shape is None:
        assert array is not None
        full: Shape = array.shape
    elif isinstance(shape, (int, np.integer)):
        full = (int(shape),)
    else:
        full = tuple(_length(n) for n in shape)
    if any(n < 0 for n in full):
        raise OverflowError(f"shape={full}: a dimension cannot be negative")
    if len(full) > MAX_RANK:
        raise DefinitionError(f"shape={full}: at most {MAX_RANK} dimensions are possible")
    return full


def _length(value: Any) -> int:
    if isinstance(value, (float, np.floating)):
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"shape: {value!r} is no length of a dimension; an integer is needed") from None


def _maxshape(maxshape: Any, shape: Shape | None) -> tuple[int | None, ...] | None:
    """Return the limits, if any."""
    if maxshape is None:
        return None
    if isinstance(maxshape, (int, np.integer)):
        maxshape = (int(maxshape),)
    if not shape:
        if shape is None or tuple(maxshape) != ():
            raise TypeError(f"{'Empty' if shape is None else 'Scalar'} datasets cannot be extended")
        return None
    limits = tuple(None if n is None else _length(n) for n in maxshape)
    if len(limits) != len(shape):
        raise DefinitionError("'maxshape' must have same rank as dataset shape")
    if any(limit is not None and limit < n for limit, n in zip(limits, shape, strict=True)):
        raise DefinitionError(f"maxshape={limits} is smaller than shape={shape}")
    return limits


# ------------------------------------------------------------------------------------------------------ fill values


def fill_bytes(value: Any, element: Element) -> tuple[Element, bytes | None]:
    """Return a fill value as one element of the file; a string element is widened to hold it.

    Raises
    ------
    TypeError
        No way from the value to the type.
    ValueError
        Not one value, or one that does not fit the type.
    """
    if value is None:
        return element, None
    given = value
    if element.kind == "array":
        value = np.broadcast_to(np.asarray(value), element.axes)
    elif not element.is_string:
        # a fill value is cast, as h5py does; out of range stays an error
        value = np.asarray(value)
    try:
        coded = encoding.encode(value, element)
    except ConversionError as problem:
        raise ConversionError(f"fillvalue={given!r}: {problem}") from None
    if coded.size != 1:
        raise DefinitionError(f"fillvalue={value!r}: one value is needed")
    if element.kind == "vlen_string" and coded.dtype.itemsize > element.itemsize:
        element = element.widened(coded.dtype.itemsize)
    raw = np.empty(element.itemsize, np.uint8)
    numeric.to_file(coded.reshape(1), element.file_dtype, raw, what="fillvalue")
    if element.kind == "vlen_string":
        # without padding: ranks whose data differ in width must agree on the fill value
        return element, raw.tobytes().rstrip(b"\0") or None
    return element, raw.tobytes()


def fill_value(stored: bytes | None, element: Element) -> Any:
    """Return the fill value as the user sees it: a numpy scalar, or bytes for strings.

    Examples
    --------
    >>> fill_value(None, element_for("i2")).item()
    0
    """
    raw = np.frombuffer((stored or b"").ljust(element.itemsize, b"\0"), np.uint8)
    return encoding.decode(raw, element, (1,))[0]


def checked_fill(value: Any, element: Element) -> Any:
    """Return the fill value of a compound, as a structured scalar.

    Raises
    ------
    ValueError
        It does not convert.
    NotYetError
        A type that has no fields.
    """
    if element.dtype.names is None:
        raise NotYetError(f"fillvalue={value!r}: {element.dtype!r} has no fill value; leave fillvalue= out")
    if not isinstance(value, (tuple, list, np.ndarray, np.void)):
        raise DefinitionError(f"fillvalue={value!r}: a value for each field of {element.dtype!r} is needed")
    try:
        made = composite.conform(value, element.dtype)
    except ConversionError as problem:
        raise DefinitionError(f"fillvalue={value!r}: {problem}") from None
    if made.shape != ():
        raise DefinitionError(f"fillvalue={value!r}: one value is needed")
    return made[()]


def fill_parts(node: DatasetNode, value: Any) -> None:
    """Give the parts of a new compound dataset their fill values."""
    if node.element.dtype.names is None:
        return
    for name, part in node.parts.items():
        if part.element.kind == "composite":
            fill_parts(part, value[name])
        else:
            part.element, part.fillvalue = fill_bytes(value[name], part.element)


def fill_of(node: DatasetNode) -> Any:
    """Return the fill value of a dataset, one that takes several variables included."""
    dtype = node.element.dtype
    if dtype.kind == "O" and check_string_dtype(dtype) is None:
        # HDF5 has none for arrays of varying length and references.
        return None
    if node.away is not None:
        stored = node.away.fill
        if dtype.kind == "O":
            return b""
        return np.zeros((), dtype)[()] if stored is None else np.frombuffer(stored, dtype)[0]
    if not node.parts:
        return fill_value(node.fillvalue, node.element)
    made = np.zeros((), node.element.dtype)
    for name in node.element.dtype.names or ():
        part = node.parts[name]
        made[name] = fill_of(part)
    return made[()]


# ------------------------------------------------------------------------------------------- what cannot be stored

_TIME = (
    "NetCDF has no type for times: store numbers, and say in the attribute 'units' what they count, such as "
    "'days since 2000-01-01'"
)
_NUMBERS = "(x - np.datetime64('2000-01-01')) / np.timedelta64(1, 'D')"


def say_instead(error: ConversionError, what: str, value: Any, dtype: Any = None) -> None:
    """Say in the error what could not be stored, and how such values are stored instead, if that is known.

    Parameters
    ----------
    what : str, such as ``"attribute 'units' of '/t'"``.
    value : what was to be stored, or None if only its type is known.
    dtype : dtype-like, optional
    """
    instead = _instead(value, dtype)
    if instead:
        error.args = (f"Unable to store {what}: {instead}",)


def _instead(value: Any, dtype: Any) -> str:
    found = getattr(value, "dtype", dtype)
    kind = np.dtype(found).kind if isinstance(found, (np.dtype, str, type)) and found is not object else ""
    if kind == "M":
        return f"{found} is a type of numpy alone. {_TIME}: {_NUMBERS}"
    if kind == "m":
        return f"{found} is a type of numpy alone. Store numbers, x / np.timedelta64(1, 's'), with 'units' 's'"
    if kind == "U":
        return "numpy's fixed-width text has no equivalent in HDF5. Store text of any length, x.astype(string_dtype())"
    if isinstance(value, (list, tuple)) and len({isinstance(one, (str, bytes)) for one in value}) == 2:
        return "its items are not of one type. Store texts and others apart, or all as text"
    item = _odd_item(value)
    name = type(item).__name__
    if isinstance(item, (datetime.datetime, datetime.date)):
        return f"a {name} is no value of HDF5 or NetCDF. Store its text, x.isoformat(). {_TIME}"
    if isinstance(item, datetime.timedelta):
        return f"a {name} is no value of HDF5 or NetCDF. Store x.total_seconds(), with 'units' 's'"
    if isinstance(item, dict):
        return (
            "a dict is no value of HDF5 or NetCDF. Store each of its items under its own name, as attrs.update(x) does "
            "for attributes, or all of it as text, json.dumps(x)"
        )
    if item is None:
        return (
            "None is no value of HDF5 or NetCDF. Leave it out, or store Empty('f4') for a value that is not there, NaN "
            "for a missing number, '' for a missing text"
        )
    if isinstance(item, (set, frozenset)):
        return f"a {name} is no value of HDF5 or NetCDF. Store sorted(x)"
    if isinstance(item, int) and not isinstance(item, bool):
        return f"{item} is beyond 64 bits. Store a float, or its digits as text, str(x)"
    if hasattr(item, "__fspath__"):
        return "a path is no value of HDF5 or NetCDF. Store its text, str(x)"
    return ""


def _odd_item(value: Any, depth: int = 0) -> Any:
    """Return the first item that is neither text nor an ordinary number; "" if there is none."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "O":
            return ""
        value = value.ravel().tolist()
    if isinstance(value, (list, tuple)):
        if depth < 32:
            for item in value:
                odd = _odd_item(item, depth + 1)
                if not (isinstance(odd, str) and odd == ""):
                    return odd
        return ""
    if isinstance(value, int):
        return "" if -(1 << 63) <= value < 1 << 64 else value
    return "" if isinstance(value, (str, bytes, float, complex, np.generic)) else value
