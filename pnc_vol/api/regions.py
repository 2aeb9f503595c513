"""``obj.ref`` and ``ds.regionref`` make references to objects, and to elements of a dataset.

Knows: selections, the JSON of a region. Does not know: how references are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnc_vol.api.blocks import region_selection
from pnc_vol.api.ids import DatasetID
from pnc_vol.api.paths import find
from pnc_vol.errors import ConversionError
from pnc_vol.extents.selection import select
from pnc_vol.file.reads.composite_values import region_of
from pnc_vol.mapping.dtypes import Reference, RegionReference

if TYPE_CHECKING:
    from pnc_vol.api.objects import HLObject

__all__ = ["RegionProxy", "reference"]


def reference(node: Any) -> Reference:
    """Return a reference to the object of a node."""
    return Reference(node.path, node)


class RegionProxy:
    """Makes region references, and shows what they select.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     ds = f.create_dataset("x", data=[[1, 2, 3], [4, 5, 6]])
    ...     ref = ds.regionref[1, ::2]
    ...     ds[ref].tolist(), ds.regionref.selection(ref)
    ([[4, 6]], (1, 2))
    """

    def __init__(self, obj: HLObject) -> None:
        self._id = obj.id

    def __getitem__(self, args: Any) -> RegionReference:
        self._id.check()
        if not isinstance(self._id, DatasetID):
            raise TypeError("Region references can only be made to datasets")
        node = self._id.node
        if node.shape is None:
            raise ConversionError(f"{node.path!r} is empty: it has no elements to refer to")
        return RegionReference(node.path, node, region_of(select(node.shape, args)))

    def shape(self, ref: RegionReference) -> tuple[int, ...] | None:
        """Return the shape of the dataset that a reference points into."""
        session = self._id.check()
        found: Any = find(session.defs.tree.root, ref.path)
        shape: tuple[int, ...] | None = found.shape
        return shape

    def selection(self, ref: RegionReference) -> tuple[int, ...]:
        """Return the shape of what a reference selects."""
        return region_selection(self.shape(ref) or (), ref).result_shape
