"""The face of the package's room `format` that tests use: a header as an object, to bytes and back.

Knows: where these names are, so that a change of the room is followed here alone.
"""

from __future__ import annotations

from pnc_vol.format.check import check
from pnc_vol.format.decode import Decoded, decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import (
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    INT64,
    SHORT,
    TYPES,
    Attr,
    Dim,
    Header,
    Var,
    data_end,
    inner_bytes,
    is_record,
    record_size,
)
from pnc_vol.format.placing import place

__all__ = [
    "CHAR", "DOUBLE", "FLOAT", "INT", "INT64", "SHORT", "TYPES", "Attr", "Decoded", "Dim", "Header", "Var", "check",
    "data_end", "decode", "encode", "inner_bytes", "is_record", "place", "record_size",
]  # fmt: skip
