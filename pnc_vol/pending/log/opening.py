"""What happens to logs when a file is opened: those of a killed job are found, a new one is begun.

Knows: folders, options, ranks. Does not know: bytes of logs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pnc_vol.comm import Comm, on_root
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import PncVolWarning
from pnc_vol.options import Options
from pnc_vol.pending.log.files import Share, folder_for, left_behind, logs_in, pointer_path, remove_folder, stem_of
from pnc_vol.pending.log.queue import LogQueue
from pnc_vol.pending.log.replay import ReplayReport, replay_into
from pnc_vol.system import exists, write_whole

__all__ = ["begin_log", "look_after_leftovers", "recover_logs"]


def parent_of(path: str, options: Options) -> str:
    """The folder that the folders of logs are in."""
    return options.burst_buf_dirname or os.path.dirname(path) or "."


def look_after_leftovers(path: str, options: Options, *, writable: bool, replaced: bool) -> None:
    """Replay, remove or tell of the logs that a killed job left; on rank 0, before the file is opened.

    Parameters
    ----------
    writable : bool, the file is opened for writing.
    replaced : bool, it is made anew: what the logs hold belongs to the old file.
    """
    system = options.system
    real = system.realpath(path)
    if not (options.burst_buf or options.recover or exists(system, pointer_path(real))):
        return
    folders = left_behind(system, real, parent_of(real, options))
    if not folders:
        return
    if options.burst_buf_overwrite:
        for folder in folders:
            remove_folder(system, folder)
        return
    if options.recover and writable and not replaced:
        recover_logs(real, options)
        return
    warnings.warn(
        PncVolWarning(
            f"{path}: a job that ended early left posted data in {', '.join(folders)}; open the file with "
            "mode 'r+' and recover=True, or run 'pnc-vol replay FILE LOGS', to put it into the file "
            "(nc_burst_buf_overwrite=enable removes it)"
        ),
        stacklevel=2,
    )


def recover_logs(path: str, options: Options) -> list[ReplayReport]:
    """Replay the logs that killed jobs left of a file, the oldest first, and remove them.

    Raises
    ------
    LogError
        A log is damaged; it is kept.
    """
    system = options.system
    reports = []
    plain = replace(options, burst_buf=False, recover=False, driver="")
    for folder in left_behind(system, path, parent_of(path, options)):
        reports.append(replay_into(path, [base + ".meta" for base in logs_in(system, folder)], options=plain))
        remove_folder(system, folder)
    with suppress(OSError):
        system.unlink(pointer_path(path))
    return reports


def begin_log(path: str, options: Options, comm: Comm, open_spill: Callable[[], Driver]) -> LogQueue:
    """A queue in a new log, one for each rank (collective).

    Raises
    ------
    OSError
        The folder for logs is missing or cannot be written to; on all ranks.
    """
    system = options.system

    def make() -> bytes:
        folder = folder_for(system, path, parent_of(path, options))
        write_whole(system, pointer_path(path), folder.encode(), mode=0o600)
        return folder.encode()

    folder = on_root(comm, "open log", make).decode()
    name, share = f"{stem_of(path)}_0_{comm.rank}", None
    if options.burst_buf_shared_logs:
        channel, channels, lowest = comm.node()
        name, share = f"{stem_of(path)}_0_{lowest}", Share(channel, channels)
    queue: LogQueue | None = None
    error: BaseException | None = None
    try:
        queue = LogQueue(
            options,
            open_spill,
            base=os.path.join(folder, name),
            path=path,
            rank=comm.rank,
            size=comm.size,
            share=share,
        )
    except Exception as reason:
        error = reason
    try:
        comm.exchange("open logs", error=error)
    except BaseException:
        if queue is not None:
            queue.close(flushed=True)
        raise
    assert queue is not None
    return queue
