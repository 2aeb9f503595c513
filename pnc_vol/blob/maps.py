"""A decomposition map lists the canonical elements that each blob of a subfile holds.

Knows: runs, the five variables of a subfile that describe a map. Does not know: headers, files, ranks.

Rules
-----
1. Runs count the elements of one record, in C order, from 0. The elements of a blob are those of its runs, one run
   after another.
2. Runs in a file never cross a row of the last dimension, as E3SM-IO has it; `split_rows` cuts those that do.
3. ``offsets`` and ``lengths`` of a file are int32, which the replay tool of E3SM-IO expects, unless the elements are
   too many for it: then they are int64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import FormatError
from pnc_vol.extents.merge import last_wins
from pnc_vol.extents.model import Extents, Int64, Runs, before
from pnc_vol.extents.place import split_rows

__all__ = [
    "MAP_VARIABLES",
    "MapSizes",
    "SubfileMap",
    "blob_row",
    "content",
    "derived",
    "from_content",
    "split_rows",
    "wide_offsets",
]

UInt8 = npt.NDArray[np.uint8]

MAP_VARIABLES = ("nreqs", "blob_start", "blob_count", "offsets", "lengths")
"""The variables of each map, in their order; in the file ``Dk.`` stands before each."""

_INT_MAX = 2**31 - 1


class MapSizes(NamedTuple):
    """What the header of a subfile says of a map.

    dims : tuple of int, lengths of the canonical dimensions, without the record dimension.
    dimids : tuple of int, their numbers in the canonical header that the map was made with.
    nblobs, nelems, max_nreqs : int
        Blobs; elements of all blobs; runs of the blob with the most. The last two are at least 1.
    """

    dims: tuple[int, ...]
    dimids: tuple[int, ...]
    nblobs: int
    nelems: int
    max_nreqs: int


@dataclass(frozen=True, slots=True)
class SubfileMap:
    """What one subfile holds of one map.

    Attributes
    ----------
    dims : tuple of int, lengths of the canonical dimensions, without the record dimension.
    dimids : tuple of int, their numbers in the canonical header.
    blobs : tuple of Runs
        For each blob its runs. What is written is sorted and cut by rows (`split_rows`); what is read has the order of
        the file.
    name : str, of a single blob, for messages; else a blob is named by its number in the subfile.

    Examples
    --------
    >>> runs = Runs(np.array([0, 6]), np.array([2, 3]))
    >>> two = SubfileMap((4, 6), (1, 2), (runs, Runs(np.array([9]), np.array([1]))))
    >>> two.counts.tolist(), two.starts.tolist(), two.nreqs.tolist(), two.nelems, two.max_nreqs
    ([5, 1], [0, 5], [2, 1], 6, 2)
    """

    dims: tuple[int, ...]
    dimids: tuple[int, ...]
    blobs: tuple[Runs, ...]
    name: str = ""

    @property
    def nblobs(self) -> int:
        """Blobs, one for each process that writes to the subfile."""
        return len(self.blobs)

    @property
    def counts(self) -> Int64:
        """int64[nblobs], elements of each blob."""
        return np.array([int(runs.length.sum()) for runs in self.blobs], np.int64)

    @property
    def starts(self) -> Int64:
        """int64[nblobs], elements before each blob."""
        return before(self.counts)

    @property
    def nreqs(self) -> Int64:
        """int64[nblobs], runs of each blob."""
        return np.array([runs.start.size for runs in self.blobs], np.int64)

    @property
    def nelems(self) -> int:
        """Elements of all blobs, but at least 1: a dimension of length 0 would be the record dimension."""
        return max(1, int(self.counts.sum()))

    @property
    def max_nreqs(self) -> int:
        """Runs of the blob with the most, but at least 1."""
        return max(1, int(self.nreqs.max(initial=0)))

    @property
    def sizes(self) -> MapSizes:
        """The sizes of the map, without its runs."""
        return MapSizes(self.dims, self.dimids, self.nblobs, self.nelems, self.max_nreqs)


def wide_offsets(dims: Sequence[int]) -> bool:
    """Return whether offsets into these dimensions need int64 in a file."""
    return math.prod(dims) > _INT_MAX


def derived(lists: Sequence[Runs]) -> list[Runs]:
    """Make the lists of runs that ranks posted disjoint: the highest rank keeps what several posted.

    Parameters
    ----------
    lists : sequence of Runs, those of each rank, in any order.

    Returns
    -------
    list of Runs
        For each rank; sorted, disjoint, neighbours joined.

    Examples
    --------
    >>> lists = derived([Runs(np.array([0]), np.array([5])), Runs(np.array([3]), np.array([4]))])
    >>> [[column.tolist() for column in runs] for runs in lists]
    [[[0], [3]], [[3], [4]]]
    """
    end = max((int((start + length).max(initial=0)) for start, length in lists), default=0)
    # Each rank's memory begins farther away than any run reaches, so that runs of two ranks are never joined.
    apart = end + 1
    start, length = (np.concatenate([np.empty(0, np.int64), *(one[i] for one in lists)]) for i in (0, 1))
    rank = np.repeat(np.arange(len(lists), dtype=np.int64), [one.start.size for one in lists])
    kept = last_wins(Extents(start, length, start + rank * apart))
    owner = (kept.place - kept.offset) // apart
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(len(lists) + 1))
    parts = (order[low:high] for low, high in pairwise(bounds))
    return [Runs(kept.offset[part], kept.length[part]) for part in parts]


def blob_row(runs: Runs, max_nreqs: int, *, wide: bool) -> tuple[UInt8, UInt8]:
    """Return the row of one blob in ``offsets`` and in ``lengths``, as in the file: big-endian, zeros behind the
    runs."""
    dtype = np.dtype(">i8" if wide else ">i4")
    rows = np.zeros((2, max_nreqs), dtype)
    rows[0, : runs.start.size], rows[1, : runs.start.size] = runs
    return rows[0].view(np.uint8), rows[1].view(np.uint8)


def content(maps: Sequence[SubfileMap]) -> list[UInt8]:
    """Encode the map variables of a subfile.

    Returns
    -------
    list of uint8[bytes]
        For each map ``nreqs``, ``blob_start``, ``blob_count``, ``offsets`` and ``lengths``, in the order of the file,
        big-endian. What C leaves undefined, the ends of the rows of the last two, is zero.

    Examples
    --------
    >>> one = SubfileMap((6,), (0,), (Runs(np.array([2]), np.array([3])),))
    >>> [bytes.tolist() for bytes in content([one])[:2]]
    [[0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0]]
    """
    made: list[UInt8] = []
    for one in maps:
        counts = one.counts
        for values, code in ((one.nreqs, ">i4"), (before(counts), ">i8"), (counts, ">i8")):
            made.append(values.astype(code).view(np.uint8))
        rows = [blob_row(runs, one.max_nreqs, wide=wide_offsets(one.dims)) for runs in one.blobs]
        made += (np.concatenate(columns) for columns in zip(*rows, strict=True))
    return made


def from_content(sizes: MapSizes, columns: Sequence[Any], name: str, begins: Sequence[Any]) -> SubfileMap:
    """Decode a map from the five variables of a subfile that describe it.

    Parameters
    ----------
    sizes : MapSizes, what the header says of it.
    columns : five arrays of integers
        Values of ``nreqs``, ``blob_start`` and ``blob_count`` (nblobs), ``offsets`` and ``lengths``
        (nblobs, max_nreqs); of the last two also lists of rows that are as long as there are runs.
    name : str, of the subfile and the map, for messages, such as ``"out.nc.0001: D2"``.
    begins : five arrays of integers, the byte of the file where each blob's number, or row, is; for messages.

    Raises
    ------
    FormatError
        They contradict each other, or a run lies outside of the dimensions; ``field`` names the variable and the blob.
    """

    def wrong(part: int, b: int, value: int, why: str, number: int = 0) -> FormatError:
        field = f"{MAP_VARIABLES[part]}[{b}]"
        row = columns[part][b]
        at = int(begins[part][b]) + number * row.itemsize
        return FormatError(f"{name}.{field} is {value}: {why} (byte {at})", offset=at, field=field, value=value)

    nreqs, starts, counts = (column.astype(np.int64, copy=False) for column in columns[:3])
    nelems, blobs = math.prod(sizes.dims), []
    at = 0
    for b in range(sizes.nblobs):
        n = int(nreqs[b])
        if not 0 <= n <= sizes.max_nreqs:
            raise wrong(0, b, n, f"it can have 0 to {sizes.max_nreqs} runs")
        start, length = (np.array(rows[b][:n], np.int64) for rows in columns[3:])
        if n and int(length.min()) < 0:
            i = int(length.argmin())
            raise wrong(4, b, int(length[i]), f"run {i} has a negative length", i)
        outside = np.flatnonzero((start < 0) | (start > nelems - length))
        if outside.size:
            i = int(outside[0])
            text = f"run {i} of {int(length[i])} elements lies outside of the {nelems} elements of {sizes.dims}"
            raise wrong(3, b, int(start[i]), text, i)
        total = int(length.sum())
        if int(counts[b]) != total:
            raise wrong(2, b, int(counts[b]), f"its runs have {total} elements")
        if int(starts[b]) != at:
            raise wrong(1, b, int(starts[b]), f"the blobs before it have {at} elements")
        at += total
        blobs.append(Runs(start, length))
    if max(1, at) != sizes.nelems:
        raise FormatError(
            f"{name}.nelems is {sizes.nelems}, but the blobs have {at} elements", field="nelems", value=sizes.nelems
        )
    return SubfileMap(sizes.dims, sizes.dimids, tuple(blobs))
