"""What a killed process and a power failure leave of recorded changes.

Knows: changes, trees. Does not know: what the files mean.

Rules
-----
1. A kill leaves every change before it, and a part of the write that it interrupts. What a process stored, the kernel
   has.
2. A power failure leaves what was synced: the bytes and the length of a file since `fsync` or `fdatasync`, its extended
   attributes since `fsync`, the names of a folder since `fsync_dir`. Of the rest it leaves any part: each piece of a
   write by itself, cut at multiples of 512 bytes of the file, any length that the file had meanwhile, any of the
   operations on names. A rename happens or does not. What was written last may be all that is left of a file: a header,
   and nothing of the data that were written before it. Files may lose different shares.
3. Writes that lie inside `ATOMIC` bytes of one sector are not torn: the record count of a header is such a write.
4. A state is a function of the recording, a seed and a number.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import NamedTuple

from crash.disk import (
    Change,
    Cut,
    Disk,
    FolderSynced,
    Labelled,
    Made,
    Mode,
    Named,
    Renamed,
    Stored,
    Synced,
    Unnamed,
    Written,
)  # fmt: skip

__all__ = ["ATOMIC", "SECTOR", "State", "kill_points", "killed", "power_failure"]

SECTOR = 512
"""Bytes that a disk writes as a whole."""
ATOMIC = 16
"""Bytes of the longest write that is never torn."""
_MOST_TEARS = 6


class State(NamedTuple):
    """Files as a crash left them.

    at : int, changes that had been made.
    torn : bool, whether a write was cut.
    said : str, what was done, for messages.
    """

    disk: Disk
    at: int
    torn: bool
    said: str


def kill_points(changes: list[Change], *, seed: int) -> list[tuple[int, int]]:
    """Where a process can be killed: (changes that were made, bytes of the next one that were).

    Changes that a kill does not see, such as `fsync`, are left out.
    """
    found = [(0, 0)]
    for at, change in enumerate(changes):
        if isinstance(change, Written) and len(change.data) > ATOMIC:
            found.extend((at, tear) for tear in _tears(change, random.Random(f"{seed}:{at}")))
        if not isinstance(change, (Synced, FolderSynced)):
            found.append((at + 1, 0))
    return found


def _tears(change: Written, chance: random.Random) -> list[int]:
    size = len(change.data)
    sectors = list(range(SECTOR - change.offset % SECTOR, size, SECTOR))
    tears = {chance.randrange(1, size), *chance.sample(sectors, min(len(sectors), _MOST_TEARS - 1))}
    return sorted(tears)


def killed(changes: list[Change], disk: Disk, at: int, tear: int) -> State:
    """The state after a kill.

    Parameters
    ----------
    disk : Disk
        The tree after the first `at` changes; it is not changed.
    at, tear : int
        See `kill_points`.
    """
    if not tear:
        return State(disk, at, False, f"killed after {at} changes" + _last(changes, at))
    made, change = disk.copy(), changes[at]
    assert isinstance(change, Written)
    made.apply(change._replace(data=change.data[:tear]))
    return State(made, at, True, f"killed in change {at + 1} after {tear} bytes of {_brief(change)}")


def power_failure(start: Disk, changes: list[Change], *, seed: int, number: int, first: int = 0) -> State:
    """A state after a power failure.

    Parameters
    ----------
    start : Disk
        The tree before the first change, which is safe.
    seed, number : int
        Which state.
    first : int
        The failure comes after this many changes or later.
    """
    chance = random.Random(f"{seed}:{number}")
    at = chance.randint(min(first, len(changes)), len(changes))
    disk = start.copy()
    for change in changes[:at]:
        # names are made below; inodes are there from the beginning
        if isinstance(change, Made):
            disk.add(change.inode, change.mode, folder=change.folder)
    ways = []
    # none and all of the names, or of the bytes, are the states that a simple file system leaves
    shares = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0, 1.0, -1.0, -1.0)
    share, apart = chance.choice(shares), chance.random() < 0.25
    for inode, content in disk.files.items():
        mine = chance.choice(shares) if apart else share
        _survive(content, list(_unsynced(changes[:at], inode)), disk, inode, mine, chance)
    said = "the last of the bytes" if share < 0 else f"{share:.0%} of the bytes"
    ways.append("some bytes of each file" if apart else said)
    share = chance.choice((0.0, 0.5, 0.9, 1.0, 1.0, -1.0))
    for kept in _names(changes[:at], share, chance):
        disk.apply(Named(kept.path, kept.inode) if isinstance(kept, Made) else kept)
    ways.append("the first of the names" if share < 0 else f"{share:.0%} of the names")
    return State(disk, at, True, f"power failed after {at} changes, {' and '.join(ways)} kept{_last(changes, at)}")


def _unsynced(changes: list[Change], inode: int) -> Iterator[tuple[bool, Change]]:
    """Changes to the bytes of a file, and whether each was synced later."""
    mine = [
        piece
        for change in changes
        for piece in (change.pieces if isinstance(change, Stored) else (change,))
        if isinstance(piece, (Written, Cut, Mode, Labelled, Synced)) and piece.inode == inode
    ]
    synced = [(i, change.whole) for i, change in enumerate(mine) if isinstance(change, Synced)]
    last = max((i for i, _ in synced), default=-1)
    whole = max((i for i, whole in synced if whole), default=-1)
    for i, change in enumerate(mine):
        if not isinstance(change, Synced):
            yield i < (whole if isinstance(change, Labelled) else last) or isinstance(change, Mode), change


def _survive(
    content: bytearray, changes: list[tuple[bool, Change]], disk: Disk, inode: int, share: float, chance: random.Random
) -> None:
    """Apply what was synced, and a share of the rest; negative: the last changes, and none of those before."""
    now = len(content)
    sizes: list[int] = []
    lost = chance.randint(0, len(changes)) if share < 0 else 0
    wanted = share
    for i, (safe, change) in enumerate(changes):
        share = wanted if wanted >= 0 else float(i >= lost)
        if safe:
            disk.apply(change)
            if not isinstance(change, Labelled):
                now, sizes = len(content), []
            continue
        if not sizes:
            sizes.append(now)
        if isinstance(change, (Cut, Labelled)):
            now = change.nbytes if isinstance(change, Cut) else now
            if chance.random() < share:
                disk.apply(change)
        elif isinstance(change, Written):
            now = max(now, change.offset + len(change.data))
            for piece in _sectors(change):
                if share == 1 or chance.random() < share:
                    disk.apply(piece)
        sizes.append(now)
    if sizes:
        # the length is kept apart from the bytes: blocks that were not written read as zeros
        size = (
            sizes[0]
            if wanted == 0 and chance.random() < 0.5
            else sizes[-1]
            if wanted in (1, -1)
            else chance.choice(sizes)
        )
        disk.apply(Cut(inode, size))


def _sectors(change: Written) -> Iterator[Written]:
    _, offset, data = change
    at = 0
    while at < len(data):
        end = min(at + SECTOR - (offset + at) % SECTOR, len(data))
        yield Written(change.inode, offset + at, data[at:end])
        at = end


def _names(changes: list[Change], share: float, chance: random.Random) -> Iterator[Change]:
    """The operations on names that survive, in order: of each folder those before its last sync, and some later ones.

    share : float, of the unsynced operations; negative: the first ones of each folder, in order.
    """
    kinds = (Made, Named, Renamed, Unnamed)
    synced: dict[str, int] = {}
    for i, change in enumerate(changes):
        if isinstance(change, FolderSynced):
            synced[change.path] = i
    open_: dict[str, list[int]] = {}
    keep: set[int] = set()
    for i, change in enumerate(changes):
        if isinstance(change, kinds):
            folder = os.path.dirname(change.path)
            if i < synced.get(folder, -1):
                keep.add(i)
            else:
                open_.setdefault(folder, []).append(i)
    for numbers in open_.values():
        if share < 0:
            keep.update(numbers[: chance.randint(0, len(numbers))])
        else:
            keep.update(number for number in numbers if share == 1 or chance.random() < share)
    for i, change in enumerate(changes):
        if i in keep:
            yield change


def _brief(change: Change) -> str:
    if isinstance(change, Written):
        return f"Written(inode={change.inode}, offset={change.offset}, {len(change.data)} bytes)"
    if isinstance(change, Stored):
        return f"Stored({sum(len(piece.data) for piece in change.pieces)} bytes)"
    return str(change)


def _last(changes: list[Change], at: int) -> str:
    return f", the last of them {_brief(changes[at - 1])}" if at else ""
