"""A file that is open for reading goes on in a forked child, by a descriptor of the child's own.

Knows: the place of a file, its header. Does not know: users' objects.

Rules
-----
1. The child opens the file once, at its first use there: a child that uses no file, as most do, opens none.
2. It is the same file, by device and inode, and begins with the same header but for the number of records: an inode is
   used again when a file is gone. Anything else is an error, for the child has objects of the file that was opened.
3. Only an ordinary file that this process reads alone goes on. What a writer has posted is its own, and is neither
   written twice nor seen by the child; ranks, drivers with a state of their own, and sets of files are opened again by
   the user.
4. Other threads of the parent do not exist in the child, and what they held stays held: locks are made anew.
"""

from __future__ import annotations

import os
import threading

from pnc_vol.disk.publish import Location
from pnc_vol.drivers.stack import default_stack
from pnc_vol.file.driver_stack import open_driver, stack_of
from pnc_vol.file.session import Session
from pnc_vol.system.full_io import read_at

__all__ = ["go_on"]

_one_at_a_time = threading.RLock()


def _renew() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def go_on(session: Session) -> str:
    """Open the file of a session again in this process, which was forked.

    Returns
    -------
    str
        Why it cannot go on here; "" if it can.
    """
    with _one_at_a_time:
        if not session.forked:
            # another thread of the child was faster
            return ""
        location, disk = session.disk.location, session.disk
        plain = session.comm.mpi is None and session.file_set is None and location is not None
        if session.writable or not plain or stack_of(session.options, session.comm) != default_stack(shared=False):
            return "the file was opened before a fork"
        if disk.version & 1:
            return "the file was opened before a fork, during which it was refreshed"
        assert location is not None
        reopened = Location(session.options.system, location.path, location.path)
        try:
            fd = session.options.system.open(location.path, os.O_RDONLY)
            reopened.key = reopened.held.keep(fd)
            if reopened.key != location.key or not _begins_alike(session, fd):
                reopened.held.release()
                return "the file was opened before a fork, and is another one now, or was defined anew"
            driver = open_driver(location.path, options=session.options, comm=session.comm, fd=fd)
        except OSError as error:
            reopened.held.release()
            return f"the file was opened before a fork, and cannot be opened again ({error.strerror or error})"
        assert driver is not None
        # The parent's driver is left as it is: its descriptor was closed at the fork, and its readers are not here.
        disk.use_file(driver, reopened)
        session.defs.tree.renew_lock()
        session.mark_reopened()
        return ""


def _begins_alike(session: Session, fd: int) -> bool:
    """Return whether the header is the one that was read, but for the number of records, which writers may have
    raised."""
    known = session.disk.header_bytes
    now = bytearray(len(known))
    if read_at(session.options.system, fd, memoryview(now), 0) != len(known):
        return False
    behind = 12 if session.defs.version == 5 else 8
    return now[:4] == known[:4] and now[behind:] == known[behind:]
