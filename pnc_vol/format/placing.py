"""Variables get their begins: in a new file, and in one whose definitions changed.

Knows: alignment, reserves, the order that readers ask for. Does not know: bytes of data, files; `moving` says what a
change of places means for data that are there.

Rules
-----
1. Header, fixed variables in definition order, then the records, in definition order: every reader accepts this alone.
2. Fixed variables of 8-byte types begin at multiples of 8 unless `Alignment.element_align` says otherwise, all others
   at multiples of 4; readers take any gap.
3. Within a record there are no gaps, since readers do not see them.
4. A variable that holds data stays where it is, if that breaks no rule; else everything is placed anew behind a larger
   header region.
5. Nothing new comes to where a variable lies that is deleted with the same change: the old header may be needed again.

Source: NetCDF classic format specification; the alignment hints of PnetCDF.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from pnc_vol.errors import DefinitionError
from pnc_vol.format.encode import header_size
from pnc_vol.format.model import (
    MAX_OFFSET,
    TYPES,
    WIDTHS,
    Header,
    Var,
    begin_rec,
    data_end,
    inner_bytes,
    inner_sizes,
    is_record,
    pad4,
    record_dim,
    record_size,
    record_stride,
    record_vars,
    shape,
    strides,
    vsize,
)

if TYPE_CHECKING:
    from pnc_vol.format.moving import Moves, moves, needs_move, overwrites

__all__ = [
    "Alignment",
    "Moves",
    "begin_rec",
    "data_end",
    "first_begin",
    "grow",
    "inner_bytes",
    "is_record",
    "moves",
    "needs_move",
    "overwrites",
    "place",
    "record_dim",
    "record_size",
    "record_vars",
    "shape",
    "strides",
    "vsize",
]


_PART, _MOST_FREE = 16, 64 << 20
"""What is kept free before records that are placed anew: this part of the file, and so many bytes at most. Then each
byte of a new fixed variable costs 16 bytes that are copied, however often one is defined."""


class Alignment:
    """Where sections begin and what is kept free; all in bytes, rounded up to multiples of 4.

    var_align : start of the fixed variables (hint ``nc_var_align_size``).
    record_align : start of the record section (hint ``nc_record_align_size``).
    header_free : kept free behind the header (``h_minfree``).
    fixed_free : kept free between the fixed variables and the records, if there are both (``v_minfree``).
    element_align : start of each fixed variable of an 8-byte type; 4 leaves no gaps, as PnetCDF does.
    """

    __slots__ = ("element_align", "fixed_free", "header_free", "record_align", "var_align")

    var_align: int
    record_align: int
    header_free: int
    fixed_free: int
    element_align: int

    def __init__(
        self,
        var_align: int = 4,
        record_align: int = 4,
        header_free: int = 0,
        element_align: int = 8,
        fixed_free: int = 0,
    ) -> None:
        for name, value, least in (
            ("var_align", var_align, 4),
            ("record_align", record_align, 4),
            ("header_free", header_free, 0),
            ("fixed_free", fixed_free, 0),
            ("element_align", element_align, 4),
        ):
            if value < 0:
                raise ValueError(f"{name} is {value}; it counts bytes and cannot be negative.")
            setattr(self, name, max(least, (value + 3) & -4))

    def step_of(self, code: int) -> int:
        """Return what the begin of a fixed variable of a type is a multiple of."""
        return self.element_align if TYPES[code].size == 8 else 4


def _align(offset: int, step: int) -> int:
    return -(-offset // step) * step


def first_begin(header: Header) -> int | None:
    """Return where the first variable begins, which ends the header's region; None without placed variables."""
    return min([var[4] for var in header.vars if var[4] >= 0], default=None)


def place(header: Header, alignment: Alignment | None = None, *, header_extent: int | None = None) -> Header:
    """Place every variable anew, in definition order: first the fixed ones, then the records.

    Parameters
    ----------
    header : Header
        Its begins are ignored.
    alignment : Alignment, optional
    header_extent : int, optional
        The first variable begins at this byte or behind it: a region for the header to grow in.

    Returns
    -------
    Header
        With all begins set.

    Raises
    ------
    DefinitionError
        A begin is beyond what the version can hold.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim
    >>> placed = place(Header(5, dims=(Dim("x", 3),), vars=(Var("a", (0,), (), 6), Var("b", (0,), (), 1))))
    >>> [var.begin for var in placed.vars]
    [192, 216]
    """
    how = alignment or Alignment()
    sizes = inner_sizes(header)
    records = record_vars(header)
    in_record = set(records)
    at = max(header_size(header) + how.header_free, pad4(header_extent or 0))
    begins = [0] * len(header.vars)
    if len(records) < len(sizes):
        at = _align(at, how.var_align)
        steps = {} if records else {code: how.step_of(code) for code in {var[3] for var in header.vars}}
        if len(set(steps.values())) == 1:
            # What keeps one step keeps the next.
            begins, at = _packed(sizes, _align(at, next(iter(steps.values()))))
        else:
            for i, var in enumerate(header.vars):
                if i not in in_record:
                    begins[i] = at = _align(at, how.step_of(var[3]))
                    at = pad4(at + sizes[i])
        at += how.fixed_free
    _pack_records(header, sizes, records, _align(at, how.record_align), begins)
    return _with_begins(header, begins, sizes)


def _packed(sizes: list[int], start: int) -> tuple[list[int], int]:
    """Return the begins of variables one behind the other, and where the last one ends."""
    ends = list(accumulate([(n + 3) & -4 for n in sizes], initial=start))
    return ends[:-1], ends[-1]


def _pack_records(header: Header, sizes: list[int], records: list[int], start: int, begins: list[int]) -> None:
    for i in records:
        begins[i] = start
        start += (sizes[i] + 3) & -4


def _with_begins(header: Header, begins: list[int], sizes: list[int]) -> Header:
    limit = WIDTHS[header.version].begin_max
    last, largest = max(begins, default=0), max(sizes, default=0)
    fits = last <= limit and last + pad4(largest) <= MAX_OFFSET
    for var, begin, size in () if fits else zip(header.vars, begins, sizes, strict=True):
        if begin > limit:
            raise DefinitionError(
                f"Variable {var.name!r} would begin at byte {begin}; CDF-{header.version} reaches {limit}."
                + (" Use format='CDF-2' or 'CDF-5'." if header.version == 1 else "")
            )
        if begin + pad4(size) > MAX_OFFSET:
            raise DefinitionError(f"Variable {var.name!r} would end beyond 2**63 - 1 bytes; make it smaller.")
    return header.with_begins(begins)


def grow(
    old: Header,
    new: Header,
    origin: Sequence[int | None],
    alignment: Alignment | None = None,
    *,
    reserve: int = 0,
) -> Header:
    """Place changed definitions so that data stay where they are whenever possible.

    Parameters
    ----------
    old : Header
        What the file holds now, placed.
    new : Header
        The definitions wanted; begins are ignored.
    origin : sequence of (int or None), one for each variable of `new`
        The index in ``old.vars`` of the variable whose data it carries on; None for a new one.
    alignment : Alignment, optional
        For sections that are placed anew.
    reserve : int
        Bytes to keep free behind the header when everything is placed anew.

    Returns
    -------
    Header
        `new` with all begins set. Whether data have to be copied says `needs_move`. A carried variable whose first
        dimension alone changed may stay too; what it gained there is not yet written, and may hold old bytes.

    Raises
    ------
    DefinitionError
        A begin is beyond what the version can hold.
    """
    how = alignment or Alignment()
    if len(origin) != len(new.vars):
        raise ValueError(f"{len(origin)} origins for {len(new.vars)} variables")
    need = header_size(new)
    region = first_begin(old)
    if region is None or all(o is None for o in origin):
        return place(new, how, header_extent=max(need + reserve, region or 0))
    if begin_rec(old) is not None and new.version > 1:
        # Without space before them the next fixed variable would move all records again; CDF-1 reaches 2 GiB alone.
        free = max(reserve, min(data_end(old) // _PART, _MOST_FREE))
        how = Alignment(how.var_align, how.record_align, how.header_free, how.element_align, free)
    keeper = _Keeper(old, new, origin, how, need, region)
    begins = keeper.begins()
    if begins is not None and min(begins) >= need and not (keeper.taken and need > keeper.taken[0][0]):
        return _with_begins(new, begins, keeper.sizes)
    return place(new, how, header_extent=max(need + reserve, region if need <= region else 2 * region))


class _Keeper:
    """Tries to place `new` around the variables that it carries on from `old`, which stay.

    need : int, bytes of the header: what lies below moves.
    """

    def __init__(
        self, old: Header, new: Header, origin: Sequence[int | None], how: Alignment, need: int, region: int
    ) -> None:
        self.old, self.new, self.origin, self.how, self.need = old, new, origin, how, need
        self.sizes = inner_sizes(new)
        self.records = record_vars(new)
        # A dimension that both have, by the same number, needs no second look.
        self.same_dims = new.dims[: len(old.dims)] == old.dims
        self.same: dict[tuple[tuple[int, ...], tuple[int, ...]], bool] = {}
        # New variables never eat into the header's region.
        self.start = max(need, region)
        from pnc_vol.format import moving

        self.taken = moving.taken(old, origin)

    def _free(self, begin: int, nbytes: int, step: int) -> int:
        """Return the first place from `begin` on where no deleted variable lies."""
        for start, end in self.taken[bisect_right(self.taken, begin, key=itemgetter(1)) :]:
            if begin + nbytes <= start:
                break
            begin = _align(end, step)
        return begin

    def begins(self) -> list[int] | None:
        """Return the begins, or None if something would have to move."""
        begins = [0] * len(self.sizes)
        end = self._fixed(begins)
        if end is None or (self.records and not self._record_section(end, begins)):
            return None
        return begins

    def _carried(self, i: int) -> Var | None:
        origin = self.origin[i]
        return None if origin is None else self.old.vars[origin]

    def _same_rows(self, i: int, before: Var) -> bool:
        """Return whether the elements of variable `i` lie as they did, but for the length of the first dimension."""
        var = self.new.vars[i]
        if before.begin < 0 or var.type != before.type:
            return False
        # Many variables have the same dimensions.
        key = var.dims, before.dims
        same = self.same.get(key)
        if same is None:
            same = self.same[key] = (self.same_dims and var.dims == before.dims) or (
                len(var.dims) == len(before.dims)
                and is_record(self.new, var) == is_record(self.old, before)
                and shape(self.new, var)[1:] == shape(self.old, before)[1:]
            )
        return same

    def _fixed(self, begins: list[int]) -> int | None:
        """Place the fixed variables; return where they end, or None."""
        in_record, sizes, old = set(self.records), self.sizes, self.old.vars
        end: int | None = None
        last: tuple[Var, Var] | None = None
        for i, (var, origin) in enumerate(zip(self.new.vars, self.origin, strict=True)):
            if i in in_record:
                continue
            if origin is None:
                step = self.how.step_of(var.type)
                begin = self._free(_align(self.start if end is None else end, step), sizes[i], step)
            else:
                before = old[origin]
                begin = before[4]
                # What was found of the variable before holds for one of the same dimensions and type.
                alike = last is not None and var[1] is last[0][1] and before[1] is last[1][1]
                if not alike or var[3] != before[3] or begin < 0:
                    if not self._same_rows(i, before):
                        return None
                    last = var, before
                if begin < (self.need if end is None else end):
                    return None
            begins[i] = begin
            end = (begin + sizes[i] + 3) & -4
        return self.start if end is None else end

    def _record_section(self, end: int, begins: list[int]) -> bool:
        """Place the records behind `end`; return whether those that there are may stay."""
        carried = {i: before for i in self.records if (before := self._carried(i)) is not None}
        if self.old.numrecs == 0 or not carried:
            start = begin_rec(self.old)
            if start is None or start < end or start & 3:
                start = _align(end + self.how.fixed_free, self.how.record_align)
            if self.taken and start < self.taken[-1][1]:
                start = _align(self.taken[-1][1], self.how.record_align)
            _pack_records(self.new, self.sizes, self.records, start, begins)
            # Without records there is nothing to move, but a fixed variable cannot have become one.
            return all(is_record(self.old, before) for before in carried.values())
        first = carried.get(self.records[0])
        if first is None or first.begin < end:
            return False
        _pack_records(self.new, self.sizes, self.records, first.begin, begins)
        if not all(self._same_rows(i, before) and begins[i] == before.begin for i, before in carried.items()):
            return False
        stride = record_stride([self.sizes[i] for i in self.records])
        return self.old.numrecs == 1 or stride == record_size(self.old)
