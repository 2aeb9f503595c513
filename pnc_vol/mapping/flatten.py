"""A tree becomes a header.

Knows: which variable, which attributes and which marker each dataset and group needs. Does not know: bytes,
files, where data lies (`begin` stays -1).

Rules
-----
1. Names that variables have are kept; new ones are made in the order of creation.
2. A marker holds only what `mapping.unflatten` would not find out without it.
3. Attributes that nobody changed are passed on as the bytes they were read as.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.format.types import BYTE, CHAR, DOUBLE, FLOAT
from pnc_vol.late import late
from pnc_vol.mapping.attribute_owners import global_attrs, named_attrs, with_fill
from pnc_vol.mapping.dimensions import DimBook
from pnc_vol.mapping.dtypes import COMPLEX_DIM, Element
from pnc_vol.mapping.markers import dump_marker
from pnc_vol.mapping.names import NameBook, dataset_name, legal_name, variable_name
from pnc_vol.mapping.tree import DatasetNode, Tree

if TYPE_CHECKING:
    from pnc_vol.mapping import composite, conventions
else:
    # compounds and arrays of varying length are rare
    composite = late("pnc_vol.mapping.composite")
    conventions = late("pnc_vol.mapping.conventions")

__all__ = ["Flat", "is_plain_name", "numrecs_for", "numrecs_of", "to_header", "type_says_all", "variable_of"]

SAMPLE_DIMENSION, SAMPLES = "sample_dimension", "sample"
"""CF's attribute of contiguous ragged arrays, and the end of the names of their dimensions."""

_AMBIGUOUS = (BYTE, CHAR)
"""Types whose meaning depends on the attributes of a variable."""


class Flat(NamedTuple):
    """A header and whose its variables are.

    header : Header, not placed (`begin` -1, `numrecs` 0), or with the begins that it has in the file.
    uids : tuple of int, ``header.vars[i]`` belongs to the dataset ``uids[i]``.
    book : DimBook or None, the dimensions as they were found, and what is known of them; None of a file as it was read.
    moved : list of int or None, the index in the header of each dimension of `book`, if it is another one.
    lengths : dict of int to int, how many datasets have each number of records.
    numbers : dict of int to int, uids and their numbers; empty until the first change of a variable looks for one.
    names : set of str, of all variables; empty until the first new variable asks for them.
    """

    header: Header
    uids: tuple[int, ...]
    book: DimBook | None
    moved: list[int] | None
    lengths: dict[int, int]
    numbers: dict[int, int]
    names: set[str]


def numrecs_of(tree: Tree) -> int:
    """Records that the file needs: the longest record dataset, but no fewer than there are already."""
    return numrecs_for(tree, _lengths(tree))


def _lengths(tree: Tree) -> dict[int, int]:
    growing = [node for node in tree.datasets.values() if node.maxshape is not None]
    if not growing:
        return {}
    return Counter(node.shape[0] for node in growing if node.is_record and not node.is_placeholder and node.shape)


def numrecs_for(tree: Tree, lengths: dict[int, int]) -> int:
    """The same, from how many datasets have each number of records."""
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
    return Flat(header, tuple(tree.datasets), book, moved, lengths, {}, set())


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
        if in_root and is_plain_name(name) and name not in book.taken:
            book.taken.add(name)
            node.cdf_name = name
        else:
            wanted_name = legal_name(name) if in_root else variable_name(node.path, tree.separator)
            node.cdf_name = book.take(wanted_name)


def is_plain_name(name: str) -> bool:
    """Whether the name of a dataset in the root is surely that of its variable, if no other one has it."""
    return len(name) < _SHORT and name.isidentifier() and name.isascii()


def _variables(nodes: list[DatasetNode], book: DimBook, tree: Tree, numrecs: int) -> list[Var]:
    """The variables of all datasets; most are numbers in the root whose dimensions say all of their axes.

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
            put(variable_of(node, book, numrecs))
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
            put(variable_of(node, book, numrecs))
            continue
        raw = node.known_attrs
        if type(raw) is not tuple:
            attrs: Any = raw
            if attrs.markers:
                put(variable_of(node, book, numrecs))
                continue
            raw = attrs.raw
        put(_make(Var, (name, kind[0], raw, kind[1], -1)))
    return made


def _plain_kind(node: DatasetNode, book: DimBook, numrecs: int) -> tuple[tuple[int, ...], int] | None:
    """Dimensions and type, if they say all that there is to say of datasets like this one; else None."""
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


def variable_of(node: DatasetNode, book: DimBook, numrecs: int) -> Var:
    """One variable with its attributes and marker."""
    element, owner = node.element, node.owner
    if owner is not None:
        _name_samples(node)
    visible = book.place(node)
    dims = visible + book.hidden(element.trailing, element.trailing_names) if element.trailing else visible
    marker = _marker_of(node, visible, book, numrecs)
    attrs = _variable_attrs(node, element, dims, book, marker)
    return Var(node.cdf_name, dims, attrs, element.nc_type)


def _marker_of(node: DatasetNode, visible: tuple[int, ...], book: DimBook, numrecs: int) -> dict[str, Any]:
    """What the name and the dimensions do not say of a dataset."""
    marker: dict[str, Any] = {}
    name, owner = node.cdf_name, node.owner
    if owner is not None:
        marker["part"] = owner.path
    elif node.parent is None:
        marker["loose"] = True
    elif node.parent is not node.tree.root or (node.name != name and dataset_name(name) != node.name):
        marker["path"] = node.path
    if node.is_placeholder:
        _describe_placeholder(node, marker)
    elif node.maxshape is not None and node.is_record and node.shape and node.shape[0] != numrecs:
        marker["len"] = node.shape[0]
    limits = node.maxshape
    if limits is not None and node.shape is not None and not (node.is_record and limits[1:] == node.shape[1:]):
        marker["max"] = list(limits)
    if "track_order" in node.ignored:
        marker["track"] = True
    if owner is None:
        _describe_axes(node, visible, book, marker)
    return marker


def _describe_placeholder(node: DatasetNode, marker: dict[str, Any]) -> None:
    if node.shape is None:
        marker["null"] = True
        return
    marker["shape"] = list(node.shape)
    if node.parts:
        marker["parts"] = {name: part.cdf_name for name, part in node.parts.items()}
    if node.is_record:
        marker["record"] = True


def _describe_axes(node: DatasetNode, visible: tuple[int, ...], book: DimBook, marker: dict[str, Any]) -> None:
    """Put into the marker what the dimensions do not say of scales and labels."""
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
    """All attributes of a variable; what they do not say of its type goes to the marker."""
    own_attrs = written = named_attrs(node.attrs, marker)
    if node.owner is not None:
        written = _with_samples(node, written, book)
    generated = conventions.generated_attrs(element)
    if generated:
        present = {attr.name: attr for attr in written}
        own = [attr.name for attr in generated if present.get(attr.name) == attr]
        if own:
            marker["own"] = own
        written += tuple(attr for attr in generated if attr.name not in present)
    code = element.nc_type
    if element.is_string and element.trailing and not any(attr.name == "_Encoding" for attr in own_attrs):
        # What `derive` says of a string without asking it: most variables with a marker are strings.
        if (element.kind == "vlen_string") != (element.encoding == "utf-8"):
            marker["type"] = element.kind
    elif not type_says_all(element, dims, book.dims):
        seen = [book.dims[index] for index in dims if book.dims[index].size]
        sizes, names = tuple(dim.size for dim in seen), tuple(dim.name for dim in seen)
        marker |= conventions.element_marker(element, conventions.derive(code, sizes, names, written))
    if node.fillvalue is not None:
        written = with_fill(node.fillvalue, element, written, marker)
    if marker:
        written += (dump_marker(marker),)
    return written


def type_says_all(element: Element, dims: tuple[int, ...], known: Sequence[Dim]) -> bool:
    """Whether a variable's type and its dimensions, of those that are `known`, say all of its elements.

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
    """Whether a part is that one of an array of varying length."""
    owner = node.owner
    if owner is None or owner.parts.get(name) is not node:
        return False
    # a compound may have fields of these names
    return composite.is_ragged(owner.element.dtype)


def _with_samples(node: DatasetNode, written: tuple[Attr, ...], book: DimBook) -> tuple[Attr, ...]:
    """CF's attribute of the lengths of rows: the dimension of their values."""
    if node.owner is None or not _is_row_part(node, "count"):
        return written
    written = tuple(attr for attr in written if attr.name != SAMPLE_DIMENSION)
    values = node.owner.parts["values"]
    _name_samples(values)
    dims = book.place(values)
    if not dims:
        return written
    name = book.dims[dims[0]].name.encode("utf-8", "surrogateescape")
    return (*written, Attr(SAMPLE_DIMENSION, CHAR, len(name), name))
