"""The root ``mpio`` reads and writes files of many ranks by MPI-IO.

Knows: mpi4py, which it imports when a file is opened. Does not know: requests, variables; who agrees on a flush.

Rules
-----
1. Between calls the file's view is plain bytes, so that a call of one rank alone (`collective=False`) never needs
   another rank.
2. A collective call is a number of rounds that all ranks agree on; a rank with less, or that failed, takes part in the
   rest with nothing and raises at the end. A round is `round_bytes` at most: Open MPI fails beyond 2^31 - 1 bytes,
   on the big rank alone, while the others wait.
3. A collective read or write of scattered extents is one call with a file type and a memory type. MPICH 4.0, as Debian
   12 has it, fails on every type that mpi4py 4 makes; there, and with `derived_types=False`, all calls are contiguous.
4. Open MPI loses the error of a collective write when the disk is full; there the file's size is looked at afterwards,
   on all ranks. What stays unseen is a full disk under a file that already had its size.
5. `resize`, `sync` and `close` are called by all ranks together, as `open` is.
6. What a rank moves by itself goes by a descriptor where that is sound (`descriptor`), else by MPI-IO (`MpiFile`);
   with the option ``direct=false`` always by MPI-IO. With a descriptor the file is opened by MPI-IO when the first
   collective call needs it, through the descriptor: by then the file may have another name, and its name may stand for
   another file. Where the system has no path for a descriptor, MPI-IO opens the file at once.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.drivers.base import Capabilities, Memory, OpenContext, Ranks
from pnc_vol.drivers.mpi_library import errors_are_lost, hindexed, opened, os_errors, types_are_broken
from pnc_vol.drivers.posix import Descriptor
from pnc_vol.drivers.root import Root
from pnc_vol.drivers.vectored_io import (
    Bytes,
    check,
    copy_pieces,
    get_extents,
    in_order,
    joined,
    put_extents,
    spread,
    touching,
    within,
    without_overlap,
)
from pnc_vol.extents import blocks
from pnc_vol.extents.model import Extents
from pnc_vol.ranks.comm import Comm, serial

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MpiFile", "MpioDriver"]

ROUND = 1 << 30
"""Bytes of one MPI call at most."""
PLAIN_ROUND = 64 << 20
"""Bytes of a staging buffer where memory types cannot be used."""
PLAIN_CALLS = 4
"""Contiguous collective calls, instead of independent ones, up to which scattered extents without types are moved."""
_NOTHING = Extents(*np.zeros((3, 0), np.int64))


class MpioDriver(Root):
    """A file that the ranks of a communicator share.

    Parameters
    ----------
    open_file : callable
        Opens the file of a path, all ranks together, and returns an mpi4py.MPI.File; its view is plain bytes.
        ``shown=`` is what errors call the file.
    path : str
    writable : bool
    comm : mpi4py.MPI.Intracomm
        The ranks that opened it.
    round_bytes : int
        Bytes of one MPI call at most.
    derived_types : bool
        Whether file and memory types may be used.
    check_size : bool
        Whether the file's size is looked at after a collective write.
    descriptor : Descriptor, optional
        How one rank by itself gets at the file; by MPI-IO if not given.
    shown : str, what errors call the file, if it is another name.

    Examples
    --------
    ::

        driver = open_stack("mpio", "a.nc", writable=True, comm=comm, hints={"romio_cb_write": "disable"})
        driver.write(own_pieces, memory, collective=True)  # on every rank
    """

    name = "mpio"
    capabilities = Capabilities(collective=True, mapping=True)

    def __init__(
        self,
        open_file: Callable[..., Any],
        path: str,
        *,
        writable: bool,
        comm: Any,
        round_bytes: int = ROUND,
        derived_types: bool = True,
        check_size: bool = False,
        descriptor: Descriptor | None = None,
        shown: str = "",
    ) -> None:
        super().__init__(path, writable=writable, shown=shown)
        self._open_file = open_file
        self._link = descriptor.link if descriptor is not None and descriptor.named else ""
        self._opened: Any = None if self._link else open_file(path, shown=self.shown)
        self._comm = comm
        self._round = round_bytes
        self._typed = derived_types
        self._check_size = check_size
        # No rank may fail for want of it between two calls that all make.
        self._largest_room = np.zeros((2, 8), np.int64)
        # Not every MPI lets two threads in at once, and a view must not change under another's call.
        self._lock = threading.RLock()
        self._alone = descriptor or MpiFile(self._opened, shown or path, round_bytes, self._lock)

    @classmethod
    def open(
        cls,
        path: str | None,
        context: OpenContext,
        *,
        round_bytes: int = ROUND,
        derived_types: bool | None = None,
        direct: bool = True,
    ) -> Self:
        """Open a file that exists; all ranks of `comm` together.

        Parameters
        ----------
        path, context
            As for every root; without a communicator the file is this process's alone. The system is for the
            descriptor; MPI has its own way to the file. The hints are handed to the MPI library as they are; it ignores
            those it does not know.
        round_bytes : int
            Bytes of one MPI call at most, less than 2^31.
        derived_types : bool, optional
            False for contiguous calls only; decided by the library's version if not given.
        direct : bool
            False if everything is to go by MPI-IO.

        Raises
        ------
        ImportError
            mpi4py is not installed.
        OSError
            The file cannot be opened, the same on all ranks.
        """
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise ImportError('The mpio driver needs mpi4py and an MPI library: pip install "pnc-vol[mpi]"') from error
        if path is None:
            raise ValueError("The mpio driver needs the path of a file")
        if not 0 < round_bytes < 1 << 31:
            raise ValueError(f"round_bytes={round_bytes} is not between 1 and 2^31 - 1")
        comm = context.comm
        mpi = comm.mpi if comm is not None and comm.mpi is not None else MPI.COMM_SELF
        version = MPI.Get_library_version()
        if derived_types is None:
            derived_types = not types_are_broken(version)
        ranks = comm if isinstance(comm, Comm) else serial()
        found: Descriptor | None = None
        if direct and _one_node(comm, mpi):
            found = Descriptor.of(path, ranks, writable=context.writable, system=context.system)
        else:
            # MPI-IO waits for all ranks, without a time limit: what went wrong before on one is told here.
            ranks.agree("open file")
        return cls(
            partial(opened, mpi, writable=context.writable, hints=dict(context.hints), ranks=ranks),
            path,
            writable=context.writable,
            comm=mpi,
            round_bytes=round_bytes,
            derived_types=derived_types,
            check_size=errors_are_lost(version),
            descriptor=found,
            shown=context.name,
        )

    # ------------------------------------------------------------------------------------------------- verbs

    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        with self._lock:
            if not collective or self._comm.size == 1:
                return self._alone.read(extents, memory)
            failure: Exception | None = None
            asked, into = _NOTHING, memory
            try:
                check(extents, memory)
                # What a collective read says of its length is what it was asked, so the end is found beforehand.
                extents = in_order(within(extents, self._size()))
                asked, into = without_overlap(extents, memory)
            except Exception as error:
                failure = error
            calls = self._rounds(asked, into, writing=False, failure=failure)
            if into is not memory:
                spread(asked, into, extents, memory)
            return extents.nbytes, calls

    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        with self._lock:
            if not collective or self._comm.size == 1:
                return put_extents(extents, memory, self._alone.put)
            failure: Exception | None = None
            asked = _NOTHING
            try:
                check(extents, memory)
                asked = in_order(extents)
            except Exception as error:
                failure = error
            calls = 0
            try:
                calls = self._rounds(asked, memory, writing=True, failure=failure)
            except Exception as error:
                failure = error
            if self._check_size:
                end = int(asked.offset[-1] + asked.length[-1]) if len(asked.offset) else 0
                # An answer from every rank also means that every rank is through with writing for the others.
                (end,) = self._largest(end)
                if self._size() < end and failure is None:
                    text = f"MPI-IO reported a write up to byte {end}, but the file has {self._size()} bytes: disk full"
                    failure = OSError(errno.EIO, text, self.shown)
            if failure is not None:
                raise failure
            return calls

    def _look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        return self._alone.look(end, nbytes, use)

    def _size(self) -> int:
        return self._alone.size()

    @property
    def _file(self) -> Any:
        """The file by MPI-IO; opened by the first call that needs it, which all ranks make together."""
        if self._opened is None:
            self._opened = self._open_file(self._link, shown=self.shown)
        return self._opened

    def _resize(self, nbytes: int) -> None:
        """Resize on all ranks together: no rank's earlier write may come after the cut."""
        self._alone.resize(nbytes, self._comm)

    def _sync(self) -> None:
        """Bring the file to stable storage, all ranks together."""
        try:
            # ROMIO leaves it out on a rank that wrote nothing by itself.
            self._alone.sync()
        finally:
            # Also where that failed: the others wait here for all.
            if self._opened is not None:
                with self._lock, os_errors(self.shown, "sync"):
                    self._file.Sync()

    def _close(self) -> None:
        """Close on all ranks together; nothing is left to do once MPI has ended."""
        from mpi4py import MPI

        self._alone.close()
        if self._opened is not None and not MPI.Is_finalized():
            with self._lock, os_errors(self.shown, "close"):
                self._file.Close()

    # ---------------------------------------------------------------------------------------- ranks together

    def _rounds(self, extents: Extents, memory: Memory, *, writing: bool, failure: Exception | None) -> int:
        """Move extents (in order) by collective calls; a failure is raised after the last one.

        Returns
        -------
        int
            MPI calls made.
        """
        parts: list[Extents] = []
        runs, end, missing = 0, 0, -(1 << 62)
        try:
            if writing and self._comm.rank == 0:
                missing = -self._size()
            parts = list(blocks.rounds(extents, self._round if self._typed else min(self._round, PLAIN_ROUND)))
            counts = [len(joined(part.offset, part.length)[0]) for part in parts]
            runs = max(counts, default=0) if self._typed else sum(counts)
            end = int(parts[-1].offset[-1] + parts[-1].length[-1]) if parts else 0
        except Exception as error:
            failure = failure or error
            parts = []
        rounds, runs, end, missing = self._largest(len(parts), runs, end, missing)
        if end + missing > 0:
            self._extend(end)
        if not self._typed:
            if runs > PLAIN_CALLS * max(rounds, 1):
                if failure is not None:
                    raise failure
                # Two-phase rounds of one piece each would cost more than they join.
                if writing:
                    return put_extents(extents, memory, self._alone.put)
                return self._alone.read(extents, memory)[1]
            try:
                parts = [run for part in parts for run in touching(part)]
            except Exception as error:
                failure, parts = failure or error, []
            rounds, runs = runs, 1
        for i in range(rounds):
            try:
                self._together(parts[i] if i < len(parts) else _NOTHING, memory, writing, scattered=runs > 1)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return rounds

    def _largest(self, *numbers: int) -> list[int]:
        """Return, for each number, the largest that a rank has."""
        from mpi4py import MPI

        local, largest = self._largest_room
        local[: len(numbers)] = numbers
        self._comm.Allreduce(local, largest, op=MPI.MAX)
        return [int(number) for number in largest[: len(numbers)]]

    def _extend(self, end: int) -> None:
        """Let the file reach `end` before ranks write together, so that its gaps are zeros.

        A rank that writes for others writes the gaps between their pieces as well, as it read them; beyond the end of
        the file ROMIO reads nothing and writes what its memory happens to hold.
        """
        try:
            if self._comm.rank == 0:
                self._alone.put(memoryview(b"\0"), end - 1)
        except OSError:
            # No room: the write itself says so, on the ranks whose data it is.
            pass
        self._comm.Barrier()

    def _together(self, part: Extents, memory: Memory, writing: bool, *, scattered: bool) -> None:
        """Make one collective call for `part`, through a view of the file that shows it alone if some rank's is
        scattered.

        What fails before or in between keeps no rank from taking part in the rest.
        """
        from mpi4py import MPI

        nbytes, what = 0, f"collective {'write' if writing else 'read'}"
        at_all = self._file.Write_at_all if writing else self._file.Read_at_all
        buffer: list[Any] = [memory[:0], 0, MPI.BYTE]
        shown, stage, inside = MPI.BYTE, None, part.place
        failure: Exception | None = None
        try:
            nbytes = part.nbytes
            what = f"{what} of {nbytes} bytes"
            place, length = joined(part.place, part.length)
            if len(place) == 1:
                buffer = [memory[int(place[0]) : int(place[0] + length[0])], int(length[0]), MPI.BYTE]
            elif len(place) and self._typed:
                buffer = [memory, 1, hindexed(place, length)]
            elif len(place):
                stage, inside = np.empty(part.nbytes, np.uint8), np.cumsum(part.length) - part.length
                if writing:
                    copy_pieces(stage, inside, memory, part.place, part.length)
                buffer = [stage, part.nbytes, MPI.BYTE]
            if scattered and len(place):
                shown = hindexed(*joined(part.offset, part.length))
        except Exception as error:
            failure, buffer, shown = error, [memory[:0], 0, MPI.BYTE], MPI.BYTE
        offset = int(part.offset[0]) if len(part.offset) and not scattered else 0
        status = MPI.Status()
        steps: list[Callable[[], Any]] = [lambda: at_all(offset, buffer, status)]
        if scattered:
            steps.insert(0, lambda: self._file.Set_view(0, MPI.BYTE, shown))
            steps.append(lambda: self._file.Set_view(0, MPI.BYTE, MPI.BYTE))
        for step in steps:
            try:
                with os_errors(self.shown, what):
                    step()
            except Exception as error:
                failure = failure or error
        done = int(status.Get_elements(MPI.BYTE)) if failure is None else nbytes
        if done != nbytes:
            # Open MPI's way of saying that the disk is full; the end of the file was looked for before a read.
            failure = OSError(errno.EIO, f"MPI-IO moved {done} of {nbytes} bytes in a {what}", self.shown)
        for made in (buffer[2], shown):
            if made != MPI.BYTE:
                made.Free()
        if failure is not None:
            raise failure
        if stage is not None and not writing:
            copy_pieces(memory, part.place, stage, inside, part.length)


class MpiFile:
    """An open file of MPI-IO, which its user closes.

    Parameters
    ----------
    file : mpi4py.MPI.File
        Its view is plain bytes.
    path : str
        For messages.
    round_bytes : int
        Bytes of one MPI call at most.
    lock : RLock
        Held in every call: not every MPI lets two threads in at once.
    """

    def __init__(self, file: Any, path: str, round_bytes: int, lock: AbstractContextManager[Any]) -> None:
        self._file = file
        self._path = path
        self._round = round_bytes
        self._lock = lock

    def put(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Write all; the calls that it took."""
        from mpi4py import MPI

        status = MPI.Status()
        calls = 0
        for view in buffers if isinstance(buffers, list) else [buffers]:
            while view.nbytes:
                part = view[: self._round]
                with self._lock, os_errors(self._path, f"write of {part.nbytes} bytes at offset {offset}"):
                    self._file.Write_at(offset, [part, part.nbytes, MPI.BYTE], status)
                done = int(status.Get_count(MPI.BYTE))
                if done <= 0:
                    raise OSError(errno.EIO, f"MPI-IO wrote 0 of {part.nbytes} bytes at offset {offset}", self._path)
                # Open MPI says so when it wrote less; writing on brings the reason out.
                view, offset, calls = view[done:], offset + done, calls + 1
        return calls

    def get(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Read as far as the file goes; bytes."""
        from mpi4py import MPI

        status = MPI.Status()
        done = 0
        for view in buffers if isinstance(buffers, list) else [buffers]:
            for start in range(0, view.nbytes, self._round):
                part = view[start : start + self._round]
                with self._lock, os_errors(self._path, f"read of {part.nbytes} bytes at offset {offset + done}"):
                    self._file.Read_at(offset + done, [part, part.nbytes, MPI.BYTE], status)
                got = int(status.Get_count(MPI.BYTE))
                done += got
                if got < part.nbytes:
                    return done
        return done

    def read(self, extents: Extents, memory: Bytes) -> tuple[int, int]:
        """Return bytes of the extents that were read, and calls."""
        return get_extents(extents, memory, self.get)

    def look(self, end: int, nbytes: int, use: Callable[[Bytes], None]) -> bool:
        """Return False: there is nothing to map."""
        return False

    def size(self) -> int:
        """Return the number of bytes of the file."""
        with self._lock, os_errors(self._path, "size"):
            return int(self._file.Get_size())

    def resize(self, nbytes: int, mpi: Any) -> None:
        """Cut or extend the file; all ranks together."""
        with self._lock, os_errors(self._path, f"resize to {nbytes} bytes"):
            # No rank's earlier write may come after the cut.
            mpi.Barrier()
            self._file.Set_size(nbytes)

    def sync(self) -> None:
        """Do nothing: all ranks sync the open file together."""

    def close(self) -> None:
        """Do nothing: all ranks close the open file together."""


def _one_node(comm: Ranks | None, mpi: Any) -> bool:
    """Return whether all ranks are on one node (collective); `comm` may know."""
    if mpi.Get_size() == 1:
        return True
    known = getattr(comm, "node", None)
    if known is not None:
        return bool(known()[1] == mpi.Get_size())
    from mpi4py import MPI

    ours = mpi.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return bool(ours.Get_size() == mpi.Get_size())
    finally:
        ours.Free()
