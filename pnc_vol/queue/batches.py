"""Posted bytes with their rows: what every queue store makes, and what a flush writes.

Knows: rows, memory. Does not know: variables' places, headers, ranks, stores.

Rules
-----
1. A batch holds the rows of some variables and can copy any piece of their bytes, in the file's byte order.
2. Batches are written one after another, in the order of posting, so a later one wins over an earlier one.
3. What a batch can do is declared (`store`, `drains`, `streamed`, `whole`); nobody asks for its class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Int64
from pnc_vol.late import late
from pnc_vol.queue.rows import COLUMNS, Item, Listed, Rows, Tables

if TYPE_CHECKING:
    from pnc_vol.drivers import byte_copy
    from pnc_vol.format import convert
else:
    convert = late("pnc_vol.format.convert")
    byte_copy = late("pnc_vol.drivers.byte_copy")

__all__ = ["Batch", "MemoryBatch", "RowsOf", "UserArrayBatch", "changed", "posted", "without"]

Bytes = npt.NDArray[np.uint8]


class Batch(Protocol):
    """Some posted rows with their bytes."""

    @property
    def store(self) -> object:
        """The store that keeps the bytes and is told which of its batches are left; None if none needs to know."""

    @property
    def rows_in(self) -> object:
        """The spill file that its rows are in; None if they are in memory."""

    @property
    def drains(self) -> bool:
        """Whether a queue that is full may write it before the flush."""

    @property
    def streamed(self) -> bool:
        """Whether it is never loaded: its bytes are copied in blocks, and not joined with other ranks' data."""

    @property
    def whole(self) -> Tables | None:
        """All of it as it was posted, if it can be planned at once; None otherwise."""

    @property
    def size(self) -> int:
        """Bytes that `load` needs room for."""

    def uids(self) -> list[int]:
        """The variables that have rows here."""

    def rows(self, uid: int) -> Rows:
        """The rows of one variable, in posting order; none if it has none here."""

    def items(self, uid: int) -> Sequence[Item]:
        """What `rows` says, in parts, lists of runs as they are."""

    def sizes(self, uid: int) -> list[int]:
        """The runs of each of the `items`, without looking at them."""

    def keep(self, rows: Mapping[int, Rows]) -> Batch:
        """The same bytes with other rows."""

    def change(self, rows: Mapping[int, Rows]) -> Batch:
        """The same bytes with other rows of some variables; a variable that has none left is gone."""

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        """``target[t:t+n] = bytes[a:a+n]`` for each piece; pieces are whole elements of one variable."""

    def load(self, room: Bytes) -> Bytes:
        """All bytes, indexed by address; `room` may be used to hold them."""


def posted(batches: Sequence[Batch]) -> set[int]:
    """The requests that have rows."""
    return {number for batch in batches for uid in batch.uids() for number in batch.rows(uid)[:, 0].tolist()}


def without(batches: Sequence[Batch], requests: set[int]) -> tuple[list[Batch], int]:
    """The batches without the rows of some requests, and how many rows these had."""
    gone = 0
    left: list[Batch] = []
    numbers = np.fromiter(requests, np.int64, len(requests))
    for batch in batches:
        changed = {}
        for uid in batch.uids():
            rows = batch.rows(uid)
            kept = rows[~np.isin(rows[:, 0], numbers)]
            if len(kept) < len(rows):
                gone += len(rows) - len(kept)
                changed[uid] = kept
        left.append(batch.change(changed) if changed else batch)
    return left, gone


class RowsOf:
    """Rows by variable, in memory: what most batches are made of."""

    store: object = None
    rows_in: object = None
    drains = True
    streamed = False
    size = 0

    def __init__(self, rows: Mapping[int, Rows]) -> None:
        self._rows: Mapping[int, Rows] = rows

    @property
    def whole(self) -> Tables | None:
        return None

    def uids(self) -> list[int]:
        return list(self._rows)

    def rows(self, uid: int) -> Rows:
        found = self._rows.get(uid)
        return np.empty((0, COLUMNS), np.int64) if found is None else found

    def items(self, uid: int) -> Sequence[Item]:
        return [self.rows(uid)]

    def sizes(self, uid: int) -> list[int]:
        found = self._rows.get(uid)
        return [0 if found is None else len(found)]

    def keep(self, rows: Mapping[int, Rows]) -> Batch:
        raise NotImplementedError

    def change(self, rows: Mapping[int, Rows]) -> Batch:
        return self.keep(changed(self._rows, rows))


def changed(rows: Mapping[int, Rows], others: Mapping[int, Rows]) -> dict[int, Rows]:
    """Rows by variable, with others of some; a variable that has none left is gone."""
    return {uid: found for uid, found in (dict(rows) | dict(others)).items() if len(found)}


class MemoryBatch(RowsOf):
    """Bytes in one array, such as a queue's arena; an address is an index into it.

    listed : mapping of uid to lists of runs in the order of posting; of variables that have no rows.
    """

    def __init__(
        self,
        rows: Mapping[int, Rows],
        arena: Bytes,
        listed: Mapping[int, Sequence[Listed]] | None = None,
        store: object = None,
    ) -> None:
        super().__init__(rows)
        self.store = store
        self.arena = arena
        self.listed = dict(listed or {})

    def uids(self) -> list[int]:
        own = self._rows.uids if isinstance(self._rows, Tables) else list(self._rows)
        return own + [uid for uid in self.listed if uid not in self._rows]

    def rows(self, uid: int) -> Rows:
        found = self.listed.get(uid) if self.listed else None
        return super().rows(uid) if found is None else np.concatenate([item.rows() for item in found])

    def items(self, uid: int) -> Sequence[Item]:
        return self.listed[uid] if uid in self.listed else [self.rows(uid)]

    def sizes(self, uid: int) -> list[int]:
        listed = self.listed.get(uid)
        return super().sizes(uid) if listed is None else [len(item.runs.start) for item in listed]

    def keep(self, rows: Mapping[int, Rows]) -> MemoryBatch:
        return MemoryBatch(rows, self.arena, store=self.store)

    def change(self, rows: Mapping[int, Rows]) -> MemoryBatch:
        listed = {uid: found for uid, found in self.listed.items() if uid not in rows}
        return MemoryBatch(changed(self._rows, rows), self.arena, listed, self.store)

    @property
    def whole(self) -> Tables | None:
        # Only if nothing was taken out and nothing is a list.
        return self._rows if isinstance(self._rows, Tables) and not self.listed else None

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        byte_copy.copy_pieces(target, target_place, self.arena, address, nbytes)

    def load(self, room: Bytes) -> Bytes:
        return self.arena


class UserArrayBatch(RowsOf):
    """An array of the user's, posted by ``iput`` without a copy; it does not change until the request is complete.

    array : uint8[n], its bytes, in C order and the machine's byte order.
    swap : int, bytes of a value, for the file's byte order.
    """

    streamed = True

    def __init__(self, rows: Mapping[int, Rows], array: Bytes, swap: int) -> None:
        super().__init__(rows)
        self.array = array
        self.swap = swap

    def keep(self, rows: Mapping[int, Rows]) -> UserArrayBatch:
        return UserArrayBatch(rows, self.array, self.swap)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        if len(nbytes) == 1:
            # Most blocks of a stream are one piece: no array between is needed.
            at, n, begin = int(target_place[0]), int(nbytes[0]), int(address[0])
            target[at : at + n] = self.array[begin : begin + n]
            convert.swap_in_place(target[at : at + n], self.swap)
            return
        ends = np.cumsum(nbytes)
        packed = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        byte_copy.copy_pieces(packed, ends - nbytes, self.array, address, nbytes)
        convert.swap_in_place(packed, self.swap)
        byte_copy.copy_pieces(target, target_place, packed, ends - nbytes, nbytes)

    def load(self, room: Bytes) -> Bytes:
        raise NotImplementedError("a user's array is written in blocks, never loaded whole")
