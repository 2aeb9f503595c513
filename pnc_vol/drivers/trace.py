"""The wrapper ``trace`` records the calls that pass through it, to examine a run afterwards.

    File(path, "w", driver="trace | posix")                       f's driver statistics hold counts and seconds
    File(path, "w", driver="trace(file=run.json) | mpio")         a timeline for chrome://tracing or ui.perfetto.dev
    File(path, "w", driver="trace(file=run.json) | cache | mpio") with the phases of the cache and its threads

Knows: the verbs, phases that drivers below and the ranks' exchanges tell, time. Does not know: what is below it.

Rules
-----
1. Calls and their results are passed on unchanged, and so are errors.
2. At most `limit` events are kept, the newest ones; the counts cover all.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy.typing as npt

from pnc_vol.drivers.base import Driver, Memory, OpenContext, Wrapper
from pnc_vol.drivers.holding import Phase
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.ranks.comm import Comm
from pnc_vol.system import REAL, System
from pnc_vol.system.full_io import write_whole

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Event", "TraceDriver"]

T = TypeVar("T")


class Event(NamedTuple):
    """One verb that went through, or a `Phase` of a driver below or of the ranks.

    verb : str, or the name of the phase, such as ``"sync write"``; ``"exchange"``: waiting for the other ranks.
    start, seconds : float, when it began after the driver was opened, and how long it took.
    extents, nbytes : int, pieces and bytes asked for.
    first, last : int, offsets of the first byte and past the last one; -1 without extents.
    collective : bool
    error : str, empty if it went well.
    mapped : bool, a read from the file's bytes in memory (`Driver.look`).
    thread : int, 0 for the rank's own, 1, 2... for the threads of a driver below.
    round : int, flushes that had ended when it began to be recorded.
    """

    verb: str
    start: float
    seconds: float
    extents: int = 0
    nbytes: int = 0
    first: int = -1
    last: int = -1
    collective: bool = False
    error: str = ""
    mapped: bool = False
    thread: int = 0
    round: int = 0


class TraceDriver(Wrapper):
    """Records every verb.

    Parameters
    ----------
    inner : Driver
    file : str, optional
        Where `close` writes the timeline (JSON); with several ranks, ``.<rank>`` goes before its suffix.
    limit : int
        Events that are kept.
    system : System
    rank, ranks : int

    Examples
    --------
    >>> import numpy as np
    >>> from pnc_vol.drivers.memory import MemoryDriver
    >>> driver = TraceDriver(MemoryDriver(b"abc"))
    >>> driver.read(Extents(*np.array([[0], [3], [0]])), np.empty(3, np.uint8))
    3
    >>> [(event.verb, event.nbytes) for event in driver.events]
    [('read', 3)]
    """

    name = "trace"

    def __init__(
        self,
        inner: Driver,
        *,
        file: str | None = None,
        limit: int = 100_000,
        system: System = REAL,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__(inner)
        self._system = system
        self._rank = rank
        if file is not None and ranks > 1:
            stem, suffix = os.path.splitext(str(file))
            file = f"{stem}.{rank}{suffix}"
        self._file = file
        self._events: deque[Event] = deque(maxlen=limit)
        self._totals: dict[str, list[float]] = {}
        self._began, self._date = time.perf_counter(), time.time()
        self._lock = threading.Lock()
        self._round = 0
        inner.holder.observe(self._phase)

    @classmethod
    def over(cls, inner: Driver, context: OpenContext, **options: Any) -> Self:
        comm = context.comm
        rank, ranks = (comm.rank, comm.size) if comm is not None else (0, 1)
        made = cls(inner, system=context.system, rank=rank, ranks=ranks, **options)
        if isinstance(comm, Comm):
            comm.observe(made._exchanged)
        return made

    @property
    def events(self) -> list[Event]:
        """What went through, oldest first."""
        with self._lock:
            return list(self._events)

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        return self._timed("read", lambda: self.inner.read(extents, memory, collective=collective), extents, collective)

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        self._timed("write", lambda: self.inner.write(extents, memory, collective=collective), extents, collective)

    def read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        return self._timed("read", lambda: self.inner.read_one(array, offset), one_extent(offset, array.nbytes))

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        start = time.perf_counter()
        seen = self.inner.look(end, nbytes, use)
        if seen:
            # What was not seen is read in another way, and counted there.
            seconds = time.perf_counter() - start
            self._record(Event("read", start - self._began, seconds, 1, nbytes, -1, end, mapped=True))
        return seen

    def size(self) -> int:
        return self._timed("size", self.inner.size)

    def resize(self, nbytes: int) -> None:
        self._timed("resize", lambda: self.inner.resize(nbytes))

    def sync(self) -> None:
        self._timed("sync", self.inner.sync)

    def order(self) -> None:
        self._timed("order", self.inner.order)

    def end_flush(self) -> None:
        self._timed("end_flush", self.inner.end_flush)
        self._round += 1

    def close(self) -> None:
        first = "close" not in self._totals
        self._timed("close", self.inner.close)
        if first and self._file is not None:
            write_whole(self._system, self._file, self.timeline().encode())

    def statistics(self) -> dict[str, Any]:
        own: dict[str, Any] = {}
        with self._lock:
            for verb, (calls, seconds, extents, nbytes) in self._totals.items():
                own |= {f"trace.{verb}_calls": int(calls), f"trace.{verb}_seconds": seconds}
                if verb in ("read", "write"):
                    own |= {f"trace.{verb}_extents": int(extents), f"trace.{verb}_bytes": int(nbytes)}
        return own | self.inner.statistics()

    def timeline(self) -> str:
        """Return the events in the Trace Event Format (JSON) that chrome://tracing and Perfetto show; microseconds."""
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": self._rank, "args": {"name": f"rank {self._rank}"}}
        ]
        for thread in sorted({event.thread for event in self.events}):
            name = f"sync thread {thread}" if thread else "program"
            events.append({"name": "thread_name", "ph": "M", "pid": self._rank, "tid": thread, "args": {"name": name}})
        events += [
            {
                "name": event.verb,
                "ph": "X",
                "ts": round(event.start * 1e6, 3),
                "dur": round(event.seconds * 1e6, 3),
                "pid": self._rank,
                "tid": event.thread,
                "args": event._asdict(),
            }
            for event in self.events
        ]
        about = {"path": self.path, "stack": self.describe(), "rank": self._rank, "began": self._date}
        return json.dumps({"traceEvents": events, "otherData": about})

    def _phase(self, phase: Phase) -> None:
        self._keep(
            Event(phase.name, phase.start - self._began, phase.seconds, nbytes=phase.nbytes, thread=phase.thread)
        )

    def _exchanged(self, operation: str, start: float) -> None:
        self._keep(Event("exchange", start - self._began, time.perf_counter() - start))

    def _timed(self, verb: str, call: Callable[[], T], extents: Extents | None = None, collective: bool = False) -> T:
        start = time.perf_counter()
        error = ""
        try:
            return call()
        except BaseException as caught:
            error = f"{type(caught).__name__}: {caught}"
            raise
        finally:
            seconds = time.perf_counter() - start
            pieces = nbytes = 0
            first = last = -1
            if extents is not None and len(extents.offset):
                pieces, nbytes = len(extents.offset), extents.nbytes
                first, last = int(extents.offset.min()), int((extents.offset + extents.length).max())
            self._record(Event(verb, start - self._began, seconds, pieces, nbytes, first, last, collective, error))

    def _record(self, event: Event) -> None:
        self._keep(event)
        with self._lock:
            total = self._totals.setdefault(event.verb, [0, 0.0, 0, 0])
            for i, more in enumerate((1, event.seconds, event.extents, event.nbytes)):
                total[i] += more

    def _keep(self, event: Event) -> None:
        with self._lock:
            self._events.append(event._replace(round=self._round))
