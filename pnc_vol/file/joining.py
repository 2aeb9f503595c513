"""All ranks open or create a file together, or join the session of it that the process has: the steps of an opening.

Knows: the order of the steps, the registry of open files, headers, driver stacks, ranks. Does not know: operations on
an open file; requests, but for the queue that it makes.

Rules
-----
1. All calls here are collective. The record that they fill, and its states, are in `opening`.
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
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pnc_vol.disk.naming import ATTEMPTS
from pnc_vol.disk.publish import Location
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Capabilities, Driver
from pnc_vol.drivers.stack import stack_capabilities
from pnc_vol.errors import CollectiveMismatchError, FormatWarning, ShortFileWarning
from pnc_vol.file import deferred, registry
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.driver_stack import context_of, open_by_own_path, open_spill, open_together, stack_of
from pnc_vol.file.file_sets import file_sets
from pnc_vol.file.finding import find
from pnc_vol.file.open_file import OpenFile
from pnc_vol.file.opening import Opening
from pnc_vol.file.registry import Closing, Entry, SessionRef, close_unreferenced
from pnc_vol.file.requests import Posted
from pnc_vol.file.session import CollectorPaused, FileSet, note_time
from pnc_vol.format.model import Finding, Header, begin_rec, data_end, inner_bytes, is_record
from pnc_vol.late import late, load
from pnc_vol.layout.base import Layout, NeverWritten
from pnc_vol.layout.registry import CANONICAL, layout_class, layout_of
from pnc_vol.mapping.names import warn_of
from pnc_vol.mapping.tree import Tree
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.stores import MEMORY, StoreContext, check_name, open_store
from pnc_vol.queue.stores import trouble as store_trouble
from pnc_vol.ranks.comm import Comm, on_root, ranks_by_text
from pnc_vol.settings.options import Options
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    import json

    from pnc_vol.disk import existing
    from pnc_vol.file import combinations, parting
    from pnc_vol.format import check as header_check
    from pnc_vol.format import decode as decoding
    from pnc_vol.mapping import unflatten
    from pnc_vol.ranks import errors as rank_errors
else:
    json = late("json")
    # A file that is created has nothing to read or check.
    header_check = late("pnc_vol.format.check")
    unflatten = late("pnc_vol.mapping.unflatten")
    decoding = late("pnc_vol.format.decode")
    existing = late("pnc_vol.disk.existing")
    rank_errors = late("pnc_vol.ranks.errors")
    combinations = late("pnc_vol.file.combinations")
    # Files that ranks have left are those of several ranks.
    parting = late("pnc_vol.file.parting")

__all__ = ["open_file", "open_queue", "open_session", "open_shared", "session_of"]

_LEAST_GAP = 4
"""Bytes of the smallest variable: less is padding."""
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
    exchange.two_phase flush.failures
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
        parting.part_from_others()
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
        raise opening.comm.on_all(existing.replaced_too_often(opening.path))
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
        load(["json", "signal", "unicodedata", *(f"pnc_vol.{name}" for name in _LOADED_LATE.split())])
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
    if layout.name != CANONICAL:  # which goes with everything
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
    clash = registry.clash(opening) if opening.token else None
    groups = ranks_by_text(comm, "open", json.dumps(asked), error=clash)
    if len(groups) == 1:
        return
    wanted = [(json.loads(text), ranks) for text, ranks in groups.items()]
    for key in asked:
        by_value = rank_errors.Ranks.by_value((repr(values[key]), ranks) for values, ranks in wanted)
        if len(by_value) > 1:
            what = "; ".join(f"{value} on {rank_errors.ranks_text(ranks)}" for value, ranks in by_value.items())
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
            opening.header = decoding.decode(opening.content, file_size=opening.size).header
        header = opening.header
        # a new file has nothing yet, but for one of a set
        plain = pieces or not (header.vars or header.attrs or header.dims or opening.way == "open")
        tree = opening.tree = Tree() if plain else unflatten.from_header(header)
        tree.separator = options.separator
        try:
            layout = layout_of(opening.path, options.layout, tree.layout, empty=not header.vars)
            if layout.name != CANONICAL:
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
    header, nbytes, read = opening.header, len(opening.content), opening.existing
    end = data_end(header) if header.vars else 0
    if opening.way == "create":
        if opening.location is None:
            opening.driver.resize(0)
            opening.driver.write_one(opening.content, 0)
    elif read is not None:
        # A layout of several files has data elsewhere: this file may be short.
        whole = opening.layout.self_contained
        if read.decoded.findings or (whole and opening.size < end):
            _warn(opening, read.decoded.findings, opening.size if whole else end)
        warn_of(opening.path, opening.tree.findings)
    opening.unwritten = NeverWritten(
        reads_zero=opening.size <= max(end, nbytes), stale_gaps=bool(header.vars) and _has_gaps(header, nbytes)
    )


def _warn(opening: Opening, findings: Sequence[Finding], size: int) -> None:
    """Warn that data are missing at the end of a file of `size` bytes, and of the first finding of its header."""
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


def _with_layout(options: Options, layout: str) -> Options:
    """Return the options with the layout that the file has."""
    if _last[0] is not options or _last[1].layout != layout:
        # The options of most files are one object.
        _last[:] = options, options._replace(layout=layout)
    return _last[1]


_last = [Options()] * 2
"""Options of the last file, as asked for and with its layout."""


def session_of(opening: Opening, *, defs: Definitions | None = None, file_set: FileSet | None = None) -> OpenFile:
    """Return the session of a file that was just opened (collective).

    defs : Definitions, optional, those of a subfile; the tree of `opening` is theirs.
    file_set : FileSet, optional, the files of which the session is, instead of one file.
    """
    tree, header, comm, created = opening.tree, opening.header, opening.comm, opening.way == "create"
    assert opening.layout is not None
    assert opening.driver is not None
    options = _with_layout(opening.options, opening.layout.name)
    # Several ranks compare what they define, which each may have made in another way.
    as_read = opening.writable and not created and comm.size == 1 and defs is None and file_set is None
    defs = defs or Definitions(tree, header.version)
    layout = opening.layout(options) if file_set is None else file_set.layout(options)
    layout.unwritten = opening.unwritten
    layout.adopt(header, tuple(tree.datasets), tree.datasets)
    tree.history.clear()
    driver = _over(opening, layout, options)
    disk = StoredFile(
        opening.path,
        driver,
        opening.location,
        layout,
        created=created,
        collective=file_set is None and comm.size > 1 and opening.driver.capabilities.collective,
        # A file that has its name already keeps it: what a flush promised must be under it.
        keep_unpublished=options.publish == "close" and created,
        may_be_longer=opening.writable and not layout.unwritten.reads_zero,
        named_by=None if file_set is None else lambda: file_set.location,
    )
    disk.begins_with(header, opening.content)
    defs.flushed(header)
    if as_read:
        defs.begin_as_read(layout, opening.content)
    queue = open_queue(disk, options, comm, writable=opening.writable)
    if len(queue.stores) > 1:
        # Stores beside memory find by the header which definitions the file has.
        disk.before_header.append(queue.about_to_write)
    posted = Posted(queue, options.buffer_size // 8)
    return OpenFile(options, comm, defs=defs, disk=disk, posted=posted, writable=opening.writable, file_set=file_set)


def _has_gaps(header: Header, nbytes: int) -> bool:
    """Return whether a variable would find room before the records."""
    records = begin_rec(header)
    if records is None:
        return False
    ends = [var.begin + inner_bytes(header, var) for var in header.vars if not is_record(header, var)]
    return records - max(ends, default=nbytes) >= _LEAST_GAP


def _over(opening: Opening, layout: Layout, options: Options) -> Driver:
    """Return the driver of the layout's addresses; if it cannot be had, nothing of the file stays open."""
    assert opening.driver is not None
    if layout.self_contained:
        return opening.driver
    context = context_of(options, opening.comm, writable=opening.writable)
    spec = stack_of(options, opening.comm)
    try:
        return layout.over(opening.driver, opening.path, spec, context, created=opening.way == "create")
    except BaseException:
        if not opening.driver.capabilities.collective:
            opening.driver.close()
        if opening.location is not None:
            if opening.way == "create" and opening.comm.rank == 0:
                opening.location.discard()
            opening.location.held.release()
        raise


def open_queue(disk: StoredFile, options: Options, comm: Comm, *, writable: bool) -> Queue:
    """Return the queue, with the store in front that the options ask for (collective)."""
    queue = Queue(options.buffer_size, lambda: open_spill(disk, options.system))
    name = "log" if options.burst_buf else options.store
    location = disk.location
    if name == MEMORY or not writable or disk.standing is None:
        return queue
    try:
        queue.put_in_front(open_store(name, StoreContext(queue.backlog, options, comm, disk)))
        if location is not None and not disk.keep_unpublished:
            _publish_new(location, options, comm)
        return queue
    except BaseException as error:
        if comm.in_step(error):
            queue.close(flushed=True)
            disk.driver.close()
            if location is not None and comm.rank == 0:
                location.discard()
            if location is not None:
                location.held.release()
        raise


def _publish_new(location: Location, options: Options, comm: Comm) -> None:
    """Give a file that waited for its log its name (collective)."""
    if location.published:
        return

    def publish() -> None:
        if location.replaces:
            location.sync_data()
        location.publish(durable=options.durable or options.burst_buf_sync != "none")

    on_root(comm, "open publish", publish)
    location.note_published()
