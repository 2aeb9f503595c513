"""A wrapper that holds every write back and passes it on as late, and in as bad an order, as the protocol allows.

    register("hold", HoldingDriver)
    with File(path, "w", driver="hold | posix") as f: ...

It shows whether what stands above it says where order matters: the writes between two calls of `order` reach the file
in reverse. After each of them the file is what a killed process would leave.

`HeldHeaders` holds headers over any driver, as a session of one rank does, and lets them follow.

Knows: the driver protocol. Does not know: what is written. For one process, and for small files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pnc_vol.errors import ClosedFileError, ReadOnlyError
from pnc_vol.testing.driver_suite import Driver, Extents, Wrapper, extents_of

__all__ = ["HeldHeaders", "HoldingDriver"]


class HoldingDriver(Wrapper):
    """Holds all writes until `sync` or `close`.

    Attributes
    ----------
    after_each : callable or None
        Called after each write that is passed on.
    """

    name = "hold"

    def __init__(self, inner: Driver, *, writable: bool = True) -> None:
        super().__init__(inner)
        self.after_each: Callable[[], None] | None = None
        self._writable = writable
        self._closed = False
        self._content = bytearray(inner.size())
        if self._content:
            inner.read(extents_of((0, len(self._content), 0)), np.frombuffer(self._content, np.uint8))
        # What was written since the last `order`: ranges; and before it: lists of ranges with their bytes, or a size.
        self._ranges: list[tuple[int, int]] = []
        self._epochs: list[list[tuple[int, bytes]] | int] = []

    @classmethod
    def declares(cls, below: Any) -> Any:
        return below._replace(holds_back=True, mapping=False, concurrent=False)

    @classmethod
    def over(cls, inner: Driver, context: Any, **options: Any) -> HoldingDriver:
        return cls(inner, writable=context.writable, **options)

    def read(self, extents: Extents, memory: Any, *, collective: bool = False) -> int:
        self._check()
        _refuse(extents, memory)
        count = 0
        for o, n, p in zip(*(column.tolist() for column in extents), strict=True):
            found = self._content[o : o + n]
            memory[p : p + len(found)] = np.frombuffer(bytes(found), np.uint8)
            count += len(found)
        return count

    def write(self, extents: Extents, memory: Any, *, collective: bool = False) -> None:
        self._check(writing=True)
        _refuse(extents, memory)
        for o, n, p in zip(*(column.tolist() for column in extents), strict=True):
            if n:
                self._content.extend(bytes(max(0, o + n - len(self._content))))
                self._content[o : o + n] = memory[p : p + n].tobytes()
                self._ranges.append((o, o + n))

    def size(self) -> int:
        self._check()
        return len(self._content)

    def resize(self, nbytes: int) -> None:
        self._check(writing=True)
        self.order()
        self._content = self._content[:nbytes] + bytes(max(0, nbytes - len(self._content)))
        self._epochs.append(nbytes)

    def order(self) -> None:
        # Of a range that was written twice only the last bytes are known: that is what `order` allows.
        if self._ranges:
            self._epochs.append([(low, bytes(self._content[low:high])) for low, high in self._ranges])
            self._ranges = []

    def end_flush(self) -> None:
        self.order()

    def sync(self) -> None:
        self._check()
        self._pass_on()
        self.inner.sync()

    def close(self) -> None:
        if not self._closed:
            self._pass_on()
            self._closed = True
            self.inner.close()

    def _pass_on(self) -> None:
        self.order()
        while self._epochs:
            epoch = self._epochs.pop(0)
            if isinstance(epoch, int):
                self.inner.resize(epoch)
                continue
            for offset, data in reversed(epoch):
                self.inner.write(extents_of((offset, len(data), 0)), np.frombuffer(data, np.uint8))
                if self.after_each is not None:
                    self.after_each()

    def _check(self, *, writing: bool = False) -> None:
        if self._closed:
            raise ClosedFileError(f"The file {self.path!r} is closed")
        if writing and not self._writable:
            raise ReadOnlyError(f"The file {self.path!r} is open for reading")


class HeldHeaders:
    """The headers of the epochs of a driver, which begin the file."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._ended = driver, 0
        self._waiting: list[tuple[int, bytes, int]] = []

    def flush(self, header: bytes, reach: int = 0) -> None:
        """End an epoch, whose header is held."""
        self._driver.holder.hold(0, header, reach)
        self._driver.end_flush()
        self._ended += 1
        self._waiting.append((self._ended, header, reach))

    def follow(self) -> None:
        """Write the headers of epochs whose data are in the file; after an error the next call does it."""
        epoch = self._driver.holder.synced_epoch()
        while self._waiting and self._waiting[0][0] <= epoch:
            _, header, reach = self._waiting[0]
            self._driver.grow(reach)
            (self._driver.holder.below or self._driver).write_one(header, 0)
            self._waiting.pop(0)
        self._driver.holder.release(epoch)

    def close(self) -> None:
        """Close the driver, after all that was flushed is in the file, or an error."""
        try:
            self._driver.holder.drain()
            self.follow()
        finally:
            self._driver.close()


def _refuse(extents: Extents, memory: Any) -> None:
    if any(min(o, n, p) < 0 or p + n > len(memory) for o, n, p in zip(*extents, strict=True)):
        raise ValueError("outside of the memory, or before the file")
