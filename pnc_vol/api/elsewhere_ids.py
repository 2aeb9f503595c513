"""What `.id` is of a dataset whose data live elsewhere, and what goes from there to its data.

Knows: the two kinds of such datasets. Does not know: how they are read (`virtual_data`, `raw_files`).

Rules
-----
1. The shape of an unlimited virtual dataset is that of its sources whenever the dataset is used; in a file that is open
   for reading, when it is first used, as in HDF5.
2. ``Dataset(other.id)`` goes the same way: it is the id that knows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api import raw_files, virtual, virtual_data
from pnc_vol.api.ids import DatasetID, Handle
from pnc_vol.errors import ConversionError, DefinitionError, NotYetError
from pnc_vol.extents.model import Selection
from pnc_vol.mapping.elsewhere import Elsewhere, element_of

if TYPE_CHECKING:
    from pnc_vol.api import create
    from pnc_vol.api.dataset import Dataset
    from pnc_vol.api.group import Group
    from pnc_vol.api.storage_info import CreationProperties
    from pnc_vol.file.open_file import OpenFile

__all__ = ["ElsewhereID", "look_first_in", "make_external"]


class ElsewhereID(DatasetID):
    """Identifies a dataset whose data live elsewhere."""

    __slots__ = ("known",)

    def __init__(self, handle: Handle, node: Any) -> None:
        super().__init__(handle, node)
        self.known = False

    def check(self) -> OpenFile:
        """As `DatasetID.check`; the shape follows the sources."""
        session = super().check()
        if self.node.away.sources and not (self.known and not self.handle.writable):
            # First, because a source may be this very dataset.
            self.known = True
            self.node.shape = virtual_data.current_shape(self)
        return session

    def read(self, selection: Selection) -> npt.NDArray[Any]:
        """The elements of a selection."""
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
        """What ``ds.external`` gives."""
        segments = self.node.away.segments
        return None if segments is None else raw_files.shown(segments)

    def sources(self) -> list[virtual.VDSmap]:
        """What ``ds.virtual_sources()`` gives."""
        return virtual.maps_of(self.node.away)

    def get_create_plist(self) -> CreationProperties:
        """The creation properties of the dataset."""
        from pnc_vol.api.storage_info import ElsewhereProperties

        away = self.check_node().away
        plain = super().get_create_plist()
        has_fill = away.fill is not None
        return ElsewhereProperties(None, {}, plain.fillvalue, has_fill, "ifset", self.external(), self.sources())

    def get_storage_size(self) -> int:
        """Bytes that the elements take in raw files; 0 of a virtual dataset."""
        node = self.check_node()
        return 0 if node.away.segments is None else int(np.prod(node.shape, dtype=object)) * node.element.dtype.itemsize

    def get_offset(self) -> int | None:
        """None: no element is in this file."""
        self.check()
        return None


def make_external(group: Group, name: Any, plan: create.Plan, external: Any, options: dict[str, Any]) -> Dataset:
    """Make a dataset whose data lie in raw files; see ``create_dataset(external=...)``."""
    dtype, shape = plan.element.dtype, plan.shape
    filters = ("compression", "shuffle", "fletcher32", "scaleoffset")
    if options.get("chunks") or any(key in plan.ignored for key in filters):
        raise DefinitionError("external storage not supported with chunked layout; leave chunks and filters out")
    if shape is None:
        raise NotYetError("an Empty dataset has no elements that could be in raw files; leave external= out")
    if dtype.hasobject:
        raise ConversionError(f"{dtype!r}: raw files hold numbers, strings of fixed length, and compounds of these")
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    away = Elsewhere(shape, virtual.fill_bytes(options.get("fillvalue"), dtype), None, ())
    away = away._replace(segments=raw_files.segments_of(external, nbytes))
    made = virtual.make(group, name, element_of(dtype), plan.maxshape, away, _prefixes(options))
    if "track_order" in plan.ignored:
        made.id.node.ignored = {"track_order": True}
    if plan.data is not None and plan.data.size:
        made[...] = plan.data
    return made


def look_first_in(dataset: Any, options: Mapping[str, Any]) -> None:
    """Look for the files of a dataset in the folders of these options first, in this process."""
    dataset.id.node.prefixes = _prefixes(options)


def _prefixes(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: os.fsdecode(options[key]) for key in ("efile_prefix", "virtual_prefix") if options.get(key)}
