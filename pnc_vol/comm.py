"""The communicator: one process, or the ranks of an MPI communicator.

Knows: ranks, what they exchange. Does not know: files, variables, what is being agreed on; how a rank waits for the
others (`mpi_wait`).
Together with `drivers.mpio` and what stands under it this is the only module that imports mpi4py.

Rules
-----
1. There is one collective, `exchange`: every rank gives its operation, an error or None, and some bytes;
   every rank gets the bytes of all. A file's open, flush, close and collective reads begin with one.
2. If any rank gave an error, every rank raises it, whatever the operations are: what a rank meets between two exchanges
   (`errors_shared`) ends the others' call at the next one. If ranks gave different operations, every rank raises
   `CollectiveMismatchError`. If a rank does not come in time, those that came raise `CollectiveTimeout`.
3. A rank that leaves a file by an exception says so (`abandon`) and how many calls it completed; a rank that waits for
   it raises at once, and what it took part in before is complete on all ranks, however late they are.
4. What an exchange needs is allocated with the communicator, or agreed on: no rank fails in the middle of one.
5. Nothing is pickled.
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pnc_vol import errors
from pnc_vol.mpi_wait import TimedWait, patiently
from pnc_vol.rank_errors import pack_error, ranks_text, unpack_error

__all__ = ["Comm", "MpiComm", "on_root", "over", "ranks_text", "serial"]

_Error = TypeVar("_Error", bound=BaseException)

_RECORD = struct.Struct("<24sqqq")
_RECORD_BYTES = 256
_INLINE = _RECORD_BYTES - _RECORD.size
_ROOM = 64 << 10
"""Bytes of all ranks' payloads together for which there is always room."""


class Comm:
    """One process: every collective returns at once."""

    rank: int = 0
    size: int = 1
    mpi: Any = None
    """The mpi4py communicator, or None."""

    @property
    def timeout(self) -> float | None:
        """Seconds to wait for the other ranks in one collective call; None: without end."""
        return None

    def exchange(self, operation: str, payload: bytes = b"", *, error: BaseException | None = None) -> list[bytes]:
        """Give `payload` to all ranks and get theirs.

        Parameters
        ----------
        operation : str, at most 24 ASCII characters, the same on all ranks.
        payload : bytes, may differ in length between ranks.
        error : Exception, optional
            What went wrong on this rank; it is raised on all.

        Returns
        -------
        list of bytes
            By rank.

        Raises
        ------
        Exception
            The first failing rank's error, of the same class on all ranks.
        CollectiveMismatchError, CollectiveTimeout, RankError
            See the rules of this module.
        """
        if error is not None:
            raise error
        return [payload]

    def errors_shared(self) -> AbstractContextManager[None]:
        """What fails inside on one rank is raised on all, at the exchange that the others come to next.

        Inside stands a part of a collective call after which every rank comes to an exchange. An error that all ranks
        raise already passes through.
        """
        return nullcontext()

    def all_to_all(self, operation: str, parcels: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Give an array of uint8 to each rank, and get those that each rank gives to this one, by rank (collective)."""
        return parcels

    def from_root(self, operation: str, payload: bytes = b"", *, error: BaseException | None = None) -> bytes:
        """Bytes of rank 0, on all ranks; an error of any rank is raised on all."""
        return self.exchange(operation, payload, error=error)[0]

    def in_step(self, error: BaseException) -> bool:
        """Whether every rank raised this error, out of the same call, so that all may go on together."""
        return True

    def on_all(self, error: _Error) -> _Error:
        """Note that every rank raises `error` now; returns it."""
        return error

    def node(self) -> tuple[int, int, int]:
        """This rank's number among the ranks of its node, how many these are, and their lowest rank (collective)."""
        nodes = self.nodes()
        ours = [rank for rank, (lowest, _) in enumerate(nodes) if lowest == nodes[self.rank][0]]
        return ours.index(self.rank), len(ours), ours[0]

    def nodes(self) -> list[tuple[int, int]]:
        """Of each rank the lowest rank of its node, and the cores that it may use (collective)."""
        return [(0, cores())]

    def group(self, number: int) -> Comm:
        """A communicator of the ranks that give the same number, in the order of their ranks (collective)."""
        return Comm()

    def limit(self, timeout: float | None) -> None:
        """Wait at most `timeout` seconds for the other ranks from now on; None: without end."""

    def abandon(self, reason: str) -> None:
        """Tell all other ranks, without waiting, that this rank takes part in nothing any more."""

    def observe(self, note: Callable[[str, float], None]) -> None:
        """Tell `note` of each collective call that ends: its name, and when waiting for it began (`perf_counter`)."""

    def close(self) -> None:
        """Give the private communicator back (collective)."""


def serial() -> Comm:
    """The communicator of a single process."""
    return Comm()


def over(mpi: Any, *, timeout: float | None = 300.0) -> Comm:
    """A private communicator over the ranks of `mpi` (collective).

    Parameters
    ----------
    mpi : mpi4py.MPI.Comm
    timeout : float or None, seconds to wait for the other ranks in one collective call.

    Raises
    ------
    TypeError, ValueError
        `mpi` is no intracommunicator of mpi4py, or the null communicator.
    OperationError
        MPI is not initialized yet, or has ended.
    CollectiveTimeout
        Not all ranks came in time.
    """
    from mpi4py import MPI

    if not isinstance(mpi, MPI.Intracomm):
        raise TypeError(f"comm={mpi!r}: an mpi4py intracommunicator (such as MPI.COMM_WORLD) is needed")
    if not MPI.Is_initialized() or MPI.Is_finalized():
        # Any other call of MPI would abort the process.
        ended = MPI.Is_finalized()
        text = "has ended; open files before MPI.Finalize()" if ended else "is not initialized; call MPI.Init() first"
        raise errors.OperationError(f"no file can be opened with comm=: MPI {text}")
    if mpi == MPI.COMM_NULL:
        raise errors.DefinitionError("comm= is MPI.COMM_NULL; open the file only on the ranks of a communicator")
    private, request = mpi.Idup()
    for _ in patiently(timeout):
        if request.Test():
            return MpiComm(private, timeout=timeout, origin=mpi)
    raise errors.CollectiveTimeout(
        f"open: not all {mpi.Get_size()} ranks opened it within {timeout:g} s; every rank must open the file "
        "(collective_timeout= sets the time limit)"
    )


def on_root(comm: Comm, operation: str, do: Callable[[], bytes]) -> bytes:
    """Let rank 0 do something, and give what it returns, or its error, to all ranks (collective)."""
    result, error = b"", None
    if comm.rank == 0:
        try:
            result = do()
        except Exception as reason:
            error = reason
    return comm.from_root(operation, result, error=error)


class MpiComm(Comm):
    """The ranks of an MPI communicator, which this object owns."""

    def __init__(self, mpi: Any, *, timeout: float | None, origin: Any = None) -> None:
        from mpi4py import MPI

        self._MPI = MPI
        self.mpi = mpi
        self._origin = origin
        self._nodes: list[tuple[int, int]] | None = None
        self.rank = mpi.Get_rank()
        self.size = mpi.Get_size()
        self._calls = TimedWait(mpi, MPI, timeout)
        # A failed allocation in the middle of an exchange would leave the others waiting.
        self._record = bytearray(_RECORD_BYTES)
        self._everyone = bytearray(_RECORD_BYTES * self.size)
        self._room = bytearray(_ROOM)
        self._told: BaseException | None = None
        # The last error of a collective call here, for who finds the ranks out of step afterwards.
        self._met: BaseException | None = None

    def exchange(self, operation: str, payload: bytes = b"", *, error: BaseException | None = None) -> list[bytes]:
        body = payload if error is None else pack_error(error)
        number = self._calls.begin(operation)
        inline = body[:_INLINE]
        _RECORD.pack_into(self._record, 0, operation.encode()[:24], number, int(error is not None), len(body))
        self._record[_RECORD.size : _RECORD.size + len(inline)] = inline
        everyone = self._everyone
        self._calls.wait(operation, self.mpi.Iallgather(self._record, everyone), (self._record, everyone))
        self._calls.completed()
        heads = [_RECORD.unpack_from(everyone, r * _RECORD_BYTES) for r in range(self.size)]
        failed = [r for r, head in enumerate(heads) if head[2]]
        if len({head[1 if failed else slice(0, 2)] for head in heads}) > 1:
            raise self._mismatch(heads) from error or self._met
        # Of an error nobody needs more than the first rank's words.
        lengths = [head[3] if not failed or r == failed[0] else 0 for r, head in enumerate(heads)]
        if max(lengths) > _INLINE:
            bodies = self._exchange_long(operation, body if lengths[self.rank] else b"", lengths)
        else:
            starts = [r * _RECORD_BYTES + _RECORD.size for r in range(self.size)]
            bodies = [bytes(everyone[at : at + n]) for at, n in zip(starts, lengths, strict=True)]
        if failed:
            if error is not None and self.size == 1:
                raise self.on_all(error)
            raise self.on_all(unpack_error(bodies[failed[0]], failed, self.size)) from error
        self._met = None
        return bodies

    def observe(self, note: Callable[[str, float], None]) -> None:
        self._calls.note = note

    @contextmanager
    def errors_shared(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._met = error
            if not self.in_step(error) and not isinstance(error, errors.RankError):
                self.exchange("failed", error=error)
            raise

    def in_step(self, error: BaseException) -> bool:
        return error is self._told

    def on_all(self, error: _Error) -> _Error:
        self._told = error
        return error

    def _exchange_long(self, operation: str, body: bytes, lengths: list[int]) -> list[bytes]:
        total = sum(lengths)
        got = self._room
        if total > len(got):
            lack: Exception | None = None
            try:
                got = bytearray(total)
            except MemoryError as error:
                lack = error
            self.exchange(operation, error=lack)
        request = self.mpi.Iallgatherv([body, self._MPI.BYTE], [got, lengths, self._MPI.BYTE])
        self._calls.wait(operation, request, (body, got))
        ends = list(itertools.accumulate(lengths))
        return [bytes(got[end - n : end]) for end, n in zip(ends, lengths, strict=True)]

    def all_to_all(self, operation: str, parcels: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        sizes = np.array([parcel.nbytes for parcel in parcels], np.int64)
        sent: Any = [np.concatenate(parcels), sizes.tolist(), self._MPI.BYTE]
        # The sizes come by `exchange`, which finds out whether all ranks do the same.
        told = self.exchange(operation, sizes.tobytes())
        lack: Exception | None = None
        coming, first, got = [0], [0], sizes
        try:
            coming = [int(np.frombuffer(one, np.int64)[self.rank]) for one in told]
            # Each begins at a multiple of 8, so that numbers in it can be looked at where they are.
            first = [0, *itertools.accumulate(-(-n // 8) * 8 for n in coming)]
            got = np.empty(first[-1], np.uint8)
        except Exception as error:
            lack = error
        self.exchange(operation, error=lack)
        request = self.mpi.Ialltoallv(sent, [got, (coming, first[:-1]), self._MPI.BYTE])
        self._calls.wait(operation, request, (sent, got))
        return [got[at : at + n] for at, n in zip(first[:-1], coming, strict=True)]

    def _mismatch(self, heads: list[Any]) -> errors.CollectiveMismatchError:
        by_name: dict[str, list[int]] = {}
        for r, head in enumerate(heads):
            by_name.setdefault(head[0].rstrip(b"\0").decode(), []).append(r)
        what = "; ".join(f"{name}: {ranks_text(ranks)}" for name, ranks in by_name.items())
        return errors.CollectiveMismatchError(
            f"ranks called different collective operations ({what}); "
            "open, flush, close and collective reads must be called by all ranks in the same order",
            [r for ranks in list(by_name.values())[1:] for r in ranks],
        )

    def nodes(self) -> list[tuple[int, int]]:
        if self._nodes is None:
            # Kept by the communicator that this is a copy of, as programs open many files by one.
            there = self._origin is not None and self._origin != self._MPI.COMM_NULL
            kept = self._origin.Get_attr(_nodes_key()) if there else None
            self._nodes = kept or self._find_nodes()
            if kept is None and there:
                self._origin.Set_attr(_nodes_key(), self._nodes)
        return self._nodes

    def _find_nodes(self) -> list[tuple[int, int]]:
        with self.errors_shared():
            mine, told = np.array([self.rank, cores()], np.int64), np.empty((self.size, 2), np.int64)
        # From here on to the end nobody waits with a time limit.
        self.exchange("nodes")
        ours = self.mpi.Split_type(self._MPI.COMM_TYPE_SHARED)
        try:
            # Splitting keeps the order of ranks, so the first of a node is its lowest.
            ours.Bcast(mine, 0)
        finally:
            ours.Free()
        self.mpi.Allgather(mine, told)
        return [(int(lowest), int(number)) for lowest, number in told]

    def group(self, number: int) -> Comm:
        # From here on to the end nobody waits with a time limit.
        self.exchange("group")
        return MpiComm(self.mpi.Split(number, self.rank), timeout=self.timeout)

    @property
    def timeout(self) -> float | None:
        """Seconds to wait for the other ranks in one call."""
        return self._calls.timeout

    def limit(self, timeout: float | None) -> None:
        self._calls.timeout = timeout

    def abandon(self, reason: str) -> None:
        self._calls.leave(reason)

    def close(self) -> None:
        self._calls.free()
        self.mpi = None


@functools.cache
def _nodes_key() -> int:
    """Under which a communicator keeps what `nodes` says."""
    from mpi4py import MPI

    return int(MPI.Comm.Create_keyval())


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
