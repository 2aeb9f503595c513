"""How much of a dataset has been written.

Knows: numbers of bytes, streams of text. Does not know: xarray, files.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

__all__ = ["Progress"]

_WIDTH = 40


class Progress:
    """Counts bytes that are written, and tells a function or a person.

    Parameters
    ----------
    told : bool, callable or None
        A function of bytes that are done and bytes in all; True draws a bar on the standard error stream.

    Examples
    --------
    >>> steps = []
    >>> progress = Progress(lambda done, total: steps.append((done, total)))
    >>> progress.total = 20
    >>> progress.add(5), progress.add(15)
    (None, None)
    >>> steps
    [(5, 20), (20, 20)]
    """

    def __init__(self, told: bool | Callable[[int, int], object] | None) -> None:
        self._tell = told if callable(told) else (_bar if told else None)
        self._lock = threading.Lock()
        self._done = 0
        self.total = 0

    def add(self, nbytes: int) -> None:
        """So many bytes more are written; any thread may say so."""
        if self._tell is not None:
            with self._lock:
                self._done += nbytes
                self._tell(self._done, self.total)


def _bar(done: int, total: int) -> None:
    filled = _WIDTH if done >= total else done * _WIDTH // total
    end = "\n" if done >= total else ""
    sys.stderr.write(f"\r[{'#' * filled:{_WIDTH}}] {done / 2**20:.1f} of {total / 2**20:.1f} MiB{end}")
    sys.stderr.flush()
