"""Posted runs of many variables as merged byte extents.

Knows: runs, places of variables, `extents`. Does not know: data, files, drivers, ranks. A plan never
touches data; it can be printed before anything is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pnc_vol.extents.merge import last_wins
from pnc_vol.extents.model import Extents, Int64, Runs
from pnc_vol.extents.place import place, place_many
from pnc_vol.layout.places import Place
from pnc_vol.queue.rows import COLUMNS, Item, Listed, Rows, Tables

__all__ = ["Plan", "Relative", "unmerged"]

Relative = dict[tuple[int, int, int], tuple[Runs, Extents]]
"""Plans of lists of runs of a variable that begins at byte 0, by the list, the width and the elements of a record."""

_MOST_KNOWN = 1 << 19
"""Extents of lists from which on their plans are not kept any more for other posts: they take 24 bytes each."""


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
