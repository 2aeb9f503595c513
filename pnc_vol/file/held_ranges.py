"""Which bytes of the file ranks may still hold from earlier epochs, so that no later write comes to the file first.

Knows: runs that are posted, places, ranges of bytes. Does not know: what is held in fact, which is no more than this.

Two ranks may write the same element in two epochs: the later epoch wins. Each rank keeps the order of its own writes,
but knows nothing of another one's. So each tells at a flush which ranges it is about to write, one for each variable,
and all remember them until the epoch is in the file. Where a range of one rank meets an earlier one of another rank,
the flush waits for the earlier data. Ranks that write for others write whole stripes, gaps included: such an epoch is
met by all that is written after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Runs
from pnc_vol.layout.places import ElementMap, Place
from pnc_vol.queue.batches import Batch

__all__ = ["NO_SPANS", "HeldRanges", "Spans", "span_of", "spans_of"]

Spans = npt.NDArray[np.int64]
"""int64[n, 2]: first byte, and the byte behind the last one."""

NO_SPANS: Spans = np.empty((0, 2), np.int64)

_MOST = 64
"""Ranges that a rank tells of at a flush; more are joined over the smallest gaps."""
_ALL: Spans = np.array([[0, 1 << 62]], np.int64)


def spans_of(batches: Sequence[Batch], maps: Mapping[int, ElementMap], *, new: bool = False) -> Spans:
    """A range for each variable in which all that is posted lies.

    new : bool, variables without a place are written as well: they may lie anywhere.
    """
    found: list[tuple[int, int]] = []
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
            found.append(_between(at, int(rows[:, 1].min()), int((rows[:, 1] + rows[:, 2]).max()) - 1))
    return _joined(np.array(found, np.int64).reshape(-1, 2))


def span_of(at: ElementMap, nelems: int) -> Spans:
    """A range in which all of the first `nelems` elements of a variable lie."""
    return np.array([_between(at, 0, nelems - 1)], np.int64) if isinstance(at, Place) and nelems else _ALL


def _between(at: Place, first: int, last: int) -> tuple[int, int]:
    """From the beginning of an element to the end of a later one."""
    low, high = at.extents(Runs(np.array([first, last]), np.ones(2, np.int64))).offset.tolist()
    return low, high + at.itemsize


def _joined(spans: Spans) -> Spans:
    """At most `_MOST` ranges, sorted and disjoint, that cover all of these."""
    if len(spans) < 2:
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    gaps = spans[1:, 0] - ends[:-1]
    cut = gaps > 0
    if int(cut.sum()) >= _MOST:
        cut = np.zeros(len(gaps), bool)
        cut[np.argpartition(gaps, -(_MOST - 1))[-(_MOST - 1) :]] = True
    first = np.flatnonzero(np.concatenate(([True], cut)))
    last = np.concatenate((first[1:] - 1, [len(spans) - 1]))
    return np.stack((spans[first, 0], ends[last]), axis=1)


def _meet(one: Spans, other: Spans) -> bool:
    """Whether two lists of ranges have a byte in common; `other` is sorted and disjoint."""
    if not len(one) or not len(other):
        return False
    at = np.searchsorted(other[:, 1], one[:, 0], side="right")
    near = other[np.minimum(at, len(other) - 1), 0]
    return bool(((at < len(other)) & (near < one[:, 1])).any())


class HeldRanges:
    """What the ranks told.

    Parameters
    ----------
    rank : int, this one.
    """

    __slots__ = ("_alone", "_epochs", "_rank")

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._epochs: dict[int, tuple[list[Spans], bool]] = {}
        self._alone: list[Spans] = []

    def meets_others(self, spans: Spans) -> bool:
        """Whether another rank may hold earlier data of these ranges."""
        for told, together in self._epochs.values():
            if together or any(rank != self._rank and _meet(spans, one) for rank, one in enumerate(told)):
                return True
        return False

    def note_alone(self, spans: Spans) -> None:
        """This rank wrote there, between two flushes."""
        self._alone.append(spans)

    def told(self, spans: Spans) -> Spans:
        """What this rank tells: what it is about to write, and what it wrote since the last flush."""
        return _joined(np.concatenate((spans, *self._alone))) if self._alone else spans

    def any_meets(self, told: Sequence[Spans], *, together: bool) -> bool:
        """Whether some rank is about to write what another one may hold; the same on all ranks.

        together : bool, ranks write for others, so that a rank may meet its own data in another one's cache.
        """
        for earlier, mixed in self._epochs.values():
            if mixed and any(map(len, told)):
                return True
            for rank, spans in enumerate(told):
                if not len(spans):
                    continue
                if any((together or other != rank) and _meet(spans, one) for other, one in enumerate(earlier)):
                    return True
        return False

    def wrote(self, epoch: int, told: Sequence[Spans], *, together: bool) -> None:
        """All ranks have written what they told, in an epoch."""
        self._alone.clear()
        if any(map(len, told)):
            self._epochs[epoch] = list(told), together

    def forget(self, epoch: int) -> None:
        """Epochs up to this one are in the file."""
        for known in [known for known in self._epochs if known <= epoch]:
            del self._epochs[known]
