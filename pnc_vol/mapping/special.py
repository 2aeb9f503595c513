"""h5py's special data types: plain numpy dtypes that carry metadata, and `Empty`.

Knows: the metadata keys that h5py puts on a dtype (``vlen``, ``h5py_encoding``, ``enum``, ``ref``,
``h5py_opaque``), so that a dtype made by either library works in the other. Does not know: files, types
of NetCDF, h5py itself (it is never imported here).

Rules
-----
1. Same results and same errors as the function of the same name in h5py 3.16.
2. Nothing here looks at a file: whether a type can be stored is found out when it is used.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "Empty",
    "check_complex_dtype",
    "check_dtype",
    "check_enum_dtype",
    "check_opaque_dtype",
    "check_ref_dtype",
    "check_string_dtype",
    "check_vlen_dtype",
    "complex_compat_dtype",
    "enum_dtype",
    "is_empty",
    "metadata_of",
    "opaque_dtype",
    "special_dtype",
    "string_dtype",
    "string_info",
    "vlen_dtype",
    "with_metadata",
]

Dtype = np.dtype[Any]


class StringInfo(NamedTuple):
    """What `check_string_dtype` finds.

    encoding : str, ``"utf-8"`` or ``"ascii"``.
    length : int, bytes of a fixed-length string, or None for variable length.
    """

    encoding: str
    length: int | None


StringInfo.__name__ = StringInfo.__qualname__ = "string_info"
string_info = StringInfo


class Empty:
    """A dataset or attribute that has a type but neither shape nor values (HDF5's null dataspace).

    Parameters
    ----------
    dtype : dtype-like

    Examples
    --------
    >>> Empty("f4") == Empty("f4"), Empty("f4").shape
    (True, None)
    """

    shape: ClassVar[None] = None
    size: ClassVar[None] = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype: Dtype = np.dtype(dtype)

    def __eq__(self, other: object) -> bool:
        return is_empty(other) and bool(self.dtype == getattr(other, "dtype", None))

    def __repr__(self) -> str:
        return f"Empty(dtype={self.dtype!r})"


def with_metadata(dt: DTypeLike, metadata: Mapping[str, Any]) -> Dtype:
    """The same dtype with metadata of its own."""
    tagged: Dtype = np.dtype(dt, metadata=dict(metadata))
    return tagged


def metadata_of(dt: object) -> Mapping[str, Any]:
    """The metadata of a dtype, an empty mapping if it has none (or is no dtype)."""
    return getattr(dt, "metadata", None) or {}


def is_empty(value: object) -> bool:
    """True for an `Empty` of this library or of h5py."""
    if isinstance(value, Empty):
        return True
    kind = type(value)
    return kind.__name__ == "Empty" and kind.__module__.partition(".")[0] == "h5py"


def string_dtype(encoding: str = "utf-8", length: int | None = None) -> Dtype:
    """A dtype for strings.

    Parameters
    ----------
    encoding : {"utf-8", "ascii"}
    length : int or None
        Bytes of a fixed-length string; None for variable length.

    Raises
    ------
    ValueError
        Another encoding.
    TypeError
        `length` is not an int.

    Examples
    --------
    >>> check_string_dtype(string_dtype("utf-8", 10))
    string_info(encoding='utf-8', length=10)
    """
    if encoding not in ("utf-8", "ascii"):
        with suppress(LookupError):
            encoding = codecs.lookup(encoding).name
        if encoding not in ("utf-8", "ascii"):
            raise ValueError(f"Invalid encoding ({encoding!r}); 'utf-8' or 'ascii' allowed")
    if isinstance(length, int):
        return np.dtype(f"|S{length}", metadata={"h5py_encoding": encoding})
    if length is not None:
        raise TypeError(f"length must be integer or None (got {length!r})")
    return _TEXT[encoding]


_TEXT = {"utf-8": np.dtype("O", metadata={"vlen": str}), "ascii": np.dtype("O", metadata={"vlen": bytes})}


def check_string_dtype(dt: Dtype) -> StringInfo | None:
    """The string's encoding and length, or None if `dt` is not a string type of HDF5.
    Parameters
    ----------
    dt : dtype
    """
    kind = dt.kind
    metadata = metadata_of(dt)
    if kind == "O":
        vlen = metadata.get("vlen")
        if vlen is str:
            return StringInfo("utf-8", None)
        return StringInfo("ascii", None) if vlen is bytes else None
    if kind == "S":
        return StringInfo(metadata.get("h5py_encoding", "ascii"), dt.itemsize)
    return StringInfo("utf-8", None) if kind == "T" else None


def enum_dtype(values_dict: Mapping[str, int], basetype: DTypeLike = np.uint8) -> Dtype:
    """A dtype for named integers.

    Parameters
    ----------
    values_dict : dict of str to int
    basetype : dtype-like of an integer type

    Raises
    ------
    TypeError
        `basetype` is not an integer type.

    Examples
    --------
    >>> check_enum_dtype(enum_dtype({"RED": 0, "GREEN": 1}))
    {'RED': 0, 'GREEN': 1}
    """
    dt = np.dtype(basetype)
    if not np.issubdtype(dt, np.integer):
        raise TypeError("Only integer types can be used as enums")
    return with_metadata(dt, {"enum": values_dict})


def check_enum_dtype(dt: Dtype) -> Any:
    """The names and values of an enum dtype, or None.
    Parameters
    ----------
    dt : dtype
    """
    return metadata_of(dt).get("enum")


def vlen_dtype(basetype: Any) -> Dtype:
    """A dtype for arrays of varying length of `basetype`; ``vlen_dtype(str)`` is `string_dtype`.

    Parameters
    ----------
    basetype : dtype-like
    """
    return np.dtype("O", metadata={"vlen": basetype})


def check_vlen_dtype(dt: Dtype) -> Any:
    """The type of one element of a varying-length dtype, or None.
    Parameters
    ----------
    dt : dtype
    """
    return metadata_of(dt).get("vlen")


def opaque_dtype(np_dtype: DTypeLike) -> Dtype:
    """A dtype whose values are stored as opaque bytes: dates, above all, which HDF5 has no type for.

    Parameters
    ----------
    np_dtype : dtype-like

    Raises
    ------
    TypeError
        A type of objects, of fields, or an array type.

    Examples
    --------
    >>> check_opaque_dtype(opaque_dtype("M8[s]"))
    True
    """
    dt = np.dtype(np_dtype)
    if dt.kind == "O":
        raise TypeError("Cannot store numpy object arrays as opaque data")
    if dt.names is not None:
        raise TypeError("Cannot store numpy structured arrays as opaque data")
    if dt.subdtype is not None:
        raise TypeError("Cannot store numpy sub-array dtype as opaque data")
    if not dt.itemsize:
        raise TypeError("dtype for opaque data must have explicit size")
    return with_metadata(dt, {"h5py_opaque": True})


def check_opaque_dtype(dt: Dtype) -> bool:
    """True if h5py would store `dt` as opaque bytes.
    Parameters
    ----------
    dt : dtype
    """
    return bool(metadata_of(dt).get("h5py_opaque", False))


def check_ref_dtype(dt: Dtype) -> Any:
    """The reference class of a reference dtype, or None.
    Parameters
    ----------
    dt : dtype
    """
    return metadata_of(dt).get("ref")


def check_complex_dtype(dt: Dtype) -> Dtype | None:
    """The complex dtype that `dt` is, or that its two float fields ``r`` and ``i`` stand for; else None.
    Parameters
    ----------
    dt : dtype
    """
    if dt.kind == "c":
        return dt
    if dt.names == ("r", "i") and dt.fields is not None:
        real, imaginary = dt.fields["r"][0], dt.fields["i"][0]
        if real == imaginary and real.kind == "f" and real.itemsize in (4, 8):
            return np.dtype(f"{real.byteorder}c{2 * real.itemsize}")
    return None


def complex_compat_dtype(dt: DTypeLike) -> Dtype:
    """The compound of two floats, ``r`` and ``i``, that stands for a complex type in HDF5.

    Parameters
    ----------
    dt : dtype-like

    Raises
    ------
    TypeError
        No complex type.

    Examples
    --------
    >>> complex_compat_dtype("c8").names
    ('r', 'i')
    """
    kind = np.dtype(dt)
    if kind.kind != "c":
        raise TypeError(f"{kind!r} is not a complex type")
    part = np.dtype(f"{kind.byteorder}f{kind.itemsize // 2}")
    return np.dtype([("r", part), ("i", part)])


def special_dtype(**kwds: Any) -> Dtype:
    """A special dtype, by the function of older versions of h5py.

    Parameters
    ----------
    **kwds
        Exactly one of ``vlen=basetype``, ``enum=(basetype, values)``, ``ref=class``.

    Raises
    ------
    TypeError
        Not exactly one keyword, or an unknown one.
    Examples
    --------
    >>> special_dtype(vlen=str).metadata["vlen"]
    <class 'str'>
    """
    name, value = _only_one(kwds)
    if name == "vlen":
        return vlen_dtype(value)
    if name == "enum":
        try:
            basetype, values = value
        except TypeError:
            raise TypeError("Enums must be created from a 2-tuple (basetype, values_dict)") from None
        return enum_dtype(values, basetype)
    if name == "ref":
        if value.__name__ not in ("Reference", "RegionReference"):
            raise ValueError("Ref class must be Reference or RegionReference")
        return with_metadata("O", {"ref": value})
    raise TypeError(f'Unknown special type "{name}"')


def check_dtype(**kwds: Any) -> Any:
    """What a special dtype stands for, as older programs for h5py ask for it; see the other ``check_`` functions.

    Parameters
    ----------
    **kwds
        Exactly one of ``vlen=dtype``, ``enum=dtype``, ``ref=dtype``.

    Raises
    ------
    TypeError
        Not exactly one keyword, or an unknown one.
    """
    name, dt = _only_one(kwds)
    if name not in ("vlen", "enum", "ref"):
        raise TypeError(f'Unknown special type "{name}"')
    return (dt.metadata or {}).get(name)


def _only_one(kwds: dict[str, Any]) -> tuple[str, Any]:
    if len(kwds) != 1:
        raise TypeError("Exactly one keyword may be provided")
    return kwds.popitem()
