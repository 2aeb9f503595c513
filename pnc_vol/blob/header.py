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
6. A subfile is known by the attributes and the dimension that E3SM-IO gives it. Its header is not trusted: values are
   compared with each other, and a contradiction is an error that names the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from pnc_vol.blob.maps import MAP_VARIABLES, MapSizes, wide_offsets
from pnc_vol.errors import DefinitionError, FormatError
from pnc_vol.format.limits import MAX_NAME
from pnc_vol.format.model import CHAR, INT, INT64, Attr, Dim, Header, HeaderFacts, Var, attr_values, record_dim

__all__ = [
    "BEFORE",
    "DIMIDS",
    "KEPT_RECORDS",
    "MAP",
    "NBLOBS",
    "OF_FILE",
    "SUPPLEMENT",
    "Before",
    "Described",
    "Kept",
    "described",
    "is_blob_set",
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
    maps: Sequence[MapSizes],
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
    maps : sequence of MapSizes, D1, D2, ...
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


def _dimids(canonical: Header, one: MapSizes, users: Sequence[Var]) -> tuple[int, ...]:
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


def _map_variables(k: int, one: MapSizes, dimids: tuple[int, ...], row: int, column: int) -> Iterable[Var]:
    wide = INT64 if wide_offsets(one.dims) else INT
    for name, text, code in zip(MAP_VARIABLES, _DESCRIPTIONS, (INT, INT64, INT64, wide, wide), strict=True):
        attrs = [Attr("description", CHAR, len(text), text.encode())]
        if name == "nreqs":
            attrs.append(_ints(DIMIDS, dimids))
        yield Var(f"D{k}.{name}", (row, column) if name in ("offsets", "lengths") else (row,), tuple(attrs), code)


def _partitioned(
    canonical: Header, var: Var, k: int, of: MapSizes, size: int, record: int | None
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


class Before(NamedTuple):
    """A variable by the name that it has in subfile 0 until the end of a flush.

    variable : int, its number in the header of the subfile.
    same : (int, int, bool, tuple of int)
        Its map, from 1, its type, whether it has records, and the lengths of one element: those of the variable that
        subfile 0 has under this name.
    """

    variable: int
    same: tuple[int, int, bool, tuple[int, ...]]


class Described(NamedTuple):
    """What the header of a subfile says.

    canonical : Header, without begins.
    maps : tuple of MapSizes; the variables of map k are the five from 5 (k - 1) on.
    assigned : tuple of int, for each canonical variable the number of its map, from 1, or 0.
    variables : tuple of int, the physical variable of each canonical one.
    supplements : mapping of int to int, from a canonical variable to the physical one that is its supplement.
    nblobs, nprocs, subfiles : int
    before : mapping of str to Before, by the names of subfile 0; of a flush that was not completed.
    rest : mapping of int to int, for the number of a map, from 1, the elements of the supplements of its variables.
    """

    canonical: Header
    maps: tuple[MapSizes, ...]
    assigned: tuple[int, ...]
    variables: tuple[int, ...]
    supplements: Mapping[int, int]
    nblobs: int
    nprocs: int
    subfiles: int
    before: Mapping[str, Before]
    rest: Mapping[int, int]


_described: WeakKeyDictionary[HeaderFacts, Described] = WeakKeyDictionary()
"""What was found, as long as the definitions are there."""


def is_blob_set(header: Header) -> bool:
    """Return whether this is the header of a subfile: it has the attributes and the dimension that E3SM-IO gives
    one."""
    return {attr.name for attr in header.attrs}.issuperset(OF_FILE) and any(dim.name == NBLOBS for dim in header.dims)


def described(physical: Header, path: str) -> Described:
    """Decode the header of a subfile into a `Described`.

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
    >>> from pnc_vol.blob.maps import MapSizes
    >>> from pnc_vol.format.model import Dim
    >>> from pnc_vol.blob.header import physical_header
    >>> header = Header(5, dims=(Dim("time", 0), Dim("x", 6)), vars=(Var("t", (0, 1), (), 6),))
    >>> made = physical_header(header, [MapSizes((6,), (1,), 2, 5, 3)], [1], nblobs=2, nprocs=4, subfiles=2)
    >>> found = described(made, "out.nc.0000")
    >>> found.canonical == header, found.assigned, found.variables
    (True, (1,), (5,))
    """
    known = _described.get(physical.facts)
    if known is None:
        known = _described[physical.facts] = _HeaderDecoder(physical, path).described()
    return known._replace(canonical=known.canonical.with_numrecs(physical.numrecs))


class _HeaderDecoder:
    """A decoder of the header of one subfile."""

    def __init__(self, physical: Header, path: str) -> None:
        self.header, self.path = physical, path
        names = [dim.name for dim in physical.dims]
        self.own = {name: i for i, name in reversed(list(enumerate(names)))}
        if not is_blob_set(physical):
            missing = [f"attribute {name!r}" for name in OF_FILE if name not in {a.name for a in physical.attrs}]
            self.wrong((missing or [f"dimension {NBLOBS!r}"])[0], None, "a subfile of a blob set has it", absent=True)
        self.canonical = names.index(NBLOBS)
        self.record = record_dim(physical)
        if self.record is not None and self.record > self.canonical and names[self.record] != KEPT_RECORDS:
            self.wrong(f"dimension {names[self.record]!r}", 0, "it belongs to the blobs and cannot grow")
        self.mapped: dict[tuple[object, ...], tuple[tuple[int, ...], int]] = {}

    def wrong(self, what: str, value: object, why: str, *, absent: bool = False) -> NoReturn:
        statement = f"there is no {what}" if absent else f"{what} is {value}"
        raise FormatError(f"{self.path}: {statement}: {why}", field=what, value=value)

    def described(self) -> Described:
        nprocs, nmaps, subfiles = (self.number(self.header.attrs, name, "") for name in OF_FILE)
        most = len(self.header.vars) // len(MAP_VARIABLES)
        if not 0 <= nmaps <= most:
            self.wrong(f"attribute {OF_FILE[1]!r}", nmaps, f"there are variables for 0 to {most} maps")
        if not 1 <= subfiles <= nprocs:
            self.wrong(f"attribute {OF_FILE[2]!r}", subfiles, f"it can be 1 to {OF_FILE[0]}, which is {nprocs}")
        maps = tuple(self.map(k) for k in range(1, nmaps + 1))
        variables: list[Var] = []
        assigned: list[int] = []
        physical: list[int] = []
        supplements: dict[int, int] = {}
        before: dict[str, Before] = {}
        for i in range(len(MAP_VARIABLES) * nmaps, len(self.header.vars)):
            var = self.header.vars[i]
            # found by its attribute: its name may have been taken by a user's variable, or too long
            if any(attr.name == SUPPLEMENT for attr in var.attrs):
                supplements[self.number(var.attrs, SUPPLEMENT, f" of {var.name!r}")] = i
                continue
            if any(attr.name == BEFORE for attr in var.attrs):
                name, known = self.before(i, var, maps)
                before[name] = known
                if all(attr.name != DIMIDS for attr in var.attrs):
                    continue
                var = var._replace(attrs=tuple(attr for attr in var.attrs if attr.name != BEFORE))
            of, k = self.variable(var, maps)
            variables.append(of)
            assigned.append(k)
            physical.append(i)
        rest: dict[int, int] = {}
        for number, i in supplements.items():
            k, nelems = self.supplement(number, self.header.vars[i], variables, assigned, maps)
            rest[k] = nelems
        attrs = tuple(attr for attr in self.header.attrs if attr.name not in OF_FILE)
        made = Header(5, self.header.numrecs, self.header.dims[: self.canonical], attrs, tuple(variables))
        nblobs = self.header.dims[self.canonical].size
        counts = nblobs, nprocs, subfiles
        return Described(made, maps, tuple(assigned), tuple(physical), supplements, *counts, before, rest)

    def integers(self, attrs: tuple[Attr, ...], name: str, of: str) -> tuple[int, ...]:
        """Return the values of an attribute of integers."""
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
            self.wrong(f"dimension {name!r}", None, f"it has to stand behind {NBLOBS!r}", absent=True)
        return at

    def dimids(self, attrs: tuple[Attr, ...], of: str) -> tuple[int, ...]:
        ids = self.integers(attrs, DIMIDS, of)
        if not all(0 <= i < self.canonical for i in ids):
            text = f"there are {self.canonical} canonical dimensions, numbered from 0"
            self.wrong(f"attribute {DIMIDS!r}{of}", list(ids), text)
        return ids

    def map(self, k: int) -> MapSizes:
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
            self.wrong(f"attribute {DIMIDS!r} of 'D{k}.nreqs'", list(ids), "the record dimension is in no map")
        nblobs, total, most = (self.header.dims[i].size for i in (rows[0], nelems, column))
        return MapSizes(tuple(self.header.dims[i].size for i in ids), ids, nblobs, total, most)

    def variable(self, var: Var, maps: Sequence[MapSizes]) -> tuple[Var, int]:
        """Return the canonical variable, and the number of its map."""
        # Hundreds of variables have the same map and the same first attributes: these are decoded once.
        key = (*var.attrs[:2], var.dims)
        if key in self.mapped:
            return Var(var.name, self.mapped[key][0], var.attrs[2:], var.type), self.mapped[key][1]
        if all(attr.name != MAP for attr in var.attrs):
            if any(i >= self.canonical for i in var.dims):
                shape = [self.header.dims[i].name for i in var.dims]
                self.wrong(f"the shape of the variable {var.name!r}", shape, f"it has no attribute {MAP!r}")
            return var._replace(begin=-1), 0
        of = f" of {var.name!r}"
        k = self.number(var.attrs, MAP, of)
        if not 1 <= k <= len(maps):
            self.wrong(f"attribute {MAP!r}{of}", k, f"there are {len(maps)} maps, numbered from 1")
        ids = self.dimids(var.attrs, of)
        mapped = maps[k - 1].dims
        lengths = tuple(self.header.dims[i].size for i in ids[ids[:1] == (self.record,) :])
        if not mapped or lengths[: len(mapped)] != mapped:
            self.wrong(f"attribute {DIMIDS!r}{of}", list(ids), f"the map D{k} is of the dimensions {mapped}")
        expected = shaped(ids, len(mapped), self.size(f"D{k}.nelems"), self.record)
        if var.dims != expected:
            shape, names = ([self.header.dims[i].name for i in dims] for dims in (var.dims, expected))
            self.wrong(f"the shape of the variable {var.name!r}", shape, f"{names} is expected")
        attrs = tuple(attr for attr in var.attrs if attr.name not in (MAP, DIMIDS))
        if attrs == var.attrs[2:]:
            self.mapped[key] = ids, k
        return Var(var.name, ids, attrs, var.type), k

    def before(self, i: int, var: Var, maps: Sequence[MapSizes]) -> tuple[str, Before]:
        """Read the name that subfile 0 has for a variable, and its map, type and size."""
        of = f" of {var.name!r}"
        attr = next(attr for attr in var.attrs if attr.name == BEFORE)
        if attr.type != CHAR or not attr.data:
            self.wrong(f"attribute {BEFORE!r}{of}", attr.data, "a name is needed")
        k = self.number(var.attrs, MAP, of)
        record = var.dims[:1] == (self.record,)
        rest = var.dims[int(record) :]
        if not 1 <= k <= len(maps) or rest[:1] != (self.size(f"D{k}.nelems"),):
            self.wrong(f"attribute {MAP!r}{of}", k, f"the variable has another shape, or there are {len(maps)} maps")
        trailing = tuple(self.header.dims[n].size for n in rest[1:])
        return attr.data.decode("utf-8", "surrogateescape"), Before(i, (k, var.type, record, trailing))

    def supplement(
        self, of: int, var: Var, variables: Sequence[Var], assigned: Sequence[int], maps: Sequence[MapSizes]
    ) -> tuple[int, int]:
        """Return the map of a supplement, and its elements."""
        what = f"attribute {SUPPLEMENT!r} of {var.name!r}"
        if not 0 <= of < len(variables) or not assigned[of]:
            self.wrong(what, of, f"there are {len(variables)} canonical variables, and this one needs a map")
        k = assigned[of]
        size = self.size(f"D{k}.supplement")
        dims = shaped(variables[of].dims, len(maps[k - 1].dims), size, self.record)
        if var.dims != dims or var.type != variables[of].type:
            self.wrong(what, of, f"its type or shape is not that of a supplement of {variables[of].name!r}")
        return k, self.header.dims[size].size
