"""Writers with a node-local cache that are killed: ``python cache_kills.py DIR FIRST LAST`` kills those of the seeds.

One process that has everything imported forks a writer for each seed. The writer is killed at a call of the operating
system, whichever thread makes it, or some time after a flush; sometimes half a write is done before. Then the file must
be valid as it is, with no header ahead of its data; and after a recovery, which is sometimes killed too, it must hold
what the last flush had promised, or what the one under way would have.

A program is a seed: `History` gives its operations and what the file holds after each flush. Each value says in which
epoch it was written, so that a value of an element is judged by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kills import forked, kill_after

import pnc_vol
from pnc_vol.system import PAGE
from pnc_vol.testing.faults import HookedSystem

FLUSHES = 14
EPOCH = 10_000
"""Values of an epoch begin with its number times this."""
FILL = -1
ENDINGS = ("flush",) * 8 + ("sync", "durable", "reopen", "read")


class Killing(HookedSystem):
    """At a call with this number the process is killed, in a write perhaps after a part of it."""

    def __init__(self, at: int, part: float) -> None:
        super().__init__()
        self.at, self.part, self.count = at, part, 0
        self._one = threading.Lock()

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._one:
            self.count += 1
            last = self.count == self.at
        if last:
            if name == "pwrite":
                # The kernel looks for a signal between two pages.
                fd, data, offset = args
                end = (offset + int(self.part * len(data))) // PAGE * PAGE
                os.pwrite(fd, bytes(data)[: max(end - offset, 0)], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().call(name, args, kwargs)


@dataclass
class State:
    """What a file holds after a flush; the values that it may hold for elements of the epochs behind it."""

    data: dict[str, np.ndarray] = field(default_factory=dict)
    note: str = ""

    def copy(self) -> State:
        return State({name: values.copy() for name, values in self.data.items()}, self.note)

    def header(self) -> dict[str, Any]:
        return {name: values.shape for name, values in self.data.items()} | {"": self.note}


class History:
    """The operations of a seed, epoch by epoch, and the states of the file at the flushes.

    defined : every dataset is made in the first epoch, and no record is taken away: with a log, what was posted after a
        flush is recovered too, so that there are more states between two flushes than a header can tell.
    """

    def __init__(self, seed: int, *, defined: bool) -> None:
        self.random = np.random.default_rng([seed, 7])
        self.states = [State()]
        self.epochs: list[tuple[list[Callable[[Any], None]], str]] = []
        self.cut: list[set[str]] = [set()]
        """By epoch, the datasets of which records were taken away."""
        for number in range(1, FLUSHES + 1):
            self.now, self.number, self.written = self.states[-1].copy(), number, 0
            self.cut.append(set())
            acts = [self._create() for _ in range(4 if number == 1 else 0)]
            acts += [self._act(defined=defined) for _ in range(int(self.random.integers(1, 6)))]
            self.epochs.append((acts, ENDINGS[self.random.integers(0, len(ENDINGS))]))
            self.states.append(self.now)

    def _act(self, *, defined: bool) -> Callable[[Any], None]:
        draw = self.random.random()
        if draw < 0.15 and not defined:
            return self._create()
        if draw < 0.19 and len(self.now.data) > 2 and not defined:
            return self._delete()
        if draw < 0.45:
            return self._resize(shorter=not defined)
        if draw < 0.55 and not defined:
            return self._attribute()
        return self._write()

    def _name(self, kind: str = "") -> str:
        names = [name for name in self.now.data if name.startswith(kind)]
        return names[self.random.integers(0, len(names))] if names else ""

    def _create(self) -> Callable[[Any], None]:
        kind = "rf"[self.random.integers(0, 2)]
        name = f"{kind}{self.number}_{len(self.now.data)}_{self.random.integers(0, 1000)}"
        shape = (0 if kind == "r" else int(self.random.integers(1, 40)), int(self.random.choice([1, 7, 300, 3000])))
        self.now.data[name] = np.full(shape, FILL, "i4")
        maxshape = (None, shape[1]) if kind == "r" else shape
        return lambda f: f.create_dataset(name, shape, "i4", maxshape=maxshape, fillvalue=FILL)

    def _delete(self) -> Callable[[Any], None]:
        name = self._name()
        del self.now.data[name]
        return lambda f: f.__delitem__(name)

    def _resize(self, *, shorter: bool) -> Callable[[Any], None]:
        name = self._name("r")
        if not name:
            return self._write()
        old = self.now.data[name]
        length = len(old) + int(self.random.integers(-1 if shorter else 0, 4))
        length = max(length, 0)
        new = np.full((length, old.shape[1]), FILL, "i4")
        both = min(length, len(old))
        new[:both] = old[:both]
        if length < len(old):
            self.cut[-1].add(name)
        self.now.data[name] = new
        return lambda f: f[name].resize(length, axis=0)

    def _attribute(self) -> Callable[[Any], None]:
        note = f"{self.number} " * int(self.random.choice([1, 5, 2000]))
        self.now.note = note

        def act(f: Any) -> None:
            f.attrs["note"] = note

        return act

    def _write(self) -> Callable[[Any], None]:
        name = self._name()
        values = self.now.data.get(name)
        if values is None or not values.size:
            return lambda f: None
        ends = [sorted(self.random.integers(0, n + 1, 2)) for n in values.shape]
        where = tuple(slice(int(a), int(b)) for a, b in ends)
        self.written += 1
        value = EPOCH * self.number + self.written
        values[where] = value

        def act(f: Any) -> None:
            f[name][where] = value

        return act


def contents(path: str) -> State:
    """What the file holds."""
    with pnc_vol.File(path) as f:
        return State({name: f[name][...] for name in f}, f.attrs.get("note", ""))


def complaint(history: History, found: State, least: int, most: int, *, complete: bool, logged: bool = False) -> str:
    """What is wrong with a file that must be one of the flushes from `least` to `most`; "" if nothing is.

    Parameters
    ----------
    complete : bool
        All data of epochs before `most` must be there, whatever the header is.
    logged : bool
        There may be records of a flush that was under way, and not all of them.
    """
    if logged:
        at = [least]
        found = State({name: found.data[name][: len(old)] for name, old in history.states[least].data.items()}, "")
    else:
        at = [k for k in range(least, most + 1) if history.states[k].header() == found.header()]
    wrong = f"its header is of none of the flushes {least} to {most}: {found.header()}"
    for k in at:
        wrong = ""
        for name, old in history.states[k].data.items():
            # An element is as old as the last flush that it must have, or of an epoch behind that one.
            base = max(k, most - 1) if complete else k
            later = history.states[base].data.get(name)
            expected = old if later is None or later.shape != old.shape else later
            got = found.data[name]
            newer = (got // EPOCH > k) & (got // EPOCH <= most)
            if any(name in cut for cut in history.cut[k + 1 : most + 1]):
                newer |= got == FILL
            if not ((got == expected) | newer).all():
                place = np.argwhere(~((got == expected) | newer))[0].tolist()
                wrong = f"{name}{place} is {got[tuple(place)]}, and {expected[tuple(place)]} at flush {k}"
                break
        if not wrong:
            return ""
    return wrong


def options_of(random: np.random.Generator, nvm: Path) -> str:
    """A cache, of any kind."""
    options = {
        "path": repr(str(nvm)),
        "mode": random.choice(["enable", "enable", "enable", "coherent"]),
        "flush": random.choice(["flush_immediate", "flush_immediate", "flush_onclose"]),
        "threads": random.choice([1, 1, 4]),
        "copy_size": random.choice([1000, 512 << 10]),
        "capacity": random.choice([0, 0, 0, 50_000]),
        "in_flight": random.choice([0, 0, 0, 100_000]),
        "discard": random.choice(["enable", "enable", "disable"]),
    }
    return f"cache({', '.join(f'{name}={value}' for name, value in options.items())}) | posix"


def one(folder: Path, seed: int) -> tuple[bool, int]:
    """Kill the writer of a seed, and look at what it left; whether it was alive until then, and its flushes."""
    random = np.random.default_rng([seed, 3])
    path, nvm = str(folder / "x.nc"), folder / "nvm"
    nvm.mkdir()
    driver, logged = options_of(random, nvm), random.random() < 0.1
    history = History(seed, defined=logged)
    more: dict[str, Any] = {"buffer_size": int(random.choice([64 << 20, 64 << 10]))}
    log = {"burst_buf": True, "burst_buf_dirname": str(nvm)} if logged else {}
    by_count = random.random() < 0.8
    at = int(random.integers(1, 1500)) if by_count else 0

    def write(pipe: int) -> None:
        options = {**more, **log, "driver": driver, "system": Killing(at, float(random.random()))}
        f = pnc_vol.File(path, "w", **options)
        os.write(pipe, b".")
        for acts, ending in history.epochs:
            for act in acts:
                act(f)
            if ending == "reopen":
                f.close()
            elif ending == "sync":
                f.sync()
            else:
                f.flush(durable=ending == "durable")
            os.write(pipe, b".")
            if ending == "reopen":
                f = pnc_vol.File(path, "r+", **options)
        f.close()

    acks = FLUSHES + 2 if by_count else int(random.integers(1, FLUSHES + 2))
    heard, alive = kill_after(*forked(write), acks, 0.0 if by_count else random.exponential(0.001))
    if not heard and not os.path.exists(path):
        return alive, 0
    least = max(heard - 1, 0)
    most = min(least + 1, FLUSHES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
        wrong = complaint(history, contents(path), 0, most, complete=False)
    assert not wrong, f"before the recovery, after {least} flushes: {wrong}"
    recover(path, nvm, int(random.integers(0, 4)), log, random)
    wrong = complaint(history, contents(path), least, most, complete=True, logged=logged)
    assert not wrong, f"after {least} flushes ({driver}): {wrong}"
    # Nothing is left, and nothing is left to be warned of: warnings are errors here.
    pnc_vol.File(path, "r+", driver=driver, hints={"e10_cache_path": str(nvm)}, **log).close()
    if "disable" not in driver:
        assert not os.listdir(nvm)
        # Of a copy, or of a note, that was not complete, a temporary file may be left, as the docs say.
        kept = [name for name in os.listdir(folder) if not re.search(r"\.pnctmp$|\.pncc\.\w+$", name)]
        assert sorted(kept) == ["nvm", "x.nc"]
    return alive, least


def recover(path: str, nvm: Path, how: int, log: dict[str, Any], random: np.random.Generator) -> None:
    if how == 0:
        # A recovery that is killed, and another one.
        system = Killing(int(random.integers(1, 150)), float(random.random()))
        kill_after(*forked(lambda pipe: replay(path, log | {"system": system})), 1, 0.0)
    if how == 1:
        with pnc_vol.File(path, "r+", recover=True, hints={"e10_cache_path": str(nvm)}, **log):
            return
    replay(path, log)
    if how == 2:
        content = Path(path).read_bytes()
        assert not pnc_vol.replay(path, **log).caches
        assert Path(path).read_bytes() == content


def replay(path: str, log: dict[str, Any]) -> None:
    report = pnc_vol.replay(path, **log)
    assert (report.damaged, report.failed) == (False, 0), report


def main() -> None:
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("error")
    # Load what a writer and a replay load: otherwise each child does.
    (folder / "first").mkdir()
    killed = flushes = 0
    for seed in (-1, *range(first, last)):
        place = folder / str(seed)
        place.mkdir()
        try:
            alive, returned = one(place, abs(seed))
        except BaseException:
            print(f"seed {seed}")
            raise
        shutil.rmtree(place)
        killed, flushes = killed + alive, flushes + returned
    print(f"{killed} of {last - first + 1} writers were killed, after {flushes} flushes")


if __name__ == "__main__":
    main()
