"""`Definitions` holds the objects and attributes of an open file, and the header that they make.

Knows: the tree, headers, the layout in force. Does not know: requests, ranks, how a header gets into the file.

Rules
-----
1. The header is made in two steps: without begins (`flatten`), which ranks compare, and with begins (`lay_out`). Both
   are kept until something changes.
2. The cost of a change of attributes, or of the number of records, follows what changed, not what is there. What comes
   of it is the same as if all had been made anew; where that is not sure, all is made anew.
3. What is posted can be written: the size limits of the file's version are checked when something is defined. Below
   some size everything fits; above it, the header is laid out as a flush would do it.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import TYPE_CHECKING

from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.errors import DefinitionError
from pnc_vol.format.encode import header_size, take_as_read
from pnc_vol.format.limits import MAX_HEADER_BYTES, check_length, check_limits
from pnc_vol.format.model import MAX_BYTES, Header, data_end, record_vars
from pnc_vol.layout.base import Layout
from pnc_vol.mapping.flatten import Flat, changed, numrecs_for, numrecs_of, to_header
from pnc_vol.mapping.tree import Changes, DatasetNode, GroupNode, Tree, lengths_of

if TYPE_CHECKING:
    from pnc_vol.extents.decomposition import Decomposition

__all__ = ["FEW_RECORDS", "Definitions"]

FEW_RECORDS = (1 << 31) - 1
"""Records that every version can count."""

_LEAST_RESERVE = 4096

_SURELY = {1: 1 << 30, 2: 1 << 30, 5: 1 << 62}
"""Bytes that a version can hold, whatever variables they are in."""


class Definitions:
    """What is defined, flushed or not.

    Attributes
    ----------
    tree : Tree
    version : int, 1, 2 or 5: the CDF format.
    flat : Flat or None, the tree as a header without begins, as it was at `flat_version` of the tree.
    with_begins : (Flat, Header) or None
        The same with begins: `Flat.header` itself where all variables that it has in common with the layout in force
        lie where they lay, and new ones behind them.
    flushed_version : int, the version of the tree that the file has.
    widened : dict of int to int
        Strings that grew, here or elsewhere, by uid: the width in bytes that all ranks know.
    size_used : int
        Bytes of what is defined, or was; below 0 until they are counted, see `check_room`.
    decompositions : dict of int to Decomposition
        Which elements of datasets this process owns, by uid: those that were created with a decomposition.
    ordered_by_place, drain_agreed : bool
        Whether the datasets are in the order that a drain gave them, and whether all ranks know of the drain.
    """

    __slots__ = (
        "decompositions",
        "drain_agreed",
        "flat",
        "flat_version",
        "flushed_version",
        "ordered_by_place",
        "size_used",
        "tree",
        "version",
        "widened",
        "with_begins",
    )

    def __init__(self, tree: Tree, version: int) -> None:
        self.tree = tree
        self.version = version
        self.flat: Flat | None = None
        self.flat_version = self.size_used = -1
        self.with_begins: tuple[Flat, Header] | None = None
        self.flushed_version = tree.version
        self.widened: dict[int, int] = {}
        self.ordered_by_place = self.drain_agreed = False
        self.decompositions: dict[int, Decomposition] = {}

    def begin_as_read(self, layout: Layout, encoded: bytes) -> None:
        """Begin with the header that was read, and whose bytes these are, if it is as this library makes them.

        Then what nobody changes stays as it is in the file, and the next flush follows from what changed. Several ranks
        do not begin so: they compare what they define, and a rank that made a dataset and deleted it again would make
        its header anew, unlike the others.
        """
        tree, header = self.tree, layout.header
        if tree.findings or not (layout.self_contained and take_as_read(header, encoded)):
            return
        if GroupNode not in set(map(type, dict.values(tree.root.children))):
            tree.all_groups = [], {}
        self.flat = Flat(header, layout.uids, None, None, lengths_of(tree.datasets), set())
        self.flat_version, self.with_begins = tree.version, (self.flat, header)
        tree.changed = Changes(set(), {}, [], {})

    def decompose(self, node: DatasetNode, owned: Decomposition) -> None:
        """Note which elements of a dataset this process owns.

        Raises
        ------
        SelectionTypeError, SelectionValueError, SelectionIndexError
            They do not fit the shape of the dataset, or of a record of it.
        """
        owned.owned((node.shape or ())[1 if node.is_record else 0 :])
        self.decompositions[node.uid] = owned

    def flushed(self, header: Header) -> None:
        """The file has the definitions as they are now, under this header."""
        self.tree.records = header.numrecs if header.numrecs and record_vars(header) else 0
        self.flushed_version = self.tree.version

    def note_agreed(self) -> None:
        """All ranks know the order and the widths of what is defined: a layout is in force that has them."""
        self.tree.history.clear()
        self.widened.clear()
        self.ordered_by_place = self.drain_agreed = False

    def note_drain(self) -> None:
        """All ranks know that there was a drain."""
        self.drain_agreed = True

    def widen(self, placed: Collection[int]) -> None:
        """Give strings that grew a quarter more than they had, if that is more than they need.

        The file is copied when a string that has its place in it becomes wider, and so it is not for each byte more.

        placed : collection of int, uids of the variables that have their place.
        """
        for uid, known in self.widened.items():
            node = self.tree.datasets.get(uid)
            if node is not None and uid in placed and node.element.itemsize < known + known // 4:
                node.element = node.element.widened(known + known // 4)
                self.tree.touch()

    # ------------------------------------------------------------------------------------------ the header

    def flatten(self, layout: Layout, *, common: bool) -> Flat:
        """Return the definitions as a header without begins.

        Parameters
        ----------
        layout : Layout, the one in force.
        common : bool
            As all ranks know them before they agreed, because the digest of the definitions must not depend on what one
            rank posted: strings that grew here count with their old width, and what was drained here keeps its turn,
            until all ranks know of the drain.

        Raises
        ------
        DefinitionError
            The version cannot hold them.
        """
        tree = self.tree
        if layout.drained and not self.ordered_by_place and (not common or self.drain_agreed):
            self._order_by_place(layout)
        if common and self.widened:
            return self.make_header(common=True)
        if self.flat is None or self.flat_version != tree.version:
            self.flat = self._changed(layout) or self.make_header()
            self.flat_version = tree.version
            tree.changed = Changes(set(), {}, [], {})
        return self.flat

    def _order_by_place(self, layout: Layout) -> None:
        """Let the datasets stand in the order in which a drain gave them their places.

        Begins increase in the order of the header, or strict readers refuse the file.
        """
        tree = self.tree
        _, uids = layout.with_early_places(tree)
        ordered = {uid: tree.datasets[uid] for uid in uids if uid in tree.datasets} | tree.datasets
        if list(ordered) != list(tree.datasets):
            tree.datasets = ordered
            tree.touch()
        self.ordered_by_place = True

    def make_header(self, *, common: bool = False) -> Flat:
        """Return the header without begins, made of the whole tree and not kept; see `flatten`.

        Raises
        ------
        DefinitionError
            The version cannot hold it.
        """
        tree = self.tree
        grown = {uid: tree.datasets[uid].element for uid in self.widened if uid in tree.datasets} if common else {}
        try:
            for uid, element in grown.items():
                tree.datasets[uid].element = element.widened(self.widened[uid])
            flat = to_header(tree, version=self.version)
        finally:
            for uid, element in grown.items():
                tree.datasets[uid].element = element
        numrecs = numrecs_for(tree, flat.lengths)
        if numrecs:
            flat = flat._replace(header=flat.header.with_numrecs(numrecs))
        check_limits(flat.header)
        return flat

    def _changed(self, layout: Layout) -> Flat | None:
        """Return the header from that of the flush before, with begins if they are the same; None if more has changed.

        Where the header is still as long as its region or shorter, and new variables have a place behind the others,
        all that stay lie where they lay.
        """
        old, known, there = self.flat, self.with_begins, layout.header
        if old is None:
            return None
        stays = known is not None and known[0] is old and not layout.drained and there.vars is known[1].vars
        # With the bytes and the begins that it has in the file.
        header = there.with_numrecs(old.header.numrecs) if stays else old.header
        new = changed(old, header, self.tree, layout.begins_behind if stays else None)
        if new is None:
            return None
        check_limits(new.header)
        if stays and (new.header.facts is header.facts or _fits(header, new, layout)):
            self.with_begins = new, new.header
        return new

    def lay_out(self, flat: Flat, disk: StoredFile, *, closing: bool = False) -> Header:
        """Return the header with begins: what the file's header will be.

        Raises
        ------
        DefinitionError
            It cannot be laid out.
        """
        layout = disk.layout
        # the header of a set of files is in none of them
        size = 0 if layout.several_files else header_size(flat.header)
        if size > MAX_HEADER_BYTES:
            raise DefinitionError(
                f"The header, with all attributes, has {size} bytes; at most {MAX_HEADER_BYTES} are read again. Make "
                "datasets of long attributes."
            )
        reserve = layout.options.header_reserve
        if reserve is None:
            # A file whose first flush is the close is complete, and packed; one that is flushed while it is open will
            # be defined further. A fixed reserve would be waste for small files and too small for large ones.
            reserve = 0 if closing else max(_LEAST_RESERVE, size)
        # Never where a longer header was: its bytes would be read as data.
        least = max(size + reserve, len(disk.header_bytes))
        header = layout.with_begins(flat.header, flat.uids, self.tree, reserve=max(reserve, size), least=least)
        self.with_begins = flat, header
        return header

    def next_layout(self, flat: Flat, disk: StoredFile, *, closing: bool = False) -> Layout:
        """Return the layout that the header of a flush has; the one in force if that is the same.

        Raises
        ------
        DefinitionError
            It cannot be laid out.
        """
        layout, known = disk.layout, self.with_begins
        if known is not None and known[0] is flat and not layout.drained:
            header = known[1]
        else:
            header = self.lay_out(flat, disk, closing=closing)
        if header is not layout.header or layout.drained:
            layout = layout.successor(header, flat.uids, self.tree.datasets, stays=header is flat.header)
            # Known by its identity the next time, where an equal one is in force.
            self.with_begins = flat, layout.header
        return layout

    def with_records(self, header: Header, numrecs: int) -> Header:
        """Return `header` with a record count; if that is smaller than wanted, no dataset says that it is longer."""
        tree = self.tree
        if numrecs < header.numrecs:
            longer = {node: node.shape for node in tree.datasets.values() if node.is_record and node.shape}
            for node, shape in longer.items():
                node.shape = (min(shape[0], numrecs), *shape[1:])
            flat = to_header(tree, version=self.version).header
            for node, shape in longer.items():
                node.shape = shape
            placed = zip(flat.vars, header.vars, strict=True)
            header = flat.replaced(vars=tuple(var._replace(begin=at.begin) for var, at in placed))
        return header.with_numrecs(numrecs)

    # ------------------------------------------------------------------------------------- size limits

    def check_room(self, node: DatasetNode, disk: StoredFile) -> None:
        """Refuse a dataset, already in the tree, that the file's version cannot hold together with the others.

        Raises
        ------
        DefinitionError
            Naming the variable that is too large or would begin too far, and the version that could hold it.
        """
        _check_empty(node, node.shape or ())
        if self.size_used < 0:
            self.size_used = data_end(disk.header) if disk.header.vars else 0
        self.size_used += _nbytes(node)
        if self.size_used >= _SURELY[self.version]:
            self.lay_out(self.make_header(), disk)
        if node.is_record and node.shape and node.shape[0] > FEW_RECORDS:
            self.check_records(node, node.shape[0])

    def check_records(self, node: DatasetNode, records: int) -> None:
        """Refuse more records than the file's version can count, or than a file can hold.

        Raises
        ------
        DefinitionError
        """
        _check_empty(node, (records, *(node.shape or ())[1:]))
        what = f"{node.path} with {records} records"
        check_length(f"{what}: the record dimension", records, self.version)
        nbytes = records * sum(_nbytes(one) for one in self.tree.datasets.values() if one.is_record)
        if nbytes > MAX_BYTES:
            raise DefinitionError(f"{what}: all records together have {nbytes} bytes; a file holds {MAX_BYTES}.")

    @property
    def dirty(self) -> bool:
        """True if definitions changed since the last flush."""
        return self.tree.version != self.flushed_version

    @property
    def numrecs(self) -> int:
        """Records of the file, those not flushed yet included."""
        return numrecs_of(self.tree)


def _fits(old: Header, new: Flat, layout: Layout) -> bool:
    """Return whether a header, of whose variables none moved, still fits its region, and new variables have their
    places."""
    region, size, n = layout.region.first, header_size(new.header), len(old.vars)
    # Without variables the file ends with its header, which may not become shorter like this.
    fits = size >= header_size(old) if region is None else size <= region
    return fits and (len(new.uids) <= n or new.header.vars[n].begin >= 0)


def _check_empty(node: DatasetNode, shape: tuple[int, ...]) -> None:
    """Refuse a shape without elements of which numpy has no array: its other axes are multiplied, too."""
    if 0 in shape and prod(n or 1 for n in shape) * node.element.dtype.itemsize > MAX_BYTES:
        raise DefinitionError(f"dataset {node.path!r}: numpy has no empty array of shape {shape}")


def _nbytes(node: DatasetNode) -> int:
    """Return the number of bytes of a dataset, of one record if it has records."""
    shape = (node.shape or ())[1 if node.is_record else 0 :]
    own = 0 if node.parts else prod(shape) * node.element.itemsize
    return own + sum(_nbytes(part) for part in node.parts.values())
