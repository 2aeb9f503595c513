"""``group.copy`` copies objects within a file, between files, and from files of the real h5py.

Knows: trees, sessions, reading and posting whole datasets. Does not know: how a path is resolved (`paths`).

Rules
-----
1. What will be copied is listed before the first object is made, the groups on the way included, so that a group can be
   copied into itself.
2. Data go through in blocks, so that a copy needs little memory whatever the dataset's size.
3. Links are copied as they are, hard links to what is copied lead to the copies, any other hard link makes a copy.
4. Labels go along with a dataset. Scales stay attached in a copy within the file, as in HDF5; in another file their
   copies are attached, if they are copied by the same call. HDF5 would leave null references there.
5. A reference names the copy of its object, if that is copied by the same call. ``expand_refs=True`` copies what else
   is named, beside the copy, under its own name, or that name and a number if it is taken: a reference is a path here,
   so its object must have one. A reference that leads nowhere is null in the copy. In another file so is one to what is
   not copied: under its path there may be something else.
6. Of an HDF5 file, what holds references is left out, which one warning says; a virtual dataset, or one in raw files,
   is copied with its values.
"""

from __future__ import annotations

import contextlib
import itertools
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnc_vol.api import paths
from pnc_vol.api.attrs import check_attribute
from pnc_vol.api.dataset_plan import check_version
from pnc_vol.api.hdf5_files import admit, is_foreign, is_sound, of_scales, with_rows
from pnc_vol.api.linking import follow
from pnc_vol.api.objects import Datatype, ExternalLink, HardLink, HLObject, SoftLink, class_of
from pnc_vol.errors import OperationError
from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.selection import select
from pnc_vol.mapping.attributes import Attributes
from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.dtypes import Dtype, Reference, RegionReference, metadata_of
from pnc_vol.mapping.elsewhere import add_elsewhere
from pnc_vol.mapping.links import External, Hard, Soft, TypeNode
from pnc_vol.mapping.tree import Axis, DatasetNode, GroupNode, Node
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    from pnc_vol.api.group import Group
    from pnc_vol.api.ids import ObjectID
    from pnc_vol.api.paths import Slot

__all__ = ["How", "copy_into", "refers"]

BLOCK_BYTES = 16 << 20
"""Bytes of a dataset that are read and posted at a time."""
COPIED = "copied"
"""What was to be copied in the place of a link is there already."""


class How(NamedTuple):
    """What `Group.copy` was told.

    shallow : bool, copy only the immediate members of a group.
    soft, external, references : bool, copy what these lead to.
    attrs : bool, copy attributes.
    """

    shallow: bool
    soft: bool
    external: bool
    references: bool
    attrs: bool


def copy_into(group: Group, source: Any, dest: Any, name: str | bytes | None, how: How) -> None:
    """Copy an object as `Group.copy` does; see there for the arguments and the errors."""
    if is_foreign(dest):
        raise TypeError(
            f"Unable to copy object into {dest!r}: HDF5 files are only read here; 'pnc-vol convert IN OUT' makes an "
            "HDF5 file of one of NetCDF"
        )
    if is_foreign(source):
        _copy_foreign(group, source, dest, name, how)
        return
    origin = source if isinstance(source, HLObject) else group
    if isinstance(dest, HLObject) and not isinstance(dest, class_of("group")):
        raise TypeError("Destination must be path or Group object")
    target = dest if isinstance(dest, class_of("group")) else group
    reading, writing = origin._id.check(), target._id.check()
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
            name = name or paths.components(paths.text_of(source))[-1]
            copy_into(target, group._wrap(node), dest, name, how)
            return
        if isinstance(dest, class_of("group")):
            dest = node.name if name is None else name
        slot = paths.slot(target._node, dest, "copy object")
        taken = not slot.missing and (slot.leaf in slot.group.children or slot.leaf in slot.group.links)
        if not slot.leaf or taken:
            raise OperationError(f"Unable to copy object to {dest!r} (destination object already exists)")
        target.id.handle.check_writable("copy object")
        with writing.defs.tree.adding(slot.group):
            _Copy(target, how).whole(origin.id, node, slot)


class _Copy:
    """One copy into a file, with what was made.

    made : original and copy of what was copied, by the id of the original: it becomes a hard link when it comes again.
    """

    def __init__(self, target: Group, how: How) -> None:
        self.group, self.how = target, how
        self.target = target._id.check()
        self.tree = self.target.defs.tree
        self.made: dict[int, tuple[Any, Any]] = {}
        # files that links lead to stay open as long as this copy goes on
        self.opened: list[HLObject] = []

    def whole(self, source: ObjectID, node: Any, slot: Slot) -> None:
        """Copy an object to a free place, with what references name, and attach scales.

        Parameters
        ----------
        source : the id of an object of the file that `node` belongs to

        Raises
        ------
        ValueError
            The target's format cannot hold a type or a shape; nothing was made then.
        """
        self._object(source, node, slot, shallow=self.how.shallow)
        if not isinstance(node, GroupNode | DatasetNode):
            return
        if self.how.references or source.handle.session is not self.target:
            self._follow_references(source, self.made[id(node)][1].parent)
        if self.how.attrs:
            self._attach_scales()

    def _object(self, source: ObjectID, node: Any, slot: Slot, *, shallow: bool = False) -> None:
        """Copy an object, and all below it, to a free place."""
        made = self.made
        listed = _listed(node, None if not shallow else 1, made)
        if self.target.defs.version != 5:
            for found in listed:
                self._check_version(found)
        # as they are now: what is made may become a member of what is copied
        full = listed[:1] if shallow else listed
        fresh = [found for found in full if isinstance(found, GroupNode) and id(found) not in made]
        links = [(found, dict(found.links)) for found in fresh]
        parent = slot.open()
        for found in listed:
            above: Any = parent if found is node else made[id(found.parent)][1]
            called = slot.leaf if found is node else found.name
            if id(found) in made:
                self._hard_link(above, called, found)
            elif isinstance(found, DatasetNode):
                made[id(found)] = found, self._dataset(source, found, above, called)
            elif isinstance(found, GroupNode):
                group = self.tree.add_group(above, called)
                group.order = None if found.order is None else {}
                made[id(found)] = found, group
                self._attributes(found, group)
            else:
                self._type(found, above, called)
        for found, entries in links:
            above = made[id(found)][1]
            for name, entry in entries.items():
                place = slot._replace(group=above, missing=(), leaf=name, asked=name)
                self._link(source, found, entry, place)
            if found.order is not None:
                # links came after all else
                above.order = dict(found.order)
        self.tree.touch()

    def _check_version(self, node: Any) -> None:
        version = self.target.defs.version
        if isinstance(node, DatasetNode):
            check_version(node.path, node.element, node.shape, version)
        for name, attribute in node.attrs.items() if self.how.attrs else ():
            check_attribute(node.path, name, attribute, version)

    # ------------------------------------------------------------------------------------------- links

    def _link(self, source: ObjectID, group: GroupNode, entry: Any, place: Slot) -> None:
        if isinstance(entry, Hard | TypeNode):
            origin: Any = source, entry.node if isinstance(entry, Hard) else entry
        else:
            origin = self._expanded(source, group, entry, place)
        if origin is None:
            self.tree.add_link(place.group, place.leaf, entry)
        elif origin == COPIED:
            return
        elif id(origin[1]) in self.made:
            self._hard_link(place.group, place.leaf, origin[1])
        else:
            self._object(origin[0], origin[1], place)

    def _expanded(self, source: ObjectID, group: GroupNode, entry: Any, place: Slot) -> Any:
        """Return file and node of what is copied in the place of a soft or external link, None to copy the link; what
        is in an HDF5 file is copied here."""
        found: Any = None
        if isinstance(entry, Soft) and self.how.soft:
            found = paths.lookup(group, entry.path)
        elif isinstance(entry, External) and self.how.external:
            found = paths.Outside(entry.filename, entry.path)
        if not isinstance(found, paths.Outside):
            return None if found is None else (source, found)
        try:
            there = follow(source, found, None if source.handle.session.swmr else "r")
        except KeyError:
            return None
        self.opened.append(there)
        if not is_foreign(there):
            return there.id, there.id.node
        _copy_foreign(self.group._wrap(place.group), there, place.leaf, None, self.how._replace(shallow=False))
        return COPIED

    def _hard_link(self, group: GroupNode, name: str, original: Node) -> None:
        self.tree.add_link(group, name, Hard(self.made[id(original)][1]))

    # ------------------------------------------------------------------------------------------- objects

    def _type(self, node: Any, group: GroupNode, name: str) -> None:
        made = TypeNode(self.tree, name, group, Attributes(), node.dtype)
        self.made[id(node)] = node, made
        self._attributes(node, made)
        self.tree.add_link(group, name, made)

    def _attributes(self, original: Node, copied: Node) -> None:
        if self.how.attrs:
            for name, attribute in original.attrs.items():
                copied.attrs[name] = attribute

    def _dataset(self, source: ObjectID, node: Any, parent: GroupNode, name: str) -> DatasetNode:
        if node.away is not None:
            # what says where the data are, as in HDF5: they stay where they are
            made: Any = add_elsewhere(self.tree, parent, name, node.element, node.maxshape, node.away)
            made.prefixes = dict(node.prefixes)
        else:
            made = self.tree.add_dataset(
                parent, name, element=node.element, shape=node.shape, maxshape=node.maxshape, fillvalue=node.fillvalue
            )
            self.target.defs.check_room(made, self.target.disk)
        made.made_axes = [Axis(label=axis.label) for axis in node.axes]
        made.ignored = dict(node.ignored)
        if self.how.attrs:
            made.scale = node.scale
            self._attributes(node, made)
        if node.away is None and node.shape is not None:
            for block in blocks(node.shape, node.element.itemsize, BLOCK_BYTES):
                part = select(node.shape, block)
                self.target.write(made, part, source.handle.session.read(node, part))
        return made  # type: ignore[no-any-return]

    def _attach_scales(self) -> None:
        for original, copied in self.made.values():
            if isinstance(original, DatasetNode) and isinstance(copied, DatasetNode):
                for axis, own in zip(original.axes, copied.axes, strict=True):
                    for scale in axis.scales:
                        found = scale if scale.tree is self.tree else self.made.get(id(scale), (None, None))[1]
                        if isinstance(found, DatasetNode):
                            own.scales.append(found)

    # ---------------------------------------------------------------------------------------- references

    def _follow_references(self, source: ObjectID, beside: GroupNode) -> None:
        """Make references in what was copied name copies; what else they name is copied into the group `beside`."""
        reading = source.handle.session

        def follow_one(reference: Reference) -> Reference:
            node = paths.lookup(reading.defs.tree.root, reference.path) if reference else None
            if not isinstance(node, GroupNode | DatasetNode):
                return type(reference)()
            if id(node) not in self.made:
                if not self.how.references:
                    return type(reference)()
                self._object(source, node, paths.slot(beside, _free_name(beside, node.name or "root"), "copy object"))
            found = self.made[id(node)][1]
            if isinstance(reference, RegionReference):
                return RegionReference(found.path, found, reference.region)
            return Reference(found.path, found)

        done: set[int] = set()
        while left := [pair for key, pair in self.made.items() if key not in done]:
            for original, copied in left:
                done.add(id(original))
                if original.tree is not reading.defs.tree:
                    continue
                for name, attribute in list(copied.attrs.items()):
                    if attribute.value is not None and refers(attribute.dtype):
                        value = _followed(attribute.value, attribute.dtype, follow_one)
                        copied.attrs[name] = attribute._replace(value=value)
                if isinstance(original, DatasetNode) and original.shape is not None and refers(original.element.dtype):
                    for block in blocks(original.shape, original.element.dtype.itemsize, BLOCK_BYTES):
                        part = select(original.shape, block)
                        values = _followed(reading.read(original, part), original.element.dtype, follow_one)
                        self.target.write(copied, part, values)


def _listed(node: Any, depth: int | None, made: dict[int, Any]) -> list[Any]:
    found = [node]
    if isinstance(node, GroupNode) and depth != 0 and id(node) not in made:
        for child in node.children.values():
            found += _listed(child, None if depth is None else depth - 1, made)
    return found


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


def _followed(values: Any, dtype: Dtype, follow_one: Callable[[Reference], Reference]) -> Any:
    """Return the values with each reference followed."""
    values = np.asarray(values, object if dtype.kind == "O" else None)
    if dtype.names is not None:
        made = values.copy()
        for name in dtype.names:
            if refers(dtype[name]):
                made[name] = _followed(values[name], dtype[name], follow_one)
        return made
    if dtype.subdtype is not None:
        return _followed(values, dtype.subdtype[0], follow_one)
    base = ragged_base(dtype)
    made = np.empty(values.shape, dtype)
    for at, item in np.ndenumerate(values):
        if base is not None:
            made[at] = _followed(item, base, follow_one)
        else:
            made[at] = follow_one(item) if isinstance(item, Reference) else item
    return made


# ---------------------------------------------------------------------------------------- from HDF5 files


class _ForeignCopy:
    """One copy of an object of the real h5py, with what it left out."""

    def __init__(self, how: How) -> None:
        self.how = how
        self.left_out: list[str] = []
        self.made: dict[Any, Any] = {}
        self.scaled: list[tuple[Any, Any]] = []

    def into(self, group: Group, name: str, source: Any, *, members: bool = True) -> None:
        known = self.made.get(source.id)
        if known is not None:
            group[name] = known
            return
        if isinstance(source, class_of("dataset")):
            made: Any = self._dataset(group, name, source)
        elif isinstance(source, Datatype):
            group[name] = source.dtype
            made = group[name]
        else:
            made = group.create_group(name)
        if made is None:
            return
        self.made[source.id] = made
        if self.how.attrs:
            self._attributes(source, made)
        if members and isinstance(source, class_of("group")):
            for each in source:
                self._member(source, each, made)

    def _member(self, source: Any, name: str, made: Any) -> None:
        link = source.get(name, getlink=True)
        expanded = self.how.soft if isinstance(link, SoftLink) else self.how.external
        if not isinstance(link, HardLink) and not (expanded and name in source):
            soft = isinstance(link, SoftLink)
            made[name] = SoftLink(link.path) if soft else ExternalLink(link.filename, link.path)
            return
        self.into(made, name, source[name], members=not self.how.shallow)

    def _dataset(self, group: Group, name: str, source: Any) -> Any:
        if refers(source.dtype):
            self.left_out.append(source.name)
            return None
        made = group.create_dataset_like(name, source, track_times=None)
        if source.shape is not None:
            for block in blocks(source.shape, max(source.dtype.itemsize, 1), BLOCK_BYTES):
                made[block] = with_rows(source[block], source.dtype, source.shape)
        self.scaled.append((source, made))
        return made

    def _attributes(self, source: Any, made: Any) -> None:
        made_of_scales = of_scales(source) if isinstance(source, class_of("dataset")) else ()
        for name in source.attrs:
            if name in made_of_scales:
                continue
            found = source.attrs.get_id(name)
            if refers(found.dtype):
                self.left_out.append(f"{source.name}@{name}")
                continue
            value = source.attrs[name]
            if found.shape is not None:
                value = with_rows(value, found.dtype, found.shape)
            made.attrs.create(name, value, dtype=None if found.shape is None else found.dtype)

    def finish(self) -> None:
        """Attach scales to their axes, and tell what was left out."""
        for source, made in self.scaled:
            if source.is_scale:
                name = source.attrs.get("NAME", b"")
                made.make_scale(name.decode() if isinstance(name, bytes) else str(name))
        for source, made in self.scaled:
            labels, scales = (is_sound(source, name) for name in ("DIMENSION_LABELS", "DIMENSION_LIST"))
            for axis, dimension in enumerate(source.dims):
                if labels and dimension.label:
                    made.dims[axis].label = dimension.label
                for scale in dimension.values() if scales else ():
                    if scale.id in self.made:
                        made.dims[axis].attach_scale(self.made[scale.id])
        if self.left_out:
            warn_outside(
                f"references of the HDF5 file were not copied: {', '.join(self.left_out[:5])}"
                f"{' ...' if len(self.left_out) > 5 else ''}; 'pnc-vol convert' keeps them"
            )


def _copy_foreign(group: Group, source: Any, dest: Any, name: Any, how: How) -> None:
    """Copy an object of the real h5py as `Group.copy` does; see there for the arguments and the errors."""
    # it may come from a file that h5py has opened without us
    admit()
    target = group
    if isinstance(dest, class_of("group")):
        target, dest = dest, name or posixpath.basename(source.name)
    if not dest or dest in target:
        raise OperationError(f"Unable to copy object to {dest!r} (destination object already exists)")
    copy = _ForeignCopy(how)
    session = target._id.check()
    with session.lock, session.defs.tree.adding(paths.slot(target._node, dest, "copy object").group):
        copy.into(target, dest, source)
        copy.finish()
