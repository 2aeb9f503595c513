"""`Watch` counts and times what a cache did, and tells the observers of its phases.

Knows: names of phases, time. Does not know: files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pnc_vol.drivers.holding import Phase

__all__ = ["Watch"]

_CACHED, _READ, _WRITTEN, _NON_HIDDEN = "copy to cache", "sync read", "sync write", "non-hidden sync"
_COUNTED = {
    _CACHED: "cached",
    _READ: "sync_read",
    _WRITTEN: "synced",
    "waiting": "waiting",
    _NON_HIDDEN: "non_hidden_sync",
}


class Watch:
    """Counts of one cache; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = dict.fromkeys(_COUNTED.values(), 0)
        self._bytes = dict.fromkeys(_COUNTED.values(), 0)
        self._seconds = dict.fromkeys(_COUNTED.values(), 0.0)
        self._through = [0, 0]
        self._observers: list[Callable[[Phase], None]] = []

    def observe(self, note: Callable[[Phase], None]) -> None:
        """Call `note` with each phase."""
        self._observers.append(note)

    def note(self, name: str, start: float, nbytes: int = 0, thread: int = 0) -> float:
        """Return a phase that began at `start` ends now; the time."""
        now = time.perf_counter()
        key = _COUNTED[name]
        with self._lock:
            self._calls[key] += 1
            self._bytes[key] += nbytes
            self._seconds[key] += now - start
        for observer in self._observers:
            observer(Phase(name, start, now - start, nbytes, thread))
        return now

    @contextmanager
    def phase(self, name: str, nbytes: int = 0) -> Iterator[None]:
        """Note what the block takes, in the caller's thread."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.note(name, start, nbytes)

    def wrote_through(self, nbytes: int) -> None:
        """A write did not go to the cache."""
        with self._lock:
            self._through[0] += 1
            self._through[1] += nbytes

    def statistics(self) -> dict[str, Any]:
        """Return ``cache.*``: calls, bytes and seconds; of the synchronisation also the part that nobody waited for."""
        with self._lock:
            sync = self._seconds["sync_read"] + self._seconds["synced"]
            found: dict[str, Any] = {
                "cache.write_calls": self._calls["cached"],
                "cache.write_bytes": self._bytes["cached"],
                "cache.write_seconds": self._seconds["cached"],
                "cache.through_calls": self._through[0],
                "cache.through_bytes": self._through[1],
                "cache.synced_calls": self._calls["synced"],
                "cache.synced_bytes": self._bytes["synced"],
                "cache.sync_seconds": sync,
                "cache.sync_read_seconds": self._seconds["sync_read"],
                "cache.sync_write_seconds": self._seconds["synced"],
                "cache.waiting_seconds": self._seconds["waiting"],
                "cache.non_hidden_sync_seconds": self._seconds["non_hidden_sync"],
                "cache.hidden_sync_seconds": max(0.0, sync - self._seconds["non_hidden_sync"]),
            }
        return found
