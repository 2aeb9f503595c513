"""A relocation moves a file's data to a new layout, in a copy that takes the file's place when it is complete.

Knows: layouts, drivers, ranks, which share the copying. Does not know: requests.

Rule
----
Data that the header in the file knows are *live*: that header may be what the next open finds. A flush writes over none
of them before the new header is in place, but for elements that the user wrote in a dataset that stays where it is. A
layout that would, in any byte, is made in a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from pnc_vol.disk.publish import Location
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import DefinitionError
from pnc_vol.extents.model import Extents
from pnc_vol.file.driver_stack import open_copy, open_spill
from pnc_vol.layout.base import Layout, LostRecords, NeverWritten
from pnc_vol.mapping.tree import Tree
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options
from pnc_vol.system import closing_if_it_fails
from pnc_vol.warn import FILE, INFO, tell

__all__ = ["Copy", "complete_copy", "copied", "replaces_live"]


class Copy(NamedTuple):
    """A file that a new layout is made in.

    location : Location or None, as of `StoredFile`.
    driver : Driver
    """

    location: Location | None
    driver: Driver


def copied(
    comm: Comm, tree: Tree, disk: StoredFile, options: Options, target: Layout, lost: LostRecords
) -> Copy | None:
    """Return a new file with the data where the new layout has it; None if nothing has to move (collective).

    lost : what datasets lost since the last flush; see `Layout.lost_records`.
    """
    layout = disk.layout
    if not layout.with_early_places(tree)[0].vars:
        return None
    stays = not layout.needs_move(target, tree)
    if stays and not _harms(tree, disk, target, lost):
        return None
    if not layout.relocates:
        raise comm.on_all(
            DefinitionError(
                f"{disk.path}: these changes of definitions need data to be moved, which the layout "
                f"{layout.name!r} cannot do; write the datasets to a new file"
            )
        )
    # few programs make a file give way to what they add
    from pnc_vol.drivers.block_copy import copy_blocks

    # In one line each: until the file goes on in the copy, it is one of those that are to be closed.
    if disk.location is None:
        # in memory too, or in a file without a name
        copy = Copy(None, disk.driver.empty_copy() or open_spill(disk, options.system))
    else:
        with closing_if_it_fails(options.system, by_any_error=False, alone=comm.size == 1):
            disk.left.append(open_copy(disk.location, options, comm)[::-1])
        copy = Copy(*disk.left[-1][::-1])
    try:
        # The copy is given up, which may need all ranks, when all know why.
        with comm.errors_shared():
            found = layout.moves(target, tree)
        pieces = _there(comm, disk.driver, Extents(found.src, found.length, found.dst))
        with comm.errors_shared():
            copy_blocks(disk.driver.read, copy.driver.write, pieces, share=(comm.rank, comm.size))
            # Data of other ranks follow, which must not come to the copy first.
            copy.driver.holder.drain()
            comm.agree("flush move")
    except BaseException:
        _drop(comm, disk, copy)
        raise
    # From here on no rank may fail alone: the others go on with the copy.
    target.unwritten = NeverWritten()
    tell(FILE, INFO, "%s: definitions moved %d bytes to a new copy of the file", disk.path, pieces.nbytes)
    return copy


def complete_copy(comm: Comm, disk: StoredFile, copy: Copy, target: Layout, fill: Callable[[Driver], object]) -> None:
    """Fill the copy, and work on it from now on (collective); it is dropped on all ranks if that fails on one."""
    try:
        with comm.errors_shared():
            fill(copy.driver)
    except BaseException:
        _drop(comm, disk, copy)
        raise
    driver = copy.driver
    if disk.location is None:
        driver = disk.driver
        if not driver.replace_with(copy.driver):
            from pnc_vol.drivers import staged

            driver = staged.StagedDriver(driver, copy.driver)
    disk.use_copy(driver, copy.location, target)
    disk.release_left(first=comm.rank == 0)


def replaces_live(disk: StoredFile, uids: tuple[int, ...]) -> bool:
    """Return whether a variable of the header in the file is none of `uids`: deleted, or replaced by one of another
    layout."""
    if len(uids) < len(disk.uids):
        return True
    # Most often there are others behind them, if any: to compare the same objects takes few nanoseconds for each.
    return uids[: len(disk.uids)] != disk.uids and not set(disk.uids) <= set(uids)


def _harms(tree: Tree, disk: StoredFile, target: Layout, lost: LostRecords) -> bool:
    """Return whether live data would be overwritten if `target` were written into the file as it is."""
    if not disk.at_stake:
        return False
    for uid, (first, live) in lost.items():
        node = tree.datasets.get(uid)
        # records that the dataset lost, the header in the file counts, and the dataset has again
        if node is not None and node.shape and first < min(live, node.shape[0]):
            return True
    if disk.layout.widens(target):
        return True
    return replaces_live(disk, target.uids) and disk.layout.overwrites(disk.header, disk.uids, target)


def _there(comm: Comm, source: Driver, pieces: Extents) -> Extents:
    """Return the parts of the pieces that are in the file, which may be far shorter than its header says (collective).

    The same on all ranks, which share the copying by what they find here.
    """
    size, error = 0, None
    try:
        size = source.size()
    except Exception as reason:
        error = reason
    (end,), _ = comm.agree("flush move from", (size,), error=error)
    length = np.minimum(pieces.length, end - pieces.offset)
    kept = length > 0
    return Extents(pieces.offset[kept], length[kept], pieces.place[kept])


def _drop(comm: Comm, disk: StoredFile, copy: Copy) -> None:
    """Forget the copy: it could not be made."""
    if copy.location is not None and comm.rank == 0:
        copy.location.remove_work()
    with suppress(OSError):
        copy.driver.close()
    if copy.location is not None and comm.rank == 0:
        copy.location.discard()
    # Not before: an interruption leaves it to the close. Not later: a copy that comes next may have the same numbers.
    disk.left[:] = [one for one in disk.left if one[0] is not copy.driver]
