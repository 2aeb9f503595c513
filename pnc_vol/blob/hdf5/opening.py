"""All ranks create a set of HDF5 blob files together, or open one for reading.

Knows: which rank writes which subfile, subfiles that were read. Does not know: requests, HDF5.

Rules
-----
1. The temporary files of a new set are made when it is opened: what cannot be written is known before the job runs.
2. A closed set can only be read. Rank 0 reads the headers and maps and sends them to the other ranks.
"""

from __future__ import annotations

from typing import Any

from pnc_vol.blob.hdf5.file_set import Hdf5Set, Hdf5SetDriver, Own
from pnc_vol.blob.hdf5.layout import Hdf5BlobLayout
from pnc_vol.blob.hdf5.subfile import Hdf5Subfile, read_subfile
from pnc_vol.blob.names import subfile_path
from pnc_vol.blob.renaming import pending_renames
from pnc_vol.blob.set_headers import canonical_of, refuse_foreign
from pnc_vol.blob.set_opening import dealt_subfiles
from pnc_vol.disk.locking import Held
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.stack import open_stack
from pnc_vol.errors import FormatError, NotYetError
from pnc_vol.file.driver_stack import context_of, open_together, stack_of, stack_of_others
from pnc_vol.file.joining import session_of
from pnc_vol.file.opening import Opening
from pnc_vol.format.model import Header
from pnc_vol.mapping.tree import Tree
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options

__all__ = ["open_hdf5_set"]


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
    try:
        with comm.errors_shared():
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
        count=1 + max(subfile_of),
        nprocs=comm.size,
        subfile_of=subfile_of,
        own=own,
        driver=driver,
        location=location,
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

    def read() -> list[Any]:
        found: list[Any] = []
        count, pending = 1, pending_renames(options.system, path)
        while len(found) < count:
            name = pending.pop(len(found), "") or subfile_path(path, len(found))
            try:
                one = open_stack(spec, name, context._replace(comm=None))
            except FileNotFoundError:
                if name != subfile_path(path, len(found)):
                    continue  # its writer is at work, and has renamed it since
                text = f"the set has {count} subfiles, and {name} is missing" if found else f"{name} is missing"
                raise FormatError(f"{path}: {text}", field="num_subfiles", value=count) from None
            try:
                subfile = read_subfile(one, name)
            finally:
                one.close()
            count = subfile.says.subfiles
            found.append((name, subfile.value()))
        return found

    read_on_root = on_root(comm, "open subfiles", read)
    subfiles = [Hdf5Subfile.of_value(one) for _, one in read_on_root]
    headers, says = [one.header for one in subfiles], [one.says for one in subfiles]
    refuse_foreign(path, says, exact=True)
    tree, canonical = canonical_of(path, headers, says, options, warns=comm.rank == 0)
    driver = Hdf5SetDriver(path, spec, context, {})
    for number, (name, _) in enumerate(read_on_root):
        driver.moved(number, name)
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
