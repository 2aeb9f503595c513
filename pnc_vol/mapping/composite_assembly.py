"""Datasets that take several variables, put together from a header.

Knows: the keys ``parts`` and ``part`` of markers. Does not know: headers, bytes.

Rules
-----
1. A dataset gets its parts only if all of them are there, of the type and shape that its own type asks for, and nobody
   else's; otherwise it is the scalar byte that the file has, and its parts are datasets of the root group.
2. Nothing is allocated because a marker says so: shapes are those of variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pnc_vol.mapping.composite import Part, parts_of, ragged_base
from pnc_vol.mapping.describe import describe
from pnc_vol.mapping.dtypes import Element, element_for
from pnc_vol.mapping.markers import shown
from pnc_vol.mapping.tree import NO_PARTS, Axis, DatasetNode

__all__ = ["assemble", "share_axes"]

Marker = Mapping[str, Any]
MAX_RANK = 32


def assemble(
    composites: list[tuple[DatasetNode, Marker]], loose: dict[str, DatasetNode], findings: list[str]
) -> list[DatasetNode]:
    """Give each dataset of `composites` its parts; returns the parts that belong to no dataset.

    Parameters
    ----------
    composites : datasets whose type takes several variables, with their markers
    loose : the variables that say they are a part, by name
    findings : gets a sentence for each dataset that cannot be put together
    """
    for node, marker in composites:
        node.shape = _shape(marker)
        node.made_axes = [Axis() for _ in node.shape or ()]
        if node.shape and marker.get("record") is True:
            node.maxshape = (None, *node.shape[1:])
        limits = marker.get("max")
        if "max" in marker:
            if isinstance(limits, list) and len(limits) == len(node.shape or ()) and _are_limits(limits, node.shape):
                node.maxshape = tuple(limits)
            else:
                findings.append(
                    f"variable {shown(node.cdf_name)}: max {shown(limits)} of its marker does not fit; it is ignored"
                )
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


def _are_limits(limits: list[Any], shape: tuple[int, ...] | None) -> bool:
    return all(
        limit is None or (type(limit) is int and limit >= n) for limit, n in zip(limits, shape or (), strict=True)
    )


def _shape(marker: Marker) -> tuple[int, ...] | None:
    shape = marker.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(type(n) is int and n >= 0 for n in shape):
        return None
    return tuple(shape)


def _wanted(node: DatasetNode) -> list[Part]:
    base = ragged_base(node.element.dtype)
    found = parts_of(node.element.dtype)
    return found if base is None else [*found, Part("values", base)]


def _parts(node: DatasetNode, marker: Marker, loose: dict[str, DatasetNode]) -> dict[str, DatasetNode] | None:
    """The parts of a dataset by name; none for an empty one, None if they do not fit."""
    if marker.get("null") is True:
        node.shape = None
        return {}
    names = marker.get("parts")
    if not isinstance(names, dict) or node.shape is None:
        return None
    ragged = ragged_base(node.element.dtype) is not None
    found: dict[str, DatasetNode] = {}
    for name, dtype, inner in _wanted(node):
        said = names.get(name)
        part = loose.get(said) if isinstance(said, str) else None
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
    """True if `part` is the dataset itself or one that it belongs to."""
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
        # numpy's equality does not look at what objects are
        return bool(describe(found.dtype) == describe(wanted.dtype))
    return found.kind == "vlen_string" or (found.file_dtype == wanted.file_dtype and found.dtype == wanted.dtype)


def share_axes(composites: list[tuple[DatasetNode, Marker]]) -> None:
    """Let parts have the axes of their dataset, so that scales and labels name the dimensions of both."""
    for node, _ in composites:
        for name, part in node.parts.items():
            if name == "values" and ragged_base(node.element.dtype) is not None:
                continue
            for axis, own in zip(node.axes, part.axes, strict=False):
                axis.dim_name = axis.dim_name or own.dim_name
            part.axes[: len(node.axes)] = node.axes
