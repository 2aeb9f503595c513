"""``group.copy``: objects copied within a file or between files.

Knows: trees, sessions, reading and posting whole datasets. Does not know: paths; `group.py` resolves them.

Rules
-----
1. What will be copied is listed before the first object is made, the groups on the way included, so that a group can be
   copied into itself.
2. Data go through in blocks of rows, so that a copy needs little memory whatever the dataset's size.
3. Labels go along with a dataset; scales attached to it do not, as in HDF5, where they would be null references.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from pnc_vol.api.create import check_version
from pnc_vol.extents.selection import select
from pnc_vol.format.limits import check_type
from pnc_vol.mapping.attributes import encode_attribute
from pnc_vol.mapping.tree import Axis, DatasetNode, GroupNode

if TYPE_CHECKING:
    from pnc_vol.api.paths import Slot
    from pnc_vol.pending.session import Session

__all__ = ["copy_object"]

BLOCK_BYTES = 16 << 20
"""Bytes of a dataset that are read and posted at a time."""


def copy_object(
    source: Session,
    node: GroupNode | DatasetNode,
    target: Session,
    slot: Slot,
    *,
    shallow: bool,
    with_attrs: bool,
) -> None:
    """Copy an object, and all below it, to a free place.

    Parameters
    ----------
    source, target : sessions that `node` and `slot` belong to, maybe the same one
    slot : where the copy goes; free
    shallow : copy only the immediate members of a group
    with_attrs : copy attributes

    Raises
    ------
    ValueError
        The target's format cannot hold a type or a shape; nothing was made then.
    """
    listed = _listed(node, None if not shallow else 1)
    if target.version != 5:
        for found in listed:
            _check_version(found, target.version, with_attrs=with_attrs)
    parent = slot.open()
    made: dict[int, GroupNode] = {}
    for found in listed:
        above = parent if found is node else made[id(found.parent)]
        called = slot.leaf if found is node else found.name
        if isinstance(found, DatasetNode):
            _copy_dataset(source, found, target, above, called, with_attrs=with_attrs)
        else:
            made[id(found)] = target.tree.add_group(above, called)
            if with_attrs:
                _copy_attrs(found, made[id(found)])
    target.tree.touch()


def _check_version(node: GroupNode | DatasetNode, version: int, *, with_attrs: bool) -> None:
    if isinstance(node, DatasetNode):
        check_version(node.path, node.element, node.shape, version)
    for name, attribute in node.attrs.items() if with_attrs else ():
        check_type(f"attribute {name!r} of {node.path!r}", encode_attribute(name, attribute)[0].type, version)


def _listed(node: GroupNode | DatasetNode, depth: int | None) -> list[GroupNode | DatasetNode]:
    found = [node]
    if isinstance(node, GroupNode) and depth != 0:
        for child in node.children.values():
            found += _listed(child, None if depth is None else depth - 1)
    return found


def _copy_attrs(source: GroupNode | DatasetNode, target: GroupNode | DatasetNode) -> None:
    for name, attribute in source.attrs.items():
        target.attrs[name] = attribute


def _copy_dataset(
    source: Session, node: DatasetNode, target: Session, parent: GroupNode, name: str, *, with_attrs: bool
) -> None:
    made = target.tree.add_dataset(
        parent, name, element=node.element, shape=node.shape, maxshape=node.maxshape, fillvalue=node.fillvalue
    )
    made.axes = [Axis(label=axis.label) for axis in node.axes]
    made.echo = dict(node.echo)
    if with_attrs:
        made.scale = node.scale
        _copy_attrs(node, made)
    shape = node.shape
    if shape is None or 0 in shape:
        return
    if not shape:
        everything = select(shape, ())
        target.write(made, everything, source.read(node, everything))
        return
    row = max(1, prod(shape[1:]) * node.element.itemsize)
    rows = max(1, BLOCK_BYTES // row)
    for first in range(0, shape[0], rows):
        part = select(shape, slice(first, first + rows))
        target.write(made, part, source.read(node, part))
