"""A set of subfiles has one file for each node; each is an ordinary file with a session of its own.

Knows: sessions of subfiles, their headers, which ranks share which. Does not know: users' objects, requests.

Rules
-----
1. The ranks of a subfile share an inner session, whose header is the *physical* one. It has its own journal, lock,
   cache and layout; a flush of the set is a flush of all inner sessions, in which the data of the set are written.
2. Each rank writes its own data, in whichever subfile they belong: it writes to subfiles of other ranks through a
   descriptor of its own.
3. Before data are written, all ranks know the headers of all subfiles; they are exchanged where they changed.
4. Variables that are not partitioned are written to subfile 0, and copied to the others when all ranks have written.
5. A flush that deletes or renames a partitioned variable keeps the variable in the other subfiles, under the name that
   subfile 0 has for it, until the header of subfile 0 is written: a kill between two headers leaves the old set or the
   new one. Such a flush writes two headers for each of the others. The alternative, a journal over all subfiles,
   would have to hold back the data that a layout moves.
6. A new set of several subfiles that takes the names of an older set is complete under temporary names first; then a
   journal lists the renames, and is removed when all are done (`names`). A flush of longer strings of a partitioned
   dataset makes such a set of the copies into which the subfiles go: with a part of them, strings would be cut.
7. HDF5 blobs are the same set, of NetCDF files under temporary names, until the close: then an HDF5 file is written
   around the blobs of each (`hdf5.subfile.wrap`), and these get the names. If that fails the NetCDF files are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from pnc_vol.blob.hdf5.subfile import wrap
from pnc_vol.blob.header import Described, physical_header
from pnc_vol.blob.index import ElementIndex, index_of
from pnc_vol.blob.layout import BlobFiles, BlobLayout, Hdf5BlobLayout, NetcdfForm, SubfilesForm
from pnc_vol.blob.map_agreement import Agreed, MapAgreement, PostedRuns
from pnc_vol.blob.maps import MAP_VARIABLES, SubfileMap
from pnc_vol.blob.names import forget_renames, remove_stale, write_renames
from pnc_vol.blob.physical_definitions import Member, variables_of
from pnc_vol.blob.set_driver import SetDriver
from pnc_vol.blob.set_headers import (
    blob_names,
    canonical_of,
    header_of_bytes,
    read_set,
)
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.block_copy import copy_blocks
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents, Runs
from pnc_vol.file.driver_stack import open_copy
from pnc_vol.file.header_update import sync_before
from pnc_vol.file.opening_record import Opening
from pnc_vol.file.session import FileSet, Session, WriteData, Written
from pnc_vol.flush.agree import Agreement, derive_digest
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Header
from pnc_vol.layout.base import Place
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.mapping.tree_refresh import refresh_tree
from pnc_vol.queue.batches import Batch
from pnc_vol.ranks.comm import joined_lists, reported_to_all
from pnc_vol.settings.options import Options
from pnc_vol.system import closing_if_it_fails, exists

__all__ = ["SubfileSet"]

_HELD = (
    "what is read may be among flushed data that ranks of another subfile still have in their caches, and the file "
    "does not have yet. Call f.sync() or read inside 'with ds.collective:', on all ranks"
)


class SubfileSet(FileSet):
    """The subfiles of an open file, each with a session.

    Parameters
    ----------
    opening : Opening, of all ranks; `path` is the name of the set.
    location : Location, of subfile 0, where this rank has no session of it.
    driver : SetDriver
    members : list of Member, those that this rank writes; empty in a set that is only read.
    count, nprocs : int, subfiles, and the processes that made them.
    subfile_of : list of int, the subfile of each rank.
    hdf5 : bool, the subfiles are HDF5 files, or are going to be.
    unnamed : bool, the files have temporary names, or get them in this flush, until all have their names.
    stale : list of str, on rank 0 the files that a new set takes the place of, besides those of its own names.

    Attributes
    ----------
    files : BlobFiles, what all layouts of the set know.
    renaming : bool, a journal lists the renames of the subfiles: an opening does those that are left.
    """

    def __init__(
        self,
        opening: Opening,
        location: Location,
        driver: SetDriver,
        members: list[Member],
        count: int,
        nprocs: int,
        subfile_of: list[int],
        *,
        hdf5: bool,
        unnamed: bool = False,
        stale: Sequence[str] = (),
    ) -> None:
        self.comm, self.path, self.count, self.hdf5 = opening.comm, opening.path, count, hdf5
        self.files = BlobFiles(self._index, nprocs)
        self._agreement = MapAgreement(self.comm, self.files, subfile_of)
        self.members, self.driver, self._location = members, driver, location
        self._unnamed, self._stale, self.renaming = unnamed, list(stale), False
        self._holding = False
        """Whether drivers hold bytes back."""
        self._names = dict[tuple[int, int], str]()
        """What subfile 0 calls partitioned datasets, by uid and map."""
        self._names_held = False
        """Whether drivers may hold back headers with other partitioned datasets than the subfiles have."""

    def layout(self, options: Options) -> BlobLayout:
        """Return a layout over these files."""
        made = (Hdf5BlobLayout if self.hdf5 else BlobLayout)(options)
        made.files = self.files
        return made

    def _index(self, k: int) -> ElementIndex:
        known, files = self._agreement.index_of_lists(k), self.files
        if known is not None:
            return known
        dims = files.dims[k - 1]

        def maps() -> Iterator[tuple[int, SubfileMap]]:
            # an index of a large map reads it again and again, wherever a later flush has moved it to
            return files.known_form.maps(k, dims, self.driver.file)

        return index_of(math.prod(dims), maps, f"{self.path}: D{k}", most=files.known_form.most_runs(k))

    @property
    def begun(self) -> bool:
        """Whether the subfiles have their headers and their names."""
        return bool(self.files.headers) and all(member.session.disk.named for member in self.members)

    def take(self, form: SubfilesForm, descriptions: Sequence[Described], uids: tuple[int, ...]) -> None:
        """Take over what the subfiles say.

        uids : tuple of int, the datasets, in the order of the variables of subfile 0.
        """
        known, first = self.files, descriptions[0]
        known.dims, known.assigned = [of.dims for of in first.maps], dict(zip(uids, first.assigned, strict=True))
        supplements = {uids[i]: at for i, at in first.supplements.items()}
        known.use(form, uids, supplements)
        self.driver.over = form.over
        self._names = blob_names(first.canonical, uids, first.assigned)

    @property
    def location(self) -> Location | None:
        if self.members and self.members[0].number == 0:
            return self.members[0].session.disk.location
        return self._location

    def refresh(self, session: Session) -> bool:
        """Take over what is in the subfiles now, of a set that is only read (collective)."""
        system, first = session.options.system, self._location.path
        location = Location(system, first, first)
        with closing_if_it_fails(system):
            form, descriptions, files = read_set(self.path, session.options, self.comm, location, hdf5=self.hdf5)
            new = list(form.headers) != list(self.files.headers)
            warns = new and self.comm.rank == 0
            tree, canonical = canonical_of(self.path, form.headers, descriptions, session.options, warns=warns)
        # The writer may have replaced the files: the descriptors at hand may be those of unlinked files.
        self._location = location
        self.driver.close()
        for number, file in enumerate(files):
            self.driver.reads(number, file)
        self.files.forget_maps()
        if new:
            refresh_tree(session.defs.tree, tree)
        datasets = session.defs.tree.datasets
        self.take(form, descriptions, tuple(datasets))
        layout = session.disk.layout.anew()
        layout.adopt(canonical, tuple(datasets), datasets)
        session.disk.use_layout(layout)
        session.disk.begins_with(canonical, b"")
        session.defs.flushed(canonical)
        return new

    @property
    def kept_as(self) -> str:
        places = [member.session.disk.location for member in self.members]
        return next((place.kept_as for place in places if place is not None and place.kept_as), "")

    @property
    def holds_back(self) -> bool:
        return any(member.session.disk.driver.capabilities.holds_back for member in self.members)

    @property
    def settled(self) -> bool:
        return not self._holding

    def drain(self, operation: str) -> None:
        """Bring what the drivers of subfiles hold back to them (collective)."""
        if not self.settled:
            # The held header of subfile 0 follows when those of all others have: it says what the set contains.
            for first in (False, True):
                with self.comm.errors_shared():
                    for member in self.members:
                        if (member.number == 0) == first:
                            member.session.epochs.drain(operation)
                self.comm.agree(operation)
            self._holding, self.driver.held = False, ""

    # ------------------------------------------------------------------------------------------- flush

    def _agree_on_maps(self, session: Session, layout: BlobLayout, batches: list[Batch]) -> Agreed:
        """Agree which map each variable gets, and bring older data of these elements to the files (collective)."""
        defs, posted = session.defs, PostedRuns(batches)
        take_back, sizes = self._agreement.noted(), [member.sizes for member in self.members]
        try:
            new = self._agreement.agree(layout.header, layout.uids, defs.tree.datasets, posted, defs.decompositions)
            for member in self.members:
                member.sizes = [*member.sizes, *(self._part(member, made).sizes for made in new.maps.values())]
        except BaseException:
            # Ctrl-C, no memory: the next flush agrees on all of it, or on nothing.
            take_back()
            for member, before in zip(self.members, sizes, strict=True):
                member.sizes = before
            raise
        self.driver.in_files, self.driver.direct = lambda: EMPTY, [] if self.holds_back else None
        if new.other_subfiles or new.crosses:
            # A rank of another subfile writes round the caches of this subfile's ranks, which may still hold older data
            # for the same place and would write them later. Two caches with the same elements would write in any order.
            self.drain("flush drain")
        return new

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
        """Bring headers and data to the subfiles (collective); see `Session.flush`."""
        if self._names_held:
            self.drain("flush drain")
        layout, nodes = session.disk.layout, session.defs.tree.datasets
        assert isinstance(layout, BlobLayout)
        canonical, uids = layout.header, layout.uids
        new = self._agree_on_maps(session, layout, batches)
        decided = self._agreement.decided
        # Records that a resize dropped may still be in the subfiles: the inner layouts overwrite them with fill values.
        lost, layout.lost_records = layout.lost_records, {}
        names = blob_names(canonical, uids, [self.files.assigned[uid] for uid in uids])
        gone = {} if self.count == 1 else {key: name for key, name in self._names.items() if names.get(key) != name}
        if gone and self._lasts():
            # Rule 5: the kept variables of the other subfiles are on stable storage before subfile 0 drops the name.
            durable = True
        unnamed = session.disk.keep_unpublished or self.hdf5
        if agreed.widened and not unnamed and self._widens(nodes):
            self._unnamed = True
            for member in self.members:
                member.session.disk.keep_at_flush()
        names_now = self._unnamed and not unnamed
        renames = names_now and self._takes_names()
        for member in self.members:
            self._define(member, canonical, uids, nodes, decided, gone)
            self._lose(member, lost)
            if not (unnamed or renames):
                member.session.disk.publish_at_flush()
        done: list[Written] = []
        data = partial(self._data, layout, uids, new, write, done)

        def others(step: Callable[[], None] = data) -> None:
            for member in self.members:
                if member.number:
                    step = partial(self._flush_member, member.session, step, done, durable=durable, carried=carried)
            # The ranks of all subfiles come to the next exchange, also those that share subfile 0 with this one.
            with self.comm.errors_shared():
                step()
            # Subfile 0 says what the set contains, so its header is written when all other subfiles are complete.
            self.comm.agree("flush subfiles")

        if self.members[0].number:
            others()
        else:
            self._flush_member(self.members[0].session, others, done, durable=durable, carried=carried)
        if gone:
            # The kept variables may go only when subfile 0 names them no longer.
            self.comm.agree("flush first subfile")
            for member in self.members:
                if member.number:
                    self._define(member, canonical, uids, nodes, decided, {})
            others(partial(self._share_headers, layout, uids, decided))
        if renames:
            self._rename(done, durable=durable, carried=carried)
        self._unnamed &= not names_now
        self._names_held, self._names = self.count > 1 and names != self._names, names
        self._end(session, carried=durable or carried or closing)
        if not unnamed:
            remove_stale(self._location.system, self.path, self._stale)
        elif self.hdf5 and closing and not done[0][1]:
            self._wrap(durable=durable)

    def _widens(self, nodes: Mapping[int, DatasetNode]) -> bool:
        """Return whether strings of a partitioned dataset are longer than the subfiles have them; the same on all
        ranks."""
        member, assigned = self.members[0], self.files.assigned
        layout = member.session.disk.layout
        widths: dict[int | None, int] = dict(zip(layout.uids, layout.itemsizes, strict=True))
        return self.count > 1 and any(
            widths.get(member.defs.uid((uid, k)), width) < width
            for uid, k in assigned.items()
            if k and uid in nodes and (width := nodes[uid].element.itemsize)
        )

    def _takes_names(self) -> bool:
        """Return whether several subfiles are about to take the names of an older set (collective)."""
        if self.count == 1:
            return False
        there = self.comm.rank == 0 and exists(self._location.system, self._location.path)
        (replaces,), _ = self.comm.agree("flush names", (there,))
        return bool(replaces)

    def _rename(self, done: list[Written], *, durable: bool, carried: bool) -> None:
        """Give all subfiles, which are complete, their names in one step (collective)."""
        error: BaseException | None = None
        works = []
        for member in self.members:
            location = member.session.disk.location
            with reported_to_all(self.comm):
                # Below a cache the bytes are not in the file yet; and a power failure leaves the old set or the new.
                sync_before(member.session, "flush sync", replaces=True)
            if member.root and location is not None:
                works.append((member.number, location.work))
                error = location.refusal() if location.unsynced is not None else error
        write_renames(self.comm, self._location.system, self.path, works, error)
        self.renaming = True
        for member in self.members:
            member.session.disk.publish_at_flush()
            self._flush_member(member.session, lambda: None, done, durable=durable, carried=carried)
        self.comm.agree("flush renamed")
        if self.comm.rank == 0:
            forget_renames(self._location.system, self.path)
        self.renaming = False

    def _data(
        self, layout: BlobLayout, uids: tuple[int, ...], new: Agreed, write: WriteData, done: list[Written]
    ) -> None:
        """Write maps and data, after all ranks have exchanged the headers that place them (collective)."""
        # What fails on one rank is told to those of all subfiles, as they all come to the next exchange.
        with self.comm.errors_shared():
            if new.other_subfiles:
                # Caches may hold fill values for the places that other ranks write next, round the caches.
                for member in self.members:
                    member.session.disk.driver.holder.drain()
            self._share_headers(layout, uids, self._agreement.decided)
            for member in self.members:
                if member.root:
                    member.write_maps({k: self._part(member, made) for k, made in self._agreement.decided.maps.items()})
                    if self._agreement.decided.maps:
                        # The ranks of other subfiles look there where elements are.
                        member.session.disk.driver.holder.drain()
            done.append(write(pieces=new.pieces))
            copies = self.count > 1 and bool(self._agreement.decided.copies)
            if copies:
                for member in self.members:
                    if member.number == 0:
                        # What this rank holds of them others are about to read from the file.
                        member.session.disk.driver.holder.drain()
                self.comm.agree("flush copies")
        if copies:
            self._copy_plain(layout, self._agreement.decided)

    def _end(self, session: Session, *, carried: bool) -> None:
        """The flush is complete (collective)."""
        holding = any(member.session.epochs.holding for member in self.members) and not carried
        (held,), _ = self.comm.agree("flush set", (holding,))
        self._holding = bool(held)
        self.driver.held = _HELD if self.count > 1 and held else ""
        self.driver.in_files = partial(self._plain, session)
        self._agreement.note_written()

    def _lasts(self) -> bool:
        """Return whether a subfile may hold durable data, and all subfiles can be synced (collective)."""
        disks = [member.session.disk for member in self.members]
        local_state = any(disk.lasting for disk in disks), any(disk.sync_error is not None for disk in disks)
        (lasting, failed), _ = self.comm.agree("flush set lasts", local_state)
        return bool(lasting) and not failed

    def _flush_member(
        self, session: Session, step: Callable[[], None], done: list[Written], *, durable: bool, carried: bool
    ) -> None:
        known: list[Exception] = []

        def data() -> Written:
            try:
                step()
            except Exception as error:
                if self.comm.in_step(error):
                    known.append(error)
                raise
            # The session of the set reports errors of the data; this one only learns the number of records.
            return done[0][0], [], done[0][2]

        with reported_to_all(self.comm):
            try:
                session.flush(durable=durable, carried=carried, write=data)
            except Exception as error:
                if known and known[0] is not error:
                    # The inner flush wraps an error that all ranks know already; the known one is raised in its place.
                    raise known[0] from error
                raise

    def _define(
        self,
        member: Member,
        canonical: Header,
        uids: tuple[int, ...],
        nodes: Mapping[int, DatasetNode],
        decided: Agreed,
        gone: Mapping[tuple[int, int], str],
    ) -> None:
        """Give a subfile its header, without begins.

        gone : mapping of uid and map to the name in subfile 0, which this flush changes.
        """
        files = self.files
        still = {(uid, files.assigned[uid]): i for i, uid in enumerate(uids)}
        before = {i: gone[key] for key, i in still.items() if key in gone} if member.number else {}
        kept = member.defs.kept(gone, still) if member.number else []
        left = [of for _, of in kept]
        rest = self._supplements(member.number, uids, decided.supplements | files.supplements.keys())
        assigned = [files.assigned[uid] for uid in uids]
        facts = tuple(member.sizes), assigned, rest
        made_of = None if before or kept else (canonical.with_numrecs(0), uids, facts)
        if made_of is not None and member.made_of == made_of:
            member.defs.have_records(canonical.numrecs)
            return
        header = physical_header(
            canonical,
            member.sizes,
            assigned,
            nblobs=member.nblobs,
            nprocs=self.files.nprocs,
            subfiles=self.count,
            supplements=rest,
            before=before,
            kept=[one for one, _ in kept],
        )
        if made_of is not None and member.session.comm.size > 1:
            # Ranks that agree on all that it is made of need not compare it.
            derive_digest(header, canonical, repr(facts))
        # the records of what is kept are those that subfile 0 counts
        header = header.with_numrecs(max([header.numrecs, *(of.shape[0] for of in left if of.record)]))
        supplements = {uids[i]: n for i, n in sorted(rest.items())}
        member.defs.become(
            header, variables_of(header, member.sizes, uids, nodes, files.assigned, supplements, [of for _, of in kept])
        )
        member.made_of = made_of

    def _supplements(self, number: int, uids: Sequence[int], wanted: Iterable[int]) -> dict[int, int]:
        """Return the elements of each supplement that a subfile has, by the number of its variable in the canonical
        header.

        wanted : iterable of uid, the variables that have one or get one; all are in subfile 0.
        """
        files, chosen = self.files, set(wanted) if number == 0 else set()
        return {i: files.lookup(files.assigned[uid]).index.uncovered() for i, uid in enumerate(uids) if uid in chosen}

    def _lose(self, member: Member, lost: Mapping[int, tuple[int, int]]) -> None:
        layout = member.session.disk.layout
        for uid, (first, live) in lost.items():
            for key in ((uid, self.files.assigned.get(uid, 0)), (uid, "supplement")):
                inner = member.defs.uid(key)
                if inner is not None:
                    layout.lose_records(inner, first, live)

    def _share_headers(self, layout: BlobLayout, uids: tuple[int, ...], decided: Agreed) -> None:
        """All ranks learn where variables are in the subfiles of the others (collective)."""
        changed: list[Any] = []
        headers = list(self.files.headers) or [Header(5)] * self.count
        own = {member.number for member in self.members}
        for member in self.members:
            disk, number = member.session.disk, member.number
            work, kept_as = (disk.location.work, disk.location.kept_as) if disk.location is not None else ("", "")
            header = disk.layout.header
            if member.root and self.count > 1 and (header.vars is not headers[number].vars or work != member.work):
                changed.append([number, work, kept_as, encode(header, check=False)])
            headers[number], member.work = header, work
        for number, work, kept_as, encoded in self.comm.merge("flush headers", changed, joined_lists):
            self.driver.moved(number, work, kept_as)
            if number not in own:
                headers[number] = header_of_bytes(encoded)
        rest = len(MAP_VARIABLES) * len(self.files.dims) + len(uids)
        known = [uid for uid in uids if uid in decided.supplements or uid in self.files.supplements]
        first = rest - len(uids)
        form = NetcdfForm(self.path, headers, [range(first, rest)] * len(headers))
        self.files.use(form, uids, {uid: rest + i for i, uid in enumerate(known)})
        layout.forget_places()

    def _part(self, member: Member, made: SubfileMap) -> SubfileMap:
        """Return the part of a new map that a subfile holds: a rank with several subfiles has its blob in the first."""
        none = Runs(np.empty(0, np.int64), np.empty(0, np.int64))
        return made if member is self.members[0] else SubfileMap(made.dims, made.dimids, (none,))

    def _copy_plain(self, layout: BlobLayout, decided: Agreed) -> None:
        """Copy what was posted to variables without a map from subfile 0, where it is, to those of this rank."""
        for member in self.members:
            if not member.root or member.number == 0:
                continue
            disk = member.session.disk
            for uid, (first, last) in decided.copies.items():
                inner = member.defs.uid((uid, 0))
                assert inner is not None
                source, target = layout.maps[uid], disk.layout.maps[inner]
                n = source.inner or math.prod(member.defs.tree.datasets[inner].shape or ())
                # A record lies in one piece in both files.
                records = Runs(np.arange(first, last) * n, np.full(last - first, n))
                offset, length, _ = source.extents(records)
                pieces = Extents(offset, length, target.extents(records).offset)
                copy_blocks(self.driver.read_settled, disk.driver.write, pieces)

    def _plain(self, session: Session) -> Ranges:
        """Return the addresses of variables that are not partitioned: they were in subfile 0 before they were
        copied."""
        found, tree = EMPTY, session.defs.tree
        for uid, at in session.disk.layout.maps.items():
            if isinstance(at, Place) and not self.files.assigned.get(uid):
                total = math.prod(tree.datasets[uid].shape or ())
                n = at.inner or total
                starts = np.arange(0, total, max(1, n))
                extents = at.extents(Runs(starts, np.full(len(starts), n)))
                found = found.plus(ranges_of(extents.offset, extents.length))
        return found

    # ------------------------------------------------------------------------------------------- close

    def _wrap(self, *, durable: bool) -> None:
        """Write HDF5 files around the blobs, and give these the names of the subfiles (collective)."""
        (member,), system = self.members, self._location.system
        disk, group = member.session.disk, member.session.comm
        assert disk.location is not None
        (replaces,), _ = self.comm.agree("close replaces", (bool(self._stale) or disk.location.replaces,))
        # The NetCDF file stays locked and open until all HDF5 files have their names.
        held, key = disk.location.held, disk.location.key
        options = member.session.options._replace(driver=self.driver.spec)
        made: list[tuple[Location, Driver]] = []
        orderly = True
        try:
            with self.comm.errors_shared(), reported_to_all(self.comm):
                if self.holds_back:
                    disk.driver.holder.drain()
                    self.comm.agree("close drained")
                made.append(open_copy(disk.location, options, group))
                location, driver = made[0]
                location.held, location.kept_as = held.without(key), ""
                wrap(disk.driver, disk.layout.header, driver, group, system, disk.location.work)
                if durable or replaces:
                    # A file that replaces another one is synced first: after a power failure one of the two is whole.
                    driver.sync()
            self.comm.agree("close wrapped")
            self._name_wrapped(location, durable=durable, root=member.root)
        except BaseException as error:
            orderly = self.comm.in_step(error)
            raise
        finally:
            for location, driver in made:
                with suppress(OSError):
                    (driver.close if orderly or not driver.capabilities.collective else driver.holder.leave)()
                if member.root:
                    location.discard()
                location.held.release()
        remove_stale(system, self.path, self._stale)
        # All that was flushed is in the HDF5 files.
        disk.location.kept_as = ""
        member.session.give_up()
        self.members = []

    def _name_wrapped(self, location: Location, *, durable: bool, root: bool) -> None:
        """Give the HDF5 files their names, in one step if these are of an older set (collective)."""
        renames = self._takes_names()
        if renames:
            works = [(self.members[0].number, location.work)] if root else []
            write_renames(self.comm, location.system, self.path, works)
            # the journal names it: it is removed no more
            location.note_kept()
        error: OSError | None = None
        try:
            if root:
                location.publish(durable=durable)
        except OSError as reason:
            error = reason
        self.comm.agree("close publish", error=error)
        if renames and self.comm.rank == 0:
            forget_renames(location.system, self.path)

    def close(self, *, orderly: bool, flushed: bool) -> None:
        """Let go of the subfiles (collective if `orderly`)."""
        error: BaseException | None = None
        if orderly and not flushed:
            try:
                self.drain("close drain")
            except OSError:
                # What another subfile lacks, the header of subfile 0 must not describe.
                for member in self.members:
                    if member.number == 0:
                        member.session.epochs.keep_headers()
        for member in self.members:
            try:
                if orderly and flushed:
                    member.session.close()
                elif orderly:
                    # its new header may tell of data and maps that did not get there
                    member.session.give_up()
                else:
                    member.session.abort(f"{self.path}: another subfile was given up")
            except BaseException as reason:
                error = error or reason
        if error is not None:
            raise error
