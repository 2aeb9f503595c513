"""Ranks share which of their requests failed, and raise one error that names them.

Knows: what an execution left, definitions, a communicator. Does not know: files, drivers, data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pnc_vol.drivers.holding import Unwritten
from pnc_vol.errors import FlushError, RequestFailure
from pnc_vol.flush.execute import Executed
from pnc_vol.layout.base import ElementMap, Layout, Place
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.queue.batches import Rows
from pnc_vol.ranks.comm import Comm, first_trouble
from pnc_vol.ranks.errors import Ranks, joined_texts

__all__ = ["HELD", "failures_of", "failures_of_held", "flush_error", "share_failures"]

HELD = -1
"""`RequestFailure.request` of bytes that a driver holds."""

_MOST_FAILURES = 1000


def failures_of(done: Executed, tree: Tree, layout: Layout, rank: int) -> tuple[list[RequestFailure], int | None]:
    """Return what failed on this rank, and the first record that it should have written; None if that is no record."""
    rows_left: dict[tuple[int, int], Rows] = {}
    for batch in done.left:
        for request, uid in done.failed:
            rows = batch.rows(uid)
            rows = rows[rows[:, 0] == request]
            if len(rows):
                rows_left[request, uid] = rows
    failures, records = [], []
    for (request, uid), error in sorted(done.failed.items(), key=lambda item: item[0]):
        lost, where = rows_left.get((request, uid)), ""
        if lost is not None:
            where = f" ({int(lost[:, 2].sum())} elements from element {int(lost[0, 1])})"
            record = layout.record_of(uid, int(lost[:, 1].min()))
            records += [] if record is None else [record]
        text = error.strerror or str(error)
        failures.append(RequestFailure(request, rank, tree.datasets[uid].path, where, error.errno or 0, text))
    return failures, min(records, default=None)


def failures_of_held(
    unwritten: Sequence[Unwritten], tree: Tree, maps: Mapping[int, ElementMap], rank: int
) -> list[RequestFailure]:
    """Return the same of bytes that a driver of this rank holds, and could not write; they are of no single request."""
    found = []
    for offset, nbytes, error in unwritten:
        path = next((node.path for uid, node in tree.datasets.items() if _has(maps.get(uid), node, offset)), "")
        where = f" (bytes {offset} to {offset + nbytes} of the file)"
        found.append(RequestFailure(HELD, rank, path, where, error.errno or 0, error.strerror or str(error)))
    return found


def _has(at: ElementMap | None, node: DatasetNode, offset: int) -> bool:
    """Return whether a byte of the file belongs to a variable."""
    if not isinstance(at, Place) or offset < at.begin:
        return False
    if at.inner:
        return (offset - at.begin) % at.record_size < at.inner * at.itemsize
    return offset - at.begin < math.prod(node.shape or ()) * at.itemsize


def share_failures(
    comm: Comm, failures: Sequence[RequestFailure], lowest_record: int | None, trouble: str = ""
) -> tuple[list[RequestFailure], int | None, str]:
    """Return failed requests of all ranks, the first record that one of them should have written, and trouble
    (collective).

    One reduction if nothing failed. Of very many failures the first are kept.

    trouble : str, `Holds.trouble`; the third result is that of the lowest rank that has any, with the ranks, or "".
    """
    own = None
    if failures or lowest_record is not None or trouble:
        ranks = {trouble: [[[comm.rank, comm.rank]], 1]} if trouble else {}
        own = [lowest_record, [tuple(f) for f in failures[:_MOST_FAILURES]], ranks]
    found = comm.merge("flush data", own, _joined)
    if found is None:
        return [], None, ""
    record, failed, troubles = found
    by_text = {text: Ranks(*ranks) for text, ranks in troubles.items()}
    return [RequestFailure(*failure) for failure in failed], record, first_trouble(by_text, comm.size)


def _joined(lower: list[Any], higher: list[Any]) -> list[Any]:
    """Return what failed on some ranks, and on higher ones."""
    (record, failed, troubles), (other, more, others) = lower, higher
    least = min((one for one in (record, other) if one is not None), default=None)
    return [least, (failed + more)[:_MOST_FAILURES], joined_texts(troubles, others)]


def flush_error(failures: list[RequestFailure], path: str, *, closing: bool, held: bool = False) -> FlushError:
    """Return the error of a flush; `held`: the header was not written, since what failed should replace what it
    knows."""
    first = failures[0]
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    now = (
        "The file is closed without the data of these requests"
        if closing
        else "They stay pending: remove the cause and flush again, or cancel them"
    )
    if held:
        now += ". Datasets were to be replaced or deleted, so the file still has the definitions of the flush before"
    return FlushError(
        f"{path}: {len(failures)} request(s) failed: {first.variable}{first.selection} on rank {first.rank}: "
        f"{first.message}{more} (see .errors). {now}",
        failures,
    )
