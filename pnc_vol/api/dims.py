"""``ds.dims`` gives the axes of a dataset: their labels, and the scales attached to them.

Knows: `Axis` of the tree. Does not know: NetCDF dimensions; `mapping.flatten` makes them out of scales and labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pnc_vol.api.ids import DatasetID, ObjectID
from pnc_vol.api.objects import wrap
from pnc_vol.api.paths import text_of
from pnc_vol.errors import NotFoundError, OperationError, SelectionIndexError, printable
from pnc_vol.file.open_file import OpenFile
from pnc_vol.mapping.tree import Axis, DatasetNode

if TYPE_CHECKING:
    from pnc_vol.api.dataset import Dataset

__all__ = ["DimensionManager", "DimensionProxy"]


class DimensionProxy:
    """One axis: ``ds.dims[i]``.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     f["x"], f["t"] = [10.0, 20.0], [1.0, 2.0]
    ...     f["x"].make_scale("place")
    ...     f["t"].dims[0].attach_scale(f["x"])
    ...     f["t"].dims[0].label = "x"
    ...     f["t"].dims[0].keys(), f["t"].dims[0].label
    (['place'], 'x')
    """

    def __init__(self, id_: ObjectID, dimension: int) -> None:
        self._id = id_
        self._dimension = dimension

    def _open(self) -> tuple[OpenFile, Axis]:
        session = self._id.check()
        return session, self._id.node.axes[self._dimension]

    def _wrap(self, node: DatasetNode) -> Dataset:
        return wrap(self._id.handle, node)  # type: ignore[no-any-return]

    @property
    def label(self) -> str:
        """The axis' label; "" if it has none."""
        return self._open()[1].label

    @label.setter
    def label(self, text: str | bytes) -> None:
        label = text_of(text)
        session, axis = self._open()
        with session.lock:
            session.check_open()
            self._id.handle.check_writable("label an axis")
            axis.label = label
            self._id.node.tree.touch()

    def __len__(self) -> int:
        return len(self._open()[1].scales)

    def __iter__(self) -> Iterator[str]:
        yield from self.keys()

    def __getitem__(self, item: int | str | bytes) -> Dataset:
        """Return a scale, by its index or by its name.

        Raises
        ------
        RuntimeError
            No scale is attached.
        IndexError, KeyError
            No scale at that place, or of that name.
        """
        scales = self._open()[1].scales
        if not scales:
            raise OperationError(f"no scale is attached to axis {self._dimension} of {self._id.node.path!r}")
        if isinstance(item, int):
            try:
                return self._wrap(scales[item])
            except IndexError:
                raise SelectionIndexError(f"scale {item} of {len(scales)} does not exist") from None
        name = text_of(item)
        for scale in scales:
            if scale.scale_name == name:
                return self._wrap(scale)
        raise NotFoundError(f"no scale of the name {name!r} is attached to axis {self._dimension}")

    def attach_scale(self, dset: Dataset) -> None:
        """Attach a scale; a dataset that is no dimension scale yet becomes one.

        Raises
        ------
        TypeError
            Not a dataset.
        RuntimeError
            The dataset itself, a dataset of another file, one that has scales, or this dataset is a scale.
        """
        session, axis = self._open()
        with session.lock:
            session.check_open()
            node = self._scale_node(dset)
            self._id.handle.check_writable("attach a scale")
            dataset: DatasetNode = self._id.node
            if node is dataset:
                raise OperationError(f"{dataset.path!r} cannot be a scale of itself")
            if node.tree is not dataset.tree:
                raise OperationError(f"{node.path!r} is in another file; copy it into this one first")
            if dataset.scale is not None:
                raise OperationError(f"{dataset.path!r} is a scale and cannot have scales")
            if any(other.scales for other in node.axes):
                raise OperationError(f"{node.path!r} has scales and cannot be one")
            if not any(scale is node for scale in axis.scales):
                axis.scales.append(node)
            if node.scale is None:
                node.scale = True
            dataset.tree.touch()

    def detach_scale(self, dset: Dataset) -> None:
        """Detach a scale from this axis; it remains a dimension scale.

        Raises
        ------
        RuntimeError
            It is not attached.
        """
        session, axis = self._open()
        with session.lock:
            session.check_open()
            node = self._scale_node(dset)
            self._id.handle.check_writable("detach a scale")
            if not any(scale is node for scale in axis.scales):
                raise OperationError(f"{node.path!r} is not attached to axis {self._dimension}")
            axis.scales = [scale for scale in axis.scales if scale is not node]
            self._id.node.tree.touch()

    def _scale_node(self, dset: Dataset) -> DatasetNode:
        oid = dset.id
        if not isinstance(oid, DatasetID):
            raise TypeError(f"a scale must be a dataset of this file, not {dset!r}")
        oid.check()
        return oid.node  # type: ignore[no-any-return]

    def items(self) -> list[tuple[str, Dataset]]:
        """Return the names and datasets of the scales."""
        return [(scale.scale_name, self._wrap(scale)) for scale in self._open()[1].scales]

    def keys(self) -> list[str]:
        """Return the names of the scales."""
        return [name for name, _ in self.items()]

    def values(self) -> list[Dataset]:
        """Return the scales."""
        return [scale for _, scale in self.items()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DimensionProxy):
            return NotImplemented
        return self._id == other._id and self._dimension == other._dimension

    def __hash__(self) -> int:
        return hash((type(self), self._id, self._dimension))

    def __repr__(self) -> str:
        if not self._id:
            return "<Dimension of closed dataset>"
        return printable(f'<"{self.label}" dimension {self._dimension} of "{self._id.node.path}">')


class DimensionManager:
    """All axes of a dataset: ``ds.dims``."""

    def __init__(self, parent: Dataset) -> None:
        self._id = parent.id

    def __getitem__(self, index: int) -> DimensionProxy:
        if not 0 <= index < len(self):
            raise SelectionIndexError(f"Index out of range: axis {index} of {len(self)}")
        return DimensionProxy(self._id, index)

    def __len__(self) -> int:
        self._id.check()
        return self._id.rank

    def __iter__(self) -> Iterator[DimensionProxy]:
        for axis in range(len(self)):
            yield self[axis]

    def create_scale(self, dset: Any, name: str = "") -> None:
        """Make a dataset a scale; deprecated in h5py: use ``dset.make_scale(name)``."""
        warnings.warn(
            "dims.create_scale(ds, name) is deprecated; use ds.make_scale(name)", DeprecationWarning, stacklevel=2
        )
        dset.make_scale(name)

    def __repr__(self) -> str:
        if not self._id:
            return "<Dimensions of closed dataset>"
        return printable(f'<Dimensions of "{self._id.node.path}">')
