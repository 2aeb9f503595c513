"""``group.copy`` copies objects within a file or between files.

Knows: trees, sessions, reading and posting whole datasets. Does not know: how a path is resolved (`paths`).

Rules
-----
1. What will be copied is listed before the first object is made, the groups on the way included, so that a group can be
   copied into itself.
2. Data go through in blocks, so that a copy needs little memory whatever the dataset's size.
3. Links are copied as they are, hard links to what is copied lead to the copies, any other hard link makes a copy.
4. Labels go along with a dataset. Scales stay attached in a copy within the file, as in HDF5; in another file their
   copies are attached, if they are copied by the same call. HDF5 would leave null references there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pnc_vol.api import paths
from pnc_vol.api.copied_references import BLOCK_BYTES, Made, expand_references
from pnc_vol.api.copying_hdf5 import copy_foreign
from pnc_vol.api.dataset_plan import check_version
from pnc_vol.api.hdf5_files import is_foreign
from pnc_vol.api.linking import expander
from pnc_vol.api.objects import HLObject, class_of
from pnc_vol.errors import OperationError
from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.selection import select
from pnc_vol.format.limits import check_type
from pnc_vol.mapping.attribute_encoding import encode_attribute
from pnc_vol.mapping.attributes import Attributes
from pnc_vol.mapping.elsewhere import add_elsewhere
from pnc_vol.mapping.links import Hard, TypeNode
from pnc_vol.mapping.tree import Axis, DatasetNode, GroupNode, Node

if TYPE_CHECKING:
    from pnc_vol.api.group import Group
    from pnc_vol.api.paths import Slot
    from pnc_vol.file.open_file import OpenFile

__all__ = ["copy_into"]

Expand = Callable[[GroupNode, Any, "Slot"], "tuple[OpenFile, GroupNode | DatasetNode] | str | None"]

COPIED = "copied"
"""What was to be copied in the place of a link is there already."""


def copy_into(
    group: Group,
    source: Any,
    dest: Any,
    name: str | bytes | None,
    *,
    shallow: bool,
    expand_soft: bool,
    expand_external: bool,
    expand_refs: bool,
    with_attrs: bool,
) -> None:
    """Copy an object as `Group.copy` does; see there for the arguments and the errors."""
    if is_foreign(dest):
        raise TypeError(
            f"Unable to copy object into {dest!r}: HDF5 files are only read here; 'pnc-vol convert IN OUT' makes an "
            "HDF5 file of one of NetCDF"
        )
    if is_foreign(source):
        copy_foreign(
            group,
            source,
            dest,
            name,
            shallow=shallow,
            expand_soft=expand_soft,
            expand_external=expand_external,
            with_attrs=with_attrs,
        )
        return
    origin = source if isinstance(source, HLObject) else group
    if isinstance(dest, HLObject) and not isinstance(dest, class_of("group")):
        raise TypeError("Destination must be path or Group object")
    target = dest if isinstance(dest, class_of("group")) else group
    reading, writing = origin._check(), target._check()
    with contextlib.ExitStack() as stack:
        # always in the same order, so that two copies in opposite directions cannot block each other
        for session in sorted({reading, writing}, key=id):
            stack.enter_context(session.lock)
            session.check_open()
        node = origin._id.node if isinstance(source, HLObject) else paths.lookup(group._node, source)
        if node is None:
            # h5py looks the source up for its name when it gets none: a KeyError there
            missing = paths.missing(group._node, source, f"Unable to copy object (object {source!r} doesn't exist)")
            raise missing if isinstance(dest, class_of("group")) and name is None else OperationError(str(missing))
        if isinstance(node, paths.Outside):
            found = group._wrap(node)
            name = name or paths.components(paths.text_of(source))[-1]
            target.copy(found, dest, name, shallow, expand_soft, expand_external, expand_refs, not with_attrs)
            return
        if isinstance(dest, class_of("group")):
            dest = node.name if name is None else name
        slot = paths.slot(target._node, dest, "copy object")
        taken = not slot.missing and (slot.leaf in slot.group.children or slot.leaf in slot.group.links)
        if not slot.leaf or taken:
            raise OperationError(f"Unable to copy object to {dest!r} (destination object already exists)")
        target.id.handle.check_writable("copy object")
        expand = None
        if expand_soft or expand_external:
            expand = _expanding(origin, target, soft=expand_soft, external=expand_external, with_attrs=with_attrs)
        with writing.defs.tree.adding(slot.group):
            _copy_object(
                reading,
                node,
                writing,
                slot,
                shallow=shallow,
                with_attrs=with_attrs,
                expand=expand,
                expand_refs=expand_refs,
            )


def _expanding(origin: HLObject, target: Group, *, soft: bool, external: bool, with_attrs: bool) -> Expand:
    """Return what `_copy_object` asks for the objects in the place of links; those of HDF5 files it copies itself."""
    find = expander(origin.id, soft=soft, external=external)

    def expand(group: GroupNode, entry: Any, place: Slot) -> Any:
        found = find(group, entry)
        if not is_foreign(found):
            return found
        above = target._wrap(place.group)
        copy_foreign(
            above, found, place.leaf, None, shallow=False, expand_soft=soft, expand_external=external,
            with_attrs=with_attrs,
        )  # fmt: skip
        return COPIED

    return expand


def _copy_object(
    source: OpenFile,
    node: Any,
    target: OpenFile,
    slot: Slot,
    *,
    shallow: bool,
    with_attrs: bool,
    expand: Expand | None = None,
    expand_refs: bool = False,
    made: Made | None = None,
) -> None:
    """Copy an object, and all below it, to a free place.

    Parameters
    ----------
    source, target : sessions that `node` and `slot` belong to, maybe the same one
    slot : where the copy goes; free
    shallow : copy only the immediate members of a group
    with_attrs : copy attributes
    expand : gives the object to copy in the place of a soft or external link, None to copy the link, or `COPIED`
    expand_refs : copy what references in the copy name, and let them name the copies
    made : original and copy of what was copied already, by the id of the original: it becomes a hard link

    Raises
    ------
    ValueError
        The target's format cannot hold a type or a shape; nothing was made then.
    """
    top, made = made is None, {} if made is None else made
    listed = _listed(node, None if not shallow else 1, made)
    if target.defs.version != 5:
        for found in listed:
            _check_version(found, target.defs.version, with_attrs=with_attrs)
    # as they are now: what is made may become a member of what is copied
    full = listed[:1] if shallow else listed
    fresh = [found for found in full if isinstance(found, GroupNode) and id(found) not in made]
    links = [(found, dict(found.links)) for found in fresh]
    parent = slot.open()
    for found in listed:
        above: Any = parent if found is node else made[id(found.parent)][1]
        called = slot.leaf if found is node else found.name
        if id(found) in made:
            _link(target, above, called, made[id(found)][1])
        elif isinstance(found, DatasetNode):
            made[id(found)] = found, _copy_dataset(source, found, target, above, called, with_attrs=with_attrs)
        elif isinstance(found, GroupNode):
            group = target.defs.tree.add_group(above, called)
            group.order = None if found.order is None else {}
            made[id(found)] = found, group
            if with_attrs:
                _copy_attrs(found, group)
        else:
            _copy_type(found, target, above, called, with_attrs=with_attrs)
    for found, entries in links:
        above = made[id(found)][1]
        for name, entry in entries.items():
            place = slot._replace(group=above, missing=(), leaf=name, asked=name)
            _copy_link(source, found, entry, target, place, with_attrs=with_attrs, expand=expand, made=made)
        if found.order is not None:
            # links came after all else
            above.order = dict(found.order)
    target.defs.tree.touch()
    if expand_refs or (top and source is not target):

        def copy(referred: Any, place: Slot) -> None:
            _copy_object(
                source, referred, target, place, shallow=False, with_attrs=with_attrs, expand=expand, made=made
            )

        expand_references(source, target, made, parent, copy if expand_refs else None)
    if top and with_attrs:
        _attach_scales(made)


def _attach_scales(made: Made) -> None:
    for original, copied in made.values():
        if isinstance(original, DatasetNode) and isinstance(copied, DatasetNode):
            for axis, own in zip(original.axes, copied.axes, strict=True):
                for scale in axis.scales:
                    found = scale if scale.tree is copied.tree else made.get(id(scale), (None, None))[1]
                    if isinstance(found, DatasetNode):
                        own.scales.append(found)


def _copy_link(
    source: OpenFile,
    group: GroupNode,
    entry: Any,
    target: OpenFile,
    place: Slot,
    *,
    with_attrs: bool,
    expand: Expand | None,
    made: Made,
) -> None:
    if isinstance(entry, TypeNode):
        _copy_type(entry, target, place.group, place.leaf, with_attrs=with_attrs)
        return
    origin: Any = (source, entry.node) if isinstance(entry, Hard) else None
    if origin is None and expand is not None:
        origin = expand(group, entry, place)
    if origin == COPIED:
        return
    if origin is None:
        target.defs.tree.add_link(place.group, place.leaf, entry)
    elif id(origin[1]) in made:
        _link(target, place.group, place.leaf, made[id(origin[1])][1])
    else:
        session, node = origin
        _copy_object(session, node, target, place, shallow=False, with_attrs=with_attrs, expand=expand, made=made)


def _link(target: OpenFile, group: GroupNode, name: str, node: GroupNode | DatasetNode) -> None:
    target.defs.tree.add_link(group, name, Hard(node))


def _copy_type(node: Any, target: OpenFile, group: GroupNode, name: str, *, with_attrs: bool) -> None:
    made = type(node)(target.defs.tree, name, group, Attributes(), node.dtype)
    if with_attrs:
        _copy_attrs(node, made)
    target.defs.tree.add_link(group, name, made)


def _check_version(node: Node, version: int, *, with_attrs: bool) -> None:
    if isinstance(node, DatasetNode):
        check_version(node.path, node.element, node.shape, version)
    for name, attribute in node.attrs.items() if with_attrs else ():
        check_type(f"attribute {name!r} of {node.path!r}", encode_attribute(name, attribute)[0].type, version)


def _listed(node: Any, depth: int | None, made: Made) -> list[Any]:
    found = [node]
    if isinstance(node, GroupNode) and depth != 0 and id(node) not in made:
        for child in node.children.values():
            found += _listed(child, None if depth is None else depth - 1, made)
    return found


def _copy_attrs(source: Node, target: Node) -> None:
    for name, attribute in source.attrs.items():
        target.attrs[name] = attribute


def _copy_dataset(
    source: OpenFile, node: DatasetNode, target: OpenFile, parent: GroupNode, name: str, *, with_attrs: bool
) -> DatasetNode:
    if node.away is not None:
        return _copy_elsewhere(node, target, parent, name, with_attrs=with_attrs)
    made = target.defs.tree.add_dataset(
        parent, name, element=node.element, shape=node.shape, maxshape=node.maxshape, fillvalue=node.fillvalue
    )
    target.defs.check_room(made, target.disk)
    made.made_axes = [Axis(label=axis.label) for axis in node.axes]
    made.ignored = dict(node.ignored)
    if with_attrs:
        made.scale = node.scale
        _copy_attrs(node, made)
    shape = node.shape
    if shape is None:
        return made
    for block in blocks(shape, node.element.itemsize, BLOCK_BYTES):
        part = select(shape, block)
        target.write(made, part, source.read(node, part))
    return made


def _copy_elsewhere(node: Any, target: OpenFile, parent: GroupNode, name: str, *, with_attrs: bool) -> DatasetNode:
    """Copy what says where the data are, as HDF5 does: they stay where they are."""
    made = add_elsewhere(target.defs.tree, parent, name, node.element, node.maxshape, node.away)
    made.made_axes = [Axis(label=axis.label) for axis in node.axes]
    made.ignored, made.prefixes = dict(node.ignored), dict(node.prefixes)
    if with_attrs:
        made.scale = node.scale
        _copy_attrs(node, made)
    return made
