"""A file's logs are found by the names of its jobs' folders, and by the note beside the file.

Knows: names. Does not know: what is in a log, which folders are private (`append_log.private_folders`).
"""

from __future__ import annotations

import os
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
from pnc_vol.system import System
from pnc_vol.system.neighbours import LOGS_NOTED, is_unnamed, neighbour

__all__ = [
    "begin_of_names",
    "find_logs",
    "folder_for",
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
    begin = begin_of_names("" if is_unnamed(path) else path)
    named = [folder for note in notes_about(system, path, LOGS_NOTED) for folder in noted_folders(system, note)]
    folders = [folder for folder in named if os.path.basename(folder).startswith(begin)]
    with suppress(OSError):
        folders += folders_named(system, parent, begin)
    return find_folders(system, folders, ".commit")


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
    system.rmdir(folder)
