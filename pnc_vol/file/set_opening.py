"""How a set of subfiles is opened or created, on all ranks together.

Knows: which rank writes which subfile, headers of subfiles. Does not know: requests, what sessions do.

Rules
-----
1. A new set has one subfile for each node, or as many as the options say; its ranks are those of a node, in order.
2. Each subfile of a set that is written is opened by the ranks that share it, with the rules of every file. A set that
   is only read is opened by rank 0, which reads all headers and tells them to the others.
3. The subfiles of a set agree in what they say of it; what they do not agree in is an error that names one of them. The
   set has the records that all of them have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from pnc_vol.comm import Comm, on_root
from pnc_vol.disk.existing import open_existing
from pnc_vol.disk.publish import Location
from pnc_vol.errors import FormatError, FormatWarning
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.driver_stack import context_of
from pnc_vol.file.finding import Found
from pnc_vol.file.opening import Opened, open_file
from pnc_vol.file.physical_definitions import PhysicalDefinitions
from pnc_vol.file.session import FileSet
from pnc_vol.file.set_driver import SetDriver
from pnc_vol.file.subfile_set import Member, SubfileSet, header_of_bytes, variables_of
from pnc_vol.format.check import short_data
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Header
from pnc_vol.layout.blob.header import Described, MapVariables, described, physical_header
from pnc_vol.layout.blob.layout import BlobLayout, SubfileLayout, without_begins
from pnc_vol.layout.subfiles import subfile_path
from pnc_vol.mapping.tree import Tree
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.options import Options
from pnc_vol.warn import warn_outside

__all__ = ["MakeSession", "canonical_of", "dealt_subfiles", "open_set"]


class MakeSession(Protocol):
    """Makes the session of what was opened (collective)."""

    def __call__(
        self,
        opened: Opened,
        options: Options,
        comm: Comm,
        *,
        defs: Definitions | None = None,
        file_set: FileSet | None = None,
    ) -> Any: ...


def open_set(found: Found, mode: str, options: Options, comm: Comm, make: MakeSession) -> Any:
    """Open or create a set of subfiles (collective).

    Parameters
    ----------
    found : Found, by rank 0: the name of the set, and the header of its first subfile, empty for a new set.
    make : callable, makes sessions.

    Returns
    -------
    Session
    """
    path, system = found.path, options.system
    first = described(header_of_bytes(found.header), subfile_path(path, 0)) if found.header else None
    writable, created = mode != "r", first is None
    dealt = dealt_subfiles(options, comm, None if first is None else first.subfiles)
    count = first.subfiles if first is not None else 1 + max(s for mine in dealt for s in mine)
    numbers = dealt[comm.rank] if writable else []
    opened: list[tuple[Opened, Comm]] = []
    members: list[Member] = []
    try:
        with comm.errors_shared():
            for number in numbers:
                group = comm.group(number) if len(numbers) == 1 else comm.group(comm.rank)
                new = physical_header(Header(5), [], [], nblobs=group.size, nprocs=comm.size, subfiles=count)
                asked = mode if created else "r+"
                opened.append((_open_subfile(path, number, asked, options, group, new), group))
        headers = _headers(path, count, opened, numbers, options, comm, new=created)
        told = [] if created else [described(h, subfile_path(path, s)) for s, h in enumerate(headers)]
        tree, canonical = canonical_of(path, headers, told, count, options, warns=comm.rank == 0)
        for number, (one, group) in zip(numbers, opened, strict=True):
            members.append(_member(number, one, group, told, tree, canonical.numrecs, options, make))
    except BaseException as error:
        _give_up(members, opened[len(members) :], error)
        raise
    driver = SetDriver(
        path,
        context_of(options, comm, writable=writable),
        {member.number: lambda member=member: member.session.disk.driver for member in members},  # type: ignore[misc]
    )
    real = system.realpath(subfile_path(path, 0))
    files = SubfileSet(
        comm,
        path,
        count=count,
        nprocs=comm.size if first is None else first.nprocs,
        members=members,
        subfile_of=[mine[0] for mine in dealt],
        driver=driver,
        location=Location(system, real, real),
    )
    if told:
        _take(files, headers, told[0], tree)
    encoded = encode(canonical, check=False) if writable else b""
    made = Opened(path, driver, None, writable, created, canonical, encoded, tree, True, False, False, BlobLayout)
    return make(made, options, comm, file_set=files)


def canonical_of(
    path: str, headers: Sequence[Header], told: Sequence[Described], count: int, options: Options, *, warns: bool
) -> tuple[Tree, Header]:
    """The objects of a set, and the header that a file of the canonical layout would have."""
    header = Header(options.version)
    if told:
        _check(path, told, count)
        header = without_begins(told[0].canonical).with_numrecs(min(h.numrecs for h in headers))
        if warns and len({h.numrecs for h in headers}) > 1:
            _warn_records(path, headers)
    tree = from_header(header)
    tree.separator = options.separator
    return tree, header


def _member(
    number: int,
    opened: Opened,
    group: Comm,
    told: Sequence[Described],
    tree: Tree,
    numrecs: int,
    options: Options,
    make: MakeSession,
) -> Member:
    """The inner session of a subfile."""
    defs, nblobs = PhysicalDefinitions(), group.size
    sizes: tuple[MapVariables, ...] = ()
    defs.become(opened.header, ())
    if told:
        nblobs, sizes = told[number].nblobs, told[number].maps
        _define(defs, opened.header, told[number], tree)
    inner = make(replace(opened, tree=defs.tree), _inner(options), group, defs=defs)
    if opened.header.numrecs > numrecs:
        for uid in inner.disk.layout.record_uids:
            inner.disk.layout.lose_records(uid, numrecs, opened.header.numrecs)
    return Member(number, inner, nblobs, sizes)


def _give_up(members: Sequence[Member], opened: Sequence[tuple[Opened, Comm]], error: BaseException) -> None:
    """Let go of the subfiles of a set that could not be opened."""
    for member in members:
        with suppress(OSError):
            member.session.abort(f"{type(error).__name__}: {error}")
    for one, _ in opened:
        with suppress(OSError):
            one.driver.close()
        if one.location is not None:
            one.location.held.release()


def _inner(options: Options) -> Options:
    """The options of a subfile: posts wait in the session of the set."""
    return replace(options, layout="canonical", burst_buf=False, store="memory", recover=False)


def dealt_subfiles(options: Options, comm: Comm, count: int | None) -> list[list[int]]:
    """The subfiles that each rank writes (collective); every one has at least one rank, every rank at least one.

    count : int or None, subfiles that there are.
    """
    size = comm.size
    if count is not None and count > size:
        return [[s for s in range(count) if s * size // count == rank] for rank in range(size)]
    if options.subfiles or count is not None:
        n = min(size, count or options.subfiles)
        if count is not None and not options.subfiles:
            lowest = [low for low, _ in comm.nodes()]
            if len(set(lowest)) == count:
                return _by_node(lowest)
        return [[rank * n // size] for rank in range(size)]
    if options.ranks_per_subfile:
        return [[rank // options.ranks_per_subfile] for rank in range(size)]
    return _by_node([low for low, _ in comm.nodes()])


def _by_node(lowest: Sequence[int]) -> list[list[int]]:
    order = sorted(set(lowest))
    return [[order.index(low)] for low in lowest]


def _open_subfile(path: str, number: int, mode: str, options: Options, group: Comm, new: Header) -> Opened:
    try:
        opened = open_file(subfile_path(path, number), mode, options=_inner(options), comm=group, new=new)
    except BaseException as error:
        if group.in_step(error):
            group.close()
        else:
            group.abandon(f"{type(error).__name__}: {error}")
        raise
    assert isinstance(opened, Opened)
    return replace(opened, layout=SubfileLayout)


def _headers(
    path: str,
    count: int,
    opened: Sequence[tuple[Opened, Comm]],
    numbers: Sequence[int],
    options: Options,
    comm: Comm,
    *,
    new: bool,
) -> list[Header]:
    """The headers of all subfiles (collective); none of a new set."""
    if opened or (comm.size > 1 and not new and numbers):
        mine = [(n, o.header_bytes.hex()) for n, (o, g) in zip(numbers, opened, strict=True) if g.rank == 0]
        told = comm.exchange("open subfiles", json.dumps(mine).encode())
        if new:
            return []
        by_number = {n: bytes.fromhex(text) for one in told for n, text in json.loads(one)}
        return [header_of_bytes(by_number[n]) for n in range(count)]

    def read() -> bytes:
        found = []
        for n in range(count):
            name = subfile_path(path, n)
            try:
                existing = open_existing(options.system, name, options.system.realpath(name))
            except FileNotFoundError:
                raise FormatError(
                    f"{path}: the set has {count} subfiles, and {name} is missing", field="num_subfiles", value=count
                ) from None
            options.system.close(existing.fd)
            missing = short_data(existing.decoded.header, existing.size)
            if missing:
                raise FormatError(
                    f"{name}: the file ends before its data: {missing[0][1]} bytes of {missing[0][0]} are missing",
                    offset=existing.size,
                    field="file_size",
                    value=existing.size,
                )
            found.append(existing.content.hex())
        return json.dumps(found).encode()

    return [header_of_bytes(bytes.fromhex(text)) for text in json.loads(on_root(comm, "open subfiles", read))]


def _check(path: str, told: Sequence[Described], count: int) -> None:
    """Refuse subfiles that do not belong together.

    Raises
    ------
    FormatError
    """
    first = told[0]
    for s, one in enumerate(told):
        for what in ("subfiles", "nprocs", "assigned"):
            mine, theirs = getattr(one, what), getattr(first, what)
            if mine != theirs:
                name = {"subfiles": "num_subfiles", "nprocs": "global_nprocs"}.get(what, "decomposition_ID")
                raise _foreign(path, s, name, f"{mine} there, and {theirs} in subfile 0000")
        if replace(one.canonical, numrecs=0) != replace(first.canonical, numrecs=0):
            raise _foreign(path, s, "header", "other dimensions, variables or attributes than in subfile 0000")
        if [of.dims for of in one.maps] != [of.dims for of in first.maps]:
            raise _foreign(path, s, "global_dimids", "other maps than in subfile 0000")
    if first.subfiles != count:
        raise _foreign(path, 0, "num_subfiles", f"{first.subfiles}, where {count} were expected")


def _foreign(path: str, number: int, field: str, what: str) -> FormatError:
    return FormatError(
        f"{subfile_path(path, number)}: it does not belong to this set of subfiles: {field}: {what}",
        field=field,
        value=number,
    )


def _warn_records(path: str, headers: Sequence[Header]) -> None:
    counts = [h.numrecs for h in headers]
    low, high = counts.index(min(counts)), counts.index(max(counts))
    warn_outside(
        FormatWarning(
            f"{path}: the subfiles have different numbers of records ({subfile_path(path, low)}: {min(counts)}, "
            f"{subfile_path(path, high)}: {max(counts)}), as after a job that was killed; shown is what all have",
            field="numrecs",
            value=min(counts),
        )
    )


def _define(defs: PhysicalDefinitions, header: Header, told: Described, tree: Tree) -> None:
    """Give an inner session the definitions of a subfile that is there."""
    uids = tuple(tree.datasets)
    assigned = dict(zip(uids, told.assigned, strict=True))
    sizes: dict[int, int] = {}
    for i in sorted(told.supplements):
        node = tree.datasets[uids[i]]
        dims = header.vars[told.supplements[i]].dims
        sizes[uids[i]] = header.dims[dims[1 if node.is_record else 0]].size
    unplaced = header.with_vars(tuple(var._replace(begin=-1) for var in header.vars))
    defs.become(unplaced, variables_of(header, told.maps, uids, tree.datasets, assigned, sizes))


def _take(files: SubfileSet, headers: list[Header], first: Described, tree: Tree) -> None:
    """Tell a set what its subfiles say."""
    uids = tuple(tree.datasets)
    known = files.files
    known.dims = [of.dims for of in first.maps]
    known.assigned = dict(zip(uids, first.assigned, strict=True))
    known.use(headers, uids, {uids[i]: at for i, at in first.supplements.items()})
