"""What this system has of what not every system has; see `docs/develop/systems.md`."""

from __future__ import annotations

import fcntl
import os

import pytest

__all__ = [
    "ATTRIBUTES",
    "LOCK",
    "OFD",
    "needs_attributes",
    "needs_memory_files",
    "needs_record_locks",
    "needs_reservation",
]

OFD = hasattr(fcntl, "F_OFD_SETLK")
LOCK = "record_lock" if OFD else "flock"
"""The call by which a writer locks its file."""
ATTRIBUTES = hasattr(os, "setxattr")
_RESERVES = hasattr(os, "posix_fallocate")

needs_record_locks = pytest.mark.skipif(not OFD, reason="this system has no open file description locks")
needs_reservation = pytest.mark.skipif(not _RESERVES, reason="this system has no posix_fallocate")
needs_memory_files = pytest.mark.skipif(
    not (_RESERVES and hasattr(os, "memfd_create")), reason="this system gives ranks no memory in common"
)
needs_attributes = pytest.mark.skipif(not ATTRIBUTES, reason="this system has no extended attributes")
