"""The ranks of an MPI communicator agree, merge what they know, and send each other arrays.

Knows: collective calls and messages of MPI. Does not know: files, variables; how a rank waits (`waiting`); mpi4py,
which it gets from its user, but for `over`.

Rules
-----
1. `_reduced` begins every call: one nonblocking reduction (maximum) of a vector of fixed length, allocated with the
   communicator. A word and its complement in it tell whether all ranks gave the same. Sums are a second reduction under
   way at the same time, since a reduction has one operation; a rank that has none completes that of the others if the
   call fails. An operation of ours, in Python, would need one reduction, but what fails in it aborts the job.
2. Only when the vector shows an error or a difference, a second step finds out who and what: the outcomes of the ranks
   are merged in a binomial tree, ranks as ranges, and the result is broadcast. No rank gets the words of all.
3. What fails on a rank inside such a tree travels in the tree, and is raised on all.
4. A rank on which a call is cut short, by Ctrl-C or for want of memory, takes part in no later one (`_uncut`).
5. Received sizes are known before the memory is allocated, and whether all ranks have it is agreed on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from pnc_vol import errors
from pnc_vol.ranks.comm import Comm, Join, error_of, joined_outcomes, mismatch, outcome_of
from pnc_vol.ranks.levels import NO_ANSWER, Exchange, Levels
from pnc_vol.ranks.places import Nodes, cores, kept_nodes
from pnc_vol.ranks.waiting import Arrival, TimedWait, patiently

__all__ = ["MpiComm", "decoded", "encoded", "over"]

_Error = TypeVar("_Error", bound=BaseException)
P = ParamSpec("P")
T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]

_VALUES = 40
_SUMS = 8
_VECTOR = struct.Struct(f"<{6 + _VALUES}q")
_TOTAL = struct.Struct(f"<{_SUMS}q")
_NO_SUMS = (0,) * _SUMS
_NO_VALUES = (0,) * _VALUES
_LENGTH = struct.Struct("<q")
_SIZE = struct.Struct("<2q")
"""A rank, and how many bytes it will send."""
_LOWEST = -(1 << 63)
_INLINE = 8 * (_VALUES - 1)
"""Bytes of rank 0 that travel in the reduction itself."""
_WITH_LENGTH = 504
"""Bytes of the result of a tree that are broadcast together with its length."""
_ROOM = 64 << 10
"""Bytes for which there is always room."""
_PART = 1 << 30
"""Bytes of one message at most; some MPI libraries fail beyond 2 GiB."""
_TAGS = 5000


@functools.lru_cache(maxsize=256)
def _word_of(operation: str) -> int:
    """Return `_word` of an operation, of which there are few."""
    return _word(operation.encode())


def _word(content: bytes) -> int:
    """Return 64 bits that tell one content from another."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


# --------------------------------------------------------------------------------------------------------------- codec
# A value is None, a number, a text, bytes, or a list or dictionary of such, with texts as keys; a tuple arrives as a
# list. JSON and not pickle: what a rank receives is data, and can make no object. Bytes stand behind the JSON because
# headers and lists of runs may have megabytes, which as hexadecimal digits would double, and be copied once more.


_BYTES = "\0bytes"
"""The key of a dictionary that stands for bytes: their number. No name in a file begins with this character."""


def encoded(value: Any) -> bytes:
    """Return a value as bytes.

    Examples
    --------
    >>> encoded([1, "a"]), encoded({"header": b"CDF", "n": 2})
    (b'[1,"a"]', b'{"header":{"\\\\u0000bytes":3},"n":2}\\nCDF')
    >>> decoded(encoded({"header": b"CDF", "n": 2}))
    {'header': b'CDF', 'n': 2}
    """
    behind: list[bytes] = []

    def put_behind(one: Any) -> dict[str, int]:
        if not isinstance(one, bytes):
            raise TypeError(f"{type(one).__name__} cannot be sent to other ranks")
        behind.append(one)
        return {_BYTES: len(one)}

    text = json.dumps(value, separators=(",", ":"), default=put_behind).encode()
    # JSON as it is written here has no line breaks.
    return b"\n".join((text, b"".join(behind))) if behind else text


def decoded(packed: bytes) -> Any:
    """Return the value that `encoded` made into bytes."""
    at = packed.find(b"\n")
    if at < 0:
        return json.loads(packed)

    def from_behind(one: dict[str, Any]) -> Any:
        nonlocal at
        if _BYTES not in one:
            return one
        begin, at = at + 1, at + one[_BYTES]
        return packed[begin : at + 1]

    return json.loads(packed[:at], object_hook=from_behind)


def _packed(value: Any, error: BaseException | None) -> tuple[bytes, BaseException | None]:
    """Return a value as bytes, b"" for None, and the error of this rank: a value that cannot be sent is one."""
    try:
        return b"" if value is None or error is not None else encoded(value), error
    except Exception as reason:
        return b"", reason


def _merged(rank: int, part: bytes, arrived: bytes | BaseException, join: Callable[[Any, Any], Any]) -> bytes:
    """Return one part of two, on `rank`: 0 and an encoded value, or 1 and the outcome that says why there is no
    value."""
    try:
        if isinstance(arrived, BaseException):
            raise arrived
        if not part or not arrived or part[0] != arrived[0]:
            return max(part, arrived, key=lambda one: one[:1])
        joined = joined_outcomes if part[0] == 1 else join
        return part[:1] + encoded(joined(decoded(part[1:]), decoded(arrived[1:])))
    except Exception as error:
        return b"\1" + encoded(outcome_of(rank, "", error))


# -------------------------------------------------------------------------------------------------------- communicator


def _uncut(verb: Callable[P, T]) -> Callable[P, T]:
    """Decorate a collective call: a rank on which Ctrl-C, or no memory, cuts it short leaves the communicator.

    Its next call would meet this one of the other ranks.
    """

    @functools.wraps(verb)
    def whole(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return verb(*args, **kwargs)
        except BaseException as error:
            comm: Any = args[0]
            if not comm.in_step(error):
                comm._calls.leave_if_interrupted("its collective call", error)
            raise

    return whole


class MpiComm(Comm):
    """The ranks of an MPI communicator, which this object owns.

    mpi : mpi4py.MPI.Intracomm
    module : the module mpi4py.MPI
    timeout : float or None, seconds to wait in one call.
    origin : mpi4py.MPI.Intracomm, optional, what `mpi` is a copy of: keeps where the ranks are for all its files.
    file : str, what the calls are about, for messages.
    """

    def __init__(
        self, mpi: Any, module: Any, *, timeout: float | None, origin: Any = None, file: str = "this file"
    ) -> None:
        super().__init__()
        self._MPI = module
        self.mpi = mpi
        self._origin = origin
        self._nodes: Nodes | None = None
        self.rank = mpi.Get_rank()
        self.size = mpi.Get_size()
        self._calls = TimedWait(mpi, module, timeout, file)
        self._calls.crowded = self.size > cores()
        # A failed allocation in the middle of a call would leave the others waiting.
        self._sent, self._got = bytearray(_VECTOR.size), bytearray(_VECTOR.size)
        self._sent_sums, self._got_sums = bytearray(_TOTAL.size), bytearray(_TOTAL.size)
        self._room = bytearray(_ROOM)
        self._raised_by_all: BaseException | None = None
        # The last error of a collective call here: the cause, if the ranks are found out of step afterwards.
        self._last_error: BaseException | None = None

    @property
    def _depth(self) -> int:
        """Steps of a tree over all ranks."""
        return (self.size - 1).bit_length()

    # ------------------------------------------------------------------------------------------- the verbs

    @_uncut
    def agree(
        self,
        operation: str,
        most: Sequence[int] = (),
        total: Sequence[int] = (),
        *,
        error: BaseException | None = None,
    ) -> tuple[list[int], list[int]]:
        got, sums = self._reduced(operation, (*most, *_NO_VALUES[len(most) :]), total, error)
        return list(got[: len(most)]), list(sums[: len(total)])

    @_uncut
    def broadcast(self, operation: str, value: Any = None, *, error: BaseException | None = None) -> Any:
        # The others give the lowest number that there is, so the maxima are what rank 0 gives.
        values: tuple[int, ...] = (_LOWEST,) * _VALUES
        packed = b""
        if self.rank == 0:
            packed, error = _packed(value, error)
            inline = packed[:_INLINE] if len(packed) <= _INLINE else b""
            values = (len(packed), *struct.unpack(f"<{_VALUES - 1}q", inline.ljust(_INLINE, b"\0")))
        got, _ = self._reduced(operation, values, (), error)
        if got[0] <= _INLINE:
            packed = struct.pack(f"<{_VALUES - 1}q", *got[1:])[: got[0]]
        else:
            packed = self._spread(operation, packed, got[0])
        return value if self.rank == 0 or not packed else decoded(packed)

    @_uncut
    def merge(self, operation: str, local: Any, join: Join, *, error: BaseException | None = None) -> Any:
        packed, error = _packed(local, error)
        word = _word(packed)
        got, _ = self._reduced(operation, (word, ~word, len(packed), ~len(packed), *_NO_VALUES[4:]), (), error)
        # All gave the same bytes, by their digest and length: nobody has to send any.
        if got[0] == ~got[1] and got[2] == ~got[3]:
            return local
        return decoded(self._tree(operation, packed, join))

    @_uncut
    def exchange(self, operation: str, parcels: Mapping[int, Bytes]) -> dict[int, Bytes]:
        outgoing = {rank: parcel for rank, parcel in parcels.items() if parcel.nbytes}
        got, _ = self._reduced(operation, (len(outgoing.keys() - {self.rank}), *_NO_VALUES[1:]), (), None)
        found = {self.rank: outgoing.pop(self.rank)} if self.rank in outgoing else {}
        if not got[0]:
            return found
        coming = self._announce(operation, {rank: parcel.nbytes for rank, parcel in outgoing.items()})
        lack: Exception | None = None
        try:
            found |= {rank: np.empty(-(-n // 8) * 8, np.uint8)[:n] for rank, n in coming.items()}
        except Exception as error:
            lack = error
        self.agree(operation, error=lack)
        self.traffic.received(sum(coming.values()))
        tag = self._tag()
        # Receives before sends: what comes finds its memory, and needs no buffer of the MPI library.
        requests = [one for rank in sorted(coming) for one in self._parts(self.mpi.Irecv, found[rank], rank, tag)]
        for rank, parcel in outgoing.items():
            requests += self._parts(self.mpi.Isend, parcel, rank, tag)
            self.traffic.sent(1, parcel.nbytes)
        for request in requests:
            self._calls.wait(operation, request, (requests,))
        self.traffic.rounds += 1
        return dict(sorted(found.items()))

    def observe(self, note: Callable[[str, float], None]) -> None:
        self._calls.note = note

    @contextmanager
    def errors_shared(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._last_error = error
            # What all ranks raise is known to the others, and what ends the communicator cannot reach them.
            alone = self._calls.broken is None and not isinstance(error, errors.RankError)
            if alone and not self.in_step(error):
                self.agree("failed", error=error)
            raise
        except BaseException as error:
            # between two calls of MPI; the others go on to the next one
            self._calls.leave(f"its collective call was cut short by {type(error).__name__}")
            raise

    def in_step(self, error: BaseException) -> bool:
        return error is self._raised_by_all

    def on_all(self, error: _Error) -> _Error:
        self._raised_by_all = error
        return error

    # ---------------------------------------------------------------------------- the reduction of every call

    def _reduced(
        self, operation: str, values: tuple[int, ...], sums: Sequence[int], error: BaseException | None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the maxima of `values`, and sums, once all ranks are here and none has failed."""
        number = self._calls.begin(operation)
        word = _word_of(operation)
        _VECTOR.pack_into(self._sent, 0, word, ~word, number, ~number, error is not None, bool(sums), *values)
        INT64 = self._MPI.INT64_T
        request = self.mpi.Iallreduce([self._sent, INT64], [self._got, INT64], self._MPI.MAX)
        # Both are under way before either is waited for.
        adding = self._add(sums) if sums else None
        self._wait(operation, request, (self._sent, self._got))
        self._calls.completed()
        self.traffic.reductions += 1
        self.traffic.sent(self._depth, _VECTOR.size)
        got = _VECTOR.unpack(self._got)
        # One that failed may have been on its way to another operation: then only the number of the call is compared.
        same = got[2] == ~got[3] and (got[4] or got[0] == ~got[1])
        # Others have begun a reduction of sums, which ends only if this rank takes part.
        if (got[4] or not same) and got[5] and adding is None:
            adding = self._add(())
        if adding is not None:
            self._wait(operation, adding, (self._sent_sums, self._got_sums))
        if got[4] or not same:
            self._raise_outcome(operation, error, failed=same)
        self._last_error = None
        return got[6:], _TOTAL.unpack(self._got_sums) if sums else ()

    def _add(self, sums: Sequence[int]) -> Any:
        """Begin the reduction of sums."""
        _TOTAL.pack_into(self._sent_sums, 0, *sums, *_NO_SUMS[len(sums) :])
        INT64 = self._MPI.INT64_T
        self.traffic.reductions += 1
        self.traffic.sent(self._depth, _TOTAL.size)
        return self.mpi.Iallreduce([self._sent_sums, INT64], [self._got_sums, INT64], self._MPI.SUM)

    def _raise_outcome(self, operation: str, error: BaseException | None, *, failed: bool) -> None:
        """Find out who failed or did something else, and raise it."""
        packed = encoded(outcome_of(self.rank, operation, error))
        outcome = decoded(self._tree(operation, packed, joined_outcomes))
        if not failed:
            raise mismatch(outcome) from error or self._last_error
        if error is not None and self.size == 1:
            raise self.on_all(error)
        raise self.on_all(error_of(outcome, self.size)) from error

    # --------------------------------------------------------------------------------------- trees, messages

    def _wait(self, operation: str, request: Any, buffers: tuple[Any, ...]) -> None:
        self.traffic.rounds += 1
        self._calls.wait(operation, request, buffers)

    def _tag(self) -> int:
        """Return the tag of the messages of the present call."""
        return _TAGS + self._calls.sequence % 8192

    def _tree(self, operation: str, packed: bytes, join: Join) -> bytes:
        """Merge the encoded values of all ranks up a binomial tree, and broadcast the result.

        Raises
        ------
        Exception
            Two parts could not be merged on some rank; raised on all.
        """
        tag, part, bit = self._tag(), b"\0" + packed if packed else b"", 1
        sent = None
        while bit < self.size:
            # Ranks whose lowest bit this is give what they have to the rank without it, and are done.
            if self.rank & bit:
                sent = self.mpi.Isend([part, self._MPI.BYTE], self.rank - bit, tag)
                self.traffic.sent(1, len(part))
                break
            if self.rank + bit < self.size:
                arrived = Arrival(self.mpi, self._MPI, self.rank + bit, tag)
                self._wait(operation, arrived, (arrived,))
                self.traffic.received(len(arrived.taken) if isinstance(arrived.taken, bytes) else 0)
                part = _merged(self.rank, part, arrived.taken, join)
            bit <<= 1
        # Mostly the result is so short that it comes with its length.
        head = bytearray(_LENGTH.pack(len(part)) + part[:_WITH_LENGTH].ljust(_WITH_LENGTH, b"\0"))
        self._broadcast(operation, head)
        (size,) = _LENGTH.unpack_from(head)
        whole = bytes(head[_LENGTH.size :][:size]) if size <= _WITH_LENGTH else self._spread(operation, part, size)
        if sent is not None:
            self._wait(operation, sent, (part,))
        if whole[:1] == b"\1":
            raise self.on_all(error_of(decoded(whole[1:]), self.size))
        return whole[1:]

    def _spread(self, operation: str, payload: bytes, length: int) -> bytes:
        """Return bytes of rank 0, whose number all know, on all ranks."""
        got = self._memory(operation, length)
        got[:] = payload if self.rank == 0 else got
        self._broadcast(operation, got)
        return bytes(got)

    def _memory(self, operation: str, length: int) -> Any:
        """Return the memory of a length that all ranks know; all have it, or all raise (collective if it is long)."""
        # There is always room for a short one, so no rank has to be asked.
        if length <= _ROOM:
            return memoryview(self._room)[:length]
        lack: Exception | None = None
        try:
            got = bytearray(length)
        except MemoryError as error:
            lack = error
        self.agree(operation, error=lack)
        return got

    def _broadcast(self, operation: str, memory: Any) -> None:
        """Fill `memory` with that of rank 0."""
        request = self.mpi.Ibcast([memory, self._MPI.BYTE], 0)
        self._wait(operation, request, (memory,))
        # What this rank sends in a binomial tree, as far as there are ranks.
        low = self._depth if self.rank == 0 else (self.rank & -self.rank).bit_length() - 1
        self.traffic.sent(sum(self.rank + (1 << level) < self.size for level in range(low)), len(memory))
        self.traffic.received(len(memory))

    def _announce(self, operation: str, sizes: Mapping[int, int]) -> dict[int, int]:
        """Tell some ranks how much comes to them; what comes to this one, by rank (nonblocking consensus)."""
        coming: dict[int, int] = {}

        def taken(message: Bytes) -> None:
            rank, coming[rank] = _SIZE.unpack(message.data)

        packed = {rank: np.frombuffer(_SIZE.pack(self.rank, size), np.uint8) for rank, size in sizes.items()}
        messages = [(rank, message, NO_ANSWER) for rank, message in packed.items()]
        work = Exchange(self.mpi, self.mpi, self._MPI, self._tag(), messages, taken, np.empty(_SIZE.size, np.uint8))
        self._wait(operation, work, (work, messages))
        self.traffic.sent(len(sizes), _SIZE.size)
        self.traffic.sent(self._depth, 0)
        return coming

    def _parts(self, verb: Callable[..., Any], array: Bytes, rank: int, tag: int) -> list[Any]:
        """Begin to send or receive an array, in messages that every MPI library can carry."""
        BYTE = self._MPI.BYTE
        return [verb([array[at : at + _PART], BYTE], rank, tag) for at in range(0, array.nbytes, _PART)]

    # ------------------------------------------------------------------------------------------ who is where

    @_uncut
    def nodes(self) -> Nodes:
        if self._nodes is None:
            # From here on to the end nobody waits with a time limit.
            self._nodes = kept_nodes(self.mpi, self._MPI, self._origin, lambda: self.agree("nodes"))
            node = self._nodes.of(self.rank)
            # Where ranks share cores, one that spins takes the core from those that it waits for.
            self._calls.crowded = len(self._nodes.ranks(node)) > self._nodes.cores[node]
        return self._nodes

    @_uncut
    def group(self, number: int) -> Comm:
        # From here on to the end nobody waits with a time limit.
        self.agree("group")
        made = MpiComm(self.mpi.Split(number, self.rank), self._MPI, timeout=self.timeout, file=self._calls.file)
        if self._nodes is not None:
            # Which ranks these are is known without asking them.
            ours, all_ranks = made.mpi.Get_group(), self.mpi.Get_group()
            made._nodes = self._nodes.among(ours.Translate_ranks(None, all_ranks))
            ours.Free()
            all_ranks.Free()
        return made

    @_uncut
    def levels(self, node: int | None, *, writes: bool) -> Levels:
        if node is not None:
            self.agree("levels")
        return Levels.split(self._calls, self.traffic, node, writes=writes)

    @property
    def timeout(self) -> float | None:
        """Seconds to wait for the other ranks in one call."""
        return self._calls.timeout

    def limit(self, timeout: float | None) -> None:
        self._calls.timeout = timeout

    def abandon(self, reason: str) -> None:
        self._calls.leave(reason)

    def part(self, values: Sequence[int], patience: float) -> list[int] | None:
        return self._calls.part(values, patience)

    def close(self) -> None:
        self._calls.free()
        self.mpi = None


def over(mpi: Any, *, timeout: float | None = 300.0, file: str = "this file") -> Comm:
    """Return a private communicator over the ranks of `mpi` (collective).

    Parameters
    ----------
    mpi : mpi4py.MPI.Comm, or a `Comm`, as virtual ranks (`testing.virtual_ranks`) have
    timeout : float or None, seconds to wait for the other ranks in one collective call.
    file : str, what the calls are about, for messages.

    Raises
    ------
    TypeError, ValueError
        `mpi` is no intracommunicator of mpi4py, or the null communicator.
    OperationError
        MPI is not initialized yet, or has ended.
    CollectiveTimeout
        Not all ranks came in time.
    """
    if isinstance(mpi, Comm):
        return mpi
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
            return MpiComm(private, MPI, timeout=timeout, origin=mpi, file=file)
    raise errors.CollectiveTimeout(
        f"open: not all {mpi.Get_size()} ranks opened {file} within {timeout:g} s; every rank must open the file "
        "(collective_timeout= sets the time limit)"
    )
