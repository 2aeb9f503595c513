"""`physical_header` makes the header of a subfile from the canonical header; `described` is the way back.

Knows: headers, sizes of maps. Does not know: runs, bytes, files, ranks.

Rules
-----
1. The header of a subfile follows from the canonical header, the sizes of the maps and which variable has which map.
   It is the one that E3SM-IO writes: the canonical dimensions first, with the same numbers, then those of the blobs;
   the five variables of each map first, then the canonical variables in their order.
2. What E3SM-IO does not know stands behind what it knows: the dimension of a map with another number of blobs, and the
   *supplements*, variables that hold the elements that a map leaves open.
3. A map is of the dimensions that a user sees. Those of one element, such as the characters of a string, stay: so one
   map serves variables of all types. Maps that count characters would be several for the same elements.
4. A name that the subfile needs for itself cannot be used in the canonical header; `physical_header` says so.
5. While a flush deletes or renames a partitioned variable, the header of a subfile describes its part of the variable
   that subfile 0 still names (`Kept`, and the attribute ``name_before``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pnc_vol.blob.maps import MAP_VARIABLES, SizedMap, wide_offsets
from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import MAX_NAME
from pnc_vol.format.model import CHAR, INT, INT64, Attr, Dim, Header, Var, record_dim

__all__ = [
    "BEFORE",
    "DIMIDS",
    "KEPT_RECORDS",
    "MAP",
    "NBLOBS",
    "OF_FILE",
    "SUPPLEMENT",
    "Kept",
    "physical_header",
    "shaped",
]

_DESCRIPTIONS = (
    "Number of noncontiguous requests in individual blobs",
    "Starting array indices of individual blobs stored in a variable",
    "Number of contiguous array elements in individual blobs stored in a variable",
    "Starting indices of flattened canonical noncontiguous requests of individual blobs",
    "Number of elements of flattened canonical noncontiguous requests of individual blobs",
)
OF_FILE = ("global_nprocs", "num_decompositions", "num_subfiles")
MAP, DIMIDS, SUPPLEMENT, BEFORE = "decomposition_ID", "global_dimids", "supplement_of", "name_before"
_OF_VARIABLE = frozenset((MAP, DIMIDS, SUPPLEMENT, BEFORE))
NBLOBS, KEPT_RECORDS = "nblobs", "kept.records"
_NO_SUPPLEMENTS, _NO_NAMES = dict[int, int](), dict[int, str]()


class Kept(NamedTuple):
    """A variable that subfile 0 may still have, and the canonical header has no more.

    name : str, as subfile 0 calls it.
    map : int, from 1.
    type : int
    trailing : tuple of int, lengths of the dimensions of one element.
    record : bool
    """

    name: str
    map: int
    type: int
    trailing: tuple[int, ...]
    record: bool


def _ints(name: str, values: Iterable[int]) -> Attr:
    data = np.array(tuple(values), ">i4")
    return Attr(name, INT, data.size, data.tobytes())


# ------------------------------------------------------------------------------------- canonical to physical


def physical_header(
    canonical: Header,
    maps: Sequence[SizedMap],
    assigned: Sequence[int],
    *,
    nblobs: int,
    nprocs: int,
    subfiles: int,
    supplements: Mapping[int, int] = _NO_SUPPLEMENTS,
    before: Mapping[int, str] = _NO_NAMES,
    kept: Sequence[Kept] = (),
) -> Header:
    """Return the header of a subfile; its variables are not placed.

    Parameters
    ----------
    canonical : Header
        Begins are ignored.
    maps : sequence of SizedMap, D1, D2, ...
    assigned : sequence of int
        For each canonical variable the number of its map, from 1; 0 for one that is not partitioned.
    nblobs : int, processes that write to the subfile.
    nprocs : int, processes that write to all subfiles.
    subfiles : int
    supplements : mapping of int to int
        For the number of a canonical variable the elements of its supplement; given for subfile 0 alone.
    before : mapping of int to str
        For the number of a canonical variable the name that it has in subfile 0 until the end of this flush.
    kept : sequence of Kept
        Partitioned variables that subfile 0 has until the end of this flush.

    Returns
    -------
    Header
        CDF-5, with as many records as the canonical one.

    Raises
    ------
    DefinitionError
        A name of the canonical header is needed for the subfile itself, or a variable does not fit its map.

    Examples
    --------
    >>> from pnc_vol.blob.maps import MapSizes
    >>> header = Header(5, dims=(Dim("time", 0), Dim("x", 6)), vars=(Var("t", (0, 1), (), 6),))
    >>> made = physical_header(header, [MapSizes((6,), (1,), 2, 5, 3)], [1], nblobs=2, nprocs=4, subfiles=2)
    >>> [tuple(dim) for dim in made.dims[2:]]
    [('nblobs', 2), ('D1.nelems', 5), ('D1.max_nreqs', 3)]
    >>> made.vars[-1].dims, [attr.name for attr in made.vars[-1].attrs]
    ((0, 3), ['decomposition_ID', 'global_dimids'])
    """
    _refuse_names(canonical, assigned, len(maps))
    users: dict[int, list[Var]] = {}
    for var, k in zip(canonical.vars, assigned, strict=True):
        users.setdefault(k, []).append(var)
    dims = [*canonical.dims, Dim(NBLOBS, nblobs)]
    at_nblobs = len(canonical.dims)
    at_nelems, at_nreqs = at_nblobs + 1, at_nblobs + 1 + len(maps)
    dims += [Dim(f"D{k}.nelems", one.nelems) for k, one in enumerate(maps, 1)]
    dims += [Dim(f"D{k}.max_nreqs", one.max_nreqs) for k, one in enumerate(maps, 1)]
    variables: list[Var] = []
    for k, one in enumerate(maps, 1):
        row = at_nblobs
        if one.nblobs != nblobs:
            row = len(dims)
            dims.append(Dim(f"D{k}.nblobs", one.nblobs))
        ids = _dimids(canonical, one, users.get(k, ()))
        variables += _map_variables(k, one, ids, row, at_nreqs + k - 1)
    record = record_dim(canonical)
    # Variables of one map often have the same dimensions, and then share one tuple of attributes.
    shapes: dict[tuple[int, tuple[int, ...]], tuple[tuple[int, ...], tuple[Attr, ...]]] = {}
    shared: dict[tuple[int, int, tuple[int, ...]], tuple[Attr, ...]] = {}
    for i, (var, k) in enumerate(zip(canonical.vars, assigned, strict=True)):
        name, where, own, code, _ = var
        if k:
            known = shapes.get((k, where))
            if known is None:
                known = shapes[k, where] = _partitioned(canonical, var, k, maps[k - 1], at_nelems + k - 1, record)
            key = id(own), k, where
            found = shared.get(key)
            if found is None:
                found = shared[key] = known[1] + own
            where, own = known[0], found
        if i in before:
            own = (*own, _text(BEFORE, before[i]))
        variables.append(Var(name, where, own, code))
    taken = {var.name for var in variables}
    for i, nelems in sorted(supplements.items()):
        k = assigned[i]
        name = f"D{k}.supplement"
        if name not in (dim.name for dim in dims):
            dims.append(Dim(name, nelems))
        size = [dim.name for dim in dims].index(name)
        assert dims[size].size == nelems, "what a map leaves open is the same for all its variables"
        var = canonical.vars[i]
        variables.append(_supplement(var, i, k, shaped(var.dims, len(maps[k - 1].dims), size, record), taken))
    for i, one_kept in enumerate(kept):
        variables.append(_kept(one_kept, i, at_nelems + one_kept.map - 1, dims, record, taken))
    attrs = _ints(OF_FILE[0], [nprocs]), _ints(OF_FILE[1], [len(maps)]), _ints(OF_FILE[2], [subfiles])
    made = Header(5, canonical.numrecs, tuple(dims), (*attrs, *canonical.attrs), tuple(variables))
    if canonical.facts.within_limits and not kept:
        # Nothing in it is larger than what it stands for.
        made.facts.within_limits = True
    return made


def _refuse_names(canonical: Header, assigned: Sequence[int], nmaps: int) -> None:
    """Raise if the canonical header has a name that the subfile needs for itself."""
    parts = ("nelems", "max_nreqs", "nblobs", "supplement")
    dims = {NBLOBS} | {f"D{k}.{part}" for k in range(1, nmaps + 1) for part in parts}
    variables = {f"D{k}.{part}" for k in range(1, nmaps + 1) for part in MAP_VARIABLES}
    found = [f"the dimension {dim.name!r}" for dim in canonical.dims if dim.name in dims]
    found += [f"the variable {var.name!r}" for var in canonical.vars if var.name in variables]
    found += [f"the attribute {attr.name!r}" for attr in canonical.attrs if attr.name in OF_FILE]
    for var, k in zip(canonical.vars, assigned, strict=True):
        for attr in var.attrs:
            if attr[0] in _OF_VARIABLE and (k or attr[0] != DIMIDS):
                found.append(f"the attribute {attr.name!r} of {var.name!r}")
    if found:
        raise DefinitionError(
            f"The blob layout needs the name of {found[0]} for itself; use another name, or layout='canonical'"
        )


def _dimids(canonical: Header, one: SizedMap, users: Sequence[Var]) -> tuple[int, ...]:
    """Return the dimensions of a map: those that it was made for, or, if they have other numbers now, those of a
    variable.

    A map of variables that were deleted may have none any more.
    """
    lengths, n = [dim.size for dim in canonical.dims], len(one.dims)
    record = record_dim(canonical)
    given = (var.dims[var.dims[:1] == (record,) :][:n] for var in users)
    for ids in (one.dimids, *given):
        if all(i < len(lengths) for i in ids) and tuple(lengths[i] for i in ids) == tuple(one.dims):
            return tuple(ids)
    return ()


def _map_variables(k: int, one: SizedMap, dimids: tuple[int, ...], row: int, column: int) -> Iterable[Var]:
    wide = INT64 if wide_offsets(one.dims) else INT
    for name, text, code in zip(MAP_VARIABLES, _DESCRIPTIONS, (INT, INT64, INT64, wide, wide), strict=True):
        attrs = [Attr("description", CHAR, len(text), text.encode())]
        if name == "nreqs":
            attrs.append(_ints(DIMIDS, dimids))
        yield Var(f"D{k}.{name}", (row, column) if name in ("offsets", "lengths") else (row,), tuple(attrs), code)


def _partitioned(
    canonical: Header, var: Var, k: int, of: SizedMap, size: int, record: int | None
) -> tuple[tuple[int, ...], tuple[Attr, ...]]:
    """Return the dimensions that a variable has in the subfile, and the attributes that come before its own."""
    dims = shaped(var.dims, len(of.dims), size, record)
    lengths = tuple(canonical.dims[i].size for i in var.dims[var.dims[:1] == (record,) :])
    if not of.dims or lengths[: len(of.dims)] != tuple(of.dims):
        raise DefinitionError(f"The map D{k} is of the dimensions {of.dims}, the variable {var.name!r} has {lengths}")
    return dims, (_ints(MAP, [k]), _ints(DIMIDS, var.dims))


def shaped(dims: tuple[int, ...], mapped: int, size: int, record: int | None) -> tuple[int, ...]:
    """Return the dimensions of a canonical variable, of which `mapped` behind that of records have become one."""
    first = int(dims[:1] == (record,))
    return (*dims[:first], size, *dims[first + mapped :])


def _supplement(var: Var, i: int, k: int, dims: tuple[int, ...], taken: set[str]) -> Var:
    name = f"{var.name}.supplement"
    if name in taken or len(name.encode("utf-8", "surrogateescape")) > MAX_NAME:
        name = f"D{k}.supplement.{i}"
    return Var(name, dims, (_ints(SUPPLEMENT, [i]),), var.type)


def _kept(one: Kept, i: int, size: int, dims: list[Dim], record: int | None, taken: set[str]) -> Var:
    """Return the variable of what is kept; dimensions that it needs, and the canonical header may lack, are added."""

    def dim(name: str, length: int) -> int:
        made = Dim(name, length)
        if made not in dims:
            dims.append(made)
        return dims.index(made)

    first = () if not one.record else (dim(KEPT_RECORDS, 0) if record is None else record,)
    name = f"D{one.map}.kept.{i}"
    while name in taken:
        name += "_"
    trailing = tuple(dim(f"kept.{n}", n) for n in one.trailing)
    return Var(name, (*first, size, *trailing), (_ints(MAP, [one.map]), _text(BEFORE, one.name)), one.type)


def _text(name: str, text: str) -> Attr:
    data = text.encode("utf-8", "surrogateescape")
    return Attr(name, CHAR, len(data), data)
