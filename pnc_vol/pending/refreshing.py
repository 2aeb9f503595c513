"""What a reader does to see what another process has flushed since.

Knows: headers, the place of a file, drivers. Does not know: users' objects, requests.

Rules
-----
1. A file is whole at every flush of its writer: a reader has to read the header again, and nothing else.
2. A new layout is another file under the same name: then the reader opens that one.
3. A header that is being replaced is told by its journal, or by two readings that differ: it is read once more.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pnc_vol.comm import on_root
from pnc_vol.errors import FormatError
from pnc_vol.format.decode import decode
from pnc_vol.mapping.index import from_header
from pnc_vol.mapping.renewing import renew
from pnc_vol.pending.commit import Location, recover
from pnc_vol.pending.opened import SIZE_BYTES, open_driver, read_header
from pnc_vol.pending.placed import Placed
from pnc_vol.system import read_at

if TYPE_CHECKING:
    from pnc_vol.pending.session import Session

__all__ = ["refresh"]

_ATTEMPTS = 100
_PAUSE = 0.001
_SAME, _NEW, _OTHER = b"=", b"h", b"f"


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
    # of the session itself, also where a handle only reads of it
    if vars(session)["writable"]:
        return False
    session.complete_reads()
    found: list[Location] = []
    told = on_root(session.comm, "refresh", lambda: _look(session, found))
    word, content = told[:1], told[1 + SIZE_BYTES :]
    if word == _SAME:
        return False
    header = decode(content, file_size=int.from_bytes(told[1 : 1 + SIZE_BYTES], "little")).header
    if word == _OTHER:
        assert session.location is not None
        location = found[0] if found else Location(session.options.system, session.location.path, session.location.path)
        driver = open_driver(location.path, options=session.options, comm=session.comm)
        session.driver.close()
        session.driver, session.location = driver, location
    renew(session.tree, from_header(header, separator=session.tree.separator))
    session.placed = Placed(session.options)
    session.placed.adopt(header, tuple(session.tree.datasets), session.tree.datasets)
    session.adopt_header(header, content)
    return True


def _unchanged(session: Session, location: Location) -> bool:
    """Whether the file is the one that is open, and begins as it did: then nothing has to be decoded."""
    system, known = session.options.system, session.disk_bytes
    if recover(system, location.path, writable=False) is not None:
        return False
    fd = system.open(location.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = system.fstat(fd)
        now = bytearray(len(known))
        return (
            (there.st_dev, there.st_ino) == location.key and read_at(system, fd, now, 0) == len(known) and now == known
        )
    finally:
        system.close(fd)


def _look(session: Session, found: list[Location]) -> bytes:
    """What is new, with the size and the header; on rank 0."""
    location, options = session.location, session.options
    if location is None:
        told = read_header(session.path, "r", options, [], session.driver)
        return (_SAME if told[SIZE_BYTES:] == session.disk_bytes else _NEW) + told
    if _unchanged(session, location):
        return _SAME
    before = b""
    for _ in range(_ATTEMPTS):
        there = options.system.stat(location.path)
        try:
            told = read_header(location.path, "r", options, [])
        except FormatError:
            told = b""
        key = there.st_dev, there.st_ino
        after = options.system.stat(location.path)
        if told and told == before and key == (after.st_dev, after.st_ino):
            break
        if before:
            time.sleep(_PAUSE)
        before = told
    else:
        # what is wrong for that long is wrong
        told = read_header(location.path, "r", options, [])
    if location.key is not None and key != location.key:
        made = Location(options.system, location.path, location.path)
        made.key = key
        found.append(made)
        return _OTHER + told
    return (_SAME if told[SIZE_BYTES:] == session.disk_bytes else _NEW) + told
