"""A job has a private folder; a note says where it is, and a lock whether the job still runs.

Knows: folders, names, locks, owners. Does not know: what is in the files of a folder.

Rules
-----
1. Every job has a folder of its own (0700), named after the full path of the file and a random token, so that two
   jobs, or two files of one name, never use the same folder.
2. A file of the folder is locked while its job runs: a folder without a locked file was left by a job that has ended.
   The folder itself is locked while a rank makes its files there (`begin_files`), and while what a job left is removed
   (`tidying`): so nobody removes the files of a job that is about to lock them.
3. A folder counts only if it is private: a real folder of this user, to which no other user may write. What others put
   under such a name is not read, and a warning says so.
4. A note is not trusted: what it names counts only if its name is one that this very file's folders have.
5. A line of a note is a folder, or ``HOST:FOLDER`` where it is known on which host that is. Of two processes that
   change a note at a time, none undoes what the other one did, where the file system has locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from pnc_vol.system import System, closing_if_it_fails, exists, is_unnamed, neighbour, undo_if_interrupted
from pnc_vol.system.full_io import read_whole, write_all, write_whole

__all__ = [
    "DONE", "FOREIGN", "OWN", "FoldersOfJobs", "JobFolders", "empty_folder", "forget_folder", "host_and_folder",
    "is_here", "is_replaced", "lock_patiently", "mark_replaced", "missing_ranks", "note_folders", "noted",
    "remove_folder", "stem_of", "tidying",
]  # fmt: skip

T = TypeVar("T")

_MOST_NOTES = 1 << 20
_PATIENCE, _NAP = 200, 0.005
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def stem_of(path: str) -> str:
    """Return the part of a log's name that tells a person which file it belongs to."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path))[:64] or "file"


class JobFolders(NamedTuple):
    """The folders of one kind, of logs or of caches, that jobs have for a file: their names, and the notes with these.

    prefix : str, what their names begin with.
    noted_as : str, suffix of the names of notes; see `neighbours`.
    lock : str, part of the names of the files that a writer locks.
    advice : str, the message if a folder cannot be made; ``{}`` stands for the reason.

    Examples
    --------
    >>> JobFolders("pncbb-", "pncbb", ".commit", "no log here: {}").name("/data/out.nc")
    'pncbb-out.nc-4b9764767a4cd8f8-'
    """

    prefix: str
    noted_as: str
    lock: str
    advice: str

    def name(self, path: str) -> str:
        """Return what the names of all folders for a file begin with."""
        import hashlib  # with OpenSSL's library it takes long to load, and plain files have no folder

        digest = hashlib.sha256(os.path.abspath(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return f"{self.prefix}{stem_of(path)}-{digest}-"

    def _begin(self, path: str) -> str:
        """Return what the names of the folders that are looked at begin with: of any file, for one without its own
        name."""
        return self.prefix if is_unnamed(path) else self.name(path)

    def note_of(self, path: str) -> str:
        """Return the name of the note beside a file that has its own name."""
        return neighbour(path, self.noted_as)

    def notes(self, system: System, path: str) -> list[str]:
        """Return the notes that may name folders of a file: of one without its own name yet, all in its folder."""
        if not is_unnamed(path):
            return [self.note_of(path)]
        folder, suffix = os.path.dirname(path), f".{self.noted_as}"
        return [os.path.join(folder, name) for name in system.listdir(folder or ".") if name.endswith(suffix)]

    def lines(self, system: System, path: str) -> list[str]:
        """Return the lines of the notes that name folders of a file."""
        lines, begin = (line for note in self.notes(system, path) for line in noted(system, note)), self._begin(path)
        return [line for line in lines if os.path.basename(line).startswith(begin)]

    def in_parent(self, system: System, parent: str, begin: str) -> list[str]:
        """Return the folders in a folder whose names begin so, sorted.

        Raises
        ------
        OSError
            The folder cannot be read.
        """
        return sorted(os.path.join(parent, name) for name in system.listdir(parent) if name.startswith(begin))

    def find(
        self, system: System, path: str, parent: str, is_of: Callable[[str], bool], judge: Callable[[list[str]], str]
    ) -> FoldersOfJobs:
        """Find the folders of a file: where the notes say, and in `parent` unless that is "".

        Parameters
        ----------
        is_of : callable, whether a folder is of a file without its own name.
        judge : callable
            What the folders of a job that is gone, which has one on each node, hold: one of `HOLDS`.
        """
        folders = [host_and_folder(line)[1] for line in self.lines(system, path)]
        with suppress(OSError):
            folders += self.in_parent(system, parent, self._begin(path)) if parent else []
        gone, alive, closed = _find_folders(system, folders, self.lock)
        if is_unnamed(path):
            gone, alive, closed = list(filter(is_of, gone)), list(filter(is_of, alive)), {}
        verdict = {}
        for job in dict.fromkeys(map(os.path.basename, gone)):
            # The last process of a job, or a recovery, may just be removing it.
            with suppress(FileNotFoundError):
                verdict[job] = judge([folder for folder in gone if os.path.basename(folder) == job])
        return FoldersOfJobs({folder: verdict.get(os.path.basename(folder), GOING) for folder in gone}, alive, closed)

    def missing(self, system: System, path: str, closed: Mapping[str, str]) -> dict[str, str]:
        """Return the lines of the notes that name folders which cannot be read here, and why.

        closed : mapping, of `FoldersOfJobs`.
        """
        found = {}
        for line in self.lines(system, path):
            folder = host_and_folder(line)[1]
            if folder in closed or not exists(system, folder):
                found[line] = closed.get(folder, "it is not on this machine")
        # a job that ends takes its folder out of the note before it removes it
        there = self.lines(system, path) if found else ()
        return {line: why for line, why in found.items() if line in there}

    def make(self, system: System, parent: str, path: str) -> str:
        """Make the folder of one job; a random token is appended to its name.

        Raises
        ------
        OSError
            `parent` is no folder that one can write to.
        """
        folder = os.path.join(parent, self.name(path) + system.token())
        _make(system, folder, self.advice)
        return folder

    def begin_files(self, system: System, folder: str, begin: Callable[[], T]) -> T:
        """Make files in a job's folder, which is made where another rank of the job did not make it.

        Nobody removes the folder meanwhile, nor the files. Before, an opening of the file by another job may take an
        empty folder for one that a kill left, and remove it.

        begin : callable, makes the files and locks those of a writer.

        Raises
        ------
        OSError
            The folder cannot be made, or what has its name is not ours.
        """
        for tries in (2, 1, 0):
            try:
                _join(system, folder, self.advice)
                with _making(system, folder):
                    return begin()
            except FileNotFoundError:
                if not tries:
                    raise
        raise AssertionError

    def forget(self, system: System, path: str, folders: Iterable[str], *, everywhere: bool = True) -> bool:
        """Take folders, or lines, out of the notes, see `forget_folder`; whether that could be done."""
        notes = self.notes(system, path)
        done = [forget_folder(system, note, one, everywhere=everywhere) for note in notes for one in folders]
        return all(done)

    def forget_moved(self, system: System, path: str, jobs: Container[str] | None) -> None:
        """Take out of the notes what is not here.

        jobs : container of str, names of folders: only these, as they were brought here and recovered; None for all.
        """
        away = [line for line in self.lines(system, path) if not is_here(system, line)]
        self.forget(system, path, [line for line in away if jobs is None or os.path.basename(line) in jobs])

    def tidy_notes(self, system: System, path: str) -> None:
        """Remove the notes that name nothing, as far as there are such and they can be removed."""
        for note in self.notes(system, path):
            if exists(system, note):
                with suppress(OSError):
                    _change_note(system, note, lambda there: there, durable=False)


def _join(system: System, folder: str, advice: str) -> None:
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
        _make(system, folder, advice)
    except FileExistsError:
        # Another rank of this node came first.
        _join(system, folder, advice)


def _make(system: System, folder: str, advice: str) -> None:
    undo_if_interrupted(lambda: remove_folder(system, folder, ""))
    try:
        system.mkdir(folder, 0o700)
    except OSError as error:
        raise type(error)(error.errno, advice.format(error.strerror), os.path.dirname(folder)) from error


def lock_patiently(system: System, fd: int, *operation: int) -> None:
    """Lock a file as `System.flock` does; wait for those who have the lock for a moment only.

    It goes on without the lock after a second, and where the file system has none.
    """
    for _ in range(_PATIENCE):
        try:
            system.flock(fd, *operation)
        except BlockingIOError:
            time.sleep(_NAP)
            continue
        except OSError:
            pass  # the file system has no locks
        break


@contextmanager
def _making(system: System, folder: str) -> Iterator[None]:
    """Let no other process remove a folder, nor its files, in the block, which makes and locks files there.

    Raises
    ------
    FileNotFoundError
        One has removed it before.
    """
    fd = system.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # ranks of a job are there at the same time
        lock_patiently(system, fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        opened, there = system.fstat(fd), system.lstat(folder)
        if (opened.st_dev, opened.st_ino) != (there.st_dev, there.st_ino):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        yield
    finally:
        system.close(fd)


@contextmanager
def tidying(system: System, folder: str, lock: str) -> Iterator[bool]:
    """Yield whether the job of a folder is gone; if so, no job makes files there in the block.

    lock : str, as in `_is_alive`.

    Raises
    ------
    FileNotFoundError
        There is no such folder any more.
    """
    fd = system.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        begins = False
        try:
            system.flock(fd)
        except BlockingIOError:
            begins = True
        except OSError:
            pass  # the file system has no locks
        yield not (begins or _is_alive(system, folder, lock))
    finally:
        system.close(fd)


OWN, FOREIGN, DONE, GOING = HOLDS = ("own", "foreign", "done", "going")
"""What the folders of a job that is gone hold: something of the file; something of another file that had its name;
nothing that was promised; or somebody is just removing them."""


class FoldersOfJobs(NamedTuple):
    """The folders of a file.

    gone : dict of str to str, of jobs that are gone, oldest first, and what they hold, of `HOLDS`.
    alive : list of str, of jobs that still run on this machine.
    closed : dict of str to str, folders that are not looked into, and why, with what to do.
    """

    gone: dict[str, str]
    alive: list[str]
    closed: dict[str, str]

    @property
    def own(self) -> list[str]:
        """Folders of jobs that are gone, which hold something of the file, oldest first."""
        return [folder for folder, holds in self.gone.items() if holds == OWN]

    @property
    def foreign(self) -> list[str]:
        """The same of another file."""
        return [folder for folder, holds in self.gone.items() if holds == FOREIGN]

    @property
    def held(self) -> list[str]:
        """Both."""
        return [folder for folder, holds in self.gone.items() if holds in (OWN, FOREIGN)]

    @property
    def done(self) -> list[str]:
        """Folders of jobs that are gone, which hold nothing."""
        return [folder for folder, holds in self.gone.items() if holds == DONE]


def _find_folders(system: System, folders: Iterable[str], lock: str) -> tuple[list[str], list[str], dict[str, str]]:
    """Return those of some folders that are private, of jobs that are gone, oldest first, and of such that still run;
    and those that are not looked into, and why.

    Parameters
    ----------
    folders : iterable of str, each may be named several times, and need not be there.
    lock : str, as in `_is_alive`.
    """
    alive: list[str] = []
    gone: dict[str, int] = {}
    closed: dict[str, str] = {}
    for folder in dict.fromkeys(folders):
        try:
            there = system.lstat(folder)
            if why := _not_ours(there):
                closed[folder] = why
            elif _is_alive(system, folder, lock):
                alive.append(folder)
            else:
                gone[folder] = there.st_mtime_ns
        except FileNotFoundError:
            continue
        except OSError as error:
            closed[folder] = f"it cannot be read ({error.strerror}); 'chmod 700' restores the permission"
    return sorted(gone, key=gone.__getitem__), alive, closed


def _not_ours(there: os.stat_result) -> str:
    """Return why a folder may be another user's doing, and what to do if it is not; "" if it is this user's alone."""
    if stat.S_ISLNK(there.st_mode):
        return "it is a symbolic link; name the folder that it leads to"
    if not stat.S_ISDIR(there.st_mode):
        return "it is not a folder"
    if there.st_uid != os.geteuid():
        return f"it belongs to user {there.st_uid}, and this is user {os.geteuid()}; let its owner replay it"
    if there.st_mode & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(there.st_mode):o}); 'chmod 700' it if its content is yours"
    return ""


def _is_alive(system: System, folder: str, lock: str) -> bool:
    """Return whether the job of a folder still runs on this machine.

    Parameters
    ----------
    lock : str, part of the names of the files that a writer locks.

    Raises
    ------
    OSError
        The folder cannot be looked into.
    """
    for name in system.listdir(folder):
        if lock in name:
            fd = system.open(os.path.join(folder, name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                system.flock(fd)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                    return True
            finally:
                system.close(fd)
    return False


def empty_folder(system: System, folder: str, first: str) -> None:
    """Remove the files of a folder, those with a suffix first: without them nothing else in it counts.

    Other processes may do the same at this time.
    """
    with suppress(FileNotFoundError):
        for name in sorted(system.listdir(folder), key=lambda name: not name.endswith(first)):
            with suppress(FileNotFoundError):
                system.unlink(os.path.join(folder, name))


def remove_folder(system: System, folder: str, first: str) -> None:
    """Remove a folder and its files; see `empty_folder`."""
    empty_folder(system, folder, first)
    with suppress(FileNotFoundError):
        system.rmdir(folder)


# ---------------------------------------------------------------------------------- the note beside the file


def noted(system: System, note: str) -> list[str]:
    """Return the lines of a note: folders, some with their hosts; none if there is no note, or it cannot be read."""
    with suppress(OSError):
        return _read_note(system, note)
    return []


def _read_note(system: System, note: str) -> list[str]:
    """Return the lines of a note; none of what is not there, or is no note of ours.

    Raises
    ------
    OSError
    """
    try:
        # Whoever may write to the folder may put a link there: what it leads to is not ours to read.
        lines = read_whole(system, note, limit=_MOST_NOTES, flags=os.O_NOFOLLOW).decode().splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:
            return []
        raise
    # a note that a power failure left in pieces may hold zeros, which are in no path
    return [line for line in lines if "\0" not in line]


def host_and_folder(line: str) -> tuple[str, str]:
    """Return the host and folder of a line; "" for a host that it does not tell."""
    host, colon, folder = line.partition(":/")
    return (host, f"/{folder}") if colon and "/" not in host else ("", line)


def note_folders(system: System, note: str, lines: Sequence[str], *, durable: bool) -> None:
    """Add folders to the note; what a killed job noted stays.

    Parameters
    ----------
    note : str, path of the note.
    lines : sequence of str, folders or ``HOST:FOLDER``.
    durable : bool
        Bring the note to stable storage; its name is brought there with the file's.

    Raises
    ------
    OSError
        The note cannot be written.
    """

    def is_there(line: str) -> bool:
        host, folder = host_and_folder(line)
        return host not in ("", os.uname().nodename) or exists(system, folder)

    for line in lines:
        undo_if_interrupted(partial(forget_folder, system, note, line))
    _change_note(system, note, lambda there: list(dict.fromkeys([*filter(is_there, there), *lines])), durable=durable)


def is_here(system: System, line: str) -> bool:
    """Return whether a line of a note names a folder that is on this machine."""
    host, folder = host_and_folder(line)
    return host in ("", os.uname().nodename) and exists(system, folder)


def forget_folder(system: System, note: str, folder: str, *, everywhere: bool = True) -> bool:
    """Take a folder out of the note, and the note away with the last one; whether that could be done.

    Parameters
    ----------
    folder : str, a folder, or a line of the note, which means the folder of that host.
    everywhere : bool
        Of a folder without a host: also those of this name on other hosts. A job's folders have one name on all nodes.
    """
    at, name = host_and_folder(folder)
    hosts = ("", at or os.uname().nodename)

    def stays(line: str) -> bool:
        host, one = host_and_folder(line)
        return one != name or not ((everywhere and not at) or host in hosts)

    try:
        # What others noted may be on another node.
        # what it named has gone: an older note does no harm, and a torn one must not lose the others
        _change_note(system, note, lambda there: list(filter(stays, there)), durable=True)
    except OSError:
        return False
    return True


def _change_note(system: System, note: str, change: Callable[[list[str]], list[str]], *, durable: bool) -> None:
    """Give a note other lines, while nobody else does."""
    # An interruption can come at the end, too: the lock must not stay with the traceback.
    with closing_if_it_fails(system, alone=False):
        fd = _lock_note(system, note)
        before = _read_note(system, note)
        after = change(before)
        if after != before or (fd >= 0 and not after):
            try:
                _write_note(system, note, after, durable=durable)
            except OSError as error:
                if error.errno not in _READ_ONLY or len(after) >= len(before):
                    raise
                _blank_note(system, note, after)
        if fd >= 0:
            system.close(fd)


def _lock_note(system: System, note: str) -> int:
    """Return a descriptor of the note that is locked; -1 if there is no note, or the file system has no locks."""
    for _ in range(_PATIENCE):
        fd = -1
        try:
            fd = system.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            system.flock(fd)
            opened, there = system.fstat(fd), system.lstat(note)
            if (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino):
                return fd
            # Another process has put a new note in its place,
            system.close(fd)
        except BlockingIOError:
            # or is about to.
            system.close(fd)
            time.sleep(_NAP)
        except BaseException as error:
            if fd >= 0:
                system.close(fd)
            if not isinstance(error, OSError):
                raise
            break
    return -1


def _write_note(system: System, note: str, folders: list[str], *, durable: bool) -> None:
    if not folders:
        system.unlink(note)
        return
    # A rename puts a new file under the name, whatever link somebody left there.
    made = f"{note}.{system.token()}"
    text = "".join(f"{folder}\n" for folder in folders)
    try:
        write_whole(system, made, text.encode(), mode=0o600, exclusive=True, durable=durable)
        system.rename(made, note)
    except BaseException:
        with suppress(OSError):
            system.unlink(made)
        raise


def _blank_note(system: System, note: str, folders: list[str]) -> None:
    """Take lines out of a note whose folder has become read-only: what would go on naming them would be believed."""
    fd = system.open(note, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        text = "".join(f"{folder}\n" for folder in folders).encode()
        # in one write, and a line with zeros is none
        write_all(system, fd, memoryview(text.ljust(system.fstat(fd).st_size, b"\0")), 0)
    finally:
        system.close(fd)


def missing_ranks(ranks: int, there: Iterable[int]) -> tuple[int, str]:
    """Return the first rank of a job whose files are not there, and the first ones as text; -1 if all are there.

    Examples
    --------
    >>> missing_ranks(4, [1]), missing_ranks(1 << 40, [0])[1], missing_ranks(1, [0])
    ((0, '0, 2, 3'), '1, 2, 3, 4, 5, 6, 7, 8, ...', (-1, ''))
    """
    known = set(there)
    # One more than are shown: the number of ranks may be wrong, and then is large.
    missing = list(islice((rank for rank in range(ranks) if rank not in known), 9))
    return next(iter(missing), -1), ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")


def mark_replaced(system: System, folder: str) -> None:
    """Note in the folder of a job that the file of its logs or caches is about to be replaced.

    Raises
    ------
    OSError
        The note cannot be made.
    """
    if not is_replaced(system, folder):
        write_whole(system, _mark(folder), b"", mode=0o600, exclusive=True)


def is_replaced(system: System, folder: str) -> bool:
    """Return whether the file of the logs or caches in a folder was replaced since."""
    return exists(system, _mark(folder))


def _mark(folder: str) -> str:
    return os.path.join(folder, "replaced")
