"""`repack` writes a file again without what is not used in it.

Knows: headers, places, which processes may have the file open; with `materialize`, virtual datasets and those in raw
files. Does not know: how the new file is written (`convert.new_files`); values: a variable's bytes are copied as they
are.

Rules
-----
1. Definitions stay as they are, names that only other programs would give included.
   Where they lie changes, and the number of records, if no dataset is that long any more. (A copy through datasets, as
   h5repack makes it, would give dimensions and variables new names, and take longer than a copy of bytes.)
2. What may change the source meanwhile is refused where it can be known, and found out afterwards where it cannot.
3. Values from other files are all read before any dataset is replaced by an ordinary one.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pnc_vol.api.file import File
from pnc_vol.api.virtual_data import missing
from pnc_vol.convert.new_files import Copying, Progress, rewrite, same_file
from pnc_vol.disk.existing import open_existing
from pnc_vol.disk.locking import Held
from pnc_vol.disk.naming import check_place
from pnc_vol.errors import CorruptHeaderError, DefinitionError, LogRefusedError, NotYetError
from pnc_vol.extents.blocks import blocks
from pnc_vol.file.file_sets import is_set
from pnc_vol.file.leftovers import left
from pnc_vol.file.registry import refuse_open
from pnc_vol.format.check import short_data
from pnc_vol.format.decode import Decoded
from pnc_vol.format.encode import encode
from pnc_vol.format.limits import check_limits
from pnc_vol.format.model import Header, begin_rec, data_end, record_size, record_vars
from pnc_vol.format.placing import Alignment, Moves, moves, place
from pnc_vol.layout.registry import refuse_other_layouts
from pnc_vol.mapping.flatten import numrecs_of
from pnc_vol.mapping.links import Hard, entries
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.settings.options import Options, resolve
from pnc_vol.system import REAL, System, exists
from pnc_vol.warn import warn_outside

__all__ = ["Repacked", "repack", "repack_on"]


@dataclass(frozen=True, slots=True)
class Repacked:
    """What a repack did, or would do.

    source, target : str, paths; the same if the file was repacked in place.
    before, after : int, bytes of the two files.
    records : int, bytes of `gained` that were records that no dataset has any more.
    missing : int, bytes of data that are missing at the end of the source, and of the target.
    written : bool, False after a dry run, and if there was nothing to gain.
    seconds : float
    """

    source: str
    target: str
    before: int
    after: int
    records: int
    missing: int
    written: bool
    seconds: float

    @property
    def gained(self) -> int:
        """Bytes that the target is smaller than the source; negative if it is larger."""
        return self.before - self.after


@dataclass(frozen=True, slots=True)
class _Job:
    """One file, looked at: where everything goes."""

    old: Header
    new: Header
    content: bytes
    pieces: Moves
    before: int
    after: int
    missing: int
    same: bool


def repack(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    format: str | None = None,
    header_reserve: int | None = None,
    var_align: int | None = None,
    record_align: int | None = None,
    overwrite: bool = False,
    materialize: bool = False,
    external_links: Literal["below", "any"] = "below",
    dry_run: bool = False,
    progress: Progress | None = None,
    comm: Any = None,
) -> Repacked:
    """Write a file again without the space that nothing uses: of deleted and relaid datasets, dropped records, headers.

    Values, attributes, names, their order, and all that markers say are those of the source. Any NetCDF classic
    file will do.

    Parameters
    ----------
    source : path-like
    target : path-like, optional
        None: the file takes its own place, once it is whole. It keeps its permissions, and its owner where the system
        allows that; a symbolic link stays one.
    format : str, optional
        ``"CDF-1"``, ``"CDF-2"`` or ``"CDF-5"``; by default the source's.
    header_reserve : int, optional
        Bytes kept free behind the header, for attributes and datasets to come.
    var_align, record_align : int, optional
        The first variable, and the first record, begin at multiples of so many bytes.
    overwrite : bool
        Replace the target if it exists.
    materialize : bool
        Make ordinary datasets of virtual ones and of those in raw files, so that other programs see their values.
    external_links : str
        Where the files that such datasets name may be; see the option of `File`.
    dry_run : bool
        Only say what would be gained; what `materialize` adds is not counted.
    progress : callable, optional
        Called as ``progress(done, total, path)``, in bytes of values.
    comm : optional
        Only a communicator of one rank: this is the work of one process.

    Returns
    -------
    Repacked

    Raises
    ------
    FormatError
        The source is no NetCDF classic file, or not a valid one.
    LogRefusedError
        A job has a burst-buffer log of the file, or left one.
    DefinitionError
        The version that was asked for cannot hold what is in the file.
    FileExistsError
        The target exists and `overwrite` is False.
    OSError
        The target is the source; this process has the file open for writing; reading or writing failed. The source is
        as it was then, and there is no target, or the old one.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("grown.nc", "w") as f:
    ...     f["gone"], f["kept"] = [0.0] * 1000, [1.0, 2.0]
    >>> with pnc_vol.File("grown.nc", "r+") as f:
    ...     del f["gone"]
    >>> pnc_vol.repack("grown.nc").gained >= 8000
    True
    """
    if comm is not None and comm.Get_size() > 1:
        raise NotYetError(
            "repack() runs in one process: call it on one rank, without comm=, after all ranks have closed the file"
        )
    asked = {"header_reserve": header_reserve, "var_align": var_align, "record_align": record_align, "format": format}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    done = repack_on(REAL, source, target, overwrite=overwrite, dry_run=dry_run, progress=progress, **given)
    if not materialize or dry_run:
        return done
    with File(source, "r+" if target is None else "r", external_links=external_links) as shown:
        paths = [
            node.path
            for node in shown.id.node.tree.datasets.values()
            if node.away is not None and node.parent is not None
        ]
        if not paths:
            return done
        if target is None:
            _make_ordinary(shown, shown, paths)
        else:
            _with_values(shown, done.target, paths)
    # What was replaced leaves gaps.
    repack_on(REAL, done.target, None, **given)
    after = REAL.stat(done.target).st_size
    return replace(done, after=after, written=True)


def _with_values(shown: File, target: str, paths: list[str]) -> None:
    """Give a new file the values that the source shows; if that fails, there is no such file."""
    try:
        with File(target, "r+") as file:
            _make_ordinary(shown, file, paths)
    except BaseException:
        REAL.unlink(target)
        raise


def repack_on(
    system: System,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    **given: Any,
) -> Repacked:
    """Repack on a system; `given` are the options of the new file that were asked for."""
    started = time.monotonic()
    path, goal = os.fspath(source), os.fspath(source if target is None else target)
    options = resolve({**given, "system": system})
    if is_set(system, path):
        raise DefinitionError(f"{path}: a set of subfiles is not repacked; 'pnc-vol replay' makes one file of it")
    real = system.realpath(os.path.abspath(path))
    _check(path, goal, real, in_place=target is None, overwrite=overwrite, options=options)
    in_place = not dry_run and target is None
    held = Held(system, goal, options.locking)
    existing = open_existing(system, path, real, writable=in_place, hold=held.lock if in_place else None)
    fd = existing.fd
    held.keep(fd, existing.key)
    try:
        before = system.fstat(fd)
        refuse_other_layouts(path, existing.decoded.header)
        job = _plan(existing.decoded, before.st_size, options, keep_version="format" not in given)
        better = bool(given) or job.after < job.before
        wanted = not dry_run and (target is not None or (better and not job.same))
        if wanted:
            rewrite(
                Copying(job.content, job.pieces, job.after, real, before, progress),
                fd,
                system.realpath(os.path.abspath(goal)),
                exclusive=not overwrite and target is not None,
                system=system,
                held=held,
            )
    finally:
        held.release()
    done = wanted or dry_run
    return Repacked(
        source=path,
        target=goal,
        before=job.before,
        after=job.after if done else job.before,
        records=(job.old.numrecs - job.new.numrecs) * record_size(job.old) if done else 0,
        missing=job.missing,
        written=wanted,
        seconds=time.monotonic() - started,
    )


# --------------------------------------------------------------------------------------------- what is refused


def _check(path: str, goal: str, real: str, *, in_place: bool, overwrite: bool, options: Options) -> None:
    """Refuse what cannot be the source or the target."""
    system = options.system
    there = system.stat(path)
    check_place(there, path, exclusive=False)
    # also one that is only read from: what is posted is not in it yet
    refuse_open(real, path)
    _refuse_left(path, real, options)
    if in_place:
        if there.st_nlink > 1:
            text = f"it has {there.st_nlink} names (hard links), and the others would keep the old file; give a target"
            raise OSError(errno.EMLINK, text, path)
        return
    target = system.realpath(os.path.abspath(goal))
    if target == real or (exists(system, target) and same_file(there, system.stat(target))):
        raise OSError(errno.EINVAL, "the target is the source itself; repack it in place instead", goal)
    if exists(system, target):
        if not overwrite:
            raise FileExistsError(errno.EEXIST, "The target exists; give another name, or overwrite=True", goal)
        refuse_open(target, goal, replaced=True)
        _refuse_left(goal, target, options)


def _refuse_left(path: str, real: str, options: Options) -> None:
    """Refuse if data are in a log or a cache: they are not in the file, and belong to the file as it is."""
    for one in left(real, options):
        if one.running:
            raise LogRefusedError(
                f"{path}: a job writes to it through {one.kind} in {one.folder}; repack when the job has ended"
            )
        raise LogRefusedError(
            f"{path}: a job that ended early left data in {one.kind}, in {one.folder}, that may not be in it; "
            f"'pnc-vol replay {path}' or pnc_vol.replay() puts them there; repack afterwards"
        )


# ------------------------------------------------------------------------------------------ where everything goes


def _plan(decoded: Decoded, nbytes: int, options: Options, *, keep_version: bool) -> _Job:
    old = decoded.header
    version = old.version if keep_version else options.version
    reserve = options.header_reserve or 0
    how = Alignment(options.var_align, options.record_align, reserve)
    wanted = old.replaced(version=version, numrecs=_records(old))
    check_limits(wanted)
    new = place(wanted, how)
    _check_records(decoded, new)
    content = encode(new, check=False)
    pieces = _there(moves(_whole(old, nbytes), new, range(len(new.vars))), nbytes)
    missing = sum(n for _, n in short_data(old, nbytes))
    end = max(data_end(new), len(content))
    if missing:
        end = max(len(content), int((pieces.dst + pieces.length).max(initial=0)))
    same = new == old and end == nbytes
    return _Job(old, new, content, pieces, nbytes, end, missing, same)


def _records(header: Header) -> int:
    """Return the number of records that some dataset has."""
    if not header.numrecs or not record_vars(header):
        return header.numrecs
    tree = from_header(header)
    # of a file that contradicts itself nothing is thrown away
    return header.numrecs if tree.findings else min(header.numrecs, numrecs_of(tree))


def _whole(header: Header, nbytes: int) -> Header:
    """Return the header without records that begin behind the end of the file, however many it declares."""
    start, step = begin_rec(header), record_size(header)
    if start is None or not step:
        return header
    return header.replaced(numrecs=min(header.numrecs, max(0, -(-(nbytes - start) // step))))


def _check_records(decoded: Decoded, new: Header) -> None:
    """Refuse a record with gaps, whose parts lie in the next record as well."""
    old = decoded.header
    first = begin_rec(old)
    if first is None or old.numrecs < 2:
        return
    start = begin_rec(new) or 0
    for i in record_vars(old):
        begin = old.vars[i].begin
        if begin - first != new.vars[i].begin - start:
            raise CorruptHeaderError(
                f"var[{i}].begin is {begin}: records overlap, so that no file holds all their values; "
                "see 'pnc-vol check'",
                offset=decoded.var_at[i],
                field=f"var[{i}].begin",
                value=begin,
            )


def _there(pieces: Moves, nbytes: int) -> Moves:
    """Return what of the pieces the file has."""
    length = np.minimum(pieces.length, nbytes - pieces.src)
    keep = length > 0
    return Moves(pieces.src[keep], pieces.dst[keep], length[keep])


# ----------------------------------------------------------------------------- datasets whose values are elsewhere

_ROOM = "materialized by pnc-vol"
_BLOCK = 16 << 20


def _make_ordinary(source: File, target: File, paths: list[str]) -> None:
    """Give a file the values that datasets of it show of other files, in ordinary datasets; all or none.

    A dataset keeps its name, its attributes, its scales and its hard links. Elements whose source is missing get the
    fill value, with a warning that names the sources.

    Parameters
    ----------
    source : File, open for reading, or `target` itself.
        What is shown is looked for from there.
    target : File, open for writing, with the same datasets.

    Raises
    ------
    SourceError
        A source cannot be read; the file stays as it was.
    """
    room = target.create_group(_ROOM)
    try:
        made = {path: _copied(source[path], room, str(i)) for i, path in enumerate(paths)}
    except BaseException:
        del target[_ROOM]
        raise
    for path, dataset in made.items():
        _replace(target, path, dataset)
    del target[_ROOM]


def _copied(shown: Any, room: Any, name: str) -> Any:
    if gone := missing(shown.id):
        warn_outside(f"{shown.name}: the fill value stands for the values of sources that are missing: {gone}")
    limits = None if shown.maxshape == shown.shape else shown.maxshape
    fill = None if shown.id.node.away.fill is None else shown.fillvalue
    made = room.create_dataset(name, shown.shape, shown.dtype, maxshape=limits, fillvalue=fill)
    for block in blocks(shown.shape, max(1, shown.dtype.itemsize), _BLOCK):
        made[block] = shown[block]
    return made


def _replace(target: File, path: str, made: Any) -> None:
    """Let a dataset stand where the one of that path does."""
    old, new = target[path].id.node, made.id.node
    tree = old.tree
    for name, value in old.attrs.items():
        new.attrs[name] = value
    new.scale, new.made_axes = old.scale, old.axes
    if "track_order" in old.ignored:
        new.ignored = {**new.ignored, "track_order": True}
    # What is attached to it, and what else leads to it.
    for node in tree.datasets.values():
        for axis in node.made_axes or ():
            axis.scales = [new if scale is old else scale for scale in axis.scales]
    for group, name, entry in list(entries(tree)):
        if isinstance(entry, Hard) and entry.node is old:
            group.links[name] = Hard(new)
    above, name = old.parent, old.name
    tree.remove(old)
    tree.move(new, above, name)
