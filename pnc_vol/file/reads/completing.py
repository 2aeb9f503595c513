"""Posted reads are completed: large ones one by one, small ones of many variables together, some of all ranks together.

Knows: facts of variables, drivers, how anything is read (`fetch`). Does not know: posting.

Rules
-----
1. A posted read holds the values of its place in program order: it is completed before anything posted after it can
   reach the file, and later posts are not applied to it.
2. Those in columns are read some MiB at a time, all variables of one type together: a call costs more than the copy out
   of its memory, and programs read one piece each of many variables. What cannot be read so is read by `fetch`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.errors import NotSyncedError
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Extents, Int64, Selection
from pnc_vol.file.posted_reads import FEW, PostedRead, ShortReads, complete_with
from pnc_vol.file.reads.contiguous import Facts, facts_of, read_run
from pnc_vol.file.reads.fetch import Read, at_once, file_form, lay_over, read_alone, read_by_way, to_read_into
from pnc_vol.file.session import Session
from pnc_vol.flush.agree import NO_READS, Weight, transport_code
from pnc_vol.flush.execute import block_of
from pnc_vol.mapping.encoding import decode
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.request import Request

__all__ = ["complete_all", "complete_posted", "complete_together", "weight_of_reads"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_ALONE = 64
"""Bytes of a posted read from which on it is read by itself, where it belongs, in costs of a call of the driver."""

_GROUP, _STEP = 8 << 20, 1 << 20
"""Bytes of posted reads that are read together: of large ones, and of small ones, which stay in the cache meanwhile."""


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
            worth = 0 if len(reads) == 1 else _ALONE * session.disk.driver.capabilities.call_cost
            reads = [posted for posted in reads if posted.nbytes < worth or not _complete_alone(session, posted)]
            if reads and (reads := _complete_runs(session, reads)):
                _complete_by(session, reads, read_alone)
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


def _complete_runs(session: Session, reads: list[PostedRead]) -> list[PostedRead]:
    """Fill the arrays of those reads that are one run each of numbers in the file; return the others.

    Raises
    ------
    OSError
        The file could not be read.
    """
    wanted = [(posted.wanted if type(posted.wanted) is tuple else posted.run) or _NO_RUN for posted in reads]
    listed = [(posted.node.uid, one[0], one[1]) for posted, one in zip(reads, wanted, strict=True)]
    nodes = {posted.node.uid: posted.node for posted in reads}
    kinds, left = _placed(session, nodes, np.array(listed, np.int64).reshape(-1, 3))
    others = [reads[i] for i in left]
    for facts, rows, offsets, nbytes in kinds:
        several = [reads[i] for i in rows.tolist()]
        for first, last, values, place in _parts(session.disk.driver, facts, offsets, nbytes, _GROUP):
            if values is None:
                others += several[first:last]
            else:
                complete_with(several[first:last], _swapped(values, facts), place.tolist())
    return others


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
    if len(reads.targets) < FEW:
        return reads.single(range(len(reads.targets)))
    table = reads.table
    kinds, left = _placed(session, reads.nodes, table)
    kept: list[Array] = []
    kept_at = np.zeros(len(table), np.int64)
    for facts, rows, offsets, nbytes in kinds:
        memory = np.empty(int(nbytes.sum()), np.uint8) if reads.kept else None
        if memory is not None:
            kept.append(memory.view(facts.dtype))
            kept_at[rows] = (np.cumsum(nbytes) - nbytes) // facts.itemsize
        try:
            for first, last, values, place in _parts(session.disk.driver, facts, offsets, nbytes, _STEP, memory):
                if values is None:
                    left += rows[first:last].tolist()
                else:
                    if reads.given:
                        # the byte order is changed by the copy
                        reads.hand_out(rows[first:last], values, place)
                    if reads.kept:
                        _swapped(values, facts)
                rows[first:last] = -1
        except Exception:
            left += rows[rows >= 0].tolist()
    own = reads.single(left)
    reads.become_done(kept, kept_at.tolist())
    return own


_Kind = tuple[Facts, Int64, Int64, Int64]
"""Facts of the first variable, rows of a table, and where in the file these are, in bytes, and how long."""


def _placed(session: Session, nodes: dict[int, DatasetNode], table: Int64) -> tuple[list[_Kind], list[int]]:
    """Return where the runs of numbers lie that the file has, those of variables of one type together; and the other
    rows.

    Parameters
    ----------
    nodes : dict of uid to DatasetNode
    table : int64[n, 3], see `ShortReads.table`.
    """
    left: list[int] = []
    kinds: dict[tuple[Any, bool], tuple[Facts, list[tuple[int, int, int]], list[Int64]]] = {}
    layout, queue = session.disk.layout, session.posted.queue
    for uid, rows in _by_variable(table, len(nodes)).items():
        node = nodes[uid]
        facts = layout.facts.get(uid) or facts_of(session, node)
        if facts is None or queue.has(uid):
            left += rows
            continue
        at, stored, itemsize = facts.at, layout.elements_stored(node, facts.at), facts.itemsize
        _, few, many = kinds.setdefault((facts.dtype, facts.swaps), (facts, [], []))
        if len(rows) < _FEW:
            for row in rows:
                _, start, length = table[row].tolist()
                offset = at.offset_of_run(start, length) if length and start < stored else -1
                if offset < 0:
                    left.append(row)
                else:
                    few.append((row, offset, length * itemsize))
        else:
            whole = len(rows) == len(table)
            chosen = np.arange(len(table)) if whole else np.array(rows, np.int64)
            start, length = (table if whole else table[chosen]).T[1:]
            offset = at.offsets_of_runs(start, length)
            good = (offset >= 0) & (length > 0) & (start < stored)
            if not good.all():
                left += chosen[~good].tolist()
            many.append(np.stack((chosen, offset, length * itemsize))[:, good])
    found = []
    for facts, few, many in kinds.values():
        if few:
            many.append(np.array(few, np.int64).T)
        if many:
            found.append((facts, *(many[0] if len(many) == 1 else np.concatenate(many, axis=1))))
    return found, left


def _by_variable(table: Int64, variables: int) -> dict[int, list[int] | range]:
    """Return the rows of each variable."""
    if variables == 1:
        return {int(table[0, 0]): range(len(table))}
    found: dict[int, list[int] | range] = defaultdict(list)
    for row, uid in enumerate(table[:, 0].tolist()):
        found[uid].append(row)  # type: ignore[union-attr]
    return found


_FEW = 16
"""Posted reads of a variable below which each is placed by itself."""

_NO_RUN = (-1, 0)


def _parts(
    driver: Driver, facts: Facts, offsets: Int64, nbytes: Int64, limit: int, memory: Bytes | None = None
) -> Iterator[tuple[int, int, Array | None, Int64]]:
    """Read some of many runs at a time.

    Parameters
    ----------
    limit : int, bytes that are read at once, about.
    memory : uint8[...], where all of them go, one behind another; new memory for each part by default.

    Yields
    ------
    first, last : int, of the runs, as in a slice.
    values : array of numbers as they are in the file; None if it does not hold all of them.
    place : int64[last - first], at which element of `values` each run begins.
    """
    ends = np.cumsum(nbytes)
    begins = ends - nbytes
    for first, last in groups(begins, ends, max(limit, block_of(driver))):
        low, high = int(begins[first]), int(ends[last - 1])
        into = np.empty(high - low, np.uint8) if memory is None else memory[low:high]
        place, offset = begins[first:last] - low, offsets[first:last]
        # neighbours in the file, one after another, are one piece
        heads = np.flatnonzero(np.diff(offset - place, prepend=-1))
        got = driver.read(Extents(offset[heads], np.diff(place[heads], append=high - low), place[heads]), into)
        yield first, last, into.view(facts.file_dtype) if got == high - low else None, place // facts.itemsize


def _swapped(values: Array, facts: Facts) -> Array:
    """Return the values in the machine's byte order, in the memory that they have."""
    made = values.view(facts.dtype)
    return made.byteswap(inplace=True) if facts.swaps else made
