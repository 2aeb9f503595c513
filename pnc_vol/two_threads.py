"""Work in blocks, in two threads: one waits for the kernel, or copies, while the other computes.

Knows: threads. Does not know: what a task does, files, drivers.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["in_two_threads"]

Bytes = npt.NDArray[np.uint8]


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
                with lock:
                    task = next(left, None)
                if task is None:
                    return
                task(memory)
        except BaseException as error:
            failed.append(error)

    if alone:
        work()
    else:
        other = threading.Thread(target=work, name="pnc_vol")
        other.start()
        work()
        other.join()
    if failed:
        raise failed[0]
