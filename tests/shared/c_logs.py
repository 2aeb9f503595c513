"""Logs as the C library and the older document have them, made here: for tests of what reads logs."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

KINDS = {"var": -1, "var1": -2, "vara": -3, "vars": -4}


def pad(data: bytes, n: int) -> bytes:
    return data + bytes(-len(data) % n)


def c_log(
    entries: list[bytes],
    *,
    count: int | None = None,
    path: bytes = b"/scratch/out.nc",
    node: bytes = b"node1",
    order: str = "<",
    generation: str = "1.13",
    ranks: tuple[int, int] = (1, 0),
) -> bytes:
    """A metadata log as the C library of that release writes it."""
    count = len(entries) if count is None else count
    head = b"PnetCDF0CDF0" + bytes(4) + struct.pack(order + "2i2q", order == ">", 0, *ranks)
    if generation == "1.10":
        size = 72 + len(path) + -(72 + len(path)) % 4
        strings = struct.pack(order + "i", len(path)) + path
        return (head + struct.pack(order + "3q", size, 0, count) + strings).ljust(size, b"\0") + b"".join(entries)
    wide = generation == "1.13"
    fixed = 80 if wide else 72
    size = fixed + len(path) + 1 + 4 + len(node) + 1
    size += -size % (4 if generation == "1.11" else 16)
    strings = struct.pack(order + ("Q" if wide else "i"), len(path)) + path + b"\0"
    strings += struct.pack(order + "i", len(node)) + node + b"\0"
    head += struct.pack(order + "3q", 0, 0, count) + strings
    return head.ljust(size, b"\0") + b"".join(entries)


def c_entry(kind: Any, itype: int, varid: int, at: int, n: int, *coords: list[int], order: str = "<") -> bytes:
    """An entry of 40 bytes and coordinates; `coords` are start, count and (always, but for varn) stride."""
    ndims = len(coords[0]) if not isinstance(kind, int) or kind < 0 else len(coords[0]) // kind
    numbers = [number for row in coords for number in row]
    code = KINDS.get(kind, kind)
    return struct.pack(
        f"{order}q4i2q{len(numbers)}q", 40 + 8 * len(numbers), code, itype, varid, ndims, at, n, *numbers
    )


def old_log(
    entries: list[bytes], *, path: bytes = b"out.nc", order: str = "<", begin: int | None = None, native: bool = False
) -> bytes:
    """A metadata log of the older document: the flag is 0 for big-endian, and 1 spelled big-endian for little."""
    flag = bytes(4) if order == ">" else struct.pack("<i" if native else ">i", 1)
    strings = struct.pack(order + "i", len(path)) + pad(path, 4)
    begin = 64 + len(strings) if begin is None else begin
    head = b"PnetCDF0CDF5" + bytes(4) + flag + struct.pack(order + "i5q", 0, 1, 0, begin, 2, len(entries))
    return head + strings + b"".join(entries)


def old_entry(
    kind: Any, itype: int, varid: int, at: int, n: int, *coords: list[int], order: str = "<", nreqs: bool = True
) -> bytes:
    """An entry of the older document; `coords` are starts, counts and stride."""
    requests = kind if isinstance(kind, int) and kind > 0 else 1
    fixed = [varid, *([requests] if nreqs else []), len(coords[0]) // requests, at, n]
    numbers = fixed + [number for row in coords for number in row]
    return struct.pack(f"{order}q2i{len(numbers)}q", 16 + 8 * len(numbers), KINDS.get(kind, kind), itype, *numbers)


def three(order: str = "<") -> tuple[list[bytes], bytes]:
    """Entries as the C library writes them, and their data."""
    entries = [
        c_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6], [0, 0], order=order),
        c_entry("vars", 4, 3, 104, 6, [0], [3], [2], order=order),
        c_entry(2, 4, 3, 110, 4, [1, 4], [1, 1], order=order),
        c_entry("vara", 6, 2, 114, 4, [], [], [], order=order),
    ]
    data = b"PnetCDF0" + np.arange(12, dtype=order + "f8").tobytes()
    data += np.array([7, 8, 9, 70, 71], order + "i2").tobytes() + np.array([42], order + "i4").tobytes()
    return entries, data
