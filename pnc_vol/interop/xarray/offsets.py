"""Blocks that other processes write into a file by their offsets.

Knows: places of variables, bytes of values, drivers. Does not know: headers, xarray, dask.

Rules
-----
1. The header was placed before: a target has all that is needed to write a block of one variable, and can be pickled.
2. A block is whole in the file, or it is written again: the same bytes at the same offsets, so that a process that died
   on the way, or that wrote a block twice, does no harm. No process writes the header.
3. Records count when all blocks are written: `commit` is the last act. Until then the file has the records that it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pnc_vol.api.dataset import Dataset
from pnc_vol.api.file import File
from pnc_vol.drivers.base import OpenContext
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.errors import NotYetError
from pnc_vol.extents.merge import coalesce
from pnc_vol.extents.place import runs
from pnc_vol.extents.selection import select
from pnc_vol.format.convert import to_file
from pnc_vol.layout.places import Place
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.encoding import encode

__all__ = ["Block", "OffsetTarget", "commit", "target_of"]


@dataclass(frozen=True, slots=True)
class Block:
    """Where one variable lies in a file, and what it holds.

    path : str
    place : Place
    element : Element
    shape : tuple of int, that it will have.
    record : bool
    """

    path: str
    place: Place
    element: Element
    shape: tuple[int, ...]
    record: bool

    def write(self, key: Any, values: Any) -> None:
        """Write values into the file, which nobody else needs to have open.

        Raises
        ------
        OSError
            They could not be written.
        ValueError
            The selection is outside, or a value does not fit the type.
        """
        element = self.element
        selection = select(self.shape, key)
        coded = np.broadcast_to(encode(values, element), selection.result_shape + element.axes)
        memory = np.empty(selection.nelems * element.itemsize, np.uint8)
        to_file(coded, element.file_dtype, memory, what="values")
        extents = coalesce(self.place.extents(runs(selection, record=self.record)))
        driver = PosixDriver.open(self.path, OpenContext())
        try:
            driver.write(extents, memory)
        finally:
            driver.close()


@dataclass(frozen=True)
class OffsetTarget:
    """What dask stores the blocks of an array in: ``target[region] = values``.

    block : Block
    chars : bool, values are characters whose last axis is the length of the strings.
    """

    block: Block
    chars: bool = False

    def __setitem__(self, key: Any, values: Any) -> None:
        self.block.write(*(joined(key, values) if self.chars else (key, np.asarray(values))))


def joined(key: tuple[Any, ...], values: Any) -> tuple[Any, Any]:
    """Characters along the last axis as strings, and the key without that axis."""
    chars = np.ascontiguousarray(values)
    return key[:-1], chars.view(f"S{chars.shape[-1]}").reshape(chars.shape[:-1])


def target_of(dataset: Dataset, shape: tuple[int, ...], *, chars: bool) -> OffsetTarget:
    """The target of a dataset that has its place in the file.

    Parameters
    ----------
    dataset : Dataset
    shape : tuple of int, of the variable in xarray when all is written.
    chars : bool, see `OffsetTarget`.

    Raises
    ------
    NotYetError
        The values do not lie in one NetCDF file, where the header says.
    """
    session, node = dataset.id.check(), dataset.id.node
    layout = session.disk.layout
    if not (layout.affine and layout.self_contained and dataset.id.handle.real):
        raise NotYetError(
            "other processes write into an ordinary NetCDF file by offsets; leave layout=, driver= and hints= out, or "
            "compute in threads (dask.config.set(scheduler='threads'))"
        )
    block = Block(
        dataset.id.handle.real, layout.places[node.uid], node.element, shape[: len(shape) - chars], node.is_record
    )
    return OffsetTarget(block, chars)


def commit(path: str, records: Mapping[str, int], *_: Any) -> None:
    """Count records that have been written: those of each dataset of a file, by its path.

    Raises
    ------
    OSError
        The header could not be written.
    """
    with File(path, "r+") as file:
        posted = file.id.check().posted
        for name, number in records.items():
            dataset = file[name]
            # the values are there: nothing is to be filled
            posted.written_whole.add(dataset.id.node.uid)
            dataset.resize(max(number, len(dataset)), axis=0)
