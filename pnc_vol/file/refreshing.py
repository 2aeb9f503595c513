"""A reader opens its file again: it sees what another process has flushed then, or goes on in a forked child.

Knows: headers, the place of a file, drivers. Does not know: users' objects, requests.

Rules of a refresh
------------------
1. A file is complete after every flush of its writer: a reader only has to read the header again. So there is nothing
   that HDF5's SWMR mode would have to switch on, and `swmr_mode` is a flag that is remembered.
2. A new layout is another file under the same name: then the reader opens that one.
3. Either is looked at as at the opening: see `existing`.

Rules of a forked child
-----------------------
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
from functools import partial

from pnc_vol.disk.existing import Existing, header_of, open_existing
from pnc_vol.disk.naming import ATTEMPTS, replaced_too_often
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.stack import default_stack
from pnc_vol.file.driver_stack import context_of, open_driver, stack_of
from pnc_vol.file.reads.completing import complete_posted
from pnc_vol.file.session import Session
from pnc_vol.format.decode import decode
from pnc_vol.format.encode import only_numrecs_differs
from pnc_vol.layout.registry import CANONICAL
from pnc_vol.mapping.tree_refresh import refresh_tree
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.ranks.comm import on_root
from pnc_vol.system.full_io import read_at

__all__ = ["go_on", "refresh"]

_one_at_a_time = threading.RLock()


def _renew() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def refresh(session: Session) -> bool:
    """Take over the definitions and the record count that are in the file now (collective).

    Returns
    -------
    bool
        Whether anything was new. A session that writes is never behind its file.

    Raises
    ------
    OSError
        The file is gone, or cannot be read, or is no NetCDF file any more.
    """
    if session.writable:
        return False
    complete_posted(session)
    if session.file_set is not None:
        return session.file_set.refresh(session)
    with session.disk.changing():
        return _taken_over(session)


def _taken_over(session: Session) -> bool:
    """Return whether there was anything new in the file, or in the one that has its name now."""
    for _ in range(ATTEMPTS):
        found: list[Existing] = []
        change, size, inode, content = on_root(session.comm, "refresh", partial(_look, session, found))
        if change == "none":
            return False
        if change == "header" or _other(session, found, inode):
            break
    else:
        raise session.comm.on_all(replaced_too_often(session.disk.path))
    header = decode(content, file_size=size).header
    new = from_header(header, separator=session.defs.tree.separator)
    if not header.vars:
        new.layout = session.defs.tree.layout
    elif new.layout != session.defs.tree.layout:
        raise session.comm.on_all(
            OSError(
                f"{session.disk.path}: the file has another layout ({new.layout or CANONICAL!r}) now; open it again"
            )
        )
    refresh_tree(session.defs.tree, new)
    layout = session.disk.layout.anew()
    layout.adopt(header, tuple(session.defs.tree.datasets), session.defs.tree.datasets)
    session.disk.use_layout(layout)
    session.disk.begins_with(header, content)
    session.defs.flushed(header)
    return True


def _other(session: Session, found: list[Existing], inode: int) -> bool:
    """Go on with the file that has the name now (collective); False if it has it no more."""
    assert session.disk.location is not None
    location = Location(session.options.system, session.disk.location.path, session.disk.location.path)
    fd = -1
    if found:
        fd, location.key = found[0].fd, location.held.keep(found[0].fd, found[0].key)
    try:
        driver = open_driver(location.path, options=session.options, comm=session.comm, fd=fd, inode=inode)
    except BaseException:
        location.held.release()
        raise
    if driver is None:
        location.held.release()
        return False
    session.disk.driver.close()
    session.disk.location.held.release()
    context = context_of(session.options, session.comm, writable=False)
    stack = stack_of(session.options, session.comm)
    session.disk.use_file(session.disk.layout.over(driver, session.disk.path, stack, context, created=False), location)
    return True


def _look(session: Session, found: list[Existing]) -> tuple[str, int, int, bytes]:
    """Return what changed, with the size, the inode, and the header; on rank 0. A file that is another one is in
    `found`."""
    location, system, known = session.disk.location, session.options.system, session.disk.header_bytes
    if location is None:
        there = header_of(session.disk.driver, session.disk.path)
    elif _unchanged(session, location):
        return "none", 0, 0, b""
    else:
        there = open_existing(system, session.disk.path, location.path)
    if location is not None and location.key not in (None, there.key):
        found.append(there)
        change = "file"
    else:
        if there.fd >= 0:
            system.close(there.fd)
        change = "none" if there.content == known else "header"
    return change, there.size, there.key[1], there.content


def _unchanged(session: Session, location: Location) -> bool:
    """Return whether the file is the one that is open, and begins as it did: then nothing has to be decoded."""
    system = session.options.system
    fd = system.open(location.path, os.O_RDONLY)
    try:
        there = system.fstat(fd)
        same = (there.st_dev, there.st_ino) == location.key
        return same and _first_bytes(session, fd) == session.disk.header_bytes
    finally:
        system.close(fd)


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
    return only_numrecs_differs(session.disk.header_bytes, _first_bytes(session, fd))


def _first_bytes(session: Session, fd: int) -> bytes:
    """Return what a file begins with, as many bytes as the header has that was read."""
    now = bytearray(len(session.disk.header_bytes))
    return bytes(now[: read_at(session.options.system, fd, memoryview(now), 0)])
