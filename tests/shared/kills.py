"""Processes that end in the middle of their work: killed after they said something, at a call, or by themselves."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pnc_vol
from pnc_vol.testing.faults import CALLS, CHANGING, HookedSystem

PAGE = os.sysconf("SC_PAGESIZE")


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """A child that does `work`, given the end of a pipe to write to; its number, and the end to read from."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        work(writing)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill_after(child: int, reading: int, acks: int, seconds: float = 0.0) -> tuple[int, bool]:
    """Kill the child some time after it spoke for the `acks`-th time; how often it spoke, and whether it was alive."""
    heard = 0
    while heard < acks and (more := os.read(reading, acks - heard)):
        heard += len(more)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    while more := os.read(reading, 4096):
        heard += len(more)
    os.close(reading)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"the writer failed with {status}"
    return heard, os.WIFSIGNALED(status)


def ended(work: Callable[[], object]) -> None:
    """Do `work` in a process that then ends without an error."""
    child, reading = forked(lambda _: work())
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0


def killed_job(path: str | Path, work: Callable[[Any], object], mode: str = "w", **options: Any) -> None:
    """A job does `work` on a file with these options, and is killed before it closes it."""

    def job() -> None:
        warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
        f = pnc_vol.File(path, mode, **options)
        work(f)
        # while the file is held: what is let go of is closed
        os._exit(0)

    ended(job)


def logged_job(path: str | Path, logs: str | Path, work: Callable[[Any], object], mode: str = "w", **more: Any) -> Any:
    """A job with a log in the folder `logs` is killed; the metadata logs that are there then."""
    killed_job(path, work, mode, burst_buf=True, burst_buf_dirname=str(logs), **more)
    return sorted(Path(logs).glob("*/*.meta"))


class Killing(HookedSystem):
    """At a call with this number the process is killed, in a write perhaps after a part of it.

    calls : names that are counted.
    """

    def __init__(self, at: int, part: float, calls: Iterable[str] = CALLS) -> None:
        super().__init__()
        self.at, self.part, self.calls, self.count = at, part, frozenset(calls), 0
        self._one = threading.Lock()

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name not in self.calls:
            return super().call(name, args, kwargs)
        with self._one:
            self.count += 1
            last = self.count == self.at
        if last:
            self.about_to()
            if name == "pwrite":
                # The kernel looks for a signal between two pages.
                fd, data, offset = args
                end = (offset + int(self.part * len(data))) // PAGE * PAGE
                os.pwrite(fd, bytes(data)[: max(end - offset, 0)], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().call(name, args, kwargs)

    def about_to(self) -> None:
        """It is killed now."""


class Ending(HookedSystem):
    """The process ends before the n-th call that changes something, counted from when `left` is set."""

    left = -1

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in CHANGING and self.left >= 0:
            if not self.left:
                os._exit(0)
            self.left -= 1
        return super().call(name, args, kwargs)
