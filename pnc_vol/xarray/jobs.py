"""Arrays are written at once, by the blocks of dask, or by other processes by the offsets of their blocks.

Knows: dask, datasets, places of variables, drivers. Does not know: headers, how variables are defined or encoded.

Rules
-----
1. What other processes write has its header placed before: a target has all that is needed to write a block of one
   variable, and can be pickled.
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
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from pnc_vol.format.numeric import to_file
from pnc_vol.layout.base import Place
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.encoding import encode
from pnc_vol.system import REAL

__all__ = [
    "PendingTarget", "PlacedFile", "Progress", "StoreJob", "Target", "by_offset", "check_ordinary", "commit",
    "computed_elsewhere", "is_dask", "shares", "store",
]  # fmt: skip


def is_dask(values: Any) -> bool:
    """Return whether values are computed by dask."""
    return hasattr(values, "__dask_graph__")


def computed_elsewhere() -> bool:
    """Return whether dask is set to compute in other processes.

    xarray has a function for it, which is not public and has another name in each of its versions.
    """
    try:
        from dask.base import get_scheduler  # an extra: datasets without dask's arrays are written without it
    except ImportError:
        return False
    get = get_scheduler()
    distributed, multiprocessing = sys.modules.get("distributed"), sys.modules.get("dask.multiprocessing")
    if distributed is not None and isinstance(getattr(get, "__self__", None), distributed.Client):
        return True
    return multiprocessing is not None and get is multiprocessing.get


_WIDTH = 40
"""Characters of the bar that shows how much is written."""


class Progress:
    """Counts bytes that are written, and reports them to a function, or draws a bar.

    Parameters
    ----------
    report : bool, callable or None
        A function of bytes that are done and bytes in all; True draws a bar on the standard error stream.

    Examples
    --------
    >>> steps = []
    >>> progress = Progress(lambda done, total: steps.append((done, total)))
    >>> progress.total = 20
    >>> progress.add(5), progress.add(15)
    (None, None)
    >>> steps
    [(5, 20), (20, 20)]
    """

    def __init__(self, report: bool | Callable[[int, int], object] | None) -> None:
        self._report = report if callable(report) else (_bar if report else None)
        self._lock = threading.Lock()
        self._done = 0
        self.total = 0

    def add(self, nbytes: int) -> None:
        """So many bytes more are written; called by any thread."""
        if self._report is not None:
            with self._lock:
                self._done += nbytes
                self._report(self._done, self.total)


def _bar(done: int, total: int) -> None:
    filled = _WIDTH if done >= total else done * _WIDTH // total
    end = "\n" if done >= total else ""
    sys.stderr.write(f"\r[{'#' * filled:{_WIDTH}}] {done / 2**20:.1f} of {total / 2**20:.1f} MiB{end}")
    sys.stderr.flush()


class StoreJob(NamedTuple):
    """An array of dask, and where it is to be stored."""

    source: Any
    target: Any
    region: tuple[slice, ...]
    apart: bool
    """Whether each rank has a part of its own."""


class Target:
    """A dataset that blocks are posted to; dask's threads do so at the same time."""

    def __init__(self, dataset: Dataset, progress: Progress, *, chars: bool) -> None:
        self._dataset, self._progress, self._chars = dataset, progress, chars
        self._bool = dataset.id.node.element.kind == "bool"

    def __setitem__(self, key: Any, values: Any) -> None:
        array = np.asarray(values)
        nbytes = array.nbytes
        if self._chars:
            key, array = _joined(key, array)
        self._dataset[key] = array.astype(bool) if self._bool else array
        self._progress.add(nbytes)


def shares(job: StoreJob, comm: Any) -> Iterator[StoreJob]:
    """Yield the blocks of an array that a rank computes, if all ranks have the same array."""
    source = job.source
    begins = [np.cumsum((0, *chunks[:-1])) for chunks in source.chunks]
    for number, index in enumerate(np.ndindex(*source.numblocks)):
        if number % comm.size == comm.rank:
            region = tuple(
                slice(int(at.start + begin[i]), int(at.start + begin[i] + chunks[i]))
                for at, begin, chunks, i in zip(job.region, begins, source.chunks, index, strict=True)
            )
            yield job._replace(source=source.blocks[index], region=region)


def store(jobs: list[StoreJob], *, compute: bool) -> Any:
    """Let dask compute arrays block by block, each to be stored at once; no lock is needed."""
    import dask.array  # an extra: datasets without dask's arrays are written without it

    sources, targets, regions, _ = zip(*jobs, strict=True)
    return dask.array.store(list(sources), list(targets), lock=False, regions=list(regions), compute=compute)


# ------------------------------------------------------------------------------- what other processes write


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


class PendingTarget(NamedTuple):
    """A dataset that has no place in the file yet, and the shape that it will have."""

    dataset: Dataset
    shape: tuple[int, ...]
    chars: bool


def by_offset(job: StoreJob, file: PlacedFile) -> StoreJob:
    """Return a job whose target is pending with a target by the offsets that the header gives now."""
    dataset, shape, chars = job.target
    session, node = dataset.id.check(), dataset.id.node
    place, outer = session.disk.layout.places[node.uid], shape[: len(shape) - chars]
    return job._replace(target=OffsetTarget(file, place, node.element, outer, node.is_record, chars))


@dataclass(frozen=True, slots=True)
class OffsetTarget:
    """Where one variable lies in a file that nobody needs to have open: dask stores ``target[region] = block``.

    file : PlacedFile
    place : Place
    element : Element
    shape : tuple of int, that it will have.
    record : bool
    chars : bool, values are characters whose last axis is the length of the strings.
    """

    file: PlacedFile
    place: Place
    element: Element
    shape: tuple[int, ...]
    record: bool
    chars: bool

    def __setitem__(self, key: Any, values: Any) -> None:
        """Write values into the file.

        Raises
        ------
        OSError
            They could not be written.
        ValueError
            The selection is outside, or a value does not fit the type.
        """
        key, values = _joined(key, values) if self.chars else (key, np.asarray(values))
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


def _joined(key: tuple[Any, ...], values: Any) -> tuple[Any, Any]:
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
