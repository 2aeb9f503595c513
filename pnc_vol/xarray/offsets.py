"""Other processes write blocks into a file by their offsets.

Knows: places of variables, bytes of values, drivers. Does not know: headers, xarray, dask.

Rules
-----
1. The header was placed before: a target has all that is needed to write a block of one variable, and can be pickled.
2. A block is whole in the file, or it is written again: the same bytes at the same offsets, so that a process that died
   on the way, or that wrote a block twice, does no harm. No process writes the header: if each opened the file for
   writing, each would write the number of records that it knows.
3. Records count when all blocks are written: `commit` is the last act. Until then the file has the records that it had,
   and a new file a temporary name beside its own; the file that it replaces stays until then.
4. A file is known by its inode: blocks do not go into another file that has taken its name, or into a new layout of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from pnc_vol.api.dataset import Dataset
from pnc_vol.api.file import File
from pnc_vol.disk.journal import forget_journal
from pnc_vol.disk.locking import Held
from pnc_vol.disk.naming import name_new
from pnc_vol.drivers.base import OpenContext
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.errors import NotYetError
from pnc_vol.extents.merge import coalesce
from pnc_vol.extents.place import runs
from pnc_vol.extents.selection import select
from pnc_vol.format.convert import to_file
from pnc_vol.layout.base import Place
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.encoding import encode
from pnc_vol.system import REAL

__all__ = ["Block", "OffsetTarget", "PlacedFile", "check_ordinary", "commit", "joined", "target_of"]


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file whose header is placed, so that other processes can write blocks into it.

    name : str, the name that it has in the end.
    work : str, the name that it has until all blocks are written.
    inode : int
    exclusive : bool, it replaces nothing.
    new : bool, this call made it, whatever its name.
    """

    name: str
    work: str
    inode: int = 0
    exclusive: bool = False
    new: bool = False

    def path(self) -> str:
        """Return the name that the file has now.

        Raises
        ------
        OSError
            Neither of its names stands for it.
        """
        for path in (self.work, self.name):
            with suppress(FileNotFoundError):
                if REAL.stat(path).st_ino == self.inode:
                    return path
        text = "the file that was prepared for these blocks was removed or replaced; call to_netcdf again"
        raise FileNotFoundError(errno.ENOENT, text, self.name)

    def publish(self) -> None:
        """Give the file its name, in place of what has it, when it is on stable storage.

        Raises
        ------
        OSError
            It has its temporary name still.
        """
        if self.path() == self.name:
            return
        fd = REAL.open(self.work, os.O_RDWR)
        try:
            with suppress(FileNotFoundError):
                REAL.fchmod(fd, REAL.stat(self.name).st_mode & 0o7777)
            REAL.fdatasync(fd)
        finally:
            REAL.close(fd)
        if self.exclusive:
            name_new(REAL, self.work, self.name)
            return
        held = Held(REAL, self.name, "best-effort")
        try:
            held.may_replace(self.name)
            REAL.rename(self.work, self.name)
            forget_journal(REAL, self.name)
        finally:
            held.release()

    def discard(self) -> None:
        """Remove the file if it is new, and what was made beside it under a temporary name."""
        if self.work == self.name:
            with suppress(OSError):
                if self.new:
                    REAL.unlink(self.work)
        else:
            folder, _, name = self.work.rpartition("/")
            with suppress(OSError):
                for one in REAL.listdir(folder or "/"):
                    if one.startswith(name):
                        REAL.unlink(f"{folder}/{one}")


@dataclass(frozen=True, slots=True)
class Block:
    """Where one variable lies in a file, and what it holds.

    file : PlacedFile
    place : Place
    element : Element
    shape : tuple of int, that it will have.
    record : bool
    """

    file: PlacedFile
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
        driver = PosixDriver.open(self.file.path(), OpenContext())
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
    """Return characters along the last axis as strings, and the key without that axis."""
    chars = np.ascontiguousarray(values)
    return key[:-1], chars.view(f"S{chars.shape[-1]}").reshape(chars.shape[:-1])


def check_ordinary(file: File) -> None:
    """Refuse files that other processes cannot write by offsets.

    Raises
    ------
    NotYetError
        The values do not lie in one NetCDF file, where the header says.
    """
    layout = file.id.check().disk.layout
    if not (layout.affine and layout.self_contained and file.id.handle.real):
        raise NotYetError(
            "other processes write into an ordinary NetCDF file by offsets; leave layout=, driver= and hints= out, or "
            "compute in threads (dask.config.set(scheduler='threads'))"
        )


def target_of(dataset: Dataset, shape: tuple[int, ...], file: PlacedFile, *, chars: bool) -> OffsetTarget:
    """Return the target of a dataset that has its place in the file.

    Parameters
    ----------
    dataset : Dataset
    file : PlacedFile
    shape : tuple of int, of the variable in xarray when all is written.
    chars : bool, see `OffsetTarget`.
    """
    session, node = dataset.id.check(), dataset.id.node
    block = Block(file, session.disk.layout.places[node.uid], node.element, shape[: len(shape) - chars], node.is_record)
    return OffsetTarget(block, chars)


def commit(file: PlacedFile, records: Mapping[str, int], *_: Any) -> None:
    """Count records that have been written: those of each dataset of a file, by its path; then the file gets its name.

    Raises
    ------
    OSError
        The header could not be written, or the file could not be renamed.
    """
    with File(file.path(), "r+") as f:
        posted = f.id.check().posted
        for name, number in records.items():
            dataset = f[name]
            # the values are there: nothing is to be filled
            posted.written_whole.add(dataset.id.node.uid)
            dataset.resize(max(number, len(dataset)), axis=0)
    file.publish()
