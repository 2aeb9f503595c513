"""What follows from a header: shapes, bytes, the length of a record.

Knows: padding and the lone-record rule. Does not know: where anything begins, bytes of a header.

Rules
-----
1. Every variable, and every variable's part of a record, is padded to 4 bytes.
2. Except that the records of the only record variable follow each other without padding. It matters for byte, char,
   short, ubyte and ushort alone.
3. vsize is redundant: it is written, and never believed.

Source: NetCDF classic format specification, "Note on vsize", "Note on padding".
"""

from __future__ import annotations

from math import prod
from operator import add, itemgetter

from pnc_vol.format.model import Dim, Header, Var
from pnc_vol.format.types import TYPES, pad4

__all__ = [
    "begin_rec",
    "data_end",
    "inner_bytes",
    "inner_sizes",
    "is_record",
    "record_dim",
    "record_size",
    "record_stride",
    "record_vars",
    "shape",
    "strides",
    "vsize",
]


_begin_of, _kind_of = itemgetter(4), itemgetter(1, 3)


def record_dim(header: Header) -> int | None:
    """Return the index of the record (unlimited) dimension, or None."""
    for i, dim in enumerate(header.dims):
        if dim.size == 0:
            return i
    return None


def is_record(header: Header, var: Var) -> bool:
    """Whether `var` grows with the records of the file."""
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


def vsize(header: Header, var: Var) -> int:
    """Return the padded bytes of `var`, of one record for a record variable; true, where the field may overflow."""
    return pad4(inner_bytes(header, var))


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


def data_end(header: Header) -> int:
    """Return where the data end, all variables and records with the last padding, if there is any; 0 without data."""
    sizes, records = inner_sizes(header), record_vars(header)
    padded = header.facts.padded_sizes
    if padded is None:
        padded = header.facts.padded_sizes = [(n + 3) & -4 for n in sizes]
    ends = list(map(add, map(_begin_of, header.vars), padded))
    if records:
        start = min([header.vars[i][4] for i in records])
        stride = record_stride([sizes[i] for i in records])
        for i in records:
            ends[i] = 0
        if header.numrecs:
            ends.append(start + stride * header.numrecs)
    return max(ends, default=0)


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
