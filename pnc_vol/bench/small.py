"""``python -m pnc_vol.bench small``, ``records``, ``objects``: small files, flushes in each step, many objects.

The life of a small file is to create it with five datasets of ten numbers, close, open, read and close it. The script
is a process of its own, from its start to its end: with the bytecode of all that it imports, and without any, as on
machines that do not keep it. ``records``: a model writes one record of each of its variables in each step, and makes
sure now and then that readers see them; in the file the records of the variables lie interleaved, so a flush has as
many pieces as records. ``objects``: the cost of a file of many objects, apart from its data; then, in the same file,
one more group, opening a variable by its name, and changing an attribute.

Knows: the works. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pnc_vol.bench.measure import Job, Stopwatch, check, times
from pnc_vol.bench.peers import LIBRARIES, Spec, installed
from pnc_vol.system import REAL, exists

_SCRIPT = "import sys, numpy, {} as m\nwith m.File(sys.argv[1], 'w') as f: f['x'] = numpy.arange(10.0)"
VARIABLES, WIDTH = 20, 16
LOOKUPS = 1000
MAXIMUM = 99.5
ATTRIBUTES = {"units": "m s-1", "long_name": "a name of some length", "valid_max": MAXIMUM}


def small(job: Job) -> None:
    """Make small files, and flush in each step."""
    scale, peers = job.options.scale, installed()
    _life(job, peers, times(scale, 200))
    for kept in (True, False):
        _script(job, peers, kept=kept)
    rows = np.random.default_rng(5).random((times(scale, 2_000), 100))

    def steps(f: Any) -> None:
        x = f.create_dataset("x", (0, 100), "f8", maxshape=(None, 100), chunks=(1, 100))
        for i, row in enumerate(rows):
            x.resize(i + 1, axis=0)
            x[i] = row
            f.flush()

    _flushed(job, peers, f"{len(rows):,} x a record of 100 numbers and a flush", rows, steps, lambda f: f["x"][...])
    numbers = np.arange(times(scale, 5_000))
    for words, of_file in (("", False), (" of the file", True)):

        def attributes(f: Any, of_file: bool = of_file) -> None:
            x = f.create_dataset("x", data=np.arange(10.0), track_order=True)
            attrs = (f if of_file else x).attrs
            for i in range(len(numbers)):
                attrs[f"a{i}"] = i
                f.flush()

        def stored(f: Any, of_file: bool = of_file) -> list[Any]:
            attrs = dict((f if of_file else f["x"]).attrs)
            return [attrs[f"a{i}"] for i in range(len(numbers))]

        phase = f"{len(numbers):,} x an attribute{words} and a flush"
        _flushed(job, peers, phase, numbers, attributes, stored, track_order=True)


def _life(job: Job, peers: Mapping[str, Any], count: int) -> None:
    phase = f"{count:,} x the life of a file with 5 small datasets"
    values = np.arange(50.0).reshape(5, 10)
    rows = {f"v{i}": row for i, row in enumerate(values)}

    def run(peer: Any, watch: Stopwatch) -> None:
        found, path = np.empty_like(values), peer.path
        out = dict(zip(rows, found, strict=True))
        for i in range(count):
            peer.path = f"{path}.{i}"
            with watch(phase):
                peer.save(rows)
                peer.load(out)
            check(f"{phase}, {peer.path}", found, values)

    job.turns({phase: (None, count)}, peers, run)


def _script(job: Job, peers: Mapping[str, Any], *, kept: bool) -> None:
    phase = f"a script that writes one dataset, {'with' if kept else 'without'} bytecode"

    def run(peer: Any, watch: Stopwatch) -> None:
        if "groups" not in peer.ways:
            watch.without("is not asked", phase)
            return
        bytecode = os.path.join(job.home, f"{peer.name}.bytecode")
        script = [sys.executable, *([] if kept else ["-B"]), "-E", "-X"]
        script += [f"pycache_prefix={bytecode}{'' if kept else '.none'}"]
        script += ["-c", _SCRIPT.format(peer.module.__name__), peer.path]
        if kept and not exists(REAL, bytecode):
            # the first start writes it
            subprocess.run(script, check=True)
        peer.path = script[-1] = f"{peer.path}.new"
        with watch(phase):
            subprocess.run(script, check=True)
        check(f"{phase}, {peer.path}", peer.whole("x"), np.arange(10.0))

    job.turns({phase: (None, 1)}, peers, run)


def _flushed(
    job: Job, peers: Mapping[str, Any], phase: str, wanted: Any, write: Callable[[Any], None],
    stored: Callable[[Any], Any], **how: Any,
) -> None:  # fmt: skip
    """Write to a new file, with a flush in each step, by the calls that pnc_vol and h5py have."""

    def run(peer: Any, watch: Stopwatch) -> None:
        if "groups" not in peer.ways:
            watch.without("is not asked", phase)
            return
        with watch(phase), peer.module.File(peer.path, "w", **how) as f:
            write(f)
        with peer.module.File(peer.path) as f:
            check(f"{phase}, {peer.path}", stored(f), wanted)

    job.turns({phase: (None, len(wanted))}, peers, run)


def records(job: Job) -> None:
    """Write records of many variables, with flushes."""
    count, peers = times(job.options.scale, 2_000), installed(LIBRARIES)
    for every in (1, 50):
        _interleaved(job, peers, count, every)


def _interleaved(job: Job, peers: Mapping[str, Any], count: int, every: int) -> None:
    title = f"{VARIABLES} record variables x {count:,} records of {WIDTH}, a flush every {every}"
    written, read = f"{title}, write", f"{title}, read a variable at a time"
    specs = {f"v{i}": Spec((0, WIDTH), "f8", grows=True) for i in range(VARIABLES)}
    values = np.random.default_rng(6).random((VARIABLES, count, WIDTH))

    def run(peer: Any, watch: Stopwatch) -> None:
        with watch(written):
            made = list(peer.create(specs).values())
            for t in range(count):
                for x, rows in zip(made, values, strict=True):
                    peer.append(x, t, rows[t])
                if (t + 1) % every == 0:
                    peer.flush()
            peer.close()
        found = np.zeros_like(values)
        out = dict(zip(specs, found, strict=True))
        with watch(read):
            peer.load(out, "into")
        check(f"{read}, {peer.path}", found, values)

    size = 8 * VARIABLES * count * WIDTH
    slow = {"scipy": "writes the whole file anew at each flush"}
    peers = {**peers, **slow} if every == 1 else peers
    job.turns({written: (size, VARIABLES * count), read: (size, VARIABLES)}, peers, run, slow)


def objects(job: Job) -> None:
    """Make and read files of many variables."""
    for count in (10_000, 100_000):
        _many_objects(job, installed(LIBRARIES), times(job.options.scale, count, least=3))


def _many_objects(job: Job, peers: Mapping[str, Any], count: int) -> None:
    names = [f"v{i:06d}" for i in range(count)]
    looked = [names[(i * 7919) % count] for i in range(min(LOOKUPS, count))]
    specs = dict.fromkeys(names, Spec((4,), "f4", attrs=ATTRIBUTES))
    changed, title = names[count // 2], f"{count:,} variables"
    whats = {
        "create": count, "close": 1, "open": 1, "list": 1, "read all attributes": 3 * count,
        f"open {len(looked):,} by name": len(looked), "reopen, write an attribute, close": 1,
        "reopen, create a group, close": 1,
    }  # fmt: skip
    create, close, opening, listing, attributes, by_name, attribute, group = (f"{title}, {what}" for what in whats)

    def run(peer: Any, watch: Stopwatch) -> None:
        with watch(create):
            peer.create(specs)
        with watch(close):
            peer.close()
        with watch(opening):
            found = peer.open()
        with watch(listing):
            listed = list(found)
        of = peer.attributes
        with watch(attributes):
            read = sum(float(of(found[name])["valid_max"]) for name in names)
        with watch(by_name):
            for name in looked:
                found[name]
        peer.close()
        right = sorted(listed) == names and read == count * MAXIMUM
        with watch(attribute):
            peer.open("r+")
            peer.set_attribute(changed, "units", "km s-1")
            peer.close()
        if "groups" in peer.ways:
            with watch(group):
                peer.open("r+")
                peer.file.create_group("a group")
                peer.close()
        else:
            watch.without("has no groups in classic files", group)
        right &= of(peer.open()[changed])["units"] == "km s-1"
        peer.close()
        if not right:
            raise AssertionError(f"{title}, {peer.path}: not what was written")

    slow = {"netCDF4": "definitions take it quadratic time: 131 s for 10,000 variables without an attribute"}
    peers = {**peers, **slow} if count >= 10_000 else peers
    job.turns({f"{title}, {what}": (None, calls) for what, calls in whats.items()}, peers, run, slow)
