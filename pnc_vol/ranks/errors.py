"""Errors of one rank in a form that all ranks can raise, and what many ranks did in a few words.

Knows: exceptions, sets of ranks. Does not know: communicators, files.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol import errors
from pnc_vol.late import late

if TYPE_CHECKING:
    import json
else:
    json = late("json")

__all__ = ["Outcome", "Ranks", "merged", "pack_error", "ranks_text", "unpack_error"]

_MOST_RANGES = 256
_MOST_GROUPS = 16
_LONGEST_TEXT = 4000


def ranks_text(ranks: Ranks | Sequence[int]) -> str:
    """``rank 3`` or ``ranks 0-2, 5``; a long list is cut."""
    known = ranks if isinstance(ranks, Ranks) else Ranks.of(ranks)
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in known.ranges[:8]]
    more = ", ..." if len(known.ranges) > 8 else ""
    return ("rank " if known.number == 1 else "ranks ") + ", ".join(parts) + more


def pack_error(error: BaseException) -> bytes:
    """An error as bytes: its class, as far as others know it, and its text."""
    return json.dumps(
        {
            "type": next(
                (c.__name__ for c in type(error).__mro__ if _known_class(c.__name__) is not None), "RankError"
            ),
            "text": (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:_LONGEST_TEXT],
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


def unpack_error(packed: bytes, failed: Ranks, size: int) -> Exception:
    """The error of ranks `failed` of `size`; the text names them unless it is all."""
    told = json.loads(packed)
    cls = _known_class(told["type"]) or errors.RankError
    text = told["text"] if failed.number == size else f"{told['text']} (on {ranks_text(failed)})"
    if issubclass(cls, errors.FormatError):
        return cls(text, **told["plain"])
    if issubclass(cls, errors.FlushError):
        return cls(text, (), told["errno"])
    plain = cls in (errors.SyncError, errors.LockedError) or not issubclass(cls, errors.PncVolError)
    if issubclass(cls, OSError) and plain and told["errno"]:
        return cls(told["errno"], text, told["filename"]) if told["filename"] else cls(told["errno"], text)
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
        """From a list in order."""
        ends = [*(np.flatnonzero(np.diff(ranks) != 1) + 1).tolist(), len(ranks)] if ranks else []
        runs = zip([0, *ends], ends, strict=False)
        return cls([[ranks[at], ranks[end - 1]] for at, end in islice(runs, _MOST_RANGES)], len(ranks))

    @classmethod
    def union(cls, parts: Iterable[Ranks]) -> Ranks:
        """Disjoint sets as one."""
        whole = cls()
        for one in parts:
            whole.number += one.number
            whole.ranges += one.ranges
        whole.ranges.sort()
        return whole.joined(cls())

    def joined(self, higher: Ranks) -> Ranks:
        """These, and ranks that are all higher."""
        ranges: list[list[int]] = []
        for first, last in (*self.ranges, *higher.ranges):
            if ranges and ranges[-1][1] + 1 == first:
                ranges[-1][1] = last
            elif len(ranges) < _MOST_RANGES:
                ranges.append([first, last])
        return Ranks(ranges, self.number + higher.number)

    @property
    def lowest(self) -> int:
        """The lowest of them."""
        return self.ranges[0][0]

    def all(self) -> list[int]:
        """Each of them, as far as known."""
        return [rank for first, last in self.ranges for rank in range(first, last + 1)]


@dataclass(slots=True)
class Outcome:
    """What ranks did in one collective call.

    operations : dict, which ranks called what.
    failed : Ranks
    first : bytes, the error of the lowest rank that failed, see `pack_error`; b"" if none did.
    """

    operations: dict[str, Ranks]
    failed: Ranks
    first: bytes

    @classmethod
    def of(cls, rank: int, operation: str, error: BaseException | None) -> Outcome:
        """What one rank did."""
        me = Ranks([[rank, rank]], 1)
        return cls({operation: me}, Ranks() if error is None else me, b"" if error is None else pack_error(error))

    def packed(self) -> bytes:
        """As bytes."""
        operations = {name: [ranks.ranges, ranks.number] for name, ranks in self.operations.items()}
        return json.dumps([operations, self.failed.ranges, self.failed.number, self.first.decode()]).encode()

    @classmethod
    def unpacked(cls, packed: bytes) -> Outcome:
        """From what `packed` returned."""
        operations, ranges, number, first = json.loads(packed)
        return cls({name: Ranks(*ranks) for name, ranks in operations.items()}, Ranks(ranges, number), first.encode())

    def mismatch(self) -> errors.CollectiveMismatchError:
        """The error of different operations; its ranks are those that did not do what the lowest rank did."""
        what = "; ".join(f"{name}: {ranks_text(ranks)}" for name, ranks in self.operations.items())
        return errors.CollectiveMismatchError(
            f"ranks called different collective operations ({what}); "
            "open, flush, close and collective reads must be called by all ranks in the same order",
            [rank for ranks in list(self.operations.values())[1:] for rank in ranks.all()],
        )

    @classmethod
    def join(cls, lower: bytes, higher: bytes) -> bytes:
        """What ranks did and what higher ones did, as one."""
        one, other = cls.unpacked(lower), cls.unpacked(higher)
        for name, ranks in other.operations.items():
            if name in one.operations or len(one.operations) < _MOST_GROUPS:
                one.operations[name] = one.operations.get(name, Ranks()).joined(ranks)
        return cls(one.operations, one.failed.joined(other.failed), one.first or other.first).packed()


def merged(rank: int, part: bytes, theirs: bytes | BaseException, join: Callable[[bytes, bytes], bytes]) -> bytes:
    """Two parts of what ranks know as one, on `rank`: 0 and what they say, or 1 and why that is not known."""
    try:
        if isinstance(theirs, BaseException):
            raise theirs
        if not part or not theirs or part[0] != theirs[0]:
            return max(part, theirs, key=lambda one: one[:1])
        if part[0] == 1:
            return b"\1" + Outcome.join(part[1:], theirs[1:])
        return b"\0" + join(part[1:], theirs[1:])
    except Exception as error:
        return b"\1" + Outcome.of(rank, "", error).packed()
