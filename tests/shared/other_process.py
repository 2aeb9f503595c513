"""Another process for a test: forked, so that its program is a function of the test, which sees what the test has made.

`Other` goes on from one ``yield`` of its program to the next when it is told to; `killed` ends at a call of the system.
`fresh` is for what an interpreter that has just been started does: its memory, its signals, its end.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pnc_vol.testing.faults import CHANGING, Stopped, StopSystem

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Other:
    """A process that runs a generator function step by step.

    pid : int
    """

    def __init__(self, program: Callable[[], Iterator[object]]) -> None:
        self._pipe, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self._pipe.close()
            _obey(program, theirs)
        theirs.close()

    def __call__(self) -> str:
        """Let it go on to its next ``yield``, or to its end; "done", or the error that it met."""
        self.start()
        return self.told()

    def start(self) -> None:
        """Let it go on, and do not wait."""
        self._pipe.sendall(b".")

    def told(self) -> str:
        """Wait until it has done what it was told to."""
        return self._pipe.recv(10_000).decode()

    def alive(self) -> bool:
        return os.waitpid(self.pid, os.WNOHANG)[0] == 0

    def kill(self, how: int = signal.SIGKILL) -> None:
        """End it, and wait for its end."""
        if self.pid:
            os.kill(self.pid, how)
            os.waitpid(self.pid, 0)
            self.pid = 0
            self._pipe.close()

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _obey(program: Callable[[], Iterator[object]], pipe: socket.socket) -> None:
    """Never returns."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    steps = program()
    try:
        while pipe.recv(1):
            try:
                next(steps, None)
                told = "done"
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            pipe.sendall(told.encode())
    finally:
        os._exit(0)


def killed(
    work: Callable[[Any], object], stop_at: int, *, torn: int | None = None, calls: Iterable[str] = CHANGING
) -> bool:
    """Whether a process that does `work` with a system came to the call where it is killed; see `StopSystem`."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work(StopSystem(stop_at=stop_at, torn=torn, calls=calls))
            code = 0
        except Stopped:
            code = 9
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9), f"the process ended with {code}"
    return code == 9


def calling(work: Callable[..., object], *arguments: object) -> list[str]:
    """The command of a new interpreter that calls a function of a module; its arguments are texts there."""
    # the last is for `tests.NAME`, as pytest calls the modules of tests: the package may be installed elsewhere
    path = [*sys.path, ROOT]
    code = f"import sys; sys.path[:] = {path}; import {work.__module__} as m; m.{work.__name__}(*sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]


def fresh(work: Callable[..., object], *arguments: object, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Call a function of a module in a new interpreter."""
    return subprocess.run(calling(work, *arguments), capture_output=True, text=True, timeout=seconds)


def status(field: str) -> int:
    """Bytes of this process, as Linux counts them: "VmRSS", at most "VmHWM", addresses "VmSize"."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))
