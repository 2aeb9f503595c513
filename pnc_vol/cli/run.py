"""``pnc-vol run`` and ``plan`` run an h5py script, unchanged, on pnc_vol; ``plan`` prints what its flushes write.

Knows: how Python starts a script, reports of flushes, the calls of the system that take paths. Does not know: what the
script does.

Rules
-----
Of a run that changes no file (copies and not the memory driver, which forgets a file at its close: a script may open it
again; and drivers, journals and locks do with copies what they would do with the files):

1. A file is copied to a folder of its own when it is first opened for writing; from then on its name stands for the
   copy.
2. What was not written is the real file. What was removed, or renamed away, is gone from view, and stays where it is.
3. The real files are never opened for writing, renamed or removed.
"""

from __future__ import annotations

import atexit
import errno
import os
import runpy
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import pnc_vol
from pnc_vol.cli.arguments import Options, Parser, Verb, add_json
from pnc_vol.cli.errors import fail, refuse_address
from pnc_vol.cli.show import make_folders, print_json, safe
from pnc_vol.drivers.block_copy import copy_file
from pnc_vol.drivers.mpi_library import world
from pnc_vol.file.report import FlushReport, watchers
from pnc_vol.settings.options import hint_all, launched, reach_children, system_for_all
from pnc_vol.system import REAL, System, exists, is_folder, temporary_directory

__all__ = ["VERBS"]

_PHASES = ("agree", "layout", "fill", "data", "header")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _run_arguments(parser: Parser) -> None:
    parser.usage = f"{parser.prog} [OPTIONS] SCRIPT [ARGS]..."
    parser.add_argument(
        "script", metavar="SCRIPT",
        help="A Python script that imports h5py. What follows it is passed to the script, options included.",
    )  # fmt: skip


def run_command(options: Options) -> int:
    """Run a script with pnc_vol instead of h5py, also in the Python processes that it starts.

    Its exit code is passed on.
    """
    script = options.script
    _check_script(script)
    pnc_vol.patch()
    reach_children(os.path.join(os.path.dirname(__file__), "children"))
    # As `python script.py` has it: the script's folder is where its own modules are found.
    sys.argv = [script, *options.args]
    sys.path.insert(0, os.path.dirname(REAL.realpath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        # As `python script.py` shows it: from the script's first line on, without what started it.
        shown = _below(error.__traceback__, script)
        sys.excepthook(type(error), error.with_traceback(shown), shown)
        raise SystemExit(1) from None
    return 0


def _check_script(script: str) -> None:
    """End with one line if there is no such script.

    Raises
    ------
    SystemExit
        The exit code is 2.
    """
    refuse_address(script)
    if not exists(REAL, script):
        fail(script, "there is no such script; check the name")
    if is_folder(REAL, script):
        fail(script, "it is a directory; name a script in it")


def _below(traceback: TracebackType | None, script: str) -> TracebackType | None:
    """Return the part of a traceback that begins in the script; nothing if the script did not begin."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != script:
        traceback = traceback.tb_next
    return traceback


# ---------------------------------------------------------------------------------------------------------- plan


def _plan_arguments(parser: Parser) -> None:
    _run_arguments(parser)
    parser.flag("--dry-run", help="Write to copies, which are removed at the end, so that no file changes.")
    add_json(parser)


def plan_command(options: Options) -> int:
    """Run a script with pnc_vol instead of h5py, and print what each flush does with the requests.

    Runs are what was posted, extents what was written, joined where they adjoin. The times are in milliseconds. Of
    processes that mpiexec started, the first one prints the flushes of all.
    """
    flushes: list[FlushReport] = []
    note = flushes.append
    failed: object = True
    _check_script(options.script)
    if options.dry_run:
        _write_nothing()
    watchers.append(note)
    try:
        failed = run_command(options)
    except SystemExit as end:
        failed = end.code
        raise
    finally:
        watchers.remove(note)
        if ranks := _of_all_ranks(flushes, alone=bool(failed)):
            _print(ranks, as_json=options.as_json)
    return 0


def _of_all_ranks(own: list[FlushReport], *, alone: bool) -> list[list[FlushReport]]:
    """Return the flushes of each rank on the first one, none on the others; the own ones alone if the script failed
    here: the others may never come."""
    mpi = sys.modules.get("mpi4py.MPI")
    comm = None if alone or (mpi is not None and mpi.Is_finalized()) else world()
    return [own] if comm is None else comm.gather(own) or []


def _print(ranks: list[list[FlushReport]], *, as_json: bool) -> None:
    """Print the flushes of one process, or of several with their numbers."""
    number = ["rank"] if len(ranks) > 1 else []
    flushes: list[dict[str, Any]] = []
    for n, own in enumerate(ranks):
        flushes += [dict.fromkeys(number, n) | flush._asdict() for flush in own]
    if as_json:
        print_json(flushes)
        return
    lines = [[*number, "requests", "runs", "extents", "rounds", "bytes", "transport", *_PHASES, "file"]]
    for flush in flushes:
        counts = [str(flush[key]) for key in (*number, "requests", "runs", "extents", "rounds", "nbytes")]
        times = [f"{1e3 * flush['seconds'].get(phase, 0.0):.2f}" for phase in _PHASES]
        lines.append([*counts, flush["transport"] or "-", *times, safe(os.path.basename(flush["path"]))])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for *numbers, file in lines:
        print("  ".join([*(text.rjust(width) for text, width in zip(numbers, widths, strict=False)), file]))


def _write_nothing() -> None:
    """Let all files be written in a folder that goes when this process ends."""
    if launched():
        fail("--dry-run", "it runs in one process: start it without mpiexec")
    folder = ExitStack()
    system_for_all(Aside(folder.enter_context(temporary_directory())))
    # MPI-IO opens files by itself
    hint_all("pnc_driver=posix")
    # files that are still open are closed by functions that are registered later, and so run before
    atexit.register(folder.close)


class Aside(System):
    """The system, with all changes kept in a folder.

    Parameters
    ----------
    folder : str
        An empty one.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.gone: set[str] = set()
        """Real files that were removed or renamed."""

    def _key(self, path: Any) -> str:
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        return os.path.join(REAL.realpath(folder), name)

    def _aside(self, key: str) -> str:
        return self.folder + key

    def _seen(self, path: Any) -> str:
        """Return the file that a name stands for now."""
        key = self._key(path)
        aside = self._aside(key)
        return aside if key in self.gone or exists(REAL, aside) else key

    def _own(self, path: Any, *, copy: bool = True) -> str:
        """Return the name in the folder, with what the real file holds if there is nothing yet."""
        key = self._key(path)
        aside = self._aside(key)
        make_folders(os.path.dirname(aside))
        if copy and not exists(REAL, aside) and key not in self.gone and exists(REAL, key):
            source = REAL.open(key, os.O_RDONLY)
            target = REAL.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                copy_file(REAL, source, target)
            finally:
                REAL.close(source)
                REAL.close(target)
        return aside

    def _taken(self, path: Any) -> None:
        if exists(REAL, self._seen(path)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    # ------------------------------------------------------------------------------------------- the system

    def open(self, path: Any, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            return super().open(path, flags, mode, dir_fd=dir_fd)
        if not flags & _WRITING:
            return super().open(self._seen(path), flags, mode)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            self._taken(path)
        return super().open(self._own(path, copy=not flags & (os.O_TRUNC | os.O_EXCL)), flags, mode)

    def stat(self, path: Any) -> os.stat_result:
        return super().stat(self._seen(path))

    def lstat(self, path: Any) -> os.stat_result:
        return super().lstat(self._seen(path))

    def rename(self, source: Any, target: Any, *, replace: bool = True) -> None:
        if not replace:
            self._taken(target)
        super().rename(self._own(source), self._own(target, copy=False))
        self.gone.add(self._key(source))

    def link(self, source: Any, target: Any) -> None:
        self._taken(target)
        super().link(self._own(source), self._own(target, copy=False))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            super().unlink(path, dir_fd=dir_fd)
            return
        seen, key = self._seen(path), self._key(path)
        REAL.lstat(seen)
        if seen != key:
            super().unlink(seen)
        self.gone.add(key)

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        self._taken(path)
        super().mkdir(self._own(path, copy=False), mode)

    def rmdir(self, path: Any) -> None:
        seen, key = self._seen(path), self._key(path)
        if seen != key:
            super().rmdir(seen)
        self.gone.add(key)

    def listdir(self, path: str) -> list[str]:
        key = self._key(path)
        found: set[str] = set()
        for folder in (key, self._aside(key)):
            if exists(REAL, folder):
                found.update(REAL.listdir(folder))
        return sorted(name for name in found if exists(REAL, self._seen(os.path.join(key, name))))

    def getxattr(self, path: Any, name: str) -> bytes:
        return super().getxattr(self._seen(path), name)

    def setxattr(self, path: Any, name: str, value: bytes, flags: int = 0) -> None:
        super().setxattr(self._own(path), name, value, flags)

    def fsync_dir(self, path: Any) -> None:
        """Nothing is to outlive this run."""


VERBS: dict[str, Verb] = {"run": (_run_arguments, run_command), "plan": (_plan_arguments, plan_command)}
