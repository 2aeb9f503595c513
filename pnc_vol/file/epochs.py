"""Ranks agree on what their drivers hold back, by epochs, and when headers follow to the file.

Knows: the verbs of `drivers.holding`, ranks and their nodes, the bytes of headers. Does not know: requests, variables.

Rules
-----
1. Each flush ends an epoch. Its header is held by the driver of rank 0, and follows to the file at the first collective
   call at which all ranks report that their data of the epoch are there. They report it in a reduction.
2. So the header in the file is that of an earlier epoch, and a kill leaves the file valid at that epoch. A header that
   follows is replaced by the rules of every header: with a journal, and with syncs where these are asked for.
3. What needs the data of all ranks in the file (a new layout, deleted variables, a durable flush, `File.sync`, the
   close) drains first: each rank waits for its own data, and a call says that all have. The header in the file knows
   the old places until then.
4. If a header fails to follow half way, the journal stays, and the same header is written again before any other.
5. After a flush with data, other nodes hold data that this node cannot see, where they announced that they would write,
   until a flush says otherwise. What a rank wrote itself it sees meanwhile.
6. Where a flush would write what another rank may hold of an earlier epoch, it drains first (`held_ranges`).
7. A flush does not return while what it has promised is in the memory of a process alone: if a driver can hold nothing
   back any more, data and header are in the file before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.holding import EVERY_EPOCH, Unwritten
from pnc_vol.errors import SyncError
from pnc_vol.format.encode import changed_parts, only_numrecs_differs
from pnc_vol.late import late
from pnc_vol.ranks.comm import Comm, on_every
from pnc_vol.warn import FILE, WARNING, tell

if TYPE_CHECKING:
    from pnc_vol.file import held_ranges
    from pnc_vol.file.held_ranges import HeldRanges, Spans
else:
    # few drivers hold bytes back
    held_ranges = late("pnc_vol.file.held_ranges")

__all__ = ["Epochs", "fall_back"]

_ELSEWHERE = (
    "what is read may be among flushed data that {} still has in its cache, and the file does not have yet. Call "
    "f.sync() or read inside 'with ds.collective:', on all ranks; or open the file with e10_cache=coherent, to wait"
)


class Epochs:
    """The epochs of an open file.

    Attributes
    ----------
    holding : bool
        Whether the ranks hold bytes back, as of the last agreement; the same on all ranks.
    apart : bool
        Whether some ranks cannot see what others hold back, as they are on other nodes; the same on all ranks.
    settled : bool
        Whether all data and the header were in the file at the last agreement; the same on all ranks.
    failed : bool
        Whether some rank could not write what it holds; the same on all ranks.
    unwritten : list of Unwritten, what this rank could not write.
    """

    __slots__ = (
        "_begun", "_comm", "_disk", "_ended", "_headers", "_in_file", "_known", "_overlapped", "_ranges", "_written",
        "apart", "failed", "holding", "settled", "unwritten",
    )  # fmt: skip

    def __init__(self, comm: Comm, disk: StoredFile) -> None:
        self._comm, self._disk, self._known = comm, disk, disk.driver
        self._ended = self._written = 0
        self._headers: list[tuple[int, bytes]] = []
        self._begun: tuple[int, bytes] | None = None
        self._in_file = disk.header_bytes
        self._overlapped: tuple[int, int, bytes | None] = 0, 0, None
        """See `HeldRanges.newest_overlapped`; and what all ranks announced that they are about to write."""
        self._ranges: HeldRanges | None = None
        self.unwritten: list[Unwritten] = []
        self.holding = disk.driver.synced_epoch() < EVERY_EPOCH
        self.settled, self.failed, self.apart = True, False, False
        if self.holding and comm.size > 1:
            # All ranks are together now; asked for later, it would be one more call.
            comm.nodes()

    @property
    def ranges(self) -> HeldRanges:
        """What ranks may hold back, and where."""
        if self._ranges is None:
            self._ranges = held_ranges.HeldRanges(self._comm.rank)
        return self._ranges

    @property
    def _driver(self) -> Driver:
        """The driver in use; a new layout has another one, which counts its epochs from 1."""
        if self._disk.driver is not self._known:
            self._known, self._ended, self._written = self._disk.driver, 0, 0
        return self._known

    # ------------------------------------------------------------------------------- at an agreement

    def reports(self) -> bool:
        """Return whether this rank has something to tell at the beginning of a flush: it may hold bytes or a header
        back."""
        return self._driver.synced_epoch() < EVERY_EPOCH or bool(self._headers)

    def meet(self, reported: bool, spans: Callable[[], Spans]) -> None:
        """Learn what all ranks hold back (collective: one reduction, and a merge of what they are about to write).

        Parameters
        ----------
        reported : bool, some rank has something to tell; the same on all ranks. If not, no call is made.
        spans : callable, what this rank is about to write.

        Raises
        ------
        OSError
            On rank 0: a header could not follow; it is still held, and the next call tries again.
        """
        self.holding = self.failed = self.apart = False
        self.settled = True
        if not reported:
            return
        comm, synced = self._comm, self._driver.synced_epoch()
        self.unwritten += self._driver.failures()
        announced = self.ranges.announced(spans()) if comm.size > 1 else held_ranges.NO_SPANS
        late = synced < self._written
        unseen = comm.size > 1 and not (self._driver.sees_node and comm.nodes().single)
        overlapped = self.ranges.newest_overlapped(announced)
        facts = (~synced, bool(self._headers), bool(self.unwritten), len(announced), *overlapped, unseen)
        most, (behind,) = comm.agree("flush held", (*facts, *self._bits(late)), (late,))
        least = ~most[0]
        self.holding, self.failed = least < EVERY_EPOCH, bool(most[2])
        self.settled = least >= self._ended and not most[1]
        self.apart = self.holding and bool(most[6])
        owned = None
        if most[3]:
            own = held_ranges.owned_by(comm.rank, announced)
            owned = comm.merge("flush held ranges", own, held_ranges.joined_owned)
        self._overlapped = most[4], most[5], owned
        self._release(min(least, self._ended))
        if comm.size > 1 and not (self._elsewhere(most[len(facts) :]) if self._driver.sees_node else behind > late):
            self._driver.note_elsewhere("")

    def _bits(self, late: bool) -> list[int]:
        """Return whether this rank is late, for each bit of its node's number and each value of it.

        The largest of these of all ranks tell whether a rank of another node is late: its number differs in some bit.
        """
        if self._comm.size == 1:
            return []
        nodes = self._comm.nodes()
        own = nodes.of(self._comm.rank)
        bits = range((len(nodes.lowest) - 1).bit_length())
        return [late and (own >> bit & 1) == value for bit in bits for value in (0, 1)]

    def _elsewhere(self, late: Sequence[int]) -> bool:
        """Return whether a rank of another node is late, from what `_bits` announced of all."""
        own = self._comm.nodes().of(self._comm.rank)
        return any(late[2 * bit + 1 - (own >> bit & 1)] for bit in range(len(late) // 2))

    def must_wait(self, *, together: bool) -> bool:
        """Return whether this flush would write what another rank may hold of an earlier epoch; the same on all
        ranks."""
        others, every, _ = self._overlapped
        return self._comm.size > 1 and self.holding and self.ranges.keeps(every if together else others)

    def may_write_alone(self, spans: Callable[[], Spans]) -> bool:
        """Return whether this rank may write between two flushes, as no other one holds earlier data back there.

        It is taken to do so then.

        spans : callable, says where; it is called if drivers of several ranks hold anything back.
        """
        if not self.holding or self._comm.size == 1:
            return True
        where = spans()
        if self.ranges.meets_others(where):
            return False
        self.ranges.note_alone(where)
        return True

    # ----------------------------------------------------------------------------------- in an epoch

    def drain(self, operation: str) -> None:
        """Bring all data of all ranks to the file, and the headers of the epochs that ended (collective).

        Raises
        ------
        OSError
            Some of it could not be written, and is still held; the same on all ranks.
        """
        on_every(self._comm, operation, self._driver.drain)
        self.drained(present=False)

    def drained(self, *, present: bool) -> None:
        """All ranks have drained, as a call said: headers follow (collective, without a call of its own).

        present : bool, the header of the present epoch is written next, and need not be held.

        Raises
        ------
        OSError
            As `meet`.
        """
        self._driver.note_elsewhere("")
        self._written = 0
        self._release(self._ended + present)

    def stop_holding(self, trouble: str) -> None:
        """Hold nothing back from now on (collective): what a flush could not put into a log goes to the file.

        trouble : see `fall_back`.

        Raises
        ------
        OSError
            As `drain`.
        """
        text = "%s: the cache is given up on all ranks: %s"
        tell(FILE, WARNING, text, self._disk.path, trouble)
        for call in (partial(fall_back, self._driver, trouble), partial(self.drained, present=False)):
            on_every(self._comm, "flush fall back", call)
        self.holding = False

    def hold(self, encoded: bytes) -> None:
        """The header of the present epoch was written, and is held."""
        self._headers.append((self._ended + 1, encoded))

    def wrote_header(self, encoded: bytes) -> None:
        """The header was written, and is in the file."""
        self._in_file = encoded

    def end(self, *, wrote: bool, together: bool) -> None:
        """The present epoch has ended on all ranks.

        Parameters
        ----------
        wrote : bool, some rank may hold data of it.
        together : bool, ranks wrote for others.
        """
        if self._driver is self._known and self.holding:
            self._ended += 1
            if wrote:
                self._written = self._ended
                self.ranges.wrote(self._ended, self._overlapped[2], together=together)
                if self.apart:
                    node = self._driver.sees_node
                    where = self.ranges.of_others(self._ended, self._comm.nodes(), node=node)
                    text = _ELSEWHERE.format("another node" if node else "another rank")
                    self._driver.note_elsewhere(text, where)

    def leave(self) -> tuple[int, int]:
        """Take part in nothing any more; return whether all data are in the file, and the last ended epoch."""
        if self.left_at_close():
            return 0, self._ended
        try:
            self._driver.drain()
        except OSError:
            return 0, self._ended
        return 1, self._ended

    def follow(self, epoch: int) -> None:
        """All ranks have left, and their data up to this epoch are in the file: so is its header then.

        Raises
        ------
        OSError
            As `meet`.
        """
        self._release(min(epoch, self._ended))
        self.holding = False

    @property
    def pending(self) -> bool:
        """Whether ranks hold back what is to follow to the file when they leave it; the same on all ranks."""
        return (self.holding or bool(self._headers)) and not self.left_at_close()

    def left_at_close(self) -> bool:
        """Return whether what is held stays in its caches when the file is closed
        (``e10_cache_flush_flag=flush_none``)."""
        return self._driver.hints().get("e10_cache_flush_flag") == "flush_none"

    def take_unwritten(self) -> list[Unwritten]:
        """Return what this rank could not write since it was asked last."""
        found, self.unwritten = self.unwritten, []
        return found

    # ----------------------------------------------------------------------------------------- inner

    def _release(self, epoch: int) -> None:
        due = [header for header in self._headers if header[0] <= epoch]
        if due and self._comm.rank == 0:
            if self._begun is not None:
                self._follow(*self._begun)
            self._follow(*due[-1])
        self._driver.release(epoch)
        self.ranges.forget(epoch)
        if due:
            self._headers, self._in_file = self._headers[len(due) :], due[-1][1]

    def _follow(self, epoch: int, encoded: bytes) -> None:
        """Let a held header follow to the file; on rank 0."""
        disk, location = self._disk, self._disk.location
        if location is None or not location.at_stake or only_numrecs_differs(self._in_file, encoded):
            self._driver.release(epoch)
        else:
            sync = location.sync_data if disk.lasting and disk.sync_error is None else None
            self._begun = epoch, encoded
            try:
                parts = changed_parts(self._in_file, encoded)
                with location.journalled(self._in_file, encoded, parts, sync=sync):
                    self._driver.release(epoch)
            except SyncError as error:
                # The other ranks hear of it from rank 0 when they ask for durability.
                disk.note_sync_error(error)
                raise
            self._begun = None
        self._in_file = encoded


def fall_back(driver: Driver, trouble: str) -> None:
    """Hold nothing back from now on, if a rank cannot do so any more (collective, without a call of its own).

    Parameters
    ----------
    trouble : str, why, with the ranks; the same on all ranks. "" for none.

    Raises
    ------
    OSError
        What this rank holds could not be written to the file; it is still held.
    """
    if trouble:
        driver.stop_holding(trouble)
