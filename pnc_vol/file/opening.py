"""All ranks open or create a file together, or join the session of it that the process has: the steps of an opening.

Knows: the order of the steps, the registry of open files, headers, driver stacks, ranks. Does not know: operations on
an open file.

The record `Opening`, which all steps share, and the table of its states are in `opening_record`.

Rules
-----
1. All calls here are collective.
2. Rank 0 alone looks at the file system and reads the header; the others get the bytes, and decode them themselves.
   All do so at the same time. To share what one rank of a node decoded was slower: of 10,000 variables, decoding takes
   255 ms, and making the objects from a pickled form 59 ms, which begin when that rank has decoded and written it.
3. An error on one rank never leaves another one waiting, and no incomplete file stays behind.
4. What is unusual in a file, but readable, gives one warning, on rank 0.
5. A file of several ranks is opened with all modules that ordinary work with it would load later (`_LOADED_LATE`): none
   may be loaded while ranks wait for each other. One that is missing there is a defect: `tests/mpi/test_loading.py`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pnc_vol.disk.locking import Held
from pnc_vol.disk.naming import ATTEMPTS, check_place, replaced_too_often
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Capabilities, Driver
from pnc_vol.drivers.stack import stack_capabilities
from pnc_vol.errors import CollectiveMismatchError, FormatWarning, ShortFileWarning
from pnc_vol.file import combinations, deferred, registry
from pnc_vol.file.driver_stack import context_of, open_by_own_path, open_together, stack_of
from pnc_vol.file.file_sets import SetSeen, file_sets, matched_set, set_names
from pnc_vol.file.leftovers import look_after
from pnc_vol.file.open_file import OpenFile, session_of
from pnc_vol.file.opening_record import Opening
from pnc_vol.file.registry import Closing, Entry, SessionRef, close_unreferenced
from pnc_vol.file.session import CollectorPaused, note_time
from pnc_vol.format.encode import encode, encoded_empty
from pnc_vol.format.model import Finding, Header, data_end
from pnc_vol.layout.registry import CANONICAL, header_paths, layout_class, layout_of
from pnc_vol.mapping.names import warn_of
from pnc_vol.mapping.tree import Tree
from pnc_vol.queue.stores import MEMORY, check_name
from pnc_vol.queue.stores import trouble as store_trouble
from pnc_vol.ranks.comm import Comm, Ranks, on_root, ranks_by_text, ranks_text
from pnc_vol.settings.options import Options
from pnc_vol.warn import warn_outside

__all__ = ["find", "open_file", "open_session", "open_shared"]

# Options that decide where data lie, or which calls are collective: ranks that differ in one would wait for ever, or
# write at different places.
_SHARED = (
    "version",
    "buffer_size",
    "var_align",
    "record_align",
    "header_reserve",
    "publish",
    "ordered",
    "durable",
    "separator",
    "layout",
    "subfiles",
    "ranks_per_subfile",
    "transport",
    "burst_buf",
    "burst_buf_shared_logs",
    "burst_buf_sync",
    "recover",
)

_LOADED_LATE = """
    api.attrs api.dims api.linking api.scale_attrs api.views
    disk.existing disk.identity
    drivers.mmap_guard drivers.staged
    extents.blocks extents.decomposition extents.place extents.selection extents.subarrays
    file.filling file.held_ranges file.post file.resizing
    file.reads.completing file.reads.composite_values file.reads.gathered
    exchange.two_phase
    format.numeric format.decode
    mapping.attribute_encoding mapping.conventions mapping.describe mapping.encoding mapping.links mapping.unflatten
    queue.spill
    system.two_threads
"""
"""What these import at their heads comes with them. What only an option needs is loaded by the opening that has it."""


def open_shared(opening: Opening, comm: Comm) -> tuple[OpenFile, SessionRef]:
    """Open or create a file, or join the session that has it open (collective).

    Parameters
    ----------
    opening : Opening, in the state "asked".
    comm : Comm, owned by the session from now on; a join needs nothing of it and closes it.

    Returns
    -------
    OpenFile
    SessionRef
        To be released once; the last one that is released closes the file.

    Raises
    ------
    OSError
        As `open_session`; the file is open and cannot be opened in this way beside; or the deferred close of another
        file failed.
    ValueError
        It is open with another driver.
    """
    opening.comm = comm
    close_unreferenced()
    if comm.size > 1:
        deferred.part_from_others()
    if opening.options.deferred_close:
        try:
            deferred.close_before_open(comm)
        except BaseException as error:
            _leave(comm, error)
            raise
    if opening.real or opening.target is not None:
        opening.token = registry.new_token()
    since, made, ref = time.perf_counter(), None, None
    while True:
        try:
            # Ranks that wait for each other must hold nothing that their other threads may wait for.
            with registry.lock if comm.size == 1 else contextlib.nullcontext():
                session = open_session(opening)
                if opening.way == "join":
                    ref = SessionRef(registry.found(opening.token), writable=opening.writable)
                else:
                    made = session
                    entry = Entry(opening.token, session, opening.target)
                    ref = SessionRef(entry, writable=opening.writable)
                    if opening.token:
                        registry.enter(entry)
            note_time("open", since)
            return session, ref
        except Closing as busy:
            # Another thread closes the session: this one waits, and looks again.
            deferred.close_held([busy.session])
            registry.wait_for(busy.session)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
            if ref is not None:
                ref.abandon(why)
            elif made is not None:
                made.abort(why)
            note_time("open", since)
            raise


def open_session(opening: Opening) -> OpenFile:
    """Open or create a file, or join the session of it that has the token of `opening` (collective).

    Parameters
    ----------
    opening : Opening, in the state "begun". The session owns its communicator from now on.

    Raises
    ------
    OSError
        FileNotFoundError, FileExistsError, IsADirectoryError, PermissionError, `FormatError`...; the same on all ranks.
    """
    try:
        with CollectorPaused():
            open_file(opening)
            if opening.way == "set":
                made = file_sets(opening.sets).open(opening)
                assert isinstance(made, OpenFile)
                return made
            if opening.way != "join":
                return session_of(opening)
        session = registry.joined(opening)
        if opening.way != "join":
            # Its close was deferred; it is closed by all ranks, and the file is opened anew.
            deferred.close_before_open(opening.comm, [session])
            return open_session(opening)
        assert isinstance(session, OpenFile)
        opening.comm.close()
        return session
    except BaseException as error:
        _leave(opening.comm, error)
        raise


def _leave(comm: Comm, error: BaseException) -> None:
    """Close a communicator because of an error, without the other ranks if they do not have it."""
    if comm.in_step(error):
        comm.close()
    else:
        comm.abandon(f"{type(error).__name__}: {error}")


def open_file(opening: Opening, new: Header | None = None) -> None:
    """Open or create a file, up to its stack of drivers (collective); see `open_session`.

    A session to join, and a set of files, are found, and not opened.

    new : Header, optional, what a new file begins with; an empty one by default.
    """
    pieces = opening.layout is not None
    spec, able = _agree(opening)
    own: Driver | None = None
    if opening.driver is None and able.own_paths:
        own = opening.driver = open_by_own_path(opening.path, opening.mode, opening.options, opening.comm)
        opening.keeps_file = False
    try:
        for _ in range(ATTEMPTS):
            _find(opening, new)
            if opening.way in ("join", "set"):
                return
            _read(opening, pieces=pieces)
            if opening.driver is not None or _open_driver(opening, spec, able):
                _begin(opening)
                return
            # Another process gave the name to another file since rank 0 opened it.
            opening.find_again()
        raise opening.comm.on_all(replaced_too_often(opening.path))
    except BaseException:
        if own is not None:
            own.close()
            opening.driver = None
        raise


def _agree(opening: Opening) -> tuple[str, Capabilities]:
    """Compare what the ranks ask for, and refuse what does not go together; the stack of drivers and what it can.

    Raises
    ------
    CollectiveMismatchError
        The ranks ask for different things.
    ValueError
        The options do not go together.
    """
    options, comm, mode = opening.options, opening.comm, opening.mode
    spec = stack_of(options, comm)
    if comm.size > 1:
        for name in ("json", "signal", "unicodedata", *(f"pnc_vol.{name}" for name in _LOADED_LATE.split())):
            importlib.import_module(name)
        asked = {"name": opening.path, "mode": mode, "driver": spec} | {key: getattr(options, key) for key in _SHARED}
        _same_on_all(opening, asked)
    able = stack_capabilities(spec) if opening.driver is None else opening.driver.capabilities
    opening.keeps_file = opening.driver is None and able.keeps_file
    layout = layout_class(options.layout or CANONICAL)
    if layout.several_files and not opening.keeps_file:
        # a file in memory, or in one object, has no subfiles
        opening.options, layout = options._replace(layout=""), layout_class(CANONICAL)
    if not opening.keeps_file and comm.size > 1:
        raise ValueError(f"driver {spec!r} keeps the file in one process's memory; {comm.size} ranks cannot share it")
    combinations.check(layout, opening.options, comm.size)
    store = "log" if options.burst_buf else options.store
    if store != MEMORY:
        check_name(store)
        if mode != "r" and comm.size > 1:
            comm.agree("open store", error=store_trouble(store, options))
    return spec, able


def _same_on_all(opening: Opening, asked: dict[str, Any]) -> None:
    """Compare what ranks ask for, and whether it clashes with files that they have open (collective).

    Raises
    ------
    CollectiveMismatchError
        They ask for different things.
    """
    comm = opening.comm
    import json

    clash = registry.clash(opening) if opening.token else None
    groups = ranks_by_text(comm, "open", json.dumps(asked), error=clash)
    if len(groups) == 1:
        return
    wanted = [(json.loads(text), ranks) for text, ranks in groups.items()]
    for key in asked:
        by_value = Ranks.by_value((repr(values[key]), ranks) for values, ranks in wanted)
        if len(by_value) > 1:
            what = "; ".join(f"{value} on {ranks_text(ranks)}" for value, ranks in by_value.items())
            text = f"ranks open the file with different {key}: {what}. Give the same on every rank"
            fewest = min(by_value.values(), key=lambda ranks: ranks.number)
            raise comm.on_all(CollectiveMismatchError(text, fewest.all()))


def _find(opening: Opening, new: Header | None) -> None:
    """Rank 0 finds or creates the file, and sends the others what they need of it (collective)."""
    if opening.comm.mpi is None:
        find(opening, new)
    else:
        message = on_root(opening.comm, "open", partial(_found_by_root, opening, new))
        if opening.comm.rank:
            opening.receive(*message)
            opening.header = new or Header(opening.options.version)
    if opening.options.layout and opening.location is not None and layout_class(opening.options.layout).several_files:
        # a file that is there is one file, and stays one
        opening.options = opening.options._replace(layout="")


def _found_by_root(opening: Opening, new: Header | None) -> tuple[Any, ...]:
    find(opening, new)
    return opening.message()


def _read(opening: Opening, *, pieces: bool) -> None:
    """Decode the header and make the objects, and refuse a layout that cannot be had; the same on all ranks.

    pieces : bool, variables are pieces of the objects of a set, which are not made of this file.
    """
    comm, options = opening.comm, opening.options
    try:
        if opening.way == "open" and opening.existing is None:
            from pnc_vol.format.decode import decode

            opening.header = decode(opening.content, file_size=opening.size).header
        header = opening.header
        # a new file has nothing yet, but for one of a set
        plain = pieces or not (header.vars or header.attrs or header.dims or opening.way == "open")
        if plain:
            tree = Tree()
        else:
            from pnc_vol.mapping.unflatten import from_header

            tree = from_header(header)
        opening.tree = tree
        tree.separator = options.separator
        try:
            layout = layout_of(opening.path, options.layout, tree.layout, empty=not header.vars)
            if layout.name != CANONICAL:  # else it was checked before the file was read
                combinations.check(layout, options, comm.size)
        except (ValueError, ImportError) as error:
            raise comm.on_all(error) from None
    except BaseException:
        opening.release()
        raise
    if layout.name != CANONICAL:
        tree.layout = layout.name
    if not pieces:
        opening.layout = layout


def _open_driver(opening: Opening, spec: str, able: Capabilities) -> bool:
    """Open the stack of drivers on all ranks (collective); False if the name led one of them to another file."""
    place = opening.location if opening.keeps_file else None
    path, name, fd = (opening.path, "", -1) if place is None else (place.work, place.path, place.fd)
    new = opening.way == "create" and not opening.keeps_file
    context = context_of(opening.options, opening.comm, writable=opening.writable, fd=fd, new=new, name=name)
    try:
        driver = opening.driver = open_together(spec, path, context, opening.comm, place, inode=opening.inode)
    except BaseException:
        opening.release()
        raise
    if driver is None or not opening.keeps_file or (opening.mode == "r" and not able.takes_descriptor):
        # the file is not open, or open by the driver's own descriptor
        opening.release()
    opening.location = place
    return driver is not None


def _begin(opening: Opening) -> None:
    """Write the first header of what is no file, or warn of what is unusual in a file that was read."""
    assert opening.driver is not None
    assert opening.layout is not None
    read = opening.existing
    if opening.way == "create":
        if opening.location is None:
            opening.driver.resize(0)
            opening.driver.write_one(opening.content, 0)
    elif read is not None:
        # A layout of several files has data elsewhere: this file may be short.
        whole, end = opening.layout.self_contained, data_end(opening.header)
        if read.decoded.findings or (whole and opening.size < end):
            _warn(opening, read.decoded.findings, opening.size if whole else end)
        warn_of(opening.path, opening.tree.findings)


def _warn(opening: Opening, findings: Sequence[Finding], size: int) -> None:
    """Warn that data are missing at the end of a file of `size` bytes, and of the first finding of its header."""
    from pnc_vol.format import check as header_check

    path, header = opening.path, opening.header
    missing = header_check.short_data(header, size) if size < data_end(header) else []
    if missing:
        warn_outside(
            ShortFileWarning(
                f"{path}: {header_check.missing_text(missing)}"
                # nothing tells them from zeros that were written, once the file is longer
                + (", and as 0 once data have been written behind them or moved" if opening.writable else ""),
                offset=size,
                field="file_size",
                value=size,
            ),
        )
    odd = [finding for finding in findings if finding.severity == "warning" and finding.field != "file_size"]
    if odd:
        first = odd[0]
        more = f" (and {len(odd) - 1} more: 'pnc-vol check' lists them)" if len(odd) > 1 else ""
        warn_outside(
            FormatWarning(f"{path}: {first.message}{more}", offset=first.offset, field=first.field, value=first.value),
        )


# ---------------------------------------------------------------------------------------------------- rank 0
# What is done depends on what exists; if that changes before it is done, the decision is made again. A file that
# another process made since is never replaced by one that found nothing.


def find(opening: Opening, new: Header | None) -> None:
    """Find the session to join, open the file, or make one, which has the header `new`, or nothing yet; on rank 0.

    Raises
    ------
    OSError, ValueError
        As `open_session`; nothing is open then.
    """
    options, path = opening.options, opening.path
    if opening.driver is None and opening.mode in ("r", "r+", "a") and ("*" in path or "?" in path or "[" in path):
        path = matched_set(options.system, path)
    asked = path
    seen: SetSeen | None = None
    for _ in range(ATTEMPTS):
        there: os.stat_result | None = None
        if opening.driver is None:
            path, there = _standing(options, asked, opening.mode)
            # a file that is opened as one of a set is none itself
            seen = None if opening.layout is not None else _set_of(options, asked, path, opening.mode, there)
            if seen is not None and path != (first := file_sets(seen.sets).first_file(seen.base)):
                path, there = first, None
                with suppress(FileNotFoundError):
                    there = options.system.stat(path)
            if opening.token and path != asked:
                opening.real = options.system.realpath(path)
        if opening.token:
            # A session that is open comes first: what is under the name may be older than what it holds.
            joins = registry.finds(opening, there)
            if not joins and there is None and seen is None and opening.mode in ("r", "r+", "a"):
                joins = _finds_unnamed(opening, path)
            if joins:
                opening.way = "join"
                return
        if seen is not None:
            opening.way, opening.sets = "set", seen.sets
            file_sets(seen.sets).find(opening, seen, there)
            return
        way = _way(opening, path, there)
        real = (opening.real if opening.token else "") or options.system.realpath(path)
        if way == "open":
            _open(opening, path, real)
            return
        if _create(opening, path, real, new, way):
            return
    raise replaced_too_often(path)


def _standing(options: Options, path: str, mode: str) -> tuple[str, os.stat_result | None]:
    """Return the file with the header, and its status: a layout may give it another name than the user's."""
    new = mode in ("w", "w-", "x")
    if not options.layout:
        # A new file of no stated layout has the user's name, whatever other layouts have beside it; and so have most
        # that are there.
        try:
            return path, options.system.stat(path)
        except FileNotFoundError:
            if new:
                return path, None
    names = _header_paths(path, options.layout)
    if not new:
        # a file that is there is opened as what it is
        names = list(dict.fromkeys((*names, path, *_header_paths(path, ""))))
    for name in names:
        with suppress(FileNotFoundError):
            return name, options.system.stat(name)
    return names[0], None


def _header_paths(path: str, asked: str) -> list[str]:
    """Return the names under which the header of `path` may be, in the order in which they are to be tried."""
    sets = () if asked else (file_sets(name).first_file(path) for name in set_names())
    return list(dict.fromkeys((*header_paths(path, asked), *sets)))


def _finds_unnamed(opening: Opening, path: str) -> bool:
    """Return whether this process has a file of the name open that has not got its names yet, as a new set of
    subfiles."""
    own = opening.real
    for name in _header_paths(path, ""):
        opening.real = opening.options.system.realpath(name)
        if registry.finds(opening, None):
            return True
    opening.real = own
    return False


def _several_files(options: Options) -> bool:
    return bool(options.layout) and layout_class(options.layout).several_files


def _set_of(options: Options, asked: str, path: str, mode: str, there: os.stat_result | None) -> SetSeen | None:
    """Return the set of files that is meant, or None.

    asked, path : str, the name that the user gave, and that of the file which is there.
    """
    new = SetSeen(layout_class(options.layout).sets, asked) if _several_files(options) else None
    if mode in ("w", "w-", "x"):
        return new
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    if there is None or (mode != "r" and there.st_size == 0 and path == asked):
        return new
    if options.layout == CANONICAL and path == asked:
        # one of the files of a set, as the ordinary file that it is
        return None
    # The files of a set end in a number: no plug-in is loaded for any other name.
    for name in set_names() if path[-1:].isdigit() else ():
        if (seen := file_sets(name).seen(name, asked, path, options)) is not None:
            return seen
    return None


def _way(opening: Opening, path: str, there: os.stat_result | None) -> str:
    """Return whether to open the file, to create it where none is, or to put a new one in its place."""
    mode, options = opening.mode, opening.options
    if opening.driver is not None:
        nbytes = opening.driver.size()
        if nbytes and mode in ("w-", "x"):
            raise FileExistsError(errno.EEXIST, f"it holds {nbytes} bytes already; open it with mode 'a' or 'w'", path)
        return "create" if mode not in ("r", "r+", "a") or (mode != "r" and not nbytes) else "open"
    if there is not None:
        check_place(there, path, exclusive=opening.keeps_file and mode in ("w-", "x"))
    if there is None and mode in ("r", "r+", "a"):
        if any(file_sets(name).lacks_first(options.system, path) for name in set_names()):
            text = "the first file of this set of subfiles is missing, and others are there; bring it back beside them"
            raise FileNotFoundError(errno.ENOENT, text, path)
        if mode != "a":
            raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", path)
    if opening.keeps_file and opening.token:
        # A file without a token is a part of something that was looked after as a whole.
        real = opening.real or options.system.realpath(path)
        look_after(path, real, options, writable=mode != "r", replaced=mode in ("w", "w-", "x"))
    if mode in ("w", "w-", "x"):
        return "replace" if mode == "w" and there is not None else "create"
    if there is None:
        return "create"
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    return "replace" if mode in ("a", "r+") and there.st_size == 0 else "open"


def _open(opening: Opening, path: str, real: str) -> None:
    """Open a file that is there, and read its header; of what is no file, the header."""
    # a program that creates files has no header to read
    from pnc_vol.disk.existing import header_of, open_existing

    if opening.driver is not None:
        opening.read(header_of(opening.driver, path))
        return
    options, writable = opening.options, opening.writable and opening.keeps_file
    held = Held(options.system, path, options.locking if writable else False)
    # It is locked before its header is read: else another process could change what was read.
    existing = open_existing(options.system, path, real, writable=writable, hold=held.lock if writable else None)
    opening.read(existing)
    opening.location = Location(options.system, real, real, held=held)
    opening.location.key = held.keep(existing.fd, existing.key)


def _create(opening: Opening, path: str, real: str, new: Header | None, way: str) -> bool:
    """Make a file with the header `new`, or with nothing yet; False if another process has changed what is there since
    it was looked at."""
    options, mode = opening.options, opening.mode
    header = encode(new) if new else encoded_empty(options.version)
    if opening.keeps_file:
        combinations.check(layout_class(options.layout or CANONICAL), options, 1, path=path, new=True)
        held = Held(options.system, path, options.locking)
        try:
            if way == "replace" and mode != "w":
                held.may_replace(real)
                if not held.fds or any(options.system.fstat(fd).st_size for fd in held.fds.values()):
                    # it is no empty file any more
                    held.release()
                    return False
            publish = options.publish == "create"
            opening.location = Location.create(
                options.system,
                path,
                header,
                target=real,
                # A file that another process made meanwhile is not replaced by one that found nothing.
                exclusive=way == "create" and (publish or mode in ("w-", "x")),
                # An older file stays until there is a log, see `open_file.open_queue`.
                publish=publish and not options.burst_buf,
                # What a log is to bring back after a crash of the node needs the file.
                durable=options.durable or (options.burst_buf and options.burst_buf_sync != "none"),
                held=held,
            )
        except BaseException as error:
            held.release()
            if isinstance(error, FileExistsError) and mode not in ("w-", "x"):
                # another process made it since, and its data are not to be lost
                return False
            raise
    opening.way, opening.header = "create", new or Header(options.version)
    opening.content, opening.size = header, len(header)
    return True
