"""Putting what a killed job had posted into its file.

Knows: which logs are meant, the ranks that take part. Does not know: what is in a log (`log`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from pnc_vol import comm as communicators
from pnc_vol.errors import LogRefusedError
from pnc_vol.file.registry import refuse_open
from pnc_vol.log.folders import remove_logs
from pnc_vol.options import Options, resolve
from pnc_vol.recovery.cache_folders import is_cache_folder
from pnc_vol.recovery.caches import replay_caches
from pnc_vol.recovery.leftovers import leftovers_of
from pnc_vol.recovery.replay import ReplayReport, replay_into
from pnc_vol.recovery.sources import metas_of, named_logs

__all__ = ["replay"]

PathLike = str | os.PathLike[str]


def replay(
    path: PathLike,
    logs: PathLike | Sequence[PathLike] | None = None,
    *,
    comm: Any = None,
    salvage: bool = False,
    partial: bool = False,
    uncounted: bool = False,
    any_file: bool = False,
    **options: Any,
) -> ReplayReport:
    """Put what burst-buffer logs and node-local caches hold into a file (collective if there is a communicator).

    Parameters
    ----------
    path : path-like
        The file. The path in a log is never followed.
    logs : path-like, sequence of them, or None
        Metadata logs (``NAME.meta``) and folders of logs, of pnc_vol or of the C library, or ``nc_burst_buf_dirname``,
        for those of this file in it. They are kept, those of pnc_vol marked as done. None: those that killed jobs left
        of this file, beside it, in ``burst_buf_dirname`` or where they noted it; these are removed afterwards. Folders
        of caches may be named too; by default they are found where the hint ``e10_cache_path`` or a note says.
    comm : mpi4py communicator, optional
        Ranks that share the work. Any number, whatever number wrote.
    salvage : bool
        Replay what is good of a damaged log.
    partial : bool
        Replay the logs of some ranks without those of the others.
    uncounted : bool
        Also entries beyond the count of a log of the C library: flushed before, or of calls that never returned.
    any_file : bool
        Also logs of another file: of one that this file replaced, or that it was copied from. By default they are
        refused, because what they hold was posted to that file.
    **options
        As of `File`, e.g. ``burst_buf_dirname`` or ``hints``.

    Returns
    -------
    ReplayReport

    Raises
    ------
    LogError
        A log is damaged, or says what cannot be; the file is as it was.
    LogRefusedError
        The logs may be good, and are not for this file, or not now.
    OSError
        A log or the file cannot be read or written.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("out.nc", "w") as f:
    ...     f["x"] = [1, 2, 3]
    >>> report = pnc_vol.replay("out.nc")  # no job left a log of this file
    >>> report.logs, report.replayed
    (0, 0)
    """
    resolved = resolve(options)
    target = os.fspath(path)
    real = resolved.system.realpath(os.path.abspath(target))
    refuse_open(real, target)
    ranks = communicators.serial() if comm is None else communicators.over(comm, timeout=resolved.collective_timeout)
    given = [logs] if isinstance(logs, (str, os.PathLike)) else list(logs or ())
    names = [os.fspath(name) for name in given]
    cache_folders = [name for name in names if is_cache_folder(resolved.system, name)]
    log_names = [name for name in names if name not in cache_folders]
    left: list[str] = []
    closed: list[str] = []

    def find() -> bytes:
        if logs is None:
            left.extend(_left(real, resolved, closed, any_file=any_file))
            return json.dumps(metas_of(resolved.system, left)).encode()
        return json.dumps(named_logs(resolved.system, log_names, real) if log_names else []).encode()

    flags = {"salvage": salvage, "partial": partial, "any_file": any_file}

    def carry() -> bytes:
        """Caches first: they hold the header that logs are replayed upon."""
        carried = replay_caches(real, cache_folders if logs is not None else None, options=resolved, **flags)
        return json.dumps([carried.caches, carried.nbytes, carried.headers, carried.messages]).encode()

    caches, carried, headers, told = json.loads(communicators.on_root(ranks, "replay caches", carry))
    found = json.loads(communicators.on_root(ranks, "replay find", find))
    first = ranks.rank == 0
    report = replay_into(
        target,
        found,
        options=resolved,
        comm=ranks,
        salvage=salvage,
        partial=partial,
        uncounted=uncounted,
        any_file=any_file,
    )
    report.caches, report.carried, report.headers = caches, carried, headers
    report.messages += told
    report.closed += closed
    if first:
        _remove(real, resolved, left)
    return report


def _left(real: str, options: Options, closed: list[str], *, any_file: bool) -> list[str]:
    """Folders of logs that killed jobs left of a file, or with `any_file` under its name."""
    found = leftovers_of(real, options)
    closed += found.closed
    # Where all are of another file they are named, so that the refusal says which.
    folders = found.own + (found.foreign if any_file or not found.own else [])
    if found.alive and not folders:
        raise LogRefusedError(
            f"{real}: a running job has its log in {', '.join(found.alive)}; replay when it has ended",
            field="lock",
        )
    return folders


def _remove(real: str, options: Options, folders: list[str]) -> None:
    for folder in folders:
        remove_logs(options.system, real, folder)
