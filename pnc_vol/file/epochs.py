"""Ranks agree on what their drivers hold back, by epochs, and when headers follow to the file.

Knows: what `drivers.holding` says, ranks and their nodes, the bytes of headers. Does not know: requests, variables.

Rules
-----
1. Each flush ends an epoch. Its header is held by rank 0, and follows to the file at the first collective call at which
   all ranks report that their data of the epoch are there. They report it in a reduction.
2. So the header in the file is that of an earlier epoch, and a kill leaves the file valid at that epoch. A header that
   follows is replaced by the rules of every header: with a journal, and with syncs where these are asked for.
3. What needs the data of all ranks in the file (a new layout, deleted variables, a durable flush, `File.sync`, the
   close) drains first: each rank waits for its own data, and a call says that all have. The header in the file knows
   the old places until then.
4. If a header fails to follow half way, the old one is restored before any other is written, as after every failure
   (`Location.restore_header`).
5. After a flush with data, other nodes hold data that this node cannot see, where they announced that they would write,
   until a flush says otherwise. What a rank wrote itself it sees meanwhile.
6. Where a flush would write what another rank may hold of an earlier epoch, it drains first (`held_ranges`).
7. A flush does not return while what it has promised is in the memory of a process alone: if a driver can hold nothing
   back any more, data and header are in the file before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pnc_vol.disk.journal import is_atomic
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.holding import EVERY_EPOCH, Holder, Unwritten
from pnc_vol.errors import SyncError
from pnc_vol.format.encode import changed_parts
from pnc_vol.ranks.comm import Comm, on_every
from pnc_vol.warn import FILE, WARNING, tell

if TYPE_CHECKING:
    from pnc_vol.file.held_ranges import HeldRanges, Spans

__all__ = ["Epochs", "fall_back"]

_ELSEWHERE = (
    "what is read may be among flushed data that {} still has in its cache, and the file does not have yet. Call "
    "f.sync() or read inside 'with ds.collective:', on all ranks; or open the file with e10_cache=coherent, to wait"
)


class _Pending(NamedTuple):
    """The header of an epoch, which is not in the file.

    reach : int, bytes that the file has with it at least; rank 0 knows it.
    """

    epoch: int
    encoded: bytes
    reach: int


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
        "_comm", "_disk", "_ended", "_headers", "_in_file", "_keeps", "_known", "_overlapped", "_ranges", "_written",
        "apart", "failed", "holding", "settled", "unwritten",
    )  # fmt: skip

    def __init__(self, comm: Comm, disk: StoredFile) -> None:
        self._comm, self._disk, self._known = comm, disk, disk.driver
        self._ended = self._written = 0
        self._headers: list[_Pending] = []
        self._in_file, self._keeps = disk.header_bytes, False
        self._overlapped: tuple[int, int, bytes | None] = 0, 0, None
        """See `HeldRanges.newest_overlapped`; and what all ranks announced that they are about to write."""
        self._ranges: HeldRanges | None = None
        self.unwritten: list[Unwritten] = []
        self.holding = disk.driver.holder.synced_epoch() < EVERY_EPOCH
        self.settled, self.failed, self.apart = True, False, False
        if self.holding and comm.size > 1:
            # All ranks are together now; asked for later, it would be one more call.
            comm.nodes()

    @property
    def ranges(self) -> HeldRanges:
        """What ranks may hold back, and where."""
        if self._ranges is None:
            # few drivers hold bytes back
            from pnc_vol.file.held_ranges import HeldRanges

            self._ranges = HeldRanges(self._comm.rank)
        return self._ranges

    @property
    def _holder(self) -> Holder:
        """That of the driver in use; a new layout has another one, which counts its epochs from 1."""
        if self._disk.driver is not self._known:
            self._known, self._ended, self._written, self._in_file = self._disk.driver, 0, 0, b""
        return self._known.holder

    # ------------------------------------------------------------------------------- at an agreement

    def reports(self) -> bool:
        """Return whether this rank has something to tell at the beginning of a flush: it may hold bytes or a header
        back."""
        return self._holder.synced_epoch() < EVERY_EPOCH or bool(self._headers)

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
        from pnc_vol.file import held_ranges

        comm, holder = self._comm, self._holder
        synced = holder.synced_epoch()
        self.unwritten += holder.failures()
        announced = self.ranges.announced(spans()) if comm.size > 1 else held_ranges.NO_SPANS
        late = synced < self._written
        unseen = comm.size > 1 and not (holder.sees_node and comm.nodes().single)
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
        if comm.size > 1 and not (self._elsewhere(most[len(facts) :]) if holder.sees_node else behind > late):
            holder.note_elsewhere("")

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
        on_every(self._comm, operation, self._holder.drain)
        self.drained()

    def drained(self) -> None:
        """All ranks have drained, as a call said: headers follow (collective, without a call of its own).

        Raises
        ------
        OSError
            As `meet`.
        """
        self._holder.note_elsewhere("")
        self._written = 0
        # A flush that was interrupted behind its header left it in the present epoch: its data were drained, too.
        interrupted = bool(self._headers) and self._headers[-1].epoch > self._ended
        self._release(self._ended + interrupted)

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
        for call in (partial(fall_back, self._disk.driver, trouble), self.drained):
            on_every(self._comm, "flush fall back", call)
        self.holding = False

    def hold(self, old: bytes, encoded: bytes, reach: int) -> None:
        """Hold the header of the present epoch.

        Parameters
        ----------
        old : bytes, the header of the epoch before.
        reach : int, bytes that the file has with it at least.
        """
        # first: what an interruption leaves is taken back
        self._headers.append(_Pending(self._ended + 1, encoded, reach))
        if self._comm.rank == 0:
            parts = changed_parts(old, encoded)
            # of a header of many MiB the record count alone, as a rule
            first, end = (parts[0][0], parts[0][2]) if parts and is_atomic(parts) else (0, len(encoded))
            self._holder.hold(first, encoded[first:end], reach)

    def take_back(self, encoded: bytes) -> None:
        """The flush has failed: if it held its header already, this one, from before, is that of the epoch."""
        if self._headers and self._headers[-1].epoch > self._ended:
            self.hold(b"", encoded, 0)

    def wrote_header(self, encoded: bytes) -> None:
        """The header of the present epoch was written, and is in the file: what may be held of it is older."""
        holder = self._holder
        self._in_file = encoded
        if self._headers:
            self._headers.clear()
            holder.release(self._ended + 1)

    def end(self, *, wrote: bool, together: bool) -> None:
        """The present epoch has ended on all ranks.

        Parameters
        ----------
        wrote : bool, some rank may hold data of it.
        together : bool, ranks wrote for others.
        """
        holder = self._holder
        if self.holding:
            self._ended += 1
            if wrote:
                self._written = self._ended
                self.ranges.wrote(self._ended, self._overlapped[2], together=together)
                if self.apart:
                    node = holder.sees_node
                    where = self.ranges.of_others(self._ended, self._comm.nodes(), node=node)
                    text = _ELSEWHERE.format("another node" if node else "another rank")
                    holder.note_elsewhere(text, where)

    def leave(self) -> tuple[int, int]:
        """Take part in nothing any more; return whether all data are in the file, and the last ended epoch."""
        if self.left_at_close():
            return 0, self._ended
        try:
            self._holder.drain()
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

    def keep_headers(self) -> None:
        """Leave held headers to a recovery: other files, which they describe, are not complete."""
        self._keeps = True

    def end_alone(self) -> None:
        """Leave a file of this rank alone: what was flushed follows to it.

        Raises
        ------
        OSError
            The header could not be written; it is held for a recovery.
        """
        if self._comm.size == 1 and self.pending and not self._keeps:
            complete, epoch = self.leave()
            if complete:
                self.follow(epoch)

    @property
    def pending(self) -> bool:
        """Whether ranks hold back what is to follow to the file when they leave it; the same on all ranks."""
        return (self.holding or bool(self._headers)) and not self.left_at_close()

    def left_at_close(self) -> bool:
        """Return whether what is held stays in its caches when the file is closed
        (``e10_cache_flush_flag=flush_none``)."""
        return self._holder.hints().get("e10_cache_flush_flag") == "flush_none"

    def take_unwritten(self) -> list[Unwritten]:
        """Return what this rank could not write since it was asked last."""
        found, self.unwritten = self.unwritten, []
        return found

    # ----------------------------------------------------------------------------------------- inner

    def _release(self, epoch: int) -> None:
        due = [header for header in self._headers if header.epoch <= epoch]
        if due and self._comm.rank == 0:
            self._follow(due[-1])
        self._holder.release(epoch)
        self.ranges.forget(epoch)
        if due:
            self._headers, self._in_file = self._headers[len(due) :], due[-1].encoded

    def _follow(self, header: _Pending) -> None:
        """Let a held header follow to the file; on rank 0."""
        disk, location = self._disk, self._disk.location
        assert location is not None
        sync = location.sync_data if disk.lasting and disk.sync_error is None else None
        try:
            location.restore_header(disk.driver)
            disk.driver.grow(header.reach)
            parts = changed_parts(self._in_file, header.encoded)
            location.replace_header(disk.driver, self._in_file, header.encoded, parts, sync=sync)
        except SyncError as error:
            # The other ranks hear of it from rank 0 when they ask for durability.
            disk.note_sync_error(error)
            raise


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
        driver.holder.drain(stop=trouble)
