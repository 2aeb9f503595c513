"""Headers with the marker's former name, rewritten with the present one.

Knows: what the two names differ in. Does not know: bytes, files.
"""

from __future__ import annotations

from dataclasses import replace

from pnc_vol.format.model import Attr, Header
from pnc_vol.mapping.markers import dump_marker, load_marker, marker_attr
from pnc_vol.mapping.names import FORMER_MARKER, MARKER
from pnc_vol.mapping.unflatten import from_header

__all__ = ["with_present_marker"]


def with_present_marker(header: Header) -> Header:
    """The header with all markers under their present name; the same header if none has the former one.

    What is read from it stays the same: a coordinate variable without a marker has another name as a scale under each
    of the two, so that it gets a marker here.

    Examples
    --------
    >>> from pnc_vol.format.model import Var
    >>> header = Header(5, 0, (), (), (Var("v", (), (dump_marker({"null": True}, FORMER_MARKER),), 5),))
    >>> with_present_marker(header).vars[0].attrs[0].name
    'pnc_vol_hdf5'
    """
    owners = (header.attrs, *(var.attrs for var in header.vars))
    if not any(attr.name == FORMER_MARKER for attrs in owners for attr in attrs):
        return header
    tree = from_header(header)
    unnamed = set()
    if tree.marker == FORMER_MARKER:
        unnamed = {
            node.cdf_name
            for node in tree.datasets.values()
            if node.scale == "" and node.names and node.names[0][1] == node.cdf_name and not node.is_placeholder
        }
    variables = [
        var._replace(attrs=_renamed(var.attrs, var.name in unnamed and not _names_scale(var.attrs)))
        for var in header.vars
    ]
    return replace(header, attrs=_renamed(header.attrs, False), vars=tuple(variables))


def _names_scale(attrs: tuple[Attr, ...]) -> bool:
    attr = marker_attr(attrs)
    return attr is not None and "scale" in load_marker(attr, "", [])


def _renamed(attrs: tuple[Attr, ...], unnamed: bool) -> tuple[Attr, ...]:
    """The attributes with the marker that counts under its present name; `unnamed` adds the empty name of a scale."""
    counts = marker_attr(attrs)
    if counts is None:
        return (*attrs, dump_marker({"scale": ""})) if unnamed else attrs
    made = dump_marker({**load_marker(counts, "", []), "scale": ""}) if unnamed else counts._replace(name=MARKER)
    kept = [attr for attr in attrs if attr is counts or attr.name not in (MARKER, FORMER_MARKER)]
    return tuple(made if attr is counts else attr for attr in kept)
