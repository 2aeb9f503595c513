"""Entries of any kind and byte order as the bytes of a metadata log, and their values: for tests of what reads them."""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np

from pnc_vol.log.decoding import Log
from pnc_vol.log.encoding import KINDS, NATIVE, Entry


def encode_entry(entry: Entry, *, byteorder: str = NATIVE) -> bytes:
    """The bytes of an entry; its ``offset`` and ``size`` are not used."""
    codes = {name: code for code, name in KINDS.items()}
    coords = [*entry.start.reshape(-1).tolist(), *entry.count.reshape(-1).tolist()]
    if -1 in coords:
        # a whole variable: the document lets coordinates be absent
        coords = []
    if entry.stride is not None:
        coords += entry.stride.tolist()
    pack = Struct(f"{byteorder}q4i2q{len(coords)}q").pack
    kind = codes.get(entry.kind, len(entry.start))
    where = entry.data_off, entry.data_len
    return pack(40 + 8 * len(coords), kind, entry.itype, entry.varid, entry.ndims, *where, *coords)


def values_of(log: Log, i: int, data: bytes) -> np.ndarray[Any, Any]:
    """Values of entry `i`, in one dimension, in the order of its sub-requests."""
    at, n = int(log.entries.data_off[i]), int(log.entries.data_len[i])
    return np.frombuffer(data[at : at + n], log.entries.dtype(i, log.header.byteorder))
