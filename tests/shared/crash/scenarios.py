"""What changes a file and is no act of the engine's programs, as scenarios: other files, temporary names, objects.

What random programs do, in all layouts, with logs and caches, is killed by the engine (``--event kill``, ``power``).

Knows: pnc_vol as a user does. Does not know: how states are made.

Rules
-----
1. What a step promises is written down, in numpy, and never read from the file that is examined.
2. Files are small: a state is rebuilt and read in milliseconds.
3. Names say what happens, in order; a change that ends with a durable flush has a ``!`` behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import pnc_vol
from crash.acts import ACTS, FIXED, RECORDS, START, START_FIXED, fill_fixed, fill_start
from crash.promise import NO_FILE, Contents, contents_of
from crash.running import Run, Scenario
from pnc_vol.convert.hdf5 import convert
from pnc_vol.convert.repack import repack_on

__all__ = ["SCENARIOS"]


def kind_of(durable: bool) -> str:
    return "durable" if durable else "flush"


def start(run: Run) -> Contents:
    """A file with something of all kinds, closed and safe."""
    with run.open("w") as f:
        fill_start(f)
    return START


# ------------------------------------------------------------------------------------------- new files


def publish_at_close(durable: bool, mode: str) -> Callable[[Run], None]:
    def program(run: Run) -> None:
        f = run.open(mode, publish="close", durable=durable)
        f["a"] = FIXED
        f.flush()
        f.create_dataset("r", data=RECORDS, maxshape=(None, 10))
        f.attrs["much"] = np.arange(3000, dtype="i4")
        f.flush(durable=durable)
        whole = contents_of(a=FIXED, r=RECORDS).having(attrs={"@much": np.arange(3000)})
        with run.step(whole, kind_of(durable)):
            f.close()

    return program


# ------------------------------------------------------------------- changes of a file that is there


def changes(*names: str) -> Scenario:
    """A session that makes changes of `ACTS`, one flush for each, durable after a name that ends with ``!``."""

    def program(run: Run) -> None:
        f = run.open("r+")
        contents = START
        for name in names:
            act, firm = ACTS[name.rstrip("!")], name.endswith("!")
            contents = act.then(contents)
            with run.step(contents, kind_of(firm)):
                act.do(f)
                f.flush(durable=firm)
        with run.step(contents):
            f.close()

    return Scenario(", ".join(names), program, start)


# --------------------------------------------------- plain flushes after a durable one, in every kind of file


class Way(NamedTuple):
    """How a file is written.

    options, recovery : dict, see `Scenario`.
    held : bool, a flush is complete when data are in caches.
    synced : bool, every flush is durable.
    """

    options: dict[str, Any]
    recovery: Mapping[str, Any] = MappingProxyType({})
    held: bool = False
    synced: bool = False


_CACHE = {"e10_cache_path": "FOLDER/nvm", "e10_cache_flush_flag": "flush_onclose"}

_IGNORED = {"burst_buf": False}
"""What was posted and not flushed stays in the log."""

WAYS: dict[str, Way] = {
    "plain": Way({}),
    "log": Way({"burst_buf": True}, _IGNORED),
    "log, synced at flushes": Way({"burst_buf": True, "burst_buf_sync": "flush"}, _IGNORED, synced=True),
    "log, each post synced": Way({"burst_buf": True, "burst_buf_sync": "each"}, _IGNORED, synced=True),
    "cache": Way({"hints": _CACHE}, {"recover": True}, held=True),
    "blob": Way({"layout": "blob"}),
    "blob, log": Way({"layout": "blob", "burst_buf": True, "burst_buf_sync": "flush"}, _IGNORED, synced=True),
    "blob, cache": Way({"layout": "blob", "hints": _CACHE}, {"recover": True}, held=True),
}
SHAPES = ("wider", "shrink", "shrink, second axis", "wider")
FIXED_COURSE = ("data", "long attribute", "ragged", "string", "define")
RECORD_COURSE = ("append", "fewer records", "long attribute", "append", "ragged")
"""Changes, each with a plain flush, of a file without records and of one with records."""


def storage(run: Run) -> Contents:
    """No file, and a folder for caches."""
    os.mkdir(os.path.join(run.folder, "nvm"), 0o700)
    return NO_FILE


def after_durable(name: str, way: Way, publish: str, names: Sequence[str], *, records: bool) -> Scenario:
    """A new file, a durable flush, and changes with plain flushes."""
    late = publish == "close"

    def program(run: Run) -> None:
        contents = START if records else START_FIXED
        with nullcontext() if late else run.step(Contents(), "held" if way.held else "flush"):
            f = run.open("w")
        with run.step(contents, "durable"):
            (fill_start if records else fill_fixed)(f)
            f.flush(durable=True)
        for one in names:
            contents = ACTS[one].then(contents)
            with run.step(contents, "durable" if way.synced else "held" if way.held else "flush"):
                ACTS[one].do(f)
                f.flush()
        with run.step(contents):
            f.close()

    return Scenario(
        f"{name}{', named at the close' * late}: {', '.join(names)}",
        program,
        storage,
        {**way.options, "publish": publish},
        dict(way.recovery),
        unnamed=late,
        unsynced=way.held,
    )


# ------------------------------------------------------------------------------- whole files, and other files


def in_place(run: Run) -> None:
    with run.step(START):
        repack_on(run.system, run.path)


def with_hole(run: Run) -> Contents:
    """A file with space that nothing uses."""
    with run.open("w") as f:
        f["gone"] = FIXED
        fill_start(f)
        f.flush()
        del f["gone"]
    return START


def converting(run: Run) -> None:
    with run.step(contents_of(a=FIXED, r=RECORDS)):
        convert(os.path.join(run.folder, "source.h5"), run.path, system=run.system, overwrite=True)


def hdf5_source(run: Run) -> Contents:
    import h5py

    with h5py.File(os.path.join(run.folder, "source.h5"), "w") as f:
        f["a"] = FIXED
        f.create_dataset("r", data=RECORDS, maxshape=(None, 10))
    return NO_FILE


def source_and_target(run: Run) -> Contents:
    hdf5_source(run)
    return start(run)


class Object:
    """A file-like object on a descriptor of a system, as a stranger's storage would be."""

    def __init__(self, run: Run) -> None:
        self.system, self.at = run.system, 0
        self.fd = run.system.open(run.path, os.O_RDWR | os.O_CREAT)

    def read(self, nbytes: int = -1) -> bytes:
        size = self.system.fstat(self.fd).st_size
        room = bytearray(max(0, size - self.at) if nbytes < 0 else nbytes)
        got = self.system.pread_into(self.fd, room, self.at)
        self.at += got
        return bytes(room[:got])

    def write(self, data: Any) -> int:
        done = self.system.pwrite(self.fd, data, self.at)
        self.at += done
        return done

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.system.fstat(self.fd).st_size)[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def truncate(self, nbytes: int) -> int:
        self.system.ftruncate(self.fd, nbytes)
        return nbytes

    def fileno(self) -> int:
        return self.fd

    def flush(self) -> None: ...


def file_object(run: Run) -> None:
    """Data and records of an object; its header is written in place, so a step that writes one promises nothing."""
    target = Object(run)
    f = pnc_vol.File(target, "r+", system=run.system)
    contents = START
    for name, kind in (("data", "durable"), ("append", "flush"), ("attribute", "unsafe"), ("long attribute", "unsafe")):
        contents = ACTS[name].then(contents)
        with run.step(contents, kind):
            ACTS[name].do(f)
            f.flush(durable=kind == "durable")
    f.close()
    run.system.close(target.fd)


def _scenarios() -> Iterator[Scenario]:
    for durable in (False, True):
        mark = "!" if durable else ""
        yield Scenario(f"publish at close{mark}", publish_at_close(durable, "w"))
        yield Scenario(f"publish at close over a file{mark}", publish_at_close(durable, "w"), start)
    yield Scenario("publish at close, exclusive", publish_at_close(False, "x"))
    yield changes("data!", "define")
    yield changes("append!", "long attribute", "append", "attribute")
    yield Scenario("repack", in_place, with_hole)
    yield Scenario("convert", converting, hdf5_source)
    yield Scenario("convert over a file", converting, source_and_target)
    yield Scenario("file object", file_object, start)
    for name, way in WAYS.items():
        yield after_durable(name, way, "close", FIXED_COURSE, records=False)
        yield after_durable(name, way, "close", RECORD_COURSE, records=True)
        yield after_durable(name, way, "create", SHAPES, records=False)


SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _scenarios()}
