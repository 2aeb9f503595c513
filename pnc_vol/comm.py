"""The communicator seam: one process, or the ranks of an MPI communicator.

Knows: ranks, messages, deadlines. Does not know: files, variables, what is being agreed on.
Together with `drivers.mpio` this is the only module that imports mpi4py.

Rules
-----
1. There is one collective, `exchange`: every rank gives its operation, an error or None, and some bytes;
   every rank gets the bytes of all. A file's open, flush, close and collective reads begin with one.
2. If any rank gave an error, every rank raises it. If ranks gave different operations, every rank raises
   `CollectiveMismatchError`. If a rank does not come in time, those that came raise `CollectiveTimeout`.
3. A rank that leaves a file by an exception says so (`abandon`); whoever waits for it hears it at once.
4. Nothing is pickled, and waiting ranks sleep: on a machine with more ranks than cores, spinning is most
   of the cost of a collective.
"""

from __future__ import annotations

import builtins
import json
import struct
import time
from typing import Any

from pnc_vol import errors

__all__ = ["Comm", "MpiComm", "over", "serial"]

_RECORD = struct.Struct("<24sqqq")
_RECORD_BYTES = 256
_INLINE = _RECORD_BYTES - _RECORD.size
_TAG_LEFT = 4001
_TAG_HERE = 4002
_LONGEST_NOTE = 4096


class Comm:
    """One process: every collective returns at once."""

    rank: int = 0
    size: int = 1
    mpi: Any = None
    """The mpi4py communicator, or None."""

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

    def from_root(self, operation: str, payload: bytes = b"", *, error: BaseException | None = None) -> bytes:
        """Bytes of rank 0, on all ranks; an error of any rank is raised on all."""
        return self.exchange(operation, payload, error=error)[0]

    def abandon(self, reason: str) -> None:
        """Tell all other ranks, without waiting, that this rank takes part in nothing any more."""

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
    TypeError
        `mpi` is no intracommunicator of mpi4py.
    """
    from mpi4py import MPI

    if not isinstance(mpi, MPI.Intracomm):
        raise TypeError(f"comm={mpi!r}: an mpi4py intracommunicator (such as MPI.COMM_WORLD) is needed")
    return MpiComm(mpi.Dup(), timeout=timeout)


class MpiComm(Comm):
    """The ranks of an MPI communicator, which this object owns."""

    def __init__(self, mpi: Any, *, timeout: float | None) -> None:
        from mpi4py import MPI

        self._MPI = MPI
        self.mpi = mpi
        self.rank = mpi.Get_rank()
        self.size = mpi.Get_size()
        self.timeout = timeout
        self._sequence = 0
        self._broken: errors.RankError | None = None
        # Requests that were given up: MPI may still write to their buffers.
        self._given_up: list[Any] = []

    def exchange(self, operation: str, payload: bytes = b"", *, error: BaseException | None = None) -> list[bytes]:
        if self._broken is not None:
            raise type(self._broken)(str(self._broken), self._broken.ranks)
        body = payload if error is None else _pack_error(error)
        self._sequence += 1
        record = bytearray(_RECORD_BYTES)
        _RECORD.pack_into(record, 0, operation.encode()[:24], self._sequence, int(error is not None), len(body))
        inline = body[:_INLINE]
        record[_RECORD.size : _RECORD.size + len(inline)] = inline
        everyone = bytearray(_RECORD_BYTES * self.size)
        self._wait(operation, self.mpi.Iallgather(record, everyone), (record, everyone))
        heads = [_RECORD.unpack_from(everyone, r * _RECORD_BYTES) for r in range(self.size)]
        self._check_operations(heads)
        lengths = [head[3] for head in heads]
        if max(lengths) > _INLINE:
            bodies = self._exchange_long(operation, body, lengths)
        else:
            starts = [r * _RECORD_BYTES + _RECORD.size for r in range(self.size)]
            bodies = [bytes(everyone[at : at + n]) for at, n in zip(starts, lengths, strict=True)]
        failed = [r for r, head in enumerate(heads) if head[2]]
        if failed:
            if error is not None and self.rank == failed[0] and self.size == 1:
                raise error
            raise _unpack_error(bodies[failed[0]], failed, self.size) from error
        return bodies

    def _exchange_long(self, operation: str, body: bytes, lengths: list[int]) -> list[bytes]:
        sent = bytearray(body)
        got = bytearray(sum(lengths))
        request = self.mpi.Iallgatherv([sent, self._MPI.BYTE], [got, lengths, self._MPI.BYTE])
        self._wait(operation, request, (sent, got))
        bodies, at = [], 0
        for n in lengths:
            bodies.append(bytes(got[at : at + n]))
            at += n
        return bodies

    def _check_operations(self, heads: list[Any]) -> None:
        operations = [head[0].rstrip(b"\0").decode() for head in heads]
        if len(set(operations)) > 1 or len({head[1] for head in heads}) > 1:
            by_name: dict[str, list[int]] = {}
            for r, name in enumerate(operations):
                by_name.setdefault(name, []).append(r)
            what = "; ".join(f"{name}: {ranks_text(ranks)}" for name, ranks in by_name.items())
            raise errors.CollectiveMismatchError(
                f"ranks called different collective operations ({what}); "
                "open, flush, close and collective reads must be called by all ranks in the same order",
                [r for ranks in list(by_name.values())[1:] for r in ranks],
            )

    def _wait(self, operation: str, request: Any, buffers: tuple[Any, ...]) -> None:
        """Complete `request`, hearing the farewells of other ranks, sleeping longer the longer it takes."""
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        pause, turns = 0.0, 0
        while not request.Test():
            turns += 1
            if turns % 16 == 0:
                self._hear_farewells(operation, request, buffers)
                if deadline is not None and time.monotonic() > deadline:
                    self._give_up(operation, request, buffers)
            if turns > 64:
                pause = min(0.001, pause + 0.00002)
            time.sleep(pause)
        # A rank that comes late may find all messages of the others already there, and the others gone.
        self._hear_farewells(operation, request, buffers)

    def _hear_farewells(self, operation: str, request: Any, buffers: tuple[Any, ...]) -> None:
        status = self._MPI.Status()
        if self.mpi.Iprobe(self._MPI.ANY_SOURCE, _TAG_LEFT, status):
            note = bytearray(_LONGEST_NOTE)
            self.mpi.Recv([note, self._MPI.BYTE], status.Get_source(), _TAG_LEFT, status)
            reason = bytes(note[: status.Get_count(self._MPI.BYTE)]).decode(errors="replace")
            left = status.Get_source()
            self._given_up.append((request, buffers))
            self._broken = errors.RankError(
                f"{operation} cannot be completed: rank {left} left the file: {reason}", [left]
            )
            raise self._broken
        if self.mpi.Iprobe(self._MPI.ANY_SOURCE, _TAG_HERE, status) and self.timeout is not None:
            # Others have run out of patience with this rank, which came late: their call has failed.
            self._give_up(operation, request, buffers)

    def _give_up(self, operation: str, request: Any, buffers: tuple[Any, ...]) -> None:
        """Name the ranks that did not come: all that are here say so to all, and listen for a while."""
        MPI = self._MPI
        self._given_up.append((request, buffers))
        note = bytearray(self._sequence.to_bytes(8, "little"))
        for other in range(self.size):
            if other != self.rank:
                self._given_up.append((self.mpi.Isend([note, MPI.BYTE], other, _TAG_HERE), note))
        here = {self.rank}
        patience = time.monotonic() + min(2.0, max(0.5, (self.timeout or 1.0) / 4))
        status = MPI.Status()
        while time.monotonic() < patience and len(here) < self.size:
            if self.mpi.Iprobe(MPI.ANY_SOURCE, _TAG_HERE, status):
                heard = bytearray(8)
                self.mpi.Recv([heard, MPI.BYTE], status.Get_source(), _TAG_HERE)
                here.add(status.Get_source())
            else:
                time.sleep(0.005)
        absent = sorted(set(range(self.size)) - here)
        who = f"{ranks_text(absent)} did not come" if absent else "a rank came too late"
        self._broken = errors.CollectiveTimeout(
            f"{operation} (collective call {self._sequence} of this file): {who} within {self.timeout:g} s; "
            "every rank must call it (collective_timeout= sets the patience)",
            absent,
        )
        raise self._broken

    def abandon(self, reason: str) -> None:
        if self._broken is None:
            self._broken = errors.RankError(f"this rank left the file: {reason}", [self.rank])
            note = bytearray(reason.encode(errors="replace")[:_LONGEST_NOTE])
            for other in range(self.size):
                if other != self.rank:
                    request = self.mpi.Isend([note, self._MPI.BYTE], other, _TAG_LEFT)
                    self._given_up.append((request, note))

    @property
    def broken(self) -> bool:
        """True after a timeout or a farewell: no collective can be completed any more."""
        return self._broken is not None

    def close(self) -> None:
        # Free is collective: a communicator with calls that were given up can only be left to MPI_Finalize.
        if self._broken is None and self.mpi is not None:
            self.mpi.Free()
        self.mpi = None


def ranks_text(ranks: list[int]) -> str:
    """``rank 3`` or ``ranks 0-2, 5``; a long list is cut."""
    parts: list[str] = []
    at = 0
    while at < len(ranks) and len(parts) < 8:
        end = at
        while end + 1 < len(ranks) and ranks[end + 1] == ranks[end] + 1:
            end += 1
        parts.append(str(ranks[at]) if end == at else f"{ranks[at]}-{ranks[end]}")
        at = end + 1
    more = ", ..." if at < len(ranks) else ""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(parts) + more


def _pack_error(error: BaseException) -> bytes:
    return json.dumps(
        {
            "type": next(c.__name__ for c in type(error).__mro__ if _known_class(c.__name__) is not None),
            "text": getattr(error, "strerror", None) or str(error),
            "errno": getattr(error, "errno", None) or 0,
            "filename": _text_or_none(getattr(error, "filename", None)),
            "plain": {k: getattr(error, k) for k in ("offset", "field") if hasattr(error, k)},
        }
    ).encode()


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _known_class(name: str) -> type[Exception] | None:
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _unpack_error(packed: bytes, failed: list[int], size: int) -> Exception:
    told = json.loads(packed)
    cls = _known_class(told["type"]) or errors.RankError
    text = told["text"] if len(failed) == size else f"{told['text']} (on {ranks_text(failed)})"
    if issubclass(cls, errors.FormatError):
        return cls(text, **told["plain"])
    if issubclass(cls, errors.FlushError):
        return cls(text, (), told["errno"])
    if issubclass(cls, OSError) and not issubclass(cls, errors.PncVolError) and told["errno"]:
        return cls(told["errno"], text, told["filename"]) if told["filename"] else cls(told["errno"], text)
    if issubclass(cls, UnicodeError):
        return ValueError(text)
    return cls(text)
