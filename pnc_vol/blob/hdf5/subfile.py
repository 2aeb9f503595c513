"""`Hdf5Subfile` describes one subfile of HDF5 blobs: its container, header, parts, and the driver of its elements.

`wrap` writes that form around the blobs of the NetCDF file that a subfile was until the close.

Knows: the other modules of this package, the grammar of CDF-5, drivers, the ranks that share a subfile. Does not know:
canonical elements, sets, names, sessions.

Rules
-----
1. `Hdf5Form` says where the variables of a set are in these files, as `layout.NetcdfForm` does of NetCDF files.
2. The bytes of ``/header_blob`` are those of a CDF-5 header, with all numbers and all attribute values in the byte
   order of the machine that wrote them. The order is stored nowhere: the tag behind the number of records tells it.
3. Every begin is 0, because no element has a place in a NetCDF file. Begins that are read are not looked at.
4. The header fills the dataset: bytes that are left over are an error, since a list is then shorter than it was.
5. Each rank copies its own blob: the NetCDF file has it in a piece for each variable and record, the HDF5 file in one.
   One rank makes the HDF5 file; its size and all places follow from the counts of the maps. What was never written is
   not read: a file that is larger than the disk may have a few values.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from pnc_vol.blob.hdf5.container import HEADER, find, make
from pnc_vol.blob.hdf5.data_blob import BlobParts, PartsReader, SwappedDriver
from pnc_vol.blob.header import Described, described
from pnc_vol.blob.layout import read_map_variable
from pnc_vol.blob.maps import MAP_VARIABLES, SubfileMap, from_content
from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.drivers.block_copy import copy_blocks
from pnc_vol.errors import CorruptHeaderError, FormatError, LimitError, NotCDFError
from pnc_vol.extents.model import Extents, Int64, before, one_extent
from pnc_vol.format.decode import Reader
from pnc_vol.format.encode import with_zero_begins
from pnc_vol.format.limits import MAX_HEADER_BYTES, MAX_NAME
from pnc_vol.format.model import (
    ABSENT,
    ATTRIBUTE,
    DIMENSION,
    LITTLE,
    TYPES,
    VARIABLE,
    WIDTHS,
    Attr,
    Header,
    Order,
    inner_sizes,
    is_record,
    record_size,
)
from pnc_vol.layout.base import SHIFT
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.system import System

__all__ = [
    "NATIVE",
    "Hdf5Form",
    "Hdf5Subfile",
    "Order",
    "decode_header",
    "encode_header",
    "order_of",
    "read_subfile",
    "wrap",
]


NATIVE: Order = sys.byteorder
"""The byte order of this machine, in which blobs are written."""

_FIRST_TAG = 12
"""The byte where the tag of the list of dimensions is, behind the magic and the number of records."""


def encode_header(header: Header, order: Order = NATIVE) -> bytes:
    """Return the content of ``/header_blob``; its length is a multiple of 4.

    Parameters
    ----------
    header : Header, of the version 5; its begins are not looked at.
    order : str, ``"big"`` or ``"little"``.

    Raises
    ------
    DefinitionError
        Something that CDF-5 cannot hold.

    Examples
    --------
    >>> encode_header(Header(5, 2), "little")[:8].hex()
    '4344460502000000'
    """
    return with_zero_begins(_with_swapped_values(header) if order == "little" else header, order)


def decode_header(data: bytes, where: str = "header_blob", *, offset: int = 0, most: int = MAX_HEADER_BYTES) -> Header:
    """Return the header that the content of ``/header_blob`` describes; attribute values are big-endian, as in any
    header.

    Parameters
    ----------
    data : bytes, all of the dataset.
    where : str, the file and the dataset, for messages.
    offset : int, the byte of the file where the dataset begins, for messages.

    Raises
    ------
    FormatError
        The bytes are not a header; ``offset`` counts from the start of the file.

    Examples
    --------
    >>> decode_header(encode_header(Header(5, 2))).numrecs
    2
    """
    try:
        order = order_of(data)
        reader = Reader(data, len(data), most, MAX_NAME, LITTLE if order == "little" else WIDTHS[5])
        header, _, nbytes, _ = reader.header()
        if header.numrecs < 0:
            raise CorruptHeaderError("numrecs at byte 4 is STREAMING: it has to be a number", offset=4, field="numrecs")
        if nbytes != len(data):
            raise CorruptHeaderError(
                f"The header ends at byte {nbytes}, and the dataset has {len(data)} bytes: a list of the header is "
                "shorter than it was, or the dataset is not a header",
                offset=nbytes,
                field="header_blob",
                value=len(data),
            )
    except FormatError as error:
        at = offset + (error.offset or 0)
        raise type(error)(
            f"{where}, which begins at byte {offset} of the file: {error}",
            offset=at,
            field=error.field,
            value=error.value,
        ) from None
    header = header.replaced(vars=tuple(var._replace(begin=0) for var in header.vars))
    return _with_swapped_values(header) if order == "little" else header


def order_of(data: bytes) -> Order:
    """Return the byte order of the content of ``/header_blob``.

    Raises
    ------
    FormatError
        It is not the beginning of a CDF-5 header.

    Examples
    --------
    >>> order_of(encode_header(Header(5, 1), "little")), order_of(encode_header(Header(5, 1), "big"))
    ('little', 'big')
    """
    if data[:4] != b"CDF\5":
        raise NotCDFError(
            f"It begins with {data[:4]!r}, and not with the header of a CDF-5 file",
            offset=0,
            field="magic",
            value=data[:4],
        )
    # Without dimensions the tag of the next list shows it; a header without any list has only its number of records.
    for at in range(_FIRST_TAG, min(len(data) - 3, _FIRST_TAG + 3 * 12), 12):
        tag = data[at : at + 4]
        for order in (NATIVE, "little" if NATIVE == "big" else "big"):
            found = int.from_bytes(tag, order)
            if found in (DIMENSION, ATTRIBUTE, VARIABLE):
                return order
        if found != ABSENT:
            raise CorruptHeaderError(
                f"dim.tag at byte {at} is {tag!r}, which is the tag of a list in neither byte order",
                offset=at,
                field="dim.tag",
                value=tag,
            )
    little, big = (int.from_bytes(data[4:12], order) for order in ("little", "big"))
    return NATIVE if little == big else "little" if little < big else "big"


def _with_swapped_values(header: Header) -> Header:
    """Return the header with the bytes of each attribute value reversed."""
    made: dict[int, tuple[Attr, ...]] = {}
    # many attributes share one value: it is swapped once
    values: dict[tuple[int, bytes], bytes] = {}

    def turned(attr: Attr) -> Attr:
        size = TYPES[attr.type].size
        if size == 1:
            return attr
        found = values.get((size, attr.data))
        if found is None:
            found = values[size, attr.data] = np.frombuffer(attr.data, f"u{size}").byteswap().tobytes()
        return Attr(attr.name, attr.type, attr.nelems, found)

    def swapped(attrs: tuple[Attr, ...]) -> tuple[Attr, ...]:
        # similar variables share one tuple of attributes
        found = made.get(id(attrs))
        if found is None:
            found = made[id(attrs)] = tuple(map(turned, attrs))
        return found

    variables = tuple(var._replace(attrs=swapped(var.attrs)) if var.attrs else var for var in header.vars)
    found = header.replaced(attrs=swapped(header.attrs), vars=variables)
    if header.facts.within_limits:
        found.facts.within_limits = True
    return found


class Hdf5Subfile(NamedTuple):
    """A subfile.

    path : str, what it is called in messages.
    begin : int, the byte where its ``/data_blob`` begins.
    order : str, the byte order of the file.
    header : Header, of the subfile, with begins that are 0.
    says : Described, what the header says.
    parts : BlobParts, where parts of variables begin in ``/data_blob``.
    """

    path: str
    begin: int
    order: Order
    header: Header
    says: Described
    parts: BlobParts

    def value(self) -> tuple[Any, ...]:
        """Return what another rank needs to know of it."""
        parts, content = self.parts, encode_header(self.header, self.order)
        return self.path, self.begin, parts.counts.tolist(), parts.nreqs.tolist(), content

    @classmethod
    def of_value(cls, value: Sequence[Any]) -> Hdf5Subfile:
        """Return the subfile that `value` describes."""
        path, begin, counts, nreqs, content = value
        header = decode_header(content, path, most=len(content))
        says = described(header, path)
        shape = (len(says.maps), says.nblobs)
        elements, runs = (np.array(rows, np.int64).reshape(shape) for rows in (counts, nreqs))
        parts = BlobParts(header, says, elements, runs, path)
        return cls(path, begin, order_of(content), header, says, parts)

    def begins(self, variable: int) -> Int64:
        """Return int64[nblobs]: the byte of the file where a variable of the subfile's header begins in each blob."""
        return self.parts.begins(variable) + self.begin

    def over(self, driver: Driver) -> Driver:
        """Return the driver of the file with elements in big-endian order; it closes the one that is given."""
        return driver if self.order == "big" else SwappedDriver(driver, *self.parts.elements(self.begin))

    def read_map(self, driver: Driver, k: int) -> SubfileMap:
        """Read its part of map `k`, from 0, through a driver that `over` gave.

        Raises
        ------
        FormatError
            Its runs contradict the counts, or lie outside of the dimensions.
        OSError
        """
        one, counts, nreqs = self.says.maps[k], self.parts.counts[k], self.parts.nreqs[k]
        first = k * len(MAP_VARIABLES)
        begins, name = [self.begins(first + j) for j in range(len(MAP_VARIABLES))], f"{self.path}: D{k + 1}"
        rows: list[list[Int64]] = []
        for j in (3, 4):
            dtype = TYPES[self.header.vars[first + j].type].dtype
            values, place = np.zeros(int(nreqs.sum()), dtype), before(nreqs)
            extents = Extents(begins[j], nreqs * dtype.itemsize, place * dtype.itemsize)
            if driver.read(extents, values.view(np.uint8)) != values.nbytes:
                field = f"D{k + 1}.{MAP_VARIABLES[j]}"
                text = f"{self.path}: {field} could not be read whole: the file has become shorter"
                raise FormatError(text, field=field)
            rows.append(np.split(values, place[1:]))
        return from_content(one, (nreqs, before(counts), counts, *rows), name, begins)


class Hdf5Form:
    """See `layout.SubfilesForm`: each blob is in one piece in the file, so each has a part of a variable.

    Parameters
    ----------
    subfiles : sequence of Hdf5Subfile
    """

    def __init__(self, subfiles: Sequence[Hdf5Subfile]) -> None:
        self.subfiles = list(subfiles)
        self.headers, self.numbers = [one.header for one in subfiles], subfiles[0].says.variables

    def addresses(self, i: int) -> tuple[Int64, Int64]:
        at = [(s << SHIFT, one, one.says.variables[i]) for s, one in enumerate(self.subfiles)]
        begins, steps = ([one.begins(v) + base for base, one, v in at], [one.parts.record_sizes(v) for _, one, v in at])
        return np.concatenate(begins), np.concatenate(steps)

    def first(self, variable: int) -> tuple[int, int]:
        one = self.subfiles[0]
        return int(one.begins(variable)[0]), int(one.parts.record_sizes(variable)[0])

    def maps(self, k: int, dims: tuple[int, ...], file: Callable[[int], Driver]) -> Iterator[tuple[int, SubfileMap]]:
        part = 0
        for s, one in enumerate(self.subfiles):
            for blob, runs in enumerate(one.read_map(file(s), k - 1).blobs):
                yield part, SubfileMap(dims, (), (runs,), f"subfile {s:04d}, blob {blob}")
                part += 1

    def most_runs(self, k: int) -> int:
        return sum(int(one.parts.nreqs[k - 1].sum()) for one in self.subfiles)

    def over(self, number: int, driver: Driver) -> Driver:
        return self.subfiles[number].over(driver)


def read_subfile(driver: Driver, path: str) -> Hdf5Subfile:
    """Read everything in a subfile that is needed to find its elements.

    Parameters
    ----------
    driver : Driver, of the whole file.
    path : str, for messages.

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
    if stored.nbytes > MAX_HEADER_BYTES:
        raise LimitError(
            f"{where} has {stored.nbytes} bytes, more than the {MAX_HEADER_BYTES} that are read of a header",
            offset=stored.offset,
            field=HEADER,
            value=stored.nbytes,
        )
    content = np.zeros(stored.nbytes, np.uint8)
    if stored.nbytes and driver.read_one(content, stored.offset) != stored.nbytes:
        raise FormatError(f"{where} could not be read whole: the file has become shorter", field=HEADER)
    data = content.tobytes()
    header = decode_header(data, where, offset=stored.offset)
    order = order_of(data)
    says = described(header, path)
    parts = PartsReader(driver, container.data, header, says, order, path).parts()
    return Hdf5Subfile(path, container.data.offset, order, header, says, parts)


# --------------------------------------------------------------------------------------------------------- writing

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
    rows = len(says.maps) * len(MAP_VARIABLES)
    counts, nreqs = (
        np.array(
            [read_map_variable(source, header, var, work) for var in header.vars[j : rows : len(MAP_VARIABLES)]],
            np.int64,
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
    for size, variables in groupby(enumerate(header.vars), key=lambda one: TYPES[one[1].type].size):
        offsets, lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for i, var in variables:
            records = max(1, header.numrecs) if is_record(header, var) else 1
            first, nbytes = 0, int(parts.nbytes_of(i)[blob]) // records
            if i < len(says.maps) * len(MAP_VARIABLES):
                first = blob * (inner[i] // says.nblobs)
            elif i in map_of:
                k = map_of[i]
                first = int(starts[k, blob]) * (inner[i] // says.maps[k].nelems)
            offsets.append(var.begin + first + step * np.arange(records, dtype=np.int64))
            lengths.append(np.full(records, nbytes, np.int64))
        length = np.concatenate(lengths)
        there = length > 0
        length = length[there]
        yield size, Extents(np.concatenate(offsets)[there], length, place + before(length))
        place += int(length.sum())


def _copy(source: Driver, target: Driver, pieces: Extents, size: int, system: System, fd: int) -> None:
    """Copy pieces of elements of one size; `fd` is the source."""

    def read(extents: Extents, memory: Memory) -> int:
        got = source.read(extents, memory)
        if NATIVE == "little":
            memory.view(f"u{size}").byteswap(inplace=True)
        return got

    def write(extents: Extents, memory: Memory) -> None:
        # the places of pieces follow each other
        target.write(one_extent(int(extents.offset[0]), memory.nbytes), memory)

    def too_short() -> FormatError:
        return FormatError(f"{source.path}: the file has become shorter", field="file_size")

    skips = partial(_never_written, system, fd)
    copy_blocks(read, write, pieces, by_kernel=skips, block=_BLOCK, too_short=too_short)


def _never_written(system: System, fd: int, part: Extents) -> bool:
    """Return whether a file has nothing but a hole from the first to the last of these pieces."""
    try:
        return system.next_data(fd, int(part.offset.min())) >= int((part.offset + part.length).max())
    except OSError as error:
        # No more data follow; or the file system knows of no holes.
        return error.errno == errno.ENXIO
