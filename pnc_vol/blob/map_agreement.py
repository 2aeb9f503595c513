"""All ranks agree at a flush which map each variable gets (`MapAgreement`).

Knows: posted runs, datasets, ranks and the subfile of each, what is known of headers. Does not know: how subfiles are
opened and written, drivers.

Rules
-----
1. A variable gets its map at the first flush at which a rank has posted to it, or at once if it was created with a
   decomposition. Until then, and for ever if it is small or every rank that posts it posts all of it, it is not
   partitioned.
2. A derived map consists of the elements that each rank posted. Elements that several ranks posted belong to the
   highest of these ranks.
3. Variables of the same lengths, of which every rank has the same runs, share one map.
4. An element in no map that is posted needs the supplement of its variable, which has all such elements from the
   beginning. With a map for each later post the headers would grow with every flush; a supplement that is extended
   would be copied each time.
5. The transport is chosen by the number of pieces in the subfiles (`Agreed.pieces`), not by the number of posted runs:
   hundreds of thousands of runs that a rank owns are one piece of its subfile, which it writes independently.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.blob.index import ElementIndex
from pnc_vol.blob.layout import BlobFiles
from pnc_vol.blob.maps import SubfileMap, derived, split_rows
from pnc_vol.extents.decomposition import Decomposition
from pnc_vol.extents.merge import coalesced
from pnc_vol.extents.model import Int64, Runs
from pnc_vol.format.model import Header, record_dim
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, Rows, in_parts
from pnc_vol.ranks.comm import Comm, joined_lists

__all__ = ["Agreed", "MapAgreement", "MapReport", "PostedRuns", "Proposal", "inner_shape"]

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
    other_subfiles : bool, some rank may write to a subfile of other ranks.
    overlaps : bool, several ranks may have posted the same element.
    crosses : bool, some rank may write elements that another rank wrote before, or writes later, in this flush or the
        one before.
    pieces : int, the most runs that any rank has to write, where all that it owns of a map is one.
    """

    maps: dict[int, SubfileMap] = field(default_factory=dict)
    supplements: set[int] = field(default_factory=set)
    copies: dict[int, tuple[int, int]] = field(default_factory=dict)
    other_subfiles: bool = False
    overlaps: bool = False
    crosses: bool = False
    pieces: int = 0

    def followed_by(self, new: Agreed, uids: Sequence[int]) -> Agreed:
        """Merge the agreement of a flush that failed with that of the next one; `uids` are the present variables."""
        copies = dict(new.copies)
        for uid, (first, last) in self.copies.items():
            if uid in uids:
                low, high = copies.get(uid, (first, last))
                copies[uid] = min(low, first), max(high, last)
        supplements = {uid for uid in self.supplements if uid in uids}
        return Agreed(self.maps | new.maps, supplements | new.supplements, copies)


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
        self._subfile_ranks = [rank for rank, s in enumerate(self.subfile_of) if s == self.subfile_of[comm.rank]]
        self.given: Mapping[int, Decomposition] = {}
        self._numbers: dict[Any, int] = {}
        self._undecided: set[int] = set()
        self.lists: dict[int, list[Runs]] = {}
        """By the number of a map that is not in the files yet, the runs of all ranks."""
        self.decided, self._crossed = Agreed(), False
        """What was agreed on and is not in the files yet; whether ranks may hold what others own."""

    def noted(self) -> Callable[[], None]:
        """Return what takes back all that is agreed from now on."""
        files = self.files
        before = dict(files.assigned), list(files.dims), dict(files.own)
        own = dict(self._numbers), set(self._undecided), dict(self.lists), self.decided, self._crossed

        def take_back() -> None:
            files.assigned, files.dims, files.own = before
            self._numbers, self._undecided, self.lists, self.decided, self._crossed = own
            files.forget_maps()

        return take_back

    def note_written(self) -> None:
        """Forget what was agreed on: it is in the files."""
        self.decided = Agreed()
        self.lists.clear()

    def index_of_lists(self, k: int) -> ElementIndex | None:
        """Build the index of a map that is not in the files yet; None if this rank lacks the runs of other ranks."""
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
        posted: PostedRuns,
        given: Mapping[int, Decomposition],
    ) -> Agreed:
        """Decide for all variables, from what all ranks posted (collective).

        Parameters
        ----------
        header : Header, the next canonical one.
        uids : sequence of int, of its variables.
        nodes : mapping of uid to DatasetNode
        posted : PostedRuns, of this rank.
        given : mapping of uid to Decomposition, those that datasets were created with.
        """
        self.given = given
        self._other_subfiles = self._beyond = False
        files, report = self.files, MapReport()
        for gone in files.assigned.keys() - set(uids):
            del files.assigned[gone]
        at = {uid: i for i, uid in enumerate(uids)}
        own_runs: dict[int, Runs] = {}
        known: dict[Any, tuple[Proposal, Runs, int]] = {}
        for uid in uids:
            if uid not in files.assigned:
                files.assigned[uid] = 0
                self._undecided.add(uid)
        self._undecided &= files.assigned.keys()
        here = posted.uids & at.keys()
        for uid in sorted(here | (self._undecided & given.keys()), key=at.__getitem__):
            node = nodes[uid]
            shape = inner_shape(node)
            if uid in self._undecided and not _never(node, shape):
                # Hundreds of variables share one decomposition: its digest is computed once.
                lists = posted.lists(uid)
                key = id(given.get(uid)), shape, node.is_record, lists
                found = known.get(key) if lists is not None else None
                if found is None:
                    found = known[key] = self._proposal(node, shape, posted)
                proposal, own_runs[uid], pieces = found
                report.propose(at[uid], proposal)
                report.pieces += pieces
                continue
            own, inner = None, _inner(node)
            if files.assigned[uid]:
                own = files.own[files.assigned[uid]][0] if files.assigned[uid] in files.own else None
                if self._misses(uid, inner, posted) and uid not in files.supplements:
                    report.supplements.add(at[uid])
            else:
                report.copies[at[uid]] = posted.records(node)
            report.pieces += posted.pieces(uid, inner, own)
        others = bool(report.copies) or any(one.beyond for one in report.kinds)
        report.other_subfiles, report.beyond = self._other_subfiles or others, self._beyond or others
        agreed = self._decided(header, uids, nodes, report.of_all(self.comm), own_runs)
        if self._strays:
            hit = [at[u] for u in self._strays & here if self._misses(u, _inner(nodes[u]), posted)]
            agreed.supplements |= {uids[i] for i in self.comm.merge("flush strays", hit, joined_lists)}
        self.decided = self.decided.followed_by(agreed, uids)
        agreed.crosses, self._crossed = agreed.crosses or self._crossed, agreed.crosses
        return agreed

    def _turn(self, uid: int) -> tuple[int, int]:
        """Return the turn of a map: by the order in which decompositions were made, then of the datasets."""
        given = self.given.get(uid)
        return (1, uid) if given is None else (0, given.number)

    def _proposal(self, node: DatasetNode, shape: tuple[int, ...], posted: PostedRuns) -> tuple[Proposal, Runs, int]:
        """Return this rank's proposal for a variable, its runs in the map, and the number of pieces to write."""
        given, inner = self.given.get(node.uid), _inner(node)
        here = posted.of(node.uid, inner)
        own = None if given is None else given.owned(shape)
        part = here if own is None else own
        nelems = int(part.length.sum())
        whole = len(part.start) == 1 and nelems == math.prod(shape)
        explicit, beyond = own is not None, posted.beyond(here, own)
        word = hashlib.blake2b(f"{self.comm.rank} {posted.digest(part)}".encode(), digest_size=16).digest()
        proposal = Proposal(
            int.from_bytes(word, "little"), int(nelems > 0), whole or not nelems, explicit=explicit, beyond=beyond
        )
        return proposal, part, posted.pieces(node.uid, inner, part)

    def _misses(self, uid: int, inner: int, posted: PostedRuns) -> bool:
        """Return whether this rank posted elements of a variable that its map leaves open."""
        k = self.files.assigned[uid]
        own = self.files.own.get(k)
        here = posted.of(uid, inner)
        if own is not None and not posted.beyond(here, own[0]):
            return False
        self._beyond = True
        found = self.files.lookup(k).locate(here).part
        self._other_subfiles |= bool((found != self.subfile_of[self.comm.rank]).any())
        return bool((found < 0).any())

    def _decided(
        self,
        header: Header,
        uids: Sequence[int],
        nodes: Mapping[int, DatasetNode],
        report: MapReport,
        own_runs: Mapping[int, Runs],
    ) -> Agreed:
        files, agreed = self.files, Agreed(pieces=report.pieces, overlaps=report.overlaps)
        self._strays: set[int] = set()
        agreed.crosses = report.beyond or report.overlaps
        elsewhere = len(self._subfile_ranks) < len(self.subfile_of)
        agreed.other_subfiles = report.other_subfiles and elsewhere
        agreed.supplements = {uids[i] for i in report.supplements}
        agreed.copies = {uids[i]: records for i, records in report.copies.items()}
        # by what identifies a new map its variables; those of which all ranks have to know the runs of all
        new: dict[Any, list[int]] = {}
        shared: set[Any] = set()
        for i in sorted(report.maps):
            uid, node, found = uids[i], nodes[uids[i]], report.kinds[report.maps[i]]
            shape = inner_shape(node)
            self._undecided.discard(uid)
            several = found.posted > 1
            small = self.comm.size == 1 or math.prod(shape) * node.element.itemsize <= _SMALL
            if not found.explicit and (not found.posted or (found.whole and (several or small))):
                # it is not partitioned
                agreed.overlaps |= several or found.beyond
                agreed.copies[uid] = (0, max(1, (node.shape or (0,))[0])) if node.is_record else (0, 1)
                agreed.other_subfiles, agreed.crosses = elsewhere, True
                continue
            agreed.overlaps |= found.beyond
            agreed.crosses |= found.beyond
            key = shape, found.word
            new.setdefault(key, []).append(uid)
            if not found.explicit or found.beyond:
                shared.add(key)
            if found.explicit and found.beyond:
                self._strays.add(uid)
        self._make(agreed, header, uids, new, shared, own_runs)
        for key, members in new.items():
            for uid in members:
                files.assigned[uid] = self._numbers[key]
        return agreed

    def _make(
        self,
        agreed: Agreed,
        header: Header,
        uids: Sequence[int],
        new: Mapping[Any, list[int]],
        shared: set[Any],
        own_runs: Mapping[int, Runs],
    ) -> None:
        """Make the maps that there are not yet (collective)."""
        files = self.files
        fresh = sorted((key for key in new if key not in self._numbers), key=lambda key: self._turn(new[key][0]))
        posted = self._lists_of(fresh, shared, {key: own_runs.get(new[key][0], _NO_RUNS) for key in fresh})
        for key in fresh:
            files.dims.append(key[0])
            k = self._numbers[key] = len(files.dims)
            first = new[key][0]
            lists = posted[key]
            if first not in self.given:
                elements = sum(int(one.length.sum()) for one in lists.values())
                lists = dict(enumerate(derived(list(lists.values()))))
                if elements > sum(int(one.length.sum()) for one in lists.values()):
                    # Ranks posted the same elements, in one record or in different ones: what a rank posted of those
                    # of a higher rank goes to the latter's part of the map, perhaps in another subfile.
                    agreed.overlaps = agreed.crosses = True
                    agreed.other_subfiles |= len(self._subfile_ranks) < len(self.subfile_of)
            dimids = _dimids(header, uids.index(first), len(key[0]))
            agreed.maps[k] = self._made(k, dimids, lists, all_ranks=key in shared)

    def _made(self, k: int, dimids: tuple[int, ...], lists: dict[int, Runs], *, all_ranks: bool) -> SubfileMap:
        """Return a new map, as this rank's subfile has it.

        lists : dict of int to Runs, of each rank of this subfile.
        all_ranks : bool, of the ranks of other subfiles, too.
        """
        dims, rank = self.files.dims[k - 1], self.comm.rank
        if all_ranks:
            self.lists[k] = list(lists.values())
        subfile = self.subfile_of[rank]
        before = sum(int(lists[r].length.sum()) for r in self._subfile_ranks if r < rank)
        self.files.own[k] = lists[rank], subfile, before
        return SubfileMap(dims, dimids, tuple(split_rows(lists[r], dims[-1]) for r in self._subfile_ranks))

    def _lists_of(self, keys: Sequence[Any], shared: set[Any], own: Mapping[Any, Runs]) -> dict[Any, dict[int, Runs]]:
        """Return, for each new map, the runs of all ranks, by rank, if it is in `shared` (collective).

        They are those of all ranks if the map is in `shared`, otherwise those of the ranks of this subfile: the runs of
        all ranks of a large job do not fit in memory.
        """
        comm, found = self.comm, dict[Any, dict[int, Runs]]()
        if comm.size == 1:
            return {key: {0: own[key]} for key in keys}
        for every, names in ((True, [k for k in keys if k in shared]), (False, [k for k in keys if k not in shared])):
            if not names:
                continue
            packed = _packed([own[key] for key in names])
            by_rank: Mapping[int, Any]
            if every:
                by_rank = dict(comm.merge("flush lists", [[comm.rank, packed.tobytes()]], add))
            else:
                by_rank = comm.exchange("flush lists", dict.fromkeys(self._subfile_ranks, packed))
            lists = {rank: _unpacked(one, len(names)) for rank, one in by_rank.items()}
            found |= {key: {rank: one[i] for rank, one in lists.items()} for i, key in enumerate(names)}
        return found


def _dimids(header: Header, number: int, ndims: int) -> tuple[int, ...]:
    """Return the numbers of the dimensions of a variable that a map covers."""
    record = record_dim(header)
    return tuple(i for i in header.vars[number].dims if i != record)[:ndims]


def _never(node: DatasetNode, shape: tuple[int, ...]) -> bool:
    """Return whether a dataset is not partitioned, whatever is posted: it has no axis to partition."""
    return node.is_placeholder or not shape


def _inner(node: DatasetNode) -> int:
    """Return the number of elements of a record of a dataset; 0 of one without records."""
    return math.prod(inner_shape(node)) if node.is_record else 0


class Proposal(NamedTuple):
    """The proposal of one or more ranks for a variable that has no map yet; many variables share one proposal.

    word : int, identifies a decomposition: the sum of a 128-bit hash of each rank's runs.
    posted : int, ranks that posted any.
    whole : bool, each of these posted the whole variable in one run.
    explicit : bool, a rank's are those of a decomposition.
    beyond : bool, a rank posted others, too.
    """

    word: int
    posted: int
    whole: bool
    explicit: bool
    beyond: bool

    def and_of(self, other: Proposal) -> Proposal:
        """Merge the proposal of these ranks with that of others."""
        return Proposal(
            (self.word + other.word) % (1 << 128), self.posted + other.posted, self.whole and other.whole,
            self.explicit or other.explicit, self.beyond or other.beyond,
        )  # fmt: skip


_NOTHING = Proposal(0, 0, whole=True, explicit=False, beyond=False)
"""The proposal of ranks that did not post a variable: the neutral element of `Proposal.and_of`."""


class MapReport:
    """What ranks report at a flush; variables by their number in the header.

    kinds : list of Proposal
    maps : dict of int to int, the proposal for each variable that may get a map.
    supplements : set of int
    copies : dict of int to (int, int)
    overlaps : bool, several ranks report copies of one variable.
    other_subfiles, pieces : see `Agreed`.
    beyond : bool, a rank posted elements that are not its own.
    """

    def __init__(self) -> None:
        self.kinds: list[Proposal] = []
        self.maps: dict[int, int] = {}
        self.supplements: set[int] = set()
        self.copies: dict[int, tuple[int, int]] = {}
        self.overlaps = self.other_subfiles = self.beyond = False
        self.pieces = 0
        self._numbers: dict[Proposal, int] = {}

    def propose(self, number: int, proposal: Proposal) -> None:
        kind = self._numbers.setdefault(proposal, len(self.kinds))
        if kind == len(self.kinds):
            self.kinds.append(proposal)
        self.maps[number] = kind

    def of_all(self, comm: Comm) -> MapReport:
        """Return what all ranks report together: one reduction, and a merge in a tree if they have more than
        numbers."""
        if comm.size == 1:
            return self
        more = bool(self.maps or self.supplements or self.copies)
        numbers = (more, self.other_subfiles, self.beyond, self.pieces)
        (any_more, other_subfiles, beyond, pieces), _ = comm.agree("flush maps", numbers)
        found = self
        if any_more:
            value = self._value(comm.rank) if more else None
            found = MapReport._of_value(comm.merge("flush maps of all", value, _joined))
        found.other_subfiles, found.beyond, found.pieces = bool(other_subfiles), bool(beyond), pieces
        return found

    def _value(self, rank: int) -> list[Any]:
        """Return a value that is never that of another rank: what two ranks report alike counts twice."""
        maps, copies = [*self.maps, *self.maps.values()], list(self.copies.items())
        return [rank, self.kinds, maps, sorted(self.supplements), copies, self.overlaps]

    @classmethod
    def _of_value(cls, value: list[Any]) -> MapReport:
        found = cls()
        _, kinds, maps, supplements, copies, found.overlaps = value
        half = len(maps) // 2
        found.kinds, found.maps = [Proposal(*kind) for kind in kinds], dict(zip(maps[:half], maps[half:], strict=True))
        found.supplements, found.copies = set(supplements), {i: (first, last) for i, (first, last) in copies}
        return found

    def add(self, other: MapReport) -> None:
        """Add what other ranks report."""
        own, theirs = self.maps, other.maps
        kinds = [*self.kinds, _NOTHING], [*other.kinds, _NOTHING]
        both = {i: (own.get(i, -1), theirs.get(i, -1)) for i in (*own, *(i for i in theirs if i not in own))}
        merged = {pair: kinds[0][pair[0]].and_of(kinds[1][pair[1]]) for pair in set(both.values())}
        self.kinds, self.maps, self._numbers = [], {}, {}
        for i, pair in both.items():
            self.propose(i, merged[pair])
        self.supplements |= other.supplements
        self.overlaps |= other.overlaps or not self.copies.keys().isdisjoint(other.copies)
        for i, (first, last) in other.copies.items():
            low, high = self.copies.get(i, (first, last))
            self.copies[i] = min(low, first), max(high, last)


def _joined(lower: list[Any], higher: list[Any]) -> list[Any]:
    one = MapReport._of_value(lower)
    one.add(MapReport._of_value(higher))
    return one._value(-1)


def _packed(lists: Sequence[Runs]) -> npt.NDArray[np.uint8]:
    """Encode lists of runs: the length of each list, and then all columns."""
    columns = [column for one in lists for column in one]
    lengths = np.array([len(one.start) for one in lists], np.int64)
    return np.concatenate((lengths, *columns)).astype("<i8", copy=False).view(np.uint8)


def _unpacked(packed: Any, n: int) -> list[Runs]:
    numbers = np.frombuffer(packed, "<i8").astype(np.int64)
    ends = n + np.cumsum(np.repeat(numbers[:n], 2))
    columns = np.split(numbers[n:], ends[:-1] - n)
    return [Runs(*columns[i : i + 2]) for i in range(0, 2 * n, 2)]


# ------------------------------------------------------------------------------------------------- what was posted


def inner_shape(node: DatasetNode) -> tuple[int, ...]:
    """Return the lengths of a dataset that a map covers: all axes but that of records."""
    shape = node.shape or ()
    return shape[1:] if node.is_record else shape


class PostedRuns:
    """What a rank posted to each variable of a set of subfiles, as runs of elements.

    Many variables are posted with the same list of runs, the same object: a result about a list, or about two lists
    together, is computed once. Lists are kept as long as their results, as the `id` of a freed list may become that of
    another one.

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
