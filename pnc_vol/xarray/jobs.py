"""Arrays are written at once, by the blocks of dask, or by other processes.

Knows: dask, datasets, regions. Does not know: how variables are defined or encoded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pnc_vol.api.dataset import Dataset
from pnc_vol.xarray.offsets import PlacedFile, joined, target_of

__all__ = [
    "PendingTarget",
    "Progress",
    "StoreJob",
    "Target",
    "by_offset",
    "computed_elsewhere",
    "is_dask",
    "shares",
    "store",
]


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
            key, array = joined(key, array)
        self._dataset[key] = array.astype(bool) if self._bool else array
        self._progress.add(nbytes)


class PendingTarget(NamedTuple):
    """A dataset that has no place in the file yet, and the shape that it will have."""

    dataset: Dataset
    shape: tuple[int, ...]
    chars: bool


def by_offset(job: StoreJob, file: PlacedFile) -> StoreJob:
    """Return the same, by the offsets that the header gives now."""
    pending = job.target
    return job._replace(target=target_of(pending.dataset, pending.shape, file, chars=pending.chars))


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
