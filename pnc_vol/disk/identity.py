"""A file keeps its identity under any name, and no other file has it; a copy that replaces it takes over what it is.

Knows: extended attributes, inodes. Does not know: logs, headers, ranks.

Rules
-----
1. An identity is 16 random bytes in the extended attribute ``user.pnc_vol.id``. It is no part of the file's bytes: a
   file that was written through a log has the same bytes as one that was not. An identity in the header would change
   them; device and inode are not enough, since an inode is used again, and a device number of a network file system
   differs from node to node.
2. A file gets an identity only if it must be recognised later (`identify`): when it is opened with a log. A rename
   keeps it; a copy that takes the file's place gets it before the rename (`make_alike`).
3. Where the file system has no such attributes, the inode number stands for the file. It may be used again for another
   file, so a caller that relies on it compares the header as well.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pnc_vol.system import System
from pnc_vol.warn import warn_outside

__all__ = [
    "ATTRIBUTE", "NBYTES", "by_inode", "identify", "identities_of", "identity_of", "make_alike", "own", "shown",
    "sync_label",
]  # fmt: skip

ATTRIBUTE = "user.pnc_vol.id"
NBYTES = 16
"""Bytes of an identity."""
_CREATE, _REPLACE = 1, 2
"""Flags of ``setxattr``, which `os` does not have on every system."""
_INODE = b"inode\0\0\0"


def identify(system: System, path: str, *, durable: bool = False) -> bytes:
    """Return the identity of a file; it gets one if it has none.

    Parameters
    ----------
    durable : bool
        Bring a new one to stable storage.

    Returns
    -------
    bytes[16]

    Raises
    ------
    OSError
        There is no such file, or it could not be synced.
    """
    found = _attribute(system, path)
    if len(found) == NBYTES:
        return found
    made = bytes.fromhex(system.token() + system.token())
    try:
        system.setxattr(path, ATTRIBUTE, made, _REPLACE if found else _CREATE)
    except FileNotFoundError:
        raise
    except OSError:
        # Another process was faster, or there are no attributes here: what can be read back decides.
        found = _attribute(system, path)
        return found if len(found) == NBYTES else _by_number(system, path)
    if durable:
        sync_label(system, path)
    return made


def identity_of(system: System, path: str) -> bytes:
    """Return the identity that a file has: its attribute, or else its inode number.

    Raises
    ------
    OSError
        There is no such file.
    """
    return _attribute(system, path) or _by_number(system, path)


def identities_of(system: System, path: str) -> set[bytes]:
    """Return all that a log may call a file.

    Raises
    ------
    OSError
        There is no such file.
    """
    return {_attribute(system, path), _by_number(system, path)} - {b""}


def by_inode(identity: bytes) -> bool:
    """Return whether an identity is an inode number, which a copy of the file cannot keep."""
    return identity.startswith(_INODE)


def shown(identity: bytes) -> str:
    """Return an identity for people.

    Examples
    --------
    >>> shown(bytes(range(16))), shown(b"inode" + bytes(3) + (42).to_bytes(8, "little"))
    ('000102030405060708090a0b0c0d0e0f', 'inode 42')
    """
    return f"inode {int.from_bytes(identity[8:], 'little')}" if by_inode(identity) else identity.hex()


def _attribute(system: System, path: str) -> bytes:
    with suppress(OSError):
        return system.getxattr(path, ATTRIBUTE)
    return b""


def _by_number(system: System, path: str) -> bytes:
    return _INODE + (system.stat(path).st_ino & (2**64 - 1)).to_bytes(8, "little")


def sync_label(system: System, path: str) -> None:
    """Bring the identity that a file was given to stable storage."""
    fd = system.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        system.fsync(fd)
    finally:
        system.close(fd)


# ------------------------------------------------------------------------------------------------------------ likeness
# A file that replaces another one takes over its owner, permissions, extended attributes and access lists.
#
# Rules
# -----
# 1. A copy that takes a file's place has the file's owner, permissions and extended attributes, among which are its
#    access control list and its identity. What the system does not allow is one warning; only the identity must be
#    kept, also after a power failure: what is posted to a log later is of this file.
# 2. Permissions that were for a group that the copy cannot have are not for the user's own group.
# 3. Other names of the file (hard links) stay with the old file. That is a warning, too: they show the old content. To
#    write the copy back into the old inode would keep them; a kill in between would leave neither layout.


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
