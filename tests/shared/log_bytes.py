"""Logs as bytes, spelled field by field from docs/reference/log-format.md: nothing here is shared with the package.

The layouts that PnetCDF's library and its documents have, and pnc_vol's commit log and definitions.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

KINDS = {"var": -1, "var1": -2, "vara": -3, "vars": -4}
CODES = {"S1": 1, "i1": 2, "u1": 3, "i2": 4, "u2": 5, "i4": 6, "u4": 7, "f4": 8, "f8": 9, "i8": 10, "u8": 11}
MAGIC = b"PnetCDF1"


def pad(data: bytes, n: int) -> bytes:
    return data + bytes(-len(data) % n)


def documented(
    entries: list[bytes],
    *,
    count: int | None = None,
    path: str = "out.nc",
    node: str = "node",
    order: str = "<",
    ranks: tuple[int, int] = (1, 0),
    magic: bytes = MAGIC,
    most: int = 0,
    external: int = 0,
    gap: int = 0,
) -> bytes:
    """A metadata log in the layout of PnetCDF's document."""
    names = [text.encode() for text in (path, node)]
    strings = b"".join(struct.pack(order + "i", len(name)) + pad(name, 4) for name in names)
    count = len(entries) if count is None else count
    fixed = struct.pack(order + "2i5q", order == ">", external, *ranks, most, count, 64 + len(strings) + gap)
    return magic + pad(b"CDF5", 8) + fixed + strings + b"x" * gap + b"".join(entries)


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


def entry(kind: Any, itype: int, varid: int, at: int, n: int, *coords: Any, order: str = "<") -> bytes:
    """An entry of 40 bytes and coordinates: starts, counts, stride, a row each; `kind` is a name or a number."""
    ndims = len(coords[0]) // kind if isinstance(kind, int) and kind > 0 else len(coords[0])
    numbers = [number for row in coords for number in row]
    head = struct.pack(order + "q4i2q", 40 + 8 * len(numbers), KINDS.get(kind, kind), itype, varid, ndims, at, n)
    return head + struct.pack(f"{order}{len(numbers)}q", *numbers)


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


def c_entry(*args: Any, order: str = "<") -> bytes:
    """A `vara` of the C library has a stride of zeros."""
    more = [[0] * len(args[5])] if args[0] == "vara" else []
    return entry(*args, *more, order=order)


def three(order: str = "<") -> tuple[list[bytes], bytes]:
    """Entries as the C library writes them, and their data."""
    entries = [
        c_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6], order=order),
        c_entry("vars", 4, 3, 104, 6, [0], [3], [2], order=order),
        c_entry(2, 4, 3, 110, 4, [1, 4], [1, 1], order=order),
        c_entry("vara", 6, 2, 114, 4, [], [], order=order),
        c_entry(1, 4, 3, 118, 2, [5], order=order),
    ]
    data = b"PnetCDF0" + np.arange(12, dtype=order + "f8").tobytes()
    data += np.array([7, 8, 9, 70, 71], order + "i2").tobytes() + np.array([42], order + "i4").tobytes()
    return entries, data + np.array([9], order + "i2").tobytes()


@dataclass
class Log:
    """A log that is being written: entries and their values; `leave` puts its files into a folder."""

    order: str = "<"
    entries: list[bytes] = field(default_factory=list)
    data: bytes = MAGIC

    def add(self, kind: Any, itype: int, varid: int, *coords: Any, data: bytes) -> None:
        self.entries.append(entry(kind, itype, varid, len(self.data), len(data), *coords, order=self.order))
        self.data += data

    def leave(self, folder: Path, name: str = "x.nc_0_0") -> Path:
        return leave(folder, documented(self.entries, order=self.order), self.data, name=name)


def leave(
    folder: Path, meta: bytes, data: bytes, commit: bytes = b"", defs: bytes = b"", name: str = "x.nc_0_0"
) -> Path:
    """Write the files of a log; the metadata log."""
    for suffix, content in ((".meta", meta), (".data", data), (".commit", commit), (".defs", defs)):
        if content or suffix in (".meta", ".data"):
            (folder / (name + suffix)).write_bytes(content)
    return folder / f"{name}.meta"


# ------------------------------------------------------------------------------------------ the commit log

COMMIT, TOMBSTONE, FILL, FLUSHED = 1, 2, 3, 4
IN_LOGS, IN_SLOT = 0, 1
ALL = 2**64 - 1
SLOTS = {2: 64, 3: 64 + 65536}
"""Bytes of the slot, by version."""


def commit_header(log_id: bytes, version: int, *, rank: int = 0, ranks: int = 1, path: bytes = b"x.nc") -> bytes:
    """The header of a commit log, and an empty slot of the size that its version has."""
    slot = SLOTS[version]
    size = -(-(64 + len(path) + 4) // 64) * 64
    head = b"PncVolBB" + struct.pack("<II16s16s4I", version, size + slot, log_id, bytes(16), rank, ranks, len(path), 64)
    head = (head + path).ljust(size - 4, b"\0")
    return head + struct.pack("<I", crc32(head)) + bytes(slot)


def definition(varid: int, path: str, dtype: str, shape: list[int], *, record: bool = False, **told: Any) -> bytes:
    """A line of the definitions: of a dataset that is in the header of the file under its own name."""
    said = {"varid": varid, "path": path, "type": dtype, "width": np.dtype(dtype).itemsize, "shape": shape}
    said |= {"record": record, "fill": None, "stored": path[1:], "replaces": False, "epoch": 0, "fills": 0}
    return line(said | told)


def line(said: dict[str, Any]) -> bytes:
    body = json.dumps(said).encode()
    return b"%08x %s\n" % (crc32(body), body)


class Committed:
    """A log with a commit log, written as the rules say: posts of i4 to places 10, 20, ... of variables."""

    def __init__(self, version: int = 2, log_id: bytes = bytes(range(16)), ranks: tuple[int, int] = (1, 0)) -> None:
        self.log_id, self.slot = log_id, SLOTS[version]
        self.meta, self.data = bytearray(documented([], ranks=ranks)), bytearray(MAGIC)
        self.commit = bytearray(commit_header(log_id, version, rank=ranks[1], ranks=ranks[0]))
        self.head = len(self.commit)
        self.begin = self.at = len(self.meta)
        self.data_at, self.waiting, self.sequence, self.epoch = 8, 0, 0, 0
        self.ends: list[int] = []
        self.defs = b""

    def post(self, n: int = 2, varid: int = 0) -> None:
        """One entry and its values, which begin with its number from 1, without a commit."""
        values = np.arange(len(self.ends) + 1, len(self.ends) + 1 + n, dtype="<i4").tobytes()
        self.meta += entry("vara", 6, varid, len(self.data), len(values), (10 * len(self.ends),), (n,))
        self.data += values
        self.ends.append(len(self.meta))
        self.waiting += 1

    def record(self, kind: int, first: int = 0, last: int = 0, **told: int) -> None:
        """`first` and `last` are the fields of 32 bits."""
        self.sequence += 1
        names = {"request": 0, "epoch": self.epoch, "meta_end": 0, "data_end": 0, "number": 0}
        assert told.keys() <= names.keys()
        body = struct.pack("<HHIQ5QI", 64, kind, first, self.sequence, *(names | told).values(), last)
        self.commit += body + struct.pack("<I", crc32(body, crc32(self.log_id)))

    def vouch(self, request: int = 0) -> None:
        """A commit of what was posted since the last one."""
        crcs = crc32(self.meta[self.at :]), crc32(self.data[self.data_at :])
        self.at, self.data_at = len(self.meta), len(self.data)
        self.record(COMMIT, *crcs, request=request, meta_end=self.at, data_end=self.data_at, number=self.waiting)
        self.waiting = 0

    def posts(self, n: int) -> None:
        for _ in range(n):
            self.post()
            self.vouch(request=100 + len(self.ends))

    def fill(self, varid: int, first: int = 0, number: int = ALL, **told: int) -> None:
        self.record(FILL, varid, meta_end=self.at, data_end=first, number=number, **told)

    def open_group(self, count: int) -> None:
        """The slot says that the group goes up to entry `count`."""
        end = 8 + sum(struct.unpack_from("<q", self.meta, e - 24)[0] for e in self.ends[:count])
        word = crc32(self.meta[self.at : self.ends[count - 1]]) ^ crc32(self.data[self.data_at : end])
        slot = struct.pack("<5Q", word, 7, self.epoch, (len(self.commit) - self.head) // 64, IN_LOGS)
        at = self.head - self.slot
        self.commit[at : at + len(slot)] = slot

    def leave(self, folder: Path, name: str = "x.nc_0_0") -> Path:
        return leave(folder, bytes(self.meta), bytes(self.data), bytes(self.commit), self.defs, name)


# ------------------------------------------------------------------------------------- what the command says


def printed(*arguments: object, code: int | None = 0) -> str:
    """What ``pnc-vol log`` prints; `code` None: an error of the log may end it, of which it speaks."""
    from run_command import verb

    return str(verb("log", *arguments, code=code).out)


def told(meta: Path, code: int = 0) -> dict[str, Any]:
    """What ``pnc-vol log --json`` says of one log."""
    (found,) = json.loads(printed(meta, "--json", code=code))
    return dict(found)


def states(text: str) -> str:
    """The states of the entries, a letter each; x is cancelled."""
    letters = {"committed": "c", "torn": "t", "cancelled": "x", "flushed": "f", "uncounted": "u"}
    return "".join(letters[state] for state in re.findall(r"(?m)^ *\d+  (\w+) +(?:va|varn )", text))
