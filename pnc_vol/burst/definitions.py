"""A log records the definitions of its datasets, so that a replay can create them in a file without their header.

Knows: dataset nodes, JSON. Does not know: files, entries.

A definition is a line: CRC-32 of the rest in hexadecimal, a blank, JSON. See ``docs/reference/log-format.md``.

A dataset is defined because something is posted to it. If it is deleted, a line says so: what was posted to it is not
replayed. Other changes of definitions (attributes) are not in a log: they would need an order among the ranks, which
only a flush makes.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pnc_vol.errors import LogError
from pnc_vol.format.model import MAX_VAR_DIMS
from pnc_vol.mapping.describe import describe, undescribe
from pnc_vol.mapping.dtypes import Element, element_for
from pnc_vol.mapping.names import is_member_name
from pnc_vol.mapping.tree import DatasetNode

__all__ = [
    "Definition", "LogDefinitions", "crc_of_header", "encode_base", "encode_definition", "encode_gone", "encode_work",
    "encode_written", "read_definitions", "whole_of",
]  # fmt: skip

_MOST_WIDTH = 1 << 31
_as_text = json.JSONEncoder(separators=(",", ":")).encode


class Definition(NamedTuple):
    """One dataset as it was when a write to it was logged.

    varid : int, its number in the entries.
    path : str, of a part (`mapping.composite`) that of its dataset.
    element : Element
    shape : tuple of int
    record : bool, the first axis is the record dimension.
    fillvalue : bytes or None
    stored : str or None, the variable that it was in the file's header; None if it was not there yet.
    replaces : bool, a variable of that name was in the header, and was deleted or renamed.
    epoch, fills : int, flushes before it, and fills of the log since the last one.
    owner : int or None, the `varid` of the dataset whose part it is, which is defined before.
    part : tuple of str, which part of it, and of that, and so on.
    """

    varid: int
    path: str
    element: Element
    shape: tuple[int, ...]
    record: bool
    fillvalue: bytes | None
    stored: str | None
    replaces: bool
    epoch: int
    fills: int
    owner: int | None
    part: tuple[str, ...]


class LogDefinitions(NamedTuple):
    """All definitions of one log.

    found : list of Definition, in order.
    gone : set of int, datasets that were deleted before a flush that was begun.
    work : str, the temporary name of a file that never took its own; "" if it had it.
    torn_bytes : int, after the last whole line.
    headers : dict of int to int, CRC-32 of headers that were about to be written, without their record count, and the
        epoch: what is defined in an earlier one is in that header under its last name.
    bases : set of int, CRC-32 of the headers that the file had when definitions were made, likewise.
    files : set of bytes[16], identities that the file had (`disk.identity`), beside that in the commit log.
    """

    found: list[Definition]
    gone: set[int]
    work: str
    torn_bytes: int
    headers: dict[int, int]
    bases: set[int]
    files: set[bytes]


def encode_definition(
    node: DatasetNode, *, stored: str | None = None, replaces: bool = False, epoch: int = 0, fills: int = 0
) -> bytes:
    """Return the line for a dataset, or a part of one."""
    owner, part = whole_of(node)
    return _line(
        {
            "varid": node.uid,
            "path": owner.path,
            **({"owner": owner.uid, "part": part} if part else {}),
            "type": describe(node.element.dtype),
            "width": node.element.itemsize,
            "shape": node.shape,
            "record": node.is_record,
            "fill": None if node.fillvalue is None else node.fillvalue.hex(),
            "stored": stored,
            "replaces": replaces,
            "epoch": epoch,
            "fills": fills,
        }
    )


def encode_gone(varid: int) -> bytes:
    """Return the line that says that a dataset was deleted."""
    return _line({"gone": varid})


def crc_of_header(header: bytes) -> int:
    """Return CRC-32 of a file's header without the number of records, which changes without the rest."""
    return zlib.crc32(memoryview(header)[12 if header[3:4] == b"\x05" else 8 :])


def encode_base(header: bytes, file: bytes) -> bytes:
    """Return the line that says which header the file has, and which file it is, when the definitions that follow are
    made."""
    return _line({"base": crc_of_header(header), "file": file.hex()})


def encode_written(header: bytes, epoch: int, file: bytes) -> bytes:
    """Return the line that says that a header is about to be written, and to which file."""
    return _line({"header": crc_of_header(header), "epoch": epoch, "file": file.hex()})


def encode_work(work: str) -> bytes:
    """Return the line that says that the file has only a temporary name yet."""
    return _line({"work": work})


def _line(fields: dict[str, Any]) -> bytes:
    body = _as_text(fields).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def whole_of(node: DatasetNode) -> tuple[DatasetNode, list[str]]:
    """Return the dataset that a node is a part of, or is, and which part."""
    part: list[str] = []
    while node.owner is not None:
        part.insert(0, node.name)
        node = node.owner
    return node, part


def read_definitions(data: bytes) -> LogDefinitions:
    """Return all definitions up to the first line that is not whole.

    Raises
    ------
    LogError
        A line is whole and says what no dataset can be.
    """
    found: list[Definition] = []
    gone: set[int] = set()
    headers: dict[int, int] = {}
    bases: set[int] = set()
    files: set[bytes] = set()
    work = ""
    at = 0
    for end, line in _lines(data):
        try:
            fields = json.loads(line)
            if "work" in fields:
                work = str(fields["work"])
            elif "gone" in fields:
                gone.add(int(fields["gone"]))
            elif "header" in fields or "base" in fields:
                if "header" in fields:
                    headers[int(fields["header"])] = int(fields["epoch"])
                else:
                    bases.add(int(fields["base"]))
                files.add(bytes.fromhex(fields["file"]))
            else:
                found.append(_definition(fields))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LogError(f"the definition at byte {at} is wrong: {error}", offset=at, field="definition") from error
        at = end
    return LogDefinitions(found, gone, work, len(data) - at, headers, bases, files)


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, without their CRC, and where each ends."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        crc, line = data[at : at + 8], data[at + 9 : end]
        if crc != b"%08x" % zlib.crc32(line):
            return
        at = end + 1
        yield at, line


def _definition(fields: Any) -> Definition:
    width, dtype = int(fields["width"]), undescribe(fields["type"])
    if dtype is None:
        raise ValueError(f"type {fields['type']!r}")
    if not 0 < width <= _MOST_WIDTH:
        raise ValueError(f"width {width}")
    element = element_for(dtype, width=width)
    path = str(fields["path"])
    if not path.startswith("/") or not all(is_member_name(step) for step in path[1:].split("/")):
        raise ValueError(f"path {path!r}")
    shape = tuple(int(n) for n in fields["shape"])
    record = bool(fields["record"])
    if min(shape, default=0) < 0 or len(shape) > MAX_VAR_DIMS or (record and not shape):
        raise ValueError(f"shape {shape}")
    if math.prod(n or 1 for n in shape) * element.itemsize >= 2**63:
        raise ValueError(f"shape {shape}")
    fill = None if fields["fill"] is None else bytes.fromhex(fields["fill"])
    stored, owner = fields["stored"], fields.get("owner")
    return Definition(
        int(fields["varid"]),
        path,
        element,
        shape,
        record,
        fill,
        None if stored is None else str(stored),
        bool(fields["replaces"]),
        int(fields["epoch"]),
        int(fields["fills"]),
        None if owner is None else int(owner),
        tuple(str(name) for name in fields["part"]) if owner is not None else (),
    )
