"""`.id` identifies the object of an open file that a handle stands for.

Knows: sessions and nodes of the tree. Does not know: h5py's low-level
functions; what they tell of a dataset is in `storage_info`.

Rules
-----
1. Two ids are equal if they name the same object of the same file, whatever handles they came from.
2. An id is true while its file is open and the object has not been deleted.
3. `Handle` is one opening of a file. When the last object that came from it is gone, it is closed; see `file.py`.
   Several may share a session (`file.registry`); each knows by itself whether it is closed, and whether it writes.
4. What a pickle of an object keeps is its id; see `opening`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnc_vol.errors import ClosedFileError, ClosedKeyError, NotYetError, ReadOnlyError
from pnc_vol.late import late
from pnc_vol.mapping.tree import DatasetNode, GroupNode

if TYPE_CHECKING:
    from pnc_vol.api import storage_info
    from pnc_vol.file.open_file import OpenFile
    from pnc_vol.file.registry import SessionRef
else:
    # few programs ask for HDF5's view of a dataset
    storage_info = late("pnc_vol.api.storage_info")

__all__ = ["AttributeID", "DatasetID", "FileID", "Given", "GroupID", "Handle", "ObjectID", "TypeID", "attached"]


_get = dict.get
"""Looks an entry up whatever the table makes of it: what is there is compared, not used."""


class Given(NamedTuple):
    """The arguments of `File` as they were given.

    h5 : keywords of h5py.
    others : all other keywords.
    """

    name: Any
    mode: str
    driver: Any
    comm: Any
    info: Any
    hints: Any
    h5: Mapping[str, Any]
    others: Mapping[str, Any]

    def without_objects(self) -> Given:
        """Return the same, but for a file object: a handle that has it would keep it alive after the file is closed."""
        if self.others.get("fileobj") is not None:
            return self._replace(name="", others={**self.others, "fileobj": True})
        return self if isinstance(self.name, (str, bytes)) else self._replace(name="")


class Handle:
    """An open file, with the arguments that `File` was given.

    The check of the arguments makes it; it is used when it has its session (`attach`).

    session : OpenFile, shared with the other handles of the same file.
    ref : SessionRef, the share in the session that this handle releases when it is closed.
    filename : str, as it was given, or how the object that is the file shows itself.
    driver : str, the word given for the driver.
    libver : tuple of two str.
    real : str, the path without links; "" if there is no file.
    named : str, the path without links that was given, even if the file is in memory; "" if an object or an address was
        given in place of a name.
    given : Given, the arguments of `File`, so that a pickle can open the file again.
    collective : dict of uid to int, how many ``with ds.collective:`` are active.
    writable : bool, False for a handle that was opened for reading, though another one may write.
    swmr : bool, what ``File(swmr=True)`` asked for.
    released : bool, this handle was closed; the session may be open for others.
    """

    def __init__(
        self, given: Given, filename: str, driver: str, libver: tuple[str, str], *, real: str, named: str, swmr: bool
    ) -> None:
        self.given = given.without_objects()
        self.filename = filename
        self.driver = driver
        self.libver = libver
        self.real, self.named = real, named
        self.swmr = swmr
        self.collective: dict[int, int] = {}
        self.writable = given.mode != "r"
        self.released = False

    def attach(self, session: OpenFile, ref: SessionRef) -> None:
        """Give the handle the session that it uses from now on, and its share in it."""
        self.session: OpenFile = session
        self.ref: SessionRef = ref

    @property
    def folder(self) -> str:
        """The folder of `named`, by which other files are found."""
        return os.path.dirname(self.named)

    @property
    def closed(self) -> bool:
        """True if the file cannot be used through this handle any more."""
        return self.released or self.session.closed

    def check_open(self) -> None:
        """Raise if the file cannot be used through this handle.

        Raises
        ------
        ClosedFileError, ForkedFileError
        """
        if self.released:
            raise self.session.closed_error()
        self.session.check_open()

    def check_writable(self, what: str) -> None:
        """Raise if the file is open for reading.

        Raises
        ------
        ReadOnlyError
        """
        if not self.writable:
            raise ReadOnlyError(
                f"Unable to {what} (no write intent on file {self.session.disk.path}); open it with mode 'r+' or 'a'"
            )

    def close(self) -> None:
        """Release the file; the last handle closes it (collective). A second call does nothing."""
        try:
            self.ref.release()
        finally:
            self.released = not self.ref.held


class AttributeID(NamedTuple):
    """What `AttributeManager.get_id` returns.

    name : str
    dtype : dtype, with h5py's metadata.
    shape : tuple of int, or None if the attribute is empty.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None

    def get_type(self) -> storage_info.StoredType:
        """Return the type of its values."""
        return storage_info.StoredType(self.dtype)

    def get_space(self) -> storage_info.Space:
        """Return the shape."""
        return storage_info.Space(self.shape, self.shape)


def attached(node: GroupNode | DatasetNode) -> bool:
    """Return True if the node can still be reached from the root."""
    if isinstance(node, DatasetNode):
        return node.tree.datasets.get(node.uid) is node
    while node.parent is not None:
        parent = node.parent
        if parent.children.get(node.name) is not node and parent.links.get(node.name) is not node:
            return False
        node = parent
    return True


class ObjectID:
    """Identifies an object of an open file; hashable, comparable, true while it can be used.

    reached : str or None, the path by which links led to it, if that is not its own; a dataset that was reached without
        links has no such attribute.
    """

    __slots__ = ("handle", "node", "reached")

    def __init__(self, handle: Handle, node: Any) -> None:
        self.handle = handle
        self.node = node
        self.reached: str | None = None

    @property
    def valid(self) -> bool:
        """True while the file is open and the object exists."""
        return not self.handle.closed and self._attached()

    def _attached(self) -> bool:
        """Return True if the node can still be reached from the root."""
        if attached(self.node):
            return True
        # perhaps another thread refreshes the file at this moment, which changes the objects one by one
        with self.handle.session.lock:
            return attached(self.node)

    @property
    def id(self) -> int:
        """A number that stands for the object while the process runs."""
        return id(self.node)

    @property
    def rank(self) -> int:
        """Number of axes; 0 for anything that is no dataset."""
        return len(getattr(self.node, "shape", None) or ())

    def close(self) -> None:
        """Release this id: it and the objects that use it become false; the file and the object stay."""
        import copy

        gone = copy.copy(self.node)
        # a node that no group has: as if it had been deleted, for this id alone
        gone.name, gone.parent = "", self.node.tree.root
        self.node = gone

    def check(self) -> OpenFile:
        """Return the session, if the object can be used.

        Raises
        ------
        ClosedFileError
            The file is closed, or the object was deleted.
        """
        self.handle.check_open()
        if not self._attached():
            raise ClosedFileError(f"{self.node.name!r} was deleted from the file; open it again by name")
        return self.handle.session

    def check_for_name(self) -> OpenFile:
        """Return the session, if a name can be looked up in the object.

        Raises
        ------
        ClosedKeyError
            As `check`, and a KeyError, as h5py has it.
        """
        try:
            return self.check()
        except ClosedFileError as closed:
            raise ClosedKeyError(str(closed)) from None

    def check_node(self) -> Any:
        """Return the node, if the object can be used; see `check`."""
        self.check()
        return self.node

    def __bool__(self) -> bool:
        return self.valid

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectID):
            return NotImplemented
        return self.node is other.node

    def __hash__(self) -> int:
        return hash(id(self.node))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node.path!r}>"


class GroupID(ObjectID):
    """Identifies a group."""

    __slots__ = ()

    def check(self) -> OpenFile:
        """Do as `ObjectID.check` does, with fewer calls for the root, where most names are looked up."""
        handle = self.handle
        session = handle.session
        if self.node is session.defs.tree.root and not (handle.released or session.closed or session.forked):
            return session
        return super().check()

    def check_for_name(self) -> OpenFile:
        handle = self.handle
        session = handle.session
        if self.node is session.defs.tree.root and not (handle.released or session.closed or session.forked):
            return session
        return super().check_for_name()

    def get_create_plist(self) -> storage_info.GroupProperties:
        """Return the creation properties of the group."""
        return storage_info.GroupProperties(self.check_node().order is not None)


class FileID(GroupID):
    """Identifies a file, and its root group."""

    __slots__ = ()

    @property
    def name(self) -> bytes:
        """The name that the file was opened by."""
        self.check()
        return os.fsencode(self.handle.filename)

    def set_mpi_atomicity(self, atomicity: bool) -> None:
        """Let writes be carried out at once, or when the file is flushed (collective); see `File.atomic`."""
        session = self.check()
        with session.lock:
            session.check_open()
            # Compared between ranks: one that sets it differently, or flushes instead, is noticed.
            session.flush(what=f"atomic {bool(atomicity)}", carried=True)
            session.posted.write_at_once(bool(atomicity))

    def get_mpi_atomicity(self) -> bool:
        """Return whether writes are carried out at once."""
        return self.check().posted.at_once

    def get_file_image(self) -> bytes:
        """Return the bytes of the whole file, as they are after a flush; `File.in_memory` opens them.

        Raises
        ------
        OSError
            The file cannot be flushed or read.
        """
        session = self.check()
        with session.lock:
            session.check_open()
            session.flush(carried=True)
            memory = np.zeros(session.disk.driver.size(), np.uint8)
            if memory.nbytes:
                session.disk.driver.read_one(memory, 0)
            return memory.tobytes()


class TypeID(ObjectID):
    """Identifies a named type."""

    __slots__ = ()

    @property
    def dtype(self) -> Any:
        """The type."""
        return self.node.dtype

    def __eq__(self, other: object) -> bool:
        # A dataset has a type, and is none.
        if isinstance(other, ObjectID) and not isinstance(other, TypeID):
            return False
        return bool(self.dtype == getattr(other, "dtype", None))

    def __hash__(self) -> int:
        return super().__hash__()


class DatasetID(ObjectID):
    """Identifies a dataset; shows how it is stored."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Elements along each axis; None for an empty dataset."""
        return self.check_node().shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of one element, with h5py's metadata."""
        return self.check_node().element.dtype  # type: ignore[no-any-return]

    def get_type(self) -> storage_info.StoredType:
        """Return the type of the elements."""
        return storage_info.StoredType(self.dtype)

    def get_space(self) -> storage_info.Space:
        """Return the shape."""
        node = self.check_node()
        return storage_info.Space(node.shape, node.shape if node.maxshape is None else node.maxshape)

    def get_create_plist(self) -> storage_info.CreationProperties:
        """Return the creation properties that were given for the dataset."""
        return storage_info.creation_properties(self.check_node())

    def get_access_plist(self) -> storage_info.AccessProperties:
        """Return the access properties that were given for the dataset."""
        node = self.check_node()
        given = {**node.ignored, **(node.prefixes if node.away is not None else {})}
        return storage_info.AccessProperties(given, self.handle.folder)

    def get_storage_size(self) -> int:
        """Return the number of bytes that the elements take in the file."""
        return storage_info.storage_size(self.check_node())

    def get_offset(self) -> int | None:
        """Return bytes from the start of the file to the elements; None if they are not all in one place, or not there
        yet."""
        session, node = self.check(), self.node
        at = session.disk.layout.places.get(node.uid)
        return (
            None if at is None or node.is_record or node.uid not in session.disk.layout.header_uids else int(at.begin)
        )

    def get_num_chunks(self, space: Any = None) -> int:
        """Return 0: there are no chunks in the file."""
        self.check()
        return 0

    def get_chunk_info(self, index: int, space: Any = None) -> Any:
        """Raise: chunks are not supported.

        Raises
        ------
        NotYetError
            Always: there are no chunks in the file.
        """
        raise NotYetError(
            f"{self.node.path!r} has no chunks in the file: a CDF variable is one piece, see get_offset()"
        )

    get_chunk_info_by_coord = get_chunk_info

    def flush(self) -> None:
        """Flush the file; see `File.flush`."""
        self.check().flush()

    def refresh(self) -> None:
        """Read again what another process may have changed; see `Dataset.refresh`."""
        from pnc_vol.file.refreshing import refresh

        session = self.check()
        with session.lock:
            session.check_open()
            refresh(session)
        self.check()

    def check(self) -> OpenFile:
        """Do as `ObjectID.check` does, with a call less: every read and write begins here."""
        handle, node = self.handle, self.node
        session = handle.session
        if handle.released or session.closed or session.forked or _get(node.tree.datasets, node.uid) is not node:
            return super().check()
        return session

    def check_for_name(self) -> OpenFile:
        handle, node = self.handle, self.node
        session = handle.session
        if handle.released or session.closed or session.forked or _get(node.tree.datasets, node.uid) is not node:
            return super().check_for_name()
        return session
