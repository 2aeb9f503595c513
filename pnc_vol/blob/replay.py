"""`replay_blobs` turns a set of subfiles into the file that the canonical layout would have written.

Knows: sets of subfiles, ranks, headers. Does not know: how values are copied (`gathering`), layouts of subfiles, how
a file gets its name (`disk.publish`).

Rules
-----
1. The file has the objects of the set, in their order, and takes its name when it is whole. The set is only read.
2. Any number of ranks shares the work, whatever number wrote: each writes a share of the file.
3. Before the first write the maps are checked: blobs that hold the same elements are refused,
   elements that no blob holds are counted, and get the fill value.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from pnc_vol.blob.gathering import CopiedVariable, copy, pieces, share
from pnc_vol.blob.names import subfile_path
from pnc_vol.blob.subfile_set import SubfileSet
from pnc_vol.disk.locking import Held
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.errors import LogRefusedError, NotCDFError, NotFoundError
from pnc_vol.file import leftovers
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.driver_stack import context_of
from pnc_vol.file.leftovers import look_after
from pnc_vol.file.opening import open_session
from pnc_vol.file.opening_record import Opening
from pnc_vol.file.reads.gathered import pattern_of
from pnc_vol.file.session import Session
from pnc_vol.format import model
from pnc_vol.format.encode import encode, header_size
from pnc_vol.format.model import Header
from pnc_vol.format.placing import Alignment, place
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Tree, walk
from pnc_vol.ranks.comm import Comm, on_root, serial
from pnc_vol.settings.options import Options
from pnc_vol.system import free_bytes

__all__ = ["BlobReport", "MapCoverage", "replay_blobs"]

Progress = Callable[[int, int, str], None]


@dataclass(slots=True)
class MapCoverage:
    """How the blobs cover the elements of one map.

    Attributes
    ----------
    name : str, such as ``"D2"``.
    dims : list of int, lengths of its dimensions.
    nelems, covered, none, several : int
        Elements of these dimensions; of these in a blob, in none, and in several. Where blobs have the same elements
        the set is refused, by an error that names the blobs and has the counts, so `several` is 0 in a report.
    open : list of str
        Variables of the map with elements that are nowhere; of others the elements that no blob has are in a
        supplement.
    """

    name: str
    dims: list[int]
    nelems: int
    covered: int
    none: int
    several: int = 0
    open: list[str] = field(default_factory=list)


@dataclass(slots=True)
class BlobReport:
    """The result of a replay of blobs.

    Attributes
    ----------
    target : str
    subfiles, nprocs : int, subfiles, and the processes that wrote them.
    variables, nbytes : int, copied variables and bytes.
    records : int, that all subfiles have.
    lost_records : int, that some subfiles have and others do not, as a killed job leaves them.
    maps : list of MapCoverage
    removed : int, subfiles that were removed.
    seconds : float
    """

    target: str
    subfiles: int = 0
    nprocs: int = 0
    variables: int = 0
    nbytes: int = 0
    records: int = 0
    lost_records: int = 0
    maps: list[MapCoverage] = field(default_factory=list)
    removed: int = 0
    seconds: float = 0.0

    @property
    def whole(self) -> bool:
        """True if every element of every variable was in the subfiles, in all records that one of them has."""
        return not self.lost_records and not any(one.open and one.none for one in self.maps)


def replay_blobs(
    base: str,
    target: str,
    *,
    options: Options,
    comm: Comm | None = None,
    names: Sequence[str] | None = None,
    overwrite: bool = False,
    remove: bool = False,
    progress: Progress | None = None,
) -> BlobReport:
    """Write what a set of subfiles holds to one file (collective).

    Parameters
    ----------
    base : str, the name of the set, or of one of its subfiles.
    target : str
    options : Options
    comm : Comm, optional, owned by this call.
    names : sequence of str, optional
        Datasets, or groups with all in them, that are copied; by default all.
    overwrite : bool
        Replace the target if it exists.
    remove : bool
        Remove the subfiles when the file is whole and on stable storage; not if elements or records are missing.
    progress : callable, optional
        Called on rank 0 as ``progress(done, total, name)``, in bytes of its share.

    Raises
    ------
    FormatError
        A subfile is missing, damaged or of another set; blobs hold the same elements.
    LogRefusedError
        Logs or caches of a killed job hold data that the subfiles do not have.
    FileExistsError
        The target exists and `overwrite` is False.
    NotFoundError
        There is no such dataset or group.
    OSError
        Reading or writing failed. There is no target then, or the old one.
    """
    started = time.monotonic()
    comm = comm or serial()
    view = open_session(Opening(base, "r", options._replace(layout="", burst_buf=False, recover=False), comm))
    try:
        report = _replay(view, base, target, options, names, overwrite=overwrite, remove=remove, progress=progress)
    except BaseException as reason:
        view.abort(f"replay: {reason}")
        raise
    count = report.subfiles
    path = view.disk.path
    if remove and report.whole:
        report.removed = on_root(view.comm, "replay remove", lambda: _remove(path, count, options))
    view.close()
    report.seconds = time.monotonic() - started
    return report


def _replay(
    view: Session,
    base: str,
    target: str,
    options: Options,
    names: Sequence[str] | None,
    *,
    overwrite: bool,
    remove: bool,
    progress: Progress | None,
) -> BlobReport:
    """See `replay_blobs`; `view` is the open set."""
    files, comm = view.file_set, view.comm
    if not isinstance(files, SubfileSet):
        raise comm.on_all(NotCDFError(f"{base}: it is no set of subfiles, so there are no blobs to replay"))
    on_root(comm, "replay paths", lambda: _check_paths(target, view.disk.path, files.count, options))
    # no user can reach this session: changing its tree changes no open file
    tree = view.defs.tree
    _keep_only(tree, names)
    header, uids = _placed(view, tree, options, chosen=names is not None)
    on_root(comm, "replay room", lambda: _check_room(target, model.data_end(header)))
    wanted = _variables(view, tree, header, uids)
    report = BlobReport(
        target,
        files.count,
        files.files.nprocs,
        len(wanted),
        records=header.numrecs,
        lost_records=max(one.numrecs for one in files.files.headers) - view.disk.header.numrecs,
    )
    report.maps = _coverage(view, files, tree)
    todo = pieces(wanted, options.buffer_size)
    own_pieces = share(todo, comm.rank, comm.size)
    durable, total = options.durable or remove, sum(piece.nbytes for piece in own_pieces)
    content = encode(header)
    nbytes = max(model.data_end(header), len(content))
    with _new_file(target, content, options, comm, exclusive=not overwrite) as (location, driver):

        def note(done: int, name: str) -> None:
            if progress is not None and comm.rank == 0:
                progress(done, total, name)

        with comm.errors_shared():
            done = copy(own_pieces, view.disk.driver, driver, options.buffer_size, note)
            if durable:
                driver.sync()
        _, (report.nbytes,) = comm.agree("replay copied", total=(done,))
        finish = partial(_publish, location, driver, target, nbytes, options, durable=durable)  # type: ignore[arg-type]
        on_root(comm, "replay publish", finish)
    return report


def _check_paths(target: str, path: str, count: int, options: Options) -> None:
    """Refuse a target that is a subfile, and a set of which logs or caches of a killed job hold data."""
    realpath = options.system.realpath
    subfiles = [realpath(os.path.abspath(subfile_path(path, n))) for n in range(count)]
    if realpath(os.path.abspath(target)) in subfiles:
        raise FileExistsError(errno.EEXIST, "the target is one of the subfiles; give another name", target)
    left = [one.folder for subfile in subfiles for one in leftovers.left(subfile, options) if not one.running]
    if left:
        raise LogRefusedError(
            f"{path}: a job that ended early left data that are not in the subfiles, in {', '.join(left)}. Put them "
            f"there first: 'pnc-vol replay {subfile_path(path, 0)}', or open the set with mode 'r+' and recover=True"
        )


def _check_room(target: str, nbytes: int) -> None:
    """Refuse a file that its device has no room for, before anything is made: headers may claim any size."""
    free = free_bytes(os.path.dirname(os.path.abspath(target)))
    if nbytes > free:
        text = f"the file takes {nbytes} bytes, and {free} are free there; choose variables, or another place"
        raise OSError(errno.ENOSPC, text, target)


# --------------------------------------------------------------------------------------- what the file is


def _keep_only(tree: Tree, names: Sequence[str] | None) -> None:
    """Remove all objects from a tree but the named ones and the groups that contain them.

    Raises
    ------
    NotFoundError
    """
    if names is None:
        return
    kept: set[int] = set()
    for name in names:
        node: GroupNode | DatasetNode | None = tree.root
        for step in filter(None, name.split("/")):
            node = node.children.get(step) if isinstance(node, GroupNode) else None
        if node is None:
            raise NotFoundError(f"There is no dataset or group {name!r}; 'pnc-vol ls -r' lists them")
        kept |= {id(found) for found in walk(node)}
        while node.parent is not None:
            node = node.parent
            kept.add(id(node))
    for gone in [found for found in walk(tree.root) if id(found) not in kept]:
        above = gone.parent
        # a named group stays with all its members
        if above is not None and id(above) in kept and above.children.get(gone.name) is gone:
            tree.remove(gone)


def _placed(view: Session, tree: Tree, options: Options, *, chosen: bool) -> tuple[Header, tuple[int, ...]]:
    """Return the header of the file, with begins, and the dataset of each variable.

    chosen : bool, `tree` does not have all that the set has.
    """
    header, uids = view.disk.header, tuple(tree.datasets)
    if chosen or options.version != header.version:
        flat = Definitions(tree, options.version).make_header()
        header, uids = flat.header, flat.uids
    alignment = Alignment(var_align=options.var_align, record_align=options.record_align)
    # As in a file of a program that defined all before its data and did not flush before the close, to which the result
    # is equal byte for byte. Whether the program that wrote the subfiles did flush, they do not tell.
    extent = header_size(header) + (options.header_reserve or 0)
    return place(header, alignment, header_extent=extent), uids


def _variables(view: Session, tree: Tree, header: Header, uids: Sequence[int]) -> list[CopiedVariable]:
    layout, files = view.disk.layout, view.file_set
    assert isinstance(files, SubfileSet)
    known = files.files
    step, inner = model.record_size(header), model.inner_sizes(header)
    growing = set(model.record_vars(header))
    made: list[CopiedVariable] = []
    for i, uid in enumerate(uids):
        at, node = layout.maps[uid], tree.datasets[uid]
        width = at.itemsize
        k = known.assigned.get(uid, 0)
        # supplements of one map have one order, so one index serves them; variables without a map share none
        same = (k, uid in known.supplements) if k else 0
        made.append(
            CopiedVariable(
                node.path or header.vars[i].name,
                at,
                same,
                width,
                inner[i] // width,
                header.numrecs if i in growing else 1,
                header.vars[i].begin,
                step if i in growing else 0,
                pattern_of(node, width),
            )
        )
    return made


def _coverage(view: Session, files: SubfileSet, tree: Tree) -> list[MapCoverage]:
    """Compute how the blobs cover the maps of the chosen variables (collective).

    Raises
    ------
    FormatError
        Blobs hold the same elements.
    """
    known = files.files
    used: dict[int, list[int]] = {}
    for uid in tree.datasets:
        if known.assigned.get(uid, 0):
            used.setdefault(known.assigned[uid], []).append(uid)

    def prove() -> list[dict[str, Any]]:
        return [asdict(_of_map(k, uids)) for k, uids in sorted(used.items())]

    def _of_map(k: int, uids: Sequence[int]) -> MapCoverage:
        dims = known.dims[k - 1]
        nelems, none = math.prod(dims), known.lookup(k).index.uncovered()
        nowhere = [tree.datasets[uid].path for uid in uids if uid not in known.supplements] if none else []
        return MapCoverage(f"D{k}", list(dims), nelems, nelems - none, none, open=nowhere)

    return [MapCoverage(**one) for one in on_root(view.comm, "replay coverage", prove)]


def _remove(path: str, count: int, options: Options) -> int:
    """Remove the subfiles, if nobody writes to them."""
    names = [subfile_path(path, n) for n in range(count)]
    held = Held(options.system, path, options.locking)
    try:
        for name in names:
            held.may_replace(name)
        # subfile 0 last: after a kill the rest is still found under its name, and reported as incomplete
        for name in reversed(names):
            options.system.unlink(name)
    finally:
        held.release()
    return count


@contextmanager
def _new_file(
    path: str, content: bytes, options: Options, comm: Comm, *, exclusive: bool
) -> Iterator[tuple[Location | None, Driver]]:
    """Make a new file (collective); on rank 0 its location, and on each rank a driver of its own.

    content : bytes, of the header.
    exclusive : bool, the name must be free.
    """
    location: Location | None = None
    driver: Driver | None = None

    def create() -> str:
        nonlocal location
        real = options.system.realpath(os.path.abspath(path))
        held = Held(options.system, path, options.locking)
        location = Location.create(
            options.system, path, content, exclusive=exclusive, publish=False, target=real, held=held
        )
        return location.work

    try:
        work = on_root(comm, "replay create", create)
        with comm.errors_shared():
            driver = PosixDriver.open(work, context_of(options, comm, writable=True)._replace(comm=None))
            comm.agree("replay open")
        yield location, driver
    except BaseException:
        if location is not None:
            with suppress(OSError):
                location.discard()
        raise
    finally:
        if driver is not None:
            with suppress(OSError):
                driver.close()
        if location is not None:
            location.held.release()


def _publish(location: Location, driver: Driver, path: str, nbytes: int, options: Options, *, durable: bool) -> None:
    """Give the new file its length and its name; on rank 0."""
    driver.resize(nbytes)
    if durable or location.replaces:
        driver.sync()
    if location.replaces:
        look_after(path, location.path, options, writable=True, replaced=True)
    location.publish(durable=durable)
