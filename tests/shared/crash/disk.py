"""A tree of files in memory, the changes that calls make to it, and the tree written to a real folder.

Knows: inodes, names, bytes. Does not know: who made the changes (`recording`), what a crash leaves of them (`states`).

Rules
-----
1. Names belong to folders, bytes belong to inodes, as on a file system: a change names the inode.
2. Numbers of inodes are given in the order in which they are met, so that they are the same in every run.
"""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = [
    "Change", "Cut", "Disk", "FolderSynced", "Labelled", "Made", "Mode", "Named", "Renamed", "Stored", "Synced",
    "Unnamed", "Written", "clear",
]  # fmt: skip


class Made(NamedTuple):
    """A new file or folder and its name: `open` with ``O_CREAT``, `mkdir`."""

    path: str
    inode: int
    mode: int
    folder: bool = False


class Named(NamedTuple):
    """One more name of a file: `link`."""

    path: str
    inode: int


class Renamed(NamedTuple):
    """`rename`."""

    source: str
    path: str
    inode: int


class Unnamed(NamedTuple):
    """A name that went: `unlink`, `rmdir`."""

    path: str
    inode: int


class Written(NamedTuple):
    """Bytes of a file: `pwrite`, `pwritev`, `copy_range`."""

    inode: int
    offset: int
    data: bytes


class Stored(NamedTuple):
    """Bytes that were stored through windows since the call before, of one file or several."""

    pieces: tuple[Written, ...]


class Cut(NamedTuple):
    """A file's length: `ftruncate`, `fallocate`, ``O_TRUNC``."""

    inode: int
    nbytes: int


class Mode(NamedTuple):
    """A file's permissions: `fchmod`."""

    inode: int
    mode: int


class Labelled(NamedTuple):
    """An extended attribute: `setxattr`."""

    inode: int
    name: str
    value: bytes


class Synced(NamedTuple):
    """`fsync` of a file that returned, or `fdatasync`, after which extended attributes are not safe."""

    inode: int
    whole: bool = True


class FolderSynced(NamedTuple):
    """`fsync_dir` that returned."""

    path: str


Change = Made | Named | Renamed | Unnamed | Written | Stored | Cut | Mode | Labelled | Synced | FolderSynced


class Disk:
    """Files and folders below one folder, whose own path is "".

    Attributes
    ----------
    names : dict of str to int
        Inodes by path, relative to the folder, parts joined by "/".
    files : dict of int to bytearray
        Contents by inode, also of files that have lost their names.
    folders : set of int
    modes : dict of int to int
    labels : dict of int to dict
        Extended attributes.

    Examples
    --------
    >>> disk = Disk()
    >>> for change in (Made("a", 1, 0o600), Written(1, 2, b"xy"), Renamed("a", "b", 1)):
    ...     disk.apply(change)
    >>> disk.names, bytes(disk.files[1])
    ({'b': 1}, b'\\x00\\x00xy')
    """

    __slots__ = ("files", "folders", "labels", "modes", "names")

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.files: dict[int, bytearray] = {}
        self.folders: set[int] = set()
        self.modes: dict[int, int] = {}
        self.labels: dict[int, dict[str, bytes]] = {}

    def copy(self) -> Disk:
        """A tree that changes by itself."""
        made = Disk()
        made.names = dict(self.names)
        made.files = {inode: bytearray(content) for inode, content in self.files.items()}
        made.folders = set(self.folders)
        made.modes = dict(self.modes)
        made.labels = {inode: dict(labels) for inode, labels in self.labels.items()}
        return made

    def apply(self, change: Change) -> None:
        """Let a change happen. The names of changes that never happened are no condition for later ones."""
        match change:
            case Made(path, inode, mode, folder):
                self.add(inode, mode, folder=folder)
                self.names[path] = inode
            case Named(path, inode):
                self.names[path] = inode
            case Renamed(source, path, inode):
                if self.names.get(source) == inode:
                    del self.names[source]
                self.names[path] = inode
                if inode in self.folders:
                    for name in [name for name in self.names if name.startswith(source + "/")]:
                        self.names[path + name[len(source) :]] = self.names.pop(name)
            case Unnamed(path, inode):
                if self.names.get(path) == inode:
                    del self.names[path]
            case Written(inode, offset, data):
                content = self.files[inode]
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                content[offset : offset + len(data)] = data
            case Stored(pieces):
                for piece in pieces:
                    self.apply(piece)
            case Cut(inode, nbytes):
                content = self.files[inode]
                del content[nbytes:]
                content.extend(bytes(nbytes - len(content)))
            case Mode(inode, mode):
                self.modes[inode] = mode
            case Labelled(inode, name, value):
                self.labels.setdefault(inode, {})[name] = value

    def add(self, inode: int, mode: int, *, folder: bool = False) -> None:
        """A file or folder that has no name yet."""
        self.modes[inode] = mode
        if folder:
            self.folders.add(inode)
        else:
            self.files[inode] = bytearray()

    def image(self) -> tuple[tuple[str, int, bytes], ...]:
        """All that a program can see of the tree."""
        return tuple((path, inode, bytes(self.files.get(inode, b""))) for path, inode in sorted(self.names.items()))

    def write(self, root: str) -> dict[int, int]:
        """Make the tree in a folder, which is emptied first.

        Returns
        -------
        dict of int to int
            The inode here of each real inode number.
        """
        clear(root)
        real: dict[int, int] = {}
        made: dict[int, str] = {}
        for path in sorted(self.names):
            inode, target = self.names[path], os.path.join(root, path)
            if os.path.dirname(path) and self.names.get(os.path.dirname(path)) not in self.folders:
                continue  # its folder's own name was lost
            if inode in self.folders:
                os.mkdir(target, self.modes[inode])
            elif inode in made:
                os.link(made[inode], target)
            else:
                with open(target, "xb") as file:
                    file.write(self.files[inode])
                os.chmod(target, self.modes[inode])
                real[os.stat(target).st_ino] = inode
                for name, value in self.labels.get(inode, {}).items():
                    os.setxattr(target, name, value)
                made[inode] = target
        return real


def clear(root: str) -> None:
    """Remove all that is in a folder."""
    for name in os.listdir(root):
        path = os.path.join(root, name)
        try:
            os.unlink(path)
        except (IsADirectoryError, PermissionError):
            clear(path)
            os.rmdir(path)
