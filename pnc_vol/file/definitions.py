"""The definitions of an open file: its objects and attributes, and the header that they make.

Knows: the tree, headers without begins. Does not know: what is on disk, requests.
"""

from __future__ import annotations

from pnc_vol.format.model import Header
from pnc_vol.format.sizes import data_end, record_vars
from pnc_vol.mapping.flatten import Flat, numrecs_of
from pnc_vol.mapping.tree import Tree

__all__ = ["Definitions"]


class Definitions:
    """What is defined, flushed or not.

    Attributes
    ----------
    tree : Tree
    version : int, 1, 2 or 5: the CDF format.
    flat : Flat or None, the tree as a header without begins, as it was at `flat_version` of the tree.
    laid_out : (Flat, Header) or None, the same with begins.
    flushed_version : int, the version of the tree that the file has.
    widened : dict of int to int
        Strings that grew, here or elsewhere, by uid: the width in bytes that all ranks know.
    size_used : int
        Bytes of what is defined, or was; below 0 until they are counted, see `size_limits`.
    ordered_by_place, drain_agreed : bool
        Whether the datasets are in the order that a drain gave them, and whether all ranks know of the drain.
    """

    __slots__ = (
        "drain_agreed",
        "flat",
        "flat_version",
        "flushed_version",
        "laid_out",
        "ordered_by_place",
        "size_used",
        "tree",
        "version",
        "widened",
    )

    def __init__(self, tree: Tree, version: int) -> None:
        self.tree = tree
        self.version = version
        self.flat: Flat | None = None
        self.flat_version = self.size_used = -1
        self.laid_out: tuple[Flat, Header] | None = None
        self.flushed_version = tree.version
        self.widened: dict[int, int] = {}
        self.ordered_by_place = self.drain_agreed = False

    def flushed(self, header: Header) -> None:
        """The file has the definitions as they are now, under this header."""
        self.tree.records = header.numrecs if record_vars(header) else 0
        self.flushed_version = self.tree.version

    def settle_order(self) -> None:
        """All ranks know the order and the widths of what is defined: a layout is in force that has them."""
        self.tree.history.clear()
        self.widened.clear()
        self.ordered_by_place = self.drain_agreed = False

    def note_order(self) -> None:
        """The datasets stand in the order that a drain gave them."""
        self.ordered_by_place = True

    def note_drain(self) -> None:
        """All ranks know that there was a drain."""
        self.drain_agreed = True

    def keep_flat(self, flat: Flat) -> None:
        """Keep the header without begins until something changes."""
        self.flat, self.flat_version, self.tree.changed = flat, self.tree.version, set()

    def keep_header(self, flat: Flat, header: Header) -> None:
        """Keep the header with begins until something changes."""
        self.laid_out = flat, header

    def count_bytes(self, nbytes: int, stored: Header) -> int:
        """Count a new dataset; the bytes of all that is defined, or was."""
        if self.size_used < 0:
            self.size_used = data_end(stored) if stored.vars else 0
        self.size_used += nbytes
        return self.size_used

    @property
    def dirty(self) -> bool:
        """True if definitions changed since the last flush."""
        return self.tree.version != self.flushed_version

    @property
    def numrecs(self) -> int:
        """Records of the file, those not flushed yet included."""
        return numrecs_of(self.tree)
