"""Where logs are: the folder of a job, the note beside the file, and the logs that ended jobs left behind.

Knows: folders, names, locks, owners. Does not know: what is in a log.

Rules
-----
1. Every job has a folder of its own (0700), named after the full path of the file and a random token, so that two
   jobs, or two files of one name, never use the same folder.
2. The commit records are locked while their job runs: an unlocked log was left by a job that has ended.
3. A folder counts only if it is private: a real folder of this user, to which no other user may write. What others put
   under such a name is not read, and a warning says so.
4. The note beside the file is not trusted: what it names counts only if its name is that of a log of this very file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from contextlib import suppress
from typing import NamedTuple

from pnc_vol.disk.journal import neighbour
from pnc_vol.system import System, exists, read_whole, write_whole

__all__ = [
    "Found",
    "find_folders",
    "folder_for",
    "folders_in",
    "forget_folder",
    "is_alive",
    "join_folder",
    "logs_in",
    "note_folder",
    "noted_folders",
    "pointer_path",
    "remove_folder",
    "stem_of",
]

_PREFIX = "pncbb-"
_MOST_NOTES = 64 << 10


def stem_of(path: str) -> str:
    """The part of a log's name that tells a person which file it belongs to."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path))[:64] or "file"


def _key(path: str) -> str:
    digest = hashlib.sha256(os.path.abspath(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{_PREFIX}{stem_of(path)}-{digest}-"


def folder_for(system: System, path: str, parent: str) -> str:
    """Make the folder for the logs of one job.

    Raises
    ------
    OSError
        `parent` is no folder that one can write to.
    """
    folder = os.path.join(parent, _key(path) + system.token())
    try:
        system.mkdir(folder, 0o700)
    except OSError as error:
        raise _not_made(error, folder) from error
    return folder


def join_folder(system: System, folder: str) -> None:
    """Make a job's folder where another rank of the job did not make it.

    Raises
    ------
    OSError
        It cannot be made, or what has its name is not ours.
    """
    if exists(system, folder):
        if why := _not_ours(system.lstat(folder)):
            raise PermissionError(errno.EACCES, f"a log folder of this name is not private to this user: {why}", folder)
        return
    try:
        system.mkdir(folder, 0o700)
    except FileExistsError:
        # Another rank of this node came first.
        join_folder(system, folder)
    except OSError as error:
        raise _not_made(error, folder) from error


def _not_made(error: OSError, folder: str) -> OSError:
    text = (
        f"nc_burst_buf_dirname: no log folder can be made here ({error.strerror}); give a folder on a device with room "
        "where you may write, or open the file without a log (nc_burst_buf=disable)"
    )
    return type(error)(error.errno, text, os.path.dirname(folder))


class Found(NamedTuple):
    """The folders of logs under the name of a file.

    gone : list of str, of jobs that are gone, oldest first.
    alive : list of str, of jobs that still run on this machine.
    closed : dict of str to str, folders that are not looked into, and why, with what to do.
    """

    gone: list[str]
    alive: list[str]
    closed: dict[str, str]


def find_folders(system: System, path: str, parent: str) -> Found:
    """Look for the logs of a file: in `parent`, and where the note beside the file says."""
    key = _key(path)
    folders = [folder for folder in noted_folders(system, path) if os.path.basename(folder).startswith(key)]
    with suppress(OSError):
        folders += [os.path.join(parent, name) for name in system.listdir(parent) if name.startswith(key)]
    found, times = Found([], [], {}), {}
    for folder in dict.fromkeys(folders):
        try:
            there = system.lstat(folder)
            if why := _not_ours(there):
                found.closed[folder] = why
                continue
            (found.alive if is_alive(system, folder) else found.gone).append(folder)
            times[folder] = there.st_mtime_ns
        except FileNotFoundError:
            continue
        except OSError as error:
            found.closed[folder] = f"it cannot be read ({error.strerror}); 'chmod 700' restores the permission"
    found.gone.sort(key=lambda folder: times[folder])
    return found


def _not_ours(there: os.stat_result) -> str:
    """Why a folder may be another user's doing, and what to do if it is not; "" if it is this user's alone."""
    if stat.S_ISLNK(there.st_mode):
        return "it is a symbolic link; name the folder that it leads to"
    if not stat.S_ISDIR(there.st_mode):
        return "it is not a folder"
    if there.st_uid != os.geteuid():
        return f"it belongs to user {there.st_uid}, and this is user {os.geteuid()}; let its owner replay it"
    if there.st_mode & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(there.st_mode):o}); 'chmod 700' it if its content is yours"
    return ""


def is_alive(system: System, folder: str) -> bool:
    """Whether the job of a folder still runs on this machine.

    Raises
    ------
    OSError
        The folder cannot be looked into.
    """
    for name in system.listdir(folder):
        if ".commit" in name:
            fd = system.open(os.path.join(folder, name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                system.flock(fd, exclusive=True)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                    return True
            finally:
                system.close(fd)
    return False


def folders_in(system: System, parent: str, path: str = "") -> list[str]:
    """Folders of jobs, of one file or of any, sorted."""
    key = _key(system.realpath(path)) if path else _PREFIX
    return sorted(os.path.join(parent, name) for name in system.listdir(parent) if name.startswith(key))


def logs_in(system: System, folder: str) -> list[str]:
    """The logs of a folder, without their suffixes, sorted."""
    return sorted(
        os.path.join(folder, name[: -len(".meta")]) for name in system.listdir(folder) if name.endswith(".meta")
    )


def remove_folder(system: System, folder: str) -> None:
    """Remove the logs of a job; without a metadata log, which goes first, nothing in it counts."""
    for name in sorted(system.listdir(folder), key=lambda name: not name.endswith(".meta")):
        system.unlink(os.path.join(folder, name))
    system.rmdir(folder)


# ---------------------------------------------------------------------------------- the note beside the file


def pointer_path(path: str) -> str:
    """The name of the note beside a file that says where its logs are while they hold what the file does not."""
    return neighbour(path, "pncbb")


def noted_folders(system: System, path: str) -> list[str]:
    """The folders that the note beside a file names, a line each; none if there is no note."""
    with suppress(OSError, UnicodeDecodeError):
        lines = read_whole(system, pointer_path(path), limit=_MOST_NOTES).decode().splitlines()
        # a note that a power failure left in pieces may hold zeros, which are in no path
        return [line for line in lines if "\0" not in line]
    return []


def note_folder(system: System, path: str, folder: str, *, durable: bool) -> None:
    """Add a folder to the note; what a killed job noted stays.

    Parameters
    ----------
    durable : bool
        Bring the note to stable storage; its name is brought there with the file's.

    Raises
    ------
    OSError
        The note cannot be written.
    """
    _write_note(system, path, [*_still_there(system, path), folder], durable=durable)


def forget_folder(system: System, path: str, folder: str) -> None:
    """Take a folder out of the note, and the note away with the last one."""
    with suppress(OSError):
        noted = noted_folders(system, path)
        if folder in noted:
            # What others noted may be on another node.
            # what it named has gone: an older note does no harm, and a torn one must not lose the others
            _write_note(system, path, [other for other in noted if other != folder], durable=True)


def _still_there(system: System, path: str) -> list[str]:
    found = []
    for folder in noted_folders(system, path):
        with suppress(OSError):
            system.lstat(folder)
            found.append(folder)
    return found


def _write_note(system: System, path: str, folders: list[str], *, durable: bool) -> None:
    note = pointer_path(path)
    if not folders:
        system.unlink(note)
        return
    # A rename puts a new file under the name, whatever link somebody left there.
    made = f"{note}.{system.token()}"
    text = "".join(f"{folder}\n" for folder in folders)
    try:
        write_whole(system, made, text.encode(), mode=0o600, exclusive=True, durable=durable)
        system.rename(made, note)
    except OSError:
        with suppress(OSError):
            system.unlink(made)
        raise
