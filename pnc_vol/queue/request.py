"""A `Request` is the handle of one posted request.

Knows: its number. Does not know: how it is carried out, and what became of it; it asks the session.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import MOST_AXES, refuse_axes

__all__ = ["Request"]


class _Posted(Protocol):
    def status_of(self, number: int) -> str: ...

    def error_of(self, number: int) -> BaseException | None: ...


class _Session(Protocol):
    @property
    def posted(self) -> _Posted: ...

    def wait(self, requests: list[Request] | None = None) -> None: ...

    def cancel(self, requests: list[Request]) -> None: ...


class Request:
    """A posted read or write, from ``ds.iput`` or ``ds.iget``.

    Attributes
    ----------
    id : int
        Increasing in the order of posting, on this rank.
    kind : str
        ``"write"`` or ``"read"``.
    status : str
        ``"pending"``, ``"done"``, ``"failed"`` (still pending; a later flush tries again) or ``"cancelled"``.
    nbytes : int
        Bytes of the request in the file.
    error : Exception or None
        Why it failed.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     request = f.create_dataset("x", (4,), "f8").iput(slice(0, 2), [1.0, 2.0])
    ...     f.flush()
    ...     request.status
    'done'
    """

    # The session knows what became of a request, by its number. It keeps no handle: a program may post 100,000 writes
    # and drop the handles, which would otherwise be looked through by the garbage collector again and again.
    __slots__ = ("_session", "id", "nbytes")

    kind = "write"

    def __init__(self, session: _Session, number: int, nbytes: int) -> None:
        self._session, self.id, self.nbytes = session, number, nbytes

    @property
    def status(self) -> str:
        """What became of it; see the class."""
        return self._session.posted.status_of(self.id)

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._session.posted.error_of(self.id)

    @property
    def array(self) -> npt.NDArray[Any] | None:
        """The array of a read, filled once `status` is ``"done"``; None for a write."""
        return None

    def wait(self) -> npt.NDArray[Any] | None:
        """Complete this request, without any other rank.

        Returns
        -------
        ndarray or None
            What was read.

        Raises
        ------
        OSError
            It failed.
        RequestPendingError
            A write, under MPI, to a variable that has no place in the file before the next flush.
        """
        if not self.test():
            self._session.wait([self])
        return self.array

    def test(self) -> bool:
        """Return True once the request is done or cancelled; never waits."""
        return self.status in ("done", "cancelled")

    def cancel(self) -> None:
        """Drop the request; one that is done stays done.

        Raises
        ------
        ValueError
            It was carried out already.
        """
        self._session.cancel([self])

    def of(self, session: Any) -> bool:
        """Return whether it was posted to this session; another handle of the same file shares what is posted.

        Parameters
        ----------
        session : Session
        """
        return self._session is session

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self.id == other.id and self._session is other._session

    def __hash__(self) -> int:
        return hash((id(self._session), self.id))

    def __repr__(self) -> str:
        return f"<{self.kind} request {self.id}: {self.status}, {self.nbytes} bytes>"


def as_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the array that a posted read fills: `out` if it fits, else a new one.

    Raises
    ------
    TypeError
        `out` is no array, or has another shape.
    ValueError
        No array has so many axes.
    """
    if out is None:
        if len(shape) > MOST_AXES:
            refuse_axes(len(shape))
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.shape != shape or not out.flags.writeable:
        raise TypeError(
            f"out= must be a writable array of shape {shape}, not {getattr(out, 'shape', type(out).__name__)}"
        )
    return out
