"""HDF5 keeps these attributes for dimension scales: `CLASS`, `NAME`, `REFERENCE_LIST` and `DIMENSION_LIST`.

Knows: scales and axes of the tree, h5py's form of these attributes. Does not know: `AttributeManager`, files.

Rules
-----
1. They are derived from the tree when they are asked for, never stored: `mapping` says in NetCDF's way what they say.
   Stored ones would be out of date when another program changes a dimension. An attribute of such a name that is stored
   nevertheless counts instead: `CLASS` and `NAME` are common names, which HDF5's images have, too.
2. Assigning or deleting one does to the scales what it does in HDF5, since programs copy attributes one by one; what
   cannot mean that is stored as it is.
3. An object without scales costs two looks at its node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pnc_vol.api import paths
from pnc_vol.errors import OperationError
from pnc_vol.mapping.attribute_encoding import Attribute
from pnc_vol.mapping.dtypes import Reference, ref_dtype, vlen_dtype
from pnc_vol.mapping.tree import DatasetNode, Tree

__all__ = ["assign", "derived", "present", "remove"]

SCALE = b"DIMENSION_SCALE"

_USE = np.dtype({"names": ["dataset", "dimension"], "formats": [ref_dtype, "<u4"], "offsets": [0, 8], "itemsize": 16})

Uses = dict[int, list[tuple[DatasetNode, int]]]
_uses: WeakKeyDictionary[Tree, tuple[int, Uses]] = WeakKeyDictionary()
"""By tree: its version, and the axes that each scale is attached to."""


def present(node: Any) -> tuple[str, ...]:
    """Return the names of the attributes that are derived for an object, sorted.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     f["x"] = [1.0, 2.0]
    ...     f["x"].make_scale("place")
    ...     list(f["x"].attrs), f["x"].attrs["NAME"]
    (['CLASS', 'NAME'], np.bytes_(b'place'))
    """
    if type(node) is not DatasetNode or (node.scale is None and node.made_axes is None):
        return ()
    if node.scale is None:
        names = ["DIMENSION_LIST"] if any(axis.scales for axis in node.axes) else []
    else:
        names = ["CLASS", *([] if node.scale is True else ["NAME"]), *(["REFERENCE_LIST"] if _uses_of(node) else [])]
    return tuple(name for name in names if name not in node.attrs)


def derived(node: Any, name: str) -> Attribute | None:
    """Return a derived attribute, in the form in which h5py shows it; None if the object has none of that name."""
    if name not in present(node):
        return None
    if name in ("CLASS", "NAME"):
        text = SCALE if name == "CLASS" else node.scale_name.encode("utf-8", "surrogateescape")
        value = np.array(text, f"S{len(text) + 1}")
        return Attribute(value.dtype, (), value)
    if name == "REFERENCE_LIST":
        uses = _uses_of(node)
        value = np.empty(len(uses), _USE)
        value["dataset"] = [_reference(used) for used, _ in uses]
        value["dimension"] = [axis for _, axis in uses]
        return Attribute(_USE, value.shape, value)
    value = np.empty(len(node.axes), object)
    for i, axis in enumerate(node.axes):
        value[i] = np.array([_reference(scale) for scale in axis.scales], ref_dtype)
    return Attribute(vlen_dtype(ref_dtype), value.shape, value)


def assign(node: Any, name: str, value: Any) -> bool:
    """Do to the scales what assigning one of these attributes does; False if it is to be stored like any other.

    Parameters
    ----------
    node : Node, its file open for writing
    name : str, of `attrs.SCALE_NAMES`
    value : what the user gave

    Raises
    ------
    RuntimeError
        A dataset that has scales cannot be one.
    """
    if type(node) is not DatasetNode:
        return False
    if name == "CLASS":
        if _text(value) == SCALE.decode():
            _make(node)
            return True
        remove(node, name)
        return False
    if name == "NAME":
        text = _text(value)
        if node.scale is None or text is None:
            return False
        node.scale = text
    elif name == "REFERENCE_LIST":
        # said by the datasets that the scale is attached to
        return node.scale is not None and getattr(value, "dtype", np.dtype(int)).names == _USE.names
    else:
        scales = _scales(node, value)
        if scales is None:
            return False
        for axis, found in zip(node.axes, scales, strict=True):
            axis.scales = found
        for scale in (scale for found in scales for scale in found):
            scale.scale = True if scale.scale is None else scale.scale
    node.tree.touch()
    return True


def remove(node: Any, name: str) -> bool:
    """Do to the scales what deleting one of these attributes does; False if the object has none of that name.

    Without `CLASS` a dataset is no scale any more, and attached to nothing; without `REFERENCE_LIST` it is attached to
    nothing; without `DIMENSION_LIST` nothing is attached to it.
    """
    if name not in present(node):
        return False
    if name == "NAME":
        node.scale = True
    elif name == "DIMENSION_LIST":
        for axis in node.axes:
            axis.scales = []
    else:
        for used, i in _uses_of(node):
            used.axes[i].scales = [scale for scale in used.axes[i].scales if scale is not node]
        if name == "CLASS":
            node.scale = None
    node.tree.touch()
    return True


def _make(node: DatasetNode) -> None:
    if node.scale is not None:
        return
    if any(axis.scales for axis in node.axes):
        raise OperationError(f"{node.path!r} cannot be a scale: scales are attached to it; detach them first")
    stored = node.attrs.get("NAME")
    name = None if stored is None else _text(stored.value)
    if name is not None:
        del node.attrs["NAME"]
    node.scale = True if name is None else name
    node.tree.touch()


def _text(value: Any) -> str | None:
    """Return a text given as `str`, bytes, or a scalar of these; None for all else."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if isinstance(value, bytes):
        return value.rstrip(b"\0").decode("utf-8", "surrogateescape")
    return str(value) if isinstance(value, str) else None


def _reference(node: DatasetNode) -> Reference:
    return Reference(node.path, node)


def _uses_of(scale: DatasetNode) -> list[tuple[DatasetNode, int]]:
    """Return the datasets, with the number of the axis, that a scale is attached to."""
    tree = scale.tree
    known = _uses.get(tree)
    if known is None or known[0] != tree.version:
        found: Uses = {}
        for node, i, attached in _attachments(tree):
            found.setdefault(attached.uid, []).append((node, i))
        known = _uses[tree] = tree.version, found
    return known[1].get(scale.uid, [])


def _attachments(tree: Tree) -> Iterator[tuple[DatasetNode, int, DatasetNode]]:
    for node in tree.datasets.values():
        # parts have the axes of their dataset; what has no name has no path to refer to
        if node.made_axes is None or node.owner is not None or node.parent is None:
            continue
        for i, axis in enumerate(node.made_axes):
            for scale in axis.scales:
                yield node, i, scale


def _scales(node: DatasetNode, value: Any) -> list[list[DatasetNode]] | None:
    """Return the scales of each axis that a `DIMENSION_LIST` names; None if it does not name scales of this dataset."""
    try:
        rows = [list(row) for row in value]
    except TypeError:
        return None
    if node.scale is not None or len(rows) != len(node.axes):
        return None
    made: list[list[DatasetNode]] = []
    for row in rows:
        found = [paths.lookup(node.tree.root, ref.path) if isinstance(ref, Reference) and ref else None for ref in row]
        scales = [each for each in found if isinstance(each, DatasetNode) and each is not node]
        if len(scales) < len(row) or any(axis.scales for scale in scales for axis in scale.axes):
            return None
        made.append(scales)
    return made
