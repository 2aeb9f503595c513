"""A `Header` has the dimensions, attributes and variables of a classic NetCDF file, and sizes that follow from them.

Knows: the words of the specification, the widths of its fields, the sizes of variables. Does not know: how a header is
encoded, files, HDF5's words.
Values of attributes stay as the big-endian bytes of the file until someone asks for them
(`format.model.attr_values`), so that opening a file of 100,000 variables decodes no value.

Source: NetCDF classic format specification (CDF-1, CDF-2) and PnetCDF's CDF-5.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from math import prod
from operator import add, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "ABSENT",
    "ATTRIBUTE",
    "BYTE",
    "CHAR",
    "DIMENSION",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INT64",
    "LITTLE",
    "MAX_BYTES",
    "MAX_COUNT",
    "MAX_OFFSET",
    "MAX_VAR_DIMS",
    "SHORT",
    "TYPES",
    "UBYTE",
    "UINT",
    "UINT64",
    "USHORT",
    "VARIABLE",
    "WIDTHS",
    "Attr",
    "Dim",
    "Finding",
    "Header",
    "HeaderFacts",
    "NCType",
    "Order",
    "Region",
    "Var",
    "Widths",
    "attr_values",
    "begin_rec",
    "data_end",
    "inner_bytes",
    "inner_sizes",
    "is_record",
    "nc_type",
    "pad4",
    "record_dim",
    "record_size",
    "record_stride",
    "record_vars",
    "region",
    "shape",
    "strides",
]


class Dim(NamedTuple):
    """A dimension.

    name : str, NFC-normalised when we wrote it, as in the file when another program did (bytes that are no
        UTF-8 as surrogate escapes).
    size : int, elements; 0 means the record (unlimited) dimension, as in the file.
    """

    name: str
    size: int


class Attr(NamedTuple):
    """An attribute.

    name : str
    type : int, NC type code (see `format.model`).
    nelems : int, number of values.
    data : bytes, the values as in the file: big-endian, without the padding.
    """

    name: str
    type: int
    nelems: int
    data: bytes


class Var(NamedTuple):
    """A variable.

    name : str
    dims : tuple of int, indices into `Header.dims`, slowest first.
    attrs : tuple of Attr
    type : int, NC type code.
    begin : int, bytes from the start of the file to the first value; -1 while it is not placed.
    """

    name: str
    dims: tuple[int, ...]
    attrs: tuple[Attr, ...]
    type: int
    begin: int = -1


class HeaderFacts:
    """What follows from the definitions of a header, found once; None until somebody asks.

    Headers that differ in begins and in the number of records alone have one of these in common. So nothing here may
    depend on these, or it says on whose. (A cache outside of the header would have to be emptied by somebody.)

    inner_sizes, padded_sizes : list of int, see `format.model`.
    record_vars : list of int, see `format.model`.
    var_at : list of int, of a header that was read without a finding: where the entry of each variable starts.
    within_limits : bool, `format.limits` has looked at all but the begins.
    digest : bytes, see `flush.agree`.
    encoded : the bytes of all objects, see `format.encode`.
    region : the variables with the begins that were looked at, and what `region` found.
    """

    inner_sizes: list[int] | None = None
    padded_sizes: list[int] | None = None
    record_vars: list[int] | None = None
    var_at: list[int] | None = None
    within_limits: bool = False
    digest: bytes | None = None
    encoded: Any = None
    region: tuple[tuple[Var, ...], Region] | None = None


class _Fields(NamedTuple):
    """See `Header`."""

    version: int
    numrecs: int
    dims: tuple[Dim, ...]
    attrs: tuple[Attr, ...]
    vars: tuple[Var, ...]
    facts: HeaderFacts


class Header(_Fields):
    """A whole header, immutable. Facts count neither for equality nor for the hash.

    version : int, 1, 2 or 5 (CDF-1, CDF-2, CDF-5).
    numrecs : int, records that the file holds.
    dims : tuple of Dim
    attrs : tuple of Attr
    vars : tuple of Var
    facts : HeaderFacts, those of a header that differs in begins and in the number of records alone; new by default.
    """

    __slots__ = ()

    def __new__(
        cls,
        version: int,
        numrecs: int = 0,
        dims: tuple[Dim, ...] = (),
        attrs: tuple[Attr, ...] = (),
        vars: tuple[Var, ...] = (),
        facts: HeaderFacts | None = None,
    ) -> Self:
        return tuple.__new__(cls, (version, numrecs, dims, attrs, vars, HeaderFacts() if facts is None else facts))

    def __eq__(self, other: object) -> bool:
        return self[:5] == other[:5] if isinstance(other, Header) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:5])

    def __repr__(self) -> str:
        return f"Header({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self[:5], strict=False))})"

    def replaced(self, **changes: Any) -> Header:
        """Return a header in which some fields are others.

        Examples
        --------
        >>> Header(5, 3).replaced(version=2)
        Header(version=2, numrecs=3, dims=(), attrs=(), vars=())
        """
        return Header(**{**dict(zip(self._fields, self[:5], strict=False)), **changes})

    def with_numrecs(self, numrecs: int) -> Header:
        """Return the same definitions with another number of records."""
        if numrecs == self.numrecs:
            return self
        return Header(self.version, numrecs, self.dims, self.attrs, self.vars, self.facts)

    def with_begins(self, begins: Iterable[int]) -> Header:
        """Return the same definitions with variables that begin there.

        Examples
        --------
        >>> Header(5, vars=(Var("a", (), (), 6), Var("b", (), (), 6))).with_begins([80, 88]).vars[1].begin
        88
        """
        name, dims, attrs, code, _ = zip(*self.vars, strict=True) if self.vars else ((),) * 5
        made = map(tuple.__new__, repeat(Var), zip(name, dims, attrs, code, begins, strict=True))
        return self.with_vars(tuple(made))

    def with_vars(self, variables: tuple[Var, ...]) -> Header:
        """Return the same definitions, of which `variables` differ in their begins alone."""
        return Header(self.version, self.numrecs, self.dims, self.attrs, variables, self.facts)


class Finding(NamedTuple):
    """Something that a reader or a checker has to say about the bytes of a file.

    severity : str, ``"error"`` or ``"warning"``.
    offset : int, bytes from the start of the file to the field.
    field : str, the field in the words of the specification, e.g. ``"var[3].begin"``.
    value : object, what was found there.
    message : str, what is wrong, in one line.
    """

    severity: str
    offset: int
    field: str
    value: object
    message: str


# --------------------------------------------------------------------------------------------------------------- types
# The eleven external types of NetCDF, and attribute values.
#
# Knows: type codes, sizes, fill values, the numpy type of each. Does not know: HDF5's types, headers.
#
# Source: NetCDF classic format specification (types 1 to 6), PnetCDF's CDF-5 specification (7 to 11).


BYTE, CHAR, SHORT, INT, FLOAT, DOUBLE, UBYTE, USHORT, UINT, INT64, UINT64 = range(1, 12)


class NCType(NamedTuple):
    """One external type.

    code : int, as in the file.
    name : str, as in CDL, e.g. ``"ushort"``.
    size : int, bytes of a value.
    dtype : numpy.dtype, big-endian; ``S1`` for char.
    versions : tuple of int, the versions of the format that have it.
    fill : bytes, the default fill value as in the file.
    """

    code: int
    name: str
    size: int
    dtype: np.dtype[Any]
    versions: tuple[int, ...]
    fill: bytes

    @property
    def fill_value(self) -> Any:
        """The default fill value as a numpy scalar in native byte order; ``b"\\x00"`` for char."""
        if self.code == CHAR:
            return b"\0"
        return np.frombuffer(self.fill, self.dtype).astype(self.dtype.newbyteorder("="))[0]


_ALL, _CDF5 = (1, 2, 5), (5,)

TYPES: dict[int, NCType] = {
    row[0]: NCType(row[0], row[1], np.dtype(row[2]).itemsize, np.dtype(row[2]), row[3], bytes.fromhex(row[4]))
    for row in (
        (BYTE, "byte", "i1", _ALL, "81"),
        (CHAR, "char", "S1", _ALL, "00"),
        (SHORT, "short", ">i2", _ALL, "8001"),
        (INT, "int", ">i4", _ALL, "80000001"),
        (FLOAT, "float", ">f4", _ALL, "7cf00000"),
        (DOUBLE, "double", ">f8", _ALL, "479e000000000000"),
        (UBYTE, "ubyte", "u1", _CDF5, "ff"),
        (USHORT, "ushort", ">u2", _CDF5, "ffff"),
        (UINT, "uint", ">u4", _CDF5, "ffffffff"),
        (INT64, "int64", ">i8", _CDF5, "8000000000000002"),
        (UINT64, "uint64", ">u8", _CDF5, "fffffffffffffffe"),
    )
}
"""`NCType` by code."""

_BY_DTYPE = {(t.dtype.kind, t.size): t for t in TYPES.values()}


def pad4(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of 4, the format's alignment."""
    return (nbytes + 3) & -4


def nc_type(dtype: npt.DTypeLike) -> NCType:
    """Return the external type that stores `dtype` without loss.

    Parameters
    ----------
    dtype
        Anything that numpy takes for a type, in any byte order: int8 to uint64, float32, float64, ``S1``.

    Raises
    ------
    DefinitionError
        No external type holds it.

    Examples
    --------
    >>> nc_type("<u2").name
    'ushort'
    """
    wanted = np.dtype(dtype)
    found = _BY_DTYPE.get((wanted.kind, wanted.itemsize))
    if found is None:
        raise DefinitionError(
            f"NetCDF has no type for {wanted}; it has 1- to 8-byte integers, float32, float64 and "
            "single characters (S1)."
        )
    return found


def attr_values(attr: Attr) -> npt.NDArray[Any] | bytes:
    """Return the values of an attribute.

    Returns
    -------
    bytes or ndarray
        ``bytes`` for char; else a new 1-D array of ``attr.nelems`` values in native byte order.

    Examples
    --------
    >>> attr_values(Attr("valid_range", SHORT, 2, bytes([0, 0, 0, 99])))
    array([ 0, 99], dtype=int16)
    """
    if attr.type == CHAR:
        return attr.data
    dtype = TYPES[attr.type].dtype
    return np.frombuffer(attr.data, dtype, attr.nelems).astype(dtype.newbyteorder("="))


# -------------------------------------------------------------------------------------------------------------- widths
# How wide the fields of a header are in CDF-1, CDF-2 and CDF-5.
#
# Knows: widths, byte orders, tags, limits. Does not know: what the fields mean. The decoder and the encoder are written
# once over this table. The header of a file is big-endian; a header that is kept as the bytes of something else, such
# as a dataset of an HDF5 file, may be in the other byte order (`LITTLE`).
#
# Source: NetCDF classic format specification; PnetCDF's CDF-5 specification.


ABSENT, DIMENSION, VARIABLE, ATTRIBUTE = 0, 10, 11, 12
"""Tags of the lists of a header."""

MAX_OFFSET = 2**63 - 1
MAX_BYTES = 2**63 - 4
"""Bytes of the largest variable or record of any version."""
MAX_COUNT = 2**31 - 1
"""Dimensions, variables, attributes, attribute values: the limit of every NetCDF library."""
MAX_VAR_DIMS = 1024


Order = Literal["big", "little"]


class Widths(NamedTuple):
    """The fields of one version.

    width : int, bytes of a count, a length or a name length.
    sign : int, the value from which such a field is negative.
    number : Struct, one such field.
    listing : Struct, a tag or type, then such a field.
    tail : Struct, the end of a variable: type, vsize, begin.
    begin : int, bytes of a begin.
    begin_max : int, largest begin.
    dim_max : int, largest dimension that a reader accepts.
    var_max : int, bytes of the largest variable that is not the last of its kind.
    sizes : dict of int to int, bytes of each type that this version has.
    dim_min, attr_min, var_min : int, bytes of the smallest entry of each list.
    order : str, the byte order of all numbers.
    """

    width: int
    sign: int
    number: Struct
    listing: Struct
    tail: Struct
    begin: int
    begin_max: int
    dim_max: int
    var_max: int
    sizes: dict[int, int]
    dim_min: int
    attr_min: int
    var_min: int
    order: Order

    @property
    def mark(self) -> str:
        """The byte order as `struct` and numpy write it."""
        return ">" if self.order == "big" else "<"


def _widths(version: int, width: int, begin: int, dim_max: int, var_max: int, order: Order = "big") -> Widths:
    mark = ">" if order == "big" else "<"
    number, place = ("Q" if n == 8 else "I" for n in (width, begin))
    return Widths(
        width,
        2 ** (8 * width - 1),
        Struct(f"{mark}{number}"),
        Struct(f"{mark}I{number}"),
        Struct(f"{mark}I{number}{place}"),
        begin,
        2 ** (8 * begin - 1) - 1,
        dim_max,
        var_max,
        {t.code: t.size for t in TYPES.values() if version in t.versions},
        2 * width + 4,
        2 * width + 8,
        4 * width + 12 + begin,
        order,
    )


# netCDF-C writes CDF-2 dimensions up to 2**32 - 4: safe to read, since nothing here is signed.
WIDTHS = {
    1: _widths(1, 4, 4, 2**31 - 1, 2**31 - 4),
    2: _widths(2, 4, 8, 2**32 - 4, 2**32 - 4),
    5: _widths(5, 8, 8, 2**63 - 1, MAX_BYTES),
}
"""`Widths` by version."""

LITTLE = _widths(5, 8, 8, 2**63 - 1, MAX_BYTES, "little")
"""`Widths` of CDF-5 with every number in little-endian order."""


# --------------------------------------------------------------------------------------------------------------- sizes
# What follows from a header: shapes, bytes, the length of a record.
#
# Knows: padding and the lone-record rule. Does not know: where anything begins, bytes of a header.
#
# Rules
# -----
# 1. Every variable, and every variable's part of a record, is padded to 4 bytes.
# 2. Except that the records of the only record variable follow each other without padding. It matters for byte, char,
#    short, ubyte and ushort alone.
# 3. vsize is redundant: it is written, and never believed.
#
# Source: NetCDF classic format specification, "Note on vsize", "Note on padding".


_begin_of, _kind_of = itemgetter(4), itemgetter(1, 3)


def record_dim(header: Header) -> int | None:
    """Return the index of the record (unlimited) dimension, or None."""
    for i, dim in enumerate(header.dims):
        if dim.size == 0:
            return i
    return None


def is_record(header: Header, var: Var) -> bool:
    """Return whether `var` grows with the records of the file."""
    return bool(var.dims) and header.dims[var.dims[0]].size == 0


def record_vars(header: Header) -> list[int]:
    """Return the indices of the record variables, in definition order; a list that is kept with the header."""
    found = header.facts.record_vars
    if found is None:
        dim = record_dim(header)
        some = [] if dim is None else [i for i, var in enumerate(header.vars) if var[1] and var[1][0] == dim]
        found = header.facts.record_vars = some
    return found


def shape(header: Header, var: Var) -> tuple[int, ...]:
    """Return the shape of `var` in elements; a record variable has ``header.numrecs`` records."""
    sizes = tuple(header.dims[i].size for i in var.dims)
    return (header.numrecs, *sizes[1:]) if sizes and sizes[0] == 0 else sizes


def inner_bytes(header: Header, var: Var) -> int:
    """Return the unpadded bytes of `var`: of one record for a record variable, of all its values otherwise."""
    # The record dimension's 0 drops out: `or 1`.
    return prod([header.dims[i][1] or 1 for i in var.dims]) * TYPES[var.type].size


def inner_sizes(header: Header) -> list[int]:
    """Return `inner_bytes` of every variable, in a list that is not to be changed: it is kept with the header."""
    found = header.facts.inner_sizes
    if found is None:
        # Each pair of dimensions and type is multiplied once.
        known = _Sizes(header.dims)
        found = header.facts.inner_sizes = list(map(known.__getitem__, map(_kind_of, header.vars)))
    return found


class _Sizes(dict[tuple[tuple[int, ...], int], int]):
    """Bytes by dimensions and type."""

    def __init__(self, dims: tuple[Dim, ...]) -> None:
        self.dims = dims

    def __missing__(self, key: tuple[tuple[int, ...], int]) -> int:
        found = self[key] = prod([self.dims[i][1] or 1 for i in key[0]]) * TYPES[key[1]].size
        return found


def record_stride(inner: list[int]) -> int:
    """Return the bytes from one record to the next, from `inner_bytes` of all record variables."""
    return inner[0] if len(inner) == 1 else sum([(n + 3) & -4 for n in inner])


def record_size(header: Header) -> int:
    """Return the bytes from one record to the next; 0 without record variables.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim
    >>> lone = Header(5, dims=(Dim("t", 0), Dim("x", 3)), vars=(Var("a", (0, 1), (), 1),))
    >>> record_size(lone)
    3
    """
    sizes = inner_sizes(header)
    return record_stride([sizes[i] for i in record_vars(header)])


def begin_rec(header: Header) -> int | None:
    """Return where the record section begins, or None without record variables."""
    return min([header.vars[i].begin for i in record_vars(header)], default=None)


class Region(NamedTuple):
    """Where the variables of a header lie, in bytes from the start of the file.

    first : int or None, the first byte of all; None without variables that have a place.
    end : int, behind the last one without records, with its padding; 0 without one.
    records, stride : int, the first record, and from one to the next.
    """

    first: int | None
    end: int
    records: int
    stride: int


def region(header: Header) -> Region:
    """Return where the variables lie, all together; found once for all headers with the same variables."""
    known, variables = header.facts.region, header.vars
    if known is not None and known[0] is variables:
        return known[1]
    sizes, records, begins = inner_sizes(header), record_vars(header), list(map(_begin_of, variables))
    padded = header.facts.padded_sizes
    if padded is None:
        padded = header.facts.padded_sizes = [(n + 3) & -4 for n in sizes]
    ends = list(map(add, begins, padded))
    for i in records:
        ends[i] = 0
    first = min(begins, default=None)
    if first is not None and first < 0:
        first = min([begin for begin in begins if begin >= 0], default=None)
    start, stride = min([begins[i] for i in records], default=0), record_stride([sizes[i] for i in records])
    found = Region(first, max(ends, default=0), start, stride)
    header.facts.region = variables, found
    return found


def data_end(header: Header) -> int:
    """Return where the data end, all variables and records with the last padding, if there is any; 0 without data."""
    _, end, records, stride = region(header)
    return max(end, records + stride * header.numrecs) if header.numrecs else end


def strides(header: Header, var: Var, *, recsize: int | None = None) -> tuple[int, ...]:
    """Return the bytes from one element to the next along each dimension.

    Parameters
    ----------
    recsize : int, optional
        `record_size` of the header, for callers that ask for many variables.
    """
    step = TYPES[var.type].size
    found = []
    for i in reversed(var.dims):
        found.append(step)
        step *= header.dims[i].size
    if is_record(header, var):
        found[-1] = record_size(header) if recsize is None else recsize
    return tuple(reversed(found))
