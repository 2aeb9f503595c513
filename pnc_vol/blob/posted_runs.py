"""`PostedRuns` gives what a rank posted to each variable of a set of subfiles as runs of elements.

Knows: batches, lists of runs. Does not know: maps, headers, ranks, files.

Rules
-----
1. Many variables are posted with the same list of runs, the same object. A result about a list, or about two lists
   together, is computed once.
2. Lists are kept as long as their results: the `id` of a freed list may become that of another one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from pnc_vol.extents.merge import coalesced
from pnc_vol.extents.model import Int64, Runs
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, Rows, in_parts

__all__ = ["PostedRuns", "inner_shape"]


def inner_shape(node: DatasetNode) -> tuple[int, ...]:
    """Return the lengths of a dataset that a map covers: all axes but that of records."""
    shape = node.shape or ()
    return shape[1:] if node.is_record else shape


class PostedRuns:
    """See the module.

    Parameters
    ----------
    batches : sequence of Batch, in the order of posting.
    """

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._items: dict[int, list[Rows | Runs]] = {}
        for batch in batches:
            table = batch.table
            for uid in table.uids:
                items = self._items.setdefault(uid, [])
                items += [runs or rows for rows, runs in in_parts(table.of(uid).rows, table.lists)]
        self._within: dict[tuple[int, int], tuple[Runs, Runs]] = {}
        self._beyond: dict[tuple[int, int], tuple[Runs, Runs, bool]] = {}
        self._whole: dict[tuple[int, int], tuple[Runs, Runs, bool]] = {}
        self._digests: dict[int, tuple[Runs, str]] = {}

    @property
    def uids(self) -> set[int]:
        """The variables that were posted."""
        return set(self._items)

    def lists(self, uid: int) -> tuple[int, ...] | None:
        """Return a key that is equal for variables posted with the same lists; None if other posts were made, too."""
        items = self._items.get(uid, ())
        found = tuple([id(item) for item in items if isinstance(item, Runs)])
        return found if len(found) == len(items) else None

    def of(self, uid: int, inner: int) -> Runs:
        """Return the posted elements of a variable, sorted and disjoint.

        inner : int, elements of a record, to have the elements within a record; 0: all elements as they are.
        """
        parts: list[Runs] = []
        for item in self._items.get(uid, ()):
            if isinstance(item, Runs):
                found = self._listed(item, inner)
                if not any(found is other for other in parts):
                    parts.append(found)
            else:
                parts.append(_within(Runs(item[:, 1], item[:, 2]), inner))
        if len(parts) == 1:
            return parts[0]
        columns: list[Int64] = [np.concatenate([np.empty(0, np.int64), *(one[i] for one in parts)]) for i in (0, 1)]
        return coalesced(Runs(*columns))

    def _listed(self, runs: Runs, inner: int) -> Runs:
        found = self._within.get((id(runs), inner))
        if found is None:
            found = self._within[id(runs), inner] = runs, _within(runs, inner)
        return found[1]

    def pieces(self, uid: int, inner: int, own: Runs | None) -> int:
        """Count the posted runs of a variable; a list equal to `own`, this rank's part of the map, is one piece."""
        count = 0
        for item in self._items.get(uid, ()):
            if not isinstance(item, Runs):
                count += len(item)
            elif own is not None and self._is_whole(item, self._listed(item, inner), own):
                count += 1
            else:
                count += len(item.start)
        return count

    def _is_whole(self, runs: Runs, within: Runs, own: Runs) -> bool:
        found = self._whole.get((id(runs), id(own)))
        if found is None:
            whole = int(runs.length.sum()) == int(own.length.sum()) and all(map(np.array_equal, within, own))
            found = self._whole[id(runs), id(own)] = runs, own, whole
        return found[2]

    def beyond(self, here: Runs, own: Runs | None) -> bool:
        """Return whether runs have elements that are not among those of a sorted list."""
        if own is None or here is own:
            return False
        found = self._beyond.get((id(here), id(own)))
        if found is None:
            found = self._beyond[id(here), id(own)] = here, own, _beyond(here, own)
        return found[2]

    def digest(self, runs: Runs) -> str:
        """Return a hash of a list of runs."""
        found = self._digests.get(id(runs))
        if found is None:
            made = hashlib.blake2b(runs.start.tobytes() + runs.length.tobytes(), digest_size=12).hexdigest()
            found = self._digests[id(runs)] = runs, made
        return found[1]

    def records(self, node: DatasetNode) -> tuple[int, int]:
        """Return the first record of a variable that was posted and the one behind the last; (0, 1) of one without
        records."""
        if not node.is_record:
            return 0, 1
        inner = max(1, math.prod(inner_shape(node)))
        items = self._items[node.uid]
        runs = [item if isinstance(item, Runs) else Runs(item[:, 1], item[:, 2]) for item in items]
        first = min(int(one.start.min()) for one in runs) // inner
        last = max(int((one.start + one.length).max()) for one in runs)
        return first, -(-last // inner)


def _within(found: Runs, inner: int) -> Runs:
    return coalesced(Runs(found.start % inner, found.length) if inner else found)


def _beyond(here: Runs, own: Runs) -> bool:
    if not len(here.start):
        return False
    at = np.searchsorted(own.start, here.start, side="right") - 1
    ends = np.where(at >= 0, own.start[at] + own.length[at], 0) if len(own.start) else np.zeros_like(here.start)
    return bool(((at < 0) | (here.start + here.length > ends)).any())
