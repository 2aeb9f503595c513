"""The definitions of an open file: its objects and attributes, and the header that they make.

Knows: the tree, headers without begins. Does not know: what is on disk, requests.
"""

from __future__ import annotations

from pnc_vol.format.model import Header
from pnc_vol.mapping.index import Flat, numrecs_of
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

    @property
    def dirty(self) -> bool:
        """True if definitions changed since the last flush."""
        return self.tree.version != self.flushed_version

    @property
    def numrecs(self) -> int:
        """Records of the file, those not flushed yet included."""
        return numrecs_of(self.tree)
