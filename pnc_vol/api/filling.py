"""Fill values of compounds: one for each part.

Knows: parts of a dataset, fill values of one variable (`create`). Does not know: how unwritten elements are filled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.api.create import fill_bytes, fill_value
from pnc_vol.errors import ConversionError, DefinitionError, NotYetError
from pnc_vol.mapping.composite import conform
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["checked_fill", "composite_fill", "fill_parts"]


def checked_fill(value: Any, element: Element) -> Any:
    """The fill value of a compound, as a structured scalar.

    Raises
    ------
    ValueError
        It does not convert.
    NotYetError
        A type that has no fields.
    """
    if element.dtype.names is None:
        raise NotYetError(f"fillvalue={value!r}: {element.dtype!r} has no fill value; leave fillvalue= out")
    try:
        made = conform(value, element.dtype)
    except ConversionError as problem:
        raise DefinitionError(f"fillvalue={value!r}: {problem}") from None
    if made.shape != ():
        raise DefinitionError(f"fillvalue={value!r}: one value is needed")
    return made[()]


def fill_parts(node: DatasetNode, value: Any) -> None:
    """Give the parts of a new compound dataset their fill values."""
    if node.element.dtype.names is None:
        return
    for name, part in node.parts.items():
        if part.element.kind == "composite":
            fill_parts(part, value[name])
        else:
            part.element, part.fillvalue = fill_bytes(value[name], part.element)


def composite_fill(node: DatasetNode) -> Any:
    """The fill value of a dataset that takes several variables."""
    made = np.zeros((), node.element.dtype)
    for name in node.element.dtype.names or ():
        part = node.parts[name]
        made[name] = composite_fill(part) if part.parts else fill_value(part.fillvalue, part.element)
    return made[()]
