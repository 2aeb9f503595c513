"""Posted reads are completed: large ones one by one, small ones of many variables together, some of all ranks together.

Knows: facts of variables, drivers, how anything is read (`fetch`). Does not know: posting.

Rules
-----
1. A posted read holds the values of its place in program order: it is completed before anything posted after it can
   reach the file, and later posts are not applied to it.
2. Those in columns are read some MiB at a time, all variables of one type together: a call costs more than the copy out
   of its memory, and programs read one piece each of many variables. Others are read as ``ds[...]`` reads, or together
   where calls are dear. What cannot be read so is read by `fetch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.errors import NotSyncedError
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Extents, Int64, Selection, before
from pnc_vol.extents.place import place_many
from pnc_vol.file.posted_reads import FEW, PostedRead, ShortReads
from pnc_vol.file.reads.contiguous import Facts, facts_of, read_run
from pnc_vol.file.reads.execute import read_numbers
from pnc_vol.file.reads.fetch import Read, at_once, file_form, lay_over, read_alone, read_by_way, to_read_into
from pnc_vol.file.session import Session
from pnc_vol.flush.agree import NO_READS, Weight, transport_code
from pnc_vol.flush.execute import block_of
from pnc_vol.mapping.encoding import decode
from pnc_vol.queue.request import Request

__all__ = ["complete_all", "complete_posted", "complete_together", "weight_of_reads"]

Array = npt.NDArray[Any]

_ALONE = 64
"""Costs of a call from which on a posted read is read by itself where calls are dear; else each is."""

_GROUP, _STEP = 8 << 20, 1 << 20
"""Bytes of posted reads that are read together: of those one by one, and of small ones, which stay in the cache
meanwhile."""


def complete_posted(session: Session, requests: Iterable[Request] | None = None) -> None:
    """Fill the arrays of posted reads: all, or those of some requests.

    Raises
    ------
    OSError
        The file could not be read; they stay posted.
    """
    posted = session.posted.reads
    if posted is None:
        return
    numbers = None if requests is None else {request.id for request in requests}
    if numbers is None or (len(numbers) > 1 and posted.are_among(numbers)):
        for reads in list(posted.short):
            posted.settle(reads, _complete_short(session, reads))
    own = posted.single()
    # each once, in the order of posting
    chosen = list(own.values()) if numbers is None else [own[number] for number in sorted(numbers & own.keys())]
    try:
        _complete(session, chosen)
    except BaseException:
        posted.forget([read.id for read in chosen if read.test()])
        raise
    posted.forget([read.id for read in chosen])


def _complete(session: Session, reads: list[PostedRead]) -> None:
    """Fill the arrays of posted reads; what the file holds is read in few calls.

    Raises
    ------
    OSError
        The file could not be read; those that were not complete by then have failed.
    """
    # One that was done before another one failed is not read again: what was posted since may be in the file.
    reads = [posted for posted in reads if posted.status != "done"]
    if not reads:
        return
    try:
        try:
            cost = session.disk.driver.capabilities.call_cost
            worth = 0 if len(reads) == 1 or cost <= CALL_COST else _ALONE * cost
            reads = [posted for posted in reads if posted.nbytes < worth or not _complete_alone(session, posted)]
            if not reads:
                return
            length = np.array([posted.nbytes for posted in reads], np.int64)
            begins = before(length)
            for first, last in groups(begins, begins + length, max(_GROUP, block_of(session.disk.driver))):
                _complete_by(session, reads[first:last], read_alone)
        except NotSyncedError:
            # That may be true of another one of them, or of what lies between their elements.
            for posted in reads:
                if posted.status != "done":
                    _complete_by(session, [posted], read_alone)
    except OSError as error:
        for posted in reads:
            if not posted.test():
                posted.become("failed", error)
        raise


def _complete_alone(session: Session, posted: PostedRead) -> bool:
    """Read what a posted read asks for as ``ds[...]`` does; False if that is to be done in another way.

    What stands in its array if the file turns out to be short is written over afterwards.
    """
    node, wanted = posted.node, posted.wanted
    if session.posted.queue.has(node.uid):
        return False
    out = to_read_into(node, posted.given)
    if isinstance(wanted, Selection):
        got = at_once(session, node, wanted, wanted.result_shape, out)
    else:
        facts = facts_of(session, node)
        got = None if facts is None else read_run(session, node, facts, *wanted[:3], out)
    if got is None:
        return False
    posted.take(got)
    return True


def _complete_by(session: Session, reads: list[PostedRead], read: Read) -> None:
    """Fill the arrays of posted reads with what one read of the file brings."""
    found = [(posted.node, posted.found) for posted in reads]
    for posted, (node, where), raw in zip(reads, found, file_form(session, found, read), strict=True):
        lay_over(session, node, where, raw, posted.id)
        posted.array[...] = decode(raw, node.element, posted.array.shape)
        posted.become("done")


def weight_of_reads(session: Session) -> Weight:
    """Return the posted reads that ranks complete together; those of which each rank knows more by itself are
    completed.

    Raises
    ------
    OSError
        The file could not be read; they stay posted.
    """
    if not session.posted.reads:
        return NO_READS
    if session.comm.size == 1 or session.file_set is not None or session.disk.driver.capabilities.holds_back:
        complete_posted(session)
        return NO_READS
    return session.posted.reads.weight(transport_code(session.options, reads=True))


def complete_all(session: Session, operation: str) -> None:
    """Fill the arrays of all posted reads of all ranks, of a file that is only read (collective)."""
    comm = session.comm
    with comm.errors_shared():
        weight = weight_of_reads(session)
        comm.traffic.begin()
        most, _ = comm.agree(operation, weight)
        if most[0]:
            complete_together(session, Weight(*most))


def _read_together(session: Session, extents: Extents, memory: npt.NDArray[np.uint8], *, way: str) -> int:
    """Read in the way that all ranks agreed on, when all of them are ready (collective)."""
    if way == "collective":
        # A call of MPI-IO has no time limit: the others would wait in it for a rank that has failed before.
        session.comm.agree("posted reads")
    return read_by_way(session, extents, memory, way=way)


def complete_together(session: Session, most: Weight) -> None:
    """Fill the arrays of all posted reads of all ranks, before anything is written (collective).

    Raises
    ------
    OSError
        The file could not be read; they stay posted.
    """
    way = session.transport.choose_read(most)
    if way == "independent":
        complete_posted(session)
    else:
        waiting = session.posted.reads
        reads = [] if waiting is None else [read for read in waiting.single().values() if read.status != "done"]
        try:
            _complete_by(session, reads, partial(_read_together, way=way))
        except OSError as error:
            for posted in reads:
                posted.become("failed", error)
            raise
        if waiting is not None:
            waiting.clear()
    session.comm.agree("flush reads")


# --------------------------------------------------------------------------------------------- those in columns


def _complete_short(session: Session, reads: ShortReads) -> list[PostedRead]:
    """Fill the arrays of small posted reads, or keep the values; return those that are to be completed by themselves.

    What the system says of a file that cannot be read, it says again when these are completed.
    """
    count, driver = len(reads.targets), session.disk.driver
    if count < FEW:
        return reads.single(range(count))
    kinds, left = _placed(session, reads)
    given, keeps = reads.wants
    kept: list[Array] = []
    kept_at = np.zeros(count, np.int64)
    for facts, rows, offsets, length in kinds:
        ends = np.cumsum(length)
        begins = ends - length
        values = np.empty(int(ends[-1]) // facts.itemsize, facts.dtype) if keeps else None
        if values is not None:
            kept.append(values)
            kept_at[rows] = begins // facts.itemsize
        for first, last in groups(begins, ends, max(_STEP, block_of(driver))):
            low, high = int(begins[first]), int(ends[last - 1])
            part = slice(low // facts.itemsize, high // facts.itemsize)
            into = np.empty(part.stop - part.start, facts.dtype) if values is None else values[part]
            place, offset = begins[first:last] - low, offsets[first:last]
            # neighbours in the file, one after another, are one piece
            heads = np.flatnonzero(np.diff(offset - place, prepend=-1))
            extents = Extents(offset[heads], np.diff(place[heads], append=high - low), place[heads])
            try:
                whole = read_numbers(driver, facts.file_dtype, extents, into)
                if whole and given:
                    reads.hand_out(rows[first:last], into, place // facts.itemsize)
            except Exception:
                whole = False
            if not whole:
                left += rows[first:last].tolist()
    own = reads.single(left)
    reads.become_done(kept, kept_at.tolist())
    return own


_Kind = tuple[Facts, Int64, Int64, Int64]
"""Facts of the first variable, rows of a table, and where in the file these are, in bytes, and how long."""


def _placed(session: Session, reads: ShortReads) -> tuple[list[_Kind], list[int]]:
    """Return where the runs lie that the file has, those of variables of one type together; and the other rows."""
    layout, queue, table = session.disk.layout, session.posted.queue, reads.table
    kinds: dict[tuple[Any, bool], tuple[int, Facts]] = {}
    variables: list[tuple[int, ...]] = []
    nodes = reads.nodes
    for uid in sorted(nodes):
        facts = None if queue.has(uid) else layout.facts.get(uid) or facts_of(session, nodes[uid])
        if facts is None:
            variables.append((uid, -1, 0, 0, 0, 0, 0))
        else:
            kind, _ = kinds.setdefault((facts.dtype, facts.swaps), (len(kinds), facts))
            variables.append((uid, kind, layout.elements_stored(nodes[uid], facts.at), *facts.at))
    known = np.array(variables, np.int64)
    uids, start, length = table.T
    _, kind_of, stored, begin, itemsize, inner, record_size = known[np.searchsorted(known[:, 0], uids)].T
    offset, nbytes = place_many(begin, itemsize, inner, record_size, start, length)
    good = (kind_of >= 0) & (start < stored)
    # no run goes from one record into the next
    good &= (inner == 0) | (start % np.maximum(inner, 1) + length <= inner)
    found = []
    for kind, facts in kinds.values():
        rows = np.flatnonzero(good & (kind_of == kind))
        if rows.size:
            found.append((facts, rows, offset[rows], nbytes[rows]))
    return found, np.flatnonzero(~good).tolist()
