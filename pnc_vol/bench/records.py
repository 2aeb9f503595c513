"""``python -m pnc_vol.bench records`` writes records of variables that grow together, with flushes.

A model writes one record of each of its variables in each step, and makes sure now and then that readers see them; in
the file the records of the variables lie interleaved, so a flush has as many pieces as records.

Knows: the work. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.bench.measure import Job, Stopwatch, check, times
from pnc_vol.bench.peers import LIBRARIES, Spec, installed

VARIABLES, WIDTH = 20, 16
SLOW = {"scipy": "writes the whole file anew at each flush"}


def main(job: Job) -> None:
    """Flush at each record, and at every fiftieth."""
    count, peers = times(job.options.scale, 2_000), installed(LIBRARIES)
    _records(job, {**peers, **SLOW}, count, 1)
    _records(job, peers, count, 50)


def _records(job: Job, peers: dict[str, Any], count: int, every: int) -> None:
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
    job.turns({written: (size, VARIABLES * count), read: (size, VARIABLES)}, peers, run, SLOW)
