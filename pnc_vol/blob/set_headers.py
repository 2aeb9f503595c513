"""The headers of all subfiles of a set are read, compared, and merged into one canonical header.

Knows: headers of subfiles, which of their variables belong together. Does not know: ranks that share subfiles, data,
sessions.

Rules
-----
1. Subfile 0 defines the content, because a flush writes its header last. Another subfile may have more, from a flush
   that was not completed; variables that such a flush deleted or renamed are still there under their names in subfile
   0. Any other difference is an error that names the subfile.
2. The set has the records that all subfiles have, whole: after a power failure a subfile may end before the records
   that it counts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pnc_vol.blob.hdf5.subfile import Hdf5Form, Hdf5Subfile, read_subfile
from pnc_vol.blob.header import Described, described
from pnc_vol.blob.layout import NetcdfForm, SubfilesForm, without_begins
from pnc_vol.blob.maps import MAP_VARIABLES
from pnc_vol.blob.names import pending_renames, subfile_path
from pnc_vol.disk.existing import Existing, open_existing
from pnc_vol.disk.naming import ATTEMPTS, replaced_too_often
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.stack import open_stack, stack_capabilities
from pnc_vol.errors import FormatError, FormatWarning, ShortFileWarning
from pnc_vol.file.driver_stack import context_of, stack_of_others
from pnc_vol.format.check import missing_text, short_data, whole_records
from pnc_vol.format.decode import decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Header, Var, is_record
from pnc_vol.mapping.names import warn_of
from pnc_vol.mapping.tree import Tree
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options
from pnc_vol.system import System
from pnc_vol.warn import warn_outside

__all__ = [
    "Standing",
    "blob_names",
    "canonical_of",
    "close_files",
    "counted",
    "described_all",
    "header_of_bytes",
    "netcdf_form",
    "positions",
    "read_set",
]

_ANY_SIZE = 1 << 62
_MOST_KEPT = 64
"""Subfiles of which a reader keeps descriptors: a process has often no more than 1024."""
_CARRIED = "; if a job ended early, 'pnc-vol replay' carries what its node-local caches hold of it"


def header_of_bytes(encoded: bytes) -> Header:
    """Return the header of a subfile, of which no more is known."""
    return decode(encoded, file_size=_ANY_SIZE).header


class Standing(NamedTuple):
    """The file from which a header was read.

    name : str, that it had.
    inode : int
    fd : int, a descriptor of it, or -1 if none was kept.
    """

    name: str
    inode: int
    fd: int


def read_set(
    path: str, options: Options, comm: Comm, location: Location, first: Existing | None = None, *, hdf5: bool
) -> tuple[SubfilesForm, list[Described], list[Standing]]:
    """Read what all subfiles of a read-only set say, on rank 0 for all, and compare it (collective).

    Each rank keeps descriptors of the same files, if they are few: what it reads later is of these, whatever their
    writer has put in their place by then. Where he did so before all ranks had opened them, all is read once more.

    Parameters
    ----------
    location : Location, of subfile 0; rank 0 notes which file it is.
    first : Existing, optional, subfile 0, where rank 0 has read it already.
    hdf5 : bool, they are HDF5 files.

    Raises
    ------
    FormatError
        A subfile is missing, or ends before a map, or they do not belong together.
    """
    system = options.system
    read: Callable[[str, int], tuple[Any, int, Standing]]
    if hdf5:
        read = partial(_read_hdf5, options, comm, location)
    else:
        read = _NetcdfReading(system, location, first).read
    known, kept = list[Any](), list[Standing]()

    def read_all() -> list[Any]:
        known.clear()
        kept.clear()
        for part, file in _in_turn(path, system, read):
            known.append(part)
            kept.append(file)
        if comm.size == 1:
            return []
        return [
            (one.value() if hdf5 else encode(one, check=False), *file) for one, file in zip(known, kept, strict=True)
        ]

    for _ in range(ATTEMPTS):
        found = on_root(comm, "open subfiles", read_all)
        lacking = 0
        if comm.size > 1:
            with comm.errors_shared():
                if comm.rank:
                    kept = [_opened_here(system, Standing(*file), len(found)) for _, *file in found]
                lost = len(kept) <= _MOST_KEPT and any(file.fd < 0 for file in kept)
                (lacking,), _ = comm.agree("open subfiles kept", (lost,))
        if not lacking:
            break
        close_files(system, kept)
    else:
        raise comm.on_all(replaced_too_often(path))
    if comm.rank:
        known = [Hdf5Subfile.of_value(one) if hdf5 else header_of_bytes(one) for one, *_ in found]
    if not hdf5:
        descriptions = described_all(path, known)
        return netcdf_form(path, known, descriptions), descriptions, kept
    descriptions = [one.says for one in known]
    refuse_foreign(path, descriptions, exact=True)
    return Hdf5Form(known), descriptions, kept


def _in_turn(
    path: str, system: System, read: Callable[[str, int], tuple[Any, int, Standing]]
) -> Iterator[tuple[Any, Standing]]:
    """Read each subfile of a set.

    read : callable
        Given the name of a subfile and its number, returns what it says, the number of subfiles that the set has, and
        the file that was read, with its descriptor.
    """
    number, count, pending = 0, 1, pending_renames(system, path)
    while number < count:
        final = subfile_path(path, number)
        name = pending.pop(number, "") or final
        try:
            part, subfiles, file = read(name, number)
        except FileNotFoundError:
            if name != final:
                continue  # its writer is at work, and has renamed it since
            if not number:
                raise
            raise FormatError(
                f"{path}: the set has {count} subfiles, and {name} is missing", field="num_subfiles", value=count
            ) from None
        count = count if number else subfiles
        number += 1
        if count > _MOST_KEPT:
            system.close(file.fd)
            file = file._replace(fd=-1)
        yield part, file


class _NetcdfReading:
    """Reads the headers of NetCDF subfiles; parameters as of `read_set`."""

    def __init__(self, system: System, location: Location, first: Existing | None) -> None:
        self.system, self.location, self.first = system, location, first
        self.like = first

    def read(self, name: str, number: int) -> tuple[Header, int, Standing]:
        system, found, fd = self.system, self.first, -1
        if not number and found is not None:
            fd = _same_file(system, name, found.key[1])
        if fd < 0 or found is None:
            found = self.like = open_existing(system, name, system.realpath(name), like=self.like)
            fd = found.fd
        header = found.decoded.header
        if not number:
            self.location.key = found.key
        return (
            counted(header, found.size, name),
            described(header, name).subfiles,
            Standing(name, found.key[1], fd),
        )


def _read_hdf5(
    options: Options, comm: Comm, location: Location, name: str, number: int
) -> tuple[Hdf5Subfile, int, Standing]:
    """Read all that is known of an HDF5 subfile; see `read_set`."""
    system, spec = options.system, stack_of_others(options, writable=False)
    context = context_of(options, comm, writable=False)._replace(comm=None)
    fd = system.open(name, os.O_RDONLY | os.O_CLOEXEC)
    there = system.fstat(fd)
    one = open_stack(spec, name, context._replace(fd=fd if stack_capabilities(spec).takes_descriptor else -1))
    try:
        subfile = read_subfile(one, name)
    finally:
        one.close()
    if not number:
        location.key = there.st_dev, there.st_ino
    return subfile, subfile.says.subfiles, Standing(name, there.st_ino, fd)


def netcdf_form(path: str, headers: Sequence[Header], descriptions: Sequence[Described]) -> NetcdfForm:
    """Return where the variables of subfile 0 are in all subfiles."""
    return NetcdfForm(path, headers, [positions(one, descriptions[0]) for one in descriptions])


def _opened_here(system: System, file: Standing, count: int) -> Standing:
    """Return a file that rank 0 has read with a descriptor of this rank, or -1."""
    fd = -1
    if count <= _MOST_KEPT:
        with suppress(FileNotFoundError):
            fd = _same_file(system, file.name, file.inode)
    return file._replace(fd=fd)


def _same_file(system: System, name: str, inode: int) -> int:
    """Return a descriptor of the file of this name if it is the one that was read; else -1."""
    fd = system.open(name, os.O_RDONLY | os.O_CLOEXEC)
    if system.fstat(fd).st_ino == inode:
        return fd
    system.close(fd)
    return -1


def close_files(system: System, files: Sequence[Standing]) -> None:
    """Close the descriptors of files."""
    for file in files:
        if file.fd >= 0:
            system.close(file.fd)


def counted(header: Header, size: int, name: str) -> Header:
    """Return the header of a subfile with the number of records that fit its `size`; warn if it counts more, or if
    other data are missing at its end.

    Raises
    ------
    FormatError
        It does not have its maps, without which no element of a blob can be found.
    """

    def cut(kind: type[FormatError] | type[ShortFileWarning], text: str) -> Any:
        return kind(f"{name}: {text}", offset=size, field="file_size", value=size)

    maps = {var.name for var in header.vars[: len(described(header, name).maps) * len(MAP_VARIABLES)]}
    for variable, nbytes in short_data(header, size):
        if variable in maps:
            raise cut(FormatError, f"the file ends before its maps: {nbytes} bytes of {variable} are missing")
    whole = whole_records(header, size)
    missing = short_data(header.with_numrecs(whole), size)
    if missing:
        warn_outside(cut(ShortFileWarning, missing_text(missing)))
    if whole == header.numrecs:
        return header
    text = (
        f"the file ends before its data, as after a power failure: its header counts {header.numrecs} "
        f"records, and {whole} of them are there whole; the set has the records that all of its subfiles have"
    )
    warn_outside(cut(ShortFileWarning, text))
    return header.with_numrecs(whole)


def described_all(path: str, headers: Sequence[Header]) -> list[Described]:
    """Decode the headers of all subfiles, and compare them.

    Raises
    ------
    FormatError
        They do not belong together.
    """
    descriptions = [described(header, subfile_path(path, s)) for s, header in enumerate(headers)]
    refuse_foreign(path, descriptions)
    return descriptions


def refuse_foreign(path: str, descriptions: Sequence[Described], *, exact: bool = False) -> None:
    """Refuse subfiles that do not belong together.

    exact : bool, all of them are complete, so that they have to say the same.

    Raises
    ------
    FormatError
    """
    blobs = sum(one.nblobs for one in descriptions)
    for k, rest in descriptions[0].rest.items() if descriptions else ():
        # The supplement holds all elements in no blob. A larger map would have elements that are nowhere.
        whole, held = (
            math.prod(descriptions[0].maps[k - 1].dims),
            sum(one.maps[k - 1].nelems for one in descriptions if k <= len(one.maps)),
        )
        if whole > held + rest:
            raise FormatError(
                f"{subfile_path(path, 0)}: dimension 'D{k}.supplement' is {rest}: map {k} has {whole} elements, of "
                f"which {held} are in blobs, and the supplement has all others",
                field=f"D{k}.supplement",
                value=rest,
            )
    for s, one in enumerate(descriptions):
        first = descriptions[0]
        for name, actual, expected in (
            ("num_subfiles", one.subfiles, len(descriptions)),
            ("global_nprocs", one.nprocs, first.nprocs),
        ):
            if actual != expected:
                raise _foreign(path, s, name, f"{actual} there, where {expected} is expected")
        if blobs != one.nprocs:
            text = f"{one.nprocs} processes wrote, and the {len(descriptions)} subfiles have blobs of {blobs}"
            raise _foreign(path, s, "global_nprocs", text)
        # a map whose variables were all deleted has no dimensions
        both = zip(one.maps, first.maps, strict=False)
        if len(one.maps) < len(first.maps) or any(a.dims != b.dims and a.dims and b.dims for a, b in both):
            raise _foreign(path, s, "global_dimids", f"other maps than in subfile 0000{_CARRIED}")
        if exact and (one.canonical.with_numrecs(0), one.assigned) != (first.canonical.with_numrecs(0), first.assigned):
            raise _foreign(path, s, "header", "other dimensions, variables or attributes than in subfile 0000")
        try:
            positions(one, first)
        except KeyError as error:
            name = error.args[0]
            text = f"the variable {name!r} is missing there, or has another shape, type or map than in 0000{_CARRIED}"
            raise _foreign(path, s, name, text) from None


def _foreign(path: str, number: int, field: str, what: str) -> FormatError:
    return FormatError(
        f"{subfile_path(path, number)}: it does not belong to this set of subfiles: {field}: {what}",
        field=field,
        value=number,
    )


def positions(own: Described, first: Described) -> list[int]:
    """Find the variable of another subfile for each variable that subfile 0 has.

    Returns
    -------
    list of int
        -1: not there, and not needed, because subfile 0 has all of it.

    Raises
    ------
    KeyError
        With the name of a variable: it is not there, or otherwise.
    """
    if own.canonical.vars == first.canonical.vars and own.assigned == first.assigned:
        return list(own.variables)
    at = {var.name: i for i, var in enumerate(own.canonical.vars)}
    found: list[int] = []
    for var, k in zip(first.canonical.vars, first.assigned, strict=True):
        i = at.get(var.name, -1)
        before = own.before.get(var.name)
        if k and before is not None:
            record = is_record(first.canonical, var)
            trailing = [first.canonical.dims[i].size for i in var.dims[record + len(first.maps[k - 1].dims) :]]
            if before.same == (k, var.type, record, tuple(trailing)):
                # the flush that deleted or renamed it was killed before it wrote the header of subfile 0
                found.append(before.variable)
                continue
        same = i >= 0 and own.assigned[i] == k and _shape(own, own.canonical.vars[i]) == _shape(first, var)
        if not same and (k or (i >= 0 and own.canonical.vars[i].type != var.type)):
            raise KeyError(var.name)
        found.append(own.variables[i] if same else -1)
    return found


def _shape(of: Described, var: Var) -> tuple[int, list[tuple[str, int]]]:
    return var.type, [(of.canonical.dims[i].name, of.canonical.dims[i].size) for i in var.dims]


def canonical_of(
    path: str, headers: Sequence[Header], descriptions: Sequence[Described], options: Options, *, warns: bool
) -> tuple[Tree, Header]:
    """Return the objects of a set, and the header that a file of the canonical layout would have.

    headers, descriptions : empty for a new set.
    """
    header = Header(options.version)
    if descriptions:
        header = without_begins(descriptions[0].canonical).with_numrecs(min(h.numrecs for h in headers))
    tree = from_header(header)
    if descriptions and warns:
        _warn(path, headers, descriptions)
        warn_of(path, tree.findings)
    tree.separator = options.separator
    return tree, header


def _warn(path: str, headers: Sequence[Header], descriptions: Sequence[Described]) -> None:
    counts = [h.numrecs for h in headers]
    low, high = counts.index(min(counts)), counts.index(max(counts))
    killed = "as after a job that was killed"
    if low != high:
        text = (
            f"{path}: the subfiles have different numbers of records ({subfile_path(path, low)}: {min(counts)}, "
            f"{subfile_path(path, high)}: {max(counts)}), {killed}; shown is what all have"
        )
        warn_outside(FormatWarning(text, field="numrecs", value=min(counts)))
    plain = [one.canonical.with_numrecs(0) for one in descriptions]
    for s, one in enumerate(plain):
        if one != plain[0] or descriptions[s].assigned != descriptions[0].assigned:
            text = (
                f"{path}: {subfile_path(path, s)} has other definitions than subfile 0000, {killed} in a flush; "
                "shown is what subfile 0000 says"
            )
            warn_outside(FormatWarning(text, field="header", value=s))
            return


def blob_names(canonical: Header, uids: Sequence[int], assigned: Sequence[int]) -> dict[tuple[int, int], str]:
    """Return what the partitioned datasets are called, by uid and map."""
    return {(uid, k): var.name for uid, k, var in zip(uids, assigned, canonical.vars, strict=True) if k}
