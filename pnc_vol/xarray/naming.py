"""What the axes of datasets are called in xarray.

Knows: axes, labels, scales. Does not know: xarray, headers.

Rules
-----
1. An axis has the name of its NetCDF dimension, as every other program shows it.
2. In a group, a scale of that group or of one above it gives its own name instead: the variable of ``/ocean/depth`` has
   the dimension ``ocean_depth``, and the axis is called ``depth``. So does a label where the dimension's name was only
   made for its length, and where there is none, because a length is 0.
3. Two lengths never have one name within a group, since xarray refuses that: then the dimension's name stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from pnc_vol.mapping.dimensions import is_nameless
from pnc_vol.mapping.tree import Axis, DatasetNode, GroupNode, Node

__all__ = ["axis_names", "sizes_of"]


def axis_names(node: DatasetNode, group: GroupNode) -> tuple[tuple[str, str], ...]:
    """Of each axis the name that is wanted in a group, and the one of its dimension.

    Parameters
    ----------
    node : DatasetNode, of the group
    group : GroupNode
    """
    shape = node.shape or ()
    found = []
    for index, (axis, size) in enumerate(zip(node.seen_axes(), shape, strict=True)):
        record = index == 0 and node.is_record
        given = axis.dim_name or f"dim_{size}"
        found.append((_wanted(node, axis, given, 0 if record else size, group), given))
    return tuple(found)


def _wanted(node: DatasetNode, axis: Axis, given: str, size: int, group: GroupNode) -> str:
    if group.parent is not None or axis.dim_name is None:
        scale = node if node.scale is not None and len(node.shape or ()) == 1 else None
        if scale is None and axis.scales and _above(axis.scales[0], group):
            scale = axis.scales[0]
        if scale is not None and scale.name:
            return scale.name
        if axis.label:
            return axis.label
    if axis.label and (axis.dim_name is None or is_nameless(given, size)):
        return axis.label
    return given


def _above(node: Node, group: GroupNode) -> bool:
    """Whether a dataset is in the group, or in one above it."""
    step: GroupNode | None = group
    while step is not None:
        if node.parent is step:
            return True
        step = step.parent
    return False


def sizes_of(shapes: Iterable[tuple[tuple[tuple[str, str], ...], tuple[int, ...]]]) -> list[tuple[str, ...]]:
    """The names of the axes of all variables of a group: those that are wanted, as far as no name has two lengths.

    Parameters
    ----------
    shapes : iterable of (names, shape)
        Names as `axis_names` gives them.

    Examples
    --------
    >>> sizes_of([((("x", "dim_2"),), (2,)), ((("x", "dim_3"),), (3,))])
    [('x',), ('dim_3',)]
    """
    sizes: dict[str, int] = {}
    named = []
    for names, shape in shapes:
        mine: list[str] = []
        for (wanted, given), size in zip(names, shape, strict=True):
            free = sizes.get(wanted, size) == size and wanted not in mine
            name = wanted if free or wanted == given else given
            number = 2
            while sizes.setdefault(name, size) != size:
                name, number = f"{given}_{number}", number + 1
            mine.append(name)
        named.append(tuple(mine))
    return named
