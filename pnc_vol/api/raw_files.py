"""The elements of an external dataset lie in raw files, one after another, in native form.

Knows: segments of raw files, the system. Does not know: markers, NetCDF.

Rules
-----
1. A write is in the raw file when it returns, and no part of a flush: another program may read it at once.
2. What lies behind the end of a raw file reads as zero, as in HDF5; a raw file that is not there is an error.
3. Which files may be named is what `linking` says of external links.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api import linking
from pnc_vol.api.ids import DatasetID
from pnc_vol.api.module import UNLIMITED
from pnc_vol.errors import DefinitionError, NotYetError, SourceError
from pnc_vol.extents.model import Int64, Runs, Selection, before, spread
from pnc_vol.extents.place import runs
from pnc_vol.format import numeric
from pnc_vol.mapping import encoding
from pnc_vol.mapping.composite import conform
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.elsewhere import Segment
from pnc_vol.system.full_io import read_at, write_all

__all__ = ["read", "segments_of", "shown", "write"]

Array = npt.NDArray[Any]
GAP = 64 << 10
"""Bytes between two runs that are read, too, rather than asked for by a call more."""
PIECE = 16 << 20
"""Bytes that are read at a time, at least one run."""


def segments_of(external: Any, nbytes: int) -> tuple[Segment, ...]:
    """Return what ``create_dataset(external=...)`` was given.

    Parameters
    ----------
    external : str, path-like, or iterable of (name, offset, size)
    nbytes : int, of all elements

    Raises
    ------
    TypeError, ValueError
        As h5py does.
    """
    if isinstance(external, (str, bytes, os.PathLike)):
        external = [(external, 0, UNLIMITED)]
    found: list[Segment] = []
    for entry in external:
        if isinstance(entry, (str, bytes)) or not isinstance(entry, Iterable):
            raise TypeError(f"external={external!r}: each entry should be a tuple of (name, offset, size)")
        name, offset, size = entry
        if not isinstance(offset, (int, np.integer)) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"external: offset and size of {name!r} should be integers, not {offset!r} and {size!r}")
        if offset < 0 or size < 0:
            raise DefinitionError(f"Negative external file offset or size: {(name, offset, size)}")
        if found and found[-1].nbytes is None:
            raise DefinitionError("Previous file size is unlimited: only the last entry of external= may be")
        file = os.fsdecode(name)
        if not file or "\0" in file:
            raise DefinitionError(f"external: no file can have the name {file!r}")
        found.append(Segment(file, int(offset), None if size == UNLIMITED else int(size)))
    room = sum(segment.nbytes or 0 for segment in found)
    if found and found[-1].nbytes is not None and room < nbytes:
        raise DefinitionError(f"external: its entries hold {room} bytes, and the dataset has {nbytes}")
    return tuple(found)


def shown(segments: tuple[Segment, ...]) -> list[tuple[str, int, int]]:
    """Return what ``ds.external`` gives."""
    return [(file, offset, UNLIMITED if nbytes is None else nbytes) for file, offset, nbytes in segments]


class _Files:
    """The raw files of a dataset as one row of bytes."""

    def __init__(self, oid: DatasetID, *, writing: bool) -> None:
        self.oid, self.writing = oid, writing
        self.node: Any = oid.node
        self.system = oid.handle.session.options.system
        self.known: dict[str, int] = {}
        self.closing = contextlib.ExitStack()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.close()

    def _descriptor(self, name: str) -> int:
        if name not in self.known:
            self.known[name] = fd = self._opened(name)
            self.closing.callback(self.system.close, fd)
        return self.known[name]

    def _opened(self, name: str) -> int:
        allowed = [
            path
            for path, real in linking.places(self.oid.handle, name, self.node.prefixes.get("efile_prefix", ""))
            if linking.may_open(real, self.oid.handle)
        ]
        if not allowed:
            why = linking.why_not(None, self.oid.handle)
            raise SourceError(f"{self.node.path!r}: its raw file {name!r} cannot be opened: {why}")
        flags = os.O_RDWR if self.writing else os.O_RDONLY
        for path in allowed:
            with contextlib.suppress(FileNotFoundError):
                return self.system.open(path, flags)
        if self.writing:
            return self.system.open(allowed[0], flags | os.O_CREAT)
        raise SourceError(f"{self.node.path!r}: there is no raw file {name!r}; it comes into being when it is written")

    def _where(self, at: int, nbytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the descriptor, offset, first byte of the memory, and bytes of each part of a range."""
        first = done = 0
        for file, offset, size in self.node.away.segments:
            skip = max(0, at + done - first)
            if done < nbytes and (size is None or skip < size):
                length = nbytes - done if size is None else min(nbytes - done, size - skip)
                yield self._descriptor(file), offset + skip, done, length
                done += length
            first += size or 0
        if done < nbytes:
            raise SourceError(f"{self.node.path!r}: its raw files end before its elements do")

    def read(self, at: int, memory: memoryview) -> None:
        """Fill memory, which holds zeros, with what is from a byte on."""
        for fd, offset, first, length in self._where(at, len(memory)):
            read_at(self.system, fd, memory[first : first + length], offset)

    def write(self, at: int, memory: memoryview) -> None:
        """Write memory from a byte on."""
        for fd, offset, first, length in self._where(at, len(memory)):
            write_all(self.system, fd, memory[first : first + length], offset)


def read(oid: DatasetID, selection: Selection) -> Array:
    """Return the elements of a selection.

    Raises
    ------
    SourceError
        A raw file is not there, or may not be read.
    """
    node: Any = oid.node
    dtype = node.element.dtype
    out = np.zeros(prod(selection.result_shape), dtype)
    if out.size and node.away.segments:
        found = runs(selection, record=False)
        with _Files(oid, writing=False) as files:
            _read_runs(files, found, dtype, out)
    return out.reshape(selection.result_shape)


def _read_runs(files: _Files, found: Runs, dtype: np.dtype[Any], out: Array) -> None:
    width = dtype.itemsize
    places = before(found.length)
    order = np.argsort(found.start, kind="stable")
    start, length, places = found.start[order], found.length[order], places[order]
    ends = np.maximum.accumulate(start + length)
    apart = np.flatnonzero((start[1:] - ends[:-1]) * width > GAP) + 1
    for low, high in zip([0, *apart.tolist()], [*apart.tolist(), start.size], strict=True):
        at = low
        while at < high:
            # As many runs as a piece holds.
            until = max(at + 1, int(np.searchsorted(ends[at:high], start[at] + PIECE // width, "right")) + at)
            _read_piece(files, start[at:until], length[at:until], places[at:until], dtype, out)
            at = until


def _read_piece(files: _Files, start: Int64, length: Int64, places: Int64, dtype: np.dtype[Any], out: Array) -> None:
    first, width = int(start[0]), dtype.itemsize
    if start.size == 1:
        into = out[int(places[0]) : int(places[0]) + int(length[0])]
        files.read(first * width, into.view(np.uint8).data)
        return
    block = np.zeros(int((start + length).max()) - first, dtype)
    files.read(first * width, block.view(np.uint8).data)
    owner, step = spread(length)
    out[places[owner] + step] = block[start[owner] - first + step]


def write(oid: DatasetID, selection: Selection, values: Any, fields: tuple[str, ...]) -> None:
    """Write the elements of a selection, at once.

    Raises
    ------
    NotYetError
        Single fields.
    SourceError
        A raw file may not be written.
    """
    node: Any = oid.node
    if fields:
        raise NotYetError(f"{node.path!r} is in raw files: single fields cannot be written; write whole elements")
    array = in_memory_form(values, node.element.dtype, oid.handle.session.options.on_overflow, node.name)
    array = np.broadcast_to(array.reshape(selection.broadcast(array.shape)), selection.result_shape)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    width, found = node.element.dtype.itemsize, runs(selection, record=False)
    with _Files(oid, writing=True) as files:
        at = 0
        for start, length in zip(found.start.tolist(), found.length.tolist(), strict=True):
            files.write(start * width, flat[at : at + length * width].data)
            at += length * width


def in_memory_form(values: Any, dtype: np.dtype[Any], on_overflow: Any, name: str) -> Array:
    """Return values as the machine has them, of exactly that type.

    Raises
    ------
    ConversionError
        No way from the values to the type.
    RangeError
        A number does not fit.
    """
    if dtype.names is not None:
        return conform(values, dtype, on_overflow)
    element = element_for(dtype)
    if element.kind in ("opaque", "longdouble", "datetime"):
        return np.asarray(values, dtype=np.dtype(dtype.str))
    coded = encoding.encode(values, element, on_overflow)
    if element.is_string or element.kind in ("bool", "float16", "complex"):
        return np.asarray(coded).astype(dtype)
    raw = np.empty(coded.size * element.itemsize, np.uint8)
    numeric.to_file(coded, element.file_dtype, raw, on_overflow=on_overflow, what=name)
    return raw.view(element.file_dtype).astype(dtype).reshape(coded.shape)
