"""Places that variables get before the flush that puts them in the header, so that they can be written at once.

Knows: the header in force, datasets in the order of their definition. Does not know: what is posted, ranks.

Rules
-----
1. An *early place* lies behind the reserved header region, or behind the last variable of fixed size.
2. Places are given in the order of definition, deleted variables counted. So every rank gives the same one without
   asking another.
3. Record variables get none, because the record size changes with each of them; nor do strings of varying length,
   because they may grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pnc_vol.format.model import Dim, Header, Var
from pnc_vol.format.sizes import begin_rec, inner_bytes, is_record
from pnc_vol.layout.places import Place
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.settings.options import Options

__all__ = ["EarlyPlaces"]


class EarlyPlaces:
    """The early places of one header in force.

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
        """`header` with these variables as if they were in it; only begins, types and sizes count in it."""
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
