"""The HDF5 form of a subfile is written around the blobs of the NetCDF file that it was until the close.

Knows: one subfile in either form, drivers, the ranks that share it. Does not know: sets, names, sessions.

Rules
-----
1. Each rank copies its own blob: the NetCDF file has it in a piece for each variable and record, the HDF5 file in one.
2. One rank makes the HDF5 file; its size and all places follow from the counts of the maps.
3. What was never written is not read: a file that is larger than the disk may have a few values.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from pnc_vol.blob.hdf5.container import make
from pnc_vol.blob.hdf5.parts import BlobParts
from pnc_vol.blob.hdf5.subfile import NATIVE, encode_header
from pnc_vol.blob.header import Described, described
from pnc_vol.blob.layout import read_map_variable
from pnc_vol.blob.maps import MAP_VARIABLES
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents, before, one_extent
from pnc_vol.format.model import TYPES, Header, inner_sizes, is_record, record_size
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.system import System

__all__ = ["wrap"]

_BLOCK = 4 << 20
"""Bytes that are read and written at a time."""


def wrap(source: Driver, header: Header, target: Driver, group: Comm, system: System, work: str) -> None:
    """Write the HDF5 form of a subfile (collective).

    Parameters
    ----------
    source : Driver, of the NetCDF file, which holds all data.
    header : Header, of it.
    target : Driver, of an empty file.
    group : Comm, the ranks that the subfile has blobs of, in their order.
    work : str, the NetCDF file.

    Raises
    ------
    MissingPackageError
        h5py is not installed.
    OSError
    """
    says = described(header, work)
    counts, nreqs = (
        np.array(
            [read_map_variable(source, header, header.vars[one.first + j], work) for one in says.maps], np.int64
        ).reshape(-1, says.nblobs)
        for j in (2, 0)
    )
    parts = BlobParts(header, says, counts, nreqs, work)

    def contain() -> int:
        content = encode_header(header)
        container, pieces, nbytes = make(len(content), parts.nbytes)
        target.grow(nbytes)
        for offset, piece in [*pieces, (container.header.offset, content)]:
            target.write(one_extent(offset, len(piece)), np.frombuffer(piece, np.uint8))
        return container.data.offset

    begin = on_root(group, "close container", contain) + int(parts.starts[group.rank])
    fd = system.open(work, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for size, pieces in _pieces(header, says, parts, group.rank):
            _copy(source, target, pieces._replace(place=pieces.place + begin), size, system, fd)
    finally:
        system.close(fd)


def _pieces(header: Header, says: Described, parts: BlobParts, blob: int) -> Iterator[tuple[int, Extents]]:
    """Yield where a blob has its pieces in the NetCDF file, with their places in the blob, by the size of elements."""
    starts = np.cumsum(parts.counts, axis=1) - parts.counts
    step, inner, place = record_size(header), inner_sizes(header), 0
    map_of = {i: k - 1 for i, k in zip(says.variables, says.assigned, strict=True) if k}
    rows_of = {one.first + j: (k, j) for k, one in enumerate(says.maps) for j in range(len(MAP_VARIABLES))}
    for size, variables in groupby(enumerate(header.vars), key=lambda one: TYPES[one[1].type].size):
        offsets, lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for i, var in variables:
            first, nbytes = 0, inner[i] if blob == 0 else 0
            if i in rows_of:
                k, j = rows_of[i]
                first = blob * (inner[i] // header.dims[var.dims[0]].size)
                nbytes = size * (1 if j < 3 else int(parts.nreqs[k, blob]))
            elif i in map_of:
                k = map_of[i]
                width = inner[i] // says.maps[k].nelems
                first, nbytes = int(starts[k, blob]) * width, int(parts.counts[k, blob]) * width
            records = header.numrecs if is_record(header, var) else 1
            offsets.append(var.begin + first + step * np.arange(records, dtype=np.int64))
            lengths.append(np.full(records, nbytes, np.int64))
        length = np.concatenate(lengths)
        there = length > 0
        length = length[there]
        yield size, Extents(np.concatenate(offsets)[there], length, place + before(length))
        place += int(length.sum())


def _copy(source: Driver, target: Driver, pieces: Extents, size: int, system: System, fd: int) -> None:
    """Copy pieces of elements of one size; `fd` is the source."""
    for part in rounds(pieces, _BLOCK):
        if _never_written(system, fd, part):
            continue
        block = np.empty(part.nbytes, np.uint8)
        if source.read(Extents(part.offset, part.length, before(part.length)), block) < block.nbytes:
            raise FormatError(f"{source.path}: the file has become shorter", field="file_size")
        if NATIVE == "little" and size > 1:
            block.view(f"u{size}").byteswap(inplace=True)
        target.write(one_extent(int(part.place[0]), block.nbytes), block)


def _never_written(system: System, fd: int, part: Extents) -> bool:
    """Return whether a file has nothing but a hole from the first to the last of these pieces."""
    try:
        return system.next_data(fd, int(part.offset.min())) >= int((part.offset + part.length).max())
    except OSError as error:
        # No more data follow; or the file system knows of no holes.
        return error.errno == errno.ENXIO
