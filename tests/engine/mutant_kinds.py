"""Every kind of file that the package reads, as a table: how whole ones are made, how they are used when damaged.

A new kind is one line in `KINDS`, with the functions that it names.

Whole files are made through the public API, in a process that ends as a killed one does where a log or a journal is to
be left over. What is used is what a user has: opening, reading, checking, listing, replaying, recovering. Each use goes
on after an error that is documented (`documented`); any other one is what the mutants are there to find.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from zlib import crc32

import damages
import everything
import false_markers
import log_bytes
import numpy as np
from file_format import decode

import pnc_vol
from pnc_vol.cli.main import main
from pnc_vol.testing.faults import HookedSystem

Content = dict[str, bytes]
"""The files of a folder, by their names in it."""

PLENTY = 1 << 20
"""Bytes of values that are read at once; of more, the first and the last."""


class Tally:
    """How often there was a documented error or a warning: damages that harm nothing show nothing."""

    def __init__(self) -> None:
        self.refused = 0


tally = Tally()
_NEVER = {errno.EBADF, errno.EFAULT, errno.ENOMEM}
"""What the operating system says of mistakes of a program, not of a file."""


@contextmanager
def documented() -> Iterator[None]:
    """Errors that a damaged file may bring about."""
    try:
        yield
    except (pnc_vol.PncVolError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _NEVER:
            raise
        tally.refused += 1


# ------------------------------------------------------------------------------------------------- uses


def look(f: Any) -> None:
    """Look at all that is in a file, and at no more of its values than fit."""
    stack, seen = [f], {f["/"]}
    while stack:
        group = stack.pop()
        with documented():
            _attributes(group)
        with documented():
            for name in group:
                with documented():
                    if isinstance(group.get(name, getlink=True), pnc_vol.HardLink):
                        member = group[name]
                        if not isinstance(member, pnc_vol.Group):
                            _member(member)
                        elif member not in seen:
                            seen.add(member)
                            stack.append(member)


def _attributes(owner: Any) -> None:
    for name in owner.attrs:
        with documented():
            owner.attrs[name]


def _member(member: Any) -> None:
    repr((member, member.dtype))
    _attributes(member)
    if isinstance(member, pnc_vol.Dataset):
        repr((member.maxshape, member.is_scale, [(dim.label, list(dim)) for dim in member.dims if member.shape]))
        with documented():
            repr(member.fillvalue)
        if (member.size or 0) * member.dtype.itemsize <= PLENTY:
            member[()]
        elif member.size:
            repr((member[(0,) * member.ndim], member[tuple(n - 1 for n in member.shape)]))


def read(path: Path, **options: Any) -> None:
    with documented(), pnc_vol.File(path, **options) as f:
        look(f)


def change(path: Path, **options: Any) -> None:
    """Write to a file, without which its end is not looked at."""
    with documented(), pnc_vol.File(path, "r+", **options) as f:
        f.attrs["changed"] = "a text, for which the header must grow"
        f.require_dataset("changed", (3,), "i4")[:] = 7
        for one in f.values():
            if isinstance(one, pnc_vol.Dataset) and one.dtype.kind in "iuf" and one.size:
                with documented():
                    one[(0,) * one.ndim] = 1
                break


VERBS = ("check", "dump", "link", "log", "ls")
"""Those that are used on damaged files."""


def verb(*words: object) -> None:
    """A verb of ``pnc-vol``; anything but an exit is an error of the command line."""
    with redirect_stdout(TextIOWrapper(BytesIO())), redirect_stderr(TextIOWrapper(BytesIO())):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            if end.code not in (0, 1, 2, 3):
                raise


def sometimes(chance: random.Random, act: Callable[..., None], *given: object, **options: Any) -> None:
    """One time in eight: what takes long, or looks at what other uses have seen."""
    if chance.random() < 0.125:
        act(*given, **options)


def replay(path: Path, *given: Any, **options: Any) -> None:
    with documented():
        pnc_vol.replay(path, *given, **options)


def of_netcdf(folder: Path, names: list[str], chance: random.Random) -> None:
    for path in (folder / name for name in names):
        with documented():
            pnc_vol.check(path)
        read(path)
        sometimes(chance, verb, "ls", "-r", "-v", path)
        sometimes(chance, verb, "check", path)
        sometimes(chance, verb, "dump", "-h", path)
        if chance.random() < 0.4:
            change(path)
            read(path)


def of_burst_log(folder: Path, names: list[str], chance: random.Random) -> None:
    path, logs = folder / "x.nc", [str(one) for one in folder.glob("logs/*")]
    sometimes(chance, verb, "log", *logs)
    way = chance.randrange(4)
    if way == 0:
        replay(path, logs, any_file=True)
        replay(path, logs, any_file=True, salvage=True, partial=True)
    elif way == 1:
        replay(path, burst_buf_dirname=str(folder / "logs"), salvage=chance.random() < 0.5)
    elif way == 2:
        options: dict[str, Any] = {"burst_buf": True, "burst_buf_dirname": str(folder / "logs")}
        change(path, recover=True, **options)
        change(path, **options)
    else:
        read(path, burst_buf_dirname=str(folder / "logs"))
        replay(path, logs, any_file=True, salvage=True, uncounted=True)
    read(path)


def of_c_log(folder: Path, names: list[str], chance: random.Random) -> None:
    path = folder / "x.nc"
    for meta in sorted({str(folder / name.rpartition(".")[0]) + ".meta" for name in names}):
        sometimes(chance, verb, "log", meta)
        flags = {name: chance.random() < 0.5 for name in ("salvage", "partial", "uncounted")}
        replay(path, meta, **flags)
    read(path)


def of_cache(folder: Path, names: list[str], chance: random.Random) -> None:
    path, caches = folder / "x.nc", [str(one) for one in folder.glob("nvm/*")]
    sometimes(chance, verb, "log", *caches)
    way = chance.randrange(3)
    if way == 0:
        replay(path, caches, any_file=True)
        replay(path, caches, any_file=True, salvage=True, partial=True)
    elif way == 1:
        replay(path, hints={"e10_cache_path": str(folder / "nvm")}, salvage=chance.random() < 0.5)
    else:
        read(path, hints={"e10_cache_path": str(folder / "nvm")})
        change(path, recover=True, hints={"e10_cache_path": str(folder / "nvm")})
    read(path)


def of_notes(folder: Path, names: list[str], chance: random.Random) -> None:
    path = folder / "x.nc"
    read(path)
    if chance.random() < 0.5:
        replay(path, partial=chance.random() < 0.3)
    else:
        change(path, recover=chance.random() < 0.5)
    read(path)


def of_journal(folder: Path, names: list[str], chance: random.Random) -> None:
    read(folder / "x.nc")
    sometimes(chance, verb, "check", folder / "x.nc")
    change(folder / "x.nc")
    read(folder / "x.nc")


def of_set(folder: Path, names: list[str], chance: random.Random) -> None:
    path, way = folder / "s", chance.randrange(3)
    read(path)
    sometimes(chance, verb, "ls", "-r", path)
    with documented():
        if way == 0:
            pnc_vol.check(path)
        elif way == 1:
            pnc_vol.replay(path, output=folder / "one.nc", overwrite=True)
            read(folder / "one.nc")
        else:
            change(path)
            read(path)


def of_hint_file(folder: Path, names: list[str], chance: random.Random) -> None:
    read(folder / "x.nc", hints_file=folder / "h.json")
    change(folder / "x.nc", hints_file=folder / "h.json")
    with documented():
        # a guard name may have deferred the close
        pnc_vol.finalize()


def of_map_file(folder: Path, names: list[str], chance: random.Random) -> None:
    with documented():
        for one in pnc_vol.read_decompositions(folder / "map.nc", compat=chance.random() < 0.3):
            repr((one.shape, one.starts.sum(), one.counts.sum()))


def of_pickle(folder: Path, names: list[str], chance: random.Random) -> None:
    path = folder / "handle.pickle"
    try:
        found = pickle.loads(path.read_bytes())
    except (pnc_vol.PncVolError, OSError, KeyError, TypeError, ValueError):
        # of the arguments that it gives to `File`
        tally.refused += 1
    except Exception as error:
        # pickle's own: it raises whatever it likes, but not in our code, and may make an object with nothing in it
        made = isinstance(getattr(error, "obj", None), pnc_vol.HLObject) and not hasattr(error.obj, "_id")
        at = None if made else error.__traceback__
        while at is not None:
            if "pnc_vol" in at.tb_frame.f_globals.get("__name__", ""):
                raise
            at = at.tb_next
        tally.refused += 1
    else:
        # An object that a pickle makes, and gives nothing, has no file.
        file = getattr(found, "file", None) if isinstance(found, pnc_vol.HLObject) else None
        if file is not None:
            with documented():
                look(file)
            file.close()


def of_link_file(folder: Path, names: list[str], chance: random.Random) -> None:
    source, target = folder / "x.nc", folder / "x.h5"
    sometimes(chance, verb, "link", "--check", target)
    with documented():
        pnc_vol.check(target)
    read(target)
    with documented():
        pnc_vol.link(source, target)
    with documented():
        pnc_vol.link(source, target, overwrite=True)


# ------------------------------------------------------------------------------------------- whole files


def make_netcdf(folder: Path) -> None:
    for form in ("CDF-1", "CDF-2", "CDF-5"):
        with pnc_vol.File(folder / f"{form}.nc", "w", format=form) as f:
            f.attrs["title"] = "mutants"
            f.create_dataset("fixed", (3, 4), "f8", fillvalue=-1.0)[1:] = 2
            f.create_dataset("r", (2, 4), "i4", maxshape=(None, 4))[...] = 5
            f.create_dataset("s", (3,), "i2", maxshape=(None,))[:] = [1, 2, 3]
            f["fixed"].attrs["units"] = "m"
            f["r"].attrs["limits"] = np.arange(3.0)


def make_markers(folder: Path) -> None:
    for section in everything.SECTIONS:
        everything.write(folder / f"{section}.nc", section, header_reserve=false_markers.ROOM)


def _posted(f: Any) -> None:
    """Posts of several kinds, some of them in the file and some not."""
    x = f.create_dataset("x", (40, 6), "f8")
    r = f.create_dataset("g/r", (0, 3), "i2", maxshape=(None, 3))
    s = f.create_dataset("s", (5,), "S4")
    x[3:9] = 1.5
    f.flush()
    x[::7, 2:4] = 2
    x[[1, 5, 6]] = 3
    r.resize(4, axis=0)
    r[1:3] = 7
    s[2] = b"abc"
    f.cancel([x.iput(4, np.full(6, -1.0))])
    late = f.create_dataset("late", (4,), "i8", fillvalue=9)
    late[1] = 4
    for i in range(4):
        x[30 + i] = np.arange(6) + i


def make_burst_log(folder: Path) -> None:
    (folder / "logs").mkdir()
    f = pnc_vol.File(folder / "x.nc", "w", burst_buf=True, burst_buf_dirname=str(folder / "logs"))
    _posted(f)
    _end()


def make_c_log(folder: Path) -> None:
    with pnc_vol.File(folder / "x.nc", "w") as f:
        f["a"] = np.zeros((2, 6))
        f["b"] = np.zeros(3, "f4")
        f["k"] = np.int32(0)
        f["t"] = np.zeros(9, "i2")
    entries, data = log_bytes.three()
    for number, generation in enumerate(("1.10", "1.11", "1.12.3", "1.13")):
        meta = folder / f"x.nc_{number}_0.meta"
        meta.write_bytes(log_bytes.c_log(entries, path=str(folder / "x.nc").encode(), generation=generation))
        meta.with_suffix(".data").write_bytes(data)
    old = [log_bytes.old_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6], [0, 0])]
    meta = folder / "x.nc_9_0.meta"
    meta.write_bytes(log_bytes.old_log(old, path=b"x.nc"))
    meta.with_suffix(".data").write_bytes(data)


def _cached(f: Any) -> None:
    d = f.create_dataset("x", (20, 6), "i4", maxshape=(None, 6))
    d[...] = 1
    f.flush()
    d.resize(12, axis=0)
    d[::5] = 3
    f["y"] = [1.0, 2.0]
    f.flush()


def make_cache(folder: Path) -> None:
    (folder / "nvm").mkdir()
    hints = {"e10_cache_path": str(folder / "nvm"), "e10_cache_flush_flag": "flush_onclose"}
    f = pnc_vol.File(folder / "x.nc", "w", hints=hints)
    _cached(f)
    _end()


def make_notes(folder: Path) -> None:
    for name in ("nvm", "logs"):
        (folder / name).mkdir()
    hints = {"e10_cache_path": str(folder / "nvm"), "e10_cache_flush_flag": "flush_onclose"}
    logs = {"burst_buf": True, "burst_buf_dirname": str(folder / "logs")}
    f = pnc_vol.File(folder / "x.nc", "w", hints=hints, **logs)
    _cached(f)
    f["x"][2] = 8
    _end()


class _Torn(HookedSystem):
    """Ends the process in the middle of a header, behind its journal."""

    journal = written = False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "pwrite" and self.written:
            os.pwrite(args[0], bytes(args[1])[: len(args[1]) // 2], args[2])
            _end()
        made = super().call(name, args, kwargs)
        self.written |= name == "pwrite" and self.journal
        self.journal |= name == "open" and str(args[0]).endswith(".pncj")
        return made


def make_journal(folder: Path) -> None:
    f = pnc_vol.File(folder / "x.nc", "w", system=_Torn(), header_reserve=4096)
    f["pay"], f["other"] = [1.0], np.arange(5)
    f.attrs["note"] = "a" * 600
    f.flush()
    f.attrs["note"] = "b" * 600
    f["pay"].attrs["more"] = "text"
    f["other"].attrs["less"] = np.arange(40)
    f.flush()
    _end(1)


def make_blob(folder: Path) -> None:
    damages.write(folder / "s", damages.good())


def make_hdf5blob(folder: Path) -> None:
    damages.write(folder / "s", damages.good(), "hdf5blob")


def make_hint_file(folder: Path) -> None:
    with pnc_vol.File(folder / "x.nc", "w") as f:
        f["x"] = np.arange(6)
    hints = {"cb_nodes": 2, "cb_buffer_size": "65536", "nc_var_align_size": 512, "pnc_buffer_size": 1 << 20}
    more = {"pnc_ordered": True, "nc_header_reserve": "2048", "e10_cache": "disable", "romio_cb_write": "enable"}
    entries = {"Type": "MPI", **hints}, {"Type": "MPI", **more}
    told = {
        "Guardnames": "chk, plot_",
        "File": [{"Path": "x", **entries[0]}],
        "Directory": [{"Path": ".", **entries[1]}],
    }
    (folder / "h.json").write_text(json.dumps(told, indent=1))


def make_map_file(folder: Path) -> None:
    with pnc_vol.File(folder / "map.nc", "w") as f:
        for k, dims in ((1, [2, 4]), (2, [8])):
            f.attrs[f"D{k}.dims"] = np.array(dims, "i4")
            for name, told in (
                ("nreqs", [2, 2]),
                ("fill_starts", [1, 2]),
                ("offsets", [0, 3, 6, 4]),
                ("lengths", [3, 1, 1, 2]),
            ):
                f[f"D{k}.{name}"] = np.array(told, "i4")


def make_pickle(folder: Path) -> None:
    with pnc_vol.File(folder / "x.nc", "w") as f:
        f["a/b"] = np.arange(12.0).reshape(3, 4)
        f["a"].attrs["unit"] = "m"
    with pnc_vol.File(folder / "x.nc", hints={"cb_nodes": "2"}, buffer_size=1 << 20) as f:
        (folder / "handle.pickle").write_bytes(pickle.dumps(f["a/b"]))


def make_link_file(folder: Path) -> None:
    with pnc_vol.File(folder / "x.nc", "w") as f:
        f["a/b"] = np.arange(12.0).reshape(3, 4)
        f.create_dataset("r", (3, 2), "i4", maxshape=(None, 2))[...] = 1
        f.attrs["title"] = "linked"
    pnc_vol.link(folder / "x.nc", folder / "x.h5")


def _end(code: int = 0) -> None:
    """End as a killed process does: nothing is closed."""
    sys.stdout.flush()
    os._exit(code)


# -------------------------------------------------------------------- checksums that are right again, and other meaning


def right_records(content: dict[str, bytearray], chance: random.Random) -> None:
    """CRCs of the header and of each record of commit logs and extent logs, and of what their records cover."""
    for name, data in content.items():
        if len(data) < 128 or not name.endswith((".commit", ".extents")):
            continue
        size = int.from_bytes(data[12:16], "little")
        slot = {2: 64, 3: 64 + 65536}.get(data[8], 0) if name.endswith(".commit") else 0
        if not slot + 128 <= size <= len(data):
            continue
        struct.pack_into("<I", data, size - slot - 4, crc32(bytes(data[: size - slot - 4])))
        seed = crc32(bytes(data[16:32]))
        inner = chance.random() < 0.7
        ends, at = [0, 0], size
        while at + 64 <= len(data):
            if data[at : at + 2] == b"\x40\0":
                nbytes = 0
                if name.endswith(".extents"):
                    nbytes = -(-struct.unpack_from("<Q", data, at + 16)[0] // 64) * 64
                    if inner:
                        # of its table
                        struct.pack_into("<I", data, at + 4, crc32(bytes(data[at + 64 : at + 64 + nbytes])))
                elif inner:
                    ends = _of_commits(content, name, data, at, ends)
                struct.pack_into("<I", data, at + 60, crc32(bytes(data[at : at + 60]), seed))
                at += nbytes
            at += 64


def _of_commits(content: dict[str, bytearray], name: str, data: bytearray, at: int, ends: list[int]) -> list[int]:
    """The CRCs of a commit over its parts of both logs."""
    if data[at + 2] != 1:
        return ends
    stem = name.removesuffix(".commit")
    meta, values = (bytes(content.get(stem + suffix, b"")) for suffix in (".meta", ".data"))
    first = struct.unpack_from("<q", meta, 56)[0] if len(meta) >= 64 else 0
    begins = [ends[0] or min(max(first, 0), len(meta)), ends[1] or 8]
    now = list(struct.unpack_from("<QQ", data, at + 32))
    struct.pack_into("<I", data, at + 4, crc32(meta[begins[0] : now[0]]))
    struct.pack_into("<I", data, at + 56, crc32(values[begins[1] : now[1]]))
    return now


def right_journal(content: dict[str, bytearray], chance: random.Random) -> None:
    data = content[".x.nc.pncj"]
    if len(data) >= 36:
        struct.pack_into("<I", data, 32, crc32(bytes(data[36:])))


def other_markers(content: dict[str, bytearray], chance: random.Random) -> None:
    """Wrong values in a marker, which is JSON still."""
    name = chance.choice(sorted(content))
    raw = bytes(content[name])
    header = decode(raw, file_size=len(raw)).header
    for _ in range(chance.randint(1, 3)):
        owner, told = chance.choice(list(false_markers.markers(header)))
        ways = list(false_markers.places(told))
        if not ways:
            continue
        way = chance.choice(ways)
        how = chance.random()
        if how < 0.1:
            told = false_markers.changed(told, way, None, gone=True)
        elif how < 0.2 and isinstance(way[-1], str):
            told = false_markers.changed(
                told, way, None, key=chance.choice(["unknown", "path", "attrs", "parts", "len"])
            )
        else:
            others = [*false_markers.HOSTILE, *false_markers.NAMES]
            new = chance.choice(others) if how < 0.8 else false_markers.at(told, chance.choice(ways))
            told = false_markers.changed(told, way, new)
        header = false_markers.with_marker(header, owner, told)
    made = false_markers.content(false_markers.Case("", header), raw)
    if made is not None:
        content[name][:] = made


_OF_SETS = [change for _, change in damages.of_the_content()]


def _other_set(layout: str) -> Callable[[dict[str, bytearray], random.Random], None]:
    def other(content: dict[str, bytearray], chance: random.Random) -> None:
        """Other numbers and names in subfiles, from the catalogue of `damages`."""
        subfiles = damages.good()
        for one in chance.sample(_OF_SETS, chance.choice((1, 1, 2))):
            with _skipped():
                one(subfiles)
        for one in subfiles:
            with _skipped():
                made = one.encoded() if layout == "blob" else one.container()
                content[f"s.{one.number:04d}"][:] = made

    return other


@contextmanager
def _skipped() -> Iterator[None]:
    """A second damage may not find what the first one took away."""
    try:
        yield
    except (AssertionError, ValueError, IndexError, KeyError, MemoryError):
        return


def other_hints(content: dict[str, bytearray], chance: random.Random) -> None:
    told = json.loads(content["h.json"])
    way = chance.choice(list(false_markers.places(told)))
    with _skipped():
        told = false_markers.changed(told, way, chance.choice(false_markers.HOSTILE))
        content["h.json"][:] = json.dumps(told).encode()


# --------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    make : makes whole files in an empty folder. It runs in a process of its own, which may end in the middle.
    use : does what a user does with files of the folder, of which those of these names are damaged.
    damaged : endings of the names of files that are damaged.
    right : makes checksums right again.
    other : makes a file that is well-formed and says something else.
    """

    make: Callable[[Path], None]
    use: Callable[[Path, list[str], random.Random], None]
    damaged: tuple[str, ...]
    right: Callable[[dict[str, bytearray], random.Random], None] | None = None
    other: Callable[[dict[str, bytearray], random.Random], None] | None = None


KINDS = {
    "header": Kind(make_netcdf, of_netcdf, (".nc",)),
    "marker": Kind(make_markers, of_netcdf, (".nc",), other=other_markers),
    "log": Kind(make_burst_log, of_burst_log, (".meta", ".data"), right_records),
    "clog": Kind(make_c_log, of_c_log, (".meta", ".data")),
    "commit": Kind(make_burst_log, of_burst_log, (".commit", ".defs"), right_records),
    "cache": Kind(make_cache, of_cache, (".extents", ".cache"), right_records),
    "journal": Kind(make_journal, of_journal, (".pncj",), right_journal),
    "note": Kind(make_notes, of_notes, (".pncc", ".pncbb")),
    "blob": Kind(make_blob, of_set, (".0000", ".0001"), other=_other_set("blob")),
    "hdf5blob": Kind(make_hdf5blob, of_set, (".0000", ".0001"), other=_other_set("hdf5blob")),
    "hints": Kind(make_hint_file, of_hint_file, (".json",), other=other_hints),
    "map": Kind(make_map_file, of_map_file, ("map.nc",)),
    "pickle": Kind(make_pickle, of_pickle, (".pickle",)),
    "link": Kind(make_link_file, of_link_file, (".h5",)),
}
