"""A file that replaces another one takes over its owner, permissions, extended attributes and access lists.

Knows: the system. Does not know: what the file holds, or why another one takes its place.

Rules
-----
1. A copy that takes a file's place has the file's owner, permissions and extended attributes, among which are its
   access control list and its identity. What the system does not allow is one warning; only the identity must be kept,
   also after a power failure: what is posted to a log later is of this file.
2. Permissions that were for a group that the copy cannot have are not for the user's own group.
3. Other names of the file (hard links) stay with the old file. That is a warning, too: they show the old content. To
   write the copy back into the old inode would keep them; a kill in between would leave neither layout.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pnc_vol.disk.identity import ATTRIBUTE, sync_label
from pnc_vol.system import System
from pnc_vol.warn import warn_outside

__all__ = ["make_alike", "own"]


def own(system: System, fd: int, there: os.stat_result, mode: int) -> bool:
    """Give a new file the permissions, and if possible the owner, of the one that it replaces.

    Parameters
    ----------
    fd : int, of the new file.
    there : stat_result, of the old file.
    mode : int, permissions.

    Returns
    -------
    bool
        False if the owner or the group is another one.
    """
    made = system.fstat(fd)
    same = (there.st_uid, there.st_gid) == (made.st_uid, made.st_gid)
    if not same:
        try:
            system.fchown(fd, there.st_uid, there.st_gid)
            same = True
        except PermissionError:
            try:
                system.fchown(fd, -1, there.st_gid)
            except PermissionError:
                mode &= ~0o070 | (mode & 0o007) << 3
    system.fchmod(fd, mode)
    return same


def make_alike(system: System, source: str, there: os.stat_result, target: str, shown: str) -> None:
    """Give a copy what the file is besides its bytes, before it takes the file's name.

    Parameters
    ----------
    source, target : str, the file and the copy.
    there : stat_result, of the file.
    shown : str, the file's name for messages.

    Raises
    ------
    OSError
        The file has an identity, and that cannot be stored; or the copy is gone.
    """
    fd = system.open(target, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        same = own(system, fd, there, there.st_mode & 0o7777)
    finally:
        system.close(fd)
    lost = [] if same else [f"its owner, user {there.st_uid} and group {there.st_gid}"]
    names: list[str] = []
    with suppress(OSError):
        names = system.listxattr(source)
    for name in names:
        try:
            system.setxattr(target, name, system.getxattr(source, name), 0)
        except OSError:
            if name == ATTRIBUTE:
                raise
            # security.selinux and its like follow rules of the system's own.
            if not name.startswith("security."):
                lost.append(f"the attribute {name!r}")
    if ATTRIBUTE in names:
        # the syncs of data that follow need not bring it to stable storage
        sync_label(system, target)
    if lost:
        warn_outside(
            f"{shown}: the file is replaced by a copy with a new layout, which could not keep {', '.join(lost)}"
        )
    if there.st_nlink > 1:
        warn_outside(
            f"{shown}: the file has {there.st_nlink - 1} more name(s) (hard links). The new layout has "
            "only this name; the others still lead to the old file. Create these links again"
        )
