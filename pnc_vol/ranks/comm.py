"""A communicator is one process, or the ranks of an MPI communicator; an error of one rank is raised on all of them.

Knows: ranks and sets of them, what they agree on, exceptions. Does not know: files, variables; how ranks of MPI do it
(`mpi_comm`), how a rank waits for the others (`waiting`).
Together with `drivers.mpio` and what stands under it this is the only module that imports mpi4py.

Rules
-----
1. Ranks have four verbs. `agree` is one reduction, in which they compare the operation, learn whether one failed, and
   form maxima and sums. `broadcast` gives them a value of rank 0, `merge` one value that a commutative or at least
   associative function makes of theirs, and `exchange` takes arrays from some ranks to others.
2. Every call begins with the reduction of `agree`, and mostly that is the whole call.
3. If any rank gave an error, every rank raises it, whatever the operations are: an error between two calls
   (`errors_shared`) ends the others' call at the next one. If ranks gave different operations, every rank raises
   `CollectiveMismatchError`. If a rank does not come in time, those that came raise `CollectiveTimeout`.
4. A rank that leaves a file by an exception says so (`abandon`) and how many calls it completed; a rank that waits for
   it raises at once, and what it took part in before is complete on all ranks, however late they are.
5. What a call needs is allocated with the communicator, or agreed on: no rank fails in the middle of one.
6. Values travel in the one form of `mpi_comm.encoded`; arrays as they are.

An *outcome* is what ranks did in one collective call: ``operations``, which ranks called what, ``failed``, which ranks
failed, and ``first``, the error of the lowest of these, or None. It names ranks as ranges, so that its length does not
depend on how many ranks there are. A set of ranks in a value is ``[ranges, number]``, see `Ranks`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from pnc_vol import errors
from pnc_vol.errors import OperationError, RankError

if TYPE_CHECKING:
    from pnc_vol.ranks.levels import Levels
    from pnc_vol.ranks.places import Nodes

__all__ = [
    "Comm",
    "Join",
    "Ranks",
    "Traffic",
    "error_of",
    "error_value",
    "first_trouble",
    "joined_lists",
    "joined_outcomes",
    "joined_texts",
    "mismatch",
    "on_every",
    "on_root",
    "outcome_of",
    "ranks_by_text",
    "ranks_text",
    "reported_to_all",
    "serial",
    "trouble_of",
]

Bytes = npt.NDArray[np.uint8]
_Error = TypeVar("_Error", bound=BaseException)
V = TypeVar("V")

_ALONE = nullcontext()

Join = Callable[[Any, Any], Any]
"""Makes one value of two, of which that of the lower ranks comes first. It is associative; equal values stay."""


class Comm:
    """One process: every collective returns at once."""

    rank: int = 0
    size: int = 1
    mpi: Any = None
    """The mpi4py communicator, or None."""

    def __init__(self) -> None:
        self.traffic = Traffic()

    @property
    def timeout(self) -> float | None:
        """Seconds to wait for the other ranks in one collective call; None: without end."""
        return None

    def agree(
        self,
        operation: str,
        most: Sequence[int] = (),
        total: Sequence[int] = (),
        *,
        error: BaseException | None = None,
    ) -> tuple[list[int], list[int]]:
        """Wait until all ranks are here, and learn that none has failed: one reduction (collective).

        Parameters
        ----------
        operation : str, the same on all ranks.
        most : sequence of int, at most 40 of 64 bits. ``~`` of the largest ``~x`` is the smallest ``x``.
        total : sequence of int, at most 8 of 64 bits; the same number of them on all ranks.
        error : Exception, optional
            What went wrong on this rank; it is raised on all.

        Returns
        -------
        maxima, sums : lists of int
            The largest of each of the numbers `most` of all ranks, and the sums of `total`.

        Raises
        ------
        Exception
            The first failing rank's error, of the same class on all ranks.
        CollectiveMismatchError, CollectiveTimeout, RankError
            See the rules of this module.
        """
        if error is not None:
            raise error
        return list(most), list(total)

    def merge(self, operation: str, local: Any, join: Join, *, error: BaseException | None = None) -> Any:
        """Make one value of those of all ranks, in a tree (collective).

        It is one reduction if all ranks give the same, and then the value is returned as it is.

        Parameters
        ----------
        operation, error : see `agree`.
        local : value, see `mpi_comm.encoded`; None if this rank has nothing to add.
        join : callable
            Makes one of two values that are not None.
        """
        if error is not None:
            raise error
        return local

    def broadcast(self, operation: str, value: Any = None, *, error: BaseException | None = None) -> Any:
        """Give a value of rank 0 to all ranks (collective); an error of any rank is raised on all.

        It is one reduction if the value is short.
        """
        if error is not None:
            raise error
        return value

    def exchange(self, operation: str, parcels: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Give arrays to some ranks, and get those that others give to this one, by rank in order (collective).

        Messages go only between ranks that have something for each other. What arrives begins at a multiple of 8.
        """
        return dict(parcels)

    def errors_shared(self) -> AbstractContextManager[None]:
        """Return a context in which an error of one rank is raised on all, at the call that the others come to next.

        Inside stands a part of a collective call after which every rank comes to another one. An error that all ranks
        raise already passes through.
        """
        return _ALONE

    def in_step(self, error: BaseException) -> bool:
        """Return whether every rank raised this error, out of the same call, so that all may go on together."""
        return True

    def on_all(self, error: _Error) -> _Error:
        """Note that every rank raises `error` now; returns it."""
        return error

    def nodes(self) -> Nodes:
        """Return where the ranks are (collective when it is asked first)."""
        # ranks have it from `mpi_comm`
        from pnc_vol.ranks.places import Nodes, cores

        return Nodes((0,), (cores(),), (0,), (0,), 1)

    def group(self, number: int) -> Comm:
        """Return a communicator of the ranks that give the same number, in the order of their ranks (collective)."""
        return Comm()

    def levels(self, node: int | None, *, writes: bool) -> Levels:
        """Return communicators for a write of two levels (collective), which the caller gives back.

        node : int, the same on ranks that share memory; None: all do, and no communicator is made.
        writes : bool, this rank sends to and receives from ranks of other nodes.
        """
        raise OperationError("a single process does not write in two levels")

    def limit(self, timeout: float | None) -> None:
        """Wait at most `timeout` seconds for the other ranks from now on; None: without end."""

    def abandon(self, reason: str) -> None:
        """Tell all other ranks, without waiting, that this rank takes part in nothing any more."""

    def part(self, values: Sequence[int], patience: float) -> list[int] | None:
        """Return the least of each of these numbers of all ranks after `abandon`, once all have left and told theirs.

        Messages that nobody has received are received. None: some ranks have not left within `patience` seconds, or
        this cannot be known; a later call goes on with the numbers of the first one.
        """
        return list(values) if self.size == 1 else None

    def observe(self, note: Callable[[str, float], None]) -> None:
        """Tell `note` of each collective call that ends: its name, and when waiting for it began (`perf_counter`)."""

    def close(self) -> None:
        """Give the private communicator back (collective)."""


def serial() -> Comm:
    """Return the communicator of a single process."""
    return Comm()


def ranks_by_text(comm: Comm, operation: str, text: str, *, error: BaseException | None = None) -> dict[str, Ranks]:
    """Return which ranks gave which text, the lowest first (collective); one reduction if all gave the same."""
    # Ranks that give the same have to give equal values, so each counts itself as rank 0 of one.
    found = comm.merge(operation, [1, {text: [[[0, 0]], 1]}], _joined_counts, error=error)
    if found[0] < comm.size:
        return {text: Ranks([[0, comm.size - 1]], comm.size)}
    return {one: Ranks(*ranks) for one, ranks in found[1].items()}


def _joined_counts(lower: Any, higher: Any) -> Any:
    """Join how many ranks there are and which of these gave which text: the higher ones follow the lower ones."""
    (count, by_text), (more, others) = lower, higher
    moved = {
        text: ([[first + count, last + count] for first, last in ranges], number)
        for text, (ranges, number) in others.items()
    }
    return [count + more, joined_texts(by_text, moved)]


def trouble_of(comm: Comm, operation: str, text: str, *, error: BaseException | None = None) -> str:
    """Return the trouble of the lowest rank that has any, with all ranks that have some (collective); "" if none has.

    text : str, that of this rank, or "".
    """
    return first_trouble(ranks_by_text(comm, operation, text, error=error), comm.size)


def first_trouble(by_text: Mapping[str, Ranks], size: int) -> str:
    """Return the trouble of the lowest rank that has any, with all ranks that have some; "" if none has."""
    trouble = next((one for one in by_text if one), "")
    ranks = Ranks.union(of for one, of in by_text.items() if one)
    return f"{trouble} (on {ranks_text(ranks)})" if trouble and size > 1 else trouble


def joined_lists(one: list[Any], other: list[Any]) -> list[Any]:
    """Join two lists, each item once: for `Comm.merge`."""
    return one + [item for item in other if item not in one]


def on_root(comm: Comm, operation: str, do: Callable[[], Any]) -> Any:
    """Let rank 0 do something, and give the value that it returns, or its error, to all ranks (collective)."""
    result, error = None, None
    if comm.rank == 0:
        try:
            result = do()
        except Exception as reason:
            error = reason
    return comm.broadcast(operation, result, error=error)


def on_every(comm: Comm, operation: str, do: Callable[[], object]) -> None:
    """Let each rank do something, and raise on all what one of them failed with (collective)."""
    # Raised when all ranks have come: at once, it would leave the others waiting.
    error = None
    try:
        do()
    except Exception as reason:
        error = reason
    comm.agree(operation, error=error)


@contextmanager
def reported_to_all(comm: Comm) -> Iterator[None]:
    """Report to all ranks an error that the ranks of one subfile have in common; in `Comm.errors_shared`."""
    try:
        yield
    # The ranks of the other subfiles wait in their next call, and know nothing of it.
    except RankError as error:
        if not comm.in_step(error):
            comm.agree("failed", error=error)
        raise


class Traffic:
    """What the calls of one communicator cost this rank.

    Collectives of the MPI library count as the algorithms that fit their sizes: a reduction as recursive doubling, a
    broadcast as a binomial tree.

    reductions : int, reductions of the fixed small vector.
    rounds : int, times that this rank waited for others.
    messages : int, messages that this rank sent.
    bytes_sent : int, bytes of these.
    largest_buffer : int, bytes of the largest buffer for what others send.
    before : tuple, these when the last flush began.
    """

    __slots__ = ("before", "bytes_sent", "largest_buffer", "messages", "reductions", "rounds")

    def __init__(self) -> None:
        self.reductions = self.rounds = self.messages = self.bytes_sent = self.largest_buffer = 0
        self.before = 0, 0, 0, 0

    def begin(self) -> None:
        """A flush begins: what is counted from now on is its own."""
        self.before = self.reductions, self.rounds, self.messages, self.bytes_sent

    def statistics(self) -> dict[str, dict[str, int]]:
        """Return the counts for `File.statistics`: since the file was opened, and since the last flush began."""
        names = "reductions", "rounds", "messages", "bytes_sent"
        now = self.reductions, self.rounds, self.messages, self.bytes_sent
        last = {name: n - b for name, n, b in zip(names, now, self.before, strict=True)}
        whole = dict(zip(names, now, strict=True)) | {"largest_buffer": self.largest_buffer}
        return {"communication": whole, "communication_of_flush": last}

    def sent(self, messages: int, nbytes: int) -> None:
        """This rank sends messages of `nbytes` each."""
        self.messages += messages
        self.bytes_sent += messages * nbytes

    def received(self, nbytes: int) -> None:
        """This rank has a buffer for what others send."""
        self.largest_buffer = max(self.largest_buffer, nbytes)


# ----------------------------------------------------------------- errors of ranks, and sets of ranks

# Bounds of an outcome, which travels in a tree over all ranks: its length must not grow with their number.
_MOST_RANGES = 256
_MOST_GROUPS = 16
_LONGEST_TEXT = 4000


def ranks_text(ranks: Ranks | Sequence[int]) -> str:
    """Return ``rank 3`` or ``ranks 0-2, 5``; a long list is cut."""
    known = ranks if isinstance(ranks, Ranks) else Ranks.of(ranks)
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in known.ranges[:8]]
    more = ", ..." if len(known.ranges) > 8 else ""
    return ("rank " if known.number == 1 else "ranks ") + ", ".join(parts) + more


def error_value(error: BaseException) -> dict[str, Any]:
    """Return an error as a value: its class, as far as others know it, and its text."""
    return {
        "type": next((c.__name__ for c in type(error).__mro__ if _known_class(c.__name__) is not None), "RankError"),
        "text": (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:_LONGEST_TEXT],
        "errno": getattr(error, "errno", None) or 0,
        "filename": _text_or_none(getattr(error, "filename", None)),
        "plain": {k: getattr(error, k) for k in ("offset", "field") if hasattr(error, k)},
    }


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _known_class(name: str) -> type[Exception] | None:
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def error_of(outcome: Mapping[str, Any], size: int) -> Exception:
    """Return the error of an outcome in which some of `size` ranks failed; the text names them unless it is all."""
    failed, value = Ranks(*outcome["failed"]), outcome["first"]
    cls = _known_class(value["type"]) or errors.RankError
    text = value["text"] if failed.number == size else f"{value['text']} (on {ranks_text(failed)})"
    # Classes whose constructors take more than a text are made from what has travelled with it.
    if issubclass(cls, errors.FormatError):
        return cls(text, **value["plain"])
    if issubclass(cls, errors.FlushError):
        return cls(text, (), value["errno"])
    plain = cls in (errors.SyncError, errors.LockedError) or not issubclass(cls, errors.PncVolError)
    if issubclass(cls, OSError) and plain and value["errno"]:
        return cls(value["errno"], text, value["filename"]) if value["filename"] else cls(value["errno"], text)
    # Its constructor takes the bytes in question, which did not travel.
    if issubclass(cls, UnicodeError):
        return ValueError(text)
    return cls(text)


@dataclass(slots=True)
class Ranks:
    """A set of ranks as ranges, in order; of very scattered ones only the first ranges.

    ranges : list of (first, last)
    number : int, how many ranks it has.
    """

    ranges: list[list[int]] = field(default_factory=list)
    number: int = 0

    @classmethod
    def of(cls, ranks: Sequence[int]) -> Ranks:
        """Make a set from a list in order."""
        ends = [*(np.flatnonzero(np.diff(ranks) != 1) + 1).tolist(), len(ranks)] if ranks else []
        runs = zip([0, *ends], ends, strict=False)
        return cls([[ranks[at], ranks[end - 1]] for at, end in islice(runs, _MOST_RANGES)], len(ranks))

    @classmethod
    def union(cls, parts: Iterable[Ranks]) -> Ranks:
        """Return disjoint sets as one."""
        whole = cls()
        for one in parts:
            whole.number += one.number
            whole.ranges += one.ranges
        whole.ranges.sort()
        return whole.joined(cls())

    @classmethod
    def by_value(cls, pairs: Iterable[tuple[V, Ranks]]) -> dict[V, Ranks]:
        """Return disjoint sets that have a value each, those of the same value as one."""
        found: dict[V, Ranks] = {}
        for value, ranks in pairs:
            found[value] = cls.union((found.get(value, cls()), ranks))
        return found

    def joined(self, higher: Ranks) -> Ranks:
        """Return these, and ranks that are all higher."""
        ranges: list[list[int]] = []
        for first, last in (*self.ranges, *higher.ranges):
            if ranges and ranges[-1][1] + 1 == first:
                ranges[-1][1] = last
            elif len(ranges) < _MOST_RANGES:
                ranges.append([first, last])
        return Ranks(ranges, self.number + higher.number)

    def value(self) -> list[Any]:
        """Return the set as a value that ranks can send each other."""
        return [self.ranges, self.number]

    @property
    def lowest(self) -> int:
        """The lowest of them."""
        return self.ranges[0][0]

    def all(self) -> list[int]:
        """Return each of them, as far as known."""
        return [rank for first, last in self.ranges for rank in range(first, last + 1)]


def outcome_of(rank: int, operation: str, error: BaseException | None) -> dict[str, Any]:
    """Return the outcome on one rank."""
    failed = [[], 0] if error is None else [[[rank, rank]], 1]
    first = None if error is None else error_value(error)
    return {"operations": {operation: [[[rank, rank]], 1]}, "failed": failed, "first": first}


def joined_outcomes(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcome on some ranks and on higher ones."""
    return {
        "operations": joined_texts(lower["operations"], higher["operations"]),
        "failed": Ranks(*lower["failed"]).joined(Ranks(*higher["failed"])).value(),
        "first": lower["first"] or higher["first"],
    }


def joined_texts(lower: Mapping[str, Any], higher: Mapping[str, Any]) -> dict[str, Any]:
    """Return which ranks gave which text, of some ranks and of higher ones; of very many texts the first ones."""
    found = dict(lower)
    for text, ranks in higher.items():
        if text in found or len(found) < _MOST_GROUPS:
            found[text] = Ranks(*found.get(text, ([], 0))).joined(Ranks(*ranks)).value()
    return found


def mismatch(outcome: Mapping[str, Any]) -> errors.CollectiveMismatchError:
    """Return the error of different operations; its ranks are those that did not do what the lowest rank did."""
    operations = {name: Ranks(*ranks) for name, ranks in outcome["operations"].items()}
    what = "; ".join(f"{name}: {ranks_text(ranks)}" for name, ranks in operations.items())
    return errors.CollectiveMismatchError(
        f"ranks called different collective operations ({what}); "
        "open, flush, close and collective reads must be called by all ranks in the same order",
        [rank for ranks in list(operations.values())[1:] for rank in ranks.all()],
    )
