"""The values of datasets are copied from one open file into another, block by block.

Knows: h5py's objects, which both files have, and its low-level calls; references. Does not know: how the target was
defined.

Rules
-----
1. Memory does not grow with the datasets: values are copied in blocks.
2. Only failures to read or write values (`OSError`) end a copy; a reference that leads to nothing is noted, and so is a
   dataset whose values are in other files and cannot be read there.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.copying import refers
from pnc_vol.convert import inspect_hdf5
from pnc_vol.convert.references import References, items_of
from pnc_vol.convert.report import Ledger
from pnc_vol.extents.blocks import blocks
from pnc_vol.file.post import write_stored
from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.dtypes import Dtype, check_string_dtype, metadata_of
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at

__all__ = ["CopiedValues", "create_attribute"]

Bytes = npt.NDArray[np.uint8]

STRING = 16
"""Bytes of a string of varying length in an HDF5 file, besides its characters."""

LEAST_STORED = 1 << 20
"""Bytes of a dataset from which on its numbers are copied from file to file."""

STORED = 32 << 20
"""Bytes of numbers that are copied from file to file between two reports of progress."""

NUMBERS = 3 << 20
"""Bytes of numbers that are copied at a time where there are no chunks: they stay in a cache."""


class CopiedValues:
    """Copies the values of datasets that both files have under one path.

    Parameters
    ----------
    source, target : File
        Open files, of h5py or of ours.
    ledger : Ledger
        Gets the bytes that were copied, and lost references.
    to_netcdf : bool
        The target is ours, the source is h5py's; else the other way round.
    block_bytes : int
        Bytes of values in memory at once.
    progress : callable or None
        ``progress(done, total, path)`` in bytes.
    widest : callable, optional
        ``widest(path, nbytes, held)`` may refuse strings that take `nbytes` in the target and `held` in the source.

    Attributes
    ----------
    references : References, translates those in values.
    places : dict of str to str, the path in the target of each dataset that was defined; the caller notes them.
    total : int, bytes of all values that will be copied; the caller counts them.
    widths : dict of str to int, bytes of the longest string of datasets of strings of varying length.
    room : uint8[...], for blocks of numbers.
    lost : set of str, datasets whose values cannot be read where they are.
    """

    def __init__(
        self,
        source: Any,
        target: Any,
        ledger: Ledger,
        *,
        to_netcdf: bool,
        block_bytes: int,
        progress: Callable[[int, int, str], None] | None,
        widest: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.source, self.target, self.ledger = source, target, ledger
        self.references = References(source, target, to_netcdf=to_netcdf)
        self.to_netcdf = to_netcdf
        self.block_bytes = block_bytes
        self.progress = progress
        self.widest = widest
        self.places: dict[str, str] = {}
        self.total = self.done = 0
        self.widths: dict[str, int] = {}
        self.room = np.empty(0, np.uint8)
        self.lost: set[str] = set()

    def pair(self, path: str) -> tuple[Any, Any]:
        """Return a dataset of the source, and the one of the target that was made for it."""
        return self.source[path], self.target[self.places[path]]

    def place(self, paths: list[str]) -> None:
        """Give all variables of a NetCDF target their places before any value is there: no value moves or waits.

        What is copied whole is not filled either.
        """
        whole, ragged = [], False
        for path in paths:
            source, target = self.pair(path)
            ragged = ragged or bool(target.id.node.parts)
            if _varies(source) and source.size:
                with self._unless_lost(path, source):
                    self.widths[path] = self.widest_first(source, target)
            if not inspect_hdf5.is_elsewhere(source):
                whole.append(target.id.node.uid)
        if not ragged:
            # Rows of varying length have no places before they are known.
            self.target.id.handle.session.posted.write_whole_of(whole)
            self.target.flush()

    def copy(self, path: str) -> None:
        """Copy the values of one dataset."""
        source, target = self.pair(path)
        if source.shape is not None and 0 not in source.shape and path not in self.lost:
            with self._unless_lost(path, source):
                self._copy(path, source, target)

    @contextmanager
    def _unless_lost(self, path: str, source: Any) -> Iterator[None]:
        """Note the values of a dataset as lost if they are in other files, and reading them fails."""
        try:
            yield
        except UnreadableError as error:
            if not inspect_hdf5.is_elsewhere(source):
                raise
            self.lost.add(path)
            self.ledger.lose(path, "values", f"{error.strerror}; the fill value stands for what was not read")

    def _copy(self, path: str, source: Any, target: Any) -> None:
        """Copy values block by block."""
        shape, most, chunks = source.shape, self.block_bytes, self.chunks(source, target)
        plain = source.dtype.kind in "iuf" and shape != ()
        if plain and chunks is None and self.to_netcdf and self.as_stored(path, source, target):
            return
        if path in self.widths:
            itemsize = inspect_hdf5.STRING_BYTES + 2 * self.widths[path]
        else:
            itemsize = _bytes_in_memory(source)
        if plain and chunks is None:
            most = min(most, NUMBERS)
        for block in blocks(shape, itemsize, most, chunks):
            data = self.numbers(source, block) if plain else _read(source, block or ())
            self.put(path, source, target, block, data)
            self.copied(path, np.asarray(data).size * source.dtype.itemsize)

    def copied(self, path: str, nbytes: int) -> None:
        """Count what was copied."""
        self.ledger.bytes += nbytes
        self.done += nbytes
        if self.progress is not None:
            self.progress(self.done, self.total, path)

    def as_stored(self, path: str, source: Any, target: Any) -> bool:
        """Copy numbers that an HDF5 file has in one piece, from file to file; False if that cannot be done.

        Each block is read, turned round and written while it is in the cache, in half of the CPU time of a read by
        h5py and a second pass that converts; the HDF5 library is not asked for the values. Less than
        `LEAST_STORED` is posted as usual: a write before the flush gives the variables a place, and then those that
        have none yet (strings) come behind them in the header, and in the order of creation.
        """
        node, session = target.id.node, target.id.check()
        wanted = node.element.file_dtype
        same = node.element.kind == "number" and wanted.newbyteorder("=") == source.dtype.newbyteorder("=")
        stored = inspect_hdf5.stored_whole(source) if same and source.nbytes >= LEAST_STORED else None
        if stored is None:
            return False
        fd, offset = stored
        itemsize, swaps = wanted.itemsize, wanted != source.dtype
        step = max(1, STORED // itemsize)
        for first in range(0, source.size, step):
            count, begin = min(step, source.size - first), offset + first * itemsize

            def read(memory: Bytes, behind: int, begin: int = begin) -> None:
                with _named(source):
                    if read_at(REAL, fd, memory.data, begin + behind) < memory.nbytes:
                        raise OSError(errno.EIO, "the file ends before the values")
                if swaps:
                    # in two thirds of the time of `byteswap`
                    np.copyto(memory.view(wanted), memory.view(source.dtype))

            with session.lock:
                if not write_stored(session, node, first, count, read):
                    return False
            self.copied(path, count * itemsize)
        return True

    def chunks(self, source: Any, target: Any) -> Any:
        """Return the shape of the chunks of whichever is HDF5; None if it has none."""
        return getattr(source if self.to_netcdf else target, "chunks", None)

    def numbers(self, source: Any, block: tuple[slice, ...]) -> Any:
        """Return a block of numbers, in memory that the next block has again: new memory costs as much as the copy into
        it."""
        shape, dtype = tuple(axis.stop - axis.start for axis in block), source.dtype
        nbytes = prod(shape) * dtype.itemsize
        if nbytes > self.room.nbytes:
            self.room = np.empty(nbytes, np.uint8)
        data = self.room[:nbytes].view(dtype).reshape(shape)
        with _named(source):
            source.read_direct(data, block)
        return data

    def put(self, path: str, source: Any, target: Any, block: tuple[slice, ...], data: Any) -> None:
        """Write a block of values of the source to the target."""
        if refers(source.dtype):
            with self.noted(path):
                data = self.references.values(data, source.dtype, tuple(axis.stop - axis.start for axis in block))
        if self.to_netcdf:
            target[block or ()] = data
            return
        if _varies(source):
            data = self.without_nuls(path, data)
        _write_block(target, block, data)

    def without_nuls(self, path: str, data: Any) -> Any:
        """Return strings up to their first NUL, at which HDF5's strings of varying length end; what follows is lost."""
        texts = np.asarray(data, object)
        cut = [_bytes(text).partition(b"\0")[0] for text in texts.flat]
        count = sum(len(_bytes(text)) > len(head) for text, head in zip(texts.flat, cut, strict=True))
        if not count:
            return data
        what = f"{count} string{'s' if count > 1 else ''} from the first NUL on"
        self.ledger.lose(path, what, "HDF5 has no strings of varying length with NULs")
        made = np.empty(len(cut), object)
        made[:] = cut
        return made.reshape(texts.shape)

    def widest_first(self, source: Any, target: Any) -> int:
        """Write the longest string before all others: a wider string later would lay the variable out anew.

        Returns
        -------
        int
            Its bytes.
        """
        longest, where, held = 0, (), 0
        itemsize, chunks = _bytes_in_memory(source), self.chunks(source, target)
        for block in blocks(source.shape, itemsize, self.block_bytes, chunks):
            texts = np.asarray(_read(source, block or ()), dtype=object)
            lengths = np.fromiter((len(_bytes(text)) for text in texts.flat), np.int64, texts.size)
            held += int(lengths.sum()) + STRING * lengths.size
            if lengths.size and lengths.max() > longest:
                longest = int(lengths.max())
                at = np.unravel_index(int(lengths.argmax()), texts.shape)
                where = tuple(int(i) + axis.start for i, axis in zip(at, block, strict=True))
        if self.widest is not None:
            self.widest(source.name, longest * source.size, held)
        if longest:
            target[where or ()] = source[where or ()]
        return longest

    @contextmanager
    def noted(self, where: str) -> Iterator[None]:
        """Note as lost the references translated in the block that lead to nothing in the target."""
        before = self.references.missing
        yield
        if count := self.references.missing - before:
            what = f"{count} reference{'s' if count > 1 else ''}"
            self.ledger.lose(where, what, "the target has not what they lead to; they are null")


def _varies(source: Any) -> bool:
    """Return whether a dataset is of strings of varying length."""
    return source.dtype.kind == "O" and check_string_dtype(source.dtype) is not None


def _read(source: Any, selection: tuple[slice, ...]) -> Any:
    """Return a block of values."""
    with _named(source):
        return inspect_hdf5.values(source, selection)


def _bytes_in_memory(source: Any) -> int:
    """Return the number of bytes that an element takes; see `inspect_hdf5.bytes_in_memory`."""
    with _named(source):
        return inspect_hdf5.bytes_in_memory(source)


class UnreadableError(OSError):
    """Values of a dataset of the source cannot be read."""


@contextmanager
def _named(source: Any) -> Iterator[None]:
    """Give what fails inside the dataset's name, which the libraries' own errors lack."""
    try:
        yield
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        code = getattr(error, "errno", None) or errno.EIO
        raise UnreadableError(code, f"{source.name} cannot be read: {error}") from error


def _bytes(text: Any) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


# ------------------------------------------------------------------------- values written to HDF5 as they are
#
# h5py guesses what an array of arrays is: rows of equal length become one array with an axis more, which it then
# refuses. Arrays of varying length and references are therefore written with the type and the shape that they have;
# everything else goes through h5py's own assignment.


def _write_block(dataset: Any, selection: tuple[slice, ...], values: Any) -> None:
    """Write a block of values to a dataset.

    Parameters
    ----------
    dataset : h5py.Dataset
    selection : tuple of slice, one for each axis, with both ends and without steps
    values : array of the block's shape and the dataset's type
    """
    if not _of_objects(dataset.dtype):
        dataset[selection] = values
        return
    import h5py

    shape = tuple(axis.stop - axis.start for axis in selection)
    space = dataset.id.get_space()
    memory = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    if shape:
        space.select_hyperslab(tuple(axis.start for axis in selection), shape)
    array = _exact(values, dataset.dtype, shape)
    dataset.id.write(memory, space, array, h5py.h5t.py_create(dataset.dtype))


def create_attribute(obj: Any, name: str, value: Any, shape: tuple[int, ...], dtype: Dtype) -> None:
    """Give an object of h5py's an attribute.

    Parameters
    ----------
    value : array-like of `shape` and `dtype`
    """
    if not _of_objects(dtype):
        obj.attrs.create(name, value, shape=shape, dtype=dtype)
        return
    import h5py

    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    made = h5py.h5a.create(
        obj.id, name.encode("utf-8", "surrogateescape"), h5py.h5t.py_create(dtype, logical=True), space
    )
    made.write(_exact(value, dtype, shape), mtype=h5py.h5t.py_create(dtype))


def _of_objects(dtype: Dtype) -> bool:
    """Return whether values of a type are or hold arrays of varying length, or references."""
    if "ref" in metadata_of(dtype) or ragged_base(dtype) is not None:
        return True
    if dtype.names is not None:
        return any(_of_objects(dtype[name]) for name in dtype.names)
    return dtype.subdtype is not None and _of_objects(dtype.subdtype[0])


def _exact(values: Any, dtype: Dtype, shape: tuple[int, ...]) -> Any:
    """Return the values as a contiguous array of exactly this type and shape."""
    if dtype.subdtype is not None:
        return _exact(values, dtype.subdtype[0], shape + dtype.subdtype[1])
    if dtype.names is not None:
        array = np.asarray(values)
        fields = np.empty(shape, dtype)
        for name in dtype.names:
            np.copyto(
                fields[name],
                _exact(array[name].reshape(shape + dtype[name].shape), dtype[name], shape),
                casting="unsafe",
            )
        return fields
    if dtype.kind != "O":
        return np.ascontiguousarray(np.asarray(values, dtype).reshape(shape))
    base = ragged_base(dtype)
    made = np.empty(int(np.prod(shape, dtype=np.int64)), dtype)
    for at, item in enumerate(items_of(values, shape)):
        made[at] = item if base is None else _row(item, base)
    return made.reshape(shape)


def _row(item: Any, base: Dtype) -> Any:
    if item is None or np.ndim(item) == 0:
        return np.empty(0, base)
    return _exact(item, base, (len(item),))
