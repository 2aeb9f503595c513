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
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from pnc_vol.blob.hdf5.subfile import Hdf5Form, Hdf5Subfile, read_subfile
from pnc_vol.blob.header import Before, Described, Kept, described
from pnc_vol.blob.layout import NetcdfForm, SubfilesForm, without_begins
from pnc_vol.blob.maps import MAP_VARIABLES, SizedMap
from pnc_vol.blob.names import pending_renames, subfile_path
from pnc_vol.blob.physical_definitions import PhysicalDefinitions, PhysicalVariable
from pnc_vol.blob.posted_runs import inner_shape
from pnc_vol.disk.existing import Existing, open_existing
from pnc_vol.disk.naming import ATTEMPTS, replaced_too_often
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.stack import open_stack, stack_capabilities
from pnc_vol.errors import FormatError, FormatWarning, ShortFileWarning
from pnc_vol.file.driver_stack import context_of, stack_of_others
from pnc_vol.format.check import missing_text, short_data, whole_records
from pnc_vol.format.decode import decode
from pnc_vol.format.model import CHAR, INT64, TYPES, Header, Var, is_record
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.names import warn_of
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.mapping.unflatten import from_header
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options
from pnc_vol.system import System
from pnc_vol.warn import warn_outside

__all__ = [
    "Standing",
    "blob_names",
    "canonical_of",
    "check_maps",
    "close_files",
    "counted",
    "described_all",
    "header_of_bytes",
    "kept_variables",
    "netcdf_form",
    "positions",
    "read_set",
    "stored_variables",
    "variables_of",
]

_ANY_SIZE = 1 << 62
_MOST_KEPT = 64
"""Subfiles of which a reader keeps descriptors: a process has often no more than 1024."""
_CARRIED = "; if a job ended early, 'pnc-vol replay' carries what its node-local caches hold of it"
_INTS = element_for("i4"), element_for("i8")


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


def read_in_turn(
    path: str, options: Options, comm: Comm, read: Callable[[str, int], tuple[Any, int, Standing]]
) -> list[tuple[Any, Standing]]:
    """Read something of each subfile of a read-only set, on rank 0 for all (collective).

    Each rank keeps descriptors of the same files, if they are few: what it reads later is of these, whatever their
    writer has put in their place by then. Where he did so before all ranks had opened them, all is read once more.

    Parameters
    ----------
    read : callable
        Given the name of a subfile and its number, returns what all ranks are told, the number of subfiles that the set
        has, and the file that was read, with its descriptor.

    Raises
    ------
    FormatError
        A subfile is missing.
    """
    system, fds = options.system, list[int]()

    def read_all() -> list[tuple[Any, Standing]]:
        found: list[tuple[Any, Standing]] = []
        count, pending = 1, pending_renames(system, path)
        while len(found) < count:
            final = subfile_path(path, len(found))
            name = pending.pop(len(found), "") or final
            try:
                value, subfiles, file = read(name, len(found))
            except FileNotFoundError:
                if name != final:
                    continue  # its writer is at work, and has renamed it since
                if not found:
                    raise
                raise FormatError(
                    f"{path}: the set has {count} subfiles, and {name} is missing", field="num_subfiles", value=count
                ) from None
            count = count if found else subfiles
            if file.fd >= 0 and count > _MOST_KEPT:
                system.close(file.fd)
                file = file._replace(fd=-1)
            fds.append(file.fd)
            found.append((value, file))
        return found

    def open_here(files: list[Standing]) -> bool:
        for file in files:
            with suppress(FileNotFoundError):
                fds.append(_same_file(system, file.name, file.inode))
        return len(fds) == len(files) and min(fds) >= 0

    for _ in range(ATTEMPTS):
        try:
            found = [(value, Standing(*file)) for value, file in on_root(comm, "open subfiles", read_all)]
            if comm.size == 1 or len(found) > _MOST_KEPT:
                return found
            with comm.errors_shared():
                here = not comm.rank or open_here([file for _, file in found])
                (anywhere_others,), _ = comm.agree("open subfiles kept", (not here,))
            if not anywhere_others:
                return [(value, file._replace(fd=fd)) for (value, file), fd in zip(found, fds, strict=True)]
        except BaseException:
            _close_all(system, fds)
            raise
        _close_all(system, fds)
    raise comm.on_all(replaced_too_often(path))


def _close_all(system: System, fds: list[int]) -> None:
    while fds:
        fd = fds.pop()
        if fd >= 0:
            system.close(fd)


def read_headers(
    path: str, options: Options, comm: Comm, location: Location, first: Existing | None = None
) -> tuple[list[Header], list[Standing]]:
    """Read the headers of all subfiles of a read-only set, on rank 0 for all (collective); see `read_in_turn`.

    location : Location, of subfile 0; rank 0 notes which file it is.
    first : Existing, optional, subfile 0, where rank 0 has read it already.

    Returns
    -------
    list of Header
    list of Standing, the files that they were read from.

    Raises
    ------
    FormatError
        A subfile is missing, or ends before a map.
    """
    known: list[Header] = []
    system, like = options.system, first

    def read(name: str, number: int) -> tuple[tuple[bytes, int], int, Standing]:
        nonlocal like
        if not number:
            known.clear()
        fd = -1 if number or first is None else _same_file(system, name, first.key[1])
        if fd < 0:
            like = open_existing(system, name, system.realpath(name), like=like)
            fd = like.fd
        assert like is not None
        with closed_if_it_fails(system, fd):
            header, size = like.decoded.header, like.size
            check_maps(header, size, name)
            known.append(counted(header, size, name))
            if not number:
                location.key = like.key
            value = like.content, known[-1].numrecs
            return value, described(header, name).subfiles, Standing(name, like.key[1], fd)

    found = read_in_turn(path, options, comm, read)
    headers = known or [header_of_bytes(content).with_numrecs(numrecs) for (content, numrecs), _ in found]
    return headers, [file for _, file in found]


def read_set(
    path: str, options: Options, comm: Comm, location: Location, first: Existing | None = None, *, hdf5: bool
) -> tuple[SubfilesForm, list[Described], list[Standing]]:
    """Read what all subfiles of a read-only set say, and compare it (collective); parameters as of `read_headers`.

    hdf5 : bool, they are HDF5 files.

    Raises
    ------
    FormatError
        They do not belong together.
    """
    form: SubfilesForm
    if hdf5:
        subfiles, files = _read_hdf5(path, options, comm, location)
    else:
        headers, files = read_headers(path, options, comm, location, first)
    try:
        if hdf5:
            form = Hdf5Form([Hdf5Subfile.of_value(one) for one in subfiles])
            descriptions = [one.says for one in form.subfiles]
            refuse_foreign(path, descriptions, exact=True)
        else:
            descriptions = described_all(path, headers)
            form = netcdf_form(path, headers, descriptions)
    except BaseException:
        close_files(options.system, files)
        raise
    return form, descriptions, files


def netcdf_form(path: str, headers: Sequence[Header], descriptions: Sequence[Described]) -> NetcdfForm:
    """Return where the variables of subfile 0 are in all subfiles."""
    return NetcdfForm(path, headers, [positions(one, descriptions[0]) for one in descriptions])


def _read_hdf5(
    path: str, options: Options, comm: Comm, location: Location
) -> tuple[list[tuple[Any, ...]], list[Standing]]:
    system, context = options.system, context_of(options, comm, writable=False)._replace(comm=None)
    spec = stack_of_others(options, writable=False)

    def read(name: str, number: int) -> tuple[tuple[Any, ...], int, Standing]:
        fd = system.open(name, os.O_RDONLY | os.O_CLOEXEC)
        with closed_if_it_fails(system, fd):
            there = system.fstat(fd)
            one = open_stack(spec, name, context._replace(fd=fd if stack_capabilities(spec).takes_descriptor else -1))
            try:
                subfile = read_subfile(one, name)
            finally:
                one.close()
            if not number:
                location.key = there.st_dev, there.st_ino
            return subfile.value(), subfile.says.subfiles, Standing(name, there.st_ino, fd)

    found = read_in_turn(path, options, comm, read)
    return [value for value, _ in found], [file for _, file in found]


def _same_file(system: System, name: str, inode: int) -> int:
    """Return a descriptor of the file of this name if it is the one that was read; else -1."""
    fd = system.open(name, os.O_RDONLY | os.O_CLOEXEC)
    with closed_if_it_fails(system, fd):
        same = system.fstat(fd).st_ino == inode
    if same:
        return fd
    system.close(fd)
    return -1


@contextmanager
def closed_if_it_fails(system: System, fd: int) -> Iterator[None]:
    """Close a descriptor if the block raises."""
    try:
        yield
    except BaseException:
        if fd >= 0:
            system.close(fd)
        raise


def close_files(system: System, files: Sequence[Standing]) -> None:
    """Close the descriptors of files."""
    _close_all(system, [file.fd for file in files])


def check_maps(header: Header, size: int, name: str) -> None:
    """Refuse a subfile that does not have its maps, without which no element of a blob can be found.

    Raises
    ------
    FormatError
    """
    missing = short_data(header, size)
    if missing:
        maps = {var.name for var in header.vars[: len(described(header, name).maps) * len(MAP_VARIABLES)]}
        for variable, nbytes in missing:
            if variable in maps:
                raise FormatError(
                    f"{name}: the file ends before its maps: {nbytes} bytes of {variable} are missing",
                    offset=size,
                    field="file_size",
                    value=size,
                )


def counted(header: Header, size: int, name: str) -> Header:
    """Return the header of a subfile with the number of records that fit its `size`; warn if it counts more, or if
    other data are missing at its end."""
    whole = whole_records(header, size)
    missing = short_data(header.with_numrecs(whole), size)
    if missing:
        warn_outside(ShortFileWarning(f"{name}: {missing_text(missing)}", offset=size, field="file_size", value=size))
    if whole == header.numrecs:
        return header
    warn_outside(
        ShortFileWarning(
            f"{name}: the file ends before its data, as after a power failure: its header counts {header.numrecs} "
            f"records, and {whole} of them are there whole; the set has the records that all of its subfiles have",
            offset=size,
            field="file_size",
            value=size,
        )
    )
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
        if before is not None and _as_before(own, before, first, var, k):
            # the flush that deleted or renamed it was killed before it wrote the header of subfile 0
            found.append(before.variable)
            continue
        same = i >= 0 and own.assigned[i] == k and _shape(own, own.canonical.vars[i]) == _shape(first, var)
        if not same and (k or (i >= 0 and own.canonical.vars[i].type != var.type)):
            raise KeyError(var.name)
        found.append(own.variables[i] if same else -1)
    return found


def _as_before(own: Described, before: Before, first: Described, var: Var, k: int) -> bool:
    """Return whether a variable is the one that subfile 0 has."""
    lengths = [first.canonical.dims[i].size for i in var.dims]
    record = is_record(first.canonical, var)
    if not k or (before.map, before.type, before.record) != (k, var.type, record):
        return False
    trailing = lengths[int(record) + len(first.maps[k - 1].dims) :]
    return before.elements == own.maps[k - 1].nelems * math.prod(trailing)


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


# ------------------------------------------------------------------------- variables of the headers


def variables_of(
    header: Header,
    maps: Sequence[SizedMap],
    uids: Sequence[int],
    nodes: Mapping[int, DatasetNode],
    assigned: Mapping[int, int],
    supplements: Mapping[int, int],
    kept: Sequence[PhysicalVariable],
) -> list[PhysicalVariable]:
    """Return the variables of a subfile, in the order of its header.

    supplements : mapping of uid to the elements of the supplement, in the order of the header.
    kept : sequence of PhysicalVariable, those that only subfile 0 still names, behind all others.
    """
    keys: list[Hashable] = [(k, j, of.nblobs) for k, of in enumerate(maps, 1) for j in range(len(MAP_VARIABLES))]
    keys += [(uid, assigned[uid]) for uid in uids]
    keys += [(uid, "supplement") for uid in supplements]
    rest = header.with_vars(header.vars[: len(keys)])
    return [*stored_variables(rest, dict(enumerate(keys)), nodes), *kept]


def blob_names(canonical: Header, uids: Sequence[int], assigned: Sequence[int]) -> dict[tuple[int, int], str]:
    """Return what the partitioned datasets are called, by uid and map."""
    return {(uid, k): var.name for uid, k, var in zip(uids, assigned, canonical.vars, strict=True) if k}


def kept_variables(
    defs: PhysicalDefinitions, gone: Mapping[tuple[int, int], str], still: Container[tuple[int, int]]
) -> list[tuple[Kept, PhysicalVariable]]:
    """Return what a subfile has of variables that only subfile 0 still names.

    gone : mapping of uid and map to the name in subfile 0.
    still : container of uid and map, of all that there is.
    """
    found: list[tuple[Kept, PhysicalVariable]] = []
    for key, lengths, code, given in defs.blobs():
        if key in gone and key not in still:
            found.append((Kept(gone[key], key[1], code, lengths[int(given.record) + 1 :], given.record), given))
    return found


def stored_variables(
    header: Header, keys: Mapping[int, Hashable], nodes: Mapping[int, DatasetNode]
) -> list[PhysicalVariable]:
    """Return the variables of a subfile.

    keys : mapping of the number of a variable in `header` to what it is: (map, which of its variables, blobs), or
        (uid, map or "supplement"). What is not there is nobody's any more.
    """
    found: list[PhysicalVariable] = []
    for i, var in enumerate(header.vars):
        shape = tuple(header.dims[n].size for n in var.dims)
        key = keys.get(i)
        if isinstance(key, tuple) and len(key) == 2:
            found.append(_variable(nodes[key[0]], key, header.numrecs, shape))
        elif key is not None:
            found.append(PhysicalVariable(key, _INTS[var.type == INT64], shape, record=False))
        else:
            element = element_for("u1" if var.type == CHAR else TYPES[var.type].dtype.newbyteorder("="))
            record = is_record(header, var)
            shape = (header.numrecs, *shape[1:]) if record else shape
            found.append(PhysicalVariable(("nobody's", var.name), element, shape, record))
    return found


def _variable(node: DatasetNode, key: tuple[int, int | str], records: int, shape: tuple[int, ...]) -> PhysicalVariable:
    """Return a variable with elements of a dataset: its blobs, its supplement, or all of it."""
    if node.is_placeholder:
        return PhysicalVariable(key, node.element, (), record=False)
    first = 1 if node.is_record else 0
    inner = shape[first : first + 1] if key[1] else inner_shape(node)
    return PhysicalVariable(
        key, node.element, (records, *inner) if node.is_record else inner, node.is_record, node.fillvalue
    )
