"""References in a copy name copies; ``group.copy(expand_refs=True)`` also copies what they name.

Knows: references, trees, what was copied already. Does not know: how an object is copied.

Rules
-----
1. What was copied anyway is not copied again. Anything else goes beside the copy, under its own name, or that name and
   a number if it is taken: a reference is a path here, so its object must have one.
2. What is copied for a reference may refer to more; each object is copied once.
3. A reference that leads nowhere is null in the copy. In another file so is one to what is not copied: under its path
   there may be something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.api import paths
from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.selection import select
from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.dtypes import Dtype, Reference, RegionReference, metadata_of
from pnc_vol.mapping.tree import DatasetNode, GroupNode

if TYPE_CHECKING:
    from pnc_vol.file.open_file import OpenFile

__all__ = ["BLOCK_BYTES", "Made", "expand_references", "refers"]

BLOCK_BYTES = 16 << 20
"""Bytes of a dataset that are read and posted at a time."""

Object = GroupNode | DatasetNode
Made = dict[int, tuple[Object, Object]]

Follow = Callable[[Reference], Reference]


def expand_references(
    source: OpenFile, target: OpenFile, made: Made, beside: GroupNode, copy: Callable[[Object, paths.Slot], None] | None
) -> None:
    """Make references in what was copied name copies, and copy what they name and was not copied yet.

    Parameters
    ----------
    source, target : sessions, maybe the same one
    made : original and copy of what was copied, by the id of the original; `copy` adds to it
    beside : where more copies go
    copy : copies an object to a free place; None copies no more
    """

    def follow(reference: Reference) -> Reference:
        node = paths.lookup(source.defs.tree.root, reference.path) if reference else None
        if not isinstance(node, GroupNode | DatasetNode):
            return type(reference)()
        if id(node) not in made:
            if copy is None:
                return type(reference)()
            copy(node, paths.slot(beside, _free_name(beside, node.name or "root"), "copy object"))
        found = made[id(node)][1]
        if isinstance(reference, RegionReference):
            return RegionReference(found.path, found, reference.region)
        return Reference(found.path, found)

    done: set[int] = set()
    while left := [pair for key, pair in made.items() if key not in done]:
        for original, copied in left:
            done.add(id(original))
            if original.tree is not source.defs.tree:
                continue
            for name, attribute in list(copied.attrs.items()):
                if attribute.value is not None and refers(attribute.dtype):
                    value = _followed(attribute.value, attribute.dtype, follow)
                    copied.attrs[name] = attribute._replace(value=value)
            if isinstance(original, DatasetNode) and isinstance(copied, DatasetNode):
                _follow_data(source, original, target, copied, follow)


def _follow_data(
    source: OpenFile, original: DatasetNode, target: OpenFile, copied: DatasetNode, follow: Follow
) -> None:
    shape, dtype = original.shape, original.element.dtype
    if shape is None or not refers(dtype):
        return
    for block in blocks(shape, dtype.itemsize, BLOCK_BYTES):
        part = select(shape, block)
        target.write(copied, part, _followed(source.read(original, part), dtype, follow))


def _free_name(group: GroupNode, name: str) -> str:
    """Return the name, or the first of ``name_1``, ``name_2``... that is free."""
    names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
    return next(each for each in names if each not in group.children and each not in group.links)


def refers(dtype: Dtype) -> bool:
    """Return whether there are references in values of a type.

    Examples
    --------
    >>> refers(np.dtype([("a", "i4")]))
    False
    """
    if "ref" in metadata_of(dtype):
        return True
    if dtype.names is not None:
        return any(refers(dtype[name]) for name in dtype.names)
    base = dtype.subdtype[0] if dtype.subdtype is not None else ragged_base(dtype)
    return base is not None and refers(base)


def _followed(values: Any, dtype: Dtype, follow: Follow) -> Any:
    """Return the values with each reference followed."""
    values = np.asarray(values, object if dtype.kind == "O" else None)
    if dtype.names is not None:
        made = values.copy()
        for name in dtype.names:
            if refers(dtype[name]):
                made[name] = _followed(values[name], dtype[name], follow)
        return made
    if dtype.subdtype is not None:
        return _followed(values, dtype.subdtype[0], follow)
    base = ragged_base(dtype)
    made = np.empty(values.shape, dtype)
    for at, item in np.ndenumerate(values):
        if base is not None:
            made[at] = _followed(item, base, follow)
        else:
            made[at] = follow(item) if isinstance(item, Reference) else item
    return made
