"""A fill value is encoded from what the user gives to the bytes of one element, and decoded again.

Knows: mapping's elements and encodings. Does not know: sessions; which elements nobody wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.errors import ConversionError, DefinitionError, NotYetError
from pnc_vol.format import convert
from pnc_vol.late import late
from pnc_vol.mapping import encoding
from pnc_vol.mapping.dtypes import Element, check_string_dtype
from pnc_vol.mapping.tree import DatasetNode

if TYPE_CHECKING:
    from pnc_vol.mapping import composite
else:
    composite = late("pnc_vol.mapping.composite")

__all__ = ["checked_fill", "fill_bytes", "fill_of", "fill_parts", "fill_value"]


def fill_bytes(value: Any, element: Element) -> tuple[Element, bytes | None]:
    """Return a fill value as one element of the file; a string element is widened to hold it.

    Raises
    ------
    TypeError
        No way from the value to the type.
    ValueError
        Not one value, or one that does not fit the type.
    """
    if value is None:
        return element, None
    given = value
    if element.kind == "array":
        value = np.broadcast_to(np.asarray(value), element.axes)
    elif not element.is_string:
        # a fill value is cast, as h5py does; out of range stays an error
        value = np.asarray(value)
    try:
        coded = encoding.encode(value, element)
    except ConversionError as problem:
        raise ConversionError(f"fillvalue={given!r}: {problem}") from None
    if coded.size != 1:
        raise DefinitionError(f"fillvalue={value!r}: one value is needed")
    if element.kind == "vlen_string" and coded.dtype.itemsize > element.itemsize:
        element = element.widened(coded.dtype.itemsize)
    raw = np.empty(element.itemsize, np.uint8)
    convert.to_file(coded.reshape(1), element.file_dtype, raw, what="fillvalue")
    if element.kind == "vlen_string":
        # without padding: ranks whose data differ in width must agree on the fill value
        return element, raw.tobytes().rstrip(b"\0") or None
    return element, raw.tobytes()


def fill_value(stored: bytes | None, element: Element) -> Any:
    """Return the fill value as the user sees it: a numpy scalar, or bytes for strings.

    Examples
    --------
    >>> fill_value(None, element_for("i2")).item()
    0
    """
    raw = np.frombuffer((stored or b"").ljust(element.itemsize, b"\0"), np.uint8)
    return encoding.decode(raw, element, (1,))[0]


def checked_fill(value: Any, element: Element) -> Any:
    """Return the fill value of a compound, as a structured scalar.

    Raises
    ------
    ValueError
        It does not convert.
    NotYetError
        A type that has no fields.
    """
    if element.dtype.names is None:
        raise NotYetError(f"fillvalue={value!r}: {element.dtype!r} has no fill value; leave fillvalue= out")
    if not isinstance(value, (tuple, list, np.ndarray, np.void)):
        raise DefinitionError(f"fillvalue={value!r}: a value for each field of {element.dtype!r} is needed")
    try:
        made = composite.conform(value, element.dtype)
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


def fill_of(node: DatasetNode) -> Any:
    """Return the fill value of a dataset, one that takes several variables included."""
    dtype = node.element.dtype
    if dtype.kind == "O" and check_string_dtype(dtype) is None:
        # HDF5 has none for arrays of varying length and references.
        return None
    if node.away is not None:
        stored = node.away.fill
        if dtype.kind == "O":
            return b""
        return np.zeros((), dtype)[()] if stored is None else np.frombuffer(stored, dtype)[0]
    if not node.parts:
        return fill_value(node.fillvalue, node.element)
    made = np.zeros((), node.element.dtype)
    for name in node.element.dtype.names or ():
        part = node.parts[name]
        made[name] = fill_of(part)
    return made[()]
