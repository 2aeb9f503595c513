"""A tree becomes a header: of all its objects (`to_header`), or from the header before by what changed (`changed`).

Knows: which variable, which attributes and which marker each dataset and group needs, and which changes leave all
other variables as they are. Does not know: bytes, files, where new data lie (`begin` stays -1).

Rules
-----
1. Names that variables have are kept; new ones are made in the order of creation.
2. A marker holds only what `mapping.unflatten` would not find out without it.
3. Attributes that nobody changed are passed on as the bytes they were read as.
4. What comes of a change is what would be made of the whole tree; where that is not sure, all is made anew; so it is
   where a variable is renamed, or goes together with other changes.
   Of a file as it was read the variables that nobody changed stay as they are there.
5. Record datasets are counted by their length. The length of a dataset is in its marker only if it is not the number of
   records of the file, so that others change only if they have, or had, that number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from pnc_vol.format.encode import with_changes, without
from pnc_vol.format.model import BYTE, CHAR, DOUBLE, FLOAT, Attr, Dim, Header, Var
from pnc_vol.mapping import conventions
from pnc_vol.mapping.attribute_owners import global_attrs, named_attrs, with_fill
from pnc_vol.mapping.dimensions import DimBook, may_be_made
from pnc_vol.mapping.dtypes import COMPLEX_DIM, Element
from pnc_vol.mapping.names import NameBook, dataset_name, dump_marker, legal_name, variable_name
from pnc_vol.mapping.tree import DatasetNode, Node, Tree, lengths_of, plain_names

__all__ = ["Flat", "changed", "numrecs_for", "numrecs_of", "to_header"]

SAMPLE_DIMENSION, SAMPLES = "sample_dimension", "sample"
"""CF's attribute of contiguous ragged arrays, and the end of the names of their dimensions."""

_AMBIGUOUS = (BYTE, CHAR)
"""Types whose meaning depends on the attributes of a variable."""

_MANY = 64
"""Variables that are encoded anew one by one, however few there are."""


class Flat(NamedTuple):
    """A header and whose its variables are.

    header : Header, not placed (`begin` -1, `numrecs` 0), or with the begins that it has in the file.
    uids : tuple of int, ``header.vars[i]`` belongs to the dataset ``uids[i]``.
    book : DimBook or None, the dimensions as they were found, and what is known of them; None of a file as it was read
        until a variable changes.
    moved : list of int or None, the index in the header of each dimension of `book`, if it is another one.
    lengths : dict of int to int, how many datasets have each number of records.
    names : set of str, of all variables; empty until the first new variable asks for them.
    """

    header: Header
    uids: tuple[int, ...]
    book: DimBook | None
    moved: list[int] | None
    lengths: dict[int, int]
    names: set[str]


def numrecs_of(tree: Tree) -> int:
    """Return the number of records that the file needs: the longest record dataset, but no fewer than there are
    already."""
    return numrecs_for(tree, lengths_of(tree.datasets))


def numrecs_for(tree: Tree, lengths: dict[int, int]) -> int:
    """Return the same, from how many datasets have each number of records."""
    return max(tree.records, *lengths) if lengths else 0


def to_header(tree: Tree, *, version: int = 5) -> Flat:
    """Make a header of a tree; variables that have no name yet get one (`DatasetNode.cdf_name`).

    Parameters
    ----------
    tree : Tree
    version : {1, 2, 5}
        What this version cannot hold is found by `format.limits.check_limits`, not here.

    Examples
    --------
    >>> from pnc_vol.mapping.dtypes import element_for
    >>> tree = Tree()
    >>> _ = tree.add_dataset(tree.root, "t", element=element_for("f4"), shape=(3,))
    >>> to_header(tree).header.dims
    (Dim(name='dim_3', size=3),)
    """
    nodes = list(tree.datasets.values())
    _name_variables(nodes, tree)
    book = DimBook(nodes, tree.file_dims.order)
    lengths = Counter([node.shape[0] for node in book.records if node.shape])
    variables = _variables(nodes, book, tree, numrecs_for(tree, lengths))
    dims, moved = book.in_order(tree.file_dims.order, tree.file_dims.spare)
    if moved is not None:
        known = {var.dims for var in variables}
        new = {old: tuple(moved[index] for index in old) for old in known}
        variables = [_make(Var, (name, new[dims], attrs, code, at)) for name, dims, attrs, code, at in variables]
    header = Header(version, 0, dims, global_attrs(tree), tuple(variables))
    return Flat(header, tuple(tree.datasets), book, moved, lengths, set())


def _name_variables(nodes: list[DatasetNode], tree: Tree) -> None:
    names = [node.cdf_name for node in nodes]
    taken = set(names)
    taken.discard("")
    fresh = [node for node, name in zip(nodes, names, strict=True) if not name]
    book, root = NameBook(), tree.root
    if len(taken) + len(fresh) == len(nodes):
        book.taken = taken
        # What most names are, said of all at once: those of the root are different.
        wanted = [node.name for node in fresh if node.parent is root]
        plain = all(map(str.isidentifier, wanted)) and max(map(len, wanted), default=0) < _SHORT
        if plain and len(wanted) == len(fresh) and "".join(wanted).isascii() and taken.isdisjoint(wanted):
            for node, name in zip(fresh, wanted, strict=True):
                node.cdf_name = name
            return
    else:
        fresh = []
        for node in nodes:
            name = node.cdf_name
            if not name or name in book.taken:
                fresh.append(node)
            else:
                book.taken.add(name)
    for node in fresh:
        name = node.name
        in_root = node.parent is root
        if in_root and _is_plain_name(name) and name not in book.taken:
            book.taken.add(name)
            node.cdf_name = name
        else:
            wanted_name = legal_name(name) if in_root else variable_name(node.path, tree.separator)
            node.cdf_name = book.take(wanted_name)


def _is_plain_name(name: str) -> bool:
    """Return whether the name of a dataset in the root is surely that of its variable, if no other one has it."""
    return len(name) < _SHORT and name.isidentifier() and name.isascii()


def _variables(nodes: list[DatasetNode], book: DimBook, tree: Tree, numrecs: int) -> list[Var]:
    """Return the variables of all datasets; most are numbers in the root whose dimensions say all of their axes.

    Datasets of one element and shape whose axes have the same names and scales have the same dimensions and type.
    """
    root = tree.root
    known: dict[Any, tuple[tuple[int, ...], int] | None] = {}
    made: list[Var] = []
    put = made.append
    before: DatasetNode | None = None
    kind: tuple[tuple[int, ...], int] | None = None
    for node in nodes:
        name, axes = node.cdf_name, node.made_axes
        if (
            not node.shape
            or node.fillvalue is not None
            or node.scale is not None
            or node.name != name
            or node.parent is not root
            or (node.ignored and "track_order" in node.ignored)
        ):
            put(_variable_of(node, book, numrecs))
            continue
        if (
            before is None
            or axes is not None
            or node.element is not before.element
            or node.shape != before.shape
            or node.names is not before.names
            or node.maxshape != before.maxshape
        ):
            key = (
                # Their nodes keep them, so their identity is theirs; of an axis all that a header can say.
                (id(node.element), node.shape, node.maxshape, id(node.names))
                if axes is None
                else (
                    id(node.element),
                    node.shape,
                    node.maxshape,
                    *[(axis.label, axis.dim_name, axis.only_label, *map(id, axis.scales)) for axis in axes],
                )
            )
            if key not in known:
                known[key] = _plain_kind(node, book, numrecs)
            kind, before = known[key], node if axes is None else None
        if kind is None:
            put(_variable_of(node, book, numrecs))
            continue
        raw = node.known_attrs
        if type(raw) is not tuple:
            attrs: Any = raw
            if attrs.markers:
                put(_variable_of(node, book, numrecs))
                continue
            raw = attrs.raw
        put(_make(Var, (name, kind[0], raw, kind[1], -1)))
    return made


def _plain_kind(node: DatasetNode, book: DimBook, numrecs: int) -> tuple[tuple[int, ...], int] | None:
    """Return dimensions and type, if they say all that there is to say of datasets like this one; else None."""
    element, shape = node.element, node.shape or ()
    if element.kind != "number" or element.nc_type in _AMBIGUOUS or not element.dtype.isnative or node.is_placeholder:
        return None
    dims = book.place(node)
    if book.dims[dims[-1]].name == COMPLEX_DIM or _marker_of(node, dims, book, numrecs):
        return None
    if len(shape) == 1 and not node.is_record and book.is_of_one(book.dims[dims[0]].name):
        # A single axis may not have its dataset's name.
        return None
    return dims, element.nc_type


_SHORT = 60
"""Characters of a name that is surely short enough."""

_make = tuple.__new__


def _variable_of(node: DatasetNode, book: DimBook, numrecs: int, visible: tuple[int, ...] | None = None) -> Var:
    """Return one variable with its attributes and marker.

    visible : tuple of int, the dimensions of its axes in `book`, where they are known.
    """
    element = node.element
    if isinstance(node.parent, DatasetNode):
        _name_samples(node)
    if visible is None:
        visible = book.place(node)
    dims = visible + book.hidden(element.trailing, element.trailing_names) if element.trailing else visible
    marker = _marker_of(node, visible, book, numrecs)
    attrs = _variable_attrs(node, element, dims, book, marker)
    return Var(node.cdf_name, dims, attrs, element.nc_type)


def _marker_of(node: DatasetNode, visible: tuple[int, ...], book: DimBook, numrecs: int) -> dict[str, Any]:
    """Return what the name and the dimensions do not say of a dataset."""
    marker: dict[str, Any] = {}
    name, limits = node.cdf_name, node.maxshape
    parent: Node | None = node.parent
    if type(parent) is DatasetNode:
        # So that a damaged `parts` cannot take the variables of other datasets.
        marker["part"] = parent.path
    elif parent is None:
        marker["loose"] = True
    elif parent is not node.tree.root or (node.name != name and dataset_name(name) != node.name):
        marker["path"] = node.path
    if node.is_placeholder:
        _describe_placeholder(node, marker)
    elif limits is not None and node.is_record and node.shape and node.shape[0] != numrecs:
        marker["len"] = node.shape[0]
    as_dimensions = limits is None or node.shape is None or (node.is_record and limits[1:] == node.shape[1:])
    if limits is not None and (node.away is not None or not as_dimensions):
        marker["max"] = list(limits)
    if "track_order" in node.ignored:
        marker["track"] = True
    if type(parent) is not DatasetNode:
        _describe_axes(node, visible, book, marker)
    return marker


def _describe_placeholder(node: DatasetNode, marker: dict[str, Any]) -> None:
    if node.away is not None:
        node.describe(marker)  # type: ignore[attr-defined]
        return
    if node.shape is None:
        marker["null"] = True
        return
    marker["shape"] = list(node.shape)
    if node.parts:
        marker["parts"] = {name: part.cdf_name for name, part in node.parts.items()}
    if node.is_record:
        marker["record"] = True


def _describe_axes(node: DatasetNode, visible: tuple[int, ...], book: DimBook, marker: dict[str, Any]) -> None:
    """Put into the marker what the dimensions do not say of scales and labels.

    A coordinate variable says that it is a scale of the name of its dataset, as netCDF-4 and most programs have it; one
    without a name, which h5py tells apart, has a marker. The dimension of a scale names no label: most axes with a
    scale have none, and would need a marker that says so.
    """
    plain, axes = True, node.seen_axes()
    for axis, index in zip(axes, visible, strict=False):
        coordinate, scales = book.coordinates[index], axis.scales
        if coordinate is None or coordinate is node:
            plain = plain and not scales and axis.label == book.labels[index] and not axis.only_label
        else:
            plain = plain and len(scales) == 1 and scales[0] is coordinate and not axis.label
    is_coordinate = len(visible) == 1 and book.coordinates[visible[0]] is node
    if node.scale != (node.name if is_coordinate else None):
        marker["scale"] = node.scale
    if plain and len(visible) == len(axes):
        return
    ids = visible or (-1,) * len(axes)
    labels = ["" if index < 0 else book.labels[index] for index in ids]
    if [axis.label for axis in axes] != labels or any(axis.only_label for axis in axes):
        marker["labels"] = [axis.label for axis in axes]
    derived = [None if index < 0 or book.coordinates[index] is node else book.coordinates[index] for index in ids]
    if [axis.scales for axis in axes] != [[] if scale is None else [scale] for scale in derived]:
        marker["scales"] = [[scale.cdf_name for scale in axis.scales] for axis in axes]


# ----------------------------------------------------------------------------------------------- attributes


def _variable_attrs(
    node: DatasetNode, element: Element, dims: tuple[int, ...], book: DimBook, marker: dict[str, Any]
) -> tuple[Attr, ...]:
    """Return all attributes of a variable; what they do not say of its type goes to the marker."""
    own_attrs = written = named_attrs(node.attrs, marker)
    if isinstance(node.parent, DatasetNode):
        written = _with_samples(node, written, book)
    plain = _type_says_all(element, dims, book.dims)
    generated = () if plain else conventions.generated_attrs(element)
    if generated:
        present = {attr.name: attr for attr in written}
        own = [attr.name for attr in generated if present.get(attr.name) == attr]
        if own:
            marker["own"] = own
        written += tuple(attr for attr in generated if attr.name not in present)
    if plain:
        pass
    elif element.is_string and element.trailing and not any(attr.name == "_Encoding" for attr in own_attrs):
        # What `derive` says of a string without asking it: most variables with a marker are strings.
        if (element.kind == "vlen_string") != (element.encoding == "utf-8"):
            marker["type"] = element.kind
    else:
        seen = [book.dims[index] for index in dims if book.dims[index].size]
        sizes, names = tuple(dim.size for dim in seen), tuple(dim.name for dim in seen)
        marker |= conventions.element_marker(element, conventions.derive(element.nc_type, sizes, names, written))
    if node.fillvalue is not None:
        written = with_fill(node.fillvalue, element, written, marker)
    if marker:
        written += (dump_marker(marker),)
    return written


def _type_says_all(element: Element, dims: tuple[int, ...], known: Sequence[Dim]) -> bool:
    """Return whether a variable's type and its dimensions, of those that are `known`, say all of its elements.

    No attribute changes that.
    """
    code = element.nc_type
    if element.kind != "number" or code in _AMBIGUOUS or not element.dtype.isnative:
        return False
    return not (code in (FLOAT, DOUBLE) and dims and known[dims[-1]].name == COMPLEX_DIM)


def _name_samples(node: DatasetNode) -> None:
    """Give the values of rows a dimension of their own, unless the file has one."""
    owner = node.owner
    if owner is not None and _is_row_part(node, "values") and node.axes:
        node.axes[0].dim_name = node.axes[0].dim_name or f"{owner.cdf_name}_{SAMPLES}"


def _is_row_part(node: DatasetNode, name: str) -> bool:
    """Return whether a part is that one of an array of varying length."""
    owner = node.owner
    if owner is None or owner.parts.get(name) is not node:
        return False
    from pnc_vol.mapping import composite

    # a compound may have fields of these names
    return composite.is_ragged(owner.element.dtype)


def _with_samples(node: DatasetNode, written: tuple[Attr, ...], book: DimBook) -> tuple[Attr, ...]:
    """Return CF's attribute of the lengths of rows: the dimension of their values."""
    if not _is_row_part(node, "count"):
        return written
    written = tuple(attr for attr in written if attr.name != SAMPLE_DIMENSION)
    values = node.owner.parts["values"]  # type: ignore[union-attr]
    _name_samples(values)
    dims = book.place(values)
    if not dims:
        return written
    name = book.dims[dims[0]].name.encode("utf-8", "surrogateescape")
    return (*written, Attr(SAMPLE_DIMENSION, CHAR, len(name), name))


# ------------------------------------------------------------------------- from the header before, by what changed


def changed(
    flat: Flat, header: Header, tree: Tree, place: Callable[[Header], list[int] | None] | None = None
) -> Flat | None:
    """Return what `to_header` would make of a tree that has other attributes, numbers of records or more datasets than
    `flat`.

    The cost is that of the objects that changed. Variables that were there keep the begins that they have in `header`.

    Parameters
    ----------
    flat : Flat, as it was
    header : Header, its own, or the same with begins; with the number of records of `numrecs_of`
    tree : Tree
    place : callable, optional
        Returns the begins of new variables, which are a header of their own; None if they get none yet.

    Returns
    -------
    Flat or None
        None if it is to be made anew: much has changed, or more than that.

    Raises
    ------
    DefinitionError
        An attribute that the version cannot hold.
    """
    changed = tree.changed
    most = max(_MANY, len(flat.uids) // 4)
    if changed is None or len(changed.added) > most or (changed.added and changed.removed):
        return None
    if changed.added and any(node.maxshape is not None for node in changed.added):
        # One that grew since is among those that were resized, too.
        return None
    gone = _gone(flat, header, changed.removed) if changed.removed else []
    if gone is None:
        return None
    nodes: dict[int, DatasetNode] = {}
    grouped = False
    for one in changed.attributes:
        if isinstance(one, DatasetNode):
            nodes[one.uid] = one
        else:
            grouped = True
    for node in changed.added:
        nodes.pop(node.uid, None)
    lengths, numrecs = flat.lengths, header.numrecs
    if changed.resized:
        found = _resized(flat, tree, changed.resized)
        if found is None:
            return None
        lengths, numrecs, changed_nodes = found
        if not (changed_nodes or nodes or grouped or changed.added or gone):
            # Records alone: no variable is looked at.
            header = header.with_numrecs(numrecs)
            return Flat(header, flat.uids, flat.book, flat.moved, lengths, flat.names)
        nodes |= changed_nodes
    if len(nodes) > most:
        return None
    if nodes or changed.added:
        flat = _book_of(flat, tree)
    own: dict[int, tuple[Attr, ...]] = {}
    uids, positions = flat.uids, dict[int, int]()
    for uid, node in nodes.items():
        i = bisect_left(uids, uid)
        if uids[i : i + 1] != (uid,):
            # a drain gave datasets their places in another order
            positions = positions or dict(zip(uids, range(len(uids)), strict=True))
            i = positions.get(uid, -1)
        attrs = None if i < 0 else _attrs_of(flat, node, header.vars[i], numrecs, resized=node in changed.resized)
        if attrs is None:
            return None
        if len(attrs) != len(header.vars[i].attrs) or attrs != header.vars[i].attrs:
            own[i] = attrs
    of_file = global_attrs(tree) if grouped else header.attrs
    added: Header | None = None
    if changed.added:
        added = _added(flat, tree, changed.added, numrecs)
        if added is None:
            return None
        if place is not None and (begins := place(added)):
            added = added.with_begins(begins)
    if numrecs != header.numrecs:
        header = header.with_numrecs(numrecs)
    if own or gone or added or len(of_file) != len(header.attrs) or of_file != header.attrs:
        header = with_changes(header, attrs=of_file, own=own, gone=gone, added=added)
    if gone:
        uids = without(uids, gone)
        flat.names.clear()
    if changed.added:
        uids += tuple([node.uid for node in changed.added])
        flat.names.update([node.cdf_name for node in changed.added])
    return Flat(header, uids, flat.book, flat.moved, lengths, flat.names)


def _gone(flat: Flat, header: Header, removed: dict[int, DatasetNode]) -> list[int] | None:
    """Return the indices of the variables of plain datasets of the root; None if that they go may change the dimensions
    of others.

    It does not where all of a variable's dimensions are those of one before it, and its name is that of none.
    """
    if len(removed) > _MANY:
        return None
    gone = sorted(map(flat.uids.index, removed))
    names = {node.cdf_name for node in removed.values()}
    if any(map(may_be_made, names)) or not names.isdisjoint(map(itemgetter(0), header.dims)):
        return None
    for dims in {header.vars[i].dims for i in gone}:
        if dims and dims not in map(itemgetter(1), islice(header.vars, gone[0])):
            return None
    if flat.book is not None:
        for node in removed.values():
            flat.book.go_plain(node)
    return gone


def _book_of(flat: Flat, tree: Tree) -> Flat:
    """Return the same with the dimensions: of a file as it was read they are looked at when a variable changes."""
    if flat.book is not None:
        return flat
    header, plain = flat.header, partial(plain_names, tree.datasets, flat.uids, flat.header.vars)
    book = DimBook.as_read(header.dims, tree.file_dims.coordinates, plain)
    book.unused = bool(tree.file_dims.spare)
    return flat._replace(book=book)


def _attrs_of(flat: Flat, node: DatasetNode, old: Var, numrecs: int, *, resized: bool) -> tuple[Attr, ...] | None:
    """Return all attributes of a variable; None if it differs in more."""
    assert flat.book is not None
    # attributes, and records of a dataset that has some, change no dimension
    visible = old.dims[: len(old.dims) - len(node.element.trailing)] if flat.moved is None and not resized else None
    var = _variable_of(node, flat.book, numrecs, visible)
    dims = var.dims if flat.moved is None else tuple(flat.moved[index] for index in var.dims)
    return var.attrs if (var.name, dims, var.type) == (old.name, old.dims, old.type) else None


def _added(flat: Flat, tree: Tree, nodes: list[DatasetNode], numrecs: int) -> Header | None:
    """Return the variables of new datasets, and all dimensions; None if they may change what there is.

    Only datasets of fixed shape are known not to: scales give axes of others their dimension, and records move those of
    others.
    """
    header, book, taken = flat.header, flat.book, flat.names
    # Dimensions that no variable uses are in no book but that of a header that was read; new variables may change them.
    if book is None or header.version != 5 or len(header.dims) != len(book.dims) or book.unused:
        return None
    if not taken:
        taken.update(map(itemgetter(0), header.vars))
    fresh: set[str] = set()
    found: list[Var] = []
    for node in nodes:
        name = node.name if node.parent is tree.root else variable_name(node.path, tree.separator)
        plain = node.scale is None and node.made_axes is None
        if not plain or node.is_placeholder or not _is_plain_name(name) or name in taken or name in fresh:
            return None
        node.cdf_name = name
        fresh.add(name)
        if not book.come_plain(node):
            return None
        found.append(_variable_of(node, book, numrecs))
    new = book.dims[len(header.dims) :]
    if new and (
        flat.moved is not None or not {dim.name for dim in new}.isdisjoint(dim.name for dim in tree.file_dims.order)
    ):
        return None
    if flat.moved is not None:
        found = [var._replace(dims=tuple(flat.moved[index] for index in var.dims)) for var in found]
    return Header(header.version, 0, (*header.dims, *new), (), tuple(found))


def _resized(
    flat: Flat, tree: Tree, resized: dict[DatasetNode, int]
) -> tuple[dict[int, int], int, dict[int, DatasetNode]] | None:
    """Return how many datasets have each number of records now, the largest, and the datasets whose marker tells it.

    None if it is that of any other dataset that changes, because the file has more or fewer records.
    """
    lengths, old = dict(flat.lengths), flat.header.numrecs
    # Those that are written together have the same two numbers: all else is done once for all of them.
    alike: dict[tuple[int, int], list[DatasetNode]] = {}
    changed_nodes: dict[int, DatasetNode] = {}
    for node, before in resized.items():
        shape = node.shape
        # `is_placeholder`, of a dataset with records
        if not shape or node.element.kind == "composite" or 0 in shape[1:]:
            changed_nodes[node.uid] = node
        else:
            alike.setdefault((before, shape[0]), []).append(node)
    for (before, _), nodes in alike.items():
        lengths[before] -= len(nodes)
    others = {n for n, count in lengths.items() if count}
    for (_, now), nodes in alike.items():
        lengths[now] = lengths.get(now, 0) + len(nodes)
    lengths = {n: count for n, count in lengths.items() if count}
    numrecs = numrecs_for(tree, lengths)
    if numrecs != old and (old in others or numrecs in others):
        return None
    for (before, now), nodes in alike.items():
        if before != old or now != numrecs:
            changed_nodes.update([(node.uid, node) for node in nodes])
    return lengths, numrecs, changed_nodes
