"""Attributes of a file as xarray has them.

Knows: attributes of a header, markers, which attributes are a convention. Does not know: xarray, variables' values.

Rules
-----
1. Without a marker, an attribute is what netCDF4 makes of it: text, one number, or a row of numbers. The marker adds
   shapes, lists of texts, truth values, complex numbers.
2. Attributes of a convention (``_Encoding``, ``dtype = "bool"``) are shown: xarray decodes them itself. Those of an
   enum are not: its members are in the type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pnc_vol.format.model import Attr
from pnc_vol.mapping.attributes import Attribute, Attributes, decode_attribute
from pnc_vol.mapping.names import MARKER

__all__ = ["shown"]


def shown(attributes: Attributes, raw: Iterable[Attr] = (), *, enum: bool = False) -> dict[str, Any]:
    """The attributes of a group or variable, in the order in which they are stored.

    Parameters
    ----------
    attributes : Attributes
        Those that users of h5py's interface see.
    raw : iterable of Attr
        All attributes of the variable in the header; none for a group.
    enum : bool
        The variable is an enum.

    Examples
    --------
    >>> shown(Attributes((Attr("units", 2, 1, b"K"),)))
    {'units': 'K'}
    """
    found: dict[str, Any] = {}
    seen = {attr.name: name for name, attr in attributes.stored().items()}
    for attr in raw:
        name = seen.pop(attr.name, None)
        if name is not None:
            found[name] = _value(attributes[name])
        elif attr.name != MARKER and not enum:
            found[attr.name] = _value(decode_attribute(attr))
    for name in seen.values():
        found[name] = _value(attributes[name])
    return found


def _value(attribute: Attribute) -> Any:
    """A value as netCDF4 gives it: `str`, list of `str`, numpy scalar or array; empty text or row for an empty one."""
    value = attribute.value
    if value is None:
        return "" if attribute.dtype.kind in "OS" else np.empty(0, attribute.dtype)
    if value.dtype.kind == "S":
        value = np.array([_text(item) for item in value.ravel().tolist()], object).reshape(value.shape)
    if value.dtype.kind == "O":
        found = value.tolist()
        return found.replace("\0", "") if isinstance(found, str) else found
    return value[()] if value.ndim == 0 else value.copy()


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
