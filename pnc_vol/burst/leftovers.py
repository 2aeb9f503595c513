"""The logs of killed jobs are found when their file is opened, and replayed or reported.

Knows: folders, options, ranks. Does not know: bytes of logs.

Rules
-----
1. Logs that hold something are never removed unless they were replayed, or ``nc_burst_buf_overwrite`` says so.
2. A warning reports what was found, whatever the mode; it is replayed with ``recover=True`` and a mode that writes.
3. Logs of another file that had the same name are kept, and replayed only by ``recover="any-file"``: only the user
   knows whether the old posts are wanted.
4. A file that has not got its own name yet (``publish="close"``) has the logs that say its temporary name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pnc_vol.append_log import private_folders
from pnc_vol.append_log.private_folders import FoldersOfJobs
from pnc_vol.burst import files as log_files
from pnc_vol.burst.recovery import ownership, sources
from pnc_vol.disk import identity
from pnc_vol.errors import LogRefusedError
from pnc_vol.file.leftovers import Left, ReplayReport
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options
from pnc_vol.system import LOGS_NOTED, System, exists, is_folder, is_unnamed, neighbour
from pnc_vol.warn import INFO, RECOVERY, tell, warn_outside

__all__ = ["LogRecovery", "leftovers_of", "recover_logs", "replay_logs"]


def leftovers_of(path: str, options: Options) -> FoldersOfJobs:
    """Return the logs that jobs left under the name of a file."""
    system, name = options.system, os.path.basename(path)

    def judge(folders: list[str]) -> str:
        # A replay needs the logs of all ranks.
        if not any(sources.holds_posts(system, folder) for folder in folders):
            return private_folders.DONE
        own = all(ownership.owns(system, ownership.owner_of(system, folder), path) for folder in folders)
        return private_folders.OWN if own else private_folders.FOREIGN

    return log_files.find_logs(path, options, lambda one: ownership.owner_of(system, one).work == name, judge)


class LogRecovery:
    """See `file.leftovers.Recovery`."""

    @staticmethod
    def look_after(path: str, real: str, options: Options, *, writable: bool, replaced: bool) -> None:
        """Replay, remove or report the logs that a killed job left.

        Raises
        ------
        OSError
            A log is asked for, and its folder is missing or cannot be written to.
        LogError
            A log that is to be replayed is damaged; it is kept.
        LogRefusedError
            A log that is to be replayed is in use by a running job or another recovery.
        """
        system = options.system
        unnamed = is_unnamed(real)
        if options.burst_buf and writable:
            parent = log_files.parent_of(real, options)
            if options.burst_buf_dirname or is_folder(system, parent):
                # Checked before the file is touched: a file that cannot have its log must not replace an existing one.
                with suppress(FileNotFoundError):  # another opening may take it for one that a kill left, see `_tidy`
                    system.rmdir(log_files.LOGS.make(system, parent, real))
        if not (options.burst_buf or options.recover or unnamed or exists(system, neighbour(real, LOGS_NOTED))):
            return
        if writable:
            _tidy(real, options)
            if options.burst_buf_overwrite:
                log_files.LOGS.forget_moved(system, real, None)
        found = leftovers_of(real, options)
        own, foreign, everything = found.own, found.foreign, found.held
        if found.closed:
            warn_outside(f"{path}: logs of this file are not read: {'; '.join(_reasons(found))}")
        recovers = options.recover and writable and not replaced
        if recovers and found.alive:
            # What is written from now on would be covered by older posts, if this is another recovery that goes on.
            raise _in_use(path, found.alive)
        if found.alive and writable:
            warn_outside(
                f"{path}: a running job writes to this file through a log in {', '.join(found.alive)}: data that two "
                "jobs write to one file at the same time are lost or mixed. Wait until it has ended"
            )
        if recovers and options.recover == "any-file":
            own, foreign = everything, []
        if options.burst_buf_overwrite and writable:
            # but for those that the same opening is to replay
            for folder in foreign if recovers else everything:
                log_files.remove_logs(system, real, folder)
            if not recovers:
                return
            foreign = []
        if replaced and everything:
            # The mark is needed only where the identity is an inode number, which the system gives to a new file.
            for folder in own if exists(system, real) and identity.by_inode(identity.identity_of(system, real)) else ():
                with suppress(OSError):
                    private_folders.mark_replaced(system, folder)
            _tell(path, "of the file that is replaced now", everything)
            return
        if foreign:
            _tell(path, "of another file that had this name", foreign)
        if recovers and own:
            try:
                recover_logs(real, options, own)
            except LogRefusedError as error:
                if error.field == "lock":
                    raise  # another recovery came between
                warn_outside(f"{path}: logs of a job that ended early are not replayed: {error}")
        elif own:
            warn_outside(
                f"{path}: a job that ended early left posted data that are not in the file, in {', '.join(own)}; "
                "recover=True with mode 'r+' or 'a', or 'pnc-vol replay FILE', puts it into the file "
                "(nc_burst_buf_overwrite=enable removes it)"
            )

    @staticmethod
    def left(real: str, options: Options) -> list[Left]:
        found = leftovers_of(real, options)
        running = [Left(folder, "a log", running=True) for folder in found.alive]
        return running + [Left(folder, "a log") for folder in found.own]


def _reasons(found: FoldersOfJobs) -> list[str]:
    """Return the folders that are not looked into, each with the reason and what to do."""
    return [f"{folder}: {why}" for folder, why in found.closed.items()]


def _tell(path: str, whose: str, folders: Sequence[str]) -> None:
    """Warn of logs that belong to another file; they are kept."""
    warn_outside(
        f"{path}: a job that ended early left posted data {whose}, in {', '.join(folders)}. They are kept and not put "
        "into this file; 'pnc-vol log FOLDER' shows them, 'pnc-vol replay --any-file FILE FOLDER' puts them into a "
        "file all the same, nc_burst_buf_overwrite=enable removes them"
    )


def _tidy(path: str, options: Options) -> None:
    """Remove logs that the note names, left by a kill between the last flush and the end, that hold nothing.

    And folders without a file, of jobs that were killed before they noted them, or after they took them out of the
    note. A job that has just made its folder makes it again (`burst.beginning`).
    """
    system = options.system
    logs = log_files.LOGS
    noted = {private_folders.host_and_folder(line)[1] for line in logs.lines(system, path)}
    for folder in leftovers_of(path, options).done:
        # Another process may remove it at this time.
        with suppress(FileNotFoundError), private_folders.tidying(system, folder, logs.lock) as gone:
            if gone and folder in noted and not sources.holds_posts(system, folder):
                with suppress(OSError):
                    log_files.remove_logs(system, path, folder)
            if gone:
                with suppress(OSError):
                    system.rmdir(folder)
    logs.tidy_notes(system, path)


def recover_logs(path: str, options: Options, folders: list[str]) -> ReplayReport:
    """Replay the logs that killed jobs left of a file, the oldest first, and remove them.

    Raises
    ------
    LogError
        A log is damaged; all are kept.
    """
    # opens files, and so loads the rest of the package: for a log that has something
    from pnc_vol.burst.recovery.replay import replay_into

    system = options.system
    plain = options._replace(burst_buf=False, recover=False, driver="")
    any_file = options.recover == "any-file"
    # All jobs are replayed together: a later job knows a header that an earlier, killed one never had.
    with _removed_by_others(system, path, folders):
        metas = sources.metas_of(system, folders)
        report = replay_into(path, metas, options=plain, any_file=any_file)
    _forget(system, path, folders, metas)
    text = "%s: logs of a killed job were replayed: %d requests from %d logs"
    tell(RECOVERY, INFO, text, path, report.replayed, report.logs)
    if report.torn:
        warn_outside(
            f"{path}: of what a job posted before it ended early, {report.torn} writes are lost, because its log was "
            f"not whole, as after a crash of the node: {'; '.join(report.messages[:3])}"
        )
    return report


def replay_logs(
    path: str, real: str, names: Sequence[str] | None, *, options: Options, comm: Comm, any_file: bool, **how: bool
) -> ReplayReport:
    """Replay logs that are named, which are kept, or those that jobs left of a file, which are removed (collective).

    Parameters
    ----------
    path, real : str, the file's name, and the same without symbolic links.
    names : sequence of str, metadata logs and folders of them; or None.
    any_file, **how : bool, see `replay_into`.

    Raises
    ------
    LogError, OSError
        See `replay_into`; also if the log is that of a running job.
    """
    from pnc_vol.burst.recovery.replay import replay_into

    system = options.system
    left: list[str] = []
    closed: list[str] = []

    def find() -> list[str]:
        if names is None:
            _tidy(real, options)
            left.extend(_left(real, options, closed, any_file=any_file))
            with _removed_by_others(system, real, left):
                return sources.metas_of(system, left)
        return sources.named_logs(system, list(names), real) if names else []

    found = on_root(comm, "replay find", find)
    with _removed_by_others(system, real, left):
        report = replay_into(path, found, options=options, comm=comm, any_file=any_file, **how)
    report.closed += closed
    if comm.rank == 0:
        # what is not here of a job that is replayed in part is not in the file
        _forget(system, real, left, [] if how.get("partial") else found)
    return report


@contextmanager
def _removed_by_others(system: System, path: str, folders: Sequence[str]) -> Iterator[None]:
    """Say that another recovery was quicker, where a file of one of the folders is missing in the block."""
    try:
        yield
    except FileNotFoundError as error:
        missing = os.fsdecode(error.filename or "")
        gone = [folder for folder in folders if missing.startswith(folder) or not exists(system, folder)]
        if not gone:
            raise
        raise _in_use(path, gone) from error


def _forget(system: System, path: str, folders: Sequence[str], metas: Sequence[str]) -> None:
    """Remove folders of logs that were replayed, and take out of the note where the jobs of `metas` had others."""
    for folder in folders:
        log_files.remove_logs(system, path, folder)
    homes = [os.path.dirname(os.path.abspath(meta)) for meta in metas]
    log_files.LOGS.forget_moved(system, path, set(map(os.path.basename, homes)))


def _left(real: str, options: Options, closed: list[str], *, any_file: bool) -> list[str]:
    """Return folders of logs that killed jobs left of a file, or with `any_file` under its name."""
    found = leftovers_of(real, options)
    closed += _reasons(found)
    # Logs of another file are passed on if there are no others, so that the refusal names them.
    folders = found.own + (found.foreign if any_file or not found.own else [])
    if found.alive and not folders:
        raise _in_use(real, found.alive)
    return folders


def _in_use(path: str, folders: Sequence[str]) -> LogRefusedError:
    where = ", ".join(folders)
    return LogRefusedError(
        f"{path}: a running job, or another recovery, has its log in {where}; recover when it has ended", field="lock"
    )
