"""Errors of one rank become values that all ranks can raise; sets of ranks are written in a few words.

Knows: exceptions, sets of ranks. Does not know: communicators, messages, files.

An *outcome* is what ranks did in one collective call: ``operations``, which ranks called what, ``failed``, which ranks
failed, and ``first``, the error of the lowest of these, or None. It names ranks as ranges, so that its length does not
depend on how many ranks there are. A set of ranks in a value is ``[ranges, number]``, see `Ranks`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from pnc_vol import errors

__all__ = [
    "Ranks", "error_of", "error_value", "joined_outcomes", "joined_texts", "mismatch", "outcome_of", "ranks_text",
]  # fmt: skip

V = TypeVar("V")

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
    if issubclass(cls, errors.FormatError):
        return cls(text, **value["plain"])
    if issubclass(cls, errors.FlushError):
        return cls(text, (), value["errno"])
    plain = cls in (errors.SyncError, errors.LockedError) or not issubclass(cls, errors.PncVolError)
    if issubclass(cls, OSError) and plain and value["errno"]:
        return cls(value["errno"], text, value["filename"]) if value["filename"] else cls(value["errno"], text)
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
