"""Which map each variable of a blob set gets: what all ranks agree on at a flush.

Knows: posted runs, datasets, ranks and the subfile of each. Does not know: headers, files, drivers.

Rules
-----
1. A variable gets its map at the first flush at which a rank has posted to it, or at once if it was created with a
   decomposition. Until then, and for ever if it is small or all who post it post all of it, it is not partitioned.
2. A derived map is what each rank posted. Of elements that several ranks posted, the highest rank keeps them.
3. Variables of the same lengths, of which every rank has the same runs, share one map.
4. An element in no map that is posted needs the supplement of its variable.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.comm import Comm
from pnc_vol.extents.decomposition import Decomposition
from pnc_vol.extents.model import Int64, Runs
from pnc_vol.format.model import Header
from pnc_vol.format.sizes import record_dim
from pnc_vol.layout.blob.index import ElementIndex
from pnc_vol.layout.blob.layout import BlobFiles
from pnc_vol.layout.blob.maps import SubfileMap, coalesced, derived, split_rows
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch
from pnc_vol.queue.rows import Listed

__all__ = ["Agreed", "MapAgreement", "inner_shape"]

_NO_RUNS = Runs(np.empty(0, np.int64), np.empty(0, np.int64))
_SMALL = 64 << 10
"""Bytes of a variable, or of a record, up to which one that a rank posts whole is not partitioned."""


@dataclass(slots=True)
class Agreed:
    """What the ranks agreed on at one flush.

    Attributes
    ----------
    maps : dict of int to SubfileMap, the new ones by number, as this rank's subfile has them.
    supplements : set of uid, variables that need a supplement and have none.
    copies : dict of uid to (int, int)
        Variables without a map that were posted, with the first record and the one behind the last (0, 1: all of it):
        each subfile has a copy.
    afar : bool, some rank may write to a subfile of other ranks.
    overlaps : bool, several ranks may have posted the same element.
    """

    maps: dict[int, SubfileMap] = field(default_factory=dict)
    supplements: set[int] = field(default_factory=set)
    copies: dict[int, tuple[int, int]] = field(default_factory=dict)
    afar: bool = False
    overlaps: bool = False

    def followed_by(self, new: Agreed, uids: Sequence[int]) -> Agreed:
        """This, of a flush that failed, and what the next one agreed on; `uids`: the variables that there are now."""
        copies = dict(new.copies)
        for uid, (first, last) in self.copies.items():
            if uid in uids:
                low, high = copies.get(uid, (first, last))
                copies[uid] = min(low, first), max(high, last)
        supplements = {uid for uid in self.supplements if uid in uids}
        return Agreed(self.maps | new.maps, supplements | new.supplements, copies)


def inner_shape(node: DatasetNode) -> tuple[int, ...]:
    """The lengths that a map of a dataset has: all axes but that of records."""
    shape = node.shape or ()
    return shape[1:] if node.is_record else shape


class MapAgreement:
    """Gives variables their maps.

    Parameters
    ----------
    comm : Comm
    files : BlobFiles, where `assigned`, `dims` and `own` are kept.
    subfile_of : sequence of int, the subfile of each rank.
    """

    def __init__(self, comm: Comm, files: BlobFiles, subfile_of: Sequence[int]) -> None:
        self.comm, self.files, self.subfile_of = comm, files, list(subfile_of)
        self.given: Mapping[int, Decomposition] = {}
        self._numbers: dict[Any, int] = {}
        self._undecided: set[int] = set()
        self._compares: dict[tuple[int, int], tuple[Runs, Runs | None, bool]] = {}
        self._digests: dict[int, tuple[Runs, str]] = {}
        self.lists: dict[int, list[Runs]] = {}
        """The runs of all ranks, of maps that the files do not have yet."""

    def index_of_lists(self, k: int) -> ElementIndex | None:
        """The index of a map that is not in the files yet; None if that of another rank is not known either."""
        lists = self.lists.get(k)
        if lists is None:
            return None
        dims = self.files.dims[k - 1]
        found = ((s, SubfileMap(dims, (), tuple(self._of(s, lists)))) for s in sorted(set(self.subfile_of)))
        return ElementIndex(math.prod(dims), found)

    def _of(self, subfile: int, lists: Sequence[Runs]) -> list[Runs]:
        return [one for one, s in zip(lists, self.subfile_of, strict=True) if s == subfile]

    def agree(
        self,
        header: Header,
        uids: Sequence[int],
        nodes: Mapping[int, DatasetNode],
        batches: Sequence[Batch],
        given: Mapping[int, Decomposition],
    ) -> Agreed:
        """Decide for all variables, from what all ranks posted (collective).

        Parameters
        ----------
        header : Header, the next canonical one.
        uids : sequence of int, of its variables.
        nodes : mapping of uid to DatasetNode
        batches : what this rank posted.
        given : mapping of uid to Decomposition, those that datasets were created with.
        """
        self.given = given
        self._compares.clear()
        self._digests.clear()
        self._afar = False
        files, told = self.files, _Told()
        for gone in files.assigned.keys() - set(uids):
            del files.assigned[gone]
        at = {uid: i for i, uid in enumerate(uids)}
        mine: dict[int, Runs] = {}
        known: dict[tuple[int, int], Runs] = {}
        for uid in uids:
            if uid not in files.assigned:
                files.assigned[uid] = 0
                self._undecided.add(uid)
        self._undecided &= files.assigned.keys()
        posted = {uid for batch in batches for uid in batch.uids() if uid in at}
        for uid in sorted(posted | (self._undecided & given.keys()), key=at.__getitem__):
            node, inner = nodes[uid], math.prod(inner_shape(nodes[uid]))
            if uid in self._undecided and not _never(node):
                explicit = self._explicit(node)
                here = posted_runs(batches, uid, inner if node.is_record else 0, known)
                own = mine[uid] = here if explicit is None else explicit
                beyond = self._compared(here, explicit)
                told.maps[at[uid]] = self._proposal(own, inner, explicit is not None, beyond)
            elif files.assigned[uid]:
                if uid not in files.supplements and self._misses(uid, node, batches, known):
                    told.supplements.append(at[uid])
            else:
                told.copies[at[uid]] = _records(node, batches, uid)
        told.afar = self._afar or bool(told.copies) or any(proposal[4] for proposal in told.maps.values())
        agreed = self._decided(header, uids, nodes, told.exchanged(self.comm), mine)
        if self._strays:
            hit = [at[u] for u in self._strays & posted if self._misses(u, nodes[u], batches, known)]
            everyone = self.comm.exchange("flush strays", json.dumps(hit).encode())
            agreed.supplements |= {uids[i] for one in everyone for i in json.loads(one)}
        return agreed

    def _turn(self, uid: int) -> tuple[int, int]:
        """Maps are numbered in the order in which the decompositions were made, then the datasets."""
        given = self.given.get(uid)
        return (1, uid) if given is None else (0, given.number)

    def _explicit(self, node: DatasetNode) -> Runs | None:
        given = self.given.get(node.uid)
        return None if given is None else given.owned(inner_shape(node))

    def _proposal(self, own: Runs, inner: int, explicit: bool, beyond: bool) -> list[Any]:
        nelems = int(own.length.sum())
        return [self._digest(own), nelems, len(own.start) == 1 and nelems == inner, explicit, beyond]

    def _digest(self, own: Runs) -> str:
        kept = self._digests.get(id(own))
        if kept is None:
            made = hashlib.blake2b(own.start.tobytes() + own.length.tobytes(), digest_size=12).hexdigest()
            # kept with the runs, so that their identity stays theirs
            kept = self._digests[id(own)] = own, made
        return kept[1]

    def _compared(self, here: Runs, own: Runs | None) -> bool:
        """`_beyond`, once for two lists."""
        key = id(here), id(own)
        found = self._compares.get(key)
        if found is None:
            found = self._compares[key] = here, own, _beyond(here, own)
        return found[2]

    def _misses(
        self, uid: int, node: DatasetNode, batches: Sequence[Batch], known: dict[tuple[int, int], Runs]
    ) -> bool:
        """Whether this rank posted elements of a variable that its map leaves open."""
        k = self.files.assigned[uid]
        own = self.files.own.get(k)
        here = posted_runs(batches, uid, math.prod(inner_shape(node)) if node.is_record else 0, known)
        if own is not None and not self._compared(here, own[0]):
            return False
        found = self.files.lookup(k).locate(here).subfile
        self._afar |= bool((found != self.subfile_of[self.comm.rank]).any())
        return bool((found < 0).any())

    def _decided(
        self,
        header: Header,
        uids: Sequence[int],
        nodes: Mapping[int, DatasetNode],
        told: list[_Told],
        mine: Mapping[int, Runs],
    ) -> Agreed:
        files, agreed = self.files, Agreed()
        self._strays: set[int] = set()
        agreed.afar = any(one.afar for one in told) and len(set(self.subfile_of)) > 1
        for one in told:
            agreed.supplements |= {uids[i] for i in one.supplements}
            for i, (first, last) in one.copies.items():
                agreed.overlaps |= uids[i] in agreed.copies
                low, high = agreed.copies.get(uids[i], (first, last))
                agreed.copies[uids[i]] = min(low, first), max(high, last)
        new: dict[Any, list[int]] = {}
        shared: set[Any] = set()
        for i in sorted({i for one in told for i in one.maps}):
            uid, node = uids[i], nodes[uids[i]]
            proposals = [one.maps.get(i) for one in told]
            posted = [p for p in proposals if p is not None and p[1]]
            self._undecided.discard(uid)
            explicit = any(p is not None and p[3] for p in proposals)
            agreed.overlaps |= any(p is not None and p[4] for p in proposals)
            nbytes = math.prod(inner_shape(node)) * node.element.itemsize
            if not explicit and (
                not posted
                or (all(p[2] for p in posted) and (len(posted) > 1 or self.comm.size == 1 or nbytes <= _SMALL))
            ):
                agreed.copies[uid] = (0, max(1, (node.shape or (0,))[0])) if node.is_record else (0, 1)
                agreed.overlaps |= len(posted) > 1
                continue
            key = inner_shape(node), tuple("" if p is None else p[0] for p in proposals)
            new.setdefault(key, []).append(uid)
            if not explicit or any(p is not None and p[4] for p in proposals):
                shared.add(key)
            if explicit:
                self._strays |= {uid} if any(p is not None and p[4] for p in proposals) else set()
        for key in sorted((key for key in new if key not in self._numbers), key=lambda key: self._turn(new[key][0])):
            files.dims.append(key[0])
            self._numbers[key] = len(files.dims)
            first = new[key][0]
            agreed.maps[len(files.dims)], overlaps = self._made(
                key,
                _dimids(header, uids.index(first), len(key[0])),
                mine.get(first, _NO_RUNS),
                all_ranks=key in shared,
                derive=first not in self.given,
            )
            agreed.overlaps |= overlaps
        for key, members in new.items():
            for uid in members:
                files.assigned[uid] = self._numbers[key]
        return agreed

    def _made(
        self,
        key: Any,
        dimids: tuple[int, ...],
        own: Runs,
        *,
        all_ranks: bool,
        derive: bool,
    ) -> tuple[SubfileMap, bool]:
        """A new map (collective); whether some ranks posted the same elements.

        It takes the runs of all ranks if `all_ranks`, otherwise those of the ranks of this subfile alone: a large job
        has more of them than fit in memory.
        """
        k, dims, rank = self._numbers[key], key[0], self.comm.rank
        posted = lists = _of_all(self.comm, own) if all_ranks else _of_group(self.comm, own, self.subfile_of)
        if derive:
            lists = derived(lists)
        if all_ranks:
            self.lists[k] = lists
        subfile = self.subfile_of[rank]
        ours = [r for r, s in enumerate(self.subfile_of) if s == subfile]
        before = sum(int(lists[r].length.sum()) for r in ours if r < rank)
        self.files.own[k] = lists[rank], subfile, before
        overlaps = derive and sum(int(one.length.sum()) for one in posted) > sum(int(one.length.sum()) for one in lists)
        return SubfileMap(dims, dimids, tuple(split_rows(lists[r], dims[-1]) for r in ours)), overlaps


def _dimids(header: Header, number: int, ndims: int) -> tuple[int, ...]:
    """The numbers of the dimensions of a variable that a map covers."""
    record = record_dim(header)
    return tuple(i for i in header.vars[number].dims if i != record)[:ndims]


class _Told:
    """What a rank tells at a flush; variables by their number in the header."""

    def __init__(self) -> None:
        self.maps: dict[int, list[Any]] = {}
        self.supplements: list[int] = []
        self.copies: dict[int, tuple[int, int]] = {}
        self.afar = False

    def exchanged(self, comm: Comm) -> list[_Told]:
        if comm.size == 1:
            return [self]
        words = json.dumps([list(self.maps.items()), self.supplements, list(self.copies.items()), self.afar])
        found = []
        for one in comm.exchange("flush maps", words.encode()):
            told = _Told()
            maps, told.supplements, copies, told.afar = json.loads(one)
            told.maps, told.copies = dict(maps), {i: (first, last) for i, (first, last) in copies}
            found.append(told)
        return found


def _packed(own: Runs) -> npt.NDArray[np.uint8]:
    return np.concatenate((own.start, own.length)).astype("<i8", copy=False).view(np.uint8)


def _unpacked(packed: Any) -> Runs:
    both = np.frombuffer(packed, "<i8").astype(np.int64)
    return Runs(both[: both.size // 2], both[both.size // 2 :])


def _of_all(comm: Comm, own: Runs) -> list[Runs]:
    """The runs of all ranks (collective)."""
    if comm.size == 1:
        return [own]
    return [_unpacked(one) for one in comm.exchange("flush lists", _packed(own).tobytes())]


def _of_group(comm: Comm, own: Runs, subfile_of: Sequence[int]) -> list[Runs]:
    """The runs of the ranks of this rank's subfile, and none of the others (collective)."""
    if comm.size == 1:
        return [own]
    packed, none, mine = _packed(own), np.empty(0, np.uint8), subfile_of[comm.rank]
    told = comm.all_to_all("flush lists", [packed if s == mine else none for s in subfile_of])
    return [_unpacked(one) for one in told]


def _never(node: DatasetNode) -> bool:
    """Whether a dataset is not partitioned, whatever is posted: it has no axis to partition."""
    return node.is_placeholder or not inner_shape(node)


def _beyond(here: Runs, own: Runs | None) -> bool:
    """Whether runs have elements that are not among those of a sorted list."""
    if own is None or here is own or not len(here.start):
        return False
    at = np.searchsorted(own.start, here.start, side="right") - 1
    ends = np.where(at >= 0, own.start[at] + own.length[at], 0) if len(own.start) else np.zeros_like(here.start)
    return bool(((at < 0) | (here.start + here.length > ends)).any())


def posted_runs(batches: Sequence[Batch], uid: int, inner: int, known: dict[tuple[int, int], Runs]) -> Runs:
    """What this rank posted of a variable, within a record where `inner`, its elements, is not 0; sorted, disjoint.

    known : what was found out for lists of runs, which many variables have in common.
    """
    parts: list[Runs] = []
    for batch in batches:
        for item in batch.items(uid):
            if isinstance(item, Listed):
                key = id(item.runs), inner
                found = known.get(key)
                if found is None:
                    found = known[key] = _within(item.runs, inner)
                parts.append(found)
            elif len(item):
                parts.append(_within(Runs(item[:, 1], item[:, 2]), inner))
    parts = [one for i, one in enumerate(parts) if not any(one is other for other in parts[:i])]
    if len(parts) == 1:
        return parts[0]
    columns: list[Int64] = [np.concatenate([np.empty(0, np.int64), *(one[i] for one in parts)]) for i in (0, 1)]
    return coalesced(Runs(*columns))


def _within(found: Runs, inner: int) -> Runs:
    return coalesced(Runs(found.start % inner, found.length) if inner else found)


def _records(node: DatasetNode, batches: Sequence[Batch], uid: int) -> tuple[int, int]:
    """The records of a variable that were posted, (0, 1) of one without."""
    if not node.is_record:
        return 0, 1
    inner = max(1, math.prod(inner_shape(node)))
    rows = [batch.rows(uid) for batch in batches]
    first = min(int(one[:, 1].min()) for one in rows if len(one)) // inner
    last = max(int((one[:, 1] + one[:, 2]).max()) for one in rows if len(one))
    return first, -(-last // inner)
