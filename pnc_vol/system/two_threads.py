"""Two threads share work: one waits for the kernel, or copies, while the other computes.

Knows: threads. Does not know: what a task does, files, drivers.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Behind", "in_two_threads"]

Bytes = npt.NDArray[np.uint8]

_WORTH = 0.0005
"""Seconds of a call that are worth a thread."""


def in_two_threads(tasks: Iterable[Callable[[Bytes], Any]], room: int, *, alone: bool = False) -> None:
    """Run the tasks, in their order, in this thread and another one.

    Parameters
    ----------
    tasks : iterable of callable
        Each is given memory of `room` bytes to work in, which keeps nothing from one task to the next. Fresh memory for
        every block would cost as much as the block: the system hands it out page by page.
    alone : bool, in this thread only, as is a single task.

    Raises
    ------
    Exception
        The first task's that failed; those not begun are left out.

    Examples
    --------
    >>> done = []
    >>> in_two_threads([lambda room: done.append(room.nbytes)] * 3, 8)
    >>> done
    [8, 8, 8]
    """
    left = iter(tasks)
    # A single task, which most calls are, starts no thread.
    first = list(itertools.islice(left, 2))
    if len(first) < 2:
        for task in first:
            task(np.empty(room, np.uint8))
        return
    left = itertools.chain(first, left)
    lock = threading.Lock()
    failed: list[BaseException] = []

    def work() -> None:
        memory = np.empty(room, np.uint8)
        try:
            while not failed:
                # A generator must not be asked by two threads at once.
                with lock:
                    task = next(left, None)
                if task is None:
                    return
                task(memory)
        except BaseException as error:
            failed.append(error)

    other = None if alone else _started(work)
    work()
    if other is not None:
        other.join()
    if failed:
        raise failed[0]


def _started(work: Callable[[], None]) -> threading.Thread | None:
    """Return a new thread that does some work; None if the system gives no more, or the interpreter ends."""
    thread = threading.Thread(target=work, name="pnc_vol")
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class Behind:
    """Calls that are made while this thread goes on, one at a time.

    They are made here, at once, until one is found to wait more than it computes, as for a slow disk: from then on they
    are made in another thread. Two threads that compute, or copy, gain nothing where ranks have a core each: in
    collective writes the thread saved a fifth to a quarter of a flush at 150 MB/s, and cost 1 to 4 % in the page cache.

    Parameters
    ----------
    alone : bool, make each call here.

    Examples
    --------
    >>> done = []
    >>> def slow():
    ...     time.sleep(0.01)
    ...     done.append(threading.current_thread() is threading.main_thread())
    >>> with Behind() as behind:
    ...     behind.start(slow)
    ...     behind.start(slow)
    ...     behind.wait()
    ...     done
    [True, False]
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._alone = alone
        self._waits = False
        self._thread: threading.Thread | None = None
        self._failed: list[BaseException] = []

    def start(self, do: Callable[[], Any]) -> None:
        """Begin a call, when the one before has ended.

        Raises
        ------
        Exception
            What that one raised; this one is left out.
        """
        self.wait()

        def work() -> None:
            try:
                do()
            except BaseException as error:
                self._failed.append(error)

        if self._waits:
            self._thread = _started(work)
            if self._thread is not None:
                return
            self._alone, self._waits = True, False
        wall, cpu = time.perf_counter(), time.thread_time()
        do()
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        # Measured anew with each call that is made here: a file system may become slow.
        self._waits = not self._alone and cpu < wall / 2 and wall > _WORTH

    def wait(self) -> None:
        """Wait until the call has ended.

        Raises
        ------
        Exception
            What it raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failed:
            raise self._failed.pop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What it uses is given back after this: Ctrl-C does not end the wait.
        interrupted: BaseException | None = None
        while self._thread is not None:
            try:
                self._thread.join()
                self._thread = None
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted
