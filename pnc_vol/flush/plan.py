"""Posted runs of many variables as merged byte extents.

Knows: runs, places of variables, `extents`. Does not know: data, files, drivers, ranks. A plan never touches data: a
flush executes it, and ``File.plan()`` prints it before anything is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import numpy as np

from pnc_vol.extents.merge import last_wins
from pnc_vol.extents.model import Extents, Int64, Runs, one_extent
from pnc_vol.extents.place import place_many
from pnc_vol.layout.places import ElementMap, Place, extents_of_rows, table_of
from pnc_vol.queue.rows import COLUMNS, Item, Listed, Rows, Tables

__all__ = ["Plan", "Relative", "unmerged"]

Relative = dict[tuple[int, Place], tuple[Runs, Extents]]
"""Plans of lists of runs of a variable that begins at byte 0, by the list and that place."""

_MOST_KNOWN = 1 << 19
"""Extents of lists from which on their plans are not kept any more for other posts: they take 24 bytes each."""


_NOTHING = Extents(*np.empty((3, 0), np.int64))


class Plan(NamedTuple):
    """What one write of a flush will do.

    extents : Extents, sorted by offset, disjoint, joined where file and memory both adjoin.
    requests : int, posted runs that it carries out.
    variables : int, variables that they belong to.
    nbytes : int, bytes before overlaps were taken out.
    way : {"shared", "widened", "streamed"}
        A write that may be made together with other ranks; one of strings that are made wider for it; one of an array
        of the user's, which goes to the file block by block.
    items : list of (uid, Rows or Listed), what it writes; empty: all that the batch holds.
    """

    extents: Extents
    requests: int
    variables: int
    nbytes: int
    way: Literal["shared", "widened", "streamed"] = "shared"
    items: Sequence[tuple[int, Item]] = ()

    @classmethod
    def of(
        cls, maps: Sequence[ElementMap], items: Sequence[Item], known: Relative | None = None, *, affine: bool = True
    ) -> Plan:
        """Plan what was posted for some variables.

        Parameters
        ----------
        maps : sequence of ElementMap
        items : sequence of Rows or Listed
            What was posted for the variable of the same position in `maps`. A variable may come more than once; then
            all its items are rows, or all are lists, in the order of posting.
        known : Relative, optional
            Plans of lists that were made before; those made now are added.
        affine : bool, all of `maps` are `Place`, so that all rows are placed in one operation.
        """
        tables = [item for item in items if not isinstance(item, Listed)]
        if len(tables) == len(items):
            extents, _ = unmerged(maps, tables, affine=affine)
            return cls(last_wins(extents), sum(map(len, tables)), len(maps), extents.nbytes)
        known = {} if known is None else known
        chunks = [
            _extents_of_list(at, item, known, affine=affine)
            for at, item in zip(maps, items, strict=True)
            if isinstance(item, Listed)
        ]
        requests = sum(len(item.runs.start) for item in items if isinstance(item, Listed))
        if tables:
            others = [at for at, item in zip(maps, items, strict=True) if not isinstance(item, Listed)]
            extents, _ = unmerged(others, tables, affine=affine)
            requests += sum(map(len, tables))
            chunks.insert(0, extents)
        nbytes = sum(chunk.nbytes for chunk in chunks)
        columns = zip(*_in_order(chunks), strict=True)
        return cls(last_wins(Extents(*map(np.concatenate, columns))), requests, len(maps), nbytes)

    @classmethod
    def at_once(cls, where: Int64, tables: Tables) -> Plan | None:
        """As `of`, for all rows of some variables; None if an element is not as wide as the file has it.

        Parameters
        ----------
        where : int64[variables, 4], the `Place` of each.
        """
        rows = tables.rows
        if len(rows) == 1:
            _, first, count, memory, size = rows[0].tolist()
            at = Place(*where[0].tolist())
            begins = at.offset_of_run(first, count)
            if size == at.itemsize and count and begins >= 0:
                # one post, as programs flush after each: by plain integers, in a fraction of the time
                return cls(one_extent(begins, count * size, memory), 1, 1, count * size)
        if tables.counts is not None:
            where = np.repeat(where, tables.counts, axis=0)
        begin, itemsize, inner, record_size = where.T
        _, start, length, address, width = rows.T
        if np.count_nonzero(width != itemsize):
            return None
        offset, nbytes = place_many(begin, itemsize, inner, record_size, start, length)
        posted = Extents(offset, nbytes, np.ascontiguousarray(address))
        return cls(last_wins(posted), len(rows), len(tables.uids), posted.nbytes)

    def __str__(self) -> str:
        count = len(self.extents.offset)
        lines = [
            f"{self.requests} runs of {self.variables} variables, {self.nbytes} bytes"
            f" -> {count} extents, {self.extents.nbytes} bytes, {self.way}"
        ]
        shown = zip(*(column[:16].tolist() for column in self.extents), strict=True)
        lines += [f"  file {offset:>12} .. {offset + n:<12} from memory {place}" for offset, n, place in shown]
        if count > 16:
            lines.append(f"  ... {count - 16} more")
        return "\n".join(lines)


def unmerged(maps: Sequence[ElementMap], tables: Sequence[Rows], *, affine: bool = True) -> tuple[Extents, Int64]:
    """The extents of all rows, as they were posted, and the request of each."""
    if len(tables) == 1:
        rows, counts = tables[0], None
    else:
        rows = np.concatenate(tables) if tables else np.empty((0, COLUMNS), np.int64)
        counts = np.fromiter(map(len, tables), np.int64, len(tables))
    if affine:
        spread = np.repeat(table_of(cast("Sequence[Place]", maps)), counts if counts is not None else len(rows), axis=0)
        begin, itemsize, inner, record_size = spread.T
        offset, nbytes = place_many(begin, itemsize, inner, record_size, rows[:, 1], rows[:, 2])
        return Extents(offset, nbytes, np.ascontiguousarray(rows[:, 3])), rows[:, 0]
    parts: list[Extents] = [_NOTHING]
    requests = [_NOTHING.offset]
    for of, table in zip(maps, tables, strict=True):
        extents, run = extents_of_rows(of, table[:, 1], table[:, 2], table[:, 3])
        parts.append(extents)
        requests.append(table[run, 0])
    return Extents(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(requests)


def _extents_of_list(at: ElementMap, item: Listed, known: Relative, *, affine: bool) -> Extents:
    """The extents of a request, sorted and disjoint; planned once for all requests of the same runs."""
    if not affine:
        # fewer extents, where the map can tell
        extents = getattr(at, "joined", at.extents)(item.runs)
        offset, length, where = extents if len(extents.offset) == 1 else last_wins(extents)
        return Extents(offset, length, where + item.address)
    begin = cast(Place, at).begin
    from_zero = cast(Place, at)._replace(begin=0)
    key = (id(item.runs), from_zero)
    found = known.get(key)
    if found is None:
        extents = from_zero.extents(item.runs)
        if sum(len(plan.offset) for _, plan in known.values()) > _MOST_KNOWN:
            known.clear()
        # The runs are kept with it, so that their identity stays theirs.
        found = known[key] = item.runs, last_wins(extents)
    offset, length, where = found[1]
    return Extents(offset + begin, length, where + item.address)


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
