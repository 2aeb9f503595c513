"""A set of HDF5 blob files keeps posted data until the close; then all ranks write the files together.

Knows: how a set is created, or opened for reading; the ranks of each subfile, their plans, drivers, fill values. Does
not know: users' objects, HDF5.

Rules
-----
1. A flush before the close agrees on definitions and writes nothing: copies of the values stay in the queue's store,
   in memory and then in its spill file. Until the close a rank reads its own posted values only.
2. At the close all ranks agree on the maps, which follow from everything posted, and so on all file offsets; then
   each rank writes its data once, in whichever subfile they belong. Only where several ranks posted the same elements,
   data posted after a flush are written after data posted before it.
3. Variables that are not partitioned are written to subfile 0, and copied to the others when all ranks have written.
4. A subfile has a temporary name until all of them are written whole. If something fails, none gets its name. These
   files are made when the set is opened: what cannot be written is known before the job runs.
5. A closed set can only be read. Rank 0 reads the headers and maps and sends them to the other ranks.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import add
from typing import Any

import numpy as np

from pnc_vol.blob.hdf5.container import Container, Stored
from pnc_vol.blob.hdf5.layout import Hdf5BlobFiles, Hdf5BlobLayout
from pnc_vol.blob.hdf5.subfile import Hdf5Subfile, contained, plan_subfile, read_subfile
from pnc_vol.blob.header import physical_header
from pnc_vol.blob.index import ElementIndex
from pnc_vol.blob.map_agreement import Agreed, BlobSet
from pnc_vol.blob.maps import SubfileMap
from pnc_vol.blob.names import subfile_path
from pnc_vol.blob.posted_runs import PostedRuns, inner_shape
from pnc_vol.blob.renaming import forget_renames, write_renames
from pnc_vol.blob.set_driver import SetDriver
from pnc_vol.blob.set_headers import Standing, canonical_of, closed_if_it_fails, read_in_turn, refuse_foreign
from pnc_vol.blob.set_opening import dealt_subfiles, stale_files
from pnc_vol.disk.locking import Held
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.block_copy import copy_blocks
from pnc_vol.drivers.stack import open_stack, stack_capabilities
from pnc_vol.errors import NotYetError
from pnc_vol.extents.merge import coalesced
from pnc_vol.extents.model import Runs, one_extent
from pnc_vol.file.driver_stack import context_of, open_together, stack_of, stack_of_others
from pnc_vol.file.joining import session_of
from pnc_vol.file.opening import Opening
from pnc_vol.file.session import Session, WriteData
from pnc_vol.flush.agree import Agreement
from pnc_vol.format.model import Header
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.queue.batches import Batch, Listed
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options

__all__ = ["Hdf5Set", "Hdf5SetDriver", "Own", "open_hdf5_set"]

_BLOCK = 1 << 20
"""Bytes that are filled or copied at once."""

_EPOCH = 1
"""Of drivers: each file is written in one."""


class Hdf5SetDriver(SetDriver):
    """The driver of a set of HDF5 blob files: elements are in big-endian order here, whatever each file has.

    files : Hdf5BlobFiles, by which it knows where elements are; set once.
    """

    files: Hdf5BlobFiles

    def file(self, number: int) -> Driver:
        """Return the driver of a subfile."""
        return self._file(number)

    def _opened(self, number: int, name: str) -> Driver:
        return self.files.subfiles[number].over(super()._opened(number, name))


class Own:
    """The subfile that this rank writes, together with the others of its group.

    number : int
    group : Comm
    location : Location, with a temporary name until it is written.
    driver : Driver, of the whole file, as it is.
    """

    def __init__(self, number: int, group: Comm, location: Location, driver: Driver) -> None:
        self.number, self.group, self.location, self.driver = number, group, location, driver

    @property
    def root(self) -> bool:
        """Whether this rank writes what the group writes once."""
        return self.group.rank == 0


class Hdf5Set(BlobSet[Hdf5BlobFiles]):
    """The subfiles of an open file, which are written at the close.

    Parameters
    ----------
    comm, path, count, nprocs, subfile_of, stale : see `BlobSet`.
    own : Own or None, in a set that is read.
    driver : Hdf5SetDriver
    location : Location, of subfile 0, by which the process finds the session again.
    """

    def __init__(
        self,
        comm: Comm,
        path: str,
        *,
        count: int,
        nprocs: int,
        subfile_of: list[int],
        own: Own | None,
        driver: Hdf5SetDriver,
        location: Location,
        stale: Sequence[str] = (),
    ) -> None:
        make = partial(Hdf5BlobFiles, path=path)
        super().__init__(
            comm, path, make, Hdf5BlobLayout, count=count, nprocs=nprocs, subfile_of=subfile_of, stale=stale
        )
        self.driver, self._location, self.own = driver, location, own
        driver.files = self.files
        self._flushed: list[int] = []
        """Of each flush the number of the first request behind it."""

    def read_index(self, k: int) -> ElementIndex:
        return self.files.read_index(self.driver.file, k)

    @property
    def location(self) -> Location:
        return self._location

    @property
    def begun(self) -> bool:
        return True

    def refresh(self, session: Session) -> bool:
        """Do nothing: subfiles are there when they are complete."""
        return False

    @property
    def settled(self) -> bool:
        """False: the close has to write the files, even if nothing was defined or posted since the last flush."""
        return False

    @property
    def holds_back(self) -> bool:
        return self.own is not None and self.own.driver.capabilities.holds_back

    def drain(self, operation: str) -> None:
        """Nothing is written before the close, so drivers hold nothing back."""

    # ------------------------------------------------------------------------------------------- flush

    def flush(
        self,
        session: Session,
        batches: list[Batch],
        agreed: Agreement,
        write: WriteData,
        *,
        durable: bool,
        carried: bool,
        closing: bool,
    ) -> None:
        """Keep what is posted, or write all of it at the close (collective); see `Session.flush`."""
        if closing:
            self._write(session, batches, write, durable=durable)
        elif durable:
            raise NotYetError(
                f"{self.path}: with layout='hdf5blob' nothing is in a file before the close, so a flush cannot be "
                "durable; use layout='blob'"
            )
        else:
            self._keep(session, batches)

    def _keep(self, session: Session, batches: list[Batch]) -> None:
        """Keep posted data in the queue and complete their handles, because the values were copied."""
        layout = session.disk.layout
        assert isinstance(layout, Hdf5BlobLayout)
        at = {uid: i for i, uid in enumerate(layout.uids)}
        rank = self.comm.rank
        own_posts = {str(at[uid]): [rank, rank] for batch in batches for uid in batch.uids()}
        posted_by = self.comm.merge("flush posted", own_posts, _first_and_last)
        others = {layout.uids[int(i)] for i, ranks in posted_by.items() if ranks != [rank, rank]}
        self.files.elsewhere = {uid: partial(_posted, session, uid) for uid in others}
        layout.forget_places()
        session.posted.note_kept()
        self._flushed.append(session.posted.next_number)

    # ------------------------------------------------------------------------------------------- close

    def _write(self, session: Session, batches: list[Batch], write: WriteData, *, durable: bool) -> None:
        layout, own = session.disk.layout, self.own
        assert isinstance(layout, Hdf5BlobLayout)
        assert own is not None
        posted = PostedRuns(batches)
        decided, lists = self._plan(session, layout, posted)
        own_subfile = self.files.subfiles[own.number]
        over = self.driver.file(own.number)
        blob = own.group.rank
        over.write(*own_subfile.map_rows(blob, lists))
        self._fill(session.defs.tree.datasets, posted)
        # A fill value that is written after another rank's data would destroy them.
        over.drain()
        self.comm.agree("close filled")
        turns = self._in_turns(batches) if decided.overlaps and self.comm.size > 1 else ()
        _, failures, _ = write(turns, pieces=decided.pieces)
        own.driver.drain()
        self.comm.agree("close written")
        if failures:
            # A failure here leaves the files incomplete, so it is raised before any of them gets its name.
            return
        self._copy_plain(layout, decided)
        own.driver.end_flush()
        own.driver.drain()
        (replaces,), _ = self.comm.agree("close replaces", (own.location.replaces or bool(self._stale),))
        # The data of all ranks are in the files: so is the length that a driver held back till then.
        own.driver.release(_EPOCH)
        if durable or replaces:
            # A file that replaces another one is synced first: after a power failure one of the two is complete.
            self.driver.sync()
            own.driver.sync()
        self.comm.agree("close copied")
        self._publish(durable=durable, renames=bool(replaces) and self.count > 1)

    def _in_turns(self, batches: list[Batch]) -> list[list[Batch]]:
        """Return what was posted between two flushes each: what came later goes over what any rank posted before."""
        turns: list[list[Batch]] = [[] for _ in range(len(self._flushed) + 1)]
        for batch in batches:
            turns[bisect_right(self._flushed, _first_request(batch))].append(batch)
        return turns

    def _plan(self, session: Session, layout: Hdf5BlobLayout, posted: PostedRuns) -> tuple[Agreed, list[Runs]]:
        """Agree on maps and all places (collective); the runs of this rank's blob in each map."""
        own, files = self.own, self.files
        assert own is not None
        files.elsewhere = {}
        canonical, uids = layout.header, layout.uids
        decided = self.agree(session, canonical, uids, posted)
        maps = [decided.maps[k] for k in sorted(decided.maps)]
        entries, error = None, None
        planned: list[Hdf5Subfile] = []
        try:
            # Each rank plans its subfile itself, at the same time as the others; one makes the container.
            planned.append(self._planned(own, canonical, uids, maps, decided))
            if own.root:
                entries = [self._make_container(own, planned[0])]
        except Exception as reason:
            error = reason
        subfiles: dict[int, Hdf5Subfile] = {}
        for number, work, stored, value in self.comm.merge("close plan", entries, add, error=error):
            if number == own.number:
                container = Container(*(Stored(*where) for where in stored))
                subfiles[number] = planned[0]._replace(container=container)
            else:
                subfiles[number] = Hdf5Subfile.of_value(value)
            self.driver.moved(number, work)
        files.use_subfiles([subfiles[n] for n in range(self.count)], uids)
        layout.forget_places()
        self.driver.use_own(own.number, subfiles[own.number].over(own.driver))
        return decided, [one.blobs[own.group.rank] for one in maps]

    def _planned(
        self, own: Own, canonical: Header, uids: tuple[int, ...], maps: list[SubfileMap], decided: Agreed
    ) -> Hdf5Subfile:
        """Return the plan of this rank's subfile, without its container."""
        files = self.files
        rest = self.supplements(own.number, uids, decided.supplements)
        assigned = [files.assigned[uid] for uid in uids]
        header = physical_header(
            canonical,
            maps,
            assigned,
            nblobs=own.group.size,
            nprocs=self.nprocs,
            subfiles=self.count,
            supplements=rest,
        )
        shape = (len(maps), own.group.size)
        columns = [of.counts for of in maps], [of.nreqs for of in maps]
        counts, nreqs = (np.array(column, np.int64).reshape(shape) for column in columns)
        return plan_subfile(header, counts, nreqs, subfile_path(self.path, own.number))

    def _make_container(self, own: Own, plan: Hdf5Subfile) -> tuple[Any, ...]:
        """Write the container of a subfile; what all ranks need to know of the file."""
        one, pieces, nbytes = contained(plan)
        own.driver.grow(nbytes)
        for offset, piece in pieces:
            own.driver.write(one_extent(offset, len(piece)), np.frombuffer(piece, np.uint8))
        # Its own ranks know the rest.
        value = one.value(pieces[-1][1]) if self.count > 1 else None
        return own.number, own.location.work, one.container, value

    def _fill(self, nodes: Mapping[int, DatasetNode], posted: PostedRuns) -> None:
        """Write fill values where this rank's blob has elements that it did not post."""
        own, files = self.own, self.files
        assert own is not None
        one, blob, driver = files.subfiles[own.number], own.group.rank, self.driver.file(own.number)
        for i, uid in enumerate(files.uids):
            node, k = nodes[uid], files.assigned[uid]
            pattern = node.fillvalue
            if pattern is None or not pattern.strip(b"\0"):
                continue
            variables = [one.says.variables[i]] if k or blob == 0 else []
            if k and blob == 0 and i in one.says.supplements:
                variables.append(one.says.supplements[i])
            for variable in variables:
                nbytes = one.part_bytes(variable, blob)
                if nbytes and not (k and variable == one.says.variables[i] and self._posted_whole(posted, node)):
                    _fill_bytes(driver, int(one.begins(variable)[blob]), nbytes, pattern)

    def _posted_whole(self, posted: PostedRuns, node: DatasetNode) -> bool:
        """Return whether this rank posted each element of its part, in all records, and nothing else."""
        uid, own = node.uid, self.files.own[self.files.assigned[node.uid]][0]
        inner = math.prod(inner_shape(node)) if node.is_record else 0
        records = (node.shape or (0,))[0] if node.is_record else 1
        part, elements = coalesced(own), int(posted.of(uid, 0).length.sum())
        within = posted.of(uid, inner)
        return elements == records * int(part.length.sum()) and all(map(np.array_equal, within, part))

    def _copy_plain(self, layout: Hdf5BlobLayout, decided: Agreed) -> None:
        """Copy what was posted to variables without a map from subfile 0 to the others."""
        own, files = self.own, self.files
        assert own is not None
        if not own.root or own.number == 0:
            return
        first, own_subfile = files.subfiles[0], files.subfiles[own.number]
        at = {uid: i for i, uid in enumerate(files.uids)}
        for uid in decided.copies:
            source, target = first.says.variables[at[uid]], own_subfile.says.variables[at[uid]]
            begin, to = int(first.begins(source)[0]), int(own_subfile.begins(target)[0])
            pieces = one_extent(begin, first.part_bytes(source, 0), to)
            copy_blocks(self.driver.file(0).read, self.driver.file(own.number).write, pieces)

    def _publish(self, *, durable: bool, renames: bool) -> None:
        """Give all subfiles their names (collective); `renames`: in one step, in place of those of an older set."""
        own, system = self.own, self._location.system
        assert own is not None
        if renames:
            write_renames(self.comm, system, self.path, [(own.number, own.location.work)] if own.root else [])
            own.location.note_kept()
        error: OSError | None = None
        if own.root:
            try:
                own.location.publish(durable=durable)
            except OSError as reason:
                error = reason
        self.comm.agree("close publish", error=error)
        own.location.note_published()
        if renames and self.comm.rank == 0:
            forget_renames(system, self.path)
        self.remove_stale(system)

    def close(self, *, orderly: bool, flushed: bool) -> None:
        """Let go of the subfiles (collective if `orderly`)."""
        own = self.own
        if own is None:
            return
        try:
            if orderly or not own.driver.capabilities.collective:
                own.driver.close()
        finally:
            if own.root:
                own.location.discard()
            own.location.held.release()
            with suppress(OSError):
                own.group.close() if orderly else own.group.abandon(f"{self.path}: the file was given up")


def _first_request(batch: Batch) -> int:
    """Return the request of a row of a batch; a flush closes a batch, so all are of the time between two."""
    first = batch.items(batch.uids()[0])[0]
    return first.request if isinstance(first, Listed) else int(first[0, 0])


def _posted(session: Session, uid: int) -> Runs:
    return PostedRuns(session.posted.queue.batches()).of(uid, 0)


def _first_and_last(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return, for each variable, the first and the last rank that posted something for it, from two parts of all
    ranks."""
    found = dict(one)
    for key, (first, last) in other.items():
        low, high = found.get(key, (first, last))
        found[key] = [min(low, first), max(high, last)]
    return found


def _fill_bytes(driver: Driver, begin: int, nbytes: int, pattern: bytes) -> None:
    step = max(1, _BLOCK // len(pattern)) * len(pattern)
    block = np.frombuffer(pattern * (min(step, nbytes) // len(pattern)), np.uint8)
    for low in range(0, nbytes, step):
        driver.write(one_extent(begin + low, min(step, nbytes - low)), block)


def open_hdf5_set(opening: Opening) -> Any:
    """Open or create a set of HDF5 blob files (collective); see `set_opening.open_set`."""
    path = opening.path
    if not opening.content:
        return _created(opening)
    if opening.writable:
        raise NotYetError(
            f"{path}: HDF5 blobs are written once, when the file is closed: all data of a process lie in one piece, "
            "without room for more. Open it with mode 'r', or copy it to a file of another layout and go on with that"
        )
    return _read(opening)


def _session(opening: Opening, driver: Hdf5SetDriver, tree: Tree, header: Header, files: Hdf5Set) -> Any:
    """Fill in what was read or made of a set; its session (collective)."""
    opening.way, opening.driver, opening.layout = "open" if opening.content else "create", driver, Hdf5BlobLayout
    # The header of a set is in none of its files.
    opening.header, opening.tree, opening.content = header, tree, b""
    return session_of(opening, file_set=files)


def _created(opening: Opening) -> Any:
    path, mode, options, comm = opening.path, opening.mode, opening.options, opening.comm
    system = options.system
    (number, *_), subfile_of = dealt_subfiles(options, comm, None)
    made: list[Own] = []
    count = 1 + max(subfile_of)
    stale: list[str] = []
    try:
        with comm.errors_shared():
            stale += stale_files(path, count, system) if comm.rank == 0 else []
            made.append(_own(path, number, mode, options, comm.group(number)))
            comm.agree("create subfiles")
    except BaseException:
        for own in made:
            own.location.discard()
            own.location.held.release()
        raise
    own = made[0]
    context = context_of(options, comm, writable=True)
    driver = Hdf5SetDriver(path, stack_of_others(options, writable=True), context, {number: lambda: own.driver})
    real = system.realpath(subfile_path(path, 0))
    location = own.location if number == 0 else Location(system, real, real)
    files = Hdf5Set(
        comm,
        path,
        count=count,
        nprocs=comm.size,
        subfile_of=subfile_of,
        own=own,
        driver=driver,
        location=location,
        stale=stale,
    )
    tree, canonical = canonical_of(path, [], [], options, warns=False)
    return _session(opening, driver, tree, canonical, files)


def _own(path: str, number: int, mode: str, options: Options, group: Comm) -> Own:
    """Make the temporary file of a subfile, and open it on the ranks that share it (collective in the group)."""
    system, name = options.system, subfile_path(path, number)
    places: list[Location] = []

    def do() -> str:
        held = Held(system, name, options.locking)
        exclusive = mode in ("w-", "x")
        places.append(Location.create(system, name, b"", exclusive=exclusive, publish=False, held=held))
        return places[0].work

    work = on_root(group, "create subfile", do)
    location = places[0] if places else Location(system, system.realpath(name), work, unseen=True)
    fd = location.held.fds.get(location.key, -1) if location.key is not None else -1
    context = context_of(options, group, writable=True, fd=fd)
    driver = open_together(stack_of(options, group), work, context, group, location)
    assert driver is not None
    return Own(number, group, location, driver)


def _read(opening: Opening) -> Any:
    path, options, comm = opening.path, opening.options, opening.comm
    context, spec = context_of(options, comm, writable=False), stack_of_others(options, writable=False)

    def read(name: str, number: int) -> tuple[tuple[Any, ...], int, Standing]:
        fd = options.system.open(name, os.O_RDONLY | os.O_CLOEXEC)
        with closed_if_it_fails(options.system, fd):
            lent = fd if stack_capabilities(spec).takes_descriptor else -1
            one = open_stack(spec, name, context._replace(comm=None, fd=lent))
            try:
                subfile = read_subfile(one, name)
            finally:
                one.close()
            return subfile.value(), subfile.says.subfiles, Standing(name, options.system.fstat(fd).st_ino, fd)

    read_on_root = read_in_turn(path, options, comm, read)
    driver = Hdf5SetDriver(path, spec, context, {})
    for number, (_, file) in enumerate(read_on_root):
        driver.reads(number, file)
    try:
        subfiles = [Hdf5Subfile.of_value(one) for one, _ in read_on_root]
        headers, says = [one.header for one in subfiles], [one.says for one in subfiles]
        refuse_foreign(path, says, exact=True)
        tree, canonical = canonical_of(path, headers, says, options, warns=comm.rank == 0)
    except BaseException:
        driver.close()
        raise
    real = options.system.realpath(subfile_path(path, 0))
    files = Hdf5Set(
        comm,
        path,
        count=len(subfiles),
        nprocs=says[0].nprocs,
        subfile_of=[0] * comm.size,
        own=None,
        driver=driver,
        location=Location(options.system, real, real),
    )
    files.files.use_subfiles(subfiles, tuple(tree.datasets))
    return _session(opening, driver, tree, canonical, files)
