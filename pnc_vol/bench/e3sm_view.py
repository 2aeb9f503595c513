"""What it costs to see a set of subfiles as one file, and to make one of it: by one rank, while the others wait.

Knows: sets, canonical files, clocks of this process. Does not know: who wrote them.

A round replays the set, copies the result with the system's own call, and opens and reads both: what is compared is of
the same run, on files in the page cache.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pnc_vol
from pnc_vol.bench.e3sm_cases import CaseFile
from pnc_vol.bench.e3sm_setup import Setup
from pnc_vol.bench.serial import copy_file
from pnc_vol.system import REAL, exists

__all__ = ["Seen", "lines", "look"]

_READS = 50


class Spent(NamedTuple):
    """Seconds, of the clock on the wall and of the processor."""

    wall: float
    cpu: float


class Seen(NamedTuple):
    """One round.

    file, variable : str
    open, read, replay : Spent, of the set.
    plain_open, plain_read, copy : Spent, of the canonical file.
    nbytes : int, of the canonical file.
    """

    file: str
    variable: str
    open: Spent
    read: Spent
    replay: Spent
    plain_open: Spent
    plain_read: Spent
    copy: Spent
    nbytes: int


def look(setup: Setup, file: CaseFile, base: str) -> Seen:
    """Replay, copy, open and read, once; what is read is the largest variable, of two dimensions or more."""
    shapes = {v.name: setup.shape(file, v) for v in file.variables if v.number}
    found = {name: shape for name, shape in shapes.items() if len(shape) > 1}
    name = max(found, key=lambda one: math.prod(found[one]))
    whole, copied = f"{base}.replayed", f"{base}.copied"
    try:
        replay = _spent(lambda: pnc_vol.replay(base, output=whole, overwrite=True))
        copy = _spent(lambda: copy_file(whole, copied))
        times = [*_of_file(base, name), *_of_file(whole, name)]
        return Seen(file.name, name, times[0], times[1], replay, times[2], times[3], copy, REAL.stat(whole).st_size)
    finally:
        for path in (whole, copied):
            if exists(REAL, path):
                REAL.unlink(path)


def _spent(do: Callable[[], Any]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    do()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def _of_file(path: str, name: str) -> tuple[Spent, Spent]:
    """Opening it, and a warm read of a variable."""
    made: list[Any] = []
    opened = _spent(lambda: made.append(pnc_vol.File(path)))
    with made[0] as f:
        dataset = f[name]
        dataset[...]
        each = [_spent(lambda: dataset[...]) for _ in range(_READS)]
    return opened, _median(each)


def _median(many: Sequence[Spent]) -> Spent:
    return Spent(*(statistics.median(column) for column in zip(*many, strict=True)))


def lines(layout: str, rounds: Sequence[Seen]) -> list[str]:
    """Medians, and what they are of the canonical file's and of the copy's."""
    first = rounds[0]
    by = {what: _median([getattr(one, what) for one in rounds]) for what in Seen._fields[2:8]}
    found = [f"==== {layout}: one rank sees {first.file} as one file of {first.nbytes / (1 << 20):.1f} MiB ===="]
    for what, ours, plain, times in (
        ("opening", "open", "plain_open", "canonical"),
        (f"reading {first.variable}", "read", "plain_read", "canonical"),
        ("replay", "replay", "copy", "plain copy"),
    ):
        (wall, cpu), (other_wall, other_cpu) = by[ours], by[plain]
        found.append(
            f"{what:24s} {wall * 1e3:9.3f} ms (CPU {cpu * 1e3:9.3f}); {times} {other_wall * 1e3:9.3f} "
            f"(CPU {other_cpu * 1e3:9.3f}): {wall / other_wall:6.2f} x (CPU {cpu / max(other_cpu, 1e-9):6.2f} x)"
        )
    return found
