"""Calls that fail inside this package, to test what happens then: the n-th use of numpy, the n-th function.

Knows: Python's profiler. Does not know: what is called.

A system that fails (`faults`) shows what errors of files lead to. Memory can run out anywhere; under MPI that must not
leave the ranks in different calls.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["FailingCalls"]


class FailingCalls:
    """Inside, the n-th call raises MemoryError in this thread, once.

    Parameters
    ----------
    fail_at : int
        Which call, from 1; 0 for none.
    functions : tuple of str, optional
        Beginnings of module names: their functions are counted, where one of the package calls them. By default what
        is counted are the package's calls of numpy: functions, and methods of arrays.

    Attributes
    ----------
    count : int
        Counted calls so far.
    fired : str
        Where the failure happened; empty if it did not.

    Examples
    --------
    >>> from pnc_vol.extents.model import before
    >>> with FailingCalls(1) as failing:
    ...     before(np.ones(3, np.int64))
    Traceback (most recent call last):
        ...
    MemoryError: no memory left for call 1: pnc_vol.extents.model, line ...
    """

    def __init__(
        self, fail_at: int, *, functions: tuple[str, ...] = (), callers: tuple[str, ...] = ("pnc_vol.",)
    ) -> None:
        self.fail_at = fail_at
        self.count = 0
        self.fired = ""
        self._functions = functions
        self._callers = callers

    def __enter__(self) -> Self:
        sys.setprofile(self._seen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            caller, counts = frame, not self._functions and _is_numpys(called)
        elif event == "call" and frame.f_back is not None:
            caller, module = frame.f_back, frame.f_globals.get("__name__", "")
            counts = module.startswith(self._functions or "numpy")
        else:
            return
        name = caller.f_globals.get("__name__", "")
        if not counts or not name.startswith(self._callers) or name.startswith("pnc_vol.testing"):
            return
        self.count += 1
        if self.count == self.fail_at:
            what = f" in {frame.f_code.co_name}" if event == "call" else ""
            self.fired = f"{name}, line {caller.f_lineno}{what}"
            sys.setprofile(None)
            raise MemoryError(f"no memory left for call {self.count}: {self.fired}")


def _is_numpys(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    return isinstance(owner, np.ndarray) or str(getattr(called, "__module__", "")).startswith("numpy")
