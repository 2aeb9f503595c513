"""The root for files under addresses reads only, in blocks, through fsspec.

fsspec moves the bytes, since it knows every store. Its file objects and their caches are not used: they serve one
reader, one block after another.

Knows: extents, blocks. Does not know: fsspec (`address`), headers.

Rules
-----
1. To open asks for the size; the first read brings the first block, in which most headers are whole.
2. Small reads bring whole blocks, and blocks that are near each other come by one range: a request takes as long as
   many bytes (`call_cost`). Ranges of one read are under way at the same time.
3. A read of several pieces that lie far apart, such as rows of an array, brings these alone: most of their blocks would
   be of no use.
4. What was read is the file that was opened: one that changed since is an error.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Capabilities, Memory, OpenContext
from pnc_vol.drivers.root import Root
from pnc_vol.drivers.vectored_io import check, copy_pieces, in_order, within
from pnc_vol.errors import ReadOnlyError
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents, spread
from pnc_vol.remote.address import Address

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["BlockCache", "Range", "RemoteDriver", "joined_blocks"]

Range = tuple[int, int]
"""First byte and the one behind the last."""

CALL_COST = 1 << 20
"""Bytes that arrive in the time that a request takes besides: 50 MB/s and 20 ms."""
LONGEST = 8 << 20
"""Bytes of a range; longer ones are asked for in parts, which come at the same time."""
AT_ONCE = 64 << 20
"""Bytes of a read whose blocks are in memory at the same time."""
SPARSE = 4
"""Blocks that hold so many times the bytes that are wanted are not worth their way."""
GAP = CALL_COST // 16
"""Bytes between two ranges of such a read that come with them: requests at the same time cost less than alone."""
MOST_RANGES = 1024
"""Requests of such a read: of more of them a server may want a rest."""


class RemoteDriver(Root):
    """A file that fsspec reads.

    Parameters
    ----------
    address : Address
    block_bytes : int, bytes of a block.
    cache_bytes : int, bytes of blocks that are kept.
    """

    name = "remote"
    capabilities = Capabilities(
        concurrent=True, call_cost=CALL_COST, joins_pieces=True, keeps_file=False, own_paths=True
    )

    def __init__(self, address: Address, *, block_bytes: int = 512 << 10, cache_bytes: int = 256 << 20) -> None:
        super().__init__(address.url, writable=False)
        if block_bytes < 1:
            raise ValueError(f"remote(block_bytes={block_bytes}): at least 1 is needed")
        self._address = address
        self._blocks = BlockCache(
            address.fetch, address.nbytes, block=block_bytes, limit=cache_bytes, gap=CALL_COST, longest=LONGEST
        )

    @classmethod
    def open(
        cls, path: str | None, context: OpenContext, *, retries: int = 3, timeout: float = 300, **options: Any
    ) -> Self:
        """Ask for the file.

        Parameters
        ----------
        path, context
            As for every root; the path is an address.
        retries : int, how often a request is tried again that failed on the way.
        timeout : float, seconds that the requests of one read may take, at most 64 MiB of it at a time.
        **options
            Of the class.

        Raises
        ------
        ReadOnlyError
            It is to be written.
        OSError, ImportError, ValueError
            As `Address`.
        """
        if path is None:
            raise ValueError("the remote driver needs an address, such as https://host/file.nc")
        _check_reads(path, context)
        return cls(Address(path, context.storage_options, retries=retries, timeout=timeout), **options)

    @classmethod
    def exists(cls, path: str, context: OpenContext) -> bool:
        """Return True: `open` finds out, by the one request that it makes anyway.

        Raises
        ------
        ReadOnlyError
            The file is to be written.
        """
        _check_reads(path, context)
        return True

    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        check(extents, memory)
        block, before = self._blocks.block, self._address.requests
        # few bytes may be in many blocks
        most = max(1, AT_ONCE // block)
        wanted = in_order(within(extents, self._address.nbytes))
        for part in rounds(wanted, AT_ONCE):
            offset, end = part.offset, part.offset + part.length
            if self._read_ranges(part, end, memory):
                continue
            first = offset // block
            owner, step = spread((end - 1) // block - first + 1)
            number = first[owner] + step
            low = np.maximum(offset[owner], number * block)
            pieces = np.stack((number, low, np.minimum(end[owner], (number + 1) * block), owner))
            if bool((number[1:] < number[:-1]).any()):
                pieces = pieces[:, np.argsort(number, kind="stable")]
            number, low, high, owner = pieces
            place = part.place[owner] + low - offset[owner]
            numbers, at = np.unique(number, return_index=True)
            steps = list(zip(numbers.tolist(), at.tolist(), [*at[1:].tolist(), len(number)], strict=True))
            for i in range(0, len(steps), most):
                found = self._blocks.get([n for n, _, _ in steps[i : i + most]])
                for n, a, b in steps[i : i + most]:
                    copy_pieces(memory, place[a:b], found[n], low[a:b] - n * block, high[a:b] - low[a:b])
        return wanted.nbytes, self._address.requests - before

    def _read_ranges(self, part: Extents, end: npt.NDArray[np.int64], memory: Memory) -> bool:
        """Read pieces that lie far apart by ranges of their own, which are not kept; whether it was done.

        Whole blocks would be more than `SPARSE` times as many bytes.
        """
        offset = part.offset
        if len(offset) < 2:
            return False
        begins = np.append(True, offset[1:] - np.maximum.accumulate(end)[:-1] > GAP)
        first = np.flatnonzero(begins)
        low, high = offset[first], np.maximum.reduceat(end, first)
        nbytes, block = int((high - low).sum()), self._blocks.block
        if not 1 < len(first) <= MOST_RANGES or nbytes > AT_ONCE:
            return False
        numbers = np.unique(np.concatenate((low // block, (high - 1) // block)))
        if self._blocks.missing(numbers.tolist()) * block < SPARSE * nbytes:
            return False
        got = self._address.fetch(list(zip(low.tolist(), high.tolist(), strict=True)))
        for data, start, a, b in zip(got, low.tolist(), first, [*first[1:], len(offset)], strict=True):
            copy_pieces(memory, part.place[a:b], np.frombuffer(data, np.uint8), offset[a:b] - start, part.length[a:b])
        return True

    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        raise AssertionError("a remote file is open for reading")

    def _size(self) -> int:
        return self._address.nbytes

    def _resize(self, nbytes: int) -> None:
        raise AssertionError("a remote file is open for reading")

    def _sync(self) -> None:
        """There is nothing to write."""

    def _close(self) -> None:
        self._blocks.clear()

    def statistics(self) -> dict[str, Any]:
        counts = {"remote.requests": self._address.requests, "remote.held_bytes": self._blocks.held_bytes}
        return super().statistics() | counts


def _check_reads(path: str, context: OpenContext) -> None:
    if context.writable:
        text = (
            "files under addresses are open for reading only; open it with mode 'r', or write a local file and copy it"
        )
        error = ReadOnlyError(f"{path}: {text}")
        error.errno = errno.EROFS
        raise error


# -------------------------------------------------------------------------------------------------------------- blocks
# Blocks of a file that is far away are held, on their way, or to be asked for.
#
# Rules
# -----
# 1. Two threads that need the same block ask once; the second one waits for the first, and asks itself if that failed.
# 2. At most `limit` bytes stay. What goes is chosen at random: a program that goes again and again through a file that
#    is longer than the limit would find nothing of it if the oldest went.
# 3. Ranges whose gap is shorter than a call is worth are one range; what lies in the gap is kept, too.


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
        self._held: dict[int, Memory] = {}
        self._numbers: list[int] = []
        self._coming: dict[int, threading.Event] = {}
        self._choose = random.Random(0)

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept now."""
        with self._lock:
            return sum(block.nbytes for block in self._held.values())

    def get(self, numbers: Sequence[int]) -> dict[int, Memory]:
        """Return blocks, by number (sorted, each once).

        Raises
        ------
        OSError
            What `fetch` raises.
        """
        found: dict[int, Memory] = {}
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

    def _fetched(self, numbers: list[int]) -> dict[int, Memory]:
        runs = joined_blocks(numbers, self._gap, self._run)
        ranges = [(first * self.block, min(last * self.block, self._nbytes)) for first, last in runs]
        got: dict[int, Memory] = {}
        for (first, last), data in zip(runs, self._fetch(ranges), strict=True):
            whole = np.frombuffer(data, np.uint8)
            for number in range(first, last):
                low = (number - first) * self.block
                # A copy: a view would keep the whole range as long as one block of it.
                got[number] = whole[low : low + self.block].copy()
        return got

    def _keep(self, got: dict[int, Memory]) -> None:
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
