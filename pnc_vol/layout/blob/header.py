"""The header of a subfile from the canonical header, and the canonical header from that of a subfile.

Knows: headers, sizes of maps. Does not know: runs, bytes, files, ranks.

Rules
-----
1. The header of a subfile follows from the canonical header, the sizes of the maps and which variable has which map.
   It is the one that E3SM-IO writes: the canonical dimensions first, with the same numbers, then those of the blobs;
   the five variables of each map first, then the canonical variables in their order.
2. What E3SM-IO does not know stands behind what it knows: the dimension of a map with another number of blobs, and the
   *supplements*, variables that hold the elements that a map leaves open.
3. A map is of the dimensions that a user sees. Those of one element, such as the characters of a string, stay.
4. A name that the subfile needs for itself cannot be used in the canonical header; `physical_header` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from pnc_vol.errors import DefinitionError, FormatError
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.names import MAX_NAME
from pnc_vol.format.sizes import record_dim
from pnc_vol.format.types import CHAR, INT, INT64, attr_values
from pnc_vol.layout.blob.maps import SizedMap, wide_offsets

__all__ = ["MAP_VARIABLES", "Described", "MapVariables", "described", "is_blob_set", "physical_header"]

MAP_VARIABLES = ("nreqs", "blob_start", "blob_count", "offsets", "lengths")
"""The variables of each map, in their order; in the file ``Dk.`` stands before each."""

_DESCRIPTIONS = (
    "Number of noncontiguous requests in individual blobs",
    "Starting array indices of individual blobs stored in a variable",
    "Number of contiguous array elements in individual blobs stored in a variable",
    "Starting indices of flattened canonical noncontiguous requests of individual blobs",
    "Number of elements of flattened canonical noncontiguous requests of individual blobs",
)
_OF_FILE = ("global_nprocs", "num_decompositions", "num_subfiles")
_MAP, _DIMIDS, _SUPPLEMENT = "decomposition_ID", "global_dimids", "supplement_of"
_NBLOBS, _NO_SUPPLEMENTS = "nblobs", dict[int, int]()


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
) -> Header:
    """The header of a subfile; its variables are not placed.

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
    >>> from pnc_vol.layout.blob.maps import MapSizes
    >>> header = Header(5, dims=(Dim("time", 0), Dim("x", 6)), vars=(Var("t", (0, 1), (), 6),))
    >>> made = physical_header(header, [MapSizes((6,), (1,), 2, 5, 3)], [1], nblobs=2, nprocs=4, subfiles=2)
    >>> [tuple(dim) for dim in made.dims[2:]]
    [('nblobs', 2), ('D1.nelems', 5), ('D1.max_nreqs', 3)]
    >>> made.vars[-1].dims, [attr.name for attr in made.vars[-1].attrs]
    ((0, 3), ['decomposition_ID', 'global_dimids'])
    """
    _refuse_names(canonical, assigned, len(maps))
    dims = [*canonical.dims, Dim(_NBLOBS, nblobs)]
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
        ids = _dimids(canonical, one, [var for var, of in zip(canonical.vars, assigned, strict=True) if of == k])
        variables += _map_variables(k, one, ids, row, at_nreqs + k - 1)
    record = record_dim(canonical)
    for var, k in zip(canonical.vars, assigned, strict=True):
        of = _partitioned(canonical, var, k, maps[k - 1], at_nelems + k - 1, record) if k else var
        variables.append(of._replace(begin=-1))
    taken = {var.name for var in variables}
    for i, nelems in sorted(supplements.items()):
        k = assigned[i]
        name = f"D{k}.supplement"
        if name not in (dim.name for dim in dims):
            dims.append(Dim(name, nelems))
        size = [dim.name for dim in dims].index(name)
        assert dims[size].size == nelems, "what a map leaves open is the same for all its variables"
        var = canonical.vars[i]
        variables.append(_supplement(var, i, k, _shaped(var.dims, len(maps[k - 1].dims), size, record), taken))
    attrs = _ints(_OF_FILE[0], [nprocs]), _ints(_OF_FILE[1], [len(maps)]), _ints(_OF_FILE[2], [subfiles])
    return Header(5, canonical.numrecs, tuple(dims), (*attrs, *canonical.attrs), tuple(variables))


def _refuse_names(canonical: Header, assigned: Sequence[int], nmaps: int) -> None:
    """Complain of names that the subfile needs for itself."""
    parts = ("nelems", "max_nreqs", "nblobs", "supplement")
    dims = {_NBLOBS} | {f"D{k}.{part}" for k in range(1, nmaps + 1) for part in parts}
    variables = {f"D{k}.{part}" for k in range(1, nmaps + 1) for part in MAP_VARIABLES}
    found = [f"the dimension {dim.name!r}" for dim in canonical.dims if dim.name in dims]
    found += [f"the variable {var.name!r}" for var in canonical.vars if var.name in variables]
    found += [f"the attribute {attr.name!r}" for attr in canonical.attrs if attr.name in _OF_FILE]
    for var, k in zip(canonical.vars, assigned, strict=True):
        own = {_MAP, _SUPPLEMENT} | ({_DIMIDS} if k else set())
        found += [f"the attribute {attr.name!r} of {var.name!r}" for attr in var.attrs if attr.name in own]
    if found:
        raise DefinitionError(
            f"The blob layout needs the name of {found[0]} for itself; use another name, or layout='canonical'"
        )


def _dimids(canonical: Header, one: SizedMap, users: Sequence[Var]) -> tuple[int, ...]:
    """The dimensions of a map: those that it was made for, or, if they have other numbers now, those of a variable.

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
            attrs.append(_ints(_DIMIDS, dimids))
        yield Var(f"D{k}.{name}", (row, column) if name in ("offsets", "lengths") else (row,), tuple(attrs), code)


def _partitioned(canonical: Header, var: Var, k: int, of: SizedMap, size: int, record: int | None) -> Var:
    dims = _shaped(var.dims, len(of.dims), size, record)
    lengths = tuple(canonical.dims[i].size for i in var.dims[var.dims[:1] == (record,) :])
    if not of.dims or lengths[: len(of.dims)] != tuple(of.dims):
        raise DefinitionError(f"The map D{k} is of the dimensions {of.dims}, the variable {var.name!r} has {lengths}")
    return Var(var.name, dims, (_ints(_MAP, [k]), _ints(_DIMIDS, var.dims), *var.attrs), var.type)


def _shaped(dims: tuple[int, ...], mapped: int, size: int, record: int | None) -> tuple[int, ...]:
    """The dimensions of a canonical variable, of which `mapped` behind that of records have become one."""
    first = int(dims[:1] == (record,))
    return (*dims[:first], size, *dims[first + mapped :])


def _supplement(var: Var, i: int, k: int, dims: tuple[int, ...], taken: set[str]) -> Var:
    name = f"{var.name}.supplement"
    if name in taken or len(name.encode("utf-8", "surrogateescape")) > MAX_NAME:
        name = f"D{k}.supplement.{i}"
    return Var(name, dims, (_ints(_SUPPLEMENT, [i]),), var.type)


# ------------------------------------------------------------------------------------- physical to canonical


class MapVariables(NamedTuple):
    """One map, as the header of a subfile describes it.

    dims, dimids, nblobs, nelems, max_nreqs : see `maps.SizedMap`.
    first : int
        Its variable ``nreqs`` in the header of the subfile; the other four follow.
    """

    dims: tuple[int, ...]
    dimids: tuple[int, ...]
    nblobs: int
    nelems: int
    max_nreqs: int
    first: int


class Described(NamedTuple):
    """What the header of a subfile says.

    canonical : Header, without begins.
    maps : tuple of MapVariables
    assigned : tuple of int, for each canonical variable the number of its map, from 1, or 0.
    variables : tuple of int, the physical variable of each canonical one.
    supplements : mapping of int to int, from a canonical variable to the physical one that is its supplement.
    nblobs, nprocs, subfiles : int
    """

    canonical: Header
    maps: tuple[MapVariables, ...]
    assigned: tuple[int, ...]
    variables: tuple[int, ...]
    supplements: Mapping[int, int]
    nblobs: int
    nprocs: int
    subfiles: int


def is_blob_set(header: Header) -> bool:
    """Whether this is the header of a subfile: it has the attributes and the dimension that E3SM-IO gives one."""
    return {attr.name for attr in header.attrs}.issuperset(_OF_FILE) and any(dim.name == _NBLOBS for dim in header.dims)


def described(physical: Header, path: str) -> Described:
    """The canonical header, and what the subfile holds of it.

    Parameters
    ----------
    physical : Header, of a subfile that `physical_header` or E3SM-IO made.
    path : str, of the subfile, for messages.

    Raises
    ------
    FormatError
        It is no subfile, or says things that contradict each other; ``field`` names the object.

    Examples
    --------
    >>> from pnc_vol.layout.blob.maps import MapSizes
    >>> header = Header(5, dims=(Dim("time", 0), Dim("x", 6)), vars=(Var("t", (0, 1), (), 6),))
    >>> made = physical_header(header, [MapSizes((6,), (1,), 2, 5, 3)], [1], nblobs=2, nprocs=4, subfiles=2)
    >>> found = described(made, "out.nc.0000")
    >>> found.canonical == header, found.assigned, found.variables
    (True, (1,), (5,))
    """
    known: Described = physical.derived.get("described") or _Reader(physical, path).described()
    physical.derived["described"] = known
    return known._replace(canonical=known.canonical.with_numrecs(physical.numrecs))


class _Reader:
    """Takes the header of one subfile apart."""

    def __init__(self, physical: Header, path: str) -> None:
        self.header, self.path = physical, path
        names = [dim.name for dim in physical.dims]
        self.own = {name: i for i, name in reversed(list(enumerate(names)))}
        if not is_blob_set(physical):
            missing = [f"attribute {name!r}" for name in _OF_FILE if name not in {a.name for a in physical.attrs}]
            self.wrong((missing or [f"dimension {_NBLOBS!r}"])[0], None, "a subfile of a blob set has it", absent=True)
        self.canonical = names.index(_NBLOBS)
        self.record = record_dim(physical)
        if self.record is not None and self.record > self.canonical:
            self.wrong(f"dimension {names[self.record]!r}", 0, "it belongs to the blobs and cannot grow")
        self.mapped: dict[tuple[Attr | tuple[int, ...], ...], tuple[tuple[int, ...], int]] = {}

    def wrong(self, what: str, value: object, why: str, *, absent: bool = False) -> NoReturn:
        said = f"there is no {what}" if absent else f"{what} is {value}"
        raise FormatError(f"{self.path}: {said}: {why}", field=what, value=value)

    def described(self) -> Described:
        nprocs, nmaps, subfiles = (self.number(self.header.attrs, name, "") for name in _OF_FILE)
        most = len(self.header.vars) // len(MAP_VARIABLES)
        if not 0 <= nmaps <= most:
            self.wrong(f"attribute {_OF_FILE[1]!r}", nmaps, f"there are variables for 0 to {most} maps")
        if not 1 <= subfiles <= nprocs:
            self.wrong(f"attribute {_OF_FILE[2]!r}", subfiles, f"it can be 1 to {_OF_FILE[0]}, which is {nprocs}")
        maps = tuple(self.map(k) for k in range(1, nmaps + 1))
        variables: list[Var] = []
        assigned: list[int] = []
        physical: list[int] = []
        supplements: dict[int, int] = {}
        for i in range(len(MAP_VARIABLES) * nmaps, len(self.header.vars)):
            var = self.header.vars[i]
            if any(attr.name == _SUPPLEMENT for attr in var.attrs):
                supplements[self.number(var.attrs, _SUPPLEMENT, f" of {var.name!r}")] = i
                continue
            of, k = self.variable(var, maps)
            variables.append(of)
            assigned.append(k)
            physical.append(i)
        for number, i in supplements.items():
            self.check_supplement(number, self.header.vars[i], variables, assigned, maps)
        attrs = tuple(attr for attr in self.header.attrs if attr.name not in _OF_FILE)
        made = Header(5, self.header.numrecs, self.header.dims[: self.canonical], attrs, tuple(variables))
        nblobs = self.header.dims[self.canonical].size
        return Described(made, maps, tuple(assigned), tuple(physical), supplements, nblobs, nprocs, subfiles)

    def integers(self, attrs: tuple[Attr, ...], name: str, of: str) -> tuple[int, ...]:
        """The values of an attribute of integers."""
        found = next((attr for attr in attrs if attr.name == name), None)
        if found is None:
            self.wrong(f"attribute {name!r}{of}", None, "a subfile of a blob set has it", absent=True)
        values = attr_values(found)
        if isinstance(values, bytes) or values.dtype.kind not in "iu":
            self.wrong(f"attribute {name!r}{of}", values, "integers are needed")
        return tuple(values.tolist())

    def number(self, attrs: tuple[Attr, ...], name: str, of: str) -> int:
        values = self.integers(attrs, name, of)
        if len(values) != 1:
            self.wrong(f"attribute {name!r}{of}", list(values), "one number is needed")
        return values[0]

    def size(self, name: str) -> int:
        at = self.own.get(name)
        if at is None or at <= self.canonical:
            self.wrong(f"dimension {name!r}", None, f"it has to stand behind {_NBLOBS!r}", absent=True)
        return at

    def dimids(self, attrs: tuple[Attr, ...], of: str) -> tuple[int, ...]:
        ids = self.integers(attrs, _DIMIDS, of)
        if not all(0 <= i < self.canonical for i in ids):
            text = f"there are {self.canonical} canonical dimensions, numbered from 0"
            self.wrong(f"attribute {_DIMIDS!r}{of}", list(ids), text)
        return ids

    def map(self, k: int) -> MapVariables:
        nelems, column = self.size(f"D{k}.nelems"), self.size(f"D{k}.max_nreqs")
        first = (k - 1) * len(MAP_VARIABLES)
        rows: tuple[int, ...] = (self.canonical,)
        if f"D{k}.nblobs" in self.own:
            rows = (self.size(f"D{k}.nblobs"),)
        for name, var in zip(MAP_VARIABLES, self.header.vars[first:], strict=False):
            if var.name != f"D{k}.{name}":
                self.wrong(f"variable {first + MAP_VARIABLES.index(name)}", repr(var.name), f"D{k}.{name} is expected")
            if var.dims != (rows if name in MAP_VARIABLES[:3] else (*rows, column)):
                shape = [self.header.dims[i].name for i in var.dims]
                self.wrong(f"the shape of the variable {var.name!r}", shape, "that of another map variable is expected")
            if var.type not in (INT, INT64):
                self.wrong(f"the type of the variable {var.name!r}", var.type, "integers are expected (4 or 10)")
        ids = self.dimids(self.header.vars[first].attrs, f" of 'D{k}.nreqs'")
        if self.record in ids:
            self.wrong(f"attribute {_DIMIDS!r} of 'D{k}.nreqs'", list(ids), "the record dimension is in no map")
        nblobs, total, most = (self.header.dims[i].size for i in (rows[0], nelems, column))
        return MapVariables(tuple(self.header.dims[i].size for i in ids), ids, nblobs, total, most, first)

    def variable(self, var: Var, maps: Sequence[MapVariables]) -> tuple[Var, int]:
        """The canonical variable, and the number of its map."""
        # Hundreds of variables have the same map, and say so in their first attributes.
        key = (*var.attrs[:2], var.dims)
        if key in self.mapped:
            return Var(var.name, self.mapped[key][0], var.attrs[2:], var.type), self.mapped[key][1]
        if all(attr.name != _MAP for attr in var.attrs):
            if any(i >= self.canonical for i in var.dims):
                shape = [self.header.dims[i].name for i in var.dims]
                self.wrong(f"the shape of the variable {var.name!r}", shape, f"it has no attribute {_MAP!r}")
            return var._replace(begin=-1), 0
        of = f" of {var.name!r}"
        k = self.number(var.attrs, _MAP, of)
        if not 1 <= k <= len(maps):
            self.wrong(f"attribute {_MAP!r}{of}", k, f"there are {len(maps)} maps, numbered from 1")
        ids = self.dimids(var.attrs, of)
        mapped = maps[k - 1].dims
        lengths = tuple(self.header.dims[i].size for i in ids[ids[:1] == (self.record,) :])
        if not mapped or lengths[: len(mapped)] != mapped:
            self.wrong(f"attribute {_DIMIDS!r}{of}", list(ids), f"the map D{k} is of the dimensions {mapped}")
        expected = _shaped(ids, len(mapped), self.size(f"D{k}.nelems"), self.record)
        if var.dims != expected:
            shape, names = ([self.header.dims[i].name for i in dims] for dims in (var.dims, expected))
            self.wrong(f"the shape of the variable {var.name!r}", shape, f"{names} is expected")
        attrs = tuple(attr for attr in var.attrs if attr.name not in (_MAP, _DIMIDS))
        if attrs == var.attrs[2:]:
            self.mapped[key] = ids, k
        return Var(var.name, ids, attrs, var.type), k

    def check_supplement(
        self, of: int, var: Var, variables: Sequence[Var], assigned: Sequence[int], maps: Sequence[MapVariables]
    ) -> None:
        what = f"attribute {_SUPPLEMENT!r} of {var.name!r}"
        if not 0 <= of < len(variables) or not assigned[of]:
            self.wrong(what, of, f"there are {len(variables)} canonical variables, and this one needs a map")
        k = assigned[of]
        dims = _shaped(variables[of].dims, len(maps[k - 1].dims), self.size(f"D{k}.supplement"), self.record)
        if var.dims != dims or var.type != variables[of].type:
            self.wrong(what, of, f"its type or shape is not that of a supplement of {variables[of].name!r}")
