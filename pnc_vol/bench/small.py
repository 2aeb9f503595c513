"""``python -m pnc_vol.bench small`` makes small files, and flushes in each step.

The life of a small file is to create it with five datasets of ten numbers, close, open, read and close it. The script
is a process of its own, from its start to its end: with the bytecode of all that it imports, and without any, as on
machines that do not keep it.

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
from pnc_vol.bench.peers import able, installed
from pnc_vol.system import REAL, exists

_SCRIPT = "import sys, numpy, {} as m\nwith m.File(sys.argv[1], 'w') as f: f['x'] = numpy.arange(10.0)"


def main(job: Job) -> None:
    """Make small files, and flush in each step."""
    scale, peers = job.options.scale, installed()
    _life(job, peers, times(scale, 200))
    peers = able(peers, "groups", "is not asked")
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
        with watch(phase), peer.module.File(peer.path, "w", **how) as f:
            write(f)
        with peer.module.File(peer.path) as f:
            check(f"{phase}, {peer.path}", stored(f), wanted)

    job.turns({phase: (None, len(wanted))}, peers, run)
