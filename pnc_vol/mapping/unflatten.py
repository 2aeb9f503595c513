"""A header becomes a tree.

Knows: NetCDF's conventions, the keys of markers. Does not know: bytes, files.

Rules
-----
1. Any header gives a tree: without markers each variable is a dataset in the root group, each coordinate variable a
   scale attached to every axis that uses its dimension. CF's auxiliary coordinates are not read as scales: files of
   other programs would look different from what they are.
2. Each key of a marker is checked against the header; one that does not fit is ignored, with a sentence in
   `Tree.findings`. Nothing is allocated, and nothing repeated, because a marker says so.
3. No value of an attribute is decoded here, the reserved ones excepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pnc_vol.format.model import BYTE, Attr, Header, Var
from pnc_vol.mapping.attribute_owners import fill_of, share_attrs, shown_attrs
from pnc_vol.mapping.attributes import NO_MARKERS, Attributes
from pnc_vol.mapping.conventions import FILL, TYPE_KEYS, element_of_var
from pnc_vol.mapping.dimensions import label_of
from pnc_vol.mapping.dtypes import Element, element_for
from pnc_vol.mapping.names import (
    MARKER,
    Findings,
    NameBook,
    dataset_name,
    is_member_name,
    is_shape,
    is_text,
    load_marker,
    marker_attr,
    shown,
    split_path,
)
from pnc_vol.mapping.tree import (
    NAMELESS,
    NO_PARTS,
    Axis,
    DatasetNode,
    GroupNode,
    Plan,
    Tree,
    Unread,
    attach_scales,
)

if TYPE_CHECKING:
    from pnc_vol.mapping.composite import Part

__all__ = ["from_header"]


Marker = Mapping[str, Any]

SPECIAL = {MARKER, FILL, "_Encoding", "dtype"}
"""Attributes that may change what a variable is."""


def from_header(header: Header, *, separator: str = "_") -> Tree:
    """Read a tree from a header.

    Parameters
    ----------
    header : Header, of any writer
    separator : str, joins the steps of a path in names of variables that are made later

    Returns
    -------
    Tree
        ``tree.datasets`` has a node for each variable, in order; `findings` says what in markers did not fit.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim
    >>> tree = from_header(Header(5, 0, (Dim("x", 3),), (), (Var("x", (0,), (), 5),)))
    >>> tree.root.children["x"].shape, tree.root.children["x"].scale
    ((3,), 'x')
    """
    return _TreeReader(header, separator).read()


class _TreeReader:
    """One reading of one header."""

    def __init__(self, header: Header, separator: str) -> None:
        self.header = header
        self.tree = tree = Tree(separator=separator)
        self.findings = tree.findings = Findings()
        self.names = NameBook()
        self.numrecs = max(0, header.numrecs)
        self.marked: list[tuple[DatasetNode, Marker]] = []
        self.unread = Unread(tree, header.vars)
        self.plans: dict[Any, Plan] = {}
        # Datasets that were made, and the dimensions of their axes.
        self.axes: list[tuple[DatasetNode, tuple[int, ...]]] = []
        # Whether a variable needs a closer look; variables share tuples of attributes.
        self.special: dict[int, bool] = {}
        self.coordinates: dict[int, DatasetNode] = {}
        self.composites: list[tuple[DatasetNode, Marker]] = []
        self.loose: dict[str, DatasetNode] = {}
        self.unnamed_scales: list[DatasetNode] = []

    def read(self) -> Tree:
        header, tree = self.header, self.tree
        marker = self._marker_of("the file", header.attrs)
        if marker and marker.get("version") != 1:
            self.findings.append(f"its marker has version {shown(marker.get('version'))}; this library knows version 1")
        self._read_groups(marker.get("groups", []))
        tree.layout = marker.get("layout", "")
        if not isinstance(tree.layout, str):
            self.findings.append(f"the file: layout is {shown(tree.layout)}, not a name; it is ignored")
            tree.layout = ""
        self._read_variables()
        if self.composites or self.loose:
            for left in _assemble(self.composites, self.loose, self.findings):
                self._complain(left, "part", left.cdf_name)
                self._hang(left, None)
        self.unread.coordinates = self.coordinates
        for node, dims in self.axes if self.coordinates else ():
            attach_scales(node, dims, self.coordinates)
        by_variable: dict[str, DatasetNode] = {}
        for node, about in self.marked:
            if "scales" in about and not by_variable:
                by_variable = {found.cdf_name: found for found in reversed(tree.datasets.values())}
            self._mark_axes(node, about, by_variable)
        if self.composites:
            _share_axes(self.composites)
        if "links" in marker:
            from pnc_vol.mapping import links

            links.read_links(tree, marker["links"], self.findings)
            tree.links = 1
        if "listed" in marker:
            from pnc_vol.mapping import links

            links.read_orders(tree, marker["listed"], self.findings)
        share_attrs(header, tree, marker.get("attrs", {}))
        for node in self.unnamed_scales:
            node.scale = node.name
        used = {index for dims in set(map(itemgetter(1), header.vars)) for index in dims}
        spare = frozenset(dim.name for index, dim in enumerate(header.dims) if index not in used)
        tree.file_dims.order, tree.file_dims.spare = header.dims, spare
        tree.file_dims.coordinates = self.coordinates
        tree.touch()
        return tree

    # ---------------------------------------------------------------------------------- groups and variables

    def _read_groups(self, paths: Any) -> None:
        if not isinstance(paths, list):
            self.findings.append(f"the file: groups is {shown(paths)}, not a list of paths; it is ignored")
            return
        for path in paths:
            steps = split_path(path)
            if steps is None:
                self.findings.append(f"the file: {shown(path)} is not a path of a group; it is ignored")
            else:
                self._group(steps)

    def _group(self, steps: list[str]) -> GroupNode | None:
        """Return the group at a path, made if need be; None if a dataset is in the way."""
        group = self.tree.root
        for depth, step in enumerate(steps):
            # The entry of a dataset that is not made is in the way as it is.
            child = dict.get(group.children, step)
            if child is None:
                child = group.children[step] = GroupNode(self.tree, step, group)
                if not depth:
                    self.names.taken.add(step)
            elif not isinstance(child, GroupNode):
                return None
            group = child
        return group

    def _read_variables(self) -> None:
        """Add a dataset for each variable to the tree; most need no closer look, and are made when asked for."""
        dims: tuple[int, ...] | None = None
        attrs: tuple[Attr, ...] | None = None
        code, plan, first = -1, None, 0
        # Those from `first` on that are of one kind.
        names: list[str] = []
        for uid, var in enumerate(self.header.vars):
            known = plan is not None and var[1] is dims and var[3] == code
            if known and (var[2] is attrs or not self._is_special(var[2])):
                attrs = var[2]
                names.append(var[0])
                continue
            self._put_off(first, names, plan)
            _, dims, attrs, code, _ = var
            plan = None if self._is_special(attrs) else self.plans.get((code, dims))
            if plan is None:
                self._read_variable(uid)
                plan = None if self._is_special(attrs) else self.plans.get((code, dims))
                first, names = uid + 1, []
            else:
                first, names = uid, [var[0]]
        self._put_off(first, names, plan)
        self.tree.next_uid = len(self.header.vars)
        if len(self.axes) == self.tree.next_uid:
            self.unread.make_all()

    def _put_off(self, first: int, names: list[str], plan: Plan | None) -> None:
        """Add datasets of one plan that are made later, from the variable `first` on; others among them are made."""
        if plan is None or not names:
            return
        taken, uids = self.names.taken, range(first, first + len(names))
        # A coordinate variable is looked at.
        own = plan[2][0][1] if len(plan[2]) == 1 else None
        # A name that is like this is a member's; see `is_member_name`.
        plain = "".join(names).isascii() and all(map(str.isidentifier, names))
        if plain and own not in names and taken.isdisjoint(names):
            self.unread.put_off(plan, uids, names)
            taken.update(names)
            return
        for uid, name in zip(uids, names, strict=True):
            if name == own or name in taken or not (name.isidentifier() and name.isascii()):
                self._read_variable(uid)
            else:
                self.unread.put_off(plan, (uid,), (name,))
                taken.add(name)

    def _is_special(self, attrs: tuple[Attr, ...]) -> bool:
        """Return whether a variable with these attributes needs a closer look."""
        found = self.special.get(id(attrs))
        if found is None:
            found = self.special[id(attrs)] = any(attr[0] in SPECIAL for attr in attrs)
        return found

    def _read_variable(self, uid: int) -> None:
        """Add a dataset for the variable of that number to the tree."""
        name, dims, attrs, code, _ = var = self.header.vars[uid]
        tree = self.tree
        special = self._is_special(attrs)
        marker = self._marker_of(f"variable {shown(name)}", attrs) if special else NO_MARKERS
        if "elsewhere" in marker and self._read_elsewhere(uid, var, marker):
            return
        key: Any = _plan_key(var, marker) if special else (code, dims)
        fill = None
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = self._plan(var, marker)
        element, visible, names, shape, maxshape = plan
        attributes: Attributes | tuple[Attr, ...]
        if special:
            attributes = shown_attrs(var, element, marker, self.findings)
            fill = fill_of(var, element, marker, self.findings)
        else:
            attributes = attrs
        scale = "" if len(names) == 1 and names[0][1] == name else None
        # by position: this runs once for each variable of the file
        node = DatasetNode(tree, "", None, attributes, uid, element, shape, maxshape, fill, names, scale, name)
        tree.datasets[uid] = node
        self.axes.append((node, visible))
        if marker:
            if marker.get("track") is True:
                node.ignored = {"track_order": True}
            self._mark_scale(node, marker)
            self.marked.append((node, marker))
            if element.kind == "composite":
                self._mark_composite(node, marker)
                self.composites.append((node, marker))
                self._hang_or_keep(node, marker)
                return
            self._mark_shape(node, marker)
        taken = self.names.taken
        if not marker and name not in taken and is_member_name(name):
            # What most variables are: a dataset of this name in the root.
            taken.add(name)
            node.name, node.parent = name, tree.root
            tree.root.children[name] = node
        else:
            self._hang_or_keep(node, marker)
        if scale is not None and "scale" not in marker:
            self.unnamed_scales.append(node)
        if scale is not None and node.scale is not None and not node.is_placeholder:
            self.coordinates.setdefault(visible[0], node)

    def _read_elsewhere(self, uid: int, var: Var, marker: Marker) -> bool:
        """Add the dataset of a variable whose data live elsewhere; False if it has data."""
        from pnc_vol.mapping import elsewhere

        node = elsewhere.read_marker(self.tree, uid, var.name, marker) if (var.dims, var.type) == ((), BYTE) else None
        if node is None:
            self.findings.append(
                f"variable {shown(var.name)}: elsewhere of its marker does not fit; it is shown as a plain variable"
            )
            return False
        node.known_attrs = shown_attrs(var, node.element, marker, self.findings)
        if marker.get("track") is True:
            node.ignored = {"track_order": True}
        self._mark_scale(node, marker)
        self.tree.datasets[uid] = node
        self.axes.append((node, ()))
        self.marked.append((node, marker))
        self._hang_or_keep(node, marker)
        return True

    def _hang_or_keep(self, node: DatasetNode, marker: Marker) -> None:
        """Add a dataset to the tree, unless it is a part of another one."""
        if marker.get("loose") is True:
            self.tree.loose.add(node.uid)
        elif "part" in marker and node.cdf_name not in self.loose:
            self.loose[node.cdf_name] = node
        else:
            self._hang(node, marker.get("path"))

    def _hang(self, node: DatasetNode, path: Any) -> None:
        """Put a dataset where its marker says, or under the name of its variable into the root."""
        if path is not None:
            steps = split_path(path)
            group = self._group(steps[:-1]) if steps else None
            if steps and group is not None and steps[-1] not in group.children:
                node.name, node.parent = steps[-1], group
                group.children[node.name] = node
                if group is self.tree.root:
                    self.names.taken.add(node.name)
                return
            self.findings.append(
                f"variable {shown(node.cdf_name)}: cannot be at {shown(path)}; it is in the root group"
            )
        root = self.tree.root
        node.name, node.parent = self.names.take(dataset_name(node.cdf_name)), root
        root.children[node.name] = node

    def _marker_of(self, where: str, attrs: tuple[Attr, ...]) -> Marker:
        attr = marker_attr(attrs)
        if attr is None:
            return NO_MARKERS
        return load_marker(attr, where, self.findings)

    def _plan(self, var: Var, marker: Marker) -> Plan:
        dims = [self.header.dims[index] for index in var.dims]
        record = bool(dims) and dims[0].size == 0
        fixed = dims[1:] if record else dims
        sizes, names = tuple(dim.size for dim in fixed), tuple(dim.name for dim in fixed)

        def complain(sentence: str) -> None:
            self.findings.append(f"variable {shown(var.name)}: {sentence}")

        element = element_of_var(var.type, sizes, names, var.attrs, marker, complain=complain)
        visible = var.dims[: len(var.dims) - len(element.trailing)]
        shape = sizes[: len(sizes) - len(element.trailing)]
        # Labels are read from the names of dimensions; `attach_scales` finds the axes that have scales instead.
        shown_names = tuple((label_of(*dim), dim.name) for dim in dims[: len(visible)])
        if record:
            return element, visible, shown_names, (self.numrecs, *shape), (None, *shape)
        return element, visible, shown_names, shape, None

    def _mark_shape(self, node: DatasetNode, marker: Marker) -> None:
        """Note what the marker says of the shape, if the variable can have it."""
        if marker.get("null") is True or "shape" in marker:
            shape = marker.get("shape")
            record = marker.get("record") is True
            if node.shape != () or not (
                marker.get("null") is True or _is_empty_shape(shape, node.element.dtype.itemsize, record)
            ):
                self._complain(node, "null" if "null" in marker else "shape", shape)
            elif marker.get("null") is True:
                node.shape = None
            else:
                node.shape = tuple(shape)  # type: ignore[arg-type]
                node.maxshape = (None, *node.shape[1:]) if record else None
                node.names = NAMELESS[: len(node.shape)]
        if "len" in marker:
            length = marker["len"]
            if node.is_record and not node.is_placeholder and type(length) is int and 0 <= length <= self.numrecs:
                assert node.shape is not None
                node.shape = (length, *node.shape[1:])
            else:
                self._complain(node, "len", length)
        if "max" in marker:
            self._mark_limits(node, marker["max"])

    def _mark_composite(self, node: DatasetNode, marker: Marker) -> None:
        """Note the shape of a dataset that takes several variables, which its own does not have."""
        shape = marker.get("shape")
        node.shape = tuple(shape) if shape is not None and is_shape(shape) else None
        node.made_axes = [Axis() for _ in node.shape or ()]
        if node.shape and marker.get("record") is True:
            node.maxshape = (None, *node.shape[1:])
        if "max" in marker:
            self._mark_limits(node, marker["max"])

    def _mark_limits(self, node: DatasetNode, limits: Any) -> None:
        shape = node.shape
        if (
            isinstance(limits, list)
            and shape is not None
            and len(limits) == len(shape) > 0
            and all(
                limit is None or (type(limit) is int and limit >= n) for limit, n in zip(limits, shape, strict=True)
            )
            and (limits[0] is None) == node.is_record
        ):
            node.maxshape = tuple(limits)
        else:
            self._complain(node, "max", limits)

    def _complain(self, node: DatasetNode, key: str, value: Any) -> None:
        self.findings.append(
            f"variable {shown(node.cdf_name)}: {key} {shown(value)} of its marker does not fit; it is ignored"
        )

    # ----------------------------------------------------------------------------------------------- scales

    def _mark_scale(self, node: DatasetNode, marker: Marker) -> None:
        """Note whether the marker has the dataset as a scale, and of which name."""
        if "scale" in marker:
            if marker["scale"] is None or marker["scale"] is True or is_text(marker["scale"]):
                node.scale = marker["scale"]
            else:
                self._complain(node, "scale", marker["scale"])

    def _mark_axes(self, node: DatasetNode, marker: Marker, by_variable: dict[str, DatasetNode]) -> None:
        if "labels" in marker:
            labels = marker["labels"]
            if isinstance(labels, list) and len(labels) == len(node.axes) and all(map(is_text, labels)):
                for axis, label in zip(node.axes, labels, strict=True):
                    axis.label, axis.only_label = label, bool(label)
            else:
                self._complain(node, "labels", labels)
        if "scales" in marker:
            scales = marker["scales"]
            if isinstance(scales, list) and len(scales) == len(node.axes) and all(isinstance(x, list) for x in scales):
                for axis, names in zip(node.axes, scales, strict=True):
                    found = {name: by_variable.get(name) for name in names if isinstance(name, str)}
                    axis.scales = [s for s in found.values() if s is not None and s is not node and s.scale is not None]
                    if len(axis.scales) != len(names):
                        self._complain(node, "scales", names)
            else:
                self._complain(node, "scales", scales)


def _plan_key(var: Var, marker: Marker) -> Any:
    """Return what `_TreeReader._plan` depends on; variables that differ in nothing of it share a plan."""
    typed = [(key, marker[key]) for key in TYPE_KEYS if key in marker]
    if not all(isinstance(value, str) for _, value in typed):
        return id(var)
    return (var.type, var.dims, *typed, *(attr for attr in var.attrs if attr.name in ("_Encoding", "dtype")))


def _is_empty_shape(shape: Any, itemsize: int, record: bool) -> bool:
    """Return True for the shape of a dataset without elements."""
    if not shape or not is_shape(shape):
        return False
    # numpy multiplies what is not 0
    return 0 in (shape[1:] if record else shape) and prod(n or 1 for n in shape) * itemsize < 1 << 63


# -------------------------------------------------------------------------------------------------- composite assembly
# Datasets that take several variables, put together from a header.
#
# Knows: the keys ``parts`` and ``part`` of markers. Does not know: headers, bytes.
#
# Rules
# -----
# 1. A dataset gets its parts only if all of them are there, of the type and shape that its own type asks for, and
#    nobody else's; otherwise it is the scalar byte that the file has, and its parts are datasets of the root group.
# 2. Nothing is allocated because a marker says so: shapes are those of variables.


def _assemble(
    composites: list[tuple[DatasetNode, Marker]],
    loose: dict[str, DatasetNode],
    findings: list[str],
) -> list[DatasetNode]:
    """Give each dataset of `composites` its parts; returns the parts that belong to no dataset.

    Parameters
    ----------
    composites : datasets whose type takes several variables, with their markers; their shapes are noted
    loose : the variables that say they are a part, by name
    findings : gets a sentence for each dataset that cannot be put together
    """
    for node, marker in composites:
        found = _parts(node, marker, loose)
        if found is None:
            findings.append(
                f"variable {shown(node.cdf_name)}: its parts do not fit its type; it is shown as a plain variable"
            )
            continue
        for name, part in found.items():
            part.name, part.parent = name, node  # type: ignore[assignment]
            node.put_part(name, part)
            del loose[part.cdf_name]
    # what cannot be put together is not a part either, so that its owner cannot be put together
    by_uid = {node.uid: marker for node, marker in composites}
    waiting = [node for node, _ in composites]
    while waiting:
        node = waiting.pop()
        if node.element.kind != "composite" or _whole(node, by_uid[node.uid]):
            continue
        for part in node.parts.values():
            part.parent = None
            loose[part.cdf_name] = part
        node.parts, node.element, node.shape, node.maxshape = NO_PARTS, element_for("i1"), (), None
        node.made_axes = []
        if node.owner is not None:
            waiting.append(node.owner)
    return list(loose.values())


def _wanted(node: DatasetNode) -> list[Part]:
    from pnc_vol.mapping import composite

    base = composite.ragged_base(node.element.dtype)
    found = composite.parts_of(node.element.dtype)
    return found if base is None else [*found, composite.Part("values", base)]


def _parts(node: DatasetNode, marker: Marker, loose: dict[str, DatasetNode]) -> dict[str, DatasetNode] | None:
    """Return the parts of a dataset by name; none for an empty one, None if they do not fit."""
    if marker.get("null") is True:
        node.shape = None
        return {}
    names = marker.get("parts")
    if not isinstance(names, dict) or node.shape is None:
        return None
    from pnc_vol.mapping import composite

    ragged = composite.ragged_base(node.element.dtype) is not None
    found: dict[str, DatasetNode] = {}
    for name, dtype, inner in _wanted(node):
        part_name = names.get(name)
        part = loose.get(part_name) if isinstance(part_name, str) else None
        if part is None or part.owner is not None or part in found.values():
            return None
        # the type first: it ends a chain of parts that hold each other
        if not _same_type(part.element, element_for(dtype)) or _above(node, part):
            return None
        if node.maxshape and not found and part.shape and node.shape:
            # records are counted by the file: another program may have added some
            node.shape = (part.shape[0], *node.shape[1:])
        if ragged and name == "values":
            if len(part.shape or ()) != 1:
                return None
        elif part.shape != (*node.shape, *inner):
            return None
        found[name] = part
    return found


def _whole(node: DatasetNode, marker: Marker) -> bool:
    if marker.get("null") is True and not node.parts:
        return True
    return len(node.parts) == len(_wanted(node)) and all(
        _same_type(node.parts[name].element, element_for(dtype)) for name, dtype, _ in _wanted(node)
    )


def _above(node: DatasetNode, part: DatasetNode) -> bool:
    """Return True if `part` is the dataset itself or one that it belongs to."""
    at: DatasetNode | None = node
    while at is not None:
        if at is part:
            return True
        at = at.owner
    return False


def _same_type(found: Element, wanted: Element) -> bool:
    if found.kind != wanted.kind or found.nc_type != wanted.nc_type:
        return False
    if found.kind == "composite":
        from pnc_vol.mapping.describe import describe

        # numpy's equality does not look at what objects are
        return bool(describe(found.dtype) == describe(wanted.dtype))
    return found.kind == "vlen_string" or (found.file_dtype == wanted.file_dtype and found.dtype == wanted.dtype)


def _share_axes(composites: list[tuple[DatasetNode, Marker]]) -> None:
    """Let parts have the axes of their dataset, so that scales and labels name the dimensions of both."""
    from pnc_vol.mapping import composite

    for node, _ in composites:
        for name, part in node.parts.items():
            if name == "values" and composite.ragged_base(node.element.dtype) is not None:
                continue
            for axis, own in zip(node.axes, part.axes, strict=False):
                axis.dim_name = axis.dim_name or own.dim_name
            part.axes[: len(node.axes)] = node.axes
