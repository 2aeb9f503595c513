"""This module opens the stack of drivers of a file, of a copy for a new layout, or of a temporary file.

Knows: driver stacks, options, ranks, locations. Does not know: headers, requests.
"""

from __future__ import annotations

import errno
import os
from functools import partial

from pnc_vol.disk.publish import Location
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver, OpenContext, written_layer
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.drivers.stack import (
    asked_by_hints,
    default_stack,
    open_stack,
    parse_stack,
    stack_capabilities,
    stack_exists,
    without_hinted,
)  # fmt: skip
from pnc_vol.file.epochs import fall_back
from pnc_vol.ranks.comm import Comm, first_trouble, on_root, ranks_by_text
from pnc_vol.settings.options import Options
from pnc_vol.system import System, closing_if_it_fails, is_folder, scratch_folder, undo_if_interrupted

__all__ = [
    "asked_and_open",
    "cached",
    "context_of",
    "open_by_own_path",
    "open_copy",
    "open_driver",
    "open_spill",
    "open_together",
    "stack_of",
    "stack_of_others",
]


_ANOTHER_FILE = "another file"


def stack_of(options: Options, comm: Comm) -> str:
    """Return the stack that the options ask for, or the default one."""
    return options.driver or default_stack(comm.mpi is not None)


def stack_of_others(options: Options, *, writable: bool) -> str:
    """Return the stack by which one rank opens subfiles of a set that it does not write.

    That is the one that was asked for if the set is only read. In one that is written it is what is at the bottom.
    """
    spec = options.driver or default_stack(shared=False)
    bottom = parse_stack(spec)[-1]
    return written_layer(bottom.name, bottom.options) if writable else spec


def cached(options: Options, *, shared: bool, writable: bool) -> Options:
    """Return the options with those wrappers above the stack that hints alone ask for, such as a node-local cache.

    A file that is no file of the operating system has none.

    Raises
    ------
    ValueError
        A hint of a wrapper has a wrong value.
    """
    if not options.hints:
        return options
    asked = asked_by_hints(options.hints, writable=writable)
    spec = options.driver or default_stack(shared)
    named = {layer.name for layer in parse_stack(spec)} if asked else set()
    more = [name for name in asked if name not in named]
    if not more or not stack_capabilities(spec).keeps_file:
        return options
    return options._replace(driver=" | ".join((*more, spec)))


def asked_and_open(asked: Options, opened: Options, comm: Comm) -> tuple[str, str]:
    """Return the stack that a second opening asks for, "" if any will do, and that of the first one.

    Both without the wrappers that hints put in front: a second opening shares them, whatever its own hints say.
    """
    wanted, there = asked.driver, stack_of(opened, comm)
    below, opened_below = without_hinted(wanted), without_hinted(there)
    if below != wanted and opened_below != there and below == default_stack(comm.mpi is not None):
        # Hints put a wrapper on the default stack: nobody named one.
        below = ""
    return below, opened_below


def context_of(
    options: Options, comm: Comm, *, writable: bool, fd: int = -1, new: bool = False, name: str = ""
) -> OpenContext:
    storage = options.storage_options or {}
    return OpenContext(writable, options.system, comm if comm.mpi else None, options.hints, fd, new, name, storage)


def open_together(
    spec: str, path: str | None, context: OpenContext, comm: Comm, location: Location | None, *, inode: int = 0
) -> Driver | None:
    """Open the stack on all ranks (collective).

    Parameters
    ----------
    context : OpenContext
        Its descriptor stays the caller's, and is used by a stack that declares that it takes one.
    inode : int
        The file that `path` has to lead to, or 0 if nobody else can have given the name to another.

    Returns
    -------
    Driver or None
        None on all ranks if the name led one of them to another file.
    """
    driver: Driver | None = None
    same = True
    try:
        with comm.errors_shared():
            if context.fd >= 0 and not stack_capabilities(spec).takes_descriptor:
                context = context._replace(fd=-1)
            if location is not None and context.name != location.path:
                context = context._replace(name=location.path)
            driver = open_stack(spec, path, context)
            if inode and path is not None and context.fd < 0:
                # It was opened by its name, and stood for this file before: if it does so still, it did all the time.
                same = context.system.stat(path).st_ino == inode
            trouble = driver.holder.trouble() if same else _ANOTHER_FILE
            if comm.size > 1:
                troubles = ranks_by_text(comm, "open driver", trouble)
                trouble = _ANOTHER_FILE if _ANOTHER_FILE in troubles else first_trouble(troubles, comm.size)
    except BaseException:
        if driver is not None and not driver.capabilities.collective:
            driver.close()
        if location is not None and comm.rank == 0:
            location.discard()
        raise
    assert driver is not None
    if trouble == _ANOTHER_FILE:
        driver.close()
        return None
    if trouble:
        fall_back(driver, trouble)
    return driver


def open_by_own_path(path: str | None, mode: str, options: Options, comm: Comm) -> Driver:
    """Return the driver of a file whose path means something to the driver alone (`Capabilities.own_paths`); by one
    rank.

    Raises
    ------
    FileNotFoundError, FileExistsError
        As `mode` says.
    OSError
        It cannot be opened.
    """
    spec = stack_of(options, comm)
    if path is None:
        raise ValueError(f"the driver {spec!r} needs a path")
    context = context_of(options, comm, writable=mode != "r")
    there = stack_exists(spec, path, context)
    if mode in ("r", "r+") and not there:
        raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", path)
    if mode in ("w-", "x") and there:
        raise FileExistsError(
            errno.EEXIST, "the file exists; open it with mode 'r+' or 'a', or replace it with 'w'", path
        )
    return open_stack(spec, path, context._replace(new=not there or mode in ("w", "w-", "x")))


def open_driver(path: str, *, options: Options, comm: Comm, fd: int = -1, inode: int = 0) -> Driver | None:
    """Return the driver of a file that is there, for reading (collective); `fd`, `inode` as of `open_together`."""
    context = context_of(options, comm, writable=False, fd=fd)
    return open_together(stack_of(options, comm), path, context, comm, None, inode=inode)


def open_copy(old: Location, options: Options, comm: Comm) -> tuple[Location, Driver]:
    """Return a new file beside another one, and a driver on it (collective)."""
    made: list[Location] = []

    def do() -> str:
        made.append(old.copy())
        return made[0].work

    work = on_root(comm, "copy", do)
    location = made[0] if made else Location(options.system, old.path, work, unseen=old.unseen, kept_as=old.kept_as)
    driver = open_together(
        stack_of(options, comm), work, context_of(options, comm, writable=True, fd=location.fd), comm, location
    )
    assert driver is not None
    return location, driver


def open_spill(disk: StoredFile, system: System) -> Driver:
    """Return a private file without a name, beside the file or where temporary files go."""
    folder = os.path.dirname(disk.location.path) if disk.location else scratch_folder()
    if not is_folder(system, folder or "."):
        # It was removed or renamed, and what is open goes on.
        folder = scratch_folder()
    name = os.path.join(folder or ".", f".pnc_vol.{system.token()}.spill")
    with closing_if_it_fails(system):
        undo_if_interrupted(partial(system.unlink, name))
        fd = system.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        system.unlink(name)
        return PosixDriver(fd, name, writable=True, system=system)
