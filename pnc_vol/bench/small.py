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
from typing import Any

import numpy as np

from pnc_vol.bench.measure import Bench, Stopwatch, Work, check, clear, times
from pnc_vol.bench.peers import LIBRARIES, Spec, installed
from pnc_vol.system import REAL, exists

__all__ = ["BENCHES"]

_SCRIPT = "import sys, numpy, {} as m\nwith m.File(sys.argv[1], 'w') as f: f['x'] = numpy.arange(10.0)"
_OTHERS = dict.fromkeys(("netCDF4", "scipy", "PnetCDF-Python", "os.pwrite"), "is not asked")
VARIABLES, WIDTH = 20, 16
LOOKUPS = 1000
MAXIMUM = 99.5
ATTRIBUTES = {"units": "m s-1", "long_name": "a name of some length", "valid_max": MAXIMUM}


def _small(scale: float) -> list[Work]:
    return [
        _life(scale), _script(kept=True), _script(kept=False), _steps(scale), _attributes(scale, ""),
        _attributes(scale, " of the file"),
    ]  # fmt: skip


def _life(scale: float) -> Work:
    count = times(scale, 200)
    phase = f"{count:,} x the life of a file with 5 small datasets"
    values = np.arange(50.0).reshape(5, 10)
    rows = {f"v{i}": row for i, row in enumerate(values)}

    def run(peer: Any, watch: Stopwatch) -> None:
        found = np.empty_like(values)
        out = dict(zip(rows, found, strict=True))
        for _ in range(count):
            clear(peer.path)
            with watch(phase):
                peer.save(rows)
                peer.read_all(out)
            check(f"{phase}, {peer.path}", found, values)
        clear(peer.path)

    return Work({phase: (None, count)}, run)


def _checked(phase: str, peer: Any, values: Any) -> None:
    """Compare the variable ``x`` with what it should hold, and remove the file."""
    peer.open()
    found = peer.get("x")
    peer.close()
    check(f"{phase}, {peer.path}", found, values)
    clear(peer.path)


def _script(*, kept: bool) -> Work:
    phase = f"a script that writes one dataset, {'with' if kept else 'without'} bytecode"

    def run(peer: Any, watch: Stopwatch) -> None:
        bytecode = os.path.join(peer.folder, f"{peer.name}.bytecode")
        script = ["-c", _SCRIPT.format(peer.module.__name__), peer.path]
        job = [sys.executable, *([] if kept else ["-B"]), "-E", "-X"]
        job += [f"pycache_prefix={bytecode}{'' if kept else '.none'}", *script]
        if kept and not exists(REAL, bytecode):
            # the first start writes it
            subprocess.run(job, check=True)
        clear(peer.path)
        with watch(phase):
            subprocess.run(job, check=True)
        _checked(phase, peer, np.arange(10.0))

    return Work({phase: (None, 1)}, run, {phase: _OTHERS})


def _steps(scale: float) -> Work:
    count = times(scale, 2_000)
    phase = f"{count:,} x a record of 100 numbers and a flush"
    rows = np.random.default_rng(5).random((count, 100))

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        with watch(phase), peer.module.File(peer.path, "w") as f:
            x = f.create_dataset("x", (0, 100), "f8", maxshape=(None, 100), chunks=(1, 100))
            for i, row in enumerate(rows):
                x.resize(i + 1, axis=0)
                x[i] = row
                f.flush()
        _checked(phase, peer, rows)

    return Work({phase: (None, count)}, run, {phase: _OTHERS})


def _attributes(scale: float, of_file: str) -> Work:
    count = times(scale, 5_000)
    phase = f"{count:,} x an attribute{of_file} and a flush"

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        with watch(phase), peer.module.File(peer.path, "w", track_order=True) as f:
            x = f.create_dataset("x", data=np.arange(10.0), track_order=True)
            attrs = (f if of_file else x).attrs
            for i in range(count):
                attrs[f"a{i}"] = i
                f.flush()
        with peer.module.File(peer.path) as f:
            stored = dict((f if of_file else f["x"]).attrs)
        check(f"{phase}, {peer.path}", [stored[f"a{i}"] for i in range(count)], np.arange(count))
        clear(peer.path)

    return Work({phase: (None, count)}, run, {phase: _OTHERS})


def _records(scale: float) -> list[Work]:
    return [_interleaved(times(scale, 2_000), every) for every in (1, 50)]


def _interleaved(count: int, every: int) -> Work:
    title = f"{VARIABLES} record variables x {count:,} records of {WIDTH}, a flush every {every}"
    phases = [f"{title}, write", f"{title}, read a variable at a time"]
    specs = {f"v{i}": Spec((0, WIDTH), "f8", grows=True) for i in range(VARIABLES)}

    def run(peer: Any, watch: Stopwatch) -> None:
        values = np.random.default_rng(6).random((VARIABLES, count, WIDTH))
        clear(peer.path)
        with watch(phases[0]):
            made = list(peer.create(specs).values())
            for t in range(count):
                for x, rows in zip(made, values, strict=True):
                    peer.append(x, t, rows[t])
                if (t + 1) % every == 0:
                    peer.flush()
            peer.close()
        found = np.zeros_like(values)
        out = dict(zip(specs, found, strict=True))
        with watch(phases[1]):
            getattr(peer, "read_into", peer.read_all)(out)
        check(f"{phases[1]}, {peer.path}", found, values)
        clear(peer.path)

    size = 8 * VARIABLES * count * WIDTH
    amounts = {phases[0]: (size, VARIABLES * count), phases[1]: (size, VARIABLES)}
    slow = {"scipy": "writes the whole file anew at each flush"}
    return Work(amounts, run, slow=slow, hopeless=frozenset(slow if every == 1 else ()))


def _objects(scale: float) -> list[Work]:
    return [_many_objects(times(scale, count, least=3)) for count in (10_000, 100_000)]


def _many_objects(count: int) -> Work:
    names = [f"v{i:06d}" for i in range(count)]
    looked = [names[(i * 7919) % count] for i in range(min(LOOKUPS, count))]
    specs = dict.fromkeys(names, Spec((4,), "f4", attrs=ATTRIBUTES))
    changed = names[count // 2]
    title = f"{count:,} variables"
    whats = {
        "create": count, "close": 1, "open": 1, "list": 1, "read all attributes": 3 * count,
        f"open {len(looked):,} by name": len(looked),
        "reopen, write an attribute, close": 1,
        "reopen, create a group, close": 1,
    }  # fmt: skip
    create, close, opening, listing, attributes, by_name, attribute, group = (f"{title}, {what}" for what in whats)

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        with watch(create):
            peer.create(specs)
        with watch(close):
            peer.close()
        with watch(opening):
            found = peer.open()
        with watch(listing):
            listed = list(found)
        with watch(attributes):
            read = sum(float(peer.attributes(found[name])["valid_max"]) for name in names)
        with watch(by_name):
            for name in looked:
                found[name]
        peer.close()
        right = sorted(listed) == names and read == count * MAXIMUM
        with watch(attribute):
            peer.set_attribute(peer.open("r+")[changed], "units", "km s-1")
            peer.close()
        if hasattr(peer, "create_group"):
            with watch(group):
                peer.open("r+")
                peer.create_group("a group")
                peer.close()
        right &= peer.attributes(peer.open()[changed])["units"] == "km s-1"
        peer.close()
        if not right:
            raise AssertionError(f"{title}, {peer.path}: not what was written")

    no_groups = dict.fromkeys(("netCDF4", "scipy", "PnetCDF-Python"), "has no groups in classic files")
    slow = {"netCDF4": "definitions take it quadratic time: 131 s for 10,000 variables without an attribute"}
    if count > 10_000:
        slow["netCDF4"] += ", hours for these"
    amounts = {f"{title}, {what}": (None, calls) for what, calls in whats.items()}
    hopeless = frozenset(slow) if count >= 10_000 else frozenset()
    return Work(amounts, run, {group: no_groups}, slow, hopeless)


BENCHES = {
    "small": Bench(installed, _small),
    "records": Bench(lambda folder: installed(folder, LIBRARIES), _records),
    "objects": Bench(lambda folder: installed(folder, LIBRARIES), _objects),
}
