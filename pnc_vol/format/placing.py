"""Variables get their begins: in a new file, and in one whose definitions changed; and which bytes move for that.

Knows: alignment, reserves, the order that readers ask for. Does not know: bytes of data, files.

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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError
from pnc_vol.format.encode import header_size
from pnc_vol.format.limits import check_begins
from pnc_vol.format.model import (
    TYPES,
    Header,
    Var,
    begin_rec,
    data_end,
    inner_bytes,
    inner_sizes,
    is_record,
    pad4,
    record_size,
    record_stride,
    record_vars,
    region,
    shape,
    strides,
)

__all__ = ["Alignment", "Moves", "grow", "moves", "needs_move", "overwrites", "place", "taken"]

Int64 = npt.NDArray[np.int64]

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
    check_begins(header, begins, sizes)
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
    first = region(old).first
    if first is None or all(o is None for o in origin):
        return place(new, how, header_extent=max(need + reserve, first or 0))
    if begin_rec(old) is not None and new.version > 1:
        # Without space before them the next fixed variable would move all records again; CDF-1 reaches 2 GiB alone.
        free = max(reserve, min(data_end(old) // _PART, _MOST_FREE))
        how = Alignment(how.var_align, how.record_align, how.header_free, how.element_align, free)
    keeper = _Keeper(old, new, origin, how, need, first)
    begins = keeper.begins()
    if begins is not None and min(begins) >= need and not (keeper.taken and need > keeper.taken[0][0]):
        return _with_begins(new, begins, keeper.sizes)
    return place(new, how, header_extent=max(need + reserve, first if need <= first else 2 * first))


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
        self.taken = taken(old, origin)

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


# -------------------------------------------------------------------------------------------------------------- moving
# Which bytes of an old file go where in a new one.
#
# Rules
# -----
# 1. All data that are carried on are listed, moved or not: the list builds a whole new file.
# 2. A variable whose shape changed keeps the elements that both shapes have, at their indices.
# 3. Padding between variables is taken along where both sides have it, so that neighbours merge to long moves. A source
#    whose last padding was never written therefore ends up to 3 bytes before the last move does.
# 4. Until the new header is in the file the old one counts. So what the old one knows is overwritten by nothing new,
#    not even where a deleted variable lies: `overwrites` finds it, and such a layout is made in another file.


class Moves(NamedTuple):
    """Copies from an old file to a new one, in the order of the old one.

    src : int64[n], bytes from the start of the old file.
    dst : int64[n], bytes from the start of the new file.
    length : int64[n], bytes.
    """

    src: Int64
    dst: Int64
    length: Int64

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(self.length.sum())


class _Carried(NamedTuple):
    """What carries on of variables of one kind: the elements that both sides have, and how they lie on each side.

    outer, length : the extents of the outer dimensions, where the inner ones are joined to runs of so many bytes.
    """

    common: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]
    padded: int
    outer: tuple[int, ...]
    length: int


def moves(old: Header, new: Header, origin: Sequence[int | None]) -> Moves:
    """List the copies that bring all carried data from a file of `old` to a file of `new`.

    Parameters
    ----------
    old, new : Header
        Both placed. As many records are carried as both have.
    origin : sequence of (int or None), one for each variable of `new`
        The index in ``old.vars`` of the variable whose data it carries on.

    Returns
    -------
    Moves
        Ordered by source, merged where both sides adjoin.

    Raises
    ------
    DefinitionError
        A carried variable changed its type or its number of dimensions.
    """
    parts: list[tuple[Int64, Int64, Int64]] = [_NOTHING]
    by_record: list[tuple[Int64, Int64, Int64]] = [_NOTHING]
    steps = record_size(old), record_size(new)
    records = min(old.numrecs, new.numrecs)
    for piece, begins in _carried(old, new, origin):
        src, dst = np.array(begins, np.int64).reshape(-1, 2).T
        outer, whole = piece.outer, np.full(src.size, max(piece.length, piece.padded), np.int64)
        if not outer:
            parts.append((src, dst, whole))
        elif len(outer) == 1 and (*piece.src_strides[:1], *piece.dst_strides[:1]) == steps and outer[0] == records:
            by_record.append((src, dst, whole))
        else:
            parts.append(_expand(piece, src, dst))
    if len(by_record) > 1:
        parts.append(_repeat(_merge(*_joined(by_record)), records, *steps))
    return _merge(*_joined(parts))


def needs_move(old: Header, new: Header, origin: Sequence[int | None]) -> bool:
    """Return whether any carried data lie elsewhere in a file of `new` than in a file of `old`."""
    steps = record_size(old), record_size(new)
    # A dimension that both have, by the same number, and records of the same length.
    same_dims = steps[0] == steps[1] and new.dims[: len(old.dims)] == old.dims
    if same_dims and None not in origin and list(map(old.vars.__getitem__, origin)) == list(new.vars):  # type: ignore[arg-type]
        # Most are the same objects: that takes few nanoseconds for each.
        return False
    for piece, begins in _carried(old, new, origin):
        by_axis = zip(piece.common, piece.src_strides, piece.dst_strides, strict=True)
        if begins[::2] != begins[1::2] or any(n > 1 and x != y for n, x, y in by_axis):
            return True
    return False


def taken(old: Header, origin: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return where the data lie that are not carried on: first byte and end, by offset; what touches is one piece.

    Parameters
    ----------
    old : Header, placed
    origin : sequence of (int or None)
        The index in ``old.vars`` of each variable that is carried on; None for new ones.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim
    >>> old = Header(5, dims=(Dim("x", 3),), vars=(Var("a", (0,), (), 6, 200), Var("b", (0,), (), 1, 224)))
    >>> taken(old, [0])
    [(224, 227)]
    """
    kept = {source for source in origin if source is not None}
    if len(kept) == len(old.vars):
        return []
    found, records = [], False
    for i in sorted(set(range(len(old.vars))) - kept):
        var = old.vars[i]
        if var.begin < 0:
            continue
        if is_record(old, var):
            records = True
        elif nbytes := inner_bytes(old, var):
            found.append((var.begin, var.begin + nbytes))
    if records and old.numrecs:
        start = begin_rec(old)
        assert start is not None
        found.append((start, start + record_size(old) * old.numrecs))
    found.sort()
    pieces: list[tuple[int, int]] = []
    for begin, end in found:
        if pieces and begin <= pad4(pieces[-1][1]):
            pieces[-1] = pieces[-1][0], max(end, pieces[-1][1])
        else:
            pieces.append((begin, end))
    return pieces


def overwrites(old: Header, new: Header, origin: Sequence[int | None]) -> bool:
    """Return whether the header or new variables of `new` would lie where `old` has data that are not carried on.

    Parameters
    ----------
    old, new : Header
        Both placed; what is carried on lies at the same place in both.
    origin : sequence of (int or None), one for each variable of `new`
    """
    gone = taken(old, origin)
    if not gone:
        return False
    if header_size(new) > gone[0][0]:
        return True
    fresh = [var for var, source in zip(new.vars, origin, strict=True) if source is None]
    if any(is_record(new, var) for var in fresh):
        # Behind the start of the records everything may become theirs.
        start = begin_rec(new)
        assert start is not None
        if gone[-1][1] > start:
            return True
    starts, ends = (np.array(column, np.int64) for column in zip(*gone, strict=True))
    fixed = [(var.begin, inner_bytes(new, var)) for var in fresh if not is_record(new, var)]
    if not fixed:
        return False
    begin, nbytes = np.array(fixed, np.int64).T
    return bool((np.searchsorted(ends, begin, "right") < np.searchsorted(starts, begin + nbytes, "left")).any())


_NO_VAR = Var("", (), (), -1)
"""Has a type that no variable has."""


def _carried(old: Header, new: Header, origin: Sequence[int | None]) -> list[tuple[_Carried, list[int]]]:
    """Return the kinds of variables that carry on, each with the begins of its variables in the old and in the new
    file."""
    steps = record_size(old), record_size(new)
    known: dict[tuple[tuple[int, ...], tuple[int, ...], int, int], tuple[_Carried, list[int]]] = {}
    before, after = _NO_VAR, _NO_VAR
    begins: list[int] = []
    for source, b in zip(origin, new.vars, strict=True):
        a = before if source is None else old.vars[source]
        if source is None or a[4] < 0:
            continue
        # Many variables have the dimensions and the type of the one before them.
        if a[1] is not before[1] or b[1] is not after[1] or a[3] != before[3] or b[3] != after[3]:
            key = a[1], b[1], a[3], b[3]
            if key not in known:
                known[key] = _compare(old, a, new, b, steps), []
            begins = known[key][1]
            before, after = a, b
        begins += a[4], b[4]
    return [found for found in known.values() if 0 not in found[0].common]


def _compare(old: Header, a: Var, new: Header, b: Var, steps: tuple[int, int]) -> _Carried:
    if a.type != b.type or len(a.dims) != len(b.dims):
        raise DefinitionError(
            f"Variable {b.name!r} was {TYPES[a.type].name} with {len(a.dims)} dimensions and would become "
            f"{TYPES[b.type].name} with {len(b.dims)}; its data cannot be kept."
        )
    common = tuple(min(m, n) for m, n in zip(shape(old, a), shape(new, b), strict=True))
    inner = inner_bytes(old, a), inner_bytes(new, b)
    kinds = is_record(old, a), is_record(new, b)
    padded = 0
    if inner[0] == inner[1] and kinds[0] == kinds[1]:
        whole = shape(old, a)[kinds[0] :] == shape(new, b)[kinds[0] :]
        # Records of a lone variable follow each other without padding.
        if whole and not (kinds[0] and min(steps) < pad4(inner[0])):
            padded = pad4(inner[0])
    there, here = strides(old, a, recsize=steps[0]), strides(new, b, recsize=steps[1])
    length, k = TYPES[a.type].size, len(common)
    while k and (common[k - 1] <= 1 or there[k - 1] == here[k - 1] == length):
        k -= 1
        length *= common[k]
    return _Carried(common, there, here, padded, common[:k], length)


def _expand(piece: _Carried, src: Int64, dst: Int64) -> tuple[Int64, Int64, Int64]:
    """Return one run for each index of the outer dimensions of variables that begin there."""
    k = len(piece.outer)
    for n, a, b in zip(piece.outer, piece.src_strides[:k], piece.dst_strides[:k], strict=True):
        index = np.arange(n, dtype=np.int64)
        src = (src[:, None] + index * a).ravel()
        dst = (dst[:, None] + index * b).ravel()
    return src, dst, np.full(src.size, piece.length, np.int64)


_NOTHING = (np.empty(0, np.int64),) * 3


def _joined(parts: Sequence[tuple[Int64, Int64, Int64]]) -> tuple[Int64, Int64, Int64]:
    src, dst, length = map(np.concatenate, zip(*parts, strict=True))
    return src, dst, length


def _repeat(record: Moves, records: int, src_step: int, dst_step: int) -> tuple[Int64, Int64, Int64]:
    """Repeat the moves of one record for all records."""
    if record.src.size == 1 and int(record.length[0]) == src_step == dst_step:
        return record.src, record.dst, record.length * records
    index = np.arange(records, dtype=np.int64)[:, None]
    src = (record.src + index * src_step).ravel()
    dst = (record.dst + index * dst_step).ravel()
    return src, dst, np.tile(record.length, records)


def _merge(src: Int64, dst: Int64, length: Int64) -> Moves:
    """Sort by source and join what adjoins on both sides."""
    if not src.size:
        return Moves(src, dst, length)
    if (src[1:] < src[:-1]).any():
        order = np.argsort(src, kind="stable")
        src, dst, length = src[order], dst[order], length[order]
    apart = (src[:-1] + length[:-1] != src[1:]) | (dst[:-1] + length[:-1] != dst[1:])
    start = np.flatnonzero(np.concatenate(([True], apart)))
    return Moves(src[start], dst[start], np.add.reduceat(length, start))
