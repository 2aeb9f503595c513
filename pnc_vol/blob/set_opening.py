"""Rank 0 finds a set of subfiles by its name, a pattern or the name of a subfile; all ranks open or create it together.

Knows: the headers of subfiles, which rank writes which subfile. Does not know: requests, what sessions do.

Rules
-----
1. A new set has one subfile for each node, or as many as the options say; its ranks are those of a node, in order.
2. Each subfile of a set that is written is opened by the ranks that share it, with the rules of every file. A set that
   is only read is opened by rank 0, which reads all headers and tells them to the others.
3. The subfiles of a new set get their names when all of them are there and say what they are. Then what the set takes
   the place of is removed: a file with its name, subfiles of an older set that had more.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pnc_vol.blob.hdf5.subfile import read_subfile
from pnc_vol.blob.header import Described, described, is_blob_set, physical_header
from pnc_vol.blob.layout import BlobLayout, Hdf5BlobLayout, SubfileLayout
from pnc_vol.blob.maps import MapSizes
from pnc_vol.blob.names import (
    complete_renames,
    forget_renames,
    matched_set,
    pending_renames,
    set_of_subfile,
    subfile_path,
    subfiles_of,
)
from pnc_vol.blob.physical_definitions import Member, PhysicalDefinitions, map_keys, stored_variables
from pnc_vol.blob.set_driver import SetDriver
from pnc_vol.blob.set_headers import (
    Standing,
    canonical_of,
    counted,
    described_all,
    header_of_bytes,
    netcdf_form,
    positions,
    read_set,
)
from pnc_vol.blob.subfile_set import SubfileSet
from pnc_vol.disk import existing as reading
from pnc_vol.disk.existing import HDF5_SIGNATURE, Existing
from pnc_vol.disk.naming import check_place
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import OpenContext
from pnc_vol.drivers.stack import open_stack
from pnc_vol.errors import NotYetError
from pnc_vol.file import combinations
from pnc_vol.file.driver_stack import context_of, stack_of_others
from pnc_vol.file.file_sets import SetSeen
from pnc_vol.file.leftovers import look_after
from pnc_vol.file.open_file import session_of
from pnc_vol.file.opening import open_file
from pnc_vol.file.opening_record import Opening
from pnc_vol.file.registry import refuse_open
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Header
from pnc_vol.layout.registry import layout_class
from pnc_vol.mapping.tree import Tree
from pnc_vol.optional import require_h5py
from pnc_vol.ranks.comm import Comm, joined_lists, on_root, reported_to_all, serial
from pnc_vol.settings.options import Options
from pnc_vol.system import System, closing_if_it_fails, exists
from pnc_vol.warn import warn_outside

__all__ = ["BlobSets", "open_set"]


def open_set(opening: Opening) -> Any:
    """Open or create a set of subfiles (collective).

    Parameters
    ----------
    opening : Opening, with the name of the set, and the header of its first subfile, empty for a new set.

    Returns
    -------
    Session
    """
    hdf5 = opening.content == HDF5_SIGNATURE or (not opening.content and opening.options.layout == Hdf5BlobLayout.name)
    if not opening.writable:
        return _read(opening, hdf5=hdf5)
    if hdf5:
        _prepare_hdf5(opening)
    path, options, comm, mode = opening.path, opening.options, opening.comm, opening.mode
    system = options.system
    first = described(_first_header(opening), subfile_path(path, 0)) if opening.content else None
    created = first is None
    numbers, subfile_of = _dealt_subfiles(options, comm, None if first is None else first.subfiles)
    count = first.subfiles if first is not None else 1 + max(subfile_of)
    opened: list[Opening] = []
    members: list[Member] = []
    stale: list[str] = []
    try:
        with comm.errors_shared(), reported_to_all(comm):
            if created and comm.rank == 0:
                stale = _stale_files(path, count, system)
            # mode "x": another process may have made the file since rank 0 looked, and it must not be replaced
            how = "r+" if not created else mode if mode == "w" else "x"
            own = _open_subfiles(opened, path, numbers, count, how, options, comm)
        found = {n: (content, records) for n, content, records in comm.merge("open subfiles", own, joined_lists)}
        headers = [header_of_bytes(found[n][0]).with_numrecs(found[n][1]) for n in range(len(found))]
        descriptions = described_all(path, headers)
        tree, canonical = canonical_of(path, headers, descriptions, options, warns=comm.rank == 0)
        for number, one in zip(numbers, opened, strict=True):
            members.append(_member(number, one, descriptions, tree, canonical.numrecs, options))
    except BaseException as error:
        _give_up(members, opened[len(members) :], error)
        raise
    if created:
        _note_replaced(opened, stale, comm)
    driver, nprocs = _driver_of(opening, members, []), comm.size if first is None else first.nprocs
    files = SubfileSet(
        opening, _location(opening), driver, members, count, nprocs, subfile_of, hdf5=hdf5, unnamed=created, stale=stale
    )
    if descriptions:
        files.take(netcdf_form(path, headers, descriptions), descriptions, tuple(tree.datasets))
    session = _session(opening, files, tree, canonical, encode(canonical, check=False))
    if not created and comm.rank == 0:
        # the lock of subfile 0 is this job's
        forget_renames(system, path)
    if created and options.publish == "create":
        _name_set(session, members, system)
    return session


def _read(opening: Opening, *, hdf5: bool) -> Any:
    """Open a set that is only read (collective)."""
    path, options, comm, location = opening.path, opening.options, opening.comm, _location(opening)
    with closing_if_it_fails(options.system):
        form, descriptions, stand = read_set(path, options, comm, location, opening.existing, hdf5=hdf5)
        tree, canonical = canonical_of(path, form.headers, descriptions, options, warns=comm.rank == 0)
    driver, nprocs = _driver_of(opening, [], stand), descriptions[0].nprocs
    files = SubfileSet(opening, location, driver, [], len(stand), nprocs, [0] * comm.size, hdf5=hdf5)
    files.take(form, descriptions, tuple(tree.datasets))
    return _session(opening, files, tree, canonical, b"")


def _location(opening: Opening) -> Location:
    """Return where subfile 0 is."""
    real = opening.options.system.realpath(subfile_path(opening.path, 0))
    return Location(opening.options.system, real, real)


def _session(opening: Opening, files: SubfileSet, tree: Tree, canonical: Header, content: bytes) -> Any:
    """Return the session of a set (collective)."""
    opening.way, opening.driver = "open" if opening.content or not opening.writable else "create", files.driver
    opening.layout = Hdf5BlobLayout if files.hdf5 else BlobLayout
    opening.header, opening.tree, opening.content = canonical, tree, content
    return session_of(opening, file_set=files)


def _prepare_hdf5(opening: Opening) -> None:
    """Have a new set get its names at the close, when it becomes HDF5 files; refuse one that is there (collective)."""
    path = opening.path
    if opening.content:
        raise NotYetError(
            f"{path}: HDF5 blobs are written once, when the file is closed: all data of a process lie in one piece, "
            "without room for more. Open it with mode 'r', or copy it to a file of another layout and go on with that"
        )
    on_root(opening.comm, "open hdf5", lambda: require_h5py("Writing an HDF5 blob file") and None)
    opening.options = opening.options._replace(publish="close")


def _driver_of(opening: Opening, members: Sequence[Member], stand: Sequence[Standing]) -> SetDriver:
    """Make the driver of a set's addresses; `stand` are the subfiles of a set that is only read."""
    options, writable = opening.options, opening.writable
    driver = SetDriver(
        opening.path,
        stack_of_others(options, writable=writable),
        context_of(options, opening.comm, writable=writable),
        {member.number: lambda member=member: member.session.disk.driver for member in members},  # type: ignore[misc]
    )
    for number, file in enumerate(stand):
        driver.reads(number, file)
    return driver


def _name_set(session: Any, members: list[Member], system: System) -> None:
    """Write the headers of a new set, and then give its subfiles their names (collective)."""
    try:
        # Every header is written before the first subfile gets its name: a set found by name has all its headers.
        session.flush(what="open")
    except BaseException as error:
        with suppress(OSError):
            # the abort raises the sync error of the flush again
            session.abort(f"{type(error).__name__}: {error}")
        done = session.file_set.renaming
        for place in [member.session.disk.location for member in members if member.root and not done]:
            # no file of a failed creation stays, even if its bytes could not be synced
            if place is not None and not place.published:
                with suppress(OSError):
                    system.unlink(place.work)
        raise


def _note_replaced(opened: Sequence[Opening], stale: Sequence[str], comm: Comm) -> None:
    """Note that the subfiles of a new set take the place of older files, if rank 0 found some (collective)."""
    (replaces,), _ = comm.agree("open stale", (bool(stale),))
    for one in opened:
        if replaces and one.location is not None:
            # The new content is synced before the old files are removed: a power failure leaves one of the two.
            one.location.replaces = True


def _first_header(opening: Opening) -> Header:
    return header_of_bytes(opening.content) if opening.existing is None else opening.existing.decoded.header


def _stale_files(path: str, count: int, system: System) -> list[str]:
    """Return the files that a new set takes the place of, besides those of its own names; on rank 0."""
    found, subfiles, first = [path] if exists(system, path) else [], 0, subfile_path(path, 0)
    # there may be none, or another file; and without h5py nothing is known of HDF5 blobs
    with suppress(OSError, ImportError):
        if not _is_hdf5(system, first):
            subfiles = described(_header_in(system, first).decoded.header, first).subfiles
        else:
            driver = open_stack("posix", first, OpenContext(False, system))
            try:
                subfiles = read_subfile(driver, first).says.subfiles
            finally:
                driver.close()
    names = [subfile_path(path, s) for s in range(count, subfiles)]
    return found + [name for name in names if exists(system, name)]


def _member(
    number: int,
    opened: Opening,
    descriptions: Sequence[Described],
    tree: Tree,
    numrecs: int,
    options: Options,
) -> Member:
    """Make the inner session of a subfile."""
    defs, nblobs = PhysicalDefinitions(), opened.comm.size
    sizes: tuple[MapSizes, ...] = ()
    defs.become(opened.header, ())
    if descriptions:
        nblobs, both = descriptions[number].nblobs, zip(descriptions[number].maps, descriptions[0].maps, strict=False)
        sizes = tuple(own._replace(dims=first.dims, dimids=first.dimids) for own, first in both)
        _define(defs, opened.header, descriptions[number], descriptions[0], tree)
    opened.tree, opened.options = defs.tree, _inner(options, new=opened.way == "create")
    inner = session_of(opened, defs=defs)
    if opened.header.numrecs > numrecs:
        for uid in inner.disk.layout.record_uids:
            inner.disk.layout.lose_records(uid, numrecs, opened.header.numrecs)
    return Member(number, inner, nblobs, sizes)


def _give_up(members: Sequence[Member], opened: Sequence[Opening], error: BaseException) -> None:
    """Abort the sessions of the subfiles of a set that could not be opened."""
    for member in members:
        with suppress(OSError):
            member.session.abort(f"{type(error).__name__}: {error}")
    for one in opened:
        assert one.driver is not None
        with suppress(OSError):
            one.driver.close()
        if one.way == "create" and one.location is not None and one.comm.rank == 0:
            one.location.discard()
        one.release()


def _inner(options: Options, *, new: bool = False) -> Options:
    """Return the options of a subfile: the session of the set holds the posts, and its flush names a new subfile."""
    publish = "close" if new else options.publish
    return options._replace(layout="canonical", burst_buf=False, store="memory", recover=False, publish=publish)


def _dealt_subfiles(options: Options, comm: Comm, count: int | None) -> tuple[Sequence[int], list[int]]:
    """Return the subfiles that this rank writes, and the first one of each rank (collective).

    Every subfile has at least one rank, every rank at least one subfile.

    Parameters
    ----------
    count : int or None, subfiles that there are.
    """
    size, rank = comm.size, comm.rank
    ranks = np.arange(size)
    if count is not None and count > size:
        return range(-(-rank * count // size), -(-(rank + 1) * count // size)), (-(-ranks * count // size)).tolist()
    n = min(size, count or options.subfiles)
    if n and (options.subfiles or len(comm.nodes().lowest) != count):
        first = ranks * n // size
    elif count is None and options.ranks_per_subfile:
        first = ranks // options.ranks_per_subfile
    else:
        nodes = comm.nodes()
        first = np.repeat(nodes.nodes, np.diff([*nodes.starts, size]))
    return [int(first[rank])], first.tolist()


def _open_subfiles(
    opened: list[Opening], path: str, numbers: Sequence[int], count: int, mode: str, options: Options, comm: Comm
) -> list[tuple[int, bytes, int]]:
    """Open the subfiles that this rank writes (collective); those that are open are in the list if one fails.

    Returns
    -------
    list of (int, bytes, int)
        Of each that is there, and of which this is the first rank: its number, header and records.
    """
    own: list[tuple[int, bytes, int]] = []
    for number in numbers:
        # where there are more subfiles than ranks, each has one rank, and ranks have different numbers of them
        group = serial() if count > comm.size else comm.group(number)
        new = physical_header(Header(5), [], [], nblobs=group.size, nprocs=comm.size, subfiles=count)
        one = _open_subfile(path, number, mode, options, group, new)
        opened.append(one)
        if mode == "r+" and group.rank == 0:
            assert one.driver is not None
            header = counted(one.header, one.driver.size(), subfile_path(path, number))
            own.append((number, one.content, header.numrecs))
    return own


def _open_subfile(path: str, number: int, mode: str, options: Options, group: Comm, new: Header) -> Opening:
    inner = _inner(options, new=mode != "r+")
    opened = Opening(subfile_path(path, number), mode, inner, group, layout=SubfileLayout)
    try:
        open_file(opened, new)
    except BaseException as error:
        if group.in_step(error):
            group.close()
        else:
            group.abandon(f"{type(error).__name__}: {error}")
        raise
    return opened


def _define(defs: PhysicalDefinitions, header: Header, own: Described, first: Described, tree: Tree) -> None:
    """Give an inner session the definitions of a subfile that is there.

    own, first : Described, the subfile, and subfile 0, which says what there is.
    """
    uids = tuple(tree.datasets)
    keys: dict[int, Any] = dict(enumerate(map_keys(own.maps)))
    keys |= {n: (uid, k) for n, uid, k in zip(positions(own, first), uids, first.assigned, strict=True) if n >= 0}
    if own is first:
        keys |= {n: (uids[i], "supplement") for i, n in own.supplements.items()}
    defs.become(
        header.with_vars(tuple(var._replace(begin=-1) for var in header.vars)),
        stored_variables(header, keys, tree.datasets),
    )


# ------------------------------------------------------------------------------------------------ what rank 0 finds


class BlobSets:
    """See `file.file_sets.FileSets`."""

    @staticmethod
    def first_file(base: str) -> str:
        return subfile_path(base, 0)

    @staticmethod
    def lacks_first(system: System, base: str) -> bool:
        return exists(system, subfile_path(base, 1)) and not exists(system, subfile_path(base, 0))

    @staticmethod
    def files(system: System, base: str) -> list[str]:
        return subfiles_of(system, base)

    @staticmethod
    def matched(system: System, path: str) -> str:
        return matched_set(system, path)

    @staticmethod
    def seen(name: str, asked: str, path: str, options: Options) -> SetSeen | None:
        base = set_of_subfile(path)
        if not base:
            return None
        first = subfile_path(base, 0)
        if _is_hdf5(options.system, pending_renames(options.system, base).get(0, path)):
            return SetSeen(name, base, reading.HDF5_SIGNATURE)
        try:
            found = _first_existing(options.system, base)
        except FileNotFoundError:
            found = _header_in(options.system, path)
        if is_blob_set(found.decoded.header):
            return SetSeen(name, base, found.content, found)
        if path == first == subfile_path(asked, 0):
            # The user named a set: an error reports the missing attribute, because the same bytes opened as an
            # ordinary file would show elements in another order.
            described(found.decoded.header, path)
        return None

    @staticmethod
    def find(opening: Opening, seen: SetSeen, there: os.stat_result | None) -> None:
        base, mode, options = seen.base, opening.mode, opening.options
        opening.path, opening.content, opening.existing = base, seen.header, seen.first
        system = options.system
        if opening.writable:
            complete_renames(system, base)
        plain: os.stat_result | None = None
        with suppress(FileNotFoundError):
            plain = system.stat(base)
        if not seen.header:
            for name, what in ((base, plain), (subfile_path(base, 0), there)):
                if what is not None:
                    check_place(what, name, exclusive=mode in ("w-", "x"))
            if mode != "w" and not exists(system, subfile_path(base, 0)) and _others_than_first(system, base):
                text = "the first file of this set of subfiles is missing, and others are there; bring it back"
                raise FileNotFoundError(errno.ENOENT, text, subfile_path(base, 0))
            if plain is None and mode in ("r", "r+"):
                raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", base)
            combinations.check(layout_class(options.layout), options, 1, path=base, new=True)
            if plain is not None:
                refuse_open(system.realpath(base), base, replaced=True)
        elif plain is not None and plain.st_size:
            warn_outside(
                f"{base}: an ordinary file has this name, too, and is what the name leads to; what is opened here is "
                f"the set of subfiles beside it, {subfile_path(base, 0)!r}. Remove what is not needed of the two"
            )
        if opening.token:
            _look_after(opening, base, there=there is not None, plain=plain is not None)

    @staticmethod
    def open(opening: Opening) -> Any:
        return open_set(opening)


def _others_than_first(system: System, base: str) -> bool:
    """Return whether other files of a set than its first one are there, whichever their numbers are."""
    folder, name = os.path.split(base)
    with suppress(OSError):
        for other in system.listdir(folder or "."):
            # a file of another kind may have such a name
            with suppress(OSError):
                path = os.path.join(folder, other)
                if set_of_subfile(other) == name and (
                    _is_hdf5(system, path) or is_blob_set(_header_in(system, path).decoded.header)
                ):
                    return True
    return False


def _look_after(opening: Opening, base: str, *, there: bool, plain: bool) -> None:
    """Let plug-ins take care of what jobs left of a set's files, and read the first header again.

    there, plain : bool, whether the first subfile exists, and whether a file with the name of the set does.
    """
    options, system, first = opening.options, opening.options.system, subfile_path(base, 0)
    replaced = opening.mode in ("w", "w-", "x")
    names = subfiles_of(system, base) if there else []
    # Subfile 0 comes last: its log is that of the set, and newer than the data in the caches of all subfiles.
    for name in reversed(names or [first]):
        look_after(name, system.realpath(name), options, writable=opening.writable, replaced=replaced)
    if replaced and plain:
        look_after(base, system.realpath(base), options, writable=True, replaced=True)
    if opening.content and opening.content != reading.HDF5_SIGNATURE:
        # The recovery may have written another header.
        if opening.existing is None or not reading.unchanged(system, first, opening.existing):
            opening.existing = _first_existing(system, base)
        opening.content = opening.existing.content


def _first_existing(system: System, base: str) -> Existing:
    """Return the header of subfile 0, wherever that is."""
    if work := pending_renames(system, base).get(0):
        with suppress(FileNotFoundError):
            return _header_in(system, work)
    return _header_in(system, subfile_path(base, 0))


def _header_in(system: System, path: str) -> Existing:
    """Return the header of a file, which is closed again."""
    found = reading.open_existing(system, path, system.realpath(path))
    system.close(found.fd)
    return found


def _is_hdf5(system: System, path: str) -> bool:
    fd = system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return stat.S_ISREG(system.fstat(fd).st_mode) and reading.kind_of(system, fd) == reading.HDF5
    finally:
        system.close(fd)
