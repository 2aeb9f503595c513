"""Carrying a file's data to a new layout: in a copy, which takes the file's place when it is whole.

Knows: layouts, drivers, ranks, which share the copying. Does not know: requests.

Rule
----
Data that the header in the file knows are *live*: that header may be what the next open finds. A flush writes over none
of them before the new header is in place, but for elements that the user wrote in a dataset that stays where it is. A
layout that would, in any byte, is made in a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.staged import StagedDriver
from pnc_vol.errors import DefinitionError
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents
from pnc_vol.file.driver_stack import memory_copy, open_copy
from pnc_vol.layout.base import Layout, LostRecords

if TYPE_CHECKING:
    from pnc_vol.file.session import Session

__all__ = ["drop_copy", "moved", "replaces_live", "use_copy"]

_BLOCK = 8 << 20


def moved(session: Session, target: Layout, lost: LostRecords) -> Driver | None:
    """A new file with the data where the new layout has it; None if nothing has to move (collective).

    lost : what datasets lost since the last flush; see `Layout.lost_records`.
    """
    layout, tree = session.disk.layout, session.defs.tree
    if (target is layout and not lost) or not layout.with_early_places(tree)[0].vars:
        return None
    stays = layout.same_places(target) or not layout.needs_move(target, tree)
    if stays and not _harms(session, target, lost):
        return None
    if not layout.relocates:
        raise session.comm.on_all(
            DefinitionError(
                f"{session.disk.path}: these changes of definitions need data to be moved, which the layout "
                f"{layout.name!r} cannot do; write the datasets to a new file"
            )
        )
    driver = _copy_driver(session)
    comm = session.comm
    try:
        # The copy is given up, which may need all ranks, when all know why.
        with comm.errors_shared():
            found = layout.moves(target, tree)
            _copy(session.disk.driver, driver, Extents(found.src, found.length, found.dst), comm.rank, comm.size)
            comm.exchange("flush move")
    except BaseException:
        drop_copy(session, driver)
        raise
    target.unwritten_reads_zero, target.stale_gaps = True, False
    session.counts["moves"] += 1
    return driver


def replaces_live(session: Session, uids: tuple[int, ...]) -> bool:
    """Whether a variable of the header in the file is none of `uids`: deleted, or replaced by one of another layout."""
    return session.disk.uids is not uids and not set(session.disk.uids) <= set(uids)


def _harms(session: Session, target: Layout, lost: LostRecords) -> bool:
    """Whether live data would be overwritten if `target` were written into the file as it is."""
    if not session.disk.at_stake:
        return False
    if any(first < min(live, wanted) for first, live, wanted in _regrown(session, lost)):
        return True
    return replaces_live(session, target.uids) and session.disk.layout.overwrites(
        session.disk.header, session.disk.uids, target
    )


def _regrown(session: Session, lost: LostRecords) -> Iterator[tuple[int, int, int]]:
    """Of datasets that lost records: the first one lost, the live ones, and those that there are now."""
    for uid, (first, live) in lost.items():
        node = session.defs.tree.datasets.get(uid)
        if node is not None and node.shape:
            yield first, live, node.shape[0]


def _copy(source: Driver, target: Driver, pieces: Extents, rank: int, size: int) -> None:
    """Copy this rank's share of the pieces; `place` is the offset in the target."""
    room = np.empty(_BLOCK, np.uint8)
    for i, block in enumerate(rounds(pieces, _BLOCK)):
        if i % size != rank:
            continue
        ends = np.cumsum(block.length)
        packed = ends - block.length
        part = room[: int(ends[-1])]
        part[:] = 0
        source.read(Extents(block.offset, block.length, packed), part)
        target.write(Extents(block.place, block.length, packed), part)


def _copy_driver(session: Session) -> Driver:
    """A driver on a new file that will take this one's place (collective)."""
    if session.disk.location is None:
        return memory_copy(session)
    session.disk.copy, driver = open_copy(session)
    return driver


def drop_copy(session: Session, driver: Driver) -> None:
    """Forget the copy: it could not be made."""
    with suppress(OSError):
        driver.close()
    if session.disk.copy is not None and session.comm.rank == 0:
        session.disk.copy.discard()
    session.disk.copy = None


def use_copy(session: Session, driver: Driver) -> None:
    """Work on the copy from now on."""
    session.disk.header_bytes = b""
    if session.disk.location is None:
        if not session.disk.driver.replace_with(driver):
            session.disk.driver = StagedDriver(session.disk.driver, driver)
        return
    left, session.disk.driver = session.disk.driver, driver
    with suppress(OSError):
        # All that was written there has been read back already.
        left.close()
    if session.comm.rank == 0:
        session.disk.location.discard()
    session.disk.location, session.disk.copy = session.disk.copy, None
