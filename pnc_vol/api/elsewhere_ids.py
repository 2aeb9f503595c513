"""A dataset whose data live elsewhere has an `.id` of its own, which leads to its data.

Knows: the two kinds of such datasets. Does not know: how they are read (`virtual_data`, `raw_files`), how they are made
(`virtual`).

Rules
-----
1. The shape of an unlimited virtual dataset is that of its sources whenever the dataset is used; in a file that is open
   for reading, when it is first used, as in HDF5.
2. ``Dataset(other.id)`` goes the same way: it is the id that knows.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.api import raw_files, virtual_data
from pnc_vol.api.ids import DatasetID, Handle
from pnc_vol.api.module import UNLIMITED
from pnc_vol.api.storage_info import ElsewhereProperties, Space
from pnc_vol.extents.model import Selection
from pnc_vol.mapping.elsewhere import Elsewhere, Evenly, Hyperslab

if TYPE_CHECKING:
    from pnc_vol.api.storage_info import CreationProperties
    from pnc_vol.file.open_file import OpenFile

__all__ = ["ElsewhereID", "VDSmap"]

Shape = tuple[int, ...]


class RegionSpace(Space):
    """The elements of a region, as h5py's dataspaces show them.

    region : Hyperslab
    """

    def __init__(self, region: Hyperslab) -> None:
        super().__init__(region.shape, region.shape)
        object.__setattr__(self, "region", region)

    region: Hyperslab

    def get_regular_hyperslab(self) -> tuple[Shape, Shape, Shape, Shape]:
        """Start, stride, count and block of each axis; a count of ``UNLIMITED`` has no limit.

        Raises
        ------
        ValueError
            Lists of indices are no such hyperslab.
        """
        if not self.is_regular_hyperslab():
            raise ValueError("Not a regular hyperslab selection")
        rows = [(a.start, a.stride, UNLIMITED if a.count is None else a.count, a.block) for a in self._evenly()]
        start, stride, count, block = zip(*rows, strict=True) if rows else ((), (), (), ())
        return start, stride, count, block

    def _evenly(self) -> list[Evenly]:
        return [along for along in self.region.axes if isinstance(along, Evenly)]

    def is_regular_hyperslab(self) -> bool:
        """Return whether the elements along each axis are evenly spaced blocks."""
        return len(self._evenly()) == len(self.region.axes)

    def get_select_type(self) -> int:
        """Return ``h5s.SEL_HYPERSLABS``."""
        return 2

    def get_select_npoints(self) -> int:
        """Return how many elements there are; an unlimited selection has those of one block."""
        return prod(self.region.counts())

    def get_select_bounds(self) -> tuple[Shape, Shape]:
        """Return the first and the last element along each axis."""
        ends = self.region.ends()
        first = [along.start if isinstance(along, Evenly) else along[0] for along in self.region.axes]
        return tuple(first), tuple(max(end - 1, low) for end, low in zip(ends, first, strict=True))


class VDSmap(NamedTuple):
    """A part of a virtual dataset and what it shows.

    vspace, src_space : RegionSpace, the elements of the virtual dataset, and those of the source.
    file_name, dset_name : str, the source.
    """

    vspace: RegionSpace
    file_name: str
    dset_name: str
    src_space: RegionSpace


def maps_of(away: Elsewhere) -> list[VDSmap]:
    """Return what ``ds.virtual_sources()`` gives."""
    return [VDSmap(RegionSpace(to), file, name, RegionSpace(of)) for to, file, name, of in away.sources or ()]


class ElsewhereID(DatasetID):
    """Identifies a dataset whose data live elsewhere."""

    __slots__ = ("known",)

    def __init__(self, handle: Handle, node: Any) -> None:
        super().__init__(handle, node)
        self.known = False

    def check(self) -> OpenFile:
        """Do as `DatasetID.check` does; the shape follows the sources."""
        session = super().check()
        if self.node.away.sources and not (self.known and not self.handle.writable):
            # First, because a source may be this very dataset.
            self.known = True
            self.node.shape = virtual_data.current_shape(self)
        return session

    def read(self, selection: Selection) -> npt.NDArray[Any]:
        """Return the elements of a selection."""
        if self.node.away.segments is None:
            return virtual_data.read(self, selection)
        return raw_files.read(self, selection)

    def write(self, selection: Selection, values: Any, fields: tuple[str, ...]) -> None:
        """Write the elements of a selection, at once."""
        if self.node.away.segments is None:
            virtual_data.write(self, selection, values, fields)
        else:
            raw_files.write(self, selection, values, fields)

    def external(self) -> list[tuple[str, int, int]] | None:
        """Return what ``ds.external`` gives."""
        segments = self.node.away.segments
        return None if segments is None else raw_files.shown(segments)

    def sources(self) -> list[VDSmap]:
        """Return what ``ds.virtual_sources()`` gives."""
        return maps_of(self.node.away)

    def get_create_plist(self) -> CreationProperties:
        """Return the creation properties of the dataset."""
        away = self.check_node().away
        plain = super().get_create_plist()
        has_fill = away.fill is not None
        return ElsewhereProperties(None, {}, plain.fillvalue, has_fill, "ifset", self.external(), self.sources())

    def get_storage_size(self) -> int:
        """Return the number of bytes that the elements take in raw files; 0 of a virtual dataset."""
        node = self.check_node()
        return 0 if node.away.segments is None else int(np.prod(node.shape, dtype=object)) * node.element.dtype.itemsize

    def get_offset(self) -> int | None:
        """Return None: no element is in this file."""
        self.check()
        return None
