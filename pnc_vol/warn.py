"""Warnings of this package: shown at the caller's line, each kind once, held back on request.

Knows: the warning classes. Does not know: what the warnings are about.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pnc_vol.errors import PncVolWarning, printable

__all__ = ["held_warnings", "warn_once", "warn_outside"]

_warned: set[str] = set()


def warn_once(kind: str, text: str) -> None:
    """Warn, at the line outside of this package, unless this kind was warned about before in this process."""
    if kind in _warned:
        return
    _warned.add(kind)
    warn_outside(f"{kind}: {text}")


_holding = threading.local()


@contextmanager
def held_warnings() -> Iterator[list[tuple[str, type[Warning]]]]:
    """Collect the warnings that this package issues in this thread instead of showing them.

    Yields
    ------
    list of (text, class)
        Filled while the block runs; the caller decides what to show.
    """
    held: list[tuple[str, type[Warning]]] = []
    before, _holding.into = getattr(_holding, "into", None), held
    try:
        yield held
    finally:
        _holding.into = before


def warn_outside(warning: str | Warning, category: type[Warning] = PncVolWarning) -> None:
    """Warn at the line outside of this package."""
    held: list[tuple[str, type[Warning]]] | None = getattr(_holding, "into", None)
    if held is not None:
        held.append((str(warning), type(warning) if isinstance(warning, Warning) else category))
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pnc_vol."):
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(warning) if isinstance(warning, str) else warning, category, stacklevel=level)
