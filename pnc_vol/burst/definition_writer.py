"""`DefinitionWriter` writes to a log which datasets it refers to, and under which header they are stored.

Knows: dataset nodes, the definitions file, the header that the file has now. Does not know: entries, commit records.

Rules
-----
1. A dataset is defined before the first entry that refers to it, again when it changed, and again after a flush.
2. The first definition after a flush is preceded by the header that the file has by then, and the file's identity:
   these definitions stand on that header, and a replay compares it.
3. Before another header is written, the log records it.
"""

from __future__ import annotations

from contextlib import suppress

from pnc_vol.append_log.tail import Tail
from pnc_vol.burst.definitions import encode_base, encode_definition, encode_gone, encode_written, whole_of
from pnc_vol.burst.logged_variables import LoggedVariable
from pnc_vol.disk.identity import by_inode, identity_of
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.mapping.names import variable_name
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.system import System

__all__ = ["DefinitionWriter", "LoggedFile"]

_When = tuple[int, int]


class LoggedFile:
    """The file that a log belongs to, in its present state.

    disk : StoredFile
    identity : bytes[16], what the log calls the file.
    """

    def __init__(self, disk: StoredFile) -> None:
        self._disk = disk
        self.identity = b""

    @property
    def work(self) -> str:
        """The name that the file has now."""
        location = self._disk.standing
        assert location is not None
        return location.work

    @property
    def temporary(self) -> bool:
        """Whether that is not the user's name, and will not be so until the close."""
        location = self._disk.standing
        return self._disk.keep_unpublished and location is not None and not location.published

    @property
    def kept(self) -> str:
        """The name under which it stays if it is not flushed any more; "" if it does not stay."""
        location = self._disk.standing
        return location.work if location is not None and location.at_stake else ""

    @property
    def header(self) -> bytes:
        """The header that it has now."""
        return self._disk.header_bytes

    def stored(self) -> dict[int, str]:
        """Return the name of each dataset's variable in that header, by uid."""
        there = {var.name for var in self._disk.header.vars}
        placed = self._disk.layout
        named = zip(placed.uids, placed.header.vars, strict=True)
        return {uid: var.name for uid, var in named if var.name in there}

    def follow(self, system: System) -> None:
        """Look which file it is now, where a new layout has another identity."""
        if by_inode(self.identity):
            self.identity = identity_of(system, self.work)


class DefinitionWriter:
    """The writer of a log's definitions.

    Parameters
    ----------
    system : System
    defs : Tail
        The definitions file.
    file : LoggedFile

    Attributes
    ----------
    known : dict of int to LoggedVariable
        What was logged of each dataset, by uid; one object for good.
    units : dict of int to int
        Bytes whose order is turned over on the way to the file, by uid.
    ndims : int
        The most dimensions of a dataset so far.
    """

    def __init__(self, system: System, defs: Tail, file: LoggedFile) -> None:
        self.system = system
        self.defs = defs
        self.file = file
        self.known: dict[int, LoggedVariable] = {}
        self.units: dict[int, int] = {}
        self.ndims = 0
        self._path_of: dict[str, int] = {}
        self._stored: dict[int, str] | None = None
        self._names: frozenset[str] = frozenset()
        self._logging = False

    def define(self, node: DatasetNode, known: LoggedVariable, when: _When) -> None:
        """Log what replay must know of a dataset.

        Parameters
        ----------
        when : (int, int), flushes so far, and cuts since the last one.

        Raises
        ------
        OSError
            There is no room; no definition was written.
        """
        uid, path = node.uid, node.path
        owner, part = whole_of(node)
        if part:
            # A part is found by its dataset, which is defined first.
            whole = self.known.get(owner.uid)
            if whole is None or not whole.holds(owner):
                self.define(owner, LoggedVariable(owner), when)
        stored = self._stored if self._stored is not None else self._begin()
        before = self.known.get(uid)
        # Two datasets may have swapped their names: one that is already being defined ends the recursion.
        self.known[uid] = known
        try:
            name = stored.get(uid)
            replaces = not part and name is None and variable_name(path, node.tree.separator) in self._names
            if replaces:
                # The variable of that name was deleted or renamed: the log records which dataset replaces which.
                for other, variable in stored.items():
                    self._define_if_moved(node.tree.datasets.get(other), variable, when)
            if not part:
                self._define_if_moved(node.tree.datasets.get(self._path_of.get(path, uid)), path, when)
            epoch, fills = when
            self.defs.append(encode_definition(node, stored=name, replaces=replaces, epoch=epoch, fills=fills))
        except BaseException:
            if before is None:
                del self.known[uid]
            else:
                self.known[uid] = before
            raise
        self.units[uid], self._path_of[path] = known.unit, uid
        self.ndims = max(self.ndims, len(node.shape or ()) + len(known.element.trailing))

    def _begin(self) -> dict[int, str]:
        """Record the header that the following definitions refer to."""
        self.defs.append(encode_base(self.file.header, self.file.identity))
        self._stored = self.file.stored()
        self._names = frozenset(self._stored.values())
        return self._stored

    def _define_if_moved(self, node: DatasetNode | None, name: str, when: _When) -> None:
        if node is None or name in (node.cdf_name, node.path):
            return
        known = self.known.get(node.uid)
        if known is None or not known.holds(node):
            self.define(node, LoggedVariable(node), when)

    def about_to_flush(self, when: _When, *, logging: bool) -> None:
        """Log which datasets were deleted or renamed: the header may be written and the log not begun anew."""
        self._logging = False
        with suppress(OSError):
            for uid, known in list(self.known.items()):
                node = known.node
                if known.version == node.tree.version or not logging:
                    continue
                if node.tree.datasets.get(uid) is not node:
                    self.defs.append(encode_gone(uid))
                elif node.path != known.path:
                    self.define(node, LoggedVariable(node), when)
            self._logging = logging
        self._stored = None

    def about_to_write(self, header: bytes, epoch: int) -> None:
        """Log the header that is about to be written, under which datasets have their new names."""
        self.file.follow(self.system)
        with suppress(OSError):
            if self.known and self._logging:
                self.defs.append(encode_written(header, epoch, self.file.identity))

    def forget(self) -> None:
        """Forget all definitions, because the log is begun anew."""
        self.known.clear()
        self._path_of.clear()
