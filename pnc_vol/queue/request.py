"""The handle of one posted request.

Knows: its own state. Does not know: how it is carried out; it asks the session.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import MOST_AXES, refuse_axes

__all__ = ["Request"]


class _Session(Protocol):
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

    # Slots: a program may have 100,000 requests, and an attribute that is set later takes a microsecond elsewhere.
    __slots__ = ("_error", "_session", "id", "nbytes", "status")

    kind = "write"

    def __init__(self, session: _Session, number: int, nbytes: int) -> None:
        self._session, self.id, self.nbytes, self.status = session, number, nbytes, "pending"

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._error if self.status == "failed" else None

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
        """True once the request is done or cancelled; never waits."""
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
        """Whether it was posted to this session; another handle of the same file shares what is posted.

        Parameters
        ----------
        session : Session
        """
        return self._session is session

    def __repr__(self) -> str:
        return f"<{self.kind} request {self.id}: {self.status}, {self.nbytes} bytes>"

    def _complete(self) -> None:
        self.status = "done"

    def _fail(self, error: BaseException) -> None:
        self.status, self._error = "failed", error


def as_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The array that a posted read fills: `out` if it fits, else a new one.

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
