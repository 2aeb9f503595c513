"""What an operation leaves that Ctrl-C comes into: all of it was done, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from interrupts import AtCall, Call, Interrupts, open_now

import pnc_vol
from pnc_vol import File
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.file import driver_stack
from pnc_vol.system import System

NUMBERS = np.arange(1, 13, dtype="i4").reshape(4, 3)
PAIRS = np.array([(n, n / 2) for n in range(4)], [("a", "i4"), ("b", "f8")])
STRINGS = np.array(["one", "two", "three", "four"], object)


def made(f: File) -> None:
    """Datasets of all kinds, posted and not written."""
    f.create_dataset("x", data=NUMBERS, maxshape=(None, None))
    f.create_dataset("pairs", data=PAIRS, maxshape=(None,))
    f.create_dataset("g/strings", data=STRINGS, dtype=pnc_vol.string_dtype(), maxshape=(None,))
    f.create_dataset("ragged", (4,), pnc_vol.vlen_dtype("i4"), maxshape=(None,))[:] = [
        np.arange(1, n + 2, dtype="i4") for n in range(4)
    ]
    f["g"].attrs["a"] = 1
    f.create_dataset("refers", data=[f["ragged"].ref], dtype=pnc_vol.ref_dtype)


@cache
def of_hdf5() -> h5py.File:
    """A file of HDF5 in memory."""
    f = h5py.File("a.h5", "w", driver="core", backing_store=False)
    f["g/x"] = NUMBERS
    f["g/y"] = NUMBERS
    f["g"].attrs["a"] = 1
    return f


def spread(count: int, most: int) -> list[int]:
    """At most so many numbers below `count`, the small ones close together."""
    return sorted({int(n) for n in np.geomspace(1, count, min(count, most)) - 1} if most < count else range(count))


def content(f: File) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        found[f"{name} attributes"] = {key: np.asarray(value).tolist() for key, value in item.attrs.items()}
        if isinstance(item, pnc_vol.Dataset):
            values = item[()]
            if pnc_vol.check_ref_dtype(item.dtype):
                values = np.array([f[each].name for each in values])
            found[name] = [v.tolist() if isinstance(v, np.ndarray) else v for v in values.tolist()]

    f.visititems(visit)
    return found


ACTS: dict[str, Callable[[File], Any]] = {
    "fewer x": lambda f: f["x"].resize(1, axis=0),
    "fewer pairs": lambda f: f["pairs"].resize(1, axis=0),
    "fewer strings": lambda f: f["g/strings"].resize(1, axis=0),
    "fewer ragged": lambda f: f["ragged"].resize(1, axis=0),
    "more x": lambda f: f["x"].resize(6, axis=0),
    "more pairs": lambda f: f["pairs"].resize(6, axis=0),
    "more ragged": lambda f: f["ragged"].resize(6, axis=0),
    "wider": lambda f: f["x"].resize(5, axis=1),
    "narrower": lambda f: f["x"].resize(2, axis=1),
    "delete": lambda f: f.__delitem__("x"),
    "delete pairs": lambda f: f.__delitem__("pairs"),
    "delete a group": lambda f: f.__delitem__("g"),
    "move": lambda f: f.move("x", "g/y"),
    "move a group": lambda f: f.move("g", "h"),
    "attribute": lambda f: f["g"].attrs.__setitem__("b", [1, 2]),
    "attribute again": lambda f: f["g"].attrs.__setitem__("a", "text"),
    "attribute away": lambda f: f["g"].attrs.__delitem__("a"),
    "group": lambda f: f.create_group("k/l"),
    "dataset": lambda f: f.create_dataset("new", data=NUMBERS),
    "dataset in new groups": lambda f: f.create_dataset("k/l/new", (3,), "f8"),
    "dataset of pairs": lambda f: f.create_dataset("new", data=PAIRS),
    "dataset without a name": lambda f: f.create_dataset(None, data=NUMBERS),
    "copy a group": lambda f: f.copy("g", "k/h"),
    "copy with references": lambda f: f.copy("refers", "k", expand_refs=True),
    "copy of HDF5": lambda f: f.copy(of_hdf5()["g"], "k/h"),
    "link": lambda f: f.__setitem__("new", pnc_vol.SoftLink("/x")),
}


@pytest.mark.filterwarnings("ignore:arrays of varying length are kept in memory")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("store", "most"), [
    ("memory", 25), ("log", 5), *(pytest.param(store, 10**9, marks=pytest.mark.nightly) for store in ("memory", "log")),
])  # fmt: skip
def test_an_act_into_which_ctrl_c_comes(tmp_path: Path, store: str, most: int, act: str) -> None:
    hints = {"burst_buf": True, "burst_buf_dirname": str(tmp_path)} if store == "log" else {}

    def left(trouble: Any) -> dict[str, Any]:
        with pnc_vol.File(tmp_path / "a.nc", "w", **hints) as f:
            made(f)
            try:
                with trouble:
                    ACTS[act](f)
            except KeyboardInterrupt:
                pass
            before = content(f)
        with pnc_vol.File(tmp_path / "a.nc", "r") as f:
            assert content(f) == before
        return before

    with pnc_vol.File(tmp_path / "b.nc", "w", **hints) as f:
        made(f)
        old = content(f)
    left(Interrupts(10**9, KeyboardInterrupt))
    counted = Interrupts(0, KeyboardInterrupt)
    new = left(counted)
    wrong = {}
    # Most places at which it goes wrong are near the end.
    for n in sorted({counted.count - back for back in spread(counted.count, most)}):
        trouble = counted.at_line(n)
        try:
            if left(trouble) not in (old, new):
                wrong[trouble.where] = "neither the old nor the new content"
        except Exception as error:
            wrong[trouble.where] = repr(error)
    assert not wrong


OPENINGS: dict[str, dict[str, Any]] = {
    "memory": {},
    "log": {"burst_buf": True},
    "cache": {"hints": {"e10_cache": "enable", "e10_cache_path": "local"}},
}


def relaid(path: Path, trouble: Any, **options: Any) -> File:
    """A file whose data move to a copy, in a flush into which the trouble comes."""
    f = pnc_vol.File(path, "w", **options)
    f.create_dataset("x", data=NUMBERS, maxshape=(None, None))
    f.flush()
    f["x"].resize(5, axis=1)
    with trouble:
        f.flush()
    return f


def opened(path: Path, trouble: Any, **options: Any) -> File:
    with trouble:
        return pnc_vol.File(path, "w", **options)


@pytest.mark.parametrize("store", OPENINGS)
@pytest.mark.parametrize("work", [opened, relaid])
@pytest.mark.parametrize("most", [25, pytest.param(10**9, marks=pytest.mark.nightly)])
def test_nothing_is_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, work: Callable[..., File], store: str
) -> None:
    """No folder or note of a log or a cache, no temporary file, and no descriptor."""
    monkeypatch.chdir(tmp_path)
    Path("local").mkdir()

    def left(trouble: Any) -> tuple[set[str], tuple[int, int]]:
        with contextlib.suppress(KeyboardInterrupt):
            work(Path("a.nc"), trouble, **OPENINGS[store]).close()
        loads = open_now()
        # a file of which a frame had the last reference
        pnc_vol.File("next.nc", "w", driver="memory").close()
        return {str(path) for path in Path().rglob("*")} - {"a.nc"}, min(loads, open_now())

    expected = left(Interrupts(10**9, KeyboardInterrupt))
    counted = Interrupts(0, KeyboardInterrupt)
    left(counted)
    wrong = {}
    for n in np.linspace(1, counted.count, min(counted.count, most)).astype(int).tolist():
        trouble = counted.at_line(n)
        if (found := left(trouble)) != expected:
            wrong[trouble.where] = found
    assert not wrong


@pytest.mark.parametrize("act", ["close", "flush"])
def test_a_header_that_is_in_the_file_and_was_not_noted(tmp_path: Path, act: str) -> None:
    """It stays whole at the close, or what was defined in it is taken back."""
    f = pnc_vol.File(tmp_path / "a.nc", "w")
    f["x"] = NUMBERS
    f.flush()
    f["y"], f.attrs["long"] = NUMBERS, "text" * 1000
    trouble = AtCall(Call(StoredFile.begins_with.__code__, 1), 1, 0, KeyboardInterrupt)
    with contextlib.suppress(KeyboardInterrupt), trouble:
        getattr(f, act)()
    assert trouble.happened
    if act == "flush":
        del f["y"], f.attrs["long"]
    f.close()
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert (list(f), list(f.attrs)) == ((["x", "y"], ["long"]) if act == "close" else (["x"], []))
        assert f["x"][...].tolist() == NUMBERS.tolist()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_the_file_of_a_queue_that_spills_is_not_left(error: type[BaseException], tmp_path: Path) -> None:
    """Its name goes as soon as it is open, also where an interruption comes between the two."""

    def posted(f: File) -> None:
        f["x"][:50_000] = 1
        f["x"][50_000:] = 2

    def opened(n: int) -> File:
        f = File(tmp_path / f"{n}.nc", "w", ordered=True, buffer_size=100_000)
        f.create_dataset("x", (100_000,), "i4")
        f.flush()
        return f

    with opened(-1) as f, Interrupts(0, error) as counted:
        posted(f)
    code = driver_stack.open_spill.__code__
    of_spill = [n for n, call in enumerate(counted._call_of) if counted._noted[call].code is code]
    assert of_spill
    for n in range(of_spill[0], of_spill[-1] + 2):
        with opened(n) as f:
            trouble = counted.at_line(n + 1)
            with pytest.raises(error), trouble:
                posted(f)
            assert not list(tmp_path.glob(".*.spill")), trouble.where


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_opening_closes_all_at_once(error: type[BaseException], tmp_path: Path) -> None:
    """Also what was opened and nobody knows yet: who has the exception may keep it, and its traceback."""
    File(tmp_path / "-2.nc", "w").close()
    with Interrupts(0, error) as counted:
        f = File(tmp_path / "-1.nc", "w")
    f.close()
    code = System.open.__code__
    lines = [n + 1 for n, call in enumerate(counted._call_of) if counted._noted[call].code is code]
    assert lines
    before = open_now()
    for n in lines:
        trouble = counted.at_line(n)
        with pytest.raises(error) as kept, trouble:
            File(tmp_path / f"{n}.nc", "w")
        assert open_now() == before, trouble.where
        del kept


@pytest.mark.parametrize("rows", [5, 5_000])
def test_the_next_post_is_taken_while_the_traceback_of_a_read_is_kept(tmp_path: Path, rows: int) -> None:
    """As a notebook keeps it; the read was of posts that a flush has not written yet."""

    def posted(n: int) -> File:
        f = File(tmp_path / f"{n}.nc", "w")
        f.create_dataset("x", (2 * rows,), "i4")[:] = 0
        f.flush()
        for i in range(rows):
            f["x"][2 * i] = i
        return f

    with posted(-1) as f, Interrupts(0, KeyboardInterrupt) as counted:
        f["x"][:]
    for n in spread(counted.count, 60):
        with posted(n) as f:
            trouble = counted.at_line(n + 1)
            with pytest.raises(KeyboardInterrupt) as kept, trouble:
                f["x"][:]
            f["x"][1] = 7
            assert kept.value
            assert f["x"][:4].tolist() == [0, 7, 1, 0], trouble.where
