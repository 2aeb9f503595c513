"""What a log must know of a dataset, so that its writes can be replayed into a file whose header was never written.

Knows: dataset nodes, JSON. Does not know: files, entries.

A definition is a line: CRC-32 of the rest in hexadecimal, a blank, JSON with the dataset's number (``varid`` of the
entries), path, type, shape, whether its first axis is the record dimension, and fill value.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

import numpy as np

from pnc_vol.mapping.dtypes import Element, element_for
from pnc_vol.mapping.special import check_enum_dtype, check_string_dtype, enum_dtype, string_dtype
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["Definition", "encode_definition", "read_definitions"]


class Definition(NamedTuple):
    """One dataset as it was when a write to it was logged.

    varid : int, its number in the entries.
    path : str
    element : Element
    shape : tuple of int
    record : bool, the first axis is the record dimension.
    fillvalue : bytes or None
    """

    varid: int
    path: str
    element: Element
    shape: tuple[int, ...]
    record: bool
    fillvalue: bytes | None


def encode_definition(node: DatasetNode) -> bytes:
    """The line for a dataset."""
    body = json.dumps(
        {
            "varid": node.uid,
            "path": node.path,
            "type": _type_of(node.element),
            "width": node.element.itemsize,
            "shape": node.shape,
            "record": node.is_record,
            "fill": None if node.fillvalue is None else node.fillvalue.hex(),
        },
        separators=(",", ":"),
    ).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _type_of(element: Element) -> Any:
    info = check_string_dtype(element.dtype)
    if info is not None:
        return {"string": [info.encoding, info.length]}
    members = check_enum_dtype(element.dtype)
    if members is not None:
        return {"enum": {name: int(value) for name, value in members.items()}, "base": element.dtype.str}
    return element.dtype.str


def read_definitions(data: bytes) -> tuple[list[Definition], int]:
    """All definitions up to the first line that is not whole, and how many bytes follow it."""
    found: list[Definition] = []
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        line = data[at:end]
        try:
            if end < 0 or int(line[:8], 16) != zlib.crc32(line[9:]):
                break
            found.append(_definition(json.loads(line[9:])))
        except (ValueError, KeyError, TypeError):
            break
        at = end + 1
    return found, len(data) - at


def _definition(said: Any) -> Definition:
    kind = said["type"]
    if isinstance(kind, str):
        element = element_for(np.dtype(kind))
    elif "string" in kind:
        encoding, length = kind["string"]
        element = element_for(string_dtype(encoding, length), width=int(said["width"]))
    else:
        element = element_for(enum_dtype(kind["enum"], np.dtype(kind["base"])))
    fill = said["fill"]
    return Definition(
        int(said["varid"]),
        str(said["path"]),
        element,
        tuple(int(n) for n in said["shape"]),
        bool(said["record"]),
        None if fill is None else bytes.fromhex(fill),
    )
