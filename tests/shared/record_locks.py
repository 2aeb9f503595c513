"""Locks of files that not every system has; see `docs/develop/systems.md`."""

from __future__ import annotations

import fcntl

import pytest

__all__ = ["LOCK", "OFD", "needs_record_locks"]

OFD = hasattr(fcntl, "F_OFD_SETLK")
LOCK = "record_lock" if OFD else "flock"
"""The call by which a writer locks its file."""

needs_record_locks = pytest.mark.skipif(not OFD, reason="this system has no open file description locks")
