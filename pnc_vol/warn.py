"""Warnings are shown at the caller's line, each kind once, or held back on request; loggers get them, too.

Knows: the warning classes; `logging`, if the program has imported it. Does not know: what the warnings are about, who
listens to loggers.

Rules
-----
1. A program that never imported `logging` has no handler: nothing is told then, and `logging` is not loaded for it.
2. The logger ``pnc_vol`` has a `NullHandler`: without a handler of the program nothing is printed.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pnc_vol.errors import PncVolWarning, printable

if TYPE_CHECKING:
    import logging

__all__ = [
    "DEBUG",
    "FILE",
    "FLUSH",
    "INFO",
    "PACKAGE",
    "RECOVERY",
    "WARNING",
    "held_warnings",
    "tell",
    "warn_once",
    "warn_outside",
]

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
    """Warn at the line outside of this package, and tell loggers."""
    held: list[tuple[str, type[Warning]]] | None = getattr(_holding, "into", None)
    if held is not None:
        held.append((str(warning), type(warning) if isinstance(warning, Warning) else category))
        return
    tell(PACKAGE, WARNING, "%s", printable(str(warning)))
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pnc_vol."):
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(warning) if isinstance(warning, str) else warning, category, stacklevel=level)


# -------------------------------------------------------------------------------------------------------- loggers

DEBUG, INFO, WARNING = 10, 20, 30
"""The levels of `logging`, which is not imported for their sake."""

PACKAGE = "pnc_vol"
"""Warnings of all kinds, also those that are shown by `warnings`."""

FILE = "pnc_vol.file"
"""Files: opened, closed, their data moved; a queue that was full; what is done in another way than asked for."""

FLUSH = "pnc_vol.flush"
"""Each flush: requests, pieces, bytes, transport, seconds."""

RECOVERY = "pnc_vol.recovery"
"""Logs of killed jobs that were replayed."""


_loggers: dict[str, logging.Logger] = {}
"""Those that were told something; a logger lives as long as the process."""


def tell(name: str, level: int, text: str, *args: object) -> None:
    """Tell something to a logger.

    Parameters
    ----------
    name : str, of the logger.
    level : int
    text, args : as `logging.Logger.log` takes them.
    """
    logging = sys.modules.get("logging")
    if logging is None or not hasattr(logging, "NullHandler"):
        # the second: it is being imported just now
        return
    logger = _loggers.get(name)
    if logger is None:
        logger = _loggers[name] = logging.getLogger(name)
    if not logger.isEnabledFor(level):
        return
    package = logging.getLogger(PACKAGE)
    if not package.handlers:
        package.addHandler(logging.NullHandler())
    logger.log(level, text, *args)
