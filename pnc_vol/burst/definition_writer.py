"""`DefinitionWriter` writes to a log which datasets it refers to; `LoggedVariable` encodes what is posted to one.

Knows: dataset nodes, selections, entries, the definitions file, the header that the file has now. Does not know: commit
records.

Rules
-----
1. A dataset is defined before the first entry that refers to it, again when it changed, and again after a flush.
2. The first definition after a flush is preceded by the header that the file has by then, and the file's identity:
   these definitions stand on that header, and a replay compares it.
3. Before another header is written, the log records it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.tail import Tail
from pnc_vol.burst.definitions import encode_base, encode_definition, encode_gone, encode_written, whole_of
from pnc_vol.burst.encoding import encode_vara, encode_varn, encode_vars, itype_of, row_packer
from pnc_vol.burst.recent_posts import Packers
from pnc_vol.disk.identity import by_inode, identity_of
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.extents.model import Runs, Selection
from pnc_vol.extents.subarrays import as_subarrays
from pnc_vol.format.numeric import Overflow, swap_in_place, to_file
from pnc_vol.mapping.dtypes import Dtype, Element
from pnc_vol.mapping.names import variable_name
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.system import System

__all__ = ["DefinitionWriter", "LoggedFile", "LoggedVariable"]


class LoggedVariable:
    """The logged definition of a dataset, and the encoders of its values and entries."""

    __slots__ = (
        "element", "entry_size", "inner", "itemsize", "itype", "native", "node", "pack", "path", "plain", "posts",
        "row_size", "shape", "unit", "version",
    )  # fmt: skip

    def __init__(self, node: DatasetNode) -> None:
        self.node = node
        self.version = node.tree.version
        self.shape, self.element, self.path = node.shape, node.element, node.path
        number = _number(node.element)
        self.itype, self.unit = itype_of(number), number.itemsize
        self.native = node.element.file_dtype.newbyteorder("=")
        self.itemsize = self.native.itemsize
        # The rest is prepared for `ShortPosts`, whose posts are too short to compute it each time.
        self.plain = self.native.kind in "iuf" and node.element.dtype == self.native
        rest = (node.shape or ())[1:]
        self.inner = math.prod(rest) if rest else 0
        self.row_size = self.inner or 1
        head, self.pack, row = row_packer(self.itype, node.uid, rest)
        self.entry_size = 56 + 16 * len(rest)
        self.posts = Packers(head, row if rest else b"", self.inner, self.itemsize)

    def outdate(self) -> None:
        """Let the next post define the dataset again."""
        self.shape, self.version = None, -1

    def holds(self, node: DatasetNode) -> bool:
        """Return whether the dataset is as it was logged."""
        version = node.tree.version
        if version == self.version:
            return True
        if node.shape != self.shape or node.element is not self.element or node.path != self.path:
            return False
        self.version = version
        return True

    def payload(self, values: npt.NDArray[Any], on_overflow: Overflow) -> memoryview:
        """Return the values as bytes of the variable's type in the machine's byte order; a view if that is what they
        are."""
        if not self.plain and self.native.kind == "V":
            values = np.ascontiguousarray(values)
        if values.dtype == self.native and values.flags.c_contiguous:
            # `memoryview` of a simple type takes a quarter of the time of numpy's view.
            if self.plain:
                return values.data.cast("B")
            raw = values.reshape(-1).view(np.uint8)
            if self.element.kind == "array":
                raw = raw.copy()
                swap_in_place(raw, self.unit)
            return raw.data
        made = np.empty(values.size * self.itemsize, np.uint8)
        to_file(values, self.native, made, on_overflow=on_overflow, what=self.node.name)
        return made.data

    def entry(
        self,
        varid: int,
        selection: Selection | None,
        found: Runs,
        at: int,
        nbytes: int,
    ) -> bytes:
        """Return the entry of a request in the words of the variable's own dimensions, hidden ones included."""
        trailing = self.element.trailing
        zeros = (0,) * len(trailing)
        if selection is not None and selection.index is None and selection.listed is None:
            start, count, stride = selection.start, selection.count, selection.stride
            if trailing:
                start, count, stride = (*start, *zeros), (*count, *trailing), (*stride, *(1 for _ in zeros))
            if max(stride, default=1) == 1:
                return encode_vara(self.itype, varid, start, count, at, nbytes)
            return encode_vars(self.itype, varid, start, count, stride, at, nbytes)
        shape = self.shape or ()
        if shape and len(found.start):
            # Records may be written beyond the end of a dataset, where the file has more of them.
            inner = math.prod(shape[1:])
            shape = (max(shape[0], int((found.start + found.length).max() - 1) // inner + 1), *shape[1:])
        starts, counts = as_subarrays(shape, found)
        hidden = np.zeros((len(starts), len(zeros)), np.int64)
        whole = hidden + np.array(trailing, np.int64)
        return encode_varn(self.itype, varid, np.hstack((starts, hidden)), np.hstack((counts, whole)), at, nbytes)


def _number(element: Element) -> Dtype:
    """Return the type of the numbers that an element is made of, in the words of PnetCDF: those of the variable."""
    dtype = element.file_dtype
    if element.kind == "array":
        return element.dtype.base
    if dtype.kind == "c":
        return np.dtype("f4" if dtype.itemsize == 8 else "f8")
    return np.dtype({"S": "S1", "V": "u1"}.get(dtype.kind, dtype))


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
