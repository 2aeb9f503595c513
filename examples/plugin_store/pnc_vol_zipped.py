"""A queue store of another package: posted values wait in memory compressed, so that more of them fit the budget.

pip install examples/plugin_store
File("x.nc", "w", store="zipped")

Rules
-----
1. A post is compressed by itself; a read or a flush takes apart what it needs.
2. The values of a batch are at most half a budget when they are taken apart, and are given up with it.
"""

from __future__ import annotations

import sys
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.extents.model import Int64, Runs
from pnc_vol.extents.selection import Selection
from pnc_vol.format.numeric import Overflow, to_file
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, Table
from pnc_vol.queue.stores import ROW_COST, Capabilities, Store, StoreContext, register

Bytes = npt.NDArray[np.uint8]


class Posts:
    """Compressed posts: addresses count the bytes of their values, one post behind the other."""

    def __init__(self) -> None:
        self.first: list[int] = []  # address of each post
        self.zipped: list[bytes] = []
        self.size = self.nbytes = 0  # of the values, and compressed

    def add(self, zipped: bytes, size: int) -> int:
        """Keep a post; its address."""
        address = self.size
        self.zipped.append(zipped)
        self.first.append(address)
        self.size, self.nbytes = address + size, self.nbytes + len(zipped)
        return address


class ZippedBatch(Batch):
    """Rows, and the compressed posts that they are about."""

    def __init__(self, store: Store, table: Table, posts: Posts) -> None:
        super().__init__(table)
        self.store, self.posts, self.size = store, posts, posts.size

    def keep(self, table: Table) -> ZippedBatch:
        return ZippedBatch(self.store, table, self.posts)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        known, values = -1, b""
        for at, begin, n in zip(target_place.tolist(), address.tolist(), nbytes.tolist(), strict=True):
            while n:
                post = bisect_right(self.posts.first, begin) - 1
                if post != known:
                    known, values = post, zlib.decompress(self.posts.zipped[post])
                inside = begin - self.posts.first[post]
                part = values[inside : inside + n]
                target[at : at + len(part)] = np.frombuffer(part, np.uint8)
                at, begin, n = at + len(part), begin + len(part), n - len(part)

    def load(self, room: Bytes) -> Bytes:
        whole = room[: self.size] if room.nbytes >= self.size else np.empty(self.size, np.uint8)
        for first, zipped in zip(self.posts.first, self.posts.zipped, strict=True):
            values = np.frombuffer(zlib.decompress(zipped), np.uint8)
            whole[first : first + len(values)] = values
        return whole


class ZippedStore(Store):
    """Compressed values in memory."""

    capabilities = Capabilities()

    def __init__(self, context: StoreContext) -> None:
        super().__init__(context.backlog)
        self.posts = Posts()

    @classmethod
    def open(cls, context: StoreContext) -> ZippedStore:
        return cls(context)

    @property
    def nbytes(self) -> int:
        """Compressed bytes that wait; of a batch that was cut in two they count twice."""
        return self.posts.nbytes + sum(batch.posts.nbytes for batch in self.batches if isinstance(batch, ZippedBatch))

    def put(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        selection: Selection | None,
        found: Runs,
        on_overflow: Overflow,
    ) -> bool:
        itemsize, backlog = node.element.itemsize, self.backlog
        size = values.size * itemsize
        if size > backlog.budget // 2:
            return False
        room = np.empty(size, np.uint8)
        to_file(values, node.element.file_dtype, room, on_overflow=on_overflow, what=node.name)
        zipped = zlib.compress(room, 1)
        rows = backlog.rows + len(found.start)
        if self.nbytes + len(zipped) + rows * ROW_COST > backlog.budget:
            return False
        if self.posts.size + size > backlog.budget // 2:
            self.close_batch()
        address = self.posts.add(zipped, size)
        backlog.post_runs(node.uid, request, found, address, itemsize)
        return True

    def close_batch(self) -> None:
        if self.backlog.table:
            # If memory runs out here, nothing has changed yet.
            batch = ZippedBatch(self, self.backlog.open_table(), self.posts)
            self.add(batch)
            self.posts = Posts()
            self.backlog.clear_open()

    def open_batch(self) -> Batch:
        return ZippedBatch(self, self.backlog.no_rows(), self.posts)

    def retain(self, left: Sequence[Batch]) -> None:
        if not self.backlog.table:
            self.posts = Posts()
        super().retain(left)

    def close(self, *, flushed: bool, empty: bool) -> None:
        self.batches, self.posts = [], Posts()


def main(path: str) -> None:
    """Post more than the budget; nothing is written before the flush."""
    register("zipped", ZippedStore.open)
    with pnc_vol.File(path, "w", store="zipped", buffer_size=1 << 20) as f:
        x = f.create_dataset("x", (64, 16384), "f4")
        f.flush()
        for step in range(64):
            x[step] = np.full(16384, step)
        print("posted:", x.nbytes, "bytes; drained before the flush:", f.statistics().get("bytes_drained", 0))
        print("read back before the flush:", x[10, :3].tolist())
    with pnc_vol.File(path) as f:
        print("in the file:", f["x"][:3, 0].tolist())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "zipped.nc")
