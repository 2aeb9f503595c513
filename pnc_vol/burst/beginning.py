"""`begin_log` begins the logs of a job, one for each rank, in a folder that a note beside the file names.

Knows: folders, options, ranks. Does not know: what is in a log, logs of other jobs.

Rules
-----
1. The folder is made by rank 0 and joined by the others, which may be on nodes with storage of their own.
2. If one rank cannot begin its log, all ranks fail, and the files made so far are removed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pnc_vol.append_log.private_folders import forget_folder, note_folders, stem_of
from pnc_vol.append_log.records import Share
from pnc_vol.burst.definition_writer import LoggedFile
from pnc_vol.burst.files import LOGS, note_of, parent_of
from pnc_vol.burst.store import LogStore
from pnc_vol.disk.identity import identify
from pnc_vol.errors import FULL, CollectiveMismatchError
from pnc_vol.queue.stores import StoreContext
from pnc_vol.ranks.comm import Comm, joined_lists, on_root
from pnc_vol.settings.options import Options
from pnc_vol.system import is_folder
from pnc_vol.warn import warn_outside

__all__ = ["begin_log"]


def _missing_folder(options: Options) -> OSError | None:
    """Return the reason why this rank's folder for logs, which may be on its node, cannot be used; "" if it can.

    It is asked before the file is touched, so that one that cannot have a log everywhere replaces none.
    """
    folder = options.burst_buf_dirname
    if not folder or is_folder(options.system, folder):
        return None
    return FileNotFoundError(errno.ENOENT, "nc_burst_buf_dirname: there is no such folder", folder)


def begin_log(context: StoreContext) -> LogStore:
    """Begin a log, one for each rank, as the store ``log`` of a queue (collective).

    Raises
    ------
    OSError
        The folder for logs is missing or cannot be written to; on all ranks.
    """
    options, comm, system = context.options, context.comm, context.options.system
    location = context.disk.standing
    assert location is not None
    path, file = location.path, LoggedFile(context.disk)

    def make() -> tuple[bytes, bytes]:
        identity = identify(system, file.work, durable=options.burst_buf_sync != "none")
        return identity, os.fsencode(LOGS.make(system, parent_of(path, options), path))

    file.identity, of_root = on_root(comm, "open log", make)
    first = os.fsdecode(of_root)
    # Storage of a node's own has no folder yet that rank 0 made elsewhere.
    folder = os.path.join(parent_of(path, options), os.path.basename(first))
    name, share, lowest = f"{stem_of(path)}_0_{comm.rank}", None, comm.rank
    if options.burst_buf_shared_logs:
        channel, channels, lowest = comm.nodes().place_of(comm.rank)
        name, share = f"{stem_of(path)}_0_{lowest}", Share(channel, channels)
    store: LogStore | None = None
    error: BaseException | None = None
    try:
        begin = partial(
            LogStore,
            context.backlog,
            options,
            base=os.path.join(folder, name),
            path=path,
            file=file,
            rank=comm.rank,
            size=comm.size,
            share=share,
        )

        def noted() -> LogStore:
            if comm.rank == 0:
                _note(options, path, folder)
            return begin()

        store = LOGS.begin_files(system, folder, noted)
    except OSError as reason:
        error = _named(reason, folder)
    except Exception as reason:
        error = reason
    try:
        own = [lowest if share is not None else 0, os.fsencode(folder)]
        folders = [(number, one) for number, one in comm.merge("open logs", [own], joined_lists, error=error)]
        if share is not None:
            _same_folders(comm, folders)
    except BaseException:
        if store is not None:
            store.close(flushed=True, empty=True)
        with suppress(OSError):
            system.rmdir(folder)
        if comm.rank == 0:
            forget_folder(system, note_of(path), folder)
        raise
    if comm.rank == 0:
        for other in {os.fsdecode(one) for _, one in folders} - {folder}:
            _note(options, path, other)
    assert store is not None
    return store


begin_log.trouble = _missing_folder  # type: ignore[attr-defined]


def _named(error: OSError, folder: str) -> OSError:
    """Return the error with the folder that it is about, and what to do if there is no room."""
    parent = os.path.dirname(folder)
    if error.errno in FULL:
        full = "your quota there is used up" if error.errno == errno.EDQUOT else "its device is full"
        text = (
            f"nc_burst_buf_dirname: no log can be created in this folder: {full} ({error.strerror}). Free space there, "
            "name a folder on another device, or open the file without a log (nc_burst_buf=disable)"
        )
        return type(error)(error.errno, text, parent)
    if error.filename is None:
        return type(error)(error.errno, f"nc_burst_buf_dirname: no log can be created here ({error.strerror})", parent)
    return error


def _note(options: Options, path: str, folder: str) -> None:
    try:
        note_folders(options.system, note_of(path), [folder], durable=options.burst_buf_sync != "none")
    except OSError as error:
        warn_outside(
            f"{path}: no note of its log can be written beside it ({error.strerror}). The log is in {folder}; "
            "keep this name for a replay"
        )


def _same_folders(comm: Comm, folders: Sequence[tuple[int, bytes]]) -> None:
    """Raise if ranks that share files look for them in different folders; the same on all ranks."""
    nodes: dict[int, set[bytes]] = {}
    for lowest, folder in folders:
        nodes.setdefault(lowest, set()).add(folder)
    apart = next((folders for folders in nodes.values() if len(folders) > 1), None)
    if apart:
        named = ", ".join(sorted(os.path.dirname(os.fsdecode(folder)) for folder in apart))
        raise comm.on_all(
            CollectiveMismatchError(
                f"ranks of one node share their logs, and have different nc_burst_buf_dirname: {named}. Give the same"
            )
        )
