"""Doing what was planned, and finding out which request failed when a write does.

Knows: batches, plans, a driver. Does not know: headers, names, ranks.

Rules
-----
1. A batch is one write. If it fails, its requests are written one by one, in order: each failure belongs to a
   request, and what can be written is written.
2. A failed request stays, and so does every later one that overlaps it: written now, they are written again after
   it, so that the order of posting holds when the failed one succeeds at last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.merge import intersect, last_wins
from pnc_vol.extents.model import Extents
from pnc_vol.pending.batches import Batch, LentBatch
from pnc_vol.pending.overlay import same_width
from pnc_vol.pending.plan import Place, Plan, Rows, unmerged
from pnc_vol.pending.queue import keep_rows
from pnc_vol.pending.stream import write_lent

__all__ = ["Carried", "Write", "carry", "meeting"]

Bytes = npt.NDArray[np.uint8]
Write = Callable[[Extents, Bytes], None]


_NO_BYTES = np.empty(0, np.uint8)
_NO_PLAN = Plan(Extents(*np.empty((3, 0), np.int64)), 0, 0, 0)


@dataclass(slots=True)
class Carried:
    """What came of some batches.

    failed : dict of (request, uid) to the error.
    left : list of Batch, what stays in the queue.
    """

    failed: dict[tuple[int, int], OSError] = field(default_factory=dict)
    left: list[Batch] = field(default_factory=list)
    requests: int = 0
    extents: int = 0
    nbytes: int = 0


@contextmanager
def meeting(driver: Driver) -> Iterator[Write]:
    """A collective write: a rank that makes none, as it has nothing or fails before, makes an empty one at the end.

    Examples
    --------
    ::

        with meeting(driver) as write:
            carry(batches, places, record_size, driver, room, write=write)
    """
    met = False

    def write(extents: Extents, memory: Bytes) -> None:
        nonlocal met
        met = True
        driver.write(extents, memory, collective=True)

    try:
        yield write
    finally:
        if not met:
            driver.write(_NO_PLAN.extents, _NO_BYTES, collective=True)


def carry(
    batches: list[Batch],
    places: Mapping[int, Place],
    record_size: int,
    driver: Driver,
    room: Bytes,
    *,
    write: Write | None = None,
) -> Carried:
    """Write the rows of all variables that have a place; the others stay.

    Parameters
    ----------
    batches : list of Batch, in the order of posting.
    places : mapping of uid to Place, of the variables to write.
    record_size : int, bytes from one record to the next.
    driver : Driver
    room : uint8[n], memory for a batch that is not in memory.
    write : function of extents and memory, optional
        What is left to a `meeting`; with one, there is at most one batch.

    Returns
    -------
    Carried
    """
    result = Carried()
    write = write or driver.write
    held: dict[int, Rows] = {}
    for batch in batches:
        mine = [uid for uid in batch.uids() if uid in places]
        kept = {uid: batch.rows(uid) for uid in batch.uids() if uid not in places}
        tables = {uid: batch.rows(uid) for uid in mine}
        try:
            plan, memory = _write_alone(batch, tables, places, record_size, driver, room, result)
            if plan.requests:
                write(plan.extents, memory)
                _count(result, plan.requests, len(plan.extents.offset), plan.extents.nbytes)
            failed: dict[tuple[int, int], OSError] = {}
        except OSError as error:
            failed = _one_by_one(batch, tables, places, record_size, driver, room, error)
        result.failed.update(failed)
        for uid, rows in tables.items():
            before = held.get(uid)
            if not failed and before is None:
                continue
            before = rows[:0] if before is None else before
            again = _again(rows, [request for request, of in failed if of == uid], before)
            if len(again):
                kept[uid] = again
                held[uid] = np.concatenate((before, again))
        result.left.append(keep_rows(batch, kept))
    return result


def _again(rows: Rows, failed: list[int], held: Rows) -> Rows:
    """The rows of failed requests, and of later ones that overlap what will be written again.

    Parameters
    ----------
    rows : int64[n, 5], of one variable in one batch.
    failed : list of int, those of its requests that failed.
    held : int64[m, 5], rows of earlier batches that will be written again.
    """
    chosen = np.isin(rows[:, 0], failed)
    later = rows[:, 0] >= (min(failed, default=0) if not len(held) else 0)
    found = -1
    while found != (found := int(np.count_nonzero(chosen))):
        start, count = np.concatenate((held, rows[chosen]))[:, 1:3].T
        union = last_wins(Extents(start, count, np.zeros_like(start)))
        met = intersect(rows[:, 1], rows[:, 2], union.offset, union.length)[0]
        chosen |= later & np.isin(rows[:, 0], rows[met, 0])
    return rows[chosen]


def _write_alone(
    batch: Batch,
    tables: Mapping[int, Rows],
    places: Mapping[int, Place],
    record_size: int,
    driver: Driver,
    room: Bytes,
    result: Carried,
) -> tuple[Plan, Bytes]:
    """Write what cannot be joined with other ranks' data: lent arrays, and strings that grew; the plan for the rest."""
    if isinstance(batch, LentBatch):
        for uid, rows in tables.items():
            extents, _ = unmerged([places[uid]], [rows], record_size)
            write_lent(batch, extents, driver)
            _count(result, len(rows), len(extents.offset), extents.nbytes)
        return _NO_PLAN, _NO_BYTES
    even: dict[int, Rows] = {}
    for uid, rows in tables.items():
        if bool((rows[:, 4] == places[uid].itemsize).all()):
            even[uid] = rows
        else:
            rows, padded = same_width(batch, uid, rows, places[uid].itemsize)
            plan = Plan.of([places[uid]], [rows], record_size)
            driver.write(plan.extents, padded.load(room))
            _count(result, plan.requests, len(plan.extents.offset), plan.extents.nbytes)
    if not even:
        return _NO_PLAN, _NO_BYTES
    return Plan.of([places[uid] for uid in even], list(even.values()), record_size), batch.load(room)


def _count(result: Carried, requests: int, extents: int, nbytes: int) -> None:
    result.requests += requests
    result.extents += extents
    result.nbytes += nbytes


def _one_by_one(
    batch: Batch,
    tables: Mapping[int, Rows],
    places: Mapping[int, Place],
    record_size: int,
    driver: Driver,
    room: Bytes,
    error: OSError,
) -> dict[tuple[int, int], OSError]:
    """Write each request alone; the errors of those that fail, by (request, uid)."""
    failed: dict[tuple[int, int], OSError] = {}
    if isinstance(batch, LentBatch):
        # A lent array is one request: it was tried.
        return {(int(rows[0, 0]), uid): error for uid, rows in tables.items() if len(rows)}
    try:
        memory = batch.load(room)
    except OSError as unreadable:
        return {(int(r), uid): unreadable for uid, rows in tables.items() for r in np.unique(rows[:, 0])}
    for uid, rows in tables.items():
        wide, source = same_width(batch, uid, rows, places[uid].itemsize)
        bytes_of = memory if source is batch else source.load(room)
        extents, requests = unmerged([places[uid]], [wide], record_size)
        for request in np.unique(requests).tolist():
            chosen = requests == request
            part = Extents(extents.offset[chosen], extents.length[chosen], extents.place[chosen])
            try:
                driver.write(last_wins(part), bytes_of)
            except OSError as reason:
                failed[request, uid] = reason
    return failed
