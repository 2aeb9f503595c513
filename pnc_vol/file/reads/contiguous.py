"""Reads of one run of numbers that lie in the file: what most reads are, in few steps.

Knows: places of variables, indices, drivers. Does not know: fill values, posts; whoever calls falls back to `fetch`
where these matter: None here always means "read it in the general way".

Rules
-----
1. What has to be known of a variable is looked up once for each layout in force (`Layout.facts`).
2. The bytes go into the result itself and are swapped there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import MOST_AXES, Extents, Int64, Runs
from pnc_vol.extents.one_run import Run, one_run
from pnc_vol.extents.place import runs
from pnc_vol.extents.selection import Selection, select
from pnc_vol.flush.stream import BLOCK, in_parallel
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.request import Request, as_out

if TYPE_CHECKING:
    from pnc_vol.file.session import Session

__all__ = ["Facts", "PostedRead", "complete_runs", "facts_of", "iget_run", "offset_of", "read_run", "read_simply"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


_LOOK = 16 << 20
"""Bytes that are converted from a mapped file at a time."""

_GROUP = 8 << 20
"""Bytes of posted reads that are read together."""


class Facts(NamedTuple):
    """What a read of a variable of numbers needs to know.

    begin, itemsize, inner, record_size : int, as in `Place`, which they are looked up in once instead of at each read.
    dtype : dtype of the result.
    swaps : bool, the file has another byte order than that.
    file_dtype : dtype of an element in the file.
    """

    begin: int
    itemsize: int
    inner: int
    record_size: int
    dtype: np.dtype[Any]
    swaps: bool
    file_dtype: np.dtype[Any]


def facts_of(session: Session, node: DatasetNode) -> Facts | None:
    """The facts of a variable that the header in the file has; None if it is no such variable, or no plain numbers."""
    placed = session.disk.layout
    known = placed.facts
    found = known.get(node.uid)
    if found is None and node.uid not in known:
        element = node.element
        at = placed.places.get(node.uid) if node.uid in placed.header_uids and not node.is_placeholder else None
        if len(node.shape or ()) > MOST_AXES:
            # no array has so many: `fetch` says so, if it comes to that
            at = None
        if at is not None and element.kind == "number" and at.itemsize == element.itemsize:
            swaps = at.itemsize > 1 and element.dtype != element.file_dtype
            found = Facts(*at, element.dtype, swaps, element.file_dtype)
        known[node.uid] = found
    return found


def offset_of(session: Session, node: DatasetNode, facts: Facts, start: int, nelems: int) -> int:
    """Where a run begins in the file, in bytes; -1 if the file does not hold it in one piece."""
    begin, itemsize, inner, record_size = facts[:4]
    if not inner:
        return begin + start * itemsize
    record, within = divmod(start, inner)
    if within + nelems > inner or record >= session.disk.layout.stored_records(node):
        return -1
    return begin + record * record_size + within * itemsize


def read_simply(session: Session, node: DatasetNode, args: Any) -> Array | None:
    """What ``ds[args]`` is, if that is a run of numbers in the file that nobody posted to."""
    facts = facts_of(session, node)
    if facts is None or session.posted.queue.has(node.uid) or node.shape is None:
        return None
    one = one_run(node.shape, args)
    return None if one is None else read_run(session, node, facts, *one)


def read_run(
    session: Session, node: DatasetNode, facts: Facts, start: int, nelems: int, shape: tuple[int, ...]
) -> Array | None:
    """`nelems` elements from `start` on, as an array of `shape`; None if the file does not hold them in one piece."""
    offset = offset_of(session, node, facts, start, nelems) if nelems else -1
    if offset < 0:
        return None
    out: Array = np.empty(shape, facts.dtype)
    if out.nbytes <= BLOCK:
        if session.disk.driver.read_one(out, offset) < out.nbytes:
            return None
        if facts.swaps:
            out.byteswap(inplace=True)
        return out
    flat = out.reshape(-1)
    return out if _looked(session, facts, flat, offset) or _in_blocks(session, facts, flat, offset) else None


def _looked(session: Session, facts: Facts, flat: Array, offset: int) -> bool:
    """Convert straight from the file's own bytes, in one pass, where they can be had."""
    driver, blind = session.disk.driver, [False]

    def task(first: int, step: int) -> Callable[[Bytes], None]:
        part, at = flat[first : first + step], offset + first * facts.itemsize

        def use(file: Bytes) -> None:
            part[...] = np.ndarray(part.shape, facts.file_dtype, file, at)

        def run(_: Bytes) -> None:
            if not blind[0] and not driver.look(at + part.nbytes, part.nbytes, use):
                blind[0] = True

        return run

    step = min(max(BLOCK, flat.nbytes // 2), _LOOK) // facts.itemsize
    in_parallel(driver, (task(first, step) for first in range(0, flat.size, step)), 0)
    return not blind[0]


def _in_blocks(session: Session, facts: Facts, flat: Array, offset: int) -> bool:
    """Read blocks where they belong, and swap each while it is in the cache."""
    short: list[int] = []
    step = BLOCK // facts.itemsize

    def task(first: int) -> Callable[[Bytes], None]:
        def run(_: Bytes) -> None:
            part = flat[first : first + step]
            if session.disk.driver.read_one(part, offset + first * facts.itemsize) < part.nbytes:
                short.append(first)
            if facts.swaps:
                part.byteswap(inplace=True)

        return run

    in_parallel(session.disk.driver, (task(first) for first in range(0, flat.size, step)), 0)
    return not short


# ------------------------------------------------------------------------------------------- posted reads


@dataclass(slots=True)
class PostedRead:
    """A read that waits.

    wanted : Selection, or the dataset's shape and the index, which may take more than the read to make one of.
    out : array to fill, of the selection's shape.
    run : first element, elements and shape, if it is known to be one run.
    """

    request: Request
    node: DatasetNode
    wanted: Selection | tuple[Any, Any]
    out: Array
    run: Run | None = None

    @property
    def found(self) -> Runs:
        """The runs of the selection."""
        wanted = self.wanted if isinstance(self.wanted, Selection) else select(*self.wanted)
        return runs(wanted, record=self.node.is_record)

    @property
    def single_run(self) -> tuple[int, ...] | None:
        """First element and elements, if it is one run."""
        return self.wanted.single_run() if isinstance(self.wanted, Selection) else None


def iget_run(session: Session, node: DatasetNode, index: Any, out: Any = None) -> Request | None:
    """Post the reading of one run of numbers; None if `index`, which is what the user said, is something else.

    See `Session.iget`.
    """
    run = one_run(node.shape, index) if node.shape and node.element.kind == "number" else None
    if run is None or not run[1]:
        return None
    element = node.element
    array = as_out(out, run[2], element.dtype)
    number = session.posted.next_number
    session.posted.next_number = number + 1
    request = session.posted.handles[number] = Request(
        session, number, "read", run[1] * element.file_dtype.itemsize, array
    )
    session.posted.reads.append(PostedRead(request, node, (node.shape, index), array, run))
    return request


def complete_runs(session: Session, reads: list[PostedRead]) -> list[PostedRead]:
    """Fill the arrays of those reads that are one run each of numbers in the file; return the others.

    Raises
    ------
    OSError
        The file could not be read.
    """
    left: list[PostedRead] = []
    by_variable: dict[int, list[PostedRead]] = {}
    for posted in reads:
        by_variable.setdefault(posted.node.uid, []).append(posted)
    for uid, mine in by_variable.items():
        facts = facts_of(session, mine[0].node)
        if facts is None or session.posted.queue.has(uid):
            left += mine
            continue
        found = [posted.run or posted.single_run for posted in mine]
        starts = np.array([-1 if one is None else one[0] for one in found], np.int64)
        counts = np.array([0 if one is None else one[1] for one in found], np.int64)
        offsets = _offsets(session, mine[0].node, facts, starts, counts)
        able = (offsets >= 0).tolist()
        left += [posted for posted, can in zip(mine, able, strict=True) if not can]
        simple = [posted for posted, can in zip(mine, able, strict=True) if can]
        kept = np.flatnonzero(offsets >= 0)
        left += _in_groups(session, facts, simple, offsets[kept], counts[kept])
    return left


def _offsets(session: Session, node: DatasetNode, facts: Facts, starts: Int64, counts: Int64) -> Int64:
    """As `offset_of`, for many runs."""
    there = counts > 0
    offsets = starts * facts.itemsize
    if facts.inner:
        record, within = np.divmod(starts, facts.inner)
        there &= (within + counts <= facts.inner) & (record < session.disk.layout.stored_records(node))
        offsets = record * facts.record_size + within * facts.itemsize
    return np.where(there, offsets + facts.begin, -1)


def _in_groups(
    session: Session, facts: Facts, reads: list[PostedRead], offsets: Int64, counts: Int64
) -> list[PostedRead]:
    """Read some MiB at a time and hand them out; return the reads that the file does not hold whole."""
    nbytes = counts * facts.itemsize
    ends = np.cumsum(nbytes)
    left: list[PostedRead] = []
    first = 0
    while first < len(reads):
        base = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, base + _GROUP, side="right")))
        group = reads[first:last]
        total = int(ends[last - 1]) - base
        memory = np.empty(total, np.uint8)
        extents = Extents(offsets[first:last], nbytes[first:last], ends[first:last] - nbytes[first:last] - base)
        if session.disk.driver.read(extents, memory) < total:
            left += group
        else:
            values = memory.view(facts.dtype)
            if facts.swaps:
                values.byteswap(inplace=True)
            at = 0
            for posted, n in zip(group, counts[first:last].tolist(), strict=True):
                out, request = posted.out, posted.request
                part = values[at : at + n]
                out[...] = part if out.ndim == 1 else part.reshape(out.shape)
                request.status, request.error = "done", None
                at += n
        first = last
    return left
