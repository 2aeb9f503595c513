"""What is written is the document's bytes: of headers, entries and values, of commit logs and definitions."""

from __future__ import annotations

import doctest
import importlib
import os
import struct
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from kills import logged_job
from log_bytes import CODES, COMMIT, MAGIC, SLOTS, commit_header, documented, entry, told
from this_system import ATTRIBUTES

import pnc_vol
from pnc_vol.errors import LogRefusedError

ORDER = "<" if sys.byteorder == "little" else ">"


@pytest.mark.parametrize(
    "name",
    [
        "encoding",
        "entries",
        "decoding",
        "commit_log",
        "recovery.scan",
        "recovery.printing",
    ],
)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"pnc_vol.burst.{name}")).failed == 0


def work(f: Any) -> None:
    """A post of each kind, and one of each type."""
    a = f.create_dataset("a", (4, 6), "f8")
    k = f.create_dataset("k", (8,), ">i2")
    s = f.create_dataset("s", (), "i4")
    for number, (dtype, _) in enumerate(CODES.items()):
        f.create_dataset(f"t{number:02}", (3,), dtype)
    a[1:3] = np.arange(12).reshape(2, 6)
    k[1:6:2] = [7, 8, 9]
    a.iput_many([[0, 2], [3, 0]], [[1, 3], [1, 1]], [1, 2, 3, 4])
    s[()] = 42
    for number, (dtype, _) in enumerate(CODES.items()):
        # rows that follow each other would wait in the slot of the commit log
        f[f"t{number:02}"][::2] = np.array([65, 66], "u1").view("S1") if dtype == "S1" else np.array([1, 2], dtype)


def test_a_log_byte_by_byte(tmp_path: Path, logs: Path) -> None:
    path = tmp_path / "x.nc"
    (meta,) = logged_job(path, logs, work)
    posts: list[tuple[Any, str, int, list[list[int]], Any]] = [
        ("vara", "f8", 0, [[1, 0], [2, 6]], range(12)),
        ("vars", "i2", 1, [[1], [3], [2]], [7, 8, 9]),
        (2, "f8", 0, [[0, 2, 3, 0], [1, 3, 1, 1]], [1, 2, 3, 4]),
        ("vara", "i4", 2, [[], []], [42]),
        ("vars", "S1", 3, [[0, 0], [2, 1], [2, 1]], [b"A", b"B"]),
        *(("vars", dtype, 3 + i, [[0], [2], [2]], [1, 2]) for i, dtype in enumerate(CODES) if i),
    ]
    entries, data = [], MAGIC
    for kind, dtype, varid, coords, values in posts:
        raw = np.array(list(values), dtype).tobytes()
        entries.append(entry(kind, CODES[dtype], varid, len(data), len(raw), *coords, order=ORDER))
        data += raw
    told_most = struct.unpack_from(ORDER + "q", meta.read_bytes(), 40)[0]
    assert told_most == 2
    expected = documented(entries, path=str(path), node=os.uname().nodename, order=ORDER, most=told_most)
    assert meta.read_bytes()[: len(expected)].hex(" ", 8) == expected.hex(" ", 8)
    assert not meta.read_bytes()[len(expected) :].strip(b"\0"), "what is reserved ahead"
    assert meta.with_suffix(".data").read_bytes()[: len(data)] == data


@pytest.mark.parametrize(("sync", "version"), [("none", 3), ("each", 2)])
def test_a_commit_log_byte_by_byte(sync: str, version: int, tmp_path: Path, logs: Path) -> None:
    """A post is committed with ``sync=each``, and else is in the open group."""

    def few(f: Any) -> None:
        f.create_dataset("x", (4, 4), "i4")[::2, ::2] = 7

    path = tmp_path / "x.nc"
    (meta,) = logged_job(path, logs, few, burst_buf_sync=sync)
    commit = meta.with_suffix(".commit").read_bytes()
    log_id = commit[16:32]
    empty = bytearray(commit_header(log_id, version, path=str(path).encode()))
    inode = b"inode\0\0\0" + struct.pack("<Q", path.stat().st_ino)
    empty[32:48] = os.getxattr(path, "user.pnc_vol.id") if ATTRIBUTES else inode
    at = len(empty) - SLOTS[version]
    empty[at - 4 : at] = struct.pack("<I", crc32(empty[: at - 4]))
    assert commit[:at] == empty[:at]
    values = struct.pack(ORDER + "4i", 7, 7, 7, 7)
    one = entry("vars", 6, 0, 8, 16, [0, 0], [2, 2], [2, 2], order=ORDER)
    end = struct.unpack_from(ORDER + "q", meta.read_bytes(), 56)[0] + len(one)
    if sync == "each":
        body = struct.pack("<HHIQ5QI", 64, COMMIT, crc32(one), 1, 1, 0, end, 24, 1, crc32(values))
        assert commit[len(empty) :].rstrip(b"\0") == (body + struct.pack("<I", crc32(body, crc32(log_id)))).rstrip(
            b"\0"
        )
    else:
        assert commit[at:].rstrip(b"\0") == struct.pack("<QQ", crc32(one) ^ crc32(values), 1).rstrip(b"\0")


def test_the_definitions(tmp_path: Path, logs: Path) -> None:
    """The line before the first is of the file; each has the CRC of what it says."""
    (meta,) = logged_job(tmp_path / "x.nc", logs, lambda f: f.create_dataset("g/x", (2,), "i4").__setitem__(0, 1))
    lines = meta.with_suffix(".defs").read_bytes().rstrip(b"\0").splitlines()
    assert [int(line[:8], 16) for line in lines] == [crc32(line[9:]) for line in lines]
    assert told(meta)["variables"] == {"0": "/g/x"}
    assert b'"base"' in lines[0]


@pytest.mark.parametrize("name", ["a", "a\x07ä"])
def test_names_of_logs_are_safe(name: str, tmp_path: Path, logs: Path) -> None:
    (meta,) = logged_job(tmp_path / name, logs, lambda f: f.__setitem__("x", [1]))
    assert meta.name == f"{name if name == 'a' else 'a__'}_0_0.meta"
    assert told(meta)["file"] == str(tmp_path / name)
    with pytest.raises(LogRefusedError, match="another file"):
        pnc_vol.File(tmp_path / "other", "w").close()
        pnc_vol.replay(tmp_path / "other", meta)
