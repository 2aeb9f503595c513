"""Processes that write, replace, grow, read and refresh one file at the same time; every value says where it is from.

``python tests/shared/processes.py FOLDER --mix everything --seconds 120 --seed 1`` runs a mix and prints what each
process did, and every value or exception that was wrong. The exit code is 1 if there was one.

A file belongs to a *generation*, a number that no other file has, in the attribute ``generation``. An element of its
datasets is ``generation << 32 | dataset << 24 | version << 16 | place``. What a reader finds in one opened file must be
of one generation, at its place, and as many records as the attribute ``count`` of the same header says. Elements that
are written over in place may be of several versions: a flush is not atomic for its data.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import pnc_vol

WIDTH = 50
FIRST = {"t": 1, "u": 2, "extra": 3}
RECORDS, COUNTED = 4, 5


def values(generation: int, dataset: int, n: int, *, first: int = 0, version: int = 0) -> Any:
    """`n` elements from place `first` on."""
    return (generation << 32) + (dataset << 24) + (version << 16) + np.arange(first, first + n, dtype="i8")


class Wrong(Exception):
    """A value that no writer wrote there, or a mix of two files."""


def look(f: Any) -> int:
    """Read all of a file and check it; the number of elements."""
    attrs = dict(f.attrs)
    if "generation" not in attrs:
        if len(f):
            raise Wrong(f"datasets {list(f)} without a generation")
        return 0
    generation, n = int(attrs["generation"]), 0
    for name, found in f.items():
        array = found[...]
        n += array.size
        if name == "r":
            check(name, array.ravel(), generation, RECORDS)
            if array.shape[0] != int(attrs["count"]):
                raise Wrong(f"{array.shape[0]} records, and the header's attribute says {attrs['count']}")
        else:
            check(name, array.ravel(), generation, FIRST.get(name, COUNTED))
    return n


def check(name: str, array: Any, generation: int, dataset: int) -> None:
    """Complain of elements that are not of this generation, dataset and place."""
    place = np.arange(array.size) & 0xFFFF
    wrong = (array >> 32 != generation) | (array >> 24 & 0xFF != dataset) | (array & 0xFFFF != place)
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        told = f"generation {array[i] >> 32}, dataset {array[i] >> 24 & 0xFF}, place {array[i] & 0xFFFF}"
        many = f"{int(wrong.sum())} of {wrong.size} elements of {name!r}"
        raise Wrong(f"{many}: [{i}] is of {told}, not of {generation}, {dataset}")


class Worker:
    """One process: it does its part until the time is over, and counts.

    done : Counter of what was done; wrong : list of str; kept : names that it made and closed without an error.
    """

    def __init__(self, path: str, number: int, seconds: float, seed: int) -> None:
        self.path, self.number = path, number
        self.random = random.Random(f"{seed}:{number}")
        self.end = time.monotonic() + seconds
        self.generation = (number + 1) << 20
        self.done: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.kept: list[str] = []

    def run(self, part: str) -> None:
        do: Callable[[], None] = getattr(self, part)
        while time.monotonic() < self.end:
            try:
                do()
            except Exception as error:
                self.meet(part, error)

    def warm(self) -> None:
        """Do everything once, in a file of one's own."""
        for part in ("overwriter", "grower", "writer", "adder", "refresher"):
            getattr(self, part)()

    def meet(self, part: str, error: Exception) -> None:
        """Count a documented exception, note any other."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, FileNotFoundError) and not os.path.exists(self.path):
            self.done["not there yet"] += 1
            time.sleep(0.005)
        elif isinstance(error, FileNotFoundError) and not str(error):
            self.done["empty"] += 1
        elif part == "refresher" and isinstance(error, pnc_vol.errors.ClosedFileError) and "was deleted" in str(error):
            self.done["dataset is gone"] += 1
        elif isinstance(error, OSError) and "unable to lock file" in str(error) and part in WRITING:
            self.done["locked"] += 1
            time.sleep(self.random.uniform(0.001, 0.01))
        else:
            self.done["wrong"] += 1
            if len(self.wrong) < 5:
                self.wrong.append(f"{part}: {text}")

    # -------------------------------------------------------------------------------------------- who writes

    def new(self, mode: str, **options: Any) -> Any:
        """A new file of a new generation, whose layout is not that of the one before."""
        self.generation += 1
        f = pnc_vol.File(self.path, mode, **options)
        f.attrs["generation"] = self.generation
        f.attrs["padding"] = "x" * self.random.randrange(3000)
        for name in self.random.sample(list(FIRST), self.random.randint(2, 3)):
            f[name] = values(self.generation, FIRST[name], self.random.choice([100, 1000]))
        f.attrs["count"] = 0
        return f

    def replacer(self) -> None:
        """The file is replaced, whole, by one of another layout."""
        with self.new("w", publish="close"):
            pass
        self.done["files"] += 1
        time.sleep(0.002)

    def overwriter(self) -> None:
        """As `replacer`, but the new file is seen from its creation on."""
        with self.new("w") as f:
            f.flush()
        self.done["files"] += 1
        time.sleep(0.002)

    def grower(self) -> None:
        """Records, attributes, datasets: each flush changes the header, some move the data."""
        with self.opened() as f:
            generation = int(f.attrs["generation"])
            r = f["r"] if "r" in f else f.create_dataset("r", (0, WIDTH), "i8", maxshape=(None, WIDTH))
            for _ in range(self.random.randint(1, 5)):
                n, more = r.shape[0], self.random.randint(1, 3)
                r.resize(n + more, axis=0)
                r[n:] = values(generation, RECORDS, more * WIDTH, first=n * WIDTH).reshape(more, WIDTH)
                f.attrs["count"] = n + more
                if self.random.random() < 0.3:
                    f.attrs["padding"] = "x" * self.random.randrange(20000)
                f.flush()
                self.done["flushes"] += 1
            full = r.shape[0] > 200
        if full:
            # places of what is deleted may be used again, which readers of an older header would see: a new file
            self.new("w").close()
        time.sleep(0.001)

    def writer(self) -> None:
        """Elements in place, of the same generation and another version."""
        with self.opened() as f:
            generation = int(f.attrs["generation"])
            for version in range(self.random.randint(1, 5)):
                for name in FIRST.keys() & f.keys():
                    f[name][:] = values(generation, FIRST[name], f[name].size, version=version)
                f.flush()
                self.done["flushes"] += 1

    def adder(self) -> None:
        """A dataset and a record in each session; what was closed without an error must be there in the end."""
        name = f"w{self.number}_{len(self.kept)}"
        with self.opened() as f:
            generation = int(f.attrs["generation"])
            f[name] = values(generation, COUNTED, 20)
            r = f["r"] if "r" in f else f.create_dataset("r", (0, WIDTH), "i8", maxshape=(None, WIDTH))
            n = r.shape[0]
            r.resize(n + 1, axis=0)
            r[n] = values(generation, RECORDS, WIDTH, first=n * WIDTH)
            f.attrs["count"] = n + 1
        self.kept.append(name)
        self.done["sessions"] += 1
        time.sleep(self.random.uniform(0, 0.003))

    @contextmanager
    def opened(self) -> Iterator[Any]:
        with pnc_vol.File(self.path, "r+") as f:
            if "generation" in f.attrs:
                yield f
                return
        raise FileNotFoundError  # it was made a moment ago, and nothing is in it

    # --------------------------------------------------------------------------------------------- who reads

    def reader(self) -> None:
        with pnc_vol.File(self.path, "r") as f:
            self.done["elements"] += look(f)
        self.done["opened"] += 1

    def refresher(self) -> None:
        """A file that is kept open, and asked what is new."""
        with pnc_vol.File(self.path, "r") as f:
            for _ in range(self.random.randint(1, 30)):
                self.done["elements"] += look(f)
                first = next(iter(f.values()), None)
                if first is None:
                    break
                first.refresh()
                self.done["refreshed"] += 1
        self.done["opened"] += 1


WRITING = {"replacer", "overwriter", "grower", "writer", "adder"}
MIXES = {
    "replaced": ["replacer", "reader", "reader", "refresher"],
    "overwritten": ["overwriter", "replacer", "reader", "refresher"],
    "growing": ["grower", "reader", "refresher"],
    "written": ["writer", "grower", "reader", "refresher"],
    "added": ["adder", "adder", "reader"],
    "everything": ["replacer", "overwriter", "grower", "writer", "reader", "reader", "refresher", "refresher"],
}


def run_mix(folder: pathlib.Path, parts: list[str], *, seconds: float, seed: int = 0) -> dict[str, Any]:
    """Start the processes of a mix on one file, wait for them, and look at what they leave.

    Returns
    -------
    dict
        ``"done"``: what each process did; ``"wrong"``: list of str.
    """
    path = folder / "shared.nc"
    start = Worker(str(path), len(parts), 0, seed)
    start.new("w").close()
    command = [sys.executable, __file__, str(folder), "--seconds", str(seconds), "--seed", str(seed)]
    started = [
        subprocess.Popen(
            [*command, "--part", part, "--number", str(i)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i, part in enumerate(parts)
    ]  # fmt: skip
    done: dict[str, Any] = {}
    wrong: list[str] = []
    kept: list[str] = []
    try:
        # the time begins when all have started
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for i, (part, process) in enumerate(zip(parts, started, strict=True)):
            out, err = process.communicate(timeout=seconds + 120)
            if process.returncode:
                wrong.append(f"{part} {i} ended with {process.returncode}: {err[-500:]}")
                continue
            told = json.loads(out)
            done[f"{part} {i}"] = told["done"]
            wrong += told["wrong"]
            kept += told["kept"]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    try:
        with pnc_vol.File(path, "r+") as f:
            look(f)
            lost = [name for name in kept if name not in f]
            if lost:
                wrong.append(f"{len(lost)} of {len(kept)} datasets of sessions that were closed are lost")
            if kept and f["r"].shape[0] != len(kept):
                wrong.append(f"{f['r'].shape[0]} records of {len(kept)} that were written")
    except Exception as error:
        wrong.append(f"in the end: {type(error).__name__}: {error}")
    return {"done": done, "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mix", choices=list(MIXES), action="append", help="default: all of them")
    parser.add_argument("--seconds", type=float, default=60, help="of each mix")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("error", pnc_vol.PncVolWarning)
    if args.part:
        # what is imported late is imported before the time begins
        Worker(str(args.folder / f"warm{args.number}.nc"), args.number, 0, 0).warm()
        print("ready", flush=True)
        sys.stdin.readline()
        worker = Worker(str(args.folder / "shared.nc"), args.number, args.seconds, args.seed)
        worker.run(args.part)
        print(json.dumps({"done": worker.done, "wrong": worker.wrong, "kept": worker.kept}))
        return 0
    bad = 0
    for mix in args.mix or MIXES:
        (args.folder / mix).mkdir(parents=True, exist_ok=True)
        told = run_mix(args.folder / mix, MIXES[mix], seconds=args.seconds, seed=args.seed)
        print(mix, json.dumps(told, indent=2))
        bad += len(told["wrong"])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
