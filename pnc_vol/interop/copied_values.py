"""The values of datasets copied from one open file into another, block by block.

Knows: h5py's objects, which both files have; references. Does not know: how the target was defined.

Rules
-----
1. Memory does not grow with the datasets: values are copied in blocks.
2. Only failures to read or write values (`OSError`) end a copy; a reference that leads to nothing is noted.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pnc_vol.extents.blocks import blocks
from pnc_vol.interop import inspect_hdf5, writing_hdf5
from pnc_vol.interop.references import References
from pnc_vol.interop.report import Ledger
from pnc_vol.mapping.special import check_string_dtype

__all__ = ["CopiedValues"]

STRING = 16
"""Bytes of a string of varying length in an HDF5 file, besides its characters."""


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
    total : int, bytes of all values that will be copied; the caller counts them.
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
        self.total = self.done = 0

    def copy(self, path: str) -> None:
        """Copy the values of one dataset, block by block."""
        source, target = self.source[path], self.target[path]
        shape = source.shape
        if shape is None or 0 in shape:
            return
        varying = check_string_dtype(source.dtype) is not None and source.dtype.kind == "O"
        itemsize = inspect_hdf5.bytes_in_memory(source)
        chunks = getattr(source if self.to_netcdf else target, "chunks", None)
        if varying and self.to_netcdf:
            itemsize = inspect_hdf5.STRING_BYTES + 2 * self.widest_first(source, target, itemsize, chunks)
        for block in blocks(shape, itemsize, self.block_bytes, chunks):
            data = _read(source, block or ())
            self.put(path, source, target, block, data)
            nbytes = np.asarray(data).size * source.dtype.itemsize
            self.ledger.bytes += nbytes
            self.done += nbytes
            if self.progress is not None:
                self.progress(self.done, self.total, path)

    def put(self, path: str, source: Any, target: Any, block: tuple[slice, ...], data: Any) -> None:
        """Write a block of values of the source to the target."""
        if inspect_hdf5.refers(source.dtype):
            with self.noted(path):
                data = self.references.values(data, source.dtype, tuple(axis.stop - axis.start for axis in block))
        if self.to_netcdf:
            target[block or ()] = data
        else:
            writing_hdf5.write_block(target, block, data)

    def widest_first(self, source: Any, target: Any, itemsize: int, chunks: Any) -> int:
        """Write the longest string before all others: a wider string later would lay the variable out anew.

        Returns
        -------
        int
            Its bytes.
        """
        longest, where, held = 0, (), 0
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


def _read(source: Any, selection: tuple[slice, ...]) -> Any:
    """A block of values.

    Raises
    ------
    OSError
        With the dataset's name, which the libraries' own errors lack.
    """
    try:
        return source[selection]
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise OSError(getattr(error, "errno", None) or errno.EIO, f"{source.name} cannot be read: {error}") from error


def _bytes(text: Any) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
