"""h5py's link classes.

Knows: their constructors and reprs. Does not know: files. Every member of a group of ours is a hard link;
assigning a soft or an external link to a group is refused (`NotYetError`) by `Group.__setitem__`.
"""

from __future__ import annotations

import os

from pnc_vol.errors import printable

__all__ = ["ExternalLink", "HardLink", "SoftLink"]


class HardLink:
    """What ``group.get(name, getlink=True)`` gives: the object is in this file."""


class SoftLink:
    """A path that stands for another object of the same file.

    Parameters
    ----------
    path : str

    Examples
    --------
    >>> SoftLink("/a/b")
    <SoftLink to "/a/b">
    """

    def __init__(self, path: object) -> None:
        self._path = str(path)

    @property
    def path(self) -> str:
        """Where the link points to."""
        return self._path

    def __repr__(self) -> str:
        return printable(f'<SoftLink to "{self.path}">')


class ExternalLink:
    """A path in another file.

    Parameters
    ----------
    filename : str, bytes or path-like
    path : str
    """

    def __init__(self, filename: str | bytes | os.PathLike[str], path: str) -> None:
        self._filename = os.fsdecode(filename)
        self._path = path

    @property
    def path(self) -> str:
        """The object's path in that file."""
        return self._path

    @property
    def filename(self) -> str:
        """The other file."""
        return self._filename

    def __repr__(self) -> str:
        return printable(f'<ExternalLink to "{self.path}" in file "{self.filename}"')
