"""`Hdf5Subfile` describes one subfile of HDF5 blobs: its container, header, parts, and the driver of its elements.

Knows: the other modules of this package, drivers. Does not know: the other subfiles, canonical elements, ranks.

Rule
----
A subfile is described in the same way whether it was read (`read_subfile`) or is going to be written (`plan_subfile`):
all places are known before the first byte is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pnc_vol.blob.described import Described, described
from pnc_vol.blob.hdf5 import header_blob
from pnc_vol.blob.hdf5.container import HEADER, Container, Stored, find, make
from pnc_vol.blob.hdf5.parts import BlobParts, read_map, read_parts
from pnc_vol.blob.hdf5.swapped import SwappedDriver
from pnc_vol.blob.maps import SubfileMap
from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.errors import FormatError, LimitError
from pnc_vol.extents.model import Extents, Int64, Runs, one_extent
from pnc_vol.format.limits import MAX_HEADER_BYTES
from pnc_vol.format.model import TYPES, Header

__all__ = ["Hdf5Subfile", "contained", "plan_subfile", "read_subfile"]


class Hdf5Subfile(NamedTuple):
    """A subfile.

    path : str, what it is called in messages.
    container : Container, `UNKNOWN` until one process has made it.
    order : str, the byte order of the file.
    header : Header, of the subfile, with begins that are 0.
    says : Described, what the header says.
    parts : BlobParts, where parts of variables begin in ``/data_blob``.
    """

    path: str
    container: Container
    order: header_blob.Order
    header: Header
    says: Described
    parts: BlobParts

    def value(self, content: bytes = b"") -> tuple[Any, ...]:
        """Return what another rank needs to know of it; `content`, of ``/header_blob``, where it is at hand."""
        parts, content = self.parts, content or header_blob.encode(self.header, self.order)
        return self.path, *self.container, self.order, parts.counts.tolist(), parts.nreqs.tolist(), content

    @classmethod
    def of_value(cls, value: Sequence[Any]) -> Hdf5Subfile:
        """Return the subfile that `value` describes."""
        path, header_at, data_at, order, counts, nreqs, content = value
        header = header_blob.decode(content, path, most=len(content))
        says = described(header, path)
        shape = (len(says.maps), says.nblobs)
        elements, runs = (np.array(rows, np.int64).reshape(shape) for rows in (counts, nreqs))
        parts = BlobParts(header, says, elements, runs, path)
        return cls(path, Container(Stored(*header_at), Stored(*data_at)), order, header, says, parts)

    def begins(self, variable: int) -> Int64:
        """Return int64[nblobs]: the byte of the file where a variable of the subfile's header begins in each blob."""
        return self.parts.begins(variable) + self.container.data.offset

    def part_bytes(self, variable: int, blob: int) -> int:
        """Return the number of bytes of all records of a variable in a blob; they lie one behind another."""
        return int(self.parts.nbytes_of(variable)[blob])

    def over(self, driver: Driver) -> Driver:
        """Return the driver of the file with elements in big-endian order; it closes the one that is given."""
        return driver if self.order == "big" else SwappedDriver(driver, self.parts.regions(self.container.data.offset))

    def read_map(self, driver: Driver, k: int) -> SubfileMap:
        """Read its part of map `k`, from 0, through a driver that `over` gave.

        Raises
        ------
        FormatError
            Its runs contradict the counts, or lie outside of the dimensions.
        OSError
        """
        return read_map(driver, self.container.data.offset, self.parts, self.says, k, self.header, self.path)

    def map_rows(self, blob: int, lists: Sequence[Runs]) -> tuple[Extents, Memory]:
        """Return the map variables of one blob, to be written by a driver that `over` gave.

        lists : sequence of Runs, of the blob in each map; none across a row of the last dimension.
        """
        pieces = []
        for k, (one, runs) in enumerate(zip(self.says.maps, lists, strict=True)):
            start = int(self.parts.counts[k, :blob].sum())
            columns = ([runs.start.size], [start], [int(runs.length.sum())], runs.start, runs.length)
            types = (TYPES[var.type].dtype for var in self.header.vars[one.first : one.first + len(columns)])
            pieces += [
                np.asarray(values).astype(dtype).view(np.uint8) for values, dtype in zip(columns, types, strict=True)
            ]
        memory = np.concatenate([np.empty(0, np.uint8), *pieces])
        return one_extent(self.container.data.offset + int(self.parts.starts[blob]), memory.nbytes), memory


UNKNOWN = Container(Stored(0, 0), Stored(0, 0))


def plan_subfile(
    header: Header, counts: Int64, nreqs: Int64, path: str, order: header_blob.Order = header_blob.NATIVE
) -> Hdf5Subfile:
    """Plan a subfile that is going to be written; each of its processes makes the same plan.

    Parameters
    ----------
    header : Header, of the subfile, with the number of records that it is going to have.
    counts, nreqs : int64[maps, nblobs], elements and runs of each blob in each map.
    path : str

    Raises
    ------
    FormatError
        There is more than any file can hold.
    """
    says = described(header, path)
    return Hdf5Subfile(path, UNKNOWN, order, header, says, BlobParts(header, says, counts, nreqs, path))


def contained(plan: Hdf5Subfile) -> tuple[Hdf5Subfile, list[tuple[int, bytes]], int]:
    """Add the container to a planned subfile; one process does it.

    Returns
    -------
    subfile : Hdf5Subfile
    pieces : list of (int, bytes)
        What lies outside of ``/data_blob``: offsets and bytes; the last one is the content of ``/header_blob``.
    nbytes : int, bytes of the file.

    Raises
    ------
    DefinitionError
        The header has something that CDF-5 cannot hold.
    MissingPackageError
        h5py is not installed.
    """
    content = header_blob.encode(plan.header, plan.order)
    container, pieces, nbytes = make(len(content), plan.parts.nbytes)
    return plan._replace(container=container), [*pieces, (container.header.offset, content)], nbytes


def read_subfile(driver: Driver, path: str, *, most: int = MAX_HEADER_BYTES) -> Hdf5Subfile:
    """Read everything in a subfile that is needed to find its elements.

    Parameters
    ----------
    driver : Driver, of the whole file.
    path : str, for messages.
    most : int, bytes of the longest header that is decoded.

    Raises
    ------
    FormatError
        It is no subfile, was cut, or says things that contradict each other; with file, object and offset.
    MissingPackageError
        h5py is not installed.
    OSError
    """
    container = find(driver, path)
    where = f"{path}: /{HEADER}"
    stored = container.header
    if stored.nbytes > most:
        raise LimitError(
            f"{where} has {stored.nbytes} bytes, more than {most}; increase max_header_bytes if you trust the file.",
            offset=stored.offset,
            field=HEADER,
            value=stored.nbytes,
        )
    content = np.zeros(stored.nbytes, np.uint8)
    if stored.nbytes and driver.read_one(content, stored.offset) != stored.nbytes:
        raise FormatError(f"{where} could not be read whole: the file has become shorter", field=HEADER)
    data = content.tobytes()
    header = header_blob.decode(data, where, offset=stored.offset, most=most)
    order = header_blob.order_of(data)
    says = described(header, path)
    parts = read_parts(driver, container.data, header, says, order, path)
    return Hdf5Subfile(path, container, order, header, says, parts)
