"""``python -m pnc_vol.bench small``: what users do most: a small file, a script of one dataset, a flush in each step.

The life of a small file is to create it with five datasets of ten numbers, close, open, read and close it. The script
is a process of its own, from its start to its end: with the bytecode of all that it imports, and without any, as on
machines that do not keep it.

Knows: the works. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np

from pnc_vol.bench.measure import Stopwatch
from pnc_vol.bench.peers import installed as peers
from pnc_vol.bench.serial import Work, check, clear, times
from pnc_vol.system import REAL, exists

__all__ = ["peers", "works"]

_SCRIPT = "import sys, numpy, {} as m\nwith m.File(sys.argv[1], 'w') as f: f['x'] = numpy.arange(10.0)"
_OTHERS = dict.fromkeys(("netCDF4", "scipy", "PnetCDF-Python", "os.pwrite"), "is not asked")


def works(scale: float) -> list[Work]:
    """The works, at `scale` times their real size."""
    return [
        _life(scale),
        _script(kept=True),
        _script(kept=False),
        _steps(scale),
        _attributes(scale),
        _attributes(scale, of_file=True),
    ]


def _life(scale: float) -> Work:
    count = times(scale, 200)
    phase = f"{count:,} x the life of a file with 5 small datasets"
    values = np.arange(50.0).reshape(5, 10)

    def run(peer: Any, watch: Stopwatch) -> None:
        found = np.empty_like(values)
        for _ in range(count):
            clear(peer.path)
            with watch(phase):
                peer.write_many(values)
                peer.read_many(found)
            check(f"{phase}, {peer.path}", found, values)
        clear(peer.path)

    return Work({phase: (None, count)}, run)


def _script(*, kept: bool) -> Work:
    phase = f"a script that writes one dataset, {'with' if kept else 'without'} bytecode"

    def run(peer: Any, watch: Stopwatch) -> None:
        bytecode = os.path.join(peer.folder, f"{peer.name}.bytecode")
        job = [sys.executable, "-E", "-X", f"pycache_prefix={bytecode}", "-c", _SCRIPT.format(peer.module.__name__)]
        job.append(peer.path)
        if not kept:
            job[1:1] = ["-B"]
            job[4] += ".none"
        elif not exists(REAL, bytecode):
            # the first start writes it
            subprocess.run(job, check=True)
        clear(peer.path)
        with watch(phase):
            subprocess.run(job, check=True)
        check(f"{phase}, {peer.path}", peer.read(), np.arange(10.0))
        clear(peer.path)

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
        check(f"{phase}, {peer.path}", peer.read(), rows)
        clear(peer.path)

    return Work({phase: (None, count)}, run, {phase: _OTHERS})


def _attributes(scale: float, *, of_file: bool = False) -> Work:
    count = times(scale, 5_000)
    phase = f"{count:,} x an attribute{' of the file' if of_file else ''} and a flush"

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
        check(f"{phase}, {peer.path}", np.array([stored[f"a{i}"] for i in range(count)]), np.arange(count))
        clear(peer.path)

    return Work({phase: (None, count)}, run, {phase: _OTHERS})
