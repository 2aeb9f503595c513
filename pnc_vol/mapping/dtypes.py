"""This module has h5py's special data types, and how one element of any type is stored in the file.

Knows: numpy dtypes with h5py's metadata, NC type codes, hidden trailing dimensions. Does not know: variables,
headers, selections, byte ranges; conversion of numbers to big-endian is `format.numeric`'s.

Rules
-----
1. Strings are characters with a trailing dimension, booleans bytes, complex numbers have a trailing dimension of 2,
   enums are their base type, float16 is float. Compounds, arrays of varying length and references take several
   variables (`mapping.composite`); theirs is a byte that holds nothing. Everything else is the type of the same name.
2. An array type of numbers is its numbers, with trailing dimensions; other programs see an array with more axes.
3. Opaque data and long doubles are their bytes, as the machine has them, with a trailing dimension; dates are their
   int64.
"""

from __future__ import annotations

import codecs
from abc import ABCMeta
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pnc_vol.errors import ConversionError, DefinitionError
from pnc_vol.format.model import BYTE, CHAR, DOUBLE, FLOAT, INT64, UBYTE, nc_type
from pnc_vol.mapping.names import NameBook

__all__ = [
    "COMPLEX_DIM",
    "RAW_KINDS",
    "Element",
    "Empty",
    "Kind",
    "Reference",
    "RegionReference",
    "check_complex_dtype",
    "check_dtype",
    "check_enum_dtype",
    "check_opaque_dtype",
    "check_ref_dtype",
    "check_string_dtype",
    "check_vlen_dtype",
    "complex_compat_dtype",
    "element_for",
    "enum_dtype",
    "is_empty",
    "metadata_of",
    "opaque_dtype",
    "ref_dtype",
    "regionref_dtype",
    "special_dtype",
    "string_dtype",
    "string_info",
    "vlen_dtype",
    "with_metadata",
]


# ------------------------------------------------------------------------------------------------------------- special
# h5py's special data types: plain numpy dtypes that carry metadata, and `Empty`.
#
# Knows: the metadata keys that h5py puts on a dtype (``vlen``, ``h5py_encoding``, ``enum``, ``ref``,
# ``h5py_opaque``), so that a dtype made by either library works in the other. Does not know: files, types
# of NetCDF, h5py itself (it is never imported here).
#
# Rules
# -----
# 1. Same results and same errors as the function of the same name in h5py 3.16.
# 2. Nothing here looks at a file: whether a type can be stored is found out when it is used.


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
    """Return the same dtype with metadata of its own."""
    tagged: Dtype = np.dtype(dt, metadata=dict(metadata))
    return tagged


def metadata_of(dt: object) -> Mapping[str, Any]:
    """Return the metadata of a dtype, an empty mapping if it has none (or is no dtype)."""
    return getattr(dt, "metadata", None) or {}


def is_empty(value: object) -> bool:
    """Return True for an `Empty` of this library or of h5py."""
    if isinstance(value, Empty):
        return True
    kind = type(value)
    return kind.__name__ == "Empty" and kind.__module__.partition(".")[0] == "h5py"


def string_dtype(encoding: str = "utf-8", length: int | None = None) -> Dtype:
    """Return a dtype for strings.

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
    """Return the string's encoding and length, or None if `dt` is not a string type of HDF5.

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
    """Return a dtype for named integers.

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
    """Return the names and values of an enum dtype, or None.

    Parameters
    ----------
    dt : dtype
    """
    return metadata_of(dt).get("enum")


def vlen_dtype(basetype: Any) -> Dtype:
    """Return a dtype for arrays of varying length of `basetype`; ``vlen_dtype(str)`` is `string_dtype`.

    Parameters
    ----------
    basetype : dtype-like
    """
    return np.dtype("O", metadata={"vlen": basetype})


def check_vlen_dtype(dt: Dtype) -> Any:
    """Return the type of one element of a varying-length dtype, or None.

    Parameters
    ----------
    dt : dtype
    """
    return metadata_of(dt).get("vlen")


def opaque_dtype(np_dtype: DTypeLike) -> Dtype:
    """Return a dtype whose values are stored as opaque bytes: dates, above all, which HDF5 has no type for.

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
    """Return True if h5py would store `dt` as opaque bytes.

    Parameters
    ----------
    dt : dtype
    """
    return bool(metadata_of(dt).get("h5py_opaque", False))


def check_ref_dtype(dt: Dtype) -> Any:
    """Return the reference class of a reference dtype, or None.

    Parameters
    ----------
    dt : dtype
    """
    return metadata_of(dt).get("ref")


def check_complex_dtype(dt: Dtype) -> Dtype | None:
    """Return the complex dtype that `dt` is, or that its two float fields ``r`` and ``i`` stand for; else None.


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
    """Return the compound of two floats, ``r`` and ``i``, that stands for a complex type in HDF5.

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
    """Return a special dtype, by the function of older versions of h5py.

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
    """Return what a special dtype stands for, as older programs for h5py ask for it; see the other ``check_``
    functions.

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


# ---------------------------------------------------------------------------------------------------------- references
# A reference is a value that names an object of the same file, or elements of one.
#
# Rules
# -----
# 1. A reference is the path of its object: its own, where HDF5 gives any of its names. While the file is open it also
#    keeps the node, so that a reference made before a move is stored with the new path.
# 2. A null reference is false, and stored as an empty path.


class Reference(metaclass=ABCMeta):  # noqa: B024 (h5py's own class is registered)
    """Names an object of a file: ``f[ref]`` opens it. Without an argument it is null, and false.

    Parameters
    ----------
    path : str
        Absolute path of the object; empty for the null reference.
    node : Node, optional
        The object, while its file is open.

    Examples
    --------
    >>> bool(Reference()), Reference("/a") == Reference("/a")
    (False, True)
    """

    __slots__ = ("_node", "_path")

    def __init__(self, path: str = "", node: Any = None) -> None:
        self._path = path
        self._node = node

    @property
    def path(self) -> str:
        """Where the object is now, or where it was when the reference was stored."""
        return self._path if self._node is None or not self._path else str(self._node.path)

    @property
    def region(self) -> str:
        """The elements, as JSON; empty for a reference to a whole object."""
        return ""

    def __bool__(self) -> bool:
        return bool(self._path)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reference):
            return NotImplemented
        return type(self) is type(other) and self.path == other.path and self.region == other.region

    def __hash__(self) -> int:
        return hash((type(self), self.path, self.region))

    def __repr__(self) -> str:
        return f"<HDF5 object reference{'' if self else ' (null)'}>"


class RegionReference(Reference):
    """Names elements of a dataset: ``ds[ref]`` reads them.

    Parameters
    ----------
    path, node
        As of `Reference`.
    region : str
        The selection as JSON: ``{"select": [[first, count, step] or {"list": [indices]}, ...]}``, one entry for each
        axis, or ``{"points": [...]}`` with numbers of elements in C order.
    """

    __slots__ = ("_region",)

    def __init__(self, path: str = "", node: Any = None, region: str = "") -> None:
        super().__init__(path, node)
        self._region = region

    @property
    def region(self) -> str:
        return self._region

    def __repr__(self) -> str:
        return f"<HDF5 region reference{'' if self else ' (null)'}>"


ref_dtype = np.dtype("O", metadata={"ref": Reference})
regionref_dtype = np.dtype("O", metadata={"ref": RegionReference})


# ------------------------------------------------------------------------------------------------------------ elements


Kind = Literal[
    "number", "bool", "string", "vlen_string", "enum", "complex", "float16",
    "array", "opaque", "longdouble", "datetime", "composite",
]  # fmt: skip
RAW_KINDS = frozenset(("array", "opaque", "longdouble", "datetime"))
"""Kinds that are several numbers, or bytes."""
COMPLEX_DIM = "_pfnc_complex"
"""Name of the trailing dimension of complex variables, as nc-complex (netCDF4's ``auto_complex``) writes it."""


class Element(NamedTuple):
    """How one element is stored in the file.

    dtype : dtype that the user sees, with h5py's metadata.
    file_dtype : big-endian dtype of one element, hidden trailing dimensions included: ``>f8``, ``S10``, ``>c16``.
    nc_type : int, NC type code of the variable.
    trailing : tuple of int, sizes of the hidden trailing dimensions.
    trailing_names : tuple of str, their names.
    kind : what the element is.
    """

    dtype: Dtype
    file_dtype: Dtype
    nc_type: int
    trailing: tuple[int, ...] = ()
    trailing_names: tuple[str, ...] = ()
    kind: Kind = "number"

    @property
    def itemsize(self) -> int:
        """Bytes of one element in the file."""
        return self.file_dtype.itemsize

    @property
    def is_string(self) -> bool:
        """True for strings, fixed or of varying length."""
        return self.nc_type == CHAR

    @property
    def encoding(self) -> str:
        """``"utf-8"`` or ``"ascii"``; the latter for all that is no string."""
        metadata = metadata_of(self.dtype)
        return "utf-8" if metadata.get("vlen") is str or metadata.get("h5py_encoding") == "utf-8" else "ascii"

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes that arrays of values have behind those of the dataset."""
        return () if self.dtype.subdtype is None else self.dtype.subdtype[1]

    def as_characters(self) -> Element:
        """Return single characters that have no trailing dimension, out of strings of one byte that have one."""
        return self._replace(trailing=(), trailing_names=())

    def widened(self, width: int) -> Element:
        """Return the same string element with room for `width` bytes."""
        width = max(1, width)
        return self._replace(file_dtype=np.dtype(f"S{width}"), trailing=(width,), trailing_names=(f"strlen_{width}",))


# ------------------------------------------------------------------------------------ from the user's dtype


def element_for(dtype: DTypeLike, *, width: int = 1) -> Element:
    """Return the element that holds values of `dtype`.

    Parameters
    ----------
    dtype : dtype-like
    width : int, bytes
        Room for a string of varying length; `Element.widened` changes it later.

    Raises
    ------
    TypeError
        A type without an equivalent in HDF5: ``U``, plain ``O``, dates.
    ValueError
        A type whose values take no bytes.

    Examples
    --------
    >>> element_for("c16").trailing
    (2,)
    """
    dt = np.dtype(dtype)
    if dt.kind in "iuf" and dt.metadata is None:
        return plain_element(dt)
    info = check_string_dtype(dt)
    if info is not None:
        return _string_element(*info, width)
    # numpy's equality does not look at metadata, which the fields of a compound may have
    if dt.metadata is None and dt.kind != "V":
        return plain_element(dt)
    return _element(dt)


@lru_cache(maxsize=256)
def plain_element(dt: Dtype) -> Element:
    """Do as `element_for` does, of a dtype without metadata."""
    return _element(dt)


def _element(dt: Dtype) -> Element:
    if dt.kind == "V" and not dt.itemsize:
        raise DefinitionError(f"Size must be positive: a value of {dt!r} takes no bytes")
    if dt.type is np.record:
        # only how numpy shows values, which no file keeps
        dt = np.dtype((np.void, dt))
    raw = _raw_element(dt) if dt.kind in "VMm" or dt.metadata or dt.char in "gG" else None
    if raw is not None:
        return raw
    complex_ = check_complex_dtype(dt) if dt.names is not None else None
    if complex_ is not None:
        return _element(complex_)
    if dt.kind in "VO" and _composite(dt):
        return Element(dt, np.dtype("i1"), BYTE, kind="composite")
    _refuse(dt)
    enum = metadata_of(dt).get("enum")
    if enum is not None:
        return _enum_element(dt, dict(enum))
    # the type itself, without metadata that is not ours
    shown = np.dtype(dt.str)
    if dt.kind == "b":
        return Element(shown, np.dtype("i1"), BYTE, kind="bool")
    if dt.kind == "c":
        code = FLOAT if dt.itemsize == 8 else DOUBLE
        return Element(shown, shown.newbyteorder(">"), code, (2,), (COMPLEX_DIM,), "complex")
    if dt.str[1:] == "f2":
        return Element(shown, np.dtype(">f4"), FLOAT, kind="float16")
    return Element(shown, shown.newbyteorder(">"), nc_type(dt).code)


def _raw_element(dt: Dtype) -> Element | None:
    """Return the element of array types of numbers, opaque data, long doubles and dates; None for any other type."""
    opaque = metadata_of(dt).get("h5py_opaque")
    if opaque or (dt.kind == "V" and dt.names is None and dt.subdtype is None):
        shown = with_metadata(dt.str, {"h5py_opaque": True}) if opaque else np.dtype(dt.str)
        return Element(shown, np.dtype(">i8"), INT64, kind="datetime") if dt.kind in "Mm" else _bytes(shown, "opaque")
    if dt.kind in "fc" and dt.itemsize > (8 if dt.kind == "f" else 16):
        return _bytes(dt, "longdouble")
    if dt.subdtype is not None:
        base, shape = dt.subdtype
        if base.kind in "iuf" and base.metadata is None and base.itemsize <= 8 and base.str[1:] != "f2":
            # two axes never share a dimension, see `mapping.dimensions`
            book = NameBook()
            names = tuple(book.take(f"array_{n}") for n in shape)
            return Element(dt, np.dtype(f"V{dt.itemsize}"), nc_type(base).code, shape, names, "array")
    return None


def _bytes(shown: Dtype, kind: Kind) -> Element:
    size = shown.itemsize
    return Element(shown, np.dtype(f"V{size}"), UBYTE, (size,), (f"bytes_{size}",), kind)


@lru_cache(maxsize=256)
def _string_element(encoding: str, length: int | None, width: int) -> Element:
    if length == 0:
        raise DefinitionError("Size must be positive: a fixed-length string needs at least one byte")
    size = length or max(1, width)
    kind: Kind = "string" if length else "vlen_string"
    shown = string_dtype(encoding, length)
    return Element(shown, np.dtype(f"S{size}"), CHAR, (size,), (f"strlen_{size}",), kind)


def _enum_element(dt: Dtype, members: dict[str, int]) -> Element:
    """Return an enum; its members are kept as Python ints and must fit the base type."""
    limits = np.iinfo(dt)
    clean = {str(name): int(value) for name, value in members.items()}
    for name, value in clean.items():
        # what the file cannot hold is an error here, not at a flush
        name.encode("utf-8", "surrogateescape")
        if not limits.min <= value <= limits.max:
            raise DefinitionError(f"enum member {name!r} = {value} does not fit its base type {np.dtype(dt.str)!r}")
    shown = with_metadata(dt.str, {"enum": clean})
    return Element(shown, np.dtype(dt.str).newbyteorder(">"), nc_type(dt).code, kind="enum")


def _refuse(dt: Dtype) -> None:
    """Raise what h5py raises for types that HDF5 lacks."""
    if dt.kind == "O":
        raise ConversionError(f"Object dtype {dt!r} has no native HDF5 equivalent; use string_dtype() for strings")
    if dt.kind not in "biufcST":
        raise ConversionError(f"No conversion path for dtype: {dt!r}")


def _composite(dt: Dtype) -> bool:
    """Return True for a type that takes several variables; its parts are checked too.

    Raises
    ------
    ConversionError
        A part of it has no equivalent in HDF5.
    """
    metadata = metadata_of(dt)
    if "ref" in metadata:
        return True
    vlen: Any = metadata.get("vlen")
    # by identity: numpy says that float64 equals None
    if dt.kind == "O" and not any(vlen is known for known in (None, str, bytes)):
        element_for(vlen)
        return True
    if dt.names is not None and dt.fields is not None:
        for name in dt.names:
            element_for(dt.fields[name][0])
        return True
    if dt.subdtype is not None:
        element_for(dt.subdtype[0])
        return True
    return False
