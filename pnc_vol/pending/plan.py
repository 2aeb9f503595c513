"""Posted runs of many variables as merged byte extents.

Knows: runs, places of variables, `extents`. Does not know: data, files, drivers, ranks. A plan never
touches data; it can be printed before anything is done.

Rows
----
A posted run is a row of five int64: request, first element, elements, address, bytes of an element. Rows of
a variable stand in the order of posting; that order decides who wins where they overlap. A request of many runs, which
other requests may have as well, is `Listed`: the runs stand once for all that have them, and so does their plan.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.merge import last_wins
from pnc_vol.extents.model import Extents, Int64, Runs
from pnc_vol.extents.place import place, place_many
from pnc_vol.extents.ragged import before

__all__ = [
    "COLUMNS",
    "NO_ROWS",
    "Item",
    "Listed",
    "Place",
    "Plan",
    "Relative",
    "Rows",
    "Tables",
    "make_rows",
]

COLUMNS = 5
Rows = npt.NDArray[np.int64]
"""int64[n, 5]: request, first element, elements, address (bytes), bytes of an element."""

NO_ROWS: Rows = np.empty((0, COLUMNS), np.int64)


_MOST_KNOWN = 1 << 19
"""Extents of lists from which on their plans are not kept any more for other posts: they take 24 bytes each."""


class Place(NamedTuple):
    """Where a variable lies in the file.

    begin : int, bytes from the start of the file.
    itemsize : int, bytes of an element.
    inner : int, elements of one record; 0 for a variable without the record dimension.
    """

    begin: int
    itemsize: int
    inner: int


class Listed(NamedTuple):
    """A request of many runs, whose data lie one after another.

    request : int
    runs : Runs, the same object wherever the same runs are meant.
    address : int, of the first byte.
    itemsize : int, bytes of an element.
    """

    request: int
    runs: Runs
    address: int
    itemsize: int

    def rows(self) -> Rows:
        """The same as rows."""
        return make_rows(self.request, self.runs, self.address, self.itemsize)


Item = Rows | Listed
"""What was posted for a variable, or a part of it."""

Relative = dict[tuple[int, int, int], tuple[Runs, Extents]]
"""Plans of lists of runs of a variable that begins at byte 0, by the list, the width and the elements of a record."""


def make_rows(request: int, runs: Runs, address: int, itemsize: int) -> Rows:
    """Rows of runs whose data lie one after another from `address` on."""
    rows = np.empty((len(runs.start), COLUMNS), np.int64)
    rows[:, 0] = request
    rows[:, 1] = runs.start
    rows[:, 2] = runs.length
    rows[:, 3] = before(runs.length) * itemsize + address
    rows[:, 4] = itemsize
    return rows


class Tables(Mapping[int, Rows]):
    """Rows of variables, in one table: many variables have but a row or two.

    uids : list of int, the variables.
    rows : Rows of all of them, one variable's behind the other's.
    counts : int64[variables], rows of each; None if each has one.
    """

    def __init__(self, tables: Mapping[int, array[int]]) -> None:
        self.uids = list(tables)
        self.rows: Rows = np.frombuffer(bytearray(b"".join(tables.values())), np.int64).reshape(-1, COLUMNS)
        self.counts: Int64 | None = None
        if len(self.rows) != len(self.uids) or not all(tables.values()):
            self.counts = np.fromiter(map(len, tables.values()), np.int64, len(self.uids)) // COLUMNS
        self._index: dict[int, int] = {}
        self._ends: Int64 | None = None

    def __getitem__(self, uid: int) -> Rows:
        if self.uids and not self._index:
            self._index = {uid: i for i, uid in enumerate(self.uids)}
        i = self._index[uid]
        if self.counts is None:
            return self.rows[i : i + 1]
        if self._ends is None:
            self._ends = np.cumsum(self.counts)
        return self.rows[int(self._ends[i] - self.counts[i]) : int(self._ends[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self.uids)

    def __len__(self) -> int:
        return len(self.uids)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one write of a driver will do.

    extents : Extents, sorted by offset, disjoint, joined where file and memory both adjoin.
    requests : int, posted runs that it carries out.
    variables : int, variables that they belong to.
    nbytes : int, bytes before overlaps were taken out.
    """

    extents: Extents
    requests: int
    variables: int
    nbytes: int

    @classmethod
    def of(
        cls, places: Sequence[Place], items: Sequence[Item], record_size: int, known: Relative | None = None
    ) -> Plan:
        """Plan what was posted for some variables.

        Parameters
        ----------
        places : sequence of Place
        items : sequence of Rows or Listed
            What was posted for the variable of the same position in `places`. A variable may come more than once; then
            all its items are rows, or all are lists, in the order of posting.
        record_size : int, bytes from one record to the next.
        known : Relative, optional
            Plans of lists that were made before for the same record size; those made now are added.
        """
        tables = [item for item in items if not isinstance(item, Listed)]
        if len(tables) == len(items):
            extents, _ = unmerged(places, tables, record_size)
            return cls(last_wins(extents), len(extents.offset), len(places), extents.nbytes)
        known = {} if known is None else known
        chunks = [
            _moved(at, item, record_size, known)
            for at, item in zip(places, items, strict=True)
            if isinstance(item, Listed)
        ]
        requests = sum(len(item.runs.start) for item in items if isinstance(item, Listed))
        if tables:
            others = [at for at, item in zip(places, items, strict=True) if not isinstance(item, Listed)]
            extents, _ = unmerged(others, tables, record_size)
            requests += len(extents.offset)
            chunks.insert(0, extents)
        nbytes = sum(chunk.nbytes for chunk in chunks)
        columns = zip(*_in_order(chunks), strict=True)
        return cls(last_wins(Extents(*map(np.concatenate, columns))), requests, len(places), nbytes)

    @classmethod
    def at_once(cls, where: Int64, tables: Tables, record_size: int) -> Plan | None:
        """As `of`, for all rows of some variables; None if an element is not as wide as the file has it.

        Parameters
        ----------
        where : int64[variables, 3], the `Place` of each.
        """
        rows = tables.rows
        if tables.counts is not None:
            where = np.repeat(where, tables.counts, axis=0)
        if not np.array_equal(rows[:, 4], where[:, 1]):
            return None
        offset, nbytes = place_many(where[:, 0], rows[:, 4], where[:, 2], record_size, rows[:, 1], rows[:, 2])
        extents = Extents(offset, nbytes, np.ascontiguousarray(rows[:, 3]))
        return cls(last_wins(extents), len(rows), len(tables), extents.nbytes)

    def __str__(self) -> str:
        count = len(self.extents.offset)
        lines = [
            f"{self.requests} runs of {self.variables} variables, {self.nbytes} bytes"
            f" -> {count} extents, {self.extents.nbytes} bytes"
        ]
        shown = zip(*(column[:16].tolist() for column in self.extents), strict=True)
        lines += [f"  file {offset:>12} .. {offset + n:<12} from memory {place}" for offset, n, place in shown]
        if count > 16:
            lines.append(f"  ... {count - 16} more")
        return "\n".join(lines)


def unmerged(places: Sequence[Place], tables: Sequence[Rows], record_size: int) -> tuple[Extents, Int64]:
    """The extents of all rows, as they were posted, and the request of each."""
    if len(tables) == 1:
        rows, counts = tables[0], None
    else:
        rows = np.concatenate(tables) if tables else np.empty((0, COLUMNS), np.int64)
        counts = np.fromiter(map(len, tables), np.int64, len(tables))
    where = np.array(places, np.int64).reshape(-1, 3)
    spread = np.repeat(where, counts if counts is not None else len(rows), axis=0)
    offset, nbytes = place_many(spread[:, 0], rows[:, 4], spread[:, 2], record_size, rows[:, 1], rows[:, 2])
    return Extents(offset, nbytes, np.ascontiguousarray(rows[:, 3])), rows[:, 0]


def _moved(at: Place, item: Listed, record_size: int, known: Relative) -> Extents:
    """The extents of a request, sorted and disjoint; planned once for all requests of the same runs."""
    key = (id(item.runs), at.itemsize, at.inner)
    found = known.get(key)
    if found is None:
        extents = place(item.runs, begin=0, itemsize=at.itemsize, inner=at.inner or None, record_size=record_size)
        if sum(len(plan.offset) for _, plan in known.values()) > _MOST_KNOWN:
            known.clear()
        # The runs are kept with it, so that their identity stays theirs.
        found = known[key] = item.runs, last_wins(extents)
    offset, length, where = found[1]
    return Extents(offset + at.begin, length, where + item.address)


def _in_order(chunks: list[Extents]) -> list[Extents]:
    """Lists of extents by offset, if none reaches into another; else as they are."""
    full = [chunk for chunk in chunks if len(chunk.offset)]
    if len(full) < 2:
        return full or chunks
    # The first may be rows, which come as they were posted.
    if bool((full[0].offset[1:] < full[0].offset[:-1]).any()):
        return full
    first = np.array([int(chunk.offset[0]) for chunk in full])
    last = np.array([int(chunk.offset[-1] + chunk.length[-1]) for chunk in full])
    last[0] = int((full[0].offset + full[0].length).max())
    order = np.argsort(first, kind="stable")
    if bool((last[order[:-1]] > first[order[1:]]).any()):
        return full
    return [full[i] for i in order.tolist()]
