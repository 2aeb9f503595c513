"""`HeldRanges` knows which bytes of the file ranks may still hold from earlier epochs, and orders writes after them.

Knows: runs that are posted, places, ranges of bytes. Does not know: what is held in fact, which is no more than this.

Two ranks may write the same element in two epochs: the later epoch wins. Each rank keeps the order of its own writes,
but knows nothing of another one's. So each tells at a flush which ranges it is about to write, one for each variable;
these are merged in a tree, and all remember the result, with the rank of each range, until the epoch is in the file.
Its length does not depend on the number of ranks. Where a range of one rank meets an earlier one of another rank, the
flush waits for the earlier data. Ranks that write for others write whole stripes, gaps included: such an epoch is met
by all that is written after it. Threads that wait for other ranks' epochs would need no ranges; they would cost every
program the overlap of one epoch with the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.merge import Ranges, ranges_of
from pnc_vol.extents.model import Runs, distinct
from pnc_vol.layout.base import ElementMap, Place
from pnc_vol.queue.batches import Batch
from pnc_vol.ranks.places import Nodes

__all__ = ["NO_SPANS", "HeldRanges", "Owned", "Spans", "joined_owned", "owned_by", "span_of", "spans_of"]

Spans = npt.NDArray[np.int64]
"""int64[n, 2]: first byte, and the byte behind the last one."""

Owned = npt.NDArray[np.int64]
"""int64[n, 3]: ranges of several ranks, sorted and disjoint, and the rank of each, or `_MANY`."""

NO_SPANS: Spans = np.empty((0, 2), np.int64)

_MOST = 64
"""Ranges that a rank tells of at a flush; more are joined over the smallest gaps."""
_MOST_OF_ALL = 4096
"""Ranges of all ranks together. Those of many ranks are joined as well: a rank then waits for more than it must."""
_MANY, _NONE = -1, -2
_ALL: Spans = np.array([[0, 1 << 62]], np.int64)
_NONE_OWNED: Owned = np.empty((0, 3), np.int64)


def spans_of(batches: Sequence[Batch], maps: Mapping[int, ElementMap], *, new: bool = False) -> Spans:
    """Return where all that is posted lies: each run of a variable, or one range around all if it has many.

    new : bool, variables without a place are written as well: they may lie anywhere.
    """
    found = [NO_SPANS]
    for batch in batches:
        for uid in batch.uids():
            at = maps.get(uid)
            if at is None and not new:
                continue
            rows = batch.rows(uid)
            if not len(rows):
                continue
            if not isinstance(at, Place):
                return _ALL
            if len(rows) <= _MOST:
                offset, length, _ = at.extents(Runs(rows[:, 1], rows[:, 2]))
                found.append(np.stack((offset, offset + length), axis=1))
            else:
                found.append(_between(at, int(rows[:, 1].min()), int((rows[:, 1] + rows[:, 2]).max()) - 1))
    return _joined(np.concatenate(found))


def span_of(at: ElementMap, nelems: int) -> Spans:
    """Return a range in which all of the first `nelems` elements of a variable lie."""
    return _between(at, 0, nelems - 1) if isinstance(at, Place) and nelems else _ALL


def _between(at: Place, first: int, last: int) -> Spans:
    """Return the range from the beginning of an element to the end of a later one."""
    low, high = at.extents(Runs(np.array([first, last]), np.ones(2, np.int64))).offset.tolist()
    return np.array([[low, high + at.itemsize]], np.int64)


def _joined(spans: Spans) -> Spans:
    """Return at most `_MOST` ranges, sorted and disjoint, that cover all of these."""
    if len(spans) < 2:
        return spans
    low, high = ranges_of(spans[:, 0], spans[:, 1] - spans[:, 0])
    gaps = low[1:] - high[:-1]
    first = _firsts(gaps, gaps > 0, _MOST)
    return np.stack((low[first], high[np.append(first[1:] - 1, len(low) - 1)]), axis=1)


def _firsts(gaps: npt.NDArray[np.int64], cut: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.int64]:
    """Return where the ranges begin that remain of others, cut at these gaps, or at the widest if these are too
    many."""
    if int(cut.sum()) >= most:
        cut = np.zeros(len(gaps), bool)
        cut[np.argpartition(gaps, -(most - 1))[-(most - 1) :]] = True
    return np.flatnonzero(np.concatenate(([True], cut)))


def owned_by(rank: int, spans: Spans) -> bytes | None:
    """Return ranges of one rank, sorted and disjoint, for `Comm.merge` with `joined_owned`; None for none."""
    return np.column_stack((spans, np.full(len(spans), rank))).astype("<i8", copy=False).tobytes() or None


def _owned(packed: bytes) -> Owned:
    return np.frombuffer(packed, "<i8").astype(np.int64).reshape(-1, 3)


def joined_owned(one: bytes, other: bytes) -> bytes:
    """Return ranges of some ranks and of others: what both have is of many."""
    parts = _owned(one), _owned(other)
    points = distinct(np.concatenate([part[:, :2].ravel() for part in parts]))
    low, high = points[:-1], points[1:]
    found = np.full(len(low), _NONE)
    for part in parts:
        at = np.searchsorted(part[:, 1], low, side="right")
        near = part[np.minimum(at, len(part) - 1)]
        its = np.where((at < len(part)) & (near[:, 0] <= low), near[:, 2], _NONE)
        both = (found != _NONE) & (its != _NONE) & (found != its)
        found = np.where(both, _MANY, np.maximum(found, its))
    there = found != _NONE
    low, high, found = low[there], high[there], found[there]
    gaps = low[1:] - high[:-1]
    first = _firsts(gaps, (gaps > 0) | (found[1:] != found[:-1]), _MOST_OF_ALL)
    last = np.concatenate((first[1:] - 1, [len(low) - 1]))
    least, most = np.minimum.reduceat(found, first), np.maximum.reduceat(found, first)
    owners = np.where(least == most, least, _MANY)
    return np.column_stack((low[first], high[last], owners)).astype("<i8", copy=False).tobytes()


def _meet(one: Spans, other: Spans) -> bool:
    """Return whether two lists of ranges, sorted and disjoint, have a byte in common."""
    return Ranges(*one.T[:2]).touches(Ranges(*other.T[:2]))


class HeldRanges:
    """The ranges that the ranks announced.

    Parameters
    ----------
    rank : int, this one.
    """

    __slots__ = ("_alone", "_epochs", "_rank")

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._epochs: dict[int, tuple[Owned, bool]] = {}
        self._alone: list[Spans] = []

    def meets_others(self, spans: Spans) -> bool:
        """Return whether another rank may hold earlier data of these ranges."""
        return any(mixed or self._meets(spans, owned) for owned, mixed in self._epochs.values())

    def _meets(self, spans: Spans, owned: Owned) -> bool:
        return _meet(spans, owned[owned[:, 2] != self._rank])

    def note_alone(self, spans: Spans) -> None:
        """This rank wrote there, between two flushes."""
        self._alone.append(spans)

    def announced(self, spans: Spans) -> Spans:
        """Return the ranges that this rank announces: what it is about to write, and what it wrote since the last
        flush."""
        return _joined(np.concatenate((spans, *self._alone))) if self._alone else spans

    def newest_overlapped(self, announced: Spans) -> tuple[int, int]:
        """Return the newest epoch of which another rank may hold some of these ranges, and any rank; 0 for none.

        The second one counts where ranks write for others: a rank may meet its own data in another one's cache.
        """
        others = every = 0
        for epoch, (owned, mixed) in self._epochs.items() if len(announced) else ():
            if mixed or self._meets(announced, owned):
                others = max(others, epoch)
            if mixed or _meet(announced, owned):
                every = max(every, epoch)
        return others, every

    def of_others(self, epoch: int, nodes: Nodes, *, node: bool) -> Spans:
        """Return where ranks that this one cannot see wrote in an epoch, or may have.

        node : bool, this rank sees what the others of its node wrote.
        """
        owned, mixed = self._epochs.get(epoch, (_NONE_OWNED, False))
        if mixed:
            return _ALL
        rank = owned[:, 2]
        if node:
            at = np.take(nodes.nodes, np.searchsorted(nodes.starts, rank, side="right") - 1)
            return owned[(rank == _MANY) | (at != nodes.of(self._rank)), :2]
        return owned[rank != self._rank, :2]

    def keeps(self, epoch: int) -> bool:
        """Return whether the epoch may not be in the file yet."""
        return epoch in self._epochs

    def wrote(self, epoch: int, owned: bytes | None, *, together: bool) -> None:
        """Note that all ranks have written the ranges that they announced, joined by `joined_owned`, in an epoch."""
        self._alone.clear()
        if owned:
            self._epochs[epoch] = _owned(owned), together

    def forget(self, epoch: int) -> None:
        """Epochs up to this one are in the file."""
        for known in [known for known in self._epochs if known <= epoch]:
            del self._epochs[known]
