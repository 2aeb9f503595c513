"""A driver that holds bytes back, as a node-local cache does, has these optional verbs.

Knows: epochs, extents. Does not know: any driver.

An *epoch* is what is written between two ends of a flush: epoch 1 up to the first `end_flush`, epoch 2 up to the second
one. All ranks call `end_flush` the same number of times, so that an epoch has one number on all of them.

What is written before `order` is the data of the epoch; it may go to the file at any time. What is written between
`order` and `end_flush` is the header and the record count of the epoch, which describe the data of all ranks. They go
to the file when `release` has said that all ranks' data of this epoch are there, and not before. No driver knows of
other ranks: it counts its epochs, and the session compares the counts (`file.epochs`).

Rules
-----
1. A driver that holds nothing back inherits all of it: the verbs do nothing, and every epoch is in the file. So no
   caller asks what kind of driver there is.
2. None of these verbs waits for another rank. The caller exchanges what they return and raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents

__all__ = ["EVERY_EPOCH", "NOWHERE", "Holds", "PassesOn", "Phase", "Unwritten"]

EVERY_EPOCH = 1 << 62
"""`synced_epoch` of a driver that holds nothing back."""
NOWHERE: npt.NDArray[np.int64] = np.empty((0, 2), np.int64)
"""No ranges."""


class Phase(NamedTuple):
    """Something that a driver did by itself, for a timeline.

    name : str
        Of a cache: ``"copy to cache"``, ``"sync read"``, ``"sync write"``, ``"waiting"`` (for bytes in flight, a lock,
        or the sync threads), ``"non-hidden sync"`` (what a caller waits in `drain`, `sync` and `close`).
    start, seconds : float, by `time.perf_counter`, when it began and how long it took.
    nbytes : int
    thread : int, 0 for the caller's thread, 1, 2... for the driver's own threads.
    """

    name: str
    start: float
    seconds: float
    nbytes: int = 0
    thread: int = 0


class Unwritten(NamedTuple):
    """Bytes that a thread could not bring to the file.

    offset, nbytes : int, in the file.
    error : OSError, with an errno; its text names the cache file that still has the bytes.
    """

    offset: int
    nbytes: int
    error: OSError


class Holds:
    """What every driver answers; a driver that holds bytes back overrides it."""

    sees_node: bool = False
    """Whether reads see, after a flush, what other processes of the node hold back."""

    def synced_epoch(self) -> int:
        """Return the highest ended epoch of which this process has brought all data to the file; see `EVERY_EPOCH`.

        The header of the epoch does not count, nor what was written since the last `end_flush`.
        """
        return EVERY_EPOCH

    def release(self, epoch: int) -> None:
        """All ranks have brought the data of all epochs up to `epoch` to the file: what is held for these may follow.

        `epoch` may be the present one, which has not ended: after all ranks have drained, just before its header is
        written. Then that header is not held but written at once.

        Raises
        ------
        OSError
            It could not be written, and is still held; a later call tries again.
        """

    def unorder(self) -> None:
        """The flush that called `order` has failed: what is written from now on is data of the epoch again.

        What it wrote since then, the header, is forgotten where it is held: the next flush writes another one.
        """

    def hold_headers(self) -> None:
        """Let headers that are held follow only at a `release`, also where this process has the data of all ranks.

        Other files that they describe are not complete: what is held at the end stays where a recovery finds it.
        """

    def drain(self) -> None:
        """Return when all data that this process wrote are in the file; what is not yet released stays held.

        Raises
        ------
        OSError
            Some could not be written, now or by a thread before. They are still held, and a later call tries again.
        """

    def unsynced(self) -> Extents:
        """Return what this process holds that is not in the file yet, sorted and disjoint; `place` is the running
        sum."""
        return Extents(*np.zeros((3, 0), np.int64))

    def trouble(self) -> str:
        """Return why this process cannot hold bytes back any more, e.g. a full device; "" if it can.

        It writes through from there. What is held for `release` then may be in memory alone. The ranks agree on
        `stop_holding` when one of them has trouble: before a header is written, and at the end of a flush.
        """
        return ""

    def stop_holding(self, reason: str) -> None:
        """Bring all data to the file as `drain` does, and write through from now on.

        Raises
        ------
        OSError
            As `drain`. Also then nothing more is held back but what could not be written.
        """

    def failures(self) -> list[Unwritten]:
        """Return what threads of this process could not write to the file since this was asked last.

        It is still held, and `drain` tries again, as do the threads after the next `end_flush`.
        """
        return []

    def hints(self) -> dict[str, str]:
        """Return the hints in force, also after `stop_holding`, for ``File.hints``."""
        return {}

    def note_elsewhere(self, reason: str, where: npt.NDArray[np.int64] = NOWHERE) -> None:
        """An epoch has ended, and others hold bytes of it back that a read here cannot see; or nobody does any more.

        Others are other nodes, or, without `sees_node`, other processes. Until `release` of this epoch `read` raises
        `NotSyncedError` for bytes in `where` that it does not find in the caches that it can see, unless this process
        wrote them last, in this epoch or a later one.

        Parameters
        ----------
        reason : str, why a read has to wait; "" if nobody holds anything back that cannot be seen here.
        where : int64[n, 2], sorted and disjoint, the first byte and the one behind the last: where they wrote at most.
        """

    def leave(self) -> None:
        """Let go of what holds bytes back, and not of the driver below, of which a close may be collective.

        Bytes that are not in the file stay where a recovery finds them.
        """

    def observe(self, note: Callable[[Phase], None]) -> None:
        """Call `note` with each `Phase` from now on, in the thread that it happened in."""


class PassesOn(Holds):
    """A wrapper: all verbs go to the driver below, `inner`."""

    inner: Holds

    @property
    def sees_node(self) -> bool:  # type: ignore[override]
        return self.inner.sees_node

    def synced_epoch(self) -> int:
        return self.inner.synced_epoch()

    def release(self, epoch: int) -> None:
        self.inner.release(epoch)

    def unorder(self) -> None:
        self.inner.unorder()

    def hold_headers(self) -> None:
        self.inner.hold_headers()

    def drain(self) -> None:
        self.inner.drain()

    def unsynced(self) -> Extents:
        return self.inner.unsynced()

    def trouble(self) -> str:
        return self.inner.trouble()

    def stop_holding(self, reason: str) -> None:
        self.inner.stop_holding(reason)

    def failures(self) -> list[Unwritten]:
        return self.inner.failures()

    def hints(self) -> dict[str, str]:
        return self.inner.hints()

    def note_elsewhere(self, reason: str, where: npt.NDArray[np.int64] = NOWHERE) -> None:
        self.inner.note_elsewhere(reason, where)

    def leave(self) -> None:
        self.inner.leave()

    def observe(self, note: Callable[[Phase], None]) -> None:
        self.inner.observe(note)
