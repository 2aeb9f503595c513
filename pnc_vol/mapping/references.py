"""A reference is a value that names an object of the same file, or elements of one.

Knows: paths, selections as JSON. Does not know: files; `api` turns a reference into the object.

Rules
-----
1. A reference is the path of its object: its own, where HDF5 gives any of its names. While the file is open
   it also keeps the node, so that a reference made before a move is stored with the new path.
2. A null reference is false, and stored as an empty path.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

import numpy as np

__all__ = ["Reference", "RegionReference", "ref_dtype", "regionref_dtype"]


class Reference(metaclass=ABCMeta):  # noqa: B024 (h5py's own class is registered)
    """Names an object of a file: ``f[ref]`` opens it. Without an argument it is null, and false.

    Parameters
    ----------
    path : str
        Absolute path of the object; empty for the null reference.
    node : Node, optional
        The object, while its file is open.

    Examples
    --------
    >>> bool(Reference()), Reference("/a") == Reference("/a")
    (False, True)
    """

    __slots__ = ("_node", "_path")

    def __init__(self, path: str = "", node: Any = None) -> None:
        self._path = path
        self._node = node

    @property
    def path(self) -> str:
        """Where the object is now, or where it was when the reference was stored."""
        return self._path if self._node is None or not self._path else str(self._node.path)

    @property
    def region(self) -> str:
        """The elements, as JSON; empty for a reference to a whole object."""
        return ""

    def __bool__(self) -> bool:
        return bool(self._path)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reference):
            return NotImplemented
        return type(self) is type(other) and self.path == other.path and self.region == other.region

    def __hash__(self) -> int:
        return hash((type(self), self.path, self.region))

    def __repr__(self) -> str:
        return f"<HDF5 object reference{'' if self else ' (null)'}>"


class RegionReference(Reference):
    """Names elements of a dataset: ``ds[ref]`` reads them.

    Parameters
    ----------
    path, node
        As of `Reference`.
    region : str
        The selection as JSON: ``{"select": [[first, count, step] or {"list": [indices]}, ...]}``, one entry for each
        axis, or ``{"points": [...]}`` with numbers of elements in C order.
    """

    __slots__ = ("_region",)

    def __init__(self, path: str = "", node: Any = None, region: str = "") -> None:
        super().__init__(path, node)
        self._region = region

    @property
    def region(self) -> str:
        return self._region

    def __repr__(self) -> str:
        return f"<HDF5 region reference{'' if self else ' (null)'}>"


ref_dtype = np.dtype("O", metadata={"ref": Reference})
regionref_dtype = np.dtype("O", metadata={"ref": RegionReference})
