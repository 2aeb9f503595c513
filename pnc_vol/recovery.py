"""`replay` puts what a killed job had posted into its file, and what is in a set of subfiles into one file.

Knows: arguments, the ranks that take part. Does not know: what is in a log, a cache, or a set; each is a plug-in, and
what is not installed has left nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from pnc_vol.file.file_sets import file_with_header, files_of
from pnc_vol.file.leftovers import ReplayReport
from pnc_vol.file.registry import refuse_open
from pnc_vol.plugins import own
from pnc_vol.ranks import comm as communicators
from pnc_vol.ranks.mpi_comm import over
from pnc_vol.settings.options import Options, resolve
from pnc_vol.system import CACHES_NOTED, LOGS_NOTED

if TYPE_CHECKING:
    from pnc_vol.blob.replay import BlobReport, Progress

__all__ = ["replay"]

PathLike = str | os.PathLike[str]


@overload
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
) -> ReplayReport: ...


@overload
def replay(
    path: PathLike,
    *,
    output: PathLike,
    comm: Any = None,
    variables: Sequence[str] | None = None,
    overwrite: bool = False,
    remove: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> BlobReport: ...


def replay(
    path: PathLike,
    logs: PathLike | Sequence[PathLike] | None = None,
    *,
    output: PathLike | None = None,
    comm: Any = None,
    salvage: bool = False,
    partial: bool = False,
    uncounted: bool = False,
    any_file: bool = False,
    variables: Sequence[str] | None = None,
    overwrite: bool = False,
    remove: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> ReplayReport | BlobReport:
    """Put what burst-buffer logs and node-local caches hold into a file, or what a set of subfiles holds into one file.

    With `output` it does the latter. It is collective if there is a communicator.

    Parameters
    ----------
    path : path-like
        The file, or the set of subfiles, by the name that it was created with. The path in a log is never followed.
        With `output` the name of a subfile means the set, too.
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
    output : path-like, optional
        The file to be written: that which ``layout="canonical"`` would have written in place of the subfiles.
    variables : sequence of str, optional
        With `output`: datasets, and groups with all in them, that are copied; by default all.
    overwrite : bool
        With `output`: replace it if it exists.
    remove : bool
        With `output`: remove the subfiles when it is whole and on stable storage.
    progress : callable, optional
        With `output`: called on rank 0 as ``progress(done, total, name)``, in bytes.
    **options
        As of `File`, e.g. ``burst_buf_dirname`` or ``hints``; with `output` also ``format`` and ``header_reserve``.

    Returns
    -------
    ReplayReport, or with `output` BlobReport
        Its ``whole`` is False if something was missing. In a set of subfiles that are elements that no blob holds,
        which are the fill value in `output`, and records that only some subfiles have, which are left out.

    Raises
    ------
    LogError
        A log is damaged, or says what cannot be; the file is as it was.
    LogRefusedError
        The logs may be good, and are not for this file, or not now.
    FormatError
        A subfile is missing, damaged, or of another set, or blobs hold the same elements; `output` is not written.
    OSError
        A log, a subfile or the file cannot be read or written.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("out.nc", "w") as f:
    ...     f["x"] = [1, 2, 3]
    >>> report = pnc_vol.replay("out.nc")  # no job left a log of this file
    >>> report.logs, report.replayed
    (0, 0)
    >>> with pnc_vol.File("set.nc", "w", layout="blob") as f:
    ...     f["x"] = [1, 2, 3]
    >>> pnc_vol.replay("set.nc", output="one.nc").whole, pnc_vol.File("one.nc")["x"][...].tolist()
    (True, [1, 2, 3])
    """
    resolved = resolve(options)
    target = os.fspath(path)
    if output is not None:
        if logs is not None or salvage or partial or uncounted or any_file:
            raise TypeError("replay() of a set of subfiles (output=) takes no logs, and no options of logs")
        return _blobs(
            target,
            os.fspath(output),
            resolved,
            comm,
            names=variables,
            overwrite=overwrite,
            remove=remove,
            progress=progress,
        )
    if variables is not None or overwrite or remove or progress is not None:
        raise TypeError("replay() takes variables, overwrite, remove and progress with output= alone")
    # The log of a set of subfiles is that of its first one; each has caches of its own.
    members = files_of(resolved.system, target)
    target = members[0]
    reals = [resolved.system.realpath(os.path.abspath(member)) for member in members]
    for member, real in zip(members, reals, strict=True):
        refuse_open(real, member)
    ranks = communicators.serial() if comm is None else over(comm, timeout=resolved.collective_timeout)
    given = [logs] if isinstance(logs, (str, os.PathLike)) else list(logs or ())
    names = [os.fspath(name) for name in given]
    flags = {"salvage": salvage, "partial": partial, "any_file": any_file}
    report, carried = ReplayReport(), None
    there = own("pnc_vol.recoveries")
    if CACHES_NOTED in there:
        from pnc_vol.cache.folders import is_cache_folder
        from pnc_vol.cache.recovery import replay_caches

        cache_folders = [name for name in names if is_cache_folder(resolved.system, name)]
        names = [name for name in names if name not in cache_folders]
        # Caches first: they hold the header that logs are replayed upon.
        wanted = None if logs is None else cache_folders
        carried = replay_caches(reals, wanted, options=resolved, comm=ranks, **flags)
    if LOGS_NOTED in there:
        from pnc_vol.burst.leftovers import replay_logs

        wanted = None if logs is None else names
        report = replay_logs(target, reals[0], wanted, options=resolved, comm=ranks, uncounted=uncounted, **flags)
    if carried is not None:
        report.caches, report.carried, report.headers = carried.caches, carried.carried, carried.headers
        report.messages += carried.messages
    return report


def _blobs(base: str, output: str, options: Options, comm: Any, **how: Any) -> BlobReport:
    """Replay a set of subfiles."""
    from pnc_vol.blob.replay import replay_blobs

    if how["remove"] and how["names"] is not None:
        raise ValueError("remove=True would lose what is not among the variables: leave one of them out")
    for name in (base, file_with_header(options.system, base)):
        refuse_open(options.system.realpath(os.path.abspath(name)), base)
    refuse_open(options.system.realpath(os.path.abspath(output)), output, replaced=True)
    ranks = communicators.serial() if comm is None else over(comm, timeout=options.collective_timeout)
    return replay_blobs(base, output, options=options, comm=ranks, **how)
