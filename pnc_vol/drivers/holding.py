"""A `Holder` keeps bytes back from the file, as that of a node-local cache does; each driver of a stack names its own.

Knows: epochs, extents. Does not know: any driver, what a header says.

An *epoch* is what is written between two ends of a flush: epoch 1 up to the first `end_flush`, epoch 2 up to the second
one. All ranks call `end_flush` the same number of times, so that an epoch has one number on all of them.

What is written through the driver is data, and may go to the file at any time. The header of an epoch describes the
data of all ranks: while these are held back it is not written, but `hold` keeps it where a recovery finds it, on rank 0
alone. The session (`file.epochs`) writes it to the driver `below` when all ranks report that their data of the epoch
are in the file, and then says so with `release`. No holder knows of other ranks, or writes a header.

States
------
Of the header of one epoch, on rank 0. A kill at any moment leaves what the last two columns say.

=========  ==========================================  =========  =====================  ===============================
state      event                                       next       in the file            what a recovery writes
=========  ==========================================  =========  =====================  ===============================
made       `hold`                                      pending    that of an earlier     that of an earlier epoch
                                                                  epoch
pending    `end_flush` on all ranks                    ended      the same               the same
pending    a later header of the epoch is held, or     gone       as that one has it     as that one has it
           is written
ended      the data of all ranks are in the file;      following  the same               this one, after the data
           the session writes the header
ended      a later header is written or follows        released   the later one          the later one
following  an error                                    ended      the same, or a         this one
                                                                  journal
following  it is written: `release`                    released   this one               this one, again
=========  ==========================================  =========  =====================  ===============================

Rules
-----
1. Where nothing is held back, `Driver.holder` is one for which every epoch is in the file. So no caller asks what kind
   of driver there is.
2. No method waits for another rank. The caller exchanges what they return and raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents

if TYPE_CHECKING:
    from pnc_vol.drivers.base import Driver

__all__ = ["EVERY_EPOCH", "HOLDS_NOTHING", "NOWHERE", "Holder", "Phase", "Unwritten"]

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


class Holder:
    """What every driver's holder answers; this one holds nothing back.

    Attributes
    ----------
    below : Driver or None
        What is written to it goes to the file at once: headers do. None where nothing is held back.
    sees_node : bool, whether reads see, after a flush, what other processes of the node hold back.
    """

    below: Driver | None = None

    @property
    def sees_node(self) -> bool:
        return False

    # ---------------------------------------------------------------------------------------------- headers

    def hold(self, offset: int, header: bytes, reach: int) -> None:
        """Keep the header of the present epoch for a recovery, until `release`; it comes after all data of the epoch.

        Parameters
        ----------
        offset, header : int and bytes, what is to be written, the record count alone for one.
        reach : int, bytes that the file has then at least.
        """

    def release(self, epoch: int) -> None:
        """All ranks' data of all epochs up to `epoch`, and what was held for these, are in the file."""

    # ------------------------------------------------------------------------------------------------- data

    def synced_epoch(self) -> int:
        """Return the highest ended epoch of which this process has brought all data to the file; see `EVERY_EPOCH`.

        The header of the epoch does not count, nor what was written since the last `end_flush`.
        """
        return EVERY_EPOCH

    def unsynced(self) -> Extents:
        """Return what this process holds that is not in the file yet, sorted and disjoint; `place` is the running
        sum."""
        return Extents(*np.zeros((3, 0), np.int64))

    def drain(self, *, stop: str = "") -> None:
        """Return when all data that this process wrote are in the file.

        stop : str, why nothing is to be held back from now on, also if this fails; "" to go on.

        Raises
        ------
        OSError
            Some could not be written, now or by a thread before. They are still held, and a later call tries again.
        """

    def failures(self) -> list[Unwritten]:
        """Return what threads of this process could not write to the file since this was asked last.

        It is still held, and `drain` tries again, as do the threads after the next `end_flush`.
        """
        return []

    def trouble(self) -> str:
        """Return why this process cannot hold bytes back any more, e.g. a full device; "" if it can.

        It writes through from there. A header that is held then may be in memory alone. The ranks agree to stop when
        one of them has trouble: before a header is written, and at the end of a flush.
        """
        return ""

    # ------------------------------------------------------------------------------------------------ others

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

    def hints(self) -> dict[str, str]:
        """Return the hints in force, also when nothing is held any more, for ``File.hints``."""
        return {}

    def observe(self, note: Callable[[Phase], None]) -> None:
        """Call `note` with each `Phase` from now on, in the thread that it happened in."""


HOLDS_NOTHING = Holder()
