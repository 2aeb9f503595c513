"""`SetDriver` maps addresses to the drivers of this rank's subfiles, and to those of the others.

Knows: addresses, drivers, names of subfiles, the variables of maps. Does not know: sessions, users' variables.

Rules
-----
1. A subfile that this rank writes is reached through the driver of its inner session, whichever that is at the moment.
2. Another one is opened when it is first touched, on this rank alone, by the stack that was asked for, or by what is at
   the bottom of it: two caches of one file would not see each other's data, so a set that is written has none here. It
   is closed when its ranks go on with another file (`moved`). What fails in a write names the subfile.
3. `sync`, `order`, `end_flush` and `close` of the inner sessions' drivers are theirs; here they count for the others.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from pnc_vol.blob.index import ElementIndex, index_of
from pnc_vol.blob.layout import BlobFiles
from pnc_vol.blob.maps import MAP_VARIABLES, MapSizes, SubfileMap, from_content
from pnc_vol.blob.names import subfile_path
from pnc_vol.blob.set_headers import Standing, close_files
from pnc_vol.drivers.base import Driver, Memory, OpenContext
from pnc_vol.drivers.stack import open_stack, stack_capabilities
from pnc_vol.errors import FormatError, NotSyncedError
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.format.model import TYPES, Header
from pnc_vol.layout.base import OFFSET, SHIFT
from pnc_vol.layout.subfiles import by_file
from pnc_vol.system import closing_if_it_fails

__all__ = ["SetDriver"]


class SetDriver(Driver):
    """See the module.

    Parameters
    ----------
    path : str, the name of the set.
    spec : str, the stack to open other ranks' subfiles with.
    context : OpenContext, the same.
    own : mapping of int to a function that gives the driver of that subfile now.
    """

    name = "subfiles"

    def __init__(self, path: str, spec: str, context: OpenContext, own: Mapping[int, Callable[[], Driver]]) -> None:
        self.path, self._spec = path, spec
        self._own = dict(own)
        self._context = context._replace(comm=None, fd=-1)
        self._names: dict[int, tuple[str, ...]] = {}
        self._stand: dict[int, Standing] = {}
        self._others: dict[int, Driver] = {}
        self.held = ""
        """Why what other ranks flushed cannot be read from their subfiles yet; "" if it can."""
        self.in_files: Callable[[], Ranges] = lambda: EMPTY
        """The addresses of what can be read all the same, as no rank holds it back."""
        self.direct: list[Ranges] | None = None
        """The addresses that this rank wrote in subfiles of others in the last flush; None: it is of no use."""

    def use_own(self, number: int, driver: Driver) -> None:
        """Use this driver for a subfile that this rank writes."""
        self._own[number] = lambda: driver

    def moved(self, number: int, *names: str) -> None:
        """The ranks of a subfile write to the file of the first of these names now, which it may give up for the next.

        A new layout of a file that has not got its name yet takes the temporary name of the old one.
        """
        if number not in self._own and self._names.get(number) != names:
            self._names[number] = names
            other = self._others.pop(number, None)
            if other is not None:
                other.close()

    def reads(self, number: int, file: Standing) -> None:
        """A header was read from this file, in a set that is only read: its data are read from no other.

        Its descriptor is closed by `close`.
        """
        self._stand[number] = file
        self.moved(number, file.name)

    def _file(self, number: int) -> Driver:
        own = self._own.get(number)
        if own is not None:
            return own()
        found = self._others.get(number)
        if found is None:
            *others, final = *filter(None, self._names.get(number, ())), subfile_path(self.path or "", number)
            with closing_if_it_fails(self._context.system):
                for name in others:
                    with suppress(FileNotFoundError):
                        found = self._opened(number, name)
                        break
                else:
                    # its ranks announced a temporary name, and have renamed the file since
                    found = self._opened(number, final)
                self._others[number] = found
        return found

    def _opened(self, number: int, name: str) -> Driver:
        """Return the driver of a subfile that this rank does not write; a subclass may put another one over it."""
        file = self._stand.get(number)
        if file is not None and file.fd >= 0 and stack_capabilities(self._spec).takes_descriptor:
            return open_stack(self._spec, name, self._context._replace(fd=file.fd))
        found = open_stack(self._spec, name, self._context)
        # It had this name when the header was read: if it has it still, it had it when it was opened.
        if file is not None and self._context.system.stat(name).st_ino != file.inode:
            found.close()
            text = "its writer has put another file in its place since the set was opened; refresh() reads that one"
            raise OSError(errno.ESTALE, text, name)
        return found

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        for number, part in by_file(extents):
            if len(part.offset):
                self._check_settled(number, part)
        return self.read_settled(extents, memory)

    def read_settled(self, extents: Extents, memory: Memory) -> int:
        """Read extents of which no cache of another subfile's ranks holds newer bytes; return the bytes read."""
        got = 0
        for number, part in by_file(extents):
            if len(part.offset):
                got += self._file(number).read(part, memory)
        return got

    def read_one(self, array: Any, offset: int) -> int:
        self._check_settled(offset >> SHIFT, one_extent(offset & OFFSET, array.nbytes))
        return self._file(offset >> SHIFT).read_one(array, offset & OFFSET)

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        """Do as every driver does; `end` is an address, and `use` is given the subfile."""
        number = end >> SHIFT
        if self.held and number not in self._own:
            return False
        return self._file(number).look(end & OFFSET, nbytes, use)

    def _check_settled(self, number: int, part: Extents) -> None:
        if self.held and number not in self._own:
            known = self.in_files()
            for ranges in self.direct or ():
                known = known.plus(ranges)
            if _addresses(number, part).minus(known).start.size:
                raise NotSyncedError(self.held)

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        for number, part in by_file(extents):
            if len(part.offset):
                try:
                    self._file(number).write(part, memory)
                    if self.direct is not None and number not in self._own:
                        self.direct.append(_addresses(number, part))
                except OSError as error:
                    name = os.path.basename(subfile_path(self.path or "", number))
                    if name not in (error.strerror or ""):
                        error.strerror = f"{error.strerror or error} (subfile {name})"
                    raise

    def size(self) -> int:
        return self._file(0).size()

    def resize(self, nbytes: int) -> None:
        """The inner sessions give their files their lengths."""

    def drain(self) -> None:
        """Bring what the drivers of this rank's subfiles hold back to these."""
        for own in self._own.values():
            own().drain()

    def sync(self) -> None:
        for other in self._others.values():
            other.sync()

    def close(self) -> None:
        others, self._others = self._others, {}
        for other in others.values():
            other.close()
        stand, self._stand = self._stand, {}
        close_files(self._context.system, list(stand.values()))

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = {"subfiles.others": len(self._others)}
        for number, own in self._own.items():
            found |= {f"{number:04d}.{name}": value for name, value in own().statistics().items()}
        return found

    def describe(self) -> str:
        own = next(iter(self._own.values()), None)
        return own().describe() if own is not None else self._spec

    def read_index(self, files: BlobFiles, k: int) -> ElementIndex:
        """Read from the map variables of the subfiles where the elements of a map are.

        Raises
        ------
        FormatError
            They contradict each other.
        """
        dims = files.dims[k - 1]
        most = sum(_runs_of(header, k) for header in files.headers)

        def maps() -> Iterator[tuple[int, SubfileMap]]:
            return ((s, self._map(s, header, dims, k)) for s, header in enumerate(files.headers))

        return index_of(math.prod(dims), maps, f"{self.path}: D{k}", most=most)

    def _map(self, number: int, header: Header, dims: tuple[int, ...], k: int) -> SubfileMap:
        """Read the part of a map that one subfile holds."""
        name, columns, file = f"{subfile_path(self.path or '', number)}: D{k}", [], self._file(number)
        first = (k - 1) * len(MAP_VARIABLES)
        for var in header.vars[first : first + len(MAP_VARIABLES)]:
            shape = tuple(header.dims[i].size for i in var.dims)
            dtype = TYPES[var.type].dtype
            raw = np.zeros(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, np.uint8)
            if file.read(one_extent(var.begin, raw.nbytes), raw) < raw.nbytes:
                raise FormatError(f"{name}: the file ends before {var.name}", offset=var.begin, field=var.name, value=0)
            columns.append(raw.view(dtype).reshape(shape))
        nblobs, most = columns[3].shape
        nelems = next(dim.size for dim in header.dims if dim.name == f"D{k}.nelems")
        sizes = MapSizes(dims, (), nblobs, nelems, most)
        variables = header.vars[first : first + len(MAP_VARIABLES)]
        begins = [
            var.begin + np.arange(nblobs) * column[0].nbytes for var, column in zip(variables, columns, strict=True)
        ]
        return from_content(sizes, columns, name, begins)


def _addresses(number: int, part: Extents) -> Ranges:
    """Return extents of a subfile as addresses of the set."""
    return ranges_of(part.offset + (number << SHIFT), part.length)


def _runs_of(physical: Header, k: int) -> int:
    """Return the number of runs that a subfile has at most of a map: a row for each blob, as long as the longest."""
    offsets = physical.vars[(k - 1) * len(MAP_VARIABLES) + MAP_VARIABLES.index("offsets")]
    return math.prod(physical.dims[i].size for i in offsets.dims)
