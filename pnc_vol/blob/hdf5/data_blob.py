"""`BlobParts` computes where the part of each variable begins in each blob of ``/data_blob``; `SwappedDriver` reads it.

Knows: the order of what a blob holds, sizes, drivers. Does not know: HDF5, canonical elements, addresses.

Rules
-----
1. The blobs of the processes lie one behind another. A blob holds, for each variable in the order of the header, all
   of its records one behind another, without padding: the rows of the map variables (as long as they are, not padded to
   the longest one), then what the process owns of the partitioned variables. All of the others are in blob 0 alone.
2. No offset is stored. The size of a variable in a blob is a sum of its sizes in blob 0, in each blob, for each
   element of the blob in a map, and for each run of it. So the begins of all variables are one matrix product, whether
   the counts come from maps that are going to be written or from the map variables of a file.
3. A file is not trusted: every number is compared with the value that follows from the others before it is used.
4. Elements are big-endian above the driver, and little-endian in the file. They are read whole and swapped, in
   cache-sized blocks; parts of them that were asked for are copied from these. Who writes swaps whole variables
   (`subfile.wrap`).
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from pnc_vol.blob.hdf5.container import DATA, Stored
from pnc_vol.blob.header import Described
from pnc_vol.blob.maps import MAP_VARIABLES
from pnc_vol.drivers.base import Capabilities, Driver, Memory, Wrapper
from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.errors import FormatError
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents, Int64, before, spread
from pnc_vol.format.model import MAX_OFFSET, TYPES, Header, Order, inner_sizes, is_record

__all__ = ["BlobParts", "PartsReader", "SwappedDriver"]

_BLOCK = 1 << 20
"""Bytes that are read at a time."""
_FIRST, _EACH, _COUNTS = 0, 1, 2
"""Columns of what a variable takes: once in blob 0, once in each blob; from here on for each element of each map, and
behind these for each run of each map."""


class BlobParts:
    """The begin of each variable of a subfile in each blob, in bytes from the start of ``/data_blob``.

    Parameters
    ----------
    header : Header, of the subfile, with its number of records.
    says : Described, what it says.
    counts, nreqs : int64[maps, nblobs], elements and runs of each blob in each map.
    where : str, the subfile, for messages.

    Attributes
    ----------
    counts, nreqs : int64[maps, nblobs]
    starts : int64[nblobs], where each blob begins.
    nbytes : int, bytes of all blobs.

    Raises
    ------
    FormatError
        There is more than any file can hold.
    """

    __slots__ = ("_features", "_prefix", "_records", "_sizes", "counts", "nbytes", "nreqs", "starts")

    def __init__(self, header: Header, says: Described, counts: Int64, nreqs: Int64, where: str) -> None:
        self.counts, self.nreqs = counts, nreqs
        nblobs = counts.shape[1]
        first = np.zeros(nblobs, np.int64)
        first[:1] = 1
        self._features = np.concatenate((first[None], np.ones((1, nblobs), np.int64), counts, nreqs))
        prefix = _prefix(header, says)
        nbytes = sum(n * int(times) for n, times in zip(prefix[-1], self._features.sum(axis=1), strict=True))
        if nbytes > MAX_OFFSET or max(prefix[-1]) > MAX_OFFSET:
            raise FormatError(f"{where}: the variables of its blobs take {nbytes} bytes", field="numrecs", value=nbytes)
        self.nbytes = nbytes
        self._prefix = np.array(prefix, np.int64)
        self.starts = before(self._prefix[-1] @ self._features)
        self._sizes = np.array([TYPES[var.type].size for var in header.vars], np.int64)
        self._records = {i: max(1, header.numrecs) for i, var in enumerate(header.vars) if is_record(header, var)}

    def begins(self, variable: int) -> Int64:
        """Return int64[nblobs]: where a variable of the subfile's header begins in each blob."""
        found: Int64 = self.starts + self._prefix[variable] @ self._features
        return found

    def nbytes_of(self, variable: int) -> Int64:
        """Return int64[nblobs]: bytes of all records of a variable in each blob; they lie one behind another."""
        found: Int64 = (self._prefix[variable + 1] - self._prefix[variable]) @ self._features
        return found

    def record_sizes(self, variable: int) -> Int64:
        """Return int64[nblobs]: bytes from one record of a variable to the next in each blob; 0 without records."""
        nbytes = self.nbytes_of(variable)
        return nbytes // self._records[variable] if variable in self._records else np.zeros_like(nbytes)

    def elements(self, offset: int) -> tuple[Int64, Int64]:
        """Return where elements of which size lie, if ``/data_blob`` begins at this byte; see `SwappedDriver`."""
        # consecutive variables of one element size are one region
        heads = np.flatnonzero(np.append(True, self._sizes[1:] != self._sizes[:-1])[: self._sizes.size])
        begins = (self._prefix[heads] @ self._features + self.starts + offset).T.ravel()
        return np.append(begins, offset + self.nbytes), np.tile(self._sizes[heads], self.starts.size)


def _prefix(header: Header, says: Described) -> list[list[int]]:
    """Return what the variables before each one take, and what all take, by the columns; Python's integers do not
    overflow."""
    n, inner = len(says.maps), inner_sizes(header)
    map_of = {i: k - 1 for i, k in zip(says.variables, says.assigned, strict=True) if k}
    total = [0] * (_COUNTS + 2 * n)
    made = [total.copy()]
    for i, var in enumerate(header.vars):
        size = TYPES[var.type].size
        records = header.numrecs if is_record(header, var) else 1
        k, j = divmod(i, len(MAP_VARIABLES))
        if k < n:
            total[_EACH if j < 3 else _COUNTS + n + k] += size
        elif i in map_of:
            total[_COUNTS + map_of[i]] += inner[i] // says.maps[map_of[i]].nelems * records
        else:
            total[_FIRST] += inner[i] * records
        made.append(total.copy())
    return made


class PartsReader:
    """A walk from blob to blob: the numbers at the beginning of each blob give the begin of the next one.

    Parameters
    ----------
    driver : Driver, of the file, as it is.
    data : Stored, its ``/data_blob``.
    header, says : Header and Described, of the subfile.
    order : str, the byte order of the file.
    where : str, the subfile, for messages.
    """

    def __init__(self, driver: Driver, data: Stored, header: Header, says: Described, order: Order, where: str) -> None:
        self.driver, self.data, self.header, self.says, self.where = driver, data, header, says, where
        self.takes = _prefix(header, says)[-1]
        types = [
            [TYPES[var.type].dtype.newbyteorder(order) for var in header.vars[5 * k : 5 * k + 5]]
            for k in range(len(says.maps))
        ]
        self.heads = [np.dtype([(MAP_VARIABLES[j], types[k][j]) for j in range(3)]) for k in range(len(types))]
        self.run_bytes = [types[k][3].itemsize + types[k][4].itemsize for k in range(len(types))]

    def wrong(self, blob: int, name: str, at: int, value: object, why: str) -> NoReturn:
        raise FormatError(
            f"{self.where}: blob {blob}: {name} at byte {at} is {value}: {why}", offset=at, field=name, value=value
        )

    def short(self, blob: int, name: str, needed: int) -> NoReturn:
        raise FormatError(
            f"{self.where}: blob {blob}: {name} would end at byte {needed}, and /{DATA} ends at byte {self.data.end}: "
            "the data were cut, or a count is wrong",
            offset=self.data.end,
            field=name,
            value=needed,
        )

    def parts(self) -> BlobParts:
        """Return the parts of the subfile.

        Raises
        ------
        FormatError
            A number of a map variable contradicts another one, the header, or the size of the data; it names the blob,
            the variable and the byte of the file.
        """
        says, n = self.says, len(self.says.maps)
        for k, one in enumerate(says.maps, 1):
            if one.nblobs != says.nblobs:
                text = f"D{k} has {one.nblobs} blobs, and the file {says.nblobs}"
                raise FormatError(f"{self.where}: {text}", field=f"D{k}.nblobs", value=one.nblobs)
        at = self.data.offset
        columns: list[list[int]] = []
        elements = [0] * n
        for blob in range(says.nblobs):
            begin, counts, nreqs = at, [], []
            for k in range(n):
                count, runs = self.head(blob, k, at, elements[k])
                at += self.heads[k].itemsize + runs * self.run_bytes[k]
                counts.append(count)
                nreqs.append(runs)
                elements[k] += count
            features = [int(blob == 0), 1, *counts, *nreqs]
            at = begin + sum(takes * times for takes, times in zip(self.takes, features, strict=True))
            if at > self.data.end:
                self.short(blob, "its last variable", at)
            columns.append(counts + nreqs)
        if at != self.data.end:
            raise FormatError(
                f"{self.where}: the {says.nblobs} blobs end at byte {at}, and /{DATA} ends at byte {self.data.end}: a "
                "count is wrong, or variables or records are missing in the header",
                offset=at,
                field=DATA,
                value=self.data.nbytes,
            )
        found = np.array(columns, np.int64).reshape(says.nblobs, 2 * n).T
        made = BlobParts(self.header, says, found[:n], found[n:], self.where)
        self.compare(made)
        return made

    def head(self, blob: int, k: int, at: int, before_it: int) -> tuple[int, int]:
        """Return elements and runs of a blob in map k, as the three numbers at this byte say."""
        dtype, name = self.heads[k], f"D{k + 1}"
        if at + dtype.itemsize > self.data.end:
            self.short(blob, f"{name}.blob_count", at + dtype.itemsize)
        raw: npt.NDArray[np.void] = np.zeros(1, dtype)
        if self.driver.read_one(raw, at) != dtype.itemsize:
            self.short(blob, f"{name}.blob_count", at + dtype.itemsize)
        runs, start, count = (int(raw[0][part]) for part in MAP_VARIABLES[:3])
        starts_at, counts_at = (at + dtype.fields[part][1] for part in MAP_VARIABLES[1:3])  # type: ignore[index]
        says = self.says.maps[k]
        if not 0 <= runs <= says.max_nreqs:
            self.wrong(blob, f"{name}.nreqs", at, runs, f"it can be 0 to {says.max_nreqs}")
        if start != before_it:
            self.wrong(blob, f"{name}.blob_start", starts_at, start, f"the blobs before it have {before_it} elements")
        if not 0 <= count <= says.nelems - before_it:
            self.wrong(blob, f"{name}.blob_count", counts_at, count, f"{name}.nelems leaves {says.nelems - before_it}")
        if at + dtype.itemsize + runs * self.run_bytes[k] > self.data.end:
            self.short(blob, f"{name}.lengths", at + dtype.itemsize + runs * self.run_bytes[k])
        return count, runs

    def compare(self, made: BlobParts) -> None:
        """Compare the sums over all blobs with the header."""
        for k, one in enumerate(self.says.maps):
            sums = (int(made.counts[k].sum()), int(made.nreqs[k].max(initial=0)))
            for name, says, found in zip(("nelems", "max_nreqs"), (one.nelems, one.max_nreqs), sums, strict=True):
                if says != max(1, found):
                    raise FormatError(
                        f"{self.where}: the dimension 'D{k + 1}.{name}' is {says}, and {max(1, found)} follows from "
                        "the blobs",
                        field=f"D{k + 1}.{name}",
                        value=says,
                    )


class SwappedDriver(Wrapper):
    """A wrapper that reads elements which are stored in the other byte order.

    Parameters
    ----------
    inner : Driver, of the file; of this rank alone, so no call is collective.
    bounds, sizes : int64[n + 1], int64[n]
        From one bound to the next lie whole elements of a size, 1, 2, 4 or 8 bytes. All other bytes are left as they
        are.

    Examples
    --------
    >>> from pnc_vol.drivers.memory import MemoryDriver
    >>> from pnc_vol.extents.model import one_extent
    >>> below = MemoryDriver(bytes([1, 2, 3, 4, 5]))
    >>> driver = SwappedDriver(below, np.array([1, 5]), np.array([2]))
    >>> found = np.zeros(3, np.uint8)
    >>> driver.read(one_extent(0, 3), found), found.tolist()
    (3, [1, 3, 2])
    """

    name = "swapped"

    def __init__(self, inner: Driver, bounds: Int64, sizes: Int64) -> None:
        super().__init__(inner)
        self._bounds = np.concatenate(([0], bounds, [np.iinfo(np.int64).max]))
        self._sizes = np.concatenate(([1], sizes, [1]))

    @classmethod
    def declares(cls, below: Capabilities) -> Capabilities:
        return below._replace(mapping=False)

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        return sum(self._read(part, memory) for part in rounds(extents, _BLOCK))

    def read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        region = int(self._bounds.searchsorted(offset, side="right")) - 1
        begin, end, size = int(self._bounds[region]), int(self._bounds[region + 1]), int(self._sizes[region])
        n = array.nbytes
        if offset + n > end or (offset - begin) % size or n % size or self.inner.read_one(array, offset) < n:
            return super().read_one(array, offset)
        array.reshape(-1).view(np.uint8).view(f"u{size}").byteswap(inplace=True)
        return n

    def describe(self) -> str:
        # a user cannot name it in ``driver=``, since only the layout knows where elements lie
        return self.inner.describe()

    def _read(self, extents: Extents, memory: Memory) -> int:
        offset, length, place = extents
        first = np.searchsorted(self._bounds, offset, side="right") - 1
        owner, region = spread(np.maximum(np.searchsorted(self._bounds, offset + length, side="left") - first, 0))
        region += first[owner]
        # by the size of elements, so that those of one size lie together in memory
        order = np.argsort(self._sizes[region], kind="stable")
        owner, region = owner[order], region[order]
        begin, size = self._bounds[region], self._sizes[region]
        low, high = np.maximum(offset[owner], begin), np.minimum((offset + length)[owner], self._bounds[region + 1])
        skipped = (low - begin) % size
        whole = high + (begin - high) % size - (low - skipped)
        at = before(whole)
        elements = np.empty(int(whole.sum()), np.uint8)
        got = self.inner.read(Extents(low - skipped, whole, at), elements)
        bounds = np.append(at, elements.size)
        for unit in (2, 4, 8):
            these = bounds[np.searchsorted(size, [unit, unit + 1])].tolist()
            elements[slice(*these)].view(f"u{unit}").byteswap(inplace=True)
        if got < elements.size:
            high = np.maximum(np.minimum(high, self.inner.size()), low)
        copy_pieces(memory, place[owner] + low - offset[owner], elements, at + skipped, high - low)
        return int((high - low).sum())
