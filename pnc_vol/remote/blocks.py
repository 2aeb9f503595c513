"""Blocks of a file that is far away are held, on their way, or to be asked for.

Knows: numbers of blocks, bytes, threads. Does not know: where they come from; it calls a function with ranges.

Rules
-----
1. Two threads that need the same block ask once; the second one waits for the first, and asks itself if that failed.
2. At most `limit` bytes stay. What goes is chosen at random: a program that goes again and again through a file that is
   longer than the limit would find nothing of it if the oldest went.
3. Ranges whose gap is shorter than a call is worth are one range; what lies in the gap is kept, too.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BlockCache", "Range", "joined_blocks"]

Bytes = npt.NDArray[np.uint8]
Range = tuple[int, int]
"""First byte and the one behind the last."""


def joined_blocks(numbers: Sequence[int], gap: int, most: int) -> list[Range]:
    """Return runs of blocks, as the first and the one behind the last.

    Parameters
    ----------
    numbers : sequence of int, sorted, each once.
    gap : int, blocks between two that are taken along.
    most : int, blocks of a run.

    Examples
    --------
    >>> joined_blocks([0, 1, 4, 9], gap=2, most=4)
    [(0, 2), (4, 5), (9, 10)]
    >>> joined_blocks([0, 1, 4, 9], gap=2, most=5)
    [(0, 5), (9, 10)]
    """
    found: list[Range] = []
    for number in numbers:
        if found and number - found[-1][1] <= gap and number + 1 - found[-1][0] <= most:
            found[-1] = found[-1][0], number + 1
        else:
            found.append((number, number + 1))
    return found


class BlockCache:
    """Blocks of one file.

    Parameters
    ----------
    fetch : callable
        Gives the bytes of some ranges: ``fetch([(0, 100), (300, 400)])``.
    nbytes : int, of the file.
    block : int, bytes of a block; the last one may be shorter.
    limit : int, bytes that are kept.
    gap : int, bytes between two ranges that are fetched rather than asked around.
    longest : int, bytes of a range.
    """

    def __init__(
        self,
        fetch: Callable[[list[Range]], Sequence[Any]],
        nbytes: int,
        *,
        block: int,
        limit: int,
        gap: int,
        longest: int,
    ) -> None:
        self._fetch = fetch
        self._nbytes, self.block = nbytes, block
        self._most, self._gap, self._run = limit // block, gap // block, max(1, longest // block)
        self._lock = threading.Lock()
        self._held: dict[int, Bytes] = {}
        self._numbers: list[int] = []
        self._coming: dict[int, threading.Event] = {}
        self._choose = random.Random(0)

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept now."""
        with self._lock:
            return sum(block.nbytes for block in self._held.values())

    def get(self, numbers: Sequence[int]) -> dict[int, Bytes]:
        """Return blocks, by number (sorted, each once).

        Raises
        ------
        OSError
            What `fetch` raises.
        """
        found: dict[int, Bytes] = {}
        while len(found) < len(numbers):
            claimed: list[int] = []
            others: list[threading.Event] = []
            ready = threading.Event()
            with self._lock:
                for number in numbers:
                    if number in found:
                        continue
                    if number in self._held:
                        found[number] = self._held[number]
                    elif number in self._coming:
                        others.append(self._coming[number])
                    else:
                        self._coming[number] = ready
                        claimed.append(number)
            if claimed:
                try:
                    got = self._fetched(claimed)
                    found.update(got)
                    self._keep(got)
                finally:
                    with self._lock:
                        for number in claimed:
                            del self._coming[number]
                    ready.set()
            for other in others:
                other.wait()
        return found

    def missing(self, numbers: Sequence[int]) -> int:
        """Return how many of these blocks are not held."""
        with self._lock:
            return sum(number not in self._held for number in numbers)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._held.clear()
            self._numbers.clear()

    def _fetched(self, numbers: list[int]) -> dict[int, Bytes]:
        runs = joined_blocks(numbers, self._gap, self._run)
        ranges = [(first * self.block, min(last * self.block, self._nbytes)) for first, last in runs]
        got: dict[int, Bytes] = {}
        for (first, last), data in zip(runs, self._fetch(ranges), strict=True):
            whole = np.frombuffer(data, np.uint8)
            for number in range(first, last):
                low = (number - first) * self.block
                # A copy: a view would keep the whole range as long as one block of it.
                got[number] = whole[low : low + self.block].copy()
        return got

    def _keep(self, got: dict[int, Bytes]) -> None:
        if 4 * len(got) > self._most:
            # A long range is read once, and would leave nothing of what is used again.
            return
        with self._lock:
            for number, block in got.items():
                if number not in self._held:
                    self._numbers.append(number)
                self._held[number] = block
            while len(self._numbers) > self._most:
                at = self._choose.randrange(len(self._numbers))
                self._numbers[at], self._numbers[-1] = self._numbers[-1], self._numbers[at]
                del self._held[self._numbers.pop()]
