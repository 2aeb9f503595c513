"""How a file is opened or created, on all ranks together.

Knows: modes, paths, headers, driver stacks, ranks. Does not know: requests.

Rules
-----
1. Rank 0 alone looks at the file system and reads the header; the others get the bytes, and decode them themselves.
   All do so at the same time. To share what one rank of a node decoded was slower: of 10,000 variables, decoding takes
   255 ms, and making the objects from a pickled form 59 ms, which begin when that rank has decoded and written it.
2. An error on one rank never leaves another one waiting, and no incomplete file stays behind.
3. What is unusual in a file, but readable, gives one warning, on rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pnc_vol.disk.naming import ATTEMPTS
from pnc_vol.disk.publish import Location
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.stack import stack_capabilities
from pnc_vol.errors import CollectiveMismatchError, FormatWarning, ShortFileWarning
from pnc_vol.file.driver_stack import context_of, open_by_own_path, open_spill, open_together, stack_of
from pnc_vol.file.finding import Found, Mine, find
from pnc_vol.file.registry import OpenAttempt
from pnc_vol.format.model import Finding, Header, begin_rec, data_end, inner_bytes, is_record
from pnc_vol.late import late
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
    from pnc_vol.file import combinations, of_ranks
    from pnc_vol.format import check as header_check
    from pnc_vol.format import decode as decoding
    from pnc_vol.mapping import unflatten
    from pnc_vol.ranks import errors as rank_errors
    from pnc_vol.ranks.errors import Ranks
else:
    json = late("json")
    # what is checked is what exists already
    header_check = late("pnc_vol.format.check")
    unflatten = late("pnc_vol.mapping.unflatten")
    decoding = late("pnc_vol.format.decode")
    existing, of_ranks = late("pnc_vol.disk.existing"), late("pnc_vol.file.of_ranks")
    rank_errors = late("pnc_vol.ranks.errors")
    combinations = late("pnc_vol.file.combinations")

__all__ = ["Opened", "open_file", "open_queue"]

_LEAST_GAP = 4
"""Bytes of the smallest variable: less is padding."""
_SHOWN = 4
# Options that decide where data lie, or which calls are collective.
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


class Opened(NamedTuple):
    """A file that was just opened.

    location : Location or None
        None for a driver that keeps no file.
    unwritten : NeverWritten
        Whether nothing lies behind the data that the header knows of, and whether there is space between variables.
    layout : class, of what the file says or, if it is new, the user.
    collective : bool, the driver's calls may be collective.
    """

    path: str
    driver: Driver
    location: Location | None
    writable: bool
    created: bool
    header: Header
    header_bytes: bytes
    tree: Tree
    unwritten: NeverWritten
    collective: bool
    layout: type[Layout]


def open_file(
    path: str | None,
    mode: str,
    *,
    options: Options,
    comm: Comm,
    root: Driver | None = None,
    claim: OpenAttempt | None = None,
    new: Header | None = None,
    pieces: bool = False,
) -> Opened | Found | None:
    """Open or create a file (collective); see `joining.open_session`.

    new : Header, optional, what a new file begins with; an empty one by default.
    pieces : bool, its variables are pieces of the objects of a set, which are not to be read from it.

    Returns
    -------
    Opened, or None
        None if there is a session to join.
    Found
        The file is a set of subfiles, which is not open yet.
    """
    new = new or Header(options.version)
    spec = stack_of(options, comm)
    if comm.size > 1:
        of_ranks.load_all()
        wishes = {"name": path, "mode": mode, "driver": spec} | {key: getattr(options, key) for key in _SHARED}
        _same_on_all(comm, wishes, claim)
    able = stack_capabilities(spec) if root is None else root.capabilities
    keeps_file = root is None and able.keeps_file
    asked = layout_class(options.layout or CANONICAL)
    sets = asked.several_files
    if sets and not keeps_file:
        # what is in memory, or in one object, has no subfiles
        options, asked, sets = options._replace(layout=""), layout_class(CANONICAL), False
    if not keeps_file and comm.size > 1:
        raise ValueError(f"driver {spec!r} keeps the file in one process's memory; {comm.size} ranks cannot share it")
    if root is None and able.own_paths:
        made = open_by_own_path(path, mode, options, comm)
        try:
            return open_file(path, mode, options=options, comm=comm, root=made, claim=claim, new=new, pieces=pieces)
        except BaseException:
            made.close()
            raise
    if asked.name != CANONICAL:  # which goes with everything
        combinations.check(asked, options, comm.size)
    store = "log" if options.burst_buf else options.store
    if store != MEMORY:
        check_name(store)
        if mode != "r" and comm.size > 1:
            comm.agree("open store", error=store_trouble(store, options))
    for _ in range(ATTEMPTS):
        mine = Mine()
        arguments = options, path, mode, keeps_file, root, claim, mine, new
        if comm.mpi is None:
            found = find(*arguments)
        else:
            found = Found(*on_root(comm, "open", partial(_value_of_found, *arguments)))
        if claim is not None:
            claim.token = found.token.encode()
        if found.way == "join":
            return None
        if found.way == "set":
            return found._replace(subfile=mine.subfile)
        if sets:
            # what is there is one file, and stays one
            options, sets = options._replace(layout=""), False
        location = mine.location
        if not keeps_file:
            location = None
        elif location is None:
            location = Location(options.system, found.path, found.work, unseen=found.path != found.work)
        try:
            content = _content(path, found, mine, comm, options, new, pieces=pieces)
        except BaseException:
            mine.release()
            raise
        driver = root
        if driver is None:
            opened_path = found.work if keeps_file else path
            name = "" if location is None else location.path
            new_object = found.created and not keeps_file
            context = context_of(options, comm, writable=mode != "r", fd=mine.fd, new=new_object, name=name)
            try:
                driver = open_together(spec, opened_path, context, comm, location, inode=found.inode)
            except BaseException:
                mine.release()
                raise
            if driver is None or not keeps_file or (mode == "r" and not able.takes_descriptor):
                # the file is not open, or open by the driver's own descriptor
                mine.release()
        if driver is not None:
            return _opened(path, mode, found, content, driver, location, comm)
    raise comm.on_all(existing.replaced_too_often(path or ""))


def _value_of_found(*arguments: Any) -> tuple[Any, ...]:
    """What rank 0 found, for the others."""
    return find(*arguments).value()


class _Content(NamedTuple):
    """What a file says: its header, what is odd in it, its objects, and the layout of its data."""

    header: Header
    findings: Sequence[Finding]
    tree: Tree
    layout: type[Layout]


def _content(
    path: str | None, found: Found, mine: Mine, comm: Comm, options: Options, header: Header, *, pieces: bool
) -> _Content:
    """Decode what rank 0 told of the file, and refuse a layout that is not to be had; the same on all ranks."""
    findings: Sequence[Finding] = ()
    if not found.created:
        decoded = mine.decoded or decoding.decode(found.header, file_size=found.size)
        header, findings = decoded.header, decoded.findings
    # a new file has nothing yet, but for one of a set
    plain = pieces or not (header.vars or header.attrs or header.dims or not found.created)
    tree = Tree() if plain else unflatten.from_header(header)
    tree.separator = options.separator
    try:
        layout = layout_of(path or "", options.layout, tree.layout, empty=not header.vars)
        if layout.name != CANONICAL:
            combinations.check(layout, options, comm.size)
    except (ValueError, ImportError) as error:
        raise comm.on_all(error) from None
    if layout.name != CANONICAL:
        tree.layout = layout.name
    return _Content(header, findings, tree, layout)


def _opened(
    path: str | None,
    mode: str,
    found: Found,
    content: _Content,
    driver: Driver,
    location: Location | None,
    comm: Comm,
) -> Opened:
    """The file, from what rank 0 told of it."""
    first, (header, findings, tree, layout) = found.header, content
    created, end = found.created, data_end(header) if header.vars else 0
    if created:
        if location is None:
            driver.resize(0)
            driver.write_one(first, 0)
    elif comm.rank == 0:
        if findings or (layout.self_contained and found.size < end):
            size = found.size if layout.self_contained else end
            _warn(path or "", header, size, findings, writable=mode != "r")
        warn_of(path or "", tree.findings)
    return Opened(
        path=path if path is not None else "<memory>",
        driver=driver,
        location=location,
        writable=mode != "r",
        created=created,
        header=header,
        header_bytes=first,
        tree=tree,
        unwritten=NeverWritten(
            reads_zero=found.size <= max(end, len(first)),
            stale_gaps=bool(header.vars) and _has_gaps(header, len(first)),
        ),
        collective=comm.size > 1 and driver.capabilities.collective,
        layout=layout,
    )


def _has_gaps(header: Header, nbytes: int) -> bool:
    """Whether a variable would find room before the records."""
    records = begin_rec(header)
    if records is None:
        return False
    ends = [var.begin + inner_bytes(header, var) for var in header.vars if not is_record(header, var)]
    return records - max(ends, default=nbytes) >= _LEAST_GAP


def _same_on_all(comm: Comm, wishes: dict[str, Any], claim: OpenAttempt | None) -> None:
    """Compare what ranks ask for, and whether it clashes with what they have open (collective).

    Raises
    ------
    CollectiveMismatchError
        They ask for different things.
    """
    clash = claim.clash() if claim is not None else None
    groups = ranks_by_text(comm, "open", json.dumps(wishes), error=clash)
    if len(groups) == 1:
        return
    wanted = [(json.loads(text), ranks) for text, ranks in groups.items()]
    for key in wishes:
        by_value: dict[str, Ranks] = {}
        for wish, ranks in wanted:
            value = repr(wish[key])
            by_value[value] = rank_errors.Ranks.union((by_value.get(value, rank_errors.Ranks()), ranks))
        if len(by_value) > 1:
            what = "; ".join(f"{value} on {rank_errors.ranks_text(ranks)}" for value, ranks in by_value.items())
            text = f"ranks open the file with different {key}: {what}. Give the same on every rank"
            fewest = min(by_value.values(), key=lambda ranks: ranks.number)
            raise comm.on_all(CollectiveMismatchError(text, fewest.all()))


def open_queue(disk: StoredFile, options: Options, comm: Comm, *, writable: bool) -> Queue:
    """The queue, with the store in front that the options ask for (collective)."""
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
    error: BaseException | None = None
    if comm.rank == 0:
        try:
            if location.replaces:
                location.sync_data()
            location.publish(durable=options.durable or options.burst_buf_sync != "none")
        except OSError as reason:
            error = reason
    comm.agree("open publish", error=error)
    location.note_published()


def _warn(path: str, header: Header, size: int, findings: Sequence[Finding], *, writable: bool) -> None:
    missing = header_check.short_data(header, size) if size < data_end(header) else []
    if missing:
        total = sum(nbytes for _, nbytes in missing)
        names = ", ".join(f"{name} ({nbytes} bytes)" for name, nbytes in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        warn_outside(
            ShortFileWarning(
                f"{path}: {total} bytes of data are missing at the end of the file, of {names}{more}; "
                "they read as the fill value (strict=True makes reading them an error)"
                # nothing tells them from zeros that were written, once the file is longer
                + (", and as 0 once data have been written behind them or moved" if writable else ""),
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
