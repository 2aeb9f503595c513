"""How a file is opened, or joined if the process has it open: what makes the session.

Knows: openings, the registry of open files, sets of subfiles. Does not know: operations on an open file.

Rule
----
All calls here are collective.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.file import deferred, registry
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.driver_stack import context_of, stack_of
from pnc_vol.file.finding import Found, file_sets
from pnc_vol.file.forgotten import close_forgotten
from pnc_vol.file.open_file import OpenFile, without_collector
from pnc_vol.file.opening import Opened, open_file, open_queue
from pnc_vol.file.registry import Closing, Entry, OpenAttempt, SessionRef
from pnc_vol.file.requests import Posted
from pnc_vol.file.session import FileSet
from pnc_vol.late import late
from pnc_vol.layout.base import Layout
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from pnc_vol.file import parting
else:
    # for files that ranks left
    parting = late("pnc_vol.file.parting")

__all__ = ["open_session", "open_shared", "session_of"]


@without_collector
def open_session(
    path: str | None,
    mode: str,
    *,
    options: Options,
    comm: Comm,
    root: Driver | None = None,
    claim: OpenAttempt | None = None,
) -> OpenFile:
    """Open or create a file, or join the session of it that `claim` finds (collective).

    Parameters
    ----------
    path : str, or None for a driver that keeps no file
    mode : {"r", "r+", "w", "w-", "x", "a"}
    options : Options
    comm : Comm, owned by the session from now on
    root : Driver, optional
        What holds the bytes, where that is no file: `path` is then only what the file is called.

    Raises
    ------
    OSError
        FileNotFoundError, FileExistsError, IsADirectoryError, PermissionError, `FormatError`...; the same on all ranks.
    """
    try:
        opened = open_file(path, mode, options=options, comm=comm, root=root, claim=claim)
        if isinstance(opened, Found):
            made = file_sets(opened.sets).open(opened, mode, options, comm)
            assert isinstance(made, OpenFile)
            return made
        if opened is not None:
            return session_of(opened, options, comm)
        assert claim is not None
        session = claim.joined()
        if not claim.joins:
            deferred.close_before_open(comm, [session])
            return open_session(path, mode, options=options, comm=comm, root=root, claim=claim)
        assert isinstance(session, OpenFile)
        comm.close()
        return session
    except BaseException as error:
        _leave(comm, error)
        raise


def _leave(comm: Comm, error: BaseException) -> None:
    """Let go of a communicator because of an error."""
    if comm.in_step(error):
        comm.close()
    else:
        comm.abandon(f"{type(error).__name__}: {error}")


def _with_layout(options: Options, layout: str) -> Options:
    """The options with the layout that the file has."""
    if _last[0] is not options or _last[1].layout != layout:
        # The options of most files are one object.
        _last[:] = options, options._replace(layout=layout)
    return _last[1]


_last = [Options()] * 2
"""Options of the last file, as asked for and with its layout."""


def session_of(
    opened: Opened,
    options: Options,
    comm: Comm,
    *,
    defs: Definitions | None = None,
    file_set: FileSet | None = None,
) -> OpenFile:
    """The session of a file that was just opened (collective).

    defs : Definitions, optional, those of a subfile; `opened.tree` is theirs.
    file_set : FileSet, optional, what the session is of instead of a file.
    """
    tree = opened.tree
    # Several ranks compare what they define, which each may have made in another way.
    as_read = opened.writable and not opened.created and comm.size == 1 and defs is None and file_set is None
    defs = defs or Definitions(tree, opened.header.version)
    options = _with_layout(options, opened.layout.name)
    layout = opened.layout(options) if file_set is None else file_set.layout(options)
    layout.unwritten = opened.unwritten
    layout.adopt(opened.header, tuple(tree.datasets), tree.datasets)
    tree.history.clear()
    disk = StoredFile(
        opened.path,
        _over(opened, layout, options, comm),
        opened.location,
        layout,
        created=opened.created,
        collective=opened.collective,
        # A file that has its name already keeps it: what a flush promised must be under it.
        keep_unpublished=options.publish == "close" and opened.created,
        may_be_longer=opened.writable and not opened.unwritten.reads_zero,
        named_by=None if file_set is None else lambda: file_set.location,
    )
    disk.begins_with(opened.header, opened.header_bytes)
    defs.flushed(opened.header)
    if as_read:
        defs.begin_as_read(layout, opened.header_bytes)
    queue = open_queue(disk, options, comm, writable=opened.writable)
    if layout.keeps_posts:
        queue.copy_arrays()
    if len(queue.stores) > 1:
        # Stores beside memory tell by the header which definitions the file has.
        disk.before_header.append(queue.about_to_write)
    posted = Posted(queue, options.buffer_size // 8)
    return OpenFile(options, comm, defs=defs, disk=disk, posted=posted, writable=opened.writable, file_set=file_set)


def _over(opened: Opened, layout: Layout, options: Options, comm: Comm) -> Driver:
    """The driver of the layout's addresses; if it cannot be had, nothing of the file stays open."""
    context = context_of(options, comm, writable=opened.writable)
    try:
        return layout.over(opened.driver, opened.path, stack_of(options, comm), context, created=opened.created)
    except BaseException:
        if not opened.driver.capabilities.collective:
            opened.driver.close()
        if opened.location is not None:
            if opened.created and comm.rank == 0:
                opened.location.discard()
            opened.location.held.release()
        raise


def open_shared(
    path: str,
    real: str,
    mode: str,
    *,
    options: Options,
    comm: Comm,
    root: Driver | None = None,
    target: Any = None,
) -> tuple[OpenFile, SessionRef]:
    """Open or create a file, or join the session that has it open (collective).

    Parameters
    ----------
    path, mode, options, comm, root
        As for `open_session`; of `comm` a join needs nothing and closes it.
    real : str
        The path without links; "" where there is no file that others could open.
    target : object, optional
        The object that `root` writes to.

    Returns
    -------
    OpenFile
    SessionRef
        To be released once; the last one that is released closes the file.

    Raises
    ------
    OSError
        As `open_session`; the file is open and cannot be opened in this way beside; or the deferred close of another
        file failed.
    ValueError
        It is open with another driver.
    """
    close_forgotten()
    if comm.size > 1:
        parting.part_from_others()
    if options.deferred_close:
        try:
            deferred.close_before_open(comm)
        except BaseException as error:
            _leave(comm, error)
            raise
    claim = OpenAttempt(path, real, mode, options, comm, target) if real or target is not None else None
    since, made, ref = time.perf_counter(), None, None
    while True:
        try:
            # Ranks that wait for each other must hold nothing that their other threads may wait for.
            with registry.lock if comm.size == 1 else contextlib.nullcontext():
                session = open_session(path, mode, options=options, comm=comm, root=root, claim=claim)
                if claim is not None and claim.joins:
                    ref = SessionRef(registry.found(claim.token), writable=mode != "r")
                else:
                    made = session
                    entry = Entry(b"" if claim is None else claim.token, session, target)
                    ref = SessionRef(entry, writable=mode != "r")
                    if claim is not None:
                        registry.enter(entry)
            deferred.note_time("open", since)
            return session, ref
        except Closing as busy:
            deferred.close_held([busy.session])
            registry.wait_for(busy.session)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
            if ref is not None:
                ref.abandon(why)
            elif made is not None:
                made.abort(why)
            deferred.note_time("open", since)
            raise
