"""A program names dimensions, as NetCDF programs do: it declares them, and gives the axes by their names.

Knows: dimensions that were declared, axes, coordinate variables. Does not know: which dimension an axis gets when the
header is made (`mapping.dimensions`), files.

Rules
-----
1. A declared dimension keeps its place among the dimensions of the file, also if no variable uses it.
2. A dataset in the root of one axis whose dimension has its name is a coordinate variable: a scale that is attached to
   every axis given by that name, whichever of the two was made first.
3. Names are checked before anything changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import check_name
from pnc_vol.format.model import Dim
from pnc_vol.mapping.dimensions import label_of
from pnc_vol.mapping.tree import DatasetNode, FileDims, Tree

__all__ = ["declare", "name_axes"]


def declare(tree: Tree, name: str, size: int | None) -> None:
    """Add a dimension to those of the file, behind those that are there.

    Parameters
    ----------
    tree : Tree
    name : str
    size : int or None, None for the record dimension

    Raises
    ------
    DefinitionError
        A name that NetCDF does not allow, a length below 1, a name that has another length, a second record dimension.

    Examples
    --------
    >>> tree = Tree()
    >>> declare(tree, "time", None)
    >>> tree.file_dims.order
    (Dim(name='time', size=0),)
    """
    check_name(name)
    if size is not None and size < 1:
        raise DefinitionError(f"dimension {name!r}: its length is {size}; give 1 or more, or None for records")
    dim = Dim(name, size or 0)
    order, spare = tree.file_dims.order, tree.file_dims.spare
    for known in order:
        if known == dim:
            return
        if known.name == name:
            raise DefinitionError(
                f"dimension {name!r} has {_size_text(known.size)} in this file, {_size_text(dim.size)} was asked"
            )
        if not known.size and not dim.size:
            raise DefinitionError(
                f"dimension {name!r}: the file has the record dimension {known.name!r} already, and CDF has only one"
            )
    tree.file_dims = FileDims((*order, dim), spare | {name})
    tree.touch()


def name_axes(node: DatasetNode, names: Sequence[str]) -> None:
    """Give the axes of a new dataset names.

    Parameters
    ----------
    node : DatasetNode
    names : sequence of str, one for each axis, and one more if the length of its strings is to have a name

    Raises
    ------
    TypeError
        A name that is no text.
    DefinitionError
        Too few or too many names, a name that NetCDF does not allow or that has another length. Nothing has changed.
    """
    tree, shape, record = node.tree, node.shape or (), node.is_record
    # Programs give the axes of many datasets the same names; those of characters may name one axis more.
    kind = (names, shape, record) if type(names) is tuple and node.element.kind == "number" else None
    try:
        found = tree.file_dims.named.get(kind)
    except TypeError:
        kind = found = None
    if found is None:
        found = _checked(node, names)
        if kind is not None:
            tree.file_dims.named[kind] = found
    node.names = found
    if len(shape) == 1 and found[0][1] == node.name and node.parent is tree.root:
        node.scale = node.name
        for other in tree.datasets.values():
            _attach(other, (node,))
    children = tree.root.children
    scales = [_coordinate(children.get(name)) for _, name in found]  # type: ignore[arg-type]
    if any(scales):
        _attach(node, [scale for scale in scales if scale is not None])


def _checked(node: DatasetNode, names: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Label and name of each axis, if all names can be given."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"dims={names!r}: a name for each axis is needed, such as ('time', 'x')")
    given, shape = tuple(names), node.shape or ()
    hidden = node.element.trailing if node.element.is_string else ()
    if len(given) not in (len(shape), len(shape) + len(hidden)):
        more = ", or one more for the length of its strings" if hidden else ""
        raise DefinitionError(f"{node.path}: dims= has {len(given)} names, the dataset has {len(shape)} axes{more}")
    sizes = (0, *shape[1:]) if node.is_record else shape
    declared = dict(node.tree.file_dims.order)
    for name, size in zip(given, (*sizes, *hidden), strict=False):
        check_name(name)
        if declared.get(name, size) != size:
            raise DefinitionError(
                f"{node.path}: dimension {name!r} has {_size_text(declared[name])}, the axis {_size_text(size)}"
            )
    if len(given) > len(shape):
        node.element = node.element._replace(trailing_names=given[len(shape) :])
    return tuple((label_of(name, size), name) for name, size in zip(given, sizes, strict=False))


def _coordinate(node: Any) -> DatasetNode | None:
    """Return what stands in the root under the name of a dimension, if it is its coordinate variable."""
    if type(node) is DatasetNode and node.scale is not None and len(node.shape or ()) == 1:
        return node
    return None


def _attach(node: DatasetNode, scales: Iterable[DatasetNode]) -> None:
    """Attach coordinate variables to the axes that were given by their names, which take the place of labels."""
    for scale in scales:
        for index, (_, name) in enumerate(node.names):
            if name == scale.name:
                axis = node.axes[index]
                axis.label = ""
                if scale is not node and scale not in axis.scales:
                    axis.scales.append(scale)


def _size_text(size: int) -> str:
    return f"length {size}" if size else "records"
