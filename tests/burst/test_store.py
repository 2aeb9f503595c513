"""What a post costs, what a read does not do, and what becomes of each request, with a log."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_bytes import MAGIC
from this_system import needs_reservation

import pnc_vol
from pnc_vol.testing.faults import HookedSystem, TraceSystem


def logged(logs: pathlib.Path, **more: Any) -> dict[str, Any]:
    return {"burst_buf": True, "burst_buf_dirname": str(logs), **more}


def log_file(logs: pathlib.Path, suffix: str) -> pathlib.Path:
    (found,) = logs.glob(f"*/*{suffix}")
    return found


def test_a_read_writes_nothing_to_the_file(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """The C library flushes everything for any read; here the log is laid over what the file holds."""
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs)) as f:
        x, y = f.create_dataset("x", (50, 40), "f8"), f.create_dataset("y", (9,), "i2")
        r = f.create_dataset("r", (0, 3), "i4", maxshape=(None, 3))
        x[...] = 1.0
        f.flush()
        before, content = f.statistics(), (tmp_path / "x.nc").read_bytes()
        x[3:9, ::2] = 2.0
        y[4] = 7
        r.resize(2, axis=0)
        r[1] = 5
        waiting = x.iput((3, 0), 3.0)
        posted = x.iget(np.s_[3])
        assert x[3, :3].tolist() == [3.0, 1.0, 2.0]
        assert y[:].tolist() == [0] * 4 + [7] + [0] * 4
        assert r[:].tolist() == [[0] * 3, [5] * 3]
        assert x[20, 20] == 1.0
        assert posted.wait()[:2].tolist() == [3.0, 1.0]
        after = f.statistics()
        assert (after["flushes"], after["bytes_written"]) == (before["flushes"], before["bytes_written"])
        assert waiting.status == "pending"
        assert (tmp_path / "x.nc").read_bytes() == content


@needs_reservation
def test_the_header_goes_to_the_file_and_data_to_the_log(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system)) as f:
        f.create_dataset("x", (100_000,), "f8")
        f.create_dataset("y", (5,), ">i2")
        f.attrs["title"] = "a log"
        f.flush()
        with pnc_vol.File(tmp_path / "x.nc") as other:
            assert list(other) == ["x", "y"]
            assert other.attrs["title"] == "a log"
        values = np.arange(100_000.0)
        system.log.clear()
        f["x"][:] = values
        large = [call for call in system.log if call.name.startswith("pwrite")]
        # One append of the values; the entry and its commit are stored in windows.
        assert [(pathlib.Path(call.path).suffix, call.nbytes) for call in large] == [(".data", 800_000)]
        f["y"][1:3] = [1, -2]
        system.log.clear()
        f["y"][4] = 3
        # Small ones fit the window that is open.
        assert not system.log
        # In memory order, one after another, whatever the file's.
        wanted = MAGIC + values.tobytes() + np.array([1, -2, 3], "i2").tobytes()
        assert log_file(logs, ".data").read_bytes()[: len(wanted)] == wanted


def test_all_failures_are_told(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """Two bad places on a disk, in two rounds, of two datasets: each request that meets one failed, and no other."""

    class Bad(HookedSystem):
        ranges: tuple[range, ...] = ()

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name in ("pwrite", "pwritev") and self.ranges and os.path.sameopenfile(args[0], of_file):
                nbytes = sum(memoryview(p).nbytes for p in args[1]) if name == "pwritev" else memoryview(args[1]).nbytes
                if any(args[2] < bad.stop and bad.start < args[2] + nbytes for bad in self.ranges):
                    raise OSError(errno.EIO, "bad place")
            return super().call(name, args, kwargs)

    system = Bad()
    f = pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system, burst_buf_flush_buffer_size=1))
    x, y = f.create_dataset("x", (6, 30_000), "i4"), f.create_dataset("y", (6, 30_000), "i4")
    f.flush()
    of_file = os.open(tmp_path / "x.nc", os.O_RDONLY)
    begins = [var.begin for var in f.id.handle.session.disk.header.vars]
    requests = {(ds.name, i): ds.iput((i,), np.full(30_000, i + 1, "i4")) for i in range(6) for ds in (x, y)}
    system.ranges = tuple(
        range(begins[k] + i * 120_000 + 64, begins[k] + i * 120_000 + 72) for k, i in ((0, 1), (1, 4))
    )
    with pytest.raises(pnc_vol.FlushError) as caught:
        f.flush()
    told = {error.request: (error.variable, error.errno) for error in caught.value.errors}
    bad = {requests["/x", 1].id: ("/x", errno.EIO), requests["/y", 4].id: ("/y", errno.EIO)}
    assert told == bad
    for key, request in requests.items():
        assert request.status == ("failed" if request.id in bad else "done"), key
        if request.id in bad:
            assert isinstance(request.error, OSError)
    # What failed is still in the log: a kill now would lose nothing.
    assert x[1, 7] == 2
    system.ranges = ()
    requests["/y", 4].cancel()
    f.flush()
    assert (x[1, 5], y[4, 5]) == (2, 0)
    f.close()
    assert not list(logs.iterdir())


def test_each_syncs_what_is_no_post_too(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system, burst_buf_sync="each")) as f:
        r = f.create_dataset("r", (4,), "i4", maxshape=(None,))
        request = r.iput((2,), 5)
        for change in (request.cancel, lambda: r.resize(1, axis=0)):
            system.log.clear()
            change()
            synced = [pathlib.Path(call.path).suffix for call in system.log if call.name == "fdatasync"]
            assert synced == [".defs", ".data", ".meta", ".commit"]


@pytest.mark.parametrize("when", ["close", "flush", "wait", "wait_all", "moved"])
def test_what_flushes(when: str, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    f = pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs))
    x = f.create_dataset("x", (1000,), "f8")
    f.flush()
    request = x.iput(np.s_[:], np.arange(1000.0))
    if when == "moved":
        # The header outgrows its reserve, and all data moves.
        f.attrs["long"] = np.arange(40_000)
    assert request.status == "pending"
    {"close": f.close, "flush": f.flush, "wait": request.wait, "wait_all": f.wait_all, "moved": f.flush}[when]()
    assert request.status == "done"
    assert when != "moved" or f.statistics()["moves"] == 1
    with pnc_vol.File(tmp_path / "x.nc") as other:
        assert other["x"][999] == 999
    f.close()


def test_a_post_that_is_refused_leaves_nothing_in_the_log(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs)) as f:
        x = f.create_dataset("x", (4,), "i1")
        x[:] = 1
        before = {suffix: log_file(logs, suffix).read_bytes() for suffix in (".meta", ".data", ".commit", ".defs")}
        for wrong in (300, [1, 2, 3], "text"):
            with pytest.raises((ValueError, TypeError)):
                x[:2] = wrong
        with pytest.raises(IndexError):
            x[9] = 1
        assert before == {suffix: log_file(logs, suffix).read_bytes() for suffix in before}
        assert x[:].tolist() == [1] * 4


@settings(max_examples=12)
@given(
    posts=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 11), st.integers(1, 12), st.booleans()), min_size=1, max_size=30
    ),
    shared=st.booleans(),
)
def test_few_steps_and_many_make_the_same_log(
    posts: Any, shared: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The quick way of a post beside `LogStore.put`, which can do all: the same bytes in all four files."""
    found = []
    for quick in (True, False):
        tmp_path = tmp_path_factory.mktemp("twin")
        f = pnc_vol.File(tmp_path / "x.nc", "w", burst_buf=True, burst_buf_shared_logs=shared)
        queue = f.id.handle.session.posted.queue
        store = queue.store
        store.commits.log_id, store.commits.seed, store.group = bytes(16), 0, min(store.group, 5)
        if not quick:
            queue.put_run = lambda *_: False
        store.definitions.file.identity = bytes(16)
        sets = [
            f.create_dataset("a", (12,), "f8"), f.create_dataset("b", (12, 5), "i2"),
            f.create_dataset("c", (0, 3), "i4", maxshape=(None, 3)), f.create_dataset("d", (12, 40, 40), "f4"),
        ]  # fmt: skip
        for which, first, number, turned in posts:
            x = sets[which]
            if x.maxshape[0] is None:
                x.resize(max(len(x), first + 1), axis=0)
                number = 1
            number = min(number, 12 - first)
            values = np.arange(number * int(np.prod(x.shape[1:])), dtype=x.dtype).reshape(number, *x.shape[1:]) + first
            # Values that do not lie one after another.
            values = np.asfortranarray(values) if turned else values
            x[first : first + number] = values
        assert not f.statistics().get("flushes")
        ends = {suffix: getattr(store.files, suffix[1:]).end for suffix in (".meta", ".data", ".commit", ".defs")}
        files = {suffix: pathlib.Path(store.files.path(suffix)).read_bytes()[:end] for suffix, end in ends.items()}
        # The slot, too.
        files[".commit"] = files[".commit"][store._begins[3][1] - 64 :]
        # The header has the path.
        files[".meta"] = files[".meta"][store._begins[0][1] :]
        found.append((files, store.commits.sequence, len(store.commits.requests), queue.backlog.rows, queue.weight()))
        f.close()
    assert found[0] == found[1]
