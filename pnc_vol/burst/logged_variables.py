"""`LoggedVariable` encodes the values and entries of one dataset for a log.

Knows: datasets, selections, entries. Does not know: files, commit records.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.burst.encoding import encode_vara, encode_varn, encode_vars, itype_of, row_packer
from pnc_vol.burst.recent_posts import Packers
from pnc_vol.extents.model import Runs, Selection
from pnc_vol.extents.subarrays import as_subarrays
from pnc_vol.format.convert import Overflow, swap_in_place, to_file
from pnc_vol.mapping.dtypes import Dtype, Element
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["LoggedVariable"]


class LoggedVariable:
    """The logged definition of a dataset, and the encoders of its values and entries."""

    __slots__ = (
        "element", "entry_size", "inner", "itemsize", "itype", "native", "node", "pack", "path", "plain", "posts",
        "row_size", "shape", "unit", "version",
    )  # fmt: skip

    def __init__(self, node: DatasetNode) -> None:
        self.node = node
        self.version = node.tree.version
        self.shape, self.element, self.path = node.shape, node.element, node.path
        number = _number(node.element)
        self.itype, self.unit = itype_of(number), number.itemsize
        self.native = node.element.file_dtype.newbyteorder("=")
        self.itemsize = self.native.itemsize
        # The rest is prepared for `ShortPosts`, whose posts are too short to compute it each time.
        self.plain = self.native.kind in "iuf" and node.element.dtype == self.native
        rest = (node.shape or ())[1:]
        self.inner = math.prod(rest) if rest else 0
        self.row_size = self.inner or 1
        head, self.pack, row = row_packer(self.itype, node.uid, rest)
        self.entry_size = 56 + 16 * len(rest)
        self.posts = Packers(head, row if rest else b"", self.inner, self.itemsize)

    def outdate(self) -> None:
        """Let the next post define the dataset again."""
        self.shape, self.version = None, -1

    def holds(self, node: DatasetNode) -> bool:
        """Return whether the dataset is as it was logged."""
        version = node.tree.version
        if version == self.version:
            return True
        if node.shape != self.shape or node.element is not self.element or node.path != self.path:
            return False
        self.version = version
        return True

    def payload(self, values: npt.NDArray[Any], on_overflow: Overflow) -> memoryview:
        """Return the values as bytes of the variable's type in the machine's byte order; a view if that is what they
        are."""
        if not self.plain and self.native.kind == "V":
            values = np.ascontiguousarray(values)
        if values.dtype == self.native and values.flags.c_contiguous:
            # `memoryview` of a simple type takes a quarter of the time of numpy's view.
            if self.plain:
                return values.data.cast("B")
            raw = values.reshape(-1).view(np.uint8)
            if self.element.kind == "array":
                raw = raw.copy()
                swap_in_place(raw, self.unit)
            return raw.data
        made = np.empty(values.size * self.itemsize, np.uint8)
        to_file(values, self.native, made, on_overflow=on_overflow, what=self.node.name)
        return made.data

    def entry(
        self,
        varid: int,
        selection: Selection | None,
        one: tuple[int, int] | None,
        found: Runs | None,
        at: int,
        nbytes: int,
    ) -> bytes:
        """Return the entry of a request in the words of the variable's own dimensions, hidden ones included."""
        trailing = self.element.trailing
        zeros = (0,) * len(trailing)
        if selection is not None and selection.index is None and selection.listed is None:
            start, count, stride = selection.start, selection.count, selection.stride
            if trailing:
                start, count, stride = (*start, *zeros), (*count, *trailing), (*stride, *(1 for _ in zeros))
            if max(stride, default=1) == 1:
                return encode_vara(self.itype, varid, start, count, at, nbytes)
            return encode_vars(self.itype, varid, start, count, stride, at, nbytes)
        if found is None:
            assert one is not None
            found = Runs(np.array(one[:1], np.int64), np.array(one[1:], np.int64))
        shape = self.shape or ()
        if shape and len(found.start):
            # Records may be written beyond the end of a dataset, where the file has more of them.
            inner = math.prod(shape[1:])
            shape = (max(shape[0], int((found.start + found.length).max() - 1) // inner + 1), *shape[1:])
        starts, counts = as_subarrays(shape, found)
        hidden = np.zeros((len(starts), len(zeros)), np.int64)
        whole = hidden + np.array(trailing, np.int64)
        return encode_varn(self.itype, varid, np.hstack((starts, hidden)), np.hstack((counts, whole)), at, nbytes)


def _number(element: Element) -> Dtype:
    """Return the type of the numbers that an element is made of, in the words of PnetCDF: those of the variable."""
    dtype = element.file_dtype
    if element.kind == "array":
        return element.dtype.base
    if dtype.kind == "c":
        return np.dtype("f4" if dtype.itemsize == 8 else "f8")
    return np.dtype({"S": "S1", "V": "u1"}.get(dtype.kind, dtype))
