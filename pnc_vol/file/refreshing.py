"""A refresh lets a reader see what another process has flushed.

Knows: headers, the place of a file, drivers. Does not know: users' objects, requests.

Rules
-----
1. A file is complete after every flush of its writer: a reader only has to read the header again. So there is nothing
   that HDF5's SWMR mode would have to switch on, and `swmr_mode` is a flag that is remembered.
2. A new layout is another file under the same name: then the reader opens that one.
3. Either is looked at as at the opening: see `existing`.
"""

from __future__ import annotations

import os
from functools import partial

from pnc_vol.disk.existing import Existing, header_of, open_existing, replaced_too_often
from pnc_vol.disk.naming import ATTEMPTS
from pnc_vol.disk.publish import Location
from pnc_vol.file.driver_stack import context_of, open_driver, stack_of
from pnc_vol.file.reads.fetch import complete_posted
from pnc_vol.file.session import Session
from pnc_vol.format.decode import decode
from pnc_vol.layout.registry import CANONICAL
from pnc_vol.mapping.tree_refresh import refresh_tree
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.ranks.comm import on_root
from pnc_vol.system.full_io import read_at

__all__ = ["refresh"]


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
    system, known = session.options.system, session.disk.header_bytes
    fd = system.open(location.path, os.O_RDONLY)
    try:
        there = system.fstat(fd)
        now = bytearray(len(known))
        return (
            (there.st_dev, there.st_ino) == location.key
            and read_at(system, fd, memoryview(now), 0) == len(known)
            and now == known
        )
    finally:
        system.close(fd)
