"""The requests of a file: what waits, and the calls that complete or discard it.

Knows: the file's session. Does not know: how requests are executed.

Rules
-----
1. `flush`, `sync`, and `wait_all` without a list are collective with several ranks; nothing else here waits for a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pnc_vol.api.group import Group
from pnc_vol.queue.request import Request

if TYPE_CHECKING:
    from pnc_vol.file.report import FlushPlan

__all__ = ["RequestsOfFile"]


class RequestsOfFile(Group):
    """The part of `File` that is about posted requests."""

    def statistics(self) -> dict[str, Any]:
        """Counts of what was done for this file on this rank, by name; ``last_flush`` is a `FlushReport` as a dict."""
        return self._check().statistics()

    def plan(self) -> FlushPlan:
        """What a flush would write for this rank now, going by its own requests; nothing is written.

        Returns
        -------
        FlushPlan
            requests, runs, extents, nbytes; and ``writes``, the plans that the flush would execute, which it prints.
            In a set of subfiles ``unplaced`` names new datasets, on whose places ranks agree at the flush. With several
            ranks, ``choice`` says how they would write together, and why, if no other rank has posted more.

        Raises
        ------
        ValueError
            The file is closed.

        Examples
        --------
        >>> with pnc_vol.File("plan.nc", "w") as f:
        ...     x = f.create_dataset("x", (100, 8), "f8")
        ...     for i in range(100):
        ...         x[i] = i
        ...     print(f.plan())
        plan.nc: 100 requests, 100 runs -> 1 extents, 6400 bytes, 1 writes
        100 runs of 1 variables, 6400 bytes -> 1 extents, 6400 bytes, shared
          file         4264 .. 10664        from memory 0
        """
        # what opens files is loaded with the first file, not with the package
        from pnc_vol.file.report import planned

        session = self._check()
        with session.lock:
            session.check_open()
            return planned(session.defs, session.disk, session.posted, session.transport)

    @property
    def requests(self) -> dict[int, Request]:
        """The requests of this rank that are not done, by id."""
        session = self._check()
        return session.posted.waiting(session)

    def wait_all(self, requests: Iterable[Request] | None = None) -> None:
        """Complete requests.

        Parameters
        ----------
        requests : iterable of Request, optional
            These, without any other rank. By default all that are pending, by a flush: then every rank calls it.

        Raises
        ------
        OSError
            Some failed.
        RequestPendingError
            With several ranks: one of them writes to a variable that has no place in the file before the next flush.

        Examples
        --------
        >>> with pnc_vol.File("wait.nc", "w") as f:
        ...     x = f.create_dataset("x", (3,), "f8")
        ...     one, two = x.iput(0, 1.0), x.iput(1, 2.0)
        ...     f.wait_all([one])
        ...     f.wait_all()
        ...     two.status, len(f.requests)
        ('done', 0)
        """
        self._check().wait(None if requests is None else list(requests))

    def cancel(self, requests: Iterable[Request] | Request | None = None) -> None:
        """Discard requests of this rank that are not in the file yet; not collective.

        After a `FlushError` this is the way to go on without the requests that failed. Reads see the file again. What
        a full queue or an earlier flush wrote already stays, and so do definitions and shapes.

        Parameters
        ----------
        requests : iterable of Request, Request, optional
            These alone. By default everything that is pending, ``ds[...] = x`` included, which has no `Request`.

        Raises
        ------
        ValueError
            One of the requests is done, or was posted to another file; none is dropped then.

        Examples
        --------
        >>> with pnc_vol.File("cancel.nc", "w") as f:
        ...     x = f.create_dataset("x", data=[1, 2, 3])
        ...     f.flush()
        ...     x[:] = 0
        ...     f.cancel()
        ...     x[:].tolist()
        [1, 2, 3]
        """
        self._check().cancel([requests] if isinstance(requests, Request) else requests)

    def flush(self, durable: bool | None = None, *, progress: Callable[[int, int], None] | None = None) -> None:
        """Put all that was posted, and all definitions, into the file; collective with several ranks.

        Parameters
        ----------
        durable : bool, optional
            Return when everything is on stable storage; by default as the option `durable` says.
        progress : callable, optional
            Called as ``progress(done, total)`` after each write, in bytes: how many this rank has written, and how many
            it posted. With several ranks a rank may write what others posted. It must not use the file.

        Raises
        ------
        FlushError
            Requests failed; they stay pending, all others are done, and flush may be called again.
        RankError
            Another rank failed, or ranks differ in what they defined.

        Examples
        --------
        >>> with pnc_vol.File("flush.nc", "w") as f:
        ...     f["x"] = [1, 2, 3]
        ...     f.flush()
        ...     f.statistics()["last_flush"]["nbytes"]
        24
        """
        self._check().flush(durable=durable, progress=progress)

    def sync(self) -> None:
        """Flush, and return when the data are in the file itself, not in node-local caches; collective as `flush`.

        Raises
        ------
        FlushError, RankError
            As `flush`. What a cache holds is not lost, and `sync` may be called again.

        Examples
        --------
        >>> with pnc_vol.File("sync.nc", "w", hints={"e10_cache_path": "."}) as f:
        ...     f["x"] = [1, 2, 3]
        ...     f.sync()
        ...     with open("sync.nc", "rb") as disk, pnc_vol.File(disk) as other:
        ...         other["x"][:].tolist()
        [1, 2, 3]
        """
        self._check().flush(what="sync", carried=True)
