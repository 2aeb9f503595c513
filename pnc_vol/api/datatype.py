"""Named types: h5py's `Datatype`.

Knows: ids. Does not know: how a type is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.api.ids import ObjectID, TypeID
from pnc_vol.api.objects import HLObject
from pnc_vol.errors import printable

__all__ = ["Datatype"]


class Datatype(HLObject):
    """A type that has a name in a file, and attributes; made by ``f[name] = dtype``.

    Parameters
    ----------
    bind : TypeID
        The `id` of another `Datatype`.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     f["point"] = np.dtype([("x", "f4"), ("y", "f4")])
    ...     f.create_dataset("track", (3,), dtype=f["point"]).dtype.names
    ('x', 'y')
    """

    def __init__(self, bind: ObjectID) -> None:
        if not isinstance(bind, TypeID):
            raise ValueError(f"{bind} is not a TypeID")
        super().__init__(bind)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type."""
        found: np.dtype[Any] = self._id.check_node().dtype
        return found

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 named type>"
        return printable(f'<HDF5 named type "{self._id.node.name}" (dtype {self.dtype.str})>')
