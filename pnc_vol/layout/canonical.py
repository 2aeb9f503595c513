"""Which variables have a place in the file now, and where.

Knows: the header in force, the tree, the rule by which new variables get a place before any flush. Does not
know: files, data, ranks; what it says is the same on all ranks because it follows from definitions alone.

Rules
-----
1. A variable of the header in force lies where the header says, until a flush says otherwise.
2. A fixed-size variable defined since is *pinned*: behind the reserved header region (or the last fixed-size
   variable), in the order of definition, deleted ones counted. So a rank may write it before a flush without
   asking anybody, and every rank would write it to the same place.
3. What is not pinned (record variables, because the record size changes with each; strings of varying length,
   because they may grow) waits for a flush, in the queue or its spill file.
4. A variable whose unwritten elements must be filled waits as well: a fill that comes after data would erase it. So
   does one that lost records.
"""

from __future__ import annotations

import math
from copy import copy
from itertools import repeat
from typing import Any

from pnc_vol.format.model import Dim, Header, Var
from pnc_vol.format.sizes import begin_rec, inner_bytes, inner_sizes, is_record, record_size, record_vars
from pnc_vol.layout.places import Place
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.options import Options

__all__ = ["CanonicalLayout", "LostRecords"]

LostRecords = dict[int, tuple[int, int]]
"""See `Layout.lost_records`."""


class CanonicalLayout:
    """The layout in force.

    Attributes
    ----------
    header : Header, with begins; what the file says, or will say of what is in it.
    uids : tuple of int, the dataset of each variable of `header`.
    places : dict of uid to Place
    record_size : int, bytes.
    records : int, records that may hold data: those of the header, or more if a drain went beyond.
    unwritten_reads_zero : bool, True if every byte that nobody wrote reads as zero, but for `stale_gaps`.
    stale_gaps : bool, True if that is not known of the space between the variables of the header (of deleted ones).
    early_reads_zero : bool, it was so where the pinned variables lie, when they got their places.
    layout : object, the same one where all that differs are attributes.
    same_places_header : Header or None, one with the same layout and other attributes.
    lost_records : dict of uid to (int, int)
        Record variables that lost records since the last flush: how many they were left, and how many the header in the
        file may give them. What the file holds beyond the first number is theirs no more, and is filled at the flush.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.unwritten_reads_zero = True
        self.stale_gaps = False
        self.adopt(Header(options.version), (), {})

    def adopt(self, header: Header, uids: tuple[int, ...], datasets: dict[int, DatasetNode]) -> None:
        """Take a header over as the one in force."""
        self.header = header
        self.uids = uids
        self.header_uids = frozenset(uids)
        self.record_size = record_size(header)
        self.records = header.numrecs
        self._places: dict[int, Place] | None = None
        # Strings may grow after this, and then their data are as wide as they were.
        self._itemsizes = [datasets[uid].element.itemsize for uid in uids]
        self.record_uids = {uids[i] for i in record_vars(header)}
        self.layout = object()
        self._begin()

    def _begin(self) -> None:
        """Nothing has happened yet to this layout."""
        self.same_places_header: Header | None = None
        self.facts: dict[int, Any] = {}
        """What `direct` knows of variables."""
        self.lost_records: LostRecords = {}
        self._pins: dict[int, int] = {}
        self._seen = 0
        self._cursor: int | None = None
        self._full = False
        self.drained = False
        self.early_reads_zero = False

    def under_header(self, header: Header) -> CanonicalLayout:
        """The same layout under a header with other attributes, without any drain."""
        made = copy(self)
        made.header, made.records = header, header.numrecs
        made._begin()
        return made

    @property
    def places(self) -> dict[int, Place]:
        """Made when somebody first asks: whoever only looks at definitions never does."""
        if self._places is None:
            begins, inner = [var[4] for var in self.header.vars], [0] * len(self.uids)
            strides = inner.copy()
            if self.record_uids:
                sizes = inner_sizes(self.header)
                for i in record_vars(self.header):
                    inner[i], strides[i] = max(1, sizes[i] // self._itemsizes[i]), self.record_size
            columns = zip(begins, self._itemsizes, inner, strides, strict=True)
            self._places = dict(zip(self.uids, map(tuple.__new__, repeat(Place), columns), strict=True))
        return self._places

    def note_unknown_bytes(self) -> None:
        """Note that bytes that nobody posted may be anywhere: no further variable gets a place before a flush."""
        self.unwritten_reads_zero = False
        self.early_reads_zero &= self.drained
        self._full = True

    def lose_records(self, uid: int, records: int, before: int) -> None:
        """Note that a variable has lost what it had from some record on, of `before` records."""
        if uid in self.record_uids:
            first, live = self.lost_records.get(uid, (records, min(before, self.header.numrecs)))
            self.lost_records[uid] = min(records, first), live

    # ------------------------------------------------------------------------------------------ pins

    def pin(self, tree: Tree) -> None:
        """Give a place to what was defined since the header in force; see rule 2."""
        if self._cursor is None:
            ends = [
                var.begin + inner_bytes(self.header, var) for var in self.header.vars if not is_record(self.header, var)
            ]
            self._cursor = max(ends, default=self.options.drain_reserve)
            self.early_reads_zero = self.unwritten_reads_zero and not (
                self.stale_gaps and begin_rec(self.header) is not None
            )
            # With records in force there is only the gap before them.
            self._limit = begin_rec(self.header)
        for node in tree.history[self._seen :]:
            self._seen += 1
            if self._full or node.is_record or node.element.kind == "vlen_string":
                continue
            itemsize = node.element.itemsize
            nbytes = itemsize * math.prod(node.shape or ()) if not node.is_placeholder else itemsize
            align = math.lcm(max(4, -(-self.options.var_align // 4) * 4), 8 if itemsize % 8 == 0 else 4)
            begin = -(-self._cursor // align) * align
            if self._limit is not None and begin + nbytes > self._limit:
                self._full = True
                continue
            self._pins[node.uid] = begin
            self._cursor = begin + nbytes
            self.places.setdefault(node.uid, Place(begin, itemsize, 0, 0))

    def with_early_places(self, tree: Tree) -> tuple[Header, tuple[int, ...]]:
        """The header in force with the pinned variables as if they were in it: what a flush must not move lightly.

        Only begins, types and sizes count in it; its names are not for a file.
        """
        if not self.drained:
            return self.header, self.uids
        self.pin(tree)
        dims, found, uids = list(self.header.dims), list(self.header.vars), list(self.uids)
        position = next((i for i, var in enumerate(found) if is_record(self.header, var)), len(found))
        for uid, begin in self._pins.items():
            node = tree.datasets.get(uid)
            if node is None:
                continue
            shape = () if node.is_placeholder else node.shape or ()
            ids = []
            for n in (*shape, *node.element.trailing):
                dims.append(Dim(f"d{len(dims)}", n))
                ids.append(len(dims) - 1)
            found.insert(position, Var(f"pin{uid}", tuple(ids), (), node.element.nc_type, begin))
            uids.insert(position, uid)
            position += 1
        header = Header(self.header.version, self.records, tuple(dims), self.header.attrs, tuple(found))
        return header, tuple(uids)

    # ------------------------------------------------------------------------------------- questions

    def writable(self, tree: Tree, uids: list[int]) -> dict[int, Place]:
        """The places of those variables that may be written before the next flush."""
        if self.options.ordered:
            return {}
        self.pin(tree)
        same_records = self._records_settled(tree)
        found = {}
        for uid in uids:
            node, place = tree.datasets.get(uid), self.places.get(uid)
            if node is None or place is None or place.itemsize != node.element.itemsize:
                continue
            if uid in self.record_uids:
                if not same_records or uid in self.lost_records:
                    continue
                if (node.fillvalue is not None or not self.unwritten_reads_zero) and (node.shape or (0,))[
                    0
                ] > self.header.numrecs:
                    continue
            elif (
                uid in self._pins and uid not in self.uids and (node.fillvalue is not None or not self.early_reads_zero)
            ):
                continue
            found[uid] = place
        return found

    def _records_settled(self, tree: Tree) -> bool:
        return self.record_uids == {
            uid for uid, node in tree.datasets.items() if node.is_record and not node.is_placeholder
        }

    def note_written(self, tree: Tree, uids: list[int]) -> None:
        """Note that data of these variables went to the file before a flush."""
        self.drained = True
        for uid in uids:
            if uid in self.record_uids:
                self.records = max(self.records, (tree.datasets[uid].shape or (0,))[0])
