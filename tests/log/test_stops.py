"""A writer is stopped at every call of the system, and at every store into the windows of its log."""

from __future__ import annotations

import contextlib
import mmap
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np

import pnc_vol
from pnc_vol.system import REAL
from pnc_vol.testing.faults import CHANGING, Stopped, StopSystem


class Window(mmap.mmap):
    """A window whose stores are counted as calls are."""

    system: StoreStops

    def __setitem__(self, index: Any, values: Any) -> None:
        self.system.counted()
        super().__setitem__(index, values)


class StoreStops(StopSystem):
    """A `StopSystem` that may also stop between two stores into a log's windows, where a kill may come as well."""

    def counted(self) -> None:
        """A store is about to be made."""
        if self.fired:
            raise Stopped("a store after the stop")
        self.count += 1
        if self.count == self.stop_at:
            self.fired = True
            raise Stopped(f"store {self.count}")

    def mmap(
        self, fd: int, nbytes: int, offset: int = 0, *, writable: bool = True, populate: bool = False
    ) -> mmap.mmap:
        super().mmap(fd, nbytes, offset, writable=writable).close()
        made = Window(fd, nbytes, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)
        made.system = self
        return made


def program(f: Any) -> Iterator[None]:
    """Posts, cancels, cuts and flushes, so that the log is begun anew over records of every kind."""
    x = f.create_dataset("x", (8,), "f8")
    r = f.create_dataset("r", (2, 3), "i2", maxshape=(None, 3), fillvalue=-1)
    x[:4] = [1, 2, 3, 4]
    yield
    request = x.iput(np.s_[4:6], [9.0, 9.0])
    yield
    request.cancel()
    yield
    f.flush()
    yield
    r[1] = 5
    yield
    r.resize(1, axis=0)
    yield
    x.iput(np.s_[5:6], [5.0])
    yield
    f.flush()
    yield
    request = x.iput(np.s_[6:8], [6.0, 7.0])
    yield
    request.cancel()
    yield
    x[7] = 8
    yield


def state(path: pathlib.Path) -> dict[str, Any]:
    with pnc_vol.File(path) as f:
        return {name: f[name][...].tolist() for name in f}


def stopped(path: pathlib.Path, logs: pathlib.Path, at: int) -> tuple[int, bool]:
    """Run the program until the stop; how many steps returned, and whether it was stopped."""
    system = StoreStops(REAL, stop_at=at, calls=CHANGING | {"mmap"})
    done, session = 0, None
    try:
        f = pnc_vol.File(path, "w", burst_buf=True, burst_buf_dirname=str(logs), system=system)
        session = f.id.handle.session
        for _ in program(f):
            done += 1
        f.close()
    except Stopped:
        pass
    if session is not None and system.fired:
        session.closed = True
        for tail in (session.posted.queue.stores[0].files.commit, session.posted.queue.stores[0].files.meta):
            with contextlib.suppress(Stopped):
                tail.leave()
    system.bury()
    return done, at <= system.count


def sweep(tmp_path: pathlib.Path, logs: pathlib.Path) -> int:
    states: list[dict[str, Any]] = [{}]
    for steps in range(1, 12):
        path = tmp_path / f"model{steps}.nc"
        with pnc_vol.File(path, "w") as f:
            for _ in zip(range(steps), program(f), strict=False):
                pass
        states.append(state(path))
    stops = 0
    for at in range(1, 10_000):
        path = tmp_path / "x.nc"
        path.unlink(missing_ok=True)
        done, fired = stopped(path, logs, at)
        if not fired:
            break
        stops += 1
        if path.exists():
            # Named, so that it is judged also if it holds nothing: a kill never leaves a log that looks damaged.
            folders = [folder for folder in logs.iterdir() if any(folder.glob("*.meta"))]
            for folder in folders:
                report = pnc_vol.replay(path, folder)
                assert not report.damaged, (at, report)
                assert report.torn <= 1, (at, report)
            found = state(path)
            before, behind = (states[min(n, len(states) - 1)] for n in (done, done + 1))
            assert any(_fits(found, wanted) for wanted in (before, behind)), (at, done, found, before, behind)
        for left in (*logs.iterdir(), *tmp_path.glob(".*")):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return stops


def _fits(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether all is there; what was only defined may be there too, or be missing with its fill values."""
    x, r = wanted.get("x", [0.0] * 8), wanted.get("r", [[-1] * 3] * 2)
    return found.get("x", [0.0] * 8) == x and found.get("r", [[-1] * 3] * 2) == r


def test_a_stop_leaves_no_log_that_looks_damaged(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    assert sweep(tmp_path, logs) > 100
