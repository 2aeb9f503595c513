"""Errors of one rank in a form that all ranks can raise.

Knows: exceptions. Does not know: communicators, files.
"""

from __future__ import annotations

import builtins
import json
from typing import Any

from pnc_vol import errors

__all__ = ["pack_error", "ranks_text", "unpack_error"]


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


def pack_error(error: BaseException) -> bytes:
    """An error as bytes: its class, as far as others know it, and its text."""
    return json.dumps(
        {
            "type": next(
                (c.__name__ for c in type(error).__mro__ if _known_class(c.__name__) is not None), "RankError"
            ),
            "text": getattr(error, "strerror", None) or str(error) or type(error).__name__,
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


def unpack_error(packed: bytes, failed: list[int], size: int) -> Exception:
    """The error of ranks `failed` of `size`; the text names them unless it is all."""
    told = json.loads(packed)
    cls = _known_class(told["type"]) or errors.RankError
    text = told["text"] if len(failed) == size else f"{told['text']} (on {ranks_text(failed)})"
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
