"""A file's logs are found by the names of its jobs' folders, and by the note beside the file.

Knows: names. Does not know: what is in a log, which folders are private (`append_log.private_folders`).
"""

from __future__ import annotations

import os
from collections.abc import Container
from contextlib import suppress

from pnc_vol.append_log.private_folders import (
    FoldersOfJobs,
    empty_folder,
    find_folders,
    folders_named,
    forget_folder,
    join_folder,
    make_folder,
    name_of_folders,
    noted_folders,
    notes_about,
)
from pnc_vol.settings.options import Options
from pnc_vol.system import LOGS_NOTED, System, exists, is_unnamed, neighbour

__all__ = [
    "begin_of_names",
    "find_logs",
    "folder_for",
    "forget_absent",
    "job_folders",
    "join_log_folder",
    "logs_in",
    "note_of",
    "parent_of",
    "remove_logs",
]

_PREFIX = "pncbb-"
_ADVICE = (
    "nc_burst_buf_dirname: no log folder can be made here ({}); give a folder on a device with room "
    "where you may write, or open the file without a log (nc_burst_buf=disable)"
)

_AWAY = (
    "it is not on this machine. If its job has ended, what it posted last is there alone: 'pnc-vol replay FILE' on its "
    "host, or with the folder brought here 'pnc-vol replay FILE FOLDER', puts it into the file "
    "(nc_burst_buf_overwrite=enable gives it up)"
)


def begin_of_names(path: str = "") -> str:
    """Return the beginning of the names of log folders, of one file or of any."""
    return name_of_folders(_PREFIX, path) if path else _PREFIX


def note_of(path: str) -> str:
    """Return the name of the note beside a file that says where its logs are while they hold what the file does not."""
    return neighbour(path, LOGS_NOTED)


def parent_of(path: str, options: Options) -> str:
    """Return the folder that the folders of logs are in; whole, because who looks for it later may be elsewhere."""
    return os.path.abspath(options.burst_buf_dirname or os.path.dirname(path))


def folder_for(system: System, path: str, parent: str) -> str:
    """Make the folder for the logs of one job.

    Raises
    ------
    OSError
        `parent` is no folder that one can write to.
    """
    return make_folder(system, parent, begin_of_names(path), _ADVICE)


def join_log_folder(system: System, folder: str) -> None:
    """Make a job's folder where another rank of the job did not make it.

    Raises
    ------
    OSError
        It cannot be made, or what has its name is not ours.
    """
    join_folder(system, folder, _ADVICE)


def find_logs(system: System, path: str, parent: str) -> FoldersOfJobs:
    """Look for the logs of a file: in `parent`, and where the note beside the file says.

    Of a file that has not got its own name yet those of all files are found, as they do not have its name either.
    """
    named = folders = _noted(system, path)
    with suppress(OSError):
        folders = named + folders_named(system, parent, begin_of_names("" if is_unnamed(path) else path))
    found = find_folders(system, folders, ".commit")
    found.closed.update(dict.fromkeys(_absent(system, path, named), _AWAY))
    return found


def _noted(system: System, path: str) -> list[str]:
    """Return the folders of a file's logs that the note beside it names."""
    begin = begin_of_names("" if is_unnamed(path) else path)
    named = [folder for note in notes_about(system, path, LOGS_NOTED) for folder in noted_folders(system, note)]
    return [folder for folder in named if os.path.basename(folder).startswith(begin)]


def _absent(system: System, path: str, named: list[str]) -> list[str]:
    """Return those folders that the note names, `named` when it was read, and that are not here."""
    absent = [folder for folder in named if not exists(system, folder)]
    # a job that ends takes its folder out of the note before it removes it
    return [folder for folder in absent if folder in _noted(system, path)] if absent else []


def forget_absent(system: System, path: str, jobs: Container[str] | None = None) -> None:
    """Take out of the note what it names and is not here.

    jobs : container of str, names of folders: only these, because their logs were brought here and replayed.
    """
    for folder in _absent(system, path, _noted(system, path)):
        if jobs is None or os.path.basename(folder) in jobs:
            for note in notes_about(system, path, LOGS_NOTED):
                forget_folder(system, note, folder)


def job_folders(system: System, parent: str, path: str = "") -> list[str]:
    """Return folders of jobs, of one file or of any, sorted."""
    return folders_named(system, parent, begin_of_names(system.realpath(path) if path else ""))


def logs_in(system: System, folder: str) -> list[str]:
    """Return the logs of a folder, without their suffixes, sorted."""
    return sorted(
        os.path.join(folder, name[: -len(".meta")]) for name in system.listdir(folder) if name.endswith(".meta")
    )


def remove_logs(system: System, path: str, folder: str) -> None:
    """Remove the logs of a job, and take their folder out of the note beside the file.

    Raises
    ------
    OSError
        They cannot be removed.
    """
    # The folder is the last to go: the next opening for writing finds by the note what a kill leaves.
    empty_folder(system, folder, ".meta")
    for note in notes_about(system, path, LOGS_NOTED):
        forget_folder(system, note, folder)
    with suppress(FileNotFoundError):
        # another process has removed it, as `empty_folder` says
        system.rmdir(folder)
