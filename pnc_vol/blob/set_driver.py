"""`SetDriver` maps addresses to the drivers of this rank's subfiles, and to those of the others.

Knows: addresses, drivers, names of subfiles. Does not know: sessions, variables.

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
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pnc_vol.blob.names import subfile_path
from pnc_vol.blob.set_headers import Standing, close_files
from pnc_vol.drivers.base import Driver, Memory, OpenContext
from pnc_vol.drivers.holding import Holder
from pnc_vol.drivers.stack import open_stack, stack_capabilities
from pnc_vol.errors import NotSyncedError
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.layout.base import OFFSET, SHIFT
from pnc_vol.layout.subfiles import by_file
from pnc_vol.system import closing_if_it_fails

__all__ = ["SetDriver"]


class _OwnHolders(Holder):
    """Brings what the drivers of this rank's subfiles hold back to these; the sessions of these do all else."""

    def __init__(self, own: Mapping[int, Callable[[], Driver]]) -> None:
        self._own = own

    def drain(self, *, stop: str = "") -> None:
        for own in self._own.values():
            own().holder.drain()


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
        self.path, self.spec = path, spec
        self._own = dict(own)
        self.holder = _OwnHolders(self._own)
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
        self.over: Callable[[int, Driver], Driver] = lambda number, driver: driver
        """Puts a driver of elements over that of a subfile; see `layout.SubfilesForm`."""

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

    def file(self, number: int) -> Driver:
        """Return the driver of a subfile."""
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
        """Return the driver of a subfile that this rank does not write."""
        file = self._stand.get(number)
        if file is not None and file.fd >= 0 and stack_capabilities(self.spec).takes_descriptor:
            return self.over(number, open_stack(self.spec, name, self._context._replace(fd=file.fd)))
        found = open_stack(self.spec, name, self._context)
        # It had this name when the header was read: if it has it still, it had it when it was opened.
        if file is not None and self._context.system.stat(name).st_ino != file.inode:
            found.close()
            text = "its writer has put another file in its place since the set was opened; refresh() reads that one"
            raise OSError(errno.ESTALE, text, name)
        return self.over(number, found)

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        if self.held:
            for number, part in by_file(extents):
                self._check_settled(number, part)
        return self.read_settled(extents, memory)

    def read_settled(self, extents: Extents, memory: Memory) -> int:
        """Read extents of which no cache of another subfile's ranks holds newer bytes; return the bytes read."""
        got = 0
        for number, part in by_file(extents):
            if len(part.offset):
                got += self.file(number).read(part, memory)
        return got

    def read_one(self, array: Any, offset: int) -> int:
        self._check_settled(offset >> SHIFT, one_extent(offset & OFFSET, array.nbytes))
        return self.file(offset >> SHIFT).read_one(array, offset & OFFSET)

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        """Do as every driver does; `end` is an address, and `use` is given the subfile."""
        number = end >> SHIFT
        if self.held and number not in self._own:
            return False
        return self.file(number).look(end & OFFSET, nbytes, use)

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
                    self.file(number).write(part, memory)
                    if self.direct is not None and number not in self._own:
                        self.direct.append(_addresses(number, part))
                except OSError as error:
                    name = os.path.basename(subfile_path(self.path or "", number))
                    if name not in (error.strerror or ""):
                        error.strerror = f"{error.strerror or error} (subfile {name})"
                    raise

    def size(self) -> int:
        return self.file(0).size()

    def resize(self, nbytes: int) -> None:
        """The inner sessions give their files their lengths."""

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
        return own().describe() if own is not None else self.spec


def _addresses(number: int, part: Extents) -> Ranges:
    """Return extents of a subfile as addresses of the set."""
    return ranges_of(part.offset + (number << SHIFT), part.length)
