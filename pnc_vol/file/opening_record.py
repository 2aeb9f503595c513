"""`Opening` records what is known of a file between ``File(...)`` and its session.

Knows: which fields an opening has, and which of them rank 0 sends. Does not know: how a step (`opening`) fills them.

Each rank has one record. Steps fill it from top to bottom; a step reads fields above its own, and writes its own alone.

=========  =====================================  =========================  =========================================
state      the step that leads to it              fields that it fills       what is on disk
=========  =====================================  =========================  =========================================
asked      `api.opening` checks arguments         path, mode, writable,      what was there
                                                  options, target, real
begun      `open_shared`: other files that must   comm, token; driver of     what was there
           be closed first are closed             what is no file
agreed     `open_file`: all ranks ask for the     keeps_file                 what was there
           same
found      `find` on rank 0; the others           way, sets, content, size,  "create": an empty file under its name or a
           receive its message                    inode, existing, location  temporary one; else what earlier jobs left
                                                                             of the file was recovered
read       all ranks decode the header            header, tree, layout       as before
open       all ranks open the stack of drivers    driver                     as before
=========  =====================================  =========================  =========================================

From "found" there are two other ways: "join", the process has the file open, and its session is used; and "set", the
file consists of several files, whose plug-in fills the rest. If another process gave the name to another file before
all ranks had opened it, the record goes back to "agreed". After an error nothing is open, and a file that was created
under a temporary name is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.format.model import Header
from pnc_vol.layout.base import Layout
from pnc_vol.mapping.tree import Tree
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from pnc_vol.disk.existing import Existing

__all__ = ["Opening"]


class Opening:
    """One opening of a file on one rank; the module has the order in which fields are filled.

    path : str, as the user gave it; of a set the name of the set, once it was found.
    mode : {"r", "r+", "w", "w-", "x", "a"}
    writable : bool, the mode is not "r".
    options : Options
    target : object, which is the file, or None.
    real : str, the path without symbolic links; "" if there is no file that others could open.
    comm : Comm, owned by the session from "begun" on.
    token : bytes, names the session to join, or the new one, on all ranks; empty if no other opening can join it.
    driver : Driver or None. What is no file comes with its driver.
    keeps_file : bool, the driver keeps its bytes in a file of the operating system.
    way : {"", "join", "open", "create", "set"}
    sets : str, the plug-in that opens the set.
    content : bytes, of the header, as it is in the file; of a set that of its first file, empty if it is new.
    size : int, bytes of the file when its header was read.
    inode : int, of a file that was read; 0 of a new one, and of what is no file.
    existing : Existing or None, on rank 0 what it read: the file, or the first file of a set, which is closed again.
    location : Location or None, where the file is; None if there is no file.
    header : Header
    tree : Tree, the objects.
    layout : class. If it is given at first, variables are pieces of the objects of a set, which has the tree.
    """

    __slots__ = (
        "comm", "content", "driver", "existing", "header", "inode", "keeps_file", "layout", "location", "mode",
        "options", "path", "real", "sets", "size", "target", "token", "tree", "way", "writable",
    )  # fmt: skip

    header: Header
    tree: Tree
    layout: type[Layout] | None

    def __init__(
        self,
        path: str,
        mode: str,
        options: Options,
        comm: Comm | None = None,
        *,
        real: str = "",
        target: Any = None,
        driver: Driver | None = None,
        layout: type[Layout] | None = None,
    ) -> None:
        self.path, self.mode, self.options, self.writable = path, mode, options, mode != "r"
        self.target, self.real = target, real
        if comm is not None:
            self.comm: Comm = comm
        self.token, self.driver, self.keeps_file = b"", driver, False
        self.layout = layout
        self.find_again()

    def find_again(self) -> None:
        """Go back to the state before the file was found."""
        self.way, self.sets, self.content, self.size, self.inode = "", "", b"", 0, 0
        self.existing: Existing | None = None
        self.location: Location | None = None

    def read(self, existing: Existing) -> None:
        """Fill in what was read of a file that is there."""
        self.way, self.existing, self.header = "open", existing, existing.decoded.header
        self.content, self.size, self.inode = existing.content, existing.size, existing.key[1]

    def message(self) -> tuple[Any, ...]:
        """Return what other ranks need of what rank 0 found, for `receive`; see `ranks.mpi_comm.encoded`."""
        at = self.location
        path, work = (self.path, "") if at is None else (at.path, at.work)
        return self.way, self.sets, self.token.decode(), path, work, self.size, self.inode, self.content

    def receive(
        self, way: str, sets: str, token: str, path: str, work: str, size: int, inode: int, content: bytes
    ) -> None:
        """Fill in the message of rank 0."""
        self.way, self.sets, self.token, self.content = way, sets, token.encode(), content
        self.size, self.inode = size, inode
        if way == "set":
            self.path = path
        elif way != "join":
            self.location = Location(self.options.system, path, work, unseen=path != work)

    def release(self) -> None:
        """Close the descriptors that rank 0 has of the file."""
        if self.location is not None:
            self.location.held.release()
