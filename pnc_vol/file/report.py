"""A `FlushReport` says what a flush did, or would do: requests, extents, rounds, bytes, seconds of each phase.

Knows: sessions, plans, the clock. Does not know: who reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.requests import Posted
from pnc_vol.flush.execute import Plan, Planner
from pnc_vol.flush.transport import Transport
from pnc_vol.queue.batches import NO_ROWS

__all__ = ["FlushPlan", "FlushReport", "planned", "watchers"]

watchers: list[Callable[[FlushReport], None]] = []
"""Told of every flush of this process."""


class FlushReport(NamedTuple):
    """A flush, for one rank.

    path : str
    requests : int, posted since the flush before it, for writing and for reading.
    runs : int, contiguous runs of elements that were posted for writing.
    extents : int, pieces that they became: joined where they adjoin in the file and in memory, without what is written
        over.
    nbytes : int, in these pieces.
    rounds : int, writes that ranks made together.
    transport : str, how: ``independent``, ``collective``, ``aggregate``; empty if nothing was written, or is not yet.
    seconds : dict of str to float, by phase: ``agree`` (waiting for ranks included), ``layout`` (places, and moving
        what is in the file), ``fill``, ``data``, ``header``. Empty for a flush that was not done.
    """

    path: str
    requests: int
    runs: int
    extents: int
    nbytes: int
    rounds: int
    transport: str
    seconds: dict[str, float]


class FlushPlan(FlushReport):
    """What a flush would do for one rank, by its own posts alone: a report without rounds, transport and seconds.

    writes : tuple of Plan, the same as the flush would make and execute, in this order.
    unplaced : tuple of str
        Datasets in a set of subfiles whose elements get their places at the flush, when ranks agree on them: their runs
        are counted, and they are in no write.
    choice : tuple of str
        How several ranks would write, and why, if none of them has posted more than this one: the numbers are agreed on
        at the flush.
    """

    writes: tuple[Plan, ...] = ()
    unplaced: tuple[str, ...] = ()
    choice: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = (
            f"{self.path}: {self.requests} requests, {self.runs} runs -> {self.extents} extents, {self.nbytes} bytes, "
            f"{len(self.writes)} writes"
        )
        rest = [f"placed by the flush: {', '.join(self.unplaced)}"] if self.unplaced else []
        return "\n".join([head, *map(str, self.writes), *rest, *self.choice])


def planned(defs: Definitions, disk: StoredFile, posted: Posted, transport: Transport) -> FlushPlan:
    """Return what a flush would write for this rank, by its own posts alone; nothing is written, nobody is waited
    for."""
    flat = defs.make_header()
    target = defs.next_layout(flat, disk)
    batches = posted.queue.batches()
    # In a set of subfiles ranks agree at the flush where these lie.
    later = {uid for batch in batches for uid in batch.uids()} - target.maps.keys() if target.several_files else set()
    if later:
        unplaced = [batch.rows(uid) for batch in batches for uid in batch.uids() if uid in later]
        batches = [batch.change(dict.fromkeys(later & set(batch.uids()), NO_ROWS)) for batch in batches]
    planner = Planner(target.maps, target.affine)
    writes = tuple(plan for batch in batches for plan in planner.plans(batch) if plan.requests)
    runs, extents = sum(plan.requests for plan in writes), sum(len(plan.extents.offset) for plan in writes)
    nbytes = sum(plan.extents.nbytes for plan in writes)
    if later:
        runs += sum(map(len, unplaced))
    requests = posted.next_number - posted.first_number
    made = FlushPlan(disk.path, requests, runs, extents, nbytes, 0, "", {})
    made.writes = writes
    made.unplaced = tuple(sorted(defs.tree.datasets[uid].path for uid in later))
    made.choice = tuple(transport.foreseen(runs, nbytes))
    return made
