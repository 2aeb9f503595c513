"""Ctrl-C, or no memory, at a line of the package that is executed.

Lines are counted in one run, ``Interrupts(0, error)``, which notes where each of them is: in which call of which
function, and which line of this call. A run in which the n-th line fails, ``counted.at_line(n)``, looks for this call
alone, and so takes little longer than a run without it.
"""

from __future__ import annotations

import gc
import linecache
import opcode
import os
import sys
import threading
import traceback
from array import array
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

import pnc_vol
from pnc_vol.file import registry

PACKAGE = os.path.join(os.path.dirname(pnc_vol.__file__), "")
"""Its folder; a folder above it, of a clone, may have the same name."""
SWEEP = pytest.mark.parametrize(
    "most", [16, pytest.param(10**9, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])], ids=["some", "all"]
)
"""How many of the lines of an act are tried; in an ordinary run some."""
_BEGIN = ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "PUSH_NULL")
"""What an expression begins with; a block ends with other instructions."""


def _no_signal(frame: FrameType) -> bool:
    """Whether Python looks for no signal at a line.

    That is so where a ``with`` block is about to end, before ``__exit__`` is called, and at an instruction that does
    nothing, as that of ``try:``, which CPython 3.11 takes out of the blocks around it.
    """
    begins = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    if begins == "NOP" or begins.startswith(_BEGIN):
        return begins == "NOP"
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def _called_by_python(frame: FrameType | None) -> bool:
    """Whether Python itself called: a destructor, or what is to be told of the collector of cycles.

    That happens at no known line, nobody gets the exceptions, and CPython 3.11 can crash if a trace function raises.
    """
    while frame is not None and frame.f_code.co_name not in ("__del__", "_collector"):
        frame = frame.f_back
    return frame is not None


class Call(NamedTuple):
    """The `number`-th call of a function; a generator that goes on is called anew."""

    code: CodeType
    number: int


class Interrupts:
    """Raises at the n-th line of the package that this thread executes; with n = 0 it counts them.

    Attributes
    ----------
    count : int, lines until now.
    where : str, the line at which it was raised, or "".
    happened : bool, it was raised.
    """

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.at, self.error, self.count, self.where = at, error, 0, ""
        self.happened = False
        self._of_package: dict[CodeType, bool] = {}
        self._calls: Counter[CodeType] = Counter()
        self._noted: list[Call] = []
        self._call_of, self._line_of = array("l"), array("l")

    def at_line(self, n: int, error: type[BaseException] | None = None) -> AtCall:
        """The same program once more, with the n-th of the lines that were counted here failing."""
        return AtCall(self._noted[self._call_of[n - 1]], self._line_of[n - 1], n, error or self.error)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if (ours := self._of_package.get(code)) is None:
            name = code.co_filename
            ours = name.startswith(PACKAGE) and not name.startswith(f"{PACKAGE}testing{os.sep}")
            self._of_package[code] = ours
        if not ours or _called_by_python(frame):
            return None
        self._calls[code] += 1
        self._noted.append(Call(code, self._calls[code]))
        call, lines = len(self._noted) - 1, 0

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal lines
            if event == "line" and not _no_signal(frame):
                lines += 1
                self.count += 1
                self._call_of.append(call)
                self._line_of.append(lines)
                if self.count == self.at:
                    _fail(self, frame, self.count)
            return line

        return line

    def __enter__(self) -> Interrupts:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.settrace(self._before)  # what measures the coverage goes on


class AtCall:
    """Raises at one line of one call of a function; `where` and `happened` as those of `Interrupts`."""

    def __init__(self, call: Call, line: int, n: int, error: type[BaseException]) -> None:
        self.call, self.line, self.n, self.error, self.where = call, line, n, error, ""
        self.happened = False

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not _no_signal(frame):
            self.line -= 1
            if not self.line:
                _fail(self, frame, self.n)
        return self._line

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is not self.code or _called_by_python(frame):
            return None
        self.left -= 1
        return None if self.left else self._line

    def __enter__(self) -> AtCall:
        self.code, self.left = self.call
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.settrace(self._before)  # what measures the coverage goes on


def _fail(at: Interrupts | AtCall, frame: FrameType, n: int) -> None:
    at.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    at.happened = True
    raise at.error(f"line {n}, {at.where}")


def open_now() -> tuple[int, int]:
    """Descriptors and threads of this process, when what an interruption left in cycles is gone."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def interrupted(trouble: Any, call: Callable[[], object]) -> bool:
    """Whether a call was ended by what was to happen at one of its lines."""
    try:
        with trouble:
            call()
    except (KeyboardInterrupt, MemoryError) as error:
        traceback.clear_frames(error.__traceback__)
        return True
    return False


def sweep(counted: Interrupts, most: int, once: Callable[[int, AtCall], None]) -> None:
    """Try so many of the lines that were counted, the first and the last among them; all that went wrong is told."""
    wrong = {}
    # Each try collects what it left in cycles: after thousands of other tests that would take a second each time.
    gc.collect()
    gc.freeze()
    for n in sorted({int(n) for n in np.linspace(1, counted.count, min(most, counted.count))}):
        trouble = counted.at_line(n)
        try:
            once(n, trouble)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            wrong[f"line {n}, {trouble.where}"] = f"{type(error).__name__}: {error}"[:300]
    assert not wrong, "\n".join(f"{where}: {what}" for where, what in wrong.items())


def sweep_closes(
    opened: Callable[[int], pnc_vol.File], look: Callable[[int, AtCall], None], error: type[BaseException], most: int
) -> None:
    """Interrupt the close of a file at so many of its lines; after a second call nothing is open.

    opened : callable, makes the file of a number, with something posted.
    look : callable, opens it again, and sees whether its values are right after this trouble.
    """
    opened(-2).close()
    f, counted = opened(-1), Interrupts(0, error)
    with counted:
        f.close()
    before, entered = open_now(), dict(registry._open)

    def once(n: int, trouble: AtCall) -> None:
        f = opened(n)
        if interrupted(trouble, f.close) and f:
            f.close()
        assert not f
        assert registry._open == entered, "later openings would look at what is left"
        assert open_now() == before
        look(n, trouble)

    sweep(counted, most, once)
