"""Every system call of many small works fails, writes half, or is the last: what the file holds is never a mix.

After a failure: an exception; what was flushed before is there; nothing lies beside the file; no descriptor stays
open; and when the cause is gone the same steps lead to the right file. After a stop, as by a kill: the file opens
as it was before the step or after it.
"""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import workloads as w

import pnc_vol
from pnc_vol.errors import SyncError
from pnc_vol.system import CALLS, REAL
from pnc_vol.testing.faults import CHANGING, FaultSystem, Stopped, StopSystem, TraceSystem

WORKS = {work.name: work for work in w.works()}
points: Counter[str] = Counter()


@pytest.fixture(autouse=True, scope="module")
def told() -> Iterator[None]:
    """Say how many points were tried (``pytest -s``)."""
    yield
    print(f"\nfault points: {dict(points)}, {sum(points.values())} in all")


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """In memory where that is possible: thousands of files come and go."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="pnc_vol_test", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield made
    shutil.rmtree(made)


class CarriedOut(FaultSystem):
    """A `close` that fails has closed nevertheless, as the system's does.

    failed : str, the call that failed first.
    """

    failed = ""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fired = self.fired
        try:
            return self._call(name, args, kwargs)
        finally:
            if self.fired and not fired:
                self.failed = name

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "close":
            self.inner.close(*args)
            inner, self.inner = self.inner, _Nothing()
            try:
                return super().call(name, args, kwargs)
            finally:
                self.inner = inner
        return super().call(name, args, kwargs)


class _Nothing:
    def close(self, fd: int) -> None:
        pass


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


class Trial:
    """One work in a folder, done again and again from the same beginning.

    states : list of Contents or None, before the first step and after each.
    """

    def __init__(self, work: Any, folder: pathlib.Path) -> None:
        self.work, self.folder = work, folder
        self.path = folder / "x.nc"
        before = w.Context(self.path, REAL, "w")
        for step in work.before:
            step(before)
        self.begin = self.path.read_bytes() if work.before else None
        self.states = [w.contents(self.path)]
        context = self.context(REAL)
        for step in work.steps:
            step(context)
            self.states.append(w.contents(self.path))
        assert context.f is None
        assert self.left() == []

    def reset(self) -> None:
        for entry in self.folder.iterdir():
            entry.unlink()
        if self.begin is not None:
            self.path.write_bytes(self.begin)

    def context(self, system: Any) -> Any:
        return w.Context(self.path, system, self.work.mode, **self.work.options)

    def left(self) -> list[str]:
        """What lies beside the file."""
        return sorted(entry.name for entry in self.folder.iterdir() if entry != self.path)

    def check(self, done: int, what: str) -> None:
        """The file is as after `done` steps, or as after one more; elements of equal definitions may be of either."""
        got = w.contents(self.path)
        old, new = self.states[done], self.states[min(done + 1, len(self.states) - 1)]
        if got is None:
            assert old is None, f"{what}: the file is gone"
            return
        if got.equals(old) or got.equals(new):
            return
        assert old is not None, f"{what}: neither nothing nor the new file: {got}"
        assert got.alike(old), f"{what}: neither old nor new definitions: {got}"
        for name, values in got.arrays.items():
            either = values == old.arrays[name]
            if new is not None and name in new.arrays and new.arrays[name].dtype == values.dtype:
                later = new.arrays[name][: len(values)] if values.ndim else new.arrays[name]
                if later.shape == values.shape:
                    either |= values == later
            assert either.all(), f"{what}: {name} holds what nobody wrote"

    def finish(self, context: Any, done: int) -> None:
        for step in self.work.steps[done:]:
            step(context)
        got, wanted = w.contents(self.path), self.states[-1]
        assert got is not None
        assert got.equals(wanted), f"{got}\n{wanted}"


def kept_after(trial: Trial, failure: OSError, done: int, what: str) -> str:
    """The new file that could not be synced: it never takes the place of the old one, and is kept, here whole."""
    if not (isinstance(failure, SyncError) and "is not replaced" in str(failure)):
        return ""
    (name,) = (name for name in trial.left() if name.endswith(".pnctmp"))
    assert str(trial.folder / name) in str(failure), what
    assert w.contents(trial.folder / name).equals(trial.states[done + 1]), what
    return name


def kept_before_its_name(trial: Trial, failure: OSError, done: int, what: str) -> str:
    """A file that was flushed and could not get its name at the close: it is kept under its temporary one."""
    kept = [name for name in trial.left() if name.endswith(".pnctmp")]
    if trial.work.options.get("publish") != "close" or done < 2 or not kept:
        return ""
    (name,) = kept
    assert str(trial.folder / name) in str(failure), what
    assert w.contents(trial.folder / name).arrays, what
    return name


def sweep(trial: Trial, kind: str, *, mode: str, number: int, calls: frozenset[str], clean: bool) -> None:
    """Let each of the counted calls fail in turn."""
    for fail_at in range(1, 10_000):
        trial.reset()
        before = descriptors()
        trace = TraceSystem(REAL)
        system = CarriedOut(trace, fail_at=fail_at, errno=number, mode=mode, calls=calls)
        context = trial.context(system)
        done, failure = 0, None
        what = f"{trial.work.name}, {kind}, call {fail_at}"
        try:
            for step in trial.work.steps:
                step(context)
                done += 1
        except OSError as error:
            failure = error
        if not system.fired:
            assert failure is None
            assert trial.finish(context, done) is None
            return
        points[kind] += 1
        if failure is None:
            # What was done without the call: the file must be as if nothing had happened.
            assert w.contents(trial.path).equals(trial.states[-1]), what
            assert descriptors() == before, f"{what} ({system.failed})"
            continue
        if failure.errno is not None:
            assert failure.errno == number or mode.startswith("short"), what
        what += f" ({system.failed})"
        trial.check(done, what)
        at_close = trial.work.steps[done] is w.closing
        kept = kept_after(trial, failure, done, what)
        if mode == "once" or mode == "short":
            system.heal()
            if kept or at_close or done == 0 or (trial.work.options.get("durable") and "sync" in system.failed):
                # The file is closed, or promises nothing any more; that nothing is damaged is all that can be asked.
                trial.check(done, what)
            else:
                try:
                    trial.finish(context, done)
                except Exception as error:
                    raise AssertionError(f"{what}: after {failure!r} the steps cannot be repeated") from error
        while context.f is not None:
            try:
                w.closing(context)
            except OSError as error:
                # The close tries again what failed, and may come further.
                kept = kept or kept_after(trial, error, done, what)
                failure = error
            trial.check(done, what)
        kept = kept or kept_before_its_name(trial, failure, done, what)
        if kept:
            (trial.folder / kept).unlink()
        assert descriptors() == before, f"{what}: descriptors stay open"
        if clean:
            # If not even the old header could be put back, the journal is what is left of it.
            allowed = [".x.nc.pncj", f".{kept}.pncj"] if mode.endswith("forever") else []
            assert set(trial.left()) <= set(allowed), f"{what}: {trial.left()} stay beside the file"
    raise AssertionError("no end")


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize(
    ("kind", "mode", "number", "calls", "clean"),
    [
        ("ENOSPC once", "once", errno.ENOSPC, frozenset(CALLS) - {"unlink", "getpid", "token"}, True),
        ("EIO once, unlink", "once", errno.EIO, frozenset({"unlink"}), False),
        ("ENOSPC for ever", "forever", errno.ENOSPC, frozenset({"pwrite", "pwritev", "ftruncate"}), True),
        ("EIO for ever", "forever", errno.EIO, frozenset(CHANGING) - {"unlink"}, True),
        ("short write", "short", errno.EIO, frozenset({"pwrite", "pwritev"}), True),
        ("short write, then full", "short-forever", errno.ENOSPC, frozenset({"pwrite", "pwritev"}), True),
    ],
)
def test_failures(
    folder: pathlib.Path, name: str, kind: str, mode: str, number: int, calls: frozenset[str], clean: bool
) -> None:
    sweep(Trial(WORKS[name], folder), kind, mode=mode, number=number, calls=calls, clean=clean)


def cuts(call: Any) -> list[int | None]:
    """Where a last write may be torn: a header anywhere, data between elements, as systems write whole pages."""
    if call.name not in ("pwrite", "pwritev"):
        return [None]
    n = call.nbytes
    wanted = {1, 6, 512, n // 2, n // 2 // 512 * 512, n - 1}
    if call.offset > 4:
        wanted = {(call.offset + cut) // 8 * 8 - call.offset for cut in (n // 2,)}
    return [None, *sorted(cut for cut in wanted if 0 < cut < n)]


@pytest.mark.parametrize("name", WORKS)
def test_stops(folder: pathlib.Path, name: str) -> None:
    trial = Trial(WORKS[name], folder)
    trial.reset()
    trace = TraceSystem(REAL)
    context = trial.context(trace)
    for step in trial.work.steps:
        step(context)
    changing = [call for call in trace.log if call.name in CHANGING]
    for stop_at, call in enumerate(changing, 1):
        for torn in cuts(call):
            stop_once(trial, stop_at, torn, f"{name}, stop at call {stop_at} ({call.name}), {torn} bytes of it done")


def stop_once(trial: Trial, stop_at: int, torn: int | None, what: str) -> None:
    trial.reset()
    before = descriptors()
    system = StopSystem(REAL, stop_at=stop_at, torn=torn)
    context = trial.context(system)
    done = 0
    with pytest.raises(Stopped):
        for step in trial.work.steps:
            step(context)
            done += 1
    context.let_go()
    system.bury()
    points["stop"] += 1
    assert descriptors() == before, what
    trial.check(done, what)
    seen = w.contents(trial.path)
    if seen is None:
        return
    # The next open for writing completes what was begun, and what lies around disturbs nobody.
    with pnc_vol.File(trial.path, "r+"):
        assert not [name for name in trial.left() if name.endswith(".pncj")], what
    again = w.contents(trial.path)
    assert again.equals(seen), what
    with pnc_vol.File(trial.path, "r+") as f:
        f.attrs["later"] = np.arange(10)
        f["later"] = np.arange(3)
    with pnc_vol.File(trial.path) as f:
        assert f["later"][:].tolist() == [0, 1, 2]
        for name, values in seen.arrays.items():
            np.testing.assert_array_equal(f[name][...], values)
