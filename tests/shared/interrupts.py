"""Ctrl-C, or no memory, at a line of the package that is executed."""

from __future__ import annotations

import linecache
import opcode
import os
import sys
from types import FrameType
from typing import Any

_BEGIN = ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "PUSH_NULL")
"""What an expression begins with; a block ends with other instructions."""


def _leaves_with(frame: FrameType) -> bool:
    """Whether a ``with`` block is about to end: Python looks for no signal there before ``__exit__`` is called."""
    begins = opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith(_BEGIN)
    return not begins and linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


class Interrupts:
    """Raises at the n-th line of the package that this thread executes."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.at, self.error, self.count, self.where = at, error, 0, ""

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        return self._line if "/pnc_vol/" in name and "/pnc_vol/testing/" not in name else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not _leaves_with(frame):
            self.count += 1
            if self.count == self.at:
                self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                raise self.error(f"line {self.count}, {self.where}")
        return self._line

    def __enter__(self) -> Interrupts:
        sys.settrace(self._call)
        return self

    def __exit__(self, *error: Any) -> None:
        sys.settrace(None)
