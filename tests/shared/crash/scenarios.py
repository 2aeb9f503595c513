"""The paths that change a file, as scenarios.

Knows: pnc_vol as a user does. Does not know: how states are made.

Rules
-----
1. What a step promises is written down, in numpy, and never read from the file that is examined.
2. Files are small: a state is rebuilt and read in milliseconds.
3. Names say what happens, in order; a change that ends with a durable flush has a ``!`` behind it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import pnc_vol
from crash.acts import ACTS, FIXED, RECORDS, START, START_FIXED, fill_fixed, fill_start
from crash.promise import NO_FILE, Contents, contents_of
from crash.running import Run, Scenario, record
from pnc_vol.convert.hdf5 import convert
from pnc_vol.convert.repack import repack_on

__all__ = ["AFTER_DURABLE", "SCENARIOS", "all_pairs", "changes"]


def kind_of(durable: bool) -> str:
    return "durable" if durable else "flush"


def start(run: Run) -> Contents:
    """A file with something of all kinds, closed and safe."""
    with run.open("w") as f:
        fill_start(f)
    return START


# ------------------------------------------------------------------------------------------- new files


def create(*durable: bool) -> Callable[[Run], None]:
    """A file, and a dataset for each flush."""

    def program(run: Run) -> None:
        contents = Contents()
        with run.step(contents):
            f = run.open("w")
        for i, firm in enumerate(durable):
            contents = contents.having({f"x{i}": FIXED + i})
            with run.step(contents, kind_of(firm)):
                f[f"x{i}"] = FIXED + i
                f.flush(durable=firm)
        f.close()

    return program


def overwrite(durable: bool) -> Callable[[Run], None]:
    def program(run: Run) -> None:
        with run.step(Contents()):
            f = run.open("w", durable=durable)
        with run.step(contents_of(b=RECORDS), kind_of(durable)):
            f["b"] = RECORDS
            f.close()

    return program


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


def of_start() -> list[str]:
    """The changes of what `start` makes."""
    return [name for name, act in ACTS.items() if act.needs in ("", *START.datasets)]


def all_pairs() -> Iterator[Scenario]:
    """Every change after every other one, with a durable flush between them, after both of them, or nowhere."""
    for one, other in itertools.product(of_start(), of_start()):
        gone = ACTS[one].drops and ACTS[one].drops == ACTS[other].needs
        if not gone and not (one == other and ACTS[one].once):
            yield changes(one + "!", other)
            yield changes(one, other + "!")
            yield changes(one, other)


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
COURSES: tuple[Sequence[str], ...] = (
    ("wider", "shrink", "shrink, second axis", "wider"),
    ("ragged", "ragged, same length", "ragged"),
    ("string", "compound", "long attribute", "attribute"),
    ("delete first", "define", "wider", "delete", "shrink"),
    ("replace", "replace", "data", "rename"),
)
RECORD_COURSES: tuple[Sequence[str], ...] = (
    ("append", "fewer records", "append"),
    ("second record dataset", "fewer records", "records of the second", "append"),
    ("wider", "append", "shrink", "delete records", "define", "wider"),
    ("data", "long attribute", "ragged", "append", "string"),
)
"""Changes, each with a plain flush, of a file without records and of one with records."""


def storage(run: Run) -> Contents:
    """No file, and a folder for caches."""
    os.mkdir(os.path.join(run.folder, "nvm"), 0o700)
    return NO_FILE


@contextmanager
def flushed(run: Run, contents: Contents, way: Way) -> Iterator[None]:
    """A step that ends with a plain flush."""
    with ExitStack() as stack:
        stack.enter_context(run.step(contents, "durable" if way.synced else "held" if way.held else "flush"))
        yield


def after_durable(name: str, way: Way, publish: str, names: Sequence[str], *, records: bool) -> Scenario:
    """A new file, a durable flush, and changes with plain flushes."""
    late = publish == "close"

    def program(run: Run) -> None:
        contents = START if records else START_FIXED
        if late:
            f = run.open("w")
        else:
            with run.step(Contents(), "held" if way.held else "flush"):
                f = run.open("w")
        with run.step(contents, "durable"):
            (fill_start if records else fill_fixed)(f)
            f.flush(durable=True)
        for one in names:
            contents = ACTS[one].then(contents)
            with flushed(run, contents, way):
                ACTS[one].do(f)
                f.flush()
        with run.step(contents):
            f.close()

    said = f"{name}{', named at the close' * late}: {', '.join(names)}"
    return Scenario(
        said, program, storage, {**way.options, "publish": publish}, dict(way.recovery), unnamed=late, unsynced=way.held
    )


def overwriting(way: Way, mode: str) -> Callable[[Run], None]:
    """A file over one that is safe: until the first durable flush a power failure may leave it incomplete."""

    def program(run: Run) -> None:
        with run.step(Contents()):
            f = run.open("w")
        with run.step(contents_of(b=RECORDS), "unsafe" if mode == "plain" else "durable"):
            f["b"] = RECORDS
            f.flush(durable=mode == "durable")
        f.close()

    return program


def start_and_storage(run: Run) -> Contents:
    storage(run)
    return start(run)


def _courses() -> Iterator[Scenario]:
    for (name, way), publish in itertools.product(WAYS.items(), ("create", "close")):
        for names in COURSES:
            yield after_durable(name, way, publish, names, records=False)
        for names in RECORD_COURSES:
            yield after_durable(name, way, publish, names, records=True)
    for name, way in WAYS.items():
        for mode in ("plain", "durable"):
            mark = "!" * (mode == "durable")
            yield Scenario(
                f"{name}: over a safe file{mark}",
                overwriting(way, mode),
                start_and_storage,
                way.options,
                dict(way.recovery),
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


# ------------------------------------------------------------------------------------------- burst buffer


def posting(kind: str, *, moves: bool = False) -> Callable[[Run], None]:
    """Posts that are logged, a flush, for which a copy takes the file's place if it `moves`, and posts again."""

    def program(run: Run) -> None:
        f = run.open("r+")
        contents = START
        for name in ("data", "append", "compound"):
            contents = ACTS[name].then(contents)
            with run.step(contents, kind):
                ACTS[name].do(f)
            if name == "append":
                contents = ACTS["long attribute"].then(contents) if moves else contents
                with run.step(contents, "flush" if kind == "log" else "durable"):
                    if moves:
                        ACTS["long attribute"].do(f)
                    f.flush()
        with run.step(contents, "flush" if kind == "log" else "durable"):
            f.close()

    return program


def killed_with_a_log(run: Run) -> Contents:
    """The state of `posting` before its flush."""
    recording = record(SCENARIOS["burst buffer"], run.folder)
    step = recording.steps[1]
    disk = recording.start.copy()
    for change in recording.changes[: step.end]:
        disk.apply(change)
    run.numbers.update({real: recording.real[inode] for real, inode in disk.write(run.folder).items()})
    return START


def recovering(run: Run) -> None:
    contents = ACTS["append"].then(ACTS["data"].then(START))
    with run.step(contents, "log"):
        """It was logged by the process that was killed."""
    with run.step(contents):
        f = run.open("r+", recover=True)
    f.close()


def drained(*durable: bool) -> Callable[[Run], None]:
    """More posts than the buffer holds, to a new dataset and to records, in several flushes."""

    def program(run: Run) -> None:
        f = run.open("r+")
        contents = START
        for i, firm in enumerate(durable):
            contents = ACTS["append"].then(contents).having({f"d{i}": np.arange(2000.0) + i})
            with run.step(contents, kind_of(firm)):
                ACTS["append"].do(f)
                d = f.create_dataset(f"d{i}", (2000,), "f8")
                for at in range(0, 2000, 250):
                    d[at : at + 250] = np.arange(at, at + 250.0) + i
                f.flush(durable=firm)
        f.close()

    return program


# ------------------------------------------------------------------------------------------- subfiles


def start_in_blobs(run: Run) -> Contents:
    """As `start`, in a set of blobs; half of a dataset is in its map."""
    with run.open("w", layout="blob") as f:
        fill_start(f)
        f.create_dataset("half", (20, 10), "i4")[2:12] = 5
    return START.having({"half": _half()})


def _half() -> Any:
    made = np.zeros((20, 10), "i4")
    made[2:12] = 5
    return made


def in_blobs(*names: str) -> Scenario:
    """`changes` of a set of blobs, and posts in and outside of a map."""
    made = changes(*names)

    def program(run: Run) -> None:
        f = run.open("r+")
        contents, half = START.having({"half": _half()}), _half()
        for i, name in enumerate(names):
            act, firm = ACTS[name.rstrip("!")], name.endswith("!")
            half = half.copy()
            half[2 + i, 3], half[15 + i, :4] = 100 + i, 200 + i
            contents = act.then(contents).having({"half": half})
            with run.step(contents, kind_of(firm)):
                act.do(f)
                f["half"][2 + i, 3] = 100 + i
                f["half"][15 + i, :4] = 200 + i
                f.flush(durable=firm)
        with run.step(contents):
            f.close()

    return replace(made, name=f"blob: {made.name}", program=program, before=start_in_blobs)


def new_blobs(*durable: bool) -> Callable[[Run], None]:
    """A new set: each flush brings a dataset of which a part is posted, then the rest of the one before."""

    def program(run: Run) -> None:
        contents = Contents()
        with run.step(contents):
            f = run.open("w", layout="blob")
        for i, firm in enumerate(durable):
            part = np.zeros_like(FIXED)
            part[i : i + 9, 2:7] = i + 1
            contents = contents.having({f"x{i}": part} | ({f"x{i - 1}": FIXED} if i else {}))
            with run.step(contents, kind_of(firm)):
                f.create_dataset(f"x{i}", FIXED.shape, "f8")[i : i + 9, 2:7] = i + 1
                if i:
                    f[f"x{i - 1}"][...] = FIXED
                f.flush(durable=firm)
        f.close()

    return program


def _scenarios() -> Iterator[Scenario]:
    yield Scenario("new blobs", new_blobs(False, False, False))
    yield Scenario("new blobs!", new_blobs(True, True, True))
    yield in_blobs("append", "data!")
    yield in_blobs("attribute!", "append", "define")
    yield Scenario("create", create(False, False))
    yield Scenario("create!", create(True, True))
    yield Scenario("create, durable flush, plain flush", create(True, False))
    yield Scenario("overwrite", overwrite(False), start, power=False)  # else: `overwriting`
    yield Scenario("overwrite!", overwrite(True), start)
    for durable in (False, True):
        mark = "!" if durable else ""
        yield Scenario(f"publish at close{mark}", publish_at_close(durable, "w"))
        yield Scenario(f"publish at close over a file{mark}", publish_at_close(durable, "w"), start)
    yield Scenario("publish at close, exclusive", publish_at_close(False, "x"))
    for name in of_start():
        yield changes(name)
        yield changes("data!", name)
    yield changes("append!", "long attribute", "append", "attribute")
    yield changes("grow!", "shrink!")
    yield changes("grow", "shrink, second axis", "grow")
    yield changes("ragged!", "ragged, same length!", "string", "compound")
    yield Scenario("repack", in_place, with_hole)
    yield Scenario("convert", converting, hdf5_source)
    yield Scenario("convert over a file", converting, source_and_target)
    yield Scenario("file object", file_object, start)
    log = {"burst_buf": True}
    yield Scenario("burst buffer", posting("log"), start, log, {"recover": True}, power=False)
    each = {**log, "burst_buf_sync": "each"}
    yield Scenario("burst buffer, each post synced", posting("safe log"), start, each, {"recover": True})
    yield Scenario("burst buffer, moved", posting("safe log", moves=True), start, each, {"recover": True})
    yield Scenario("recover a log", recovering, killed_with_a_log, log, {"recover": True}, power=False)
    yield Scenario("drain", drained(False, False), start, {"buffer_size": 4096}, power=False)
    yield Scenario("drain!, drain", drained(True, False), start, {"buffer_size": 4096})


SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _scenarios()}
AFTER_DURABLE: dict[str, Scenario] = {scenario.name: scenario for scenario in _courses()}
"""Plain flushes after what is safe, in every kind of file (`WAYS`)."""
