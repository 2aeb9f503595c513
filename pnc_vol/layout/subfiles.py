"""`Subfiles` puts several files below one space of addresses.

Knows: drivers, extents. Does not know: variables, headers, what is in which file.

Rules
-----
1. The upper bits of an address are the number of a file, the lower `SHIFT` bits the offset in it. File 0 is the one
   with the header.
2. A file is opened when it is first touched. One that is not there reads as empty.
3. ``collective=True`` counts for file 0 alone: each rank writes and reads the others by itself.
4. `sync` brings all files that this process wrote to stable storage, and those that were there before it, whose writer
   may not have done so; file 0 last. `close` closes all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver, Memory, Wrapper
from pnc_vol.drivers.holding import NOWHERE, Holder, Phase, Unwritten
from pnc_vol.extents.model import Extents, distinct
from pnc_vol.layout.base import OFFSET, SHIFT

__all__ = ["Subfiles", "by_file"]


class Subfiles(Wrapper):
    """A driver over addresses, on that of the file with the header.

    Parameters
    ----------
    inner : Driver, of file 0.
    open_file : function of int
        Opens the file of a number; None if it is not there, in a file that is read.
    earlier : iterable of int, optional
        Files that were there before this process wrote to any.
    """

    name = "subfiles"

    def __init__(self, inner: Driver, open_file: Callable[[int], Driver | None], earlier: Iterable[int] = ()) -> None:
        super().__init__(inner)
        self.holder = _Holders(self)
        self._open_file = open_file
        self._earlier = list(earlier)
        self._files: dict[int, Driver | None] = {0: inner}
        # two threads may carry one large request
        self._lock = threading.Lock()

    def _file(self, number: int) -> Driver | None:
        with self._lock:
            if number not in self._files:
                self._files[number] = self._open_file(number)
            return self._files[number]

    def _others(self) -> list[Driver]:
        return [file for number, file in self._files.items() if number and file is not None]

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        got = 0
        for number, part in by_file(extents, always=collective):
            file = self._file(number)
            if file is not None:
                got += file.read(part, memory, collective=collective and not number)
        return got

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        for number, part in by_file(extents, always=collective):
            file = self._file(number)
            if file is None:
                raise ValueError(f"{self.path}: there is no file {number} to write to")
            file.write(part, memory, collective=collective and not number)

    def order(self) -> None:
        for file in self._others():
            file.order()
        self.inner.order()

    def end_flush(self) -> None:
        for file in self._others():
            file.end_flush()
        self.inner.end_flush()

    def sync(self) -> None:
        for number in self._earlier:
            self._file(number)
        for file in self._others():
            file.sync()
        self.inner.sync()
        self._earlier.clear()

    def close(self) -> None:
        others, self._files = self._others(), {0: self.inner}
        with ExitStack() as closing:
            # all are closed, whichever of them fails
            for file in (self.inner, *reversed(others)):
                closing.callback(file.close)

    def statistics(self) -> dict[str, Any]:
        return {"subfiles.open": len(self._others())} | self.inner.statistics()

    def describe(self) -> str:
        # files are given to it by the layout: it is no word of ``driver=``
        return self.inner.describe()


class _Holders(Holder):
    """What all files hold back: that of the file with the header, which has it, and of the others what they have."""

    def __init__(self, files: Subfiles) -> None:
        self._files, self._first = files, files.inner.holder
        self.below = self._first.below

    @property
    def _others(self) -> list[Holder]:
        return [file.holder for file in self._files._others()]

    @property
    def sees_node(self) -> bool:
        return self._first.sees_node

    def hold(self, offset: int, header: bytes, reach: int) -> None:
        self._first.hold(offset, header, reach)

    def release(self, epoch: int) -> None:
        for one in (*self._others, self._first):
            one.release(epoch)

    def synced_epoch(self) -> int:
        return min(one.synced_epoch() for one in (*self._others, self._first))

    def unsynced(self) -> Extents:
        return self._first.unsynced()

    def drain(self, *, stop: str = "") -> None:
        for one in (*self._others, self._first):
            one.drain(stop=stop)

    def failures(self) -> list[Unwritten]:
        return self._first.failures()

    def trouble(self) -> str:
        return next(filter(None, (one.trouble() for one in (self._first, *self._others))), "")

    def note_elsewhere(self, reason: str, where: npt.NDArray[np.int64] = NOWHERE) -> None:
        self._first.note_elsewhere(reason, where)

    def leave(self) -> None:
        for one in (*self._others, self._first):
            one.leave()

    def hints(self) -> dict[str, str]:
        return self._first.hints()

    def observe(self, note: Callable[[Phase], None]) -> None:
        self._first.observe(note)


def by_file(extents: Extents, *, always: bool = False) -> Iterator[tuple[int, Extents]]:
    """Yield the extents of each file, with offsets in it; those of file 0 even if there are none, if `always`."""
    number = extents.offset >> SHIFT
    first, last = (int(number.min()), int(number.max())) if number.size else (0, 0)
    if first == last:
        if first and always:
            yield 0, Extents(extents.offset[:0], extents.length[:0], extents.place[:0])
        yield first, Extents(extents.offset & OFFSET, extents.length, extents.place)
        return
    for n in distinct(np.append(number, 0) if always else number).tolist():
        chosen = np.flatnonzero(number == n)
        yield n, Extents(extents.offset[chosen] & OFFSET, extents.length[chosen], extents.place[chosen])
