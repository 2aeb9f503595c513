"""A file keeps its identity under any name, and no other file has it.

Knows: extended attributes, inodes. Does not know: logs, headers, ranks.

Rules
-----
1. An identity is 16 random bytes in the extended attribute ``user.pnc_vol.id``. It is no part of the file's bytes: a
   file that was written through a log has the same bytes as one that was not. An identity in the header would change
   them; device and inode are not enough, since an inode is used again, and a device number of a network file system
   differs from node to node.
2. A file gets an identity only if it must be recognised later (`identify`): when it is opened with a log. A rename
   keeps it; a copy
   that takes the file's place gets it before the rename (`likeness`).
3. Where the file system has no such attributes, the inode number stands for the file. It may be used again for another
   file, so a caller that relies on it compares the header as well.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pnc_vol.system import System

__all__ = ["ATTRIBUTE", "NBYTES", "by_inode", "identify", "identities_of", "identity_of", "shown", "sync_label"]

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
