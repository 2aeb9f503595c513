"""The canonical layout is that of NetCDF files: every variable is where the header says.

Knows: headers, the tree, early places. Does not know: data, ranks.

Rules
-----
1. A variable of the header in force lies where the header says, until a flush says otherwise.
2. A variable of fixed size that was defined since has an early place (`early_places`), so that it can be written before
   a flush.
3. Data without a place stay in the queue or its spill file until a flush.
4. A variable whose unwritten elements must be filled waits as well, unless it is known which were written (`written`):
   a fill that comes after data would erase it. So does one that lost records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import ClassVar, cast

from pnc_vol.format import model, placing
from pnc_vol.format.model import MAX_OFFSET, Dim, Header, Region, Var, begin_rec, inner_bytes, is_record, pad4
from pnc_vol.format.placing import Alignment, Moves, grow, place
from pnc_vol.layout.base import MOST_WRITTEN, Layout, Place, Places
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.settings.options import Options

__all__ = ["CanonicalLayout", "EarlyPlaces"]

_make = tuple.__new__


class CanonicalLayout(Layout):
    """All data in the file with the header, as the NetCDF classic format has it."""

    name: ClassVar[str] = "canonical"
    affine = self_contained = relocates = several_ranks = True

    element_align: ClassVar[int] = 8
    """What the begins of variables of 8-byte types are multiples of; see `Alignment`."""

    @property
    def _early(self) -> EarlyPlaces:
        if self.early is None:
            self.early = EarlyPlaces()
        return self.early  # type: ignore[no-any-return]

    def made_maps(self) -> Places:
        """Return the places, from the columns of the header at once."""
        begins, inner = [var[4] for var in self.header.vars], [0] * len(self.uids)
        strides = inner.copy()
        if self.record_uids:
            nbytes, record_size = model.inner_sizes(self.header), model.record_size(self.header)
            for i in model.record_vars(self.header):
                inner[i], strides[i] = max(1, nbytes[i] // self.itemsizes[i]), record_size
        columns = zip(begins, self.itemsizes, inner, strides, strict=True)
        return Places(zip(self.uids, map(tuple.__new__, repeat(Place), columns), strict=True))

    def place_of(self, uid: int) -> Place | None:
        uids = self.uids
        if self._maps is None and uid < len(uids) and uids[uid] == uid and uid not in self.record_uids:
            # As numbers and uids are in a file that was opened: of 100,000 variables few may be read.
            return _make(Place, (self.header.vars[uid][4], self.itemsizes[uid], 0, 0))
        return super().place_of(uid)

    def with_begins(self, new: Header, uids: tuple[int, ...], tree: Tree, *, reserve: int, least: int) -> Header:
        """Place variables; those that hold data stay where they are if that is possible, see `format.placing`."""
        alignment = Alignment(self.options.var_align, self.options.record_align, element_align=self.element_align)
        base, base_uids = self.with_early_places(tree)
        if base.vars:
            return grow(base, new, _origin(base_uids, uids), alignment, reserve=reserve)
        return place(new, alignment, header_extent=least)

    def begins_behind(self, new: Header) -> list[int] | None:
        """Return the begins that `placing.grow` gives them, if the space before the records is enough."""
        first, end, records, _ = self.region
        if not self.self_contained or self.drained or first is None:
            return None
        # without a fixed variable there is no space before the records
        begins, end = [], max(first, end)
        alignment = Alignment(self.options.var_align, self.options.record_align, element_align=self.element_align)
        for var, nbytes in zip(new.vars, model.inner_sizes(new), strict=True):
            step = alignment.step_of(var[3])
            begins.append(-(-end // step) * step)
            end = begins[-1] + pad4(nbytes)
        return begins if end <= (records if self.record_uids else MAX_OFFSET) else None

    def _follow(self, before: Layout, uids: tuple[int, ...], datasets: Mapping[int, DatasetNode]) -> None:
        super()._follow(before, uids, datasets)
        header, n = self.header, len(before.uids)
        if len(uids) < n:
            return
        if before._maps is not None:
            self._maps = Places(before._maps)
            for uid, var, itemsize in zip(uids[n:], header.vars[n:], self.itemsizes[n:], strict=True):
                self._maps[uid] = Place(var[4], itemsize, 0, 0)
        first, _, records, stride = before.region
        self.region = Region(first, header.vars[-1][4] + pad4(model.inner_sizes(header)[-1]), records, stride)

    def needs_move(self, target: Layout, tree: Tree) -> bool:
        return placing.needs_move(*self._carried(target, tree))

    def moves(self, target: Layout, tree: Tree) -> Moves:
        return placing.moves(*self._carried(target, tree))

    def _carried(self, target: Layout, tree: Tree) -> tuple[Header, Header, list[int | None]]:
        """Return what is moved: the old header, the new one, and the variable of the old one that each new one carries
        on."""
        base, base_uids = self.with_early_places(tree)
        # Only records that are in the file are carried along.
        return base, target.header.with_numrecs(base.numrecs), _origin(base_uids, target.uids)

    def overwrites(self, live: Header, live_uids: tuple[int, ...], target: Layout) -> bool:
        return placing.overwrites(live, target.header, _origin(live_uids, target.uids))

    def data_end(self, header: Header) -> int:
        if header.vars is not self.header.vars:
            return model.data_end(header)
        _, end, start, stride = self.region
        return max(end, start + stride * header.numrecs) if header.numrecs else end

    # ------------------------------------------------------------------------------ writes before a flush

    def _give_early_places(self, tree: Tree) -> None:
        places = cast(dict[int, Place], self.maps)
        given = self._early.give(
            self.header, tree, self.options, zeros=self.unwritten.reads_zero, zero_gaps=not self.unwritten.stale_gaps
        )
        for uid, at in given:
            places.setdefault(uid, at)

    def with_early_places(self, tree: Tree) -> tuple[Header, tuple[int, ...]]:
        if not self.drained:
            return self.header, self.uids
        self._give_early_places(tree)
        return self._early.added_to(self.header, self.uids, tree, self.records)

    def has_early_place(self, uid: int) -> bool:
        return self.drained and self._early.reads_zero and uid in self.maps

    def note_unknown_bytes(self) -> None:
        super().note_unknown_bytes()
        self._early.reads_zero &= self.drained
        self._early.full = True

    def writable(self, tree: Tree, uids: list[int], *, alone: bool) -> Places:
        """Return the places of those variables that may be written before the next flush."""
        if self.options.ordered:
            return Places()
        self._give_early_places(tree)
        same_records = self._records_settled(tree)
        found = Places()
        for uid in uids:
            node, at = tree.datasets.get(uid), self.places.get(uid)
            if node is None or at is None or at.itemsize != node.element.itemsize:
                continue
            known = alone and (uid not in self.written or len(self.written[uid].start) <= MOST_WRITTEN)
            if uid in self.record_uids:
                if not same_records or uid in self.lost_records:
                    continue
                filled = not self.unwritten.reads_zero or (node.fillvalue is not None and not known)
                if filled and (node.shape or (0,))[0] > self.header.numrecs:
                    continue
            elif uid not in self.header_uids and not (self._early.reads_zero if node.fillvalue is None else known):
                continue
            found[uid] = at
        return found

    def _records_settled(self, tree: Tree) -> bool:
        return self.record_uids.keys() == {
            uid for uid, node in tree.datasets.items() if node.is_record and not node.is_placeholder
        }


def _origin(uids: tuple[int, ...], new: tuple[int, ...]) -> list[int | None]:
    """Return the variable of `uids` that each of `new` carries on, by its number."""
    if uids == new:
        return list(range(len(uids)))
    return list(map(dict(zip(uids, range(len(uids)), strict=True)).get, new))


class EarlyPlaces:
    """The early places of one header in force.

    Who drains asks no other rank, so every rank finds the same places by itself: they follow from the options and the
    order of definition, deleted variables counted. Record variables and strings of varying length have none, since
    the record size changes with each definition of a record variable, and strings may still grow.

    Attributes
    ----------
    begins : dict of uid to int
        Where each variable begins, in bytes.
    full : bool, no further variable gets an early place.
    reads_zero : bool, what nobody wrote in them reads as zero.
    """

    __slots__ = ("_end", "_limit", "_seen", "begins", "full", "reads_zero")

    def __init__(self) -> None:
        self.begins: dict[int, int] = {}
        self.full = self.reads_zero = False
        self._seen = 0
        self._end: int | None = None
        self._limit: int | None = None

    def give(self, header: Header, tree: Tree, options: Options, *, zeros: bool, zero_gaps: bool) -> Iterator[
        tuple[int, Place]
    ]:  # fmt: skip
        """Give a place to what was defined since the last call.

        Parameters
        ----------
        header : Header, in force; the same in all calls.
        zeros, zero_gaps : bool
            Whether bytes that nobody wrote read as zero: behind the data, and between the variables of `header`.
        """
        if self._end is None:
            ends = [var.begin + inner_bytes(header, var) for var in header.vars if not is_record(header, var)]
            self._end = max(ends, default=options.drain_reserve)
            # With records in force there is only the gap before them.
            self._limit = begin_rec(header)
            self.reads_zero = zeros and (zero_gaps or self._limit is None)
        for node in tree.history[self._seen :]:
            self._seen += 1
            if self.full or node.is_record or node.element.kind == "vlen_string":
                continue
            place = self._next(node, options.var_align)
            if place is not None:
                yield node.uid, place

    def _next(self, node: DatasetNode, var_align: int) -> Place | None:
        assert self._end is not None
        itemsize = node.element.itemsize
        nbytes = itemsize * math.prod(node.shape or ()) if not node.is_placeholder else itemsize
        align = math.lcm(max(4, -(-var_align // 4) * 4), 8 if itemsize % 8 == 0 else 4)
        begin = -(-self._end // align) * align
        if self._limit is not None and begin + nbytes > self._limit:
            self.full = True
            return None
        self.begins[node.uid] = begin
        self._end = begin + nbytes
        return Place(begin, itemsize, 0, 0)

    def added_to(self, header: Header, uids: tuple[int, ...], tree: Tree, numrecs: int) -> tuple[
        Header, tuple[int, ...]
    ]:  # fmt: skip
        """Return `header` with these variables as if they were in it; only begins, types and sizes count in it."""
        dims, found, every = list(header.dims), list(header.vars), list(uids)
        position = next((i for i, var in enumerate(found) if is_record(header, var)), len(found))
        for uid, begin in self.begins.items():
            node = tree.datasets.get(uid)
            if node is None:
                continue
            shape = () if node.is_placeholder else node.shape or ()
            ids = []
            for n in (*shape, *node.element.trailing):
                dims.append(Dim(f"d{len(dims)}", n))
                ids.append(len(dims) - 1)
            found.insert(position, Var(f"early{uid}", tuple(ids), (), node.element.nc_type, begin))
            every.insert(position, uid)
            position += 1
        return Header(header.version, numrecs, tuple(dims), header.attrs, tuple(found)), tuple(every)
