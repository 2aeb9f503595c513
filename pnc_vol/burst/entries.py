"""`Entries` holds many entries of a log as columns, and `follow` finds which of them are valid.

Knows: where fields stand in an entry, in each of the layouts, and what must hold between them. Does not know: headers,
commit logs, what variables are in the file.

Rules
-----
1. The sizes of the entries are followed in one tight loop, those of many equal ones at once; all else is looked at for
   many entries at once.
2. Memory is allocated in proportion to the bytes at hand, whatever a field says.
3. The first invalid entry ends the log. It is reported (`Fault`) and never followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import Bytes
from pnc_vol.burst.encoding import FIRST_DATA, ITYPES, KINDS, LONG, VAR, VARA, VARS, LogEntry
from pnc_vol.extents.model import Int64, spread
from pnc_vol.format.model import MAX_VAR_DIMS

__all__ = ["NEW", "OLD", "OLDEST", "Coordinates", "Entries", "Fault", "Form", "follow"]

_MOST = 2**63 - 1

_ALIKE = 64
"""Entries of one size in a row after which more of them are looked for at once."""

_SIZES = np.zeros(max(ITYPES) + 1, np.int64)
for _code, _type in ITYPES.items():
    _SIZES[_code] = np.dtype(_type).itemsize


class Form(NamedTuple):
    """Where the fields of an entry stand, in words of 8 bytes; esize is word 0, api_kind and itype share word 1.

    name : str
    ndims : int, word of ndims if it is 64 bits wide; 0 if varid and ndims share word 2.
    data : int, word of data_off; data_len is the next.
    fixed : int, words before the coordinates.
    stride : bool, every entry may have one, also ``varn``.
    """

    name: str
    ndims: int
    data: int
    fixed: int
    stride: bool


NEW = Form("40 bytes", 0, 3, 5, False)
OLD = Form("56 bytes", 4, 5, 7, True)
OLDEST = Form("48 bytes", 3, 4, 6, True)


class Fault(NamedTuple):
    """The reason why an entry is invalid: ``offset`` in the metadata log, ``field``, ``value`` and a ``message``."""

    offset: int
    field: str
    value: int
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Coordinates of entries with the same number of dimensions, one row for each sub-request, in the log's order.

    entry : int64[n], index of the entry.
    start, count : int64[n, ndims]
    stride : int64[n, ndims] or None, if all of these entries have one, or none has.
    """

    entry: Int64
    start: Int64
    count: Int64
    stride: Int64 | None

    @property
    def reach(self) -> Int64:
        """int64[n], how many indices along the first dimension each row needs; 0 without dimensions."""
        if not self.start.shape[1]:
            return np.zeros(len(self.entry), np.int64)
        step = 1 if self.stride is None else self.stride[:, 0]
        reach: Int64 = self.start[:, 0] + np.where(self.count[:, 0] > 0, (self.count[:, 0] - 1) * step + 1, 0)
        return reach


class Entries:
    """Entries of one log, as columns.

    Attributes
    ----------
    kind : int64[n], code of the kind: -1 to -4 as in `KINDS`, or the number of sub-requests of a ``varn``.
    itype, varid, ndims, data_off, data_len : int64[n]
    offset, size : int64[n], of the entry in the metadata log.
    requests : int64[n], sub-requests: 1, but for ``varn``.
    whole : bool[n], entries of kind ``var`` without coordinates.

    Examples
    --------
    >>> from pnc_vol.burst.encoding import NATIVE, encode_vara
    >>> log = encode_vara(9, 0, (0, 0), (2, 6), 8, 96) + encode_vara(6, 2, (), (), 104, 4)
    >>> entries, fault = follow(log, 0, data_size=108, byteorder=NATIVE)
    >>> len(entries), entries.varid.tolist(), entries[0].count.tolist(), fault
    (2, [0, 2], [[2, 6]], None)
    """

    __slots__ = (
        "_coords", "_counted", "_words", "data_len", "data_off", "itype", "kind", "ndims", "offset", "requests", "size",
        "varid", "whole",
    )  # fmt: skip

    def __init__(
        self, words: npt.NDArray[Any], halves: npt.NDArray[Any], offset: Int64, begin: int, form: Form
    ) -> None:
        at = (offset - begin) >> 3
        self._words = words
        self.offset = offset
        self.size = words[at].astype(np.int64)
        self.kind = halves[2 * at + 2].astype(np.int64)
        self.itype = halves[2 * at + 3].astype(np.int64)
        if form.ndims:
            self.varid, self.ndims = (words[at + w].astype(np.int64) for w in (2, form.ndims))
        else:
            self.varid, self.ndims = (halves[2 * at + h].astype(np.int64) for h in (4, 5))
        self.data_off, self.data_len = (words[at + form.data + w].astype(np.int64) for w in (0, 1))
        self._coords = at + form.fixed
        self.requests = np.maximum(self.kind, 1)
        self._counted = np.ones(at.size, bool)
        self.whole = np.zeros(at.size, bool)

    def __len__(self) -> int:
        return int(self.offset.size)

    def cut(self, n: int) -> None:
        """Keep the first `n`."""
        for name in self.__slots__:
            if name != "_words":
                setattr(self, name, getattr(self, name)[:n])

    @property
    def end(self) -> Int64:
        """int64[n], where each entry ends in the metadata log."""
        end: Int64 = self.offset + self.size
        return end

    def __getitem__(self, i: int) -> LogEntry:
        if not -len(self) <= i < len(self):
            raise IndexError(f"no entry {i} in a log of {len(self)}")
        code, ndims, n, at = (int(a[i]) for a in (self.kind, self.ndims, self.requests, self._coords))
        rows, size = self._words, n * ndims
        shape = (n, ndims)
        if self.whole[i]:
            start, count = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
        else:
            start = rows[at : at + size].astype(np.int64).reshape(shape)
            count = np.ones(shape, np.int64)
            if self._counted[i]:
                count = rows[at + size : at + 2 * size].astype(np.int64).reshape(shape)
        stride = rows[at + 2 * size : at + 2 * size + ndims].astype(np.int64) if code == VARS else None
        return LogEntry(
            KINDS.get(code, "varn"),
            itype=int(self.itype[i]),
            varid=int(self.varid[i]),
            ndims=ndims,
            data_off=int(self.data_off[i]),
            data_len=int(self.data_len[i]),
            start=start,
            count=count,
            stride=stride,
            offset=int(self.offset[i]),
            size=int(self.size[i]),
        )

    def __iter__(self) -> Iterator[LogEntry]:
        return (self[i] for i in range(len(self)))

    def dtype(self, i: int, byteorder: str) -> np.dtype[Any]:
        """Return numpy's type of the values of entry `i` in the data log, if they are in memory form."""
        code = int(self.itype[i])
        if code == LONG:
            found = self[i]
            return np.dtype(f"{byteorder}i{found.data_len // max(int(_elements(found.count)), 1)}")
        return np.dtype(byteorder + ITYPES[code])

    def variables(self, pick: Int64) -> tuple[Int64, Int64]:
        """Return the variables that some entries write to, increasing, and for each entry which of them."""
        varid = self.varid[pick]
        if int(varid.max(initial=0)) > (1 << 16) + 4 * len(pick):
            return np.unique(varid, return_inverse=True)
        there = np.bincount(varid) > 0
        return np.flatnonzero(there), (np.cumsum(there) - 1)[varid]

    def rows(self, pick: Int64 | None = None) -> Iterator[Coordinates]:
        """Yield coordinates of all entries, or of those in `pick` (increasing), grouped by dimensions and stride.

        Entries of kind ``var`` without coordinates are left out (`whole` tells them). An entry of a variable without
        dimensions has one row, also a ``varn``, whose last value is the one that stays.
        """
        chosen = np.arange(len(self)) if pick is None else np.asarray(pick, np.int64)
        chosen = chosen[~self.whole[chosen]]
        strided, ndims = self.kind[chosen] == VARS, self.ndims[chosen]
        for nd in np.flatnonzero(np.bincount(ndims)).tolist():
            for has_stride in (False, True):
                if (picked := chosen[(ndims == nd) & (strided == has_stride)]).size:
                    yield self._rows(picked, nd, has_stride)

    def _rows(self, picked: Int64, nd: int, has_stride: bool) -> Coordinates:
        if nd == 0:
            nothing = np.empty((picked.size, 0), np.int64)
            return Coordinates(picked, nothing, nothing, nothing if has_stride else None)
        n = self.requests[picked]
        axes = np.arange(nd)
        if not has_stride and int(n.max()) == 1 and self._counted[picked].all():
            # The common case: start and count lie beside each other, so one gather reads both.
            both = self._words[self._coords[picked][:, None] + np.arange(2 * nd)].astype(np.int64)
            return Coordinates(picked, both[:, :nd], both[:, nd:], None)
        owner, step = spread(n)
        entry = picked[owner]
        at = self._coords[entry] + step * nd
        start = self._words[at[:, None] + axes].astype(np.int64)
        counted = self._counted[entry]
        skip = n[owner] * nd
        if counted.all():
            count = self._words[(at + skip)[:, None] + axes].astype(np.int64)
        else:
            count = np.ones_like(start)
            count[counted] = self._words[(at + skip)[counted][:, None] + axes]
        stride = self._words[(at + 2 * skip)[:, None] + axes].astype(np.int64) if has_stride else None
        return Coordinates(entry, start, count, stride)

    def judge_fields(self, form: Form, data_size: int) -> list[tuple[str, Int64, npt.NDArray[np.bool_], str]]:
        """Judge the fields; also find which entries have counts, and which have no coordinates."""
        kind, ndims, n = self.kind, self.ndims, self.requests
        # A value beyond the limit is replaced before any arithmetic, so that products cannot overflow.
        nd = np.where((ndims >= 0) & (ndims <= MAX_VAR_DIMS), ndims, 0)
        extra, row = self.size // 8 - form.fixed, n * nd
        stride = nd if form.stride else np.zeros_like(nd)
        two = (extra == 2 * row) | (extra == 2 * row + np.where(kind < 0, nd, stride))
        one = (extra == row) | (extra == row + stride)
        fits = np.where(kind == VARS, extra == 3 * nd, np.where(kind == VARA, two, two | one))
        fits |= (kind == VAR) & (extra == 0)
        self._counted = two
        # Kept, because a caller that asks entry by entry would otherwise need quadratic time.
        self.whole = (kind == VAR) & ~two & (ndims > 0)
        room = np.maximum(data_size - self.data_off, 0)
        outside = (self.data_off < FIRST_DATA) | (self.data_off > data_size)
        return [
            ("api_kind", kind, (kind < VARS) | (kind == 0), "is not a kind of request"),
            ("itype", self.itype, ~np.isin(self.itype, list(ITYPES)), "is no type"),
            ("varid", self.varid, (self.varid < 0) | (self.varid >= 2**31), "is no variable"),
            ("ndims", ndims, ndims != nd, "is not a number of dimensions"),
            ("esize", self.size, ~fits, "does not fit the kind and the dimensions of the entry"),
            ("data_off", self.data_off, outside, "is outside the data"),
            ("data_len", self.data_len, (self.data_len < 0) | (self.data_len > room), "reaches beyond the data log"),
        ]

    def judge_coords(self, external: bool) -> list[tuple[str, Int64, npt.NDArray[np.bool_], str]]:
        """Find entries whose coordinates are impossible, or do not fit the length of the data."""
        wrong = np.zeros(len(self), bool)
        elements = np.where(self.ndims == 0, self.requests, 0)
        elements[self.whole] = -1
        for found in self.rows():
            entry, start, count, stride = found.entry, found.start, found.count, found.stride
            if not start.shape[1]:
                continue
            bad = (start < 0) | (count < 0)
            if stride is None:
                bad |= start > _MOST - np.maximum(count, 0)
            else:
                bad |= stride < 1
                reach = (_MOST - np.maximum(start, 0)) // np.maximum(stride, 1)
                bad |= reach < count - 1
            rows = bad.any(axis=1)
            first = np.flatnonzero(np.diff(entry, prepend=-1))
            with np.errstate(over="ignore"):
                about = np.add.reduceat(count.astype(float).prod(axis=1), first)
                exact = np.add.reduceat(count.prod(axis=1), first)
            elements[entry[first]] = np.where(about < 2.0**59, exact, -2)
            wrong[entry[rows]] = True
        sizes = _SIZES[self.itype]
        fits = self.data_len == elements * sizes
        fits |= (self.itype == LONG) & (self.data_len == elements * 4)
        # What is in the file's type already has a size that only the file knows.
        fits |= (elements == -1) | ((elements >= 0) & external)
        return [
            ("start", self.offset, wrong, "has coordinates that no variable can have"),
            ("data_len", self.data_len, ~fits, "does not follow from the counts and the type of the entry"),
        ]


def _elements(count: Int64) -> int:
    return int(count.prod(axis=1).sum()) if count.size else 1


# ----------------------------------------------------------------------------------------- following


def follow(
    meta: Bytes,
    begin: int,
    *,
    data_size: int,
    byteorder: str,
    form: Form = NEW,
    contiguous: bool = False,
    external: bool = False,
    kinds: dict[int, int] | None = None,
    itypes: dict[int, int] | None = None,
) -> tuple[Entries, Fault | None]:
    """Decode the entries from `begin` on, up to the first invalid one.

    Parameters
    ----------
    meta : bytes-like, the metadata log.
    begin : int, where its first entry starts.
    data_size : int, bytes of the data log.
    byteorder : str, ``"<"`` or ``">"``.
    form : Form
    contiguous : bool, data of each entry must follow that of the one before.
    external : bool, the data is in the file's types.
    kinds, itypes : dict, codes of that writer to ours.

    Returns
    -------
    entries : Entries
    fault : Fault or None, why the bytes after the last entry are no entry; None if there are none.
    """
    places, fault = _steps(meta, begin, byteorder, 8 * form.fixed)
    count = max(len(meta) - begin, 0) // 8
    words, halves = (
        np.frombuffer(meta, byteorder + kind, n, begin) if count else np.empty(0, byteorder + kind)
        for kind, n in (("i8", count), ("i4", 2 * count))
    )
    entries = Entries(words, halves, places, begin, form)
    for column, codes in ((entries.kind, kinds), (entries.itype, itypes)):
        original = column.copy()
        for theirs, ours in (codes or {}).items():
            column[original == theirs] = ours
    entries.requests = np.maximum(entries.kind, 1)
    fault = _cut(entries, entries.judge_fields(form, data_size)) or fault
    if contiguous and len(entries):
        expected = np.append(FIRST_DATA, (entries.data_off + entries.data_len)[:-1])
        gap = ("data_off", entries.data_off, entries.data_off != expected, "does not follow the data before it")
        fault = _cut(entries, [gap]) or fault
    return entries, _cut(entries, entries.judge_coords(external)) or fault


def _steps(meta: Bytes, at: int, byteorder: str, least: int) -> tuple[Int64, Fault | None]:
    """Return offsets of the entries by their sizes alone."""
    places: list[int] = []
    runs: list[Int64] = []
    unpack, begin, end, add = Struct(byteorder + "q").unpack_from, at, len(meta), places.append
    sizes = np.frombuffer(meta, byteorder + "i8", max(end - at, 0) // 8, at) if end - at >= 8 else np.empty(0, "i8")
    last, before, alike = end - least, 0, 0
    fault: Fault | None = None
    while at <= last:
        (size,) = unpack(meta, at)
        if size < least or size & 7 or size > end - at:
            break
        add(at)
        at += size
        alike = alike + 1 if size == before else 0
        before = size
        if alike == _ALIKE:
            # Most posts of a program have one size: a run of equal sizes is found by one vector comparison.
            alike = 0
            others = np.flatnonzero(sizes[(at - begin) >> 3 :: size >> 3][: (end - at) // size] != size)
            count = int(others[0]) if len(others) else (end - at) // size
            runs += [np.array(places, np.int64), np.arange(at, at + count * size, size, dtype=np.int64)]
            places.clear()
            at += count * size
    found = np.concatenate([*runs, np.array(places, np.int64)])
    if at <= last:
        field = f"entry[{len(found)}].esize"
        fault = Fault(at, field, size, f"{field} at byte {at} is {size}; {end - at} bytes are left")
    elif at < end:
        field = f"entry[{len(found)}]"
        fault = Fault(at, field, end - at, f"{field} at byte {at} is cut off after {end - at} bytes")
    return found, fault


def _cut(entries: Entries, judged: list[tuple[str, Int64, npt.NDArray[np.bool_], str]]) -> Fault | None:
    """Drop the first entry that is wrong and all after it."""
    wrong = np.logical_or.reduce([bad for _, _, bad, _ in judged])
    if not wrong.any():
        return None
    i = int(wrong.argmax())
    name, values, _, what = next(row for row in judged if row[2][i])
    field, value, at = f"entry[{i}].{name}", int(values[i]), int(entries.offset[i])
    entries.cut(i)
    return Fault(at, field, value, f"{field} (entry at byte {at}) is {value}: {what}")
